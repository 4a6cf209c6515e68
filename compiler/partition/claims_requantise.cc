// SPDX-License-Identifier: Apache-2.0
// Conversions of int32 sums to bytes: QuantizeLinear of dequantised sums with an activation between them, and
// ai.tessera Requantise, which becomes the stage of the product or sum in front of it where nothing else reads that.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/partition/claims_util.h"

namespace tessera::partition {
namespace {

/// A limit of Clip: nothing where there is none, NaN where it is not known.
std::optional<double> clip_limit(NodeOp clip, const ops::Node& node, unsigned operand, const char* attribute) {
  if (mlir::Value v = nn::input_or_null(clip, operand))
    return nn::constant_scalar(v).value_or(std::numeric_limits<double>::quiet_NaN());
  if (node.has(attribute)) return node.get_float(attribute, 0);
  return std::nullopt;
}

/// The bounds of a Clip into those of a stage whose result has scale `scale`.
bool apply_clip(NodeOp clip, float scale, npu::Stage& stage) {
  const ops::Node node = nn::to_node(clip);
  const auto bound = [&](double value) {  // quantised, without zero point
    return static_cast<int32_t>(std::nearbyint(std::clamp(value / static_cast<double>(scale), -1024.0, 1024.0)));
  };
  const auto low = clip_limit(clip, node, 1, "min"), high = clip_limit(clip, node, 2, "max");
  if ((low && std::isnan(*low)) || (high && std::isnan(*high)) || (low && high && *low > *high)) return false;
  if (low) stage.low = std::min(std::max(stage.low, bound(*low)), stage.high);
  if (high) stage.high = std::max(std::min(stage.high, bound(*high)), stage.low);
  return true;
}

/// An activation that rises monotonically, as bounds of the stage or as the slope of a leaky ReLU. False: another.
bool apply_activation(NodeOp activation, float scale, npu::Stage& stage, std::optional<float>& slope) {
  if (activation.is("Relu")) {
    stage.low = std::max(stage.low, 0);
    return true;
  }
  if (activation.is("LeakyRelu")) {
    slope = nn::to_node(activation).get_float("alpha", 0.01f);
    return *slope > 0 && *slope <= 1;
  }
  return activation.is("Clip") && apply_clip(activation, scale, stage);
}

/// The multipliers of a DequantizeLinear of int32 sums to a result of scale `scale`, and the axis along which they
/// vary. False: they are no powers of two, or not known.
bool read_multipliers(NodeOp dequantise, mlir::Value sums, float scale, graph::Requantise& what) {
  const auto scales = nn::constant_value(dequantise.getInputs()[1]);
  if (!scales || scales->dtype() != DType::kFloat || scales->rank() > 1) return false;
  for (float s : scales->to_floats()) {
    if (!is_power_of_two(s)) return false;
    what.stage.multiplier.push_back(s / scale);
  }
  if (what.stage.multiplier.size() <= 1) return true;
  const Shape shape = *nn::shape_of(sums);
  const auto rank = static_cast<int64_t>(shape.size());
  what.channel_axis = nn::to_node(dequantise).get_int("axis", 1);
  if (what.channel_axis < 0) what.channel_axis += rank;
  return what.channel_axis >= 0 && what.channel_axis < rank &&
         shape[static_cast<size_t>(what.channel_axis)] == static_cast<int64_t>(what.stage.multiplier.size());
}

}  // namespace

/// QuantizeLinear(activation(DequantizeLinear(int32))) with power-of-two scales. float(sum) * scale / scale' is then
/// one rounding, that of float(sum), as on the machine. An activation that rises monotonically commutes with rounding
/// and clamping: ReLU and Clip become bounds, a leaky ReLU the larger of two conversions.
std::optional<Requantised> requantised(NodeOp op, mlir::Value value) {
  const auto qy = result_quantisation(op, 1, 2);
  if (!qy || !qy->scalar() || !is_power_of_two(qy->s())) return std::nullopt;
  graph::Requantise what;
  what.stage = requantise({}, {}, *qy);
  std::vector<mlir::Operation*> covered{op.getOperation()};
  std::optional<float> slope;
  NodeOp inner = nn::defining_op(value);
  if (!inner || !inner.getDomain().empty()) return std::nullopt;
  if (!inner.is("DequantizeLinear")) {
    if (!apply_activation(inner, qy->s(), what.stage, slope)) return std::nullopt;
    covered.push_back(inner.getOperation());
    inner = nn::defining_op(inner.getInputs()[0], "DequantizeLinear");
    if (!inner) return std::nullopt;
  }
  mlir::Value sums = inner.getInputs()[0];
  if (nn::dtype_of(sums) != DType::kInt32 || nn::constant_value(sums) || nn::input_or_null(inner, 2))
    return std::nullopt;
  if (!read_multipliers(inner, sums, qy->s(), what)) return std::nullopt;
  covered.push_back(inner.getOperation());
  if (slope) {
    what.other = what.stage;
    for (float& m : what.other->multiplier) m *= *slope;
  }
  return Requantised{std::move(what), sums, std::move(covered)};
}

namespace {

/// The conversion that ai.tessera Requantise asks for; nothing where the machine has none, or its numbers are not
/// known.
std::optional<npu::Stage> requantise_stage(NodeOp op, int64_t channels) {
  const auto scale = nn::constant_value(op.getInputs()[1]);
  if (!scale) return std::nullopt;
  const ops::Node node = nn::to_node(op);
  npu::Stage stage = requantise(scale->to_floats(), {}, {{1.0F}, {0}, nn::dtype_of(op.getResult(0))});
  if (mlir::Value bias = nn::input_or_null(op, 2)) {
    const auto values = nn::constant_value(bias);
    if (!values) return std::nullopt;
    for (int64_t b : values->to_int64s()) stage.bias.push_back(static_cast<int32_t>(b));
  }
  const auto of_channels = [&](size_t size) { return size == 1 || static_cast<int64_t>(size) == channels; };
  if (!of_channels(stage.multiplier.size()) || (!stage.bias.empty() && !of_channels(stage.bias.size())))
    return std::nullopt;
  stage.low = static_cast<int32_t>(node.get_int("low", -128));
  stage.high = static_cast<int32_t>(node.get_int("high", 127));
  stage.out_zero = static_cast<int32_t>(node.get_int("zero", 0));
  const bool finite =
      std::all_of(stage.multiplier.begin(), stage.multiplier.end(), [](float s) { return std::isfinite(s); });
  if (!finite || stage.low < -512 || stage.high > 511 || stage.low > stage.high || std::abs(stage.out_zero) > 255)
    return std::nullopt;
  return stage;
}

/// The product or sum that makes `x`, and that nothing else reads, with a stage whose numbers vary along `axis`, or do
/// not (-1).
std::optional<Claim> sums_with_stage(NodeOp op, mlir::Value x, const npu::Stage& stage, int64_t axis) {
  NodeOp sums = nn::defining_op(x);
  if (!sums || !x.hasOneUse() || !all_static(sums)) return std::nullopt;
  auto c = claim_integer_sums(sums);
  const int64_t lanes = sums.is("MatMulInteger") ? static_cast<int64_t>(nn::shape_of(x)->size()) - 1 : 1;
  if (!c) c = claim_byte_sums(sums);
  if (!c || (axis >= 0 && (lanes != axis || std::holds_alternative<graph::Reduce>(c->op.what)))) return std::nullopt;
  if (auto* pool = std::get_if<graph::Pool>(&c->op.what))
    pool->what.stage = stage;
  else if (auto* reduce = std::get_if<graph::Reduce>(&c->op.what))
    reduce->stage = stage;
  else
    product_stage(c->op) = stage;
  c->root = op;
  c->covered.push_back(op.getOperation());
  return c;
}

}  // namespace

std::optional<Claim> claim_requantise_sums(NodeOp op) {
  mlir::Value x = op.getInputs()[0];
  const Shape shape = *nn::shape_of(x);
  int64_t axis = nn::to_node(op).get_int("axis", -1);
  if (axis < 0) axis += static_cast<int64_t>(shape.size());
  if (axis < 0 || axis >= static_cast<int64_t>(shape.size()) || nn::constant_value(x)) return std::nullopt;
  auto stage = requantise_stage(op, shape[static_cast<size_t>(axis)]);
  if (!stage) return std::nullopt;
  const bool vary = stage->multiplier.size() > 1 || stage->bias.size() > 1;
  if (auto c = sums_with_stage(op, x, *stage, vary ? axis : -1)) return c;
  Claim c = base_claim(op, {x});
  graph::Requantise what;
  what.stage = std::move(*stage);
  if (vary) what.channel_axis = axis;
  c.op.what = std::move(what);
  return c;
}

std::optional<Claim> claim_requantise(NodeOp op) {
  auto found = requantised(op, op.getInputs()[0]);
  if (!found) return std::nullopt;
  Claim c = base_claim(op, {found->sums});
  c.covered = std::move(found->covered);
  c.op.what = std::move(found->what);
  return c;
}

}  // namespace tessera::partition
