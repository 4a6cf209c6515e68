// SPDX-License-Identifier: Apache-2.0
// Transposed convolutions of dequantised bytes. ONNX Runtime computes them in fp32 in an order of its own, so they are
// placed where every order gives the same bits: power-of-two scales, weights that are small integers times a unit for
// each output channel, sums below 2^24 units. The result is then an integer convolution by phases: outputs at equal
// distance modulo the stride read the same taps at the same offsets.
#include <bit>
#include <cmath>

#include "compiler/partition/claims_util.h"

namespace tessera::partition {
namespace {

/// Exponent of the lowest set bit of a finite value other than 0.
int lowest_bit(float value) {
  int exponent = 0;
  const auto mantissa = static_cast<uint32_t>(std::fabs(std::frexp(value, &exponent)) * 16777216.0f);
  return exponent - 24 + std::countr_zero(mantissa);
}

/// QuantizeLinear([Relu] ConvTranspose(DequantizeLinear(bytes))) with power-of-two scales.
struct Pattern {
  NodeOp convolution;
  mlir::Value x;
  Quantisation qx, qy;
  bool relu = false;
  std::vector<mlir::Operation*> covered;
};

std::optional<Pattern> pattern_of(NodeOp op) {
  Pattern p;
  const auto qy = result_quantisation(op, 1, 2);
  if (!qy || !qy->scalar() || !is_power_of_two(qy->s())) return std::nullopt;
  p.qy = *qy;
  p.covered.push_back(op.getOperation());
  NodeOp inner = nn::defining_op(op.getInputs()[0]);
  if (inner && inner.is("Relu")) {
    p.relu = true;
    p.covered.push_back(inner.getOperation());
    inner = nn::defining_op(inner.getInputs()[0]);
  }
  if (!inner || !inner.is("ConvTranspose") || !all_static(inner)) return std::nullopt;
  p.convolution = inner;
  p.covered.push_back(inner.getOperation());
  NodeOp dq = nn::defining_op(inner.getInputs()[0], "DequantizeLinear");
  if (!dq) return std::nullopt;
  p.covered.push_back(dq.getOperation());
  p.x = dq.getInputs()[0];
  if (!is_byte(nn::dtype_of(p.x)) || nn::constant_value(p.x) || !has_elements(p.x)) return std::nullopt;
  const auto qx = operand_quantisation(dq, 1, 2);
  if (!qx || !qx->scalar() || !is_power_of_two(qx->s())) return std::nullopt;
  p.qx = *qx;
  return p;
}

/// The window; the padding in front is given, that behind is what the result's extents leave.
bool read_window(const ops::Node& node, const Shape& weights, graph::TransposedConvolution& what) {
  const size_t dims = weights.size() - 2;
  const std::string automatic = node.get_string("auto_pad", "NOTSET");
  if ((automatic != "NOTSET" && automatic != "VALID") || node.has("output_shape")) return false;
  const auto strides = node.get_ints("strides", Shape(dims, 1)), dilations = node.get_ints("dilations", Shape(dims, 1));
  const auto pads = automatic == "VALID" ? Shape(2 * dims, 0) : node.get_ints("pads", Shape(2 * dims, 0));
  if (strides.size() != dims || dilations.size() != dims || pads.size() != 2 * dims) return false;
  for (size_t i = 0; i < dims; ++i) {
    const size_t at = 2 - dims + i;
    what.kernel[at] = weights[2 + i];
    what.stride[at] = strides[i];
    what.dilation[at] = dilations[i];
    what.before[at] = pads[i];
    if (strides[i] < 1 || dilations[i] < 1 || pads[i] < 0) return false;
  }
  return what.stride[0] * what.stride[1] <= 64;
}

/// fp32 weights and bias of one output channel as integers times a unit.
struct Channel {
  std::vector<float> weights;
  float bias = 0;
};

/// The exponent of the unit: the lowest bit that is set anywhere, in steps of the input's scale. Nothing for what is
/// not finite or too large.
std::optional<int> unit_exponent(const Channel& channel, float input_scale) {
  constexpr int kNone = 127;
  int exponent = kNone;
  for (const float v : channel.weights) {
    if (!std::isfinite(v)) return std::nullopt;
    if (v != 0) exponent = std::min(exponent, lowest_bit(v));
  }
  if (!std::isfinite(channel.bias)) return std::nullopt;
  if (channel.bias != 0) exponent = std::min(exponent, lowest_bit(channel.bias) - std::ilogb(input_scale));
  if (exponent == kNone) return 0;  // nothing but zeros
  if (exponent < -60 || exponent > 60) return std::nullopt;
  return exponent;
}

/// Appends a channel's integer weights to `what`, its bias and multiplier to the stage. False: the sums of these
/// products are not exact in fp32.
bool add_channel(const Channel& channel, const Pattern& p, graph::TransposedConvolution& what) {
  const auto exponent = unit_exponent(channel, p.qx.s());
  if (!exponent) return false;
  const Range from = range_of(p.qx.dtype);
  const double largest = std::max(from.high - p.qx.z(), p.qx.z() - from.low);
  const double unit = std::ldexp(static_cast<double>(p.qx.s()), *exponent);
  double sum = std::fabs(channel.bias) / unit;
  for (const float weight : channel.weights) {
    const double v = std::ldexp(static_cast<double>(weight), -*exponent);
    if (v < -255 || v > 255) return false;
    what.weights.push_back(static_cast<int16_t>(v));
    sum += std::fabs(v) * largest;
  }
  if (sum >= 16777216.0) return false;
  what.stage.bias.push_back(static_cast<int32_t>(channel.bias / unit));
  what.stage.multiplier.push_back(static_cast<float>(unit / static_cast<double>(p.qy.s())));
  return true;
}

/// The bias of each output channel, 0 where there is none; nothing when it is no constant.
std::optional<std::vector<float>> bias_of(NodeOp convolution, int64_t channels) {
  mlir::Value b = nn::input_or_null(convolution, 2);
  if (!b) return std::vector<float>(static_cast<size_t>(channels), 0.0f);
  const auto constant = nn::constant_value(b);
  if (!constant || constant->dtype() != DType::kFloat || constant->size() != channels) return std::nullopt;
  return constant->to_floats();
}

}  // namespace

std::optional<Claim> claim_transposed(NodeOp op) {
  auto p = pattern_of(op);
  if (!p) return std::nullopt;
  NodeOp convolution = p->convolution;
  const auto w = nn::constant_value(convolution.getInputs()[1]);
  const Shape in = *nn::shape_of(p->x), out = *nn::shape_of(convolution.getResult(0));
  if (!w || w->dtype() != DType::kFloat || in.size() < 3 || in.size() > 4 ||
      w->rank() != static_cast<int64_t>(in.size()))
    return std::nullopt;
  const ops::Node node = nn::to_node(convolution);
  graph::TransposedConvolution what;
  if (!read_window(node, w->shape(), what)) return std::nullopt;
  what.groups = node.get_int("group", 1);
  const int64_t ic = in[1], oc = out[1];
  if (what.groups < 1 || ic % what.groups || oc % what.groups || w->shape()[0] != ic ||
      w->shape()[1] * what.groups != oc)
    return std::nullopt;
  const auto bias = bias_of(convolution, oc);
  if (!bias) return std::nullopt;

  // Weights [ic][oc / groups][kernel] as [oc][ic / groups][kernel].
  const int64_t ic_each = ic / what.groups, oc_each = oc / what.groups, taps = what.kernel[0] * what.kernel[1];
  const std::vector<float> values = w->to_floats();
  what.stage = requantise({}, {}, p->qy);
  for (int64_t o = 0; o < oc; ++o) {
    Channel channel{{}, (*bias)[static_cast<size_t>(o)]};
    for (int64_t i = 0; i < ic_each; ++i) {
      const auto from = values.begin() + ((o / oc_each * ic_each + i) * oc_each + o % oc_each) * taps;
      channel.weights.insert(channel.weights.end(), from, from + taps);
    }
    if (!add_channel(channel, *p, what)) return std::nullopt;
  }
  if (p->relu) what.stage.low = std::max(what.stage.low, 0);
  if (what.stage.low > what.stage.high) return std::nullopt;
  what.input_zero = p->qx.z();
  Claim c = base_claim(op, {p->x});
  c.op.kind = "ConvTranspose";
  c.op.macs = model_macs(convolution);
  c.covered = std::move(p->covered);
  c.op.what = std::move(what);
  return c;
}

/// litert Requantise, by XNNPACK's float factors, of the int32 sums of a ConvTransposeInteger: exact by formula.
std::optional<Claim> claim_litert_transposed(NodeOp op) {
  const ops::Node node = nn::to_node(op);
  NodeOp convolution = nn::defining_op(op.getInputs()[0], "ConvTransposeInteger", nn::kLitertDomain);
  if (!convolution || !all_static(convolution) || !convolution.getResult(0).hasOneUse() ||
      node.get_string("kernel", "reference") != "xnnpack" || node.get_int("axis", 1) != 1)
    return std::nullopt;
  mlir::Value x = convolution.getInputs()[0], weights = convolution.getInputs()[1];
  const auto w = nn::constant_value(weights);
  const Shape in = *nn::shape_of(x), out = *nn::shape_of(convolution.getResult(0));
  if (!w || !is_byte(nn::dtype_of(x)) || nn::constant_value(x) || !has_elements(x) || in.size() != 4)
    return std::nullopt;
  const ops::Node sums = nn::to_node(convolution);
  graph::TransposedConvolution what;
  if (!read_window(sums, w->shape(), what)) return std::nullopt;
  what.groups = 1;
  const int64_t ic = in[1], oc = out[1], taps = what.kernel[0] * what.kernel[1];
  const std::vector<float> scales = node.get_floats("w_scales");
  const auto bias = bias_values(op, 1, oc);
  if (!bias || scales.empty() || (scales.size() != 1 && static_cast<int64_t>(scales.size()) != oc)) return std::nullopt;
  const auto zero = static_cast<int32_t>(node.get_int("y_zero_point", 0));
  const Quantisation y{{node.get_float("y_scale", 1)}, {zero}, nn::dtype_of(op.getResult(0))};
  what.stage = requantise({}, {}, y);
  what.stage.low = static_cast<int32_t>(node.get_int("low", 0)) - zero;
  what.stage.high = static_cast<int32_t>(node.get_int("high", 0)) - zero;
  // Weights [ic][oc][kernel] as [oc][ic][kernel].
  const std::vector<int64_t> values = w->to_int64s();
  const int64_t w_zero = sums.get_int("w_zero_point", 0);
  for (int64_t o = 0; o < oc; ++o) {
    for (int64_t i = 0; i < ic; ++i)
      for (int64_t t = 0; t < taps; ++t)
        what.weights.push_back(static_cast<int16_t>(values[static_cast<size_t>((i * oc + o) * taps + t)] - w_zero));
    const float scale = scales[scales.size() == 1 ? 0 : static_cast<size_t>(o)];
    what.stage.multiplier.push_back(node.get_float("x_scale", 1) * scale / y.s());
    what.stage.bias.push_back(bias->empty() ? 0 : (*bias)[bias->size() == 1 ? 0 : static_cast<size_t>(o)]);
  }
  what.input_zero = static_cast<int32_t>(sums.get_int("x_zero_point", 0));
  Claim c = base_claim(op, {x});
  c.op.kind = "ConvTranspose";
  c.op.macs = model_macs(convolution);
  c.covered = {op.getOperation(), convolution.getOperation()};
  c.op.what = std::move(what);
  return c;
}

}  // namespace tessera::partition
