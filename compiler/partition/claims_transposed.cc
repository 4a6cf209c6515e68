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

}  // namespace

std::optional<Claim> claim_transposed(NodeOp op) {
  const auto qy = quantisation(op, 1, 2, DType::kUint8);
  if (!qy || !qy->scalar() || !is_power_of_two(qy->s())) return std::nullopt;
  std::vector<mlir::Operation*> covered{op.getOperation()};
  NodeOp inner = nn::defining_op(op.getInputs()[0]);
  bool relu = false;
  if (inner && inner.is("Relu")) {
    relu = true;
    covered.push_back(inner.getOperation());
    inner = nn::defining_op(inner.getInputs()[0]);
  }
  if (!inner || !inner.is("ConvTranspose") || !all_static(inner)) return std::nullopt;
  covered.push_back(inner.getOperation());
  NodeOp dq = nn::defining_op(inner.getInputs()[0], "DequantizeLinear");
  if (!dq) return std::nullopt;
  covered.push_back(dq.getOperation());
  mlir::Value x = dq.getInputs()[0];
  if (!is_byte(nn::dtype_of(x)) || nn::constant_value(x) || !has_elements(x)) return std::nullopt;
  const auto qx = quantisation(dq, 1, 2, nn::dtype_of(x));
  const auto w = nn::constant_value(inner.getInputs()[1]);
  if (!qx || !qx->scalar() || !is_power_of_two(qx->s()) || !w || w->dtype() != DType::kFloat) return std::nullopt;
  const Shape in = *nn::shape_of(x), out = *nn::shape_of(inner.getResult(0));
  if (in.size() < 3 || in.size() > 4 || w->rank() != static_cast<int64_t>(in.size())) return std::nullopt;

  // The window; the padding in front is given, that behind is what the result's extents leave.
  const ops::Node node = nn::to_node(inner);
  const size_t dims = in.size() - 2;
  const std::string automatic = node.get_string("auto_pad", "NOTSET");
  if ((automatic != "NOTSET" && automatic != "VALID") || node.has("output_shape")) return std::nullopt;
  const auto strides = node.get_ints("strides", Shape(dims, 1)), dilations = node.get_ints("dilations", Shape(dims, 1));
  const auto pads = automatic == "VALID" ? Shape(2 * dims, 0) : node.get_ints("pads", Shape(2 * dims, 0));
  if (strides.size() != dims || dilations.size() != dims || pads.size() != 2 * dims) return std::nullopt;
  graph::TransposedConvolution what;
  for (size_t i = 0; i < dims; ++i) {
    const size_t at = 2 - dims + i;
    what.kernel[at] = w->shape()[2 + i];
    what.stride[at] = strides[i];
    what.dilation[at] = dilations[i];
    what.before[at] = pads[i];
    if (strides[i] < 1 || dilations[i] < 1 || pads[i] < 0) return std::nullopt;
  }
  if (what.stride[0] * what.stride[1] > 64) return std::nullopt;
  what.groups = node.get_int("group", 1);
  const int64_t ic = in[1], oc = out[1];
  if (what.groups < 1 || ic % what.groups || oc % what.groups || w->shape()[0] != ic ||
      w->shape()[1] * what.groups != oc)
    return std::nullopt;

  // Integer weights [oc][ic / groups][kernel] and each channel's unit.
  const int64_t ic_each = ic / what.groups, oc_each = oc / what.groups, taps = what.kernel[0] * what.kernel[1];
  const std::vector<float> values = w->to_floats();
  std::vector<float> bias(static_cast<size_t>(oc), 0.0f);
  if (mlir::Value b = nn::input_or_null(inner, 2)) {
    const auto constant = nn::constant_value(b);
    if (!constant || constant->dtype() != DType::kFloat || constant->size() != oc) return std::nullopt;
    bias = constant->to_floats();
  }
  const Range from = range_of(qx->dtype);
  const double largest = std::max(from.high - qx->z(), qx->z() - from.low);
  what.weights.resize(static_cast<size_t>(oc * ic_each * taps));
  what.stage = requantise({}, {}, *qy);
  for (int64_t o = 0; o < oc; ++o) {
    const auto at = [&](int64_t i, int64_t t) {
      return values[static_cast<size_t>(((o / oc_each * ic_each + i) * oc_each + o % oc_each) * taps + t)];
    };
    const float b = bias[static_cast<size_t>(o)];
    int exponent = 127;
    for (int64_t k = 0; k < ic_each * taps; ++k) {
      const float v = at(k / taps, k % taps);
      if (!std::isfinite(v)) return std::nullopt;
      if (v != 0) exponent = std::min(exponent, lowest_bit(v));
    }
    if (!std::isfinite(b)) return std::nullopt;
    if (b != 0) exponent = std::min(exponent, lowest_bit(b) - std::ilogb(qx->s()));
    if (exponent == 127) exponent = 0;  // nothing but zeros
    if (exponent < -60 || exponent > 60) return std::nullopt;
    const double unit = std::ldexp(static_cast<double>(qx->s()), exponent);
    double sum = std::fabs(b) / unit;
    for (int64_t k = 0; k < ic_each * taps; ++k) {
      const double v = std::ldexp(static_cast<double>(at(k / taps, k % taps)), -exponent);
      if (v < -255 || v > 255) return std::nullopt;
      what.weights[static_cast<size_t>(o * ic_each * taps + k)] = static_cast<int16_t>(v);
      sum += std::fabs(v) * largest;
    }
    if (sum >= 16777216.0) return std::nullopt;
    what.stage.bias.push_back(static_cast<int32_t>(b / unit));
    what.stage.multiplier.push_back(static_cast<float>(unit / static_cast<double>(qy->s())));
  }
  if (relu) what.stage.low = std::max(what.stage.low, 0);
  if (what.stage.low > what.stage.high) return std::nullopt;
  what.input_zero = qx->z();
  Claim c = base_claim(op, {x});
  c.op.kind = "ConvTranspose";
  c.op.macs = model_macs(inner);
  c.covered = std::move(covered);
  c.op.what = std::move(what);
  return c;
}

}  // namespace tessera::partition
