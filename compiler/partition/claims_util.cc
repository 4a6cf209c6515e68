// SPDX-License-Identifier: Apache-2.0
// Reading of constant operands and window attributes for the matchers.
#include "compiler/partition/claims_util.h"

#include <cmath>

namespace tessera::partition {

namespace {

std::optional<Quantisation> quantisation(NodeOp op, unsigned scale_index, unsigned zero_index, DType type) {
  mlir::Value scale_value = nn::input_or_null(op, scale_index);
  if (!scale_value) return std::nullopt;
  const auto scale = nn::constant_value(scale_value);
  if (!scale || scale->dtype() != DType::kFloat) return std::nullopt;
  Quantisation q;
  q.scale = scale->to_floats();
  for (float s : q.scale)
    if (!std::isfinite(s) || s <= 0) return std::nullopt;
  mlir::Value zero_value = nn::input_or_null(op, zero_index);
  if (!zero_value) {
    if (!is_byte(type)) return std::nullopt;
    q.zero = {0};
    q.dtype = type;
    return q;
  }
  const auto zero = nn::constant_value(zero_value);
  if (!zero || !is_byte(zero->dtype())) return std::nullopt;
  q.dtype = zero->dtype();
  for (int64_t z : zero->to_int64s()) q.zero.push_back(static_cast<int32_t>(z));
  if (q.scale.empty() || q.zero.empty()) return std::nullopt;
  return q;
}

}  // namespace

std::optional<Quantisation> operand_quantisation(NodeOp op, unsigned scale_index, unsigned zero_index) {
  mlir::Value operand = nn::input_or_null(op, scale_index - 1);
  return operand ? quantisation(op, scale_index, zero_index, nn::dtype_of(operand)) : std::nullopt;
}

std::optional<Quantisation> result_quantisation(NodeOp op, unsigned scale_index, unsigned zero_index) {
  return quantisation(op, scale_index, zero_index, nn::dtype_of(op.getResult(0)));
}

/// Of kernels, strides, dilations and pads in the graphs of the NPU (npu/check.cc).
constexpr int64_t kLargestWindow = int64_t{1} << 20;

std::optional<Window> window(const ops::Node& node, const Shape& kernel, const Shape& spatial, const Shape& out) {
  const size_t dims = spatial.size();
  if (dims < 1 || dims > 2 || kernel.size() != dims || out.size() != dims) return std::nullopt;
  const auto strides = node.get_ints("strides", Shape(dims, 1)), dilations = node.get_ints("dilations", Shape(dims, 1));
  const auto pads = node.get_ints("pads", Shape(2 * dims, 0));
  const std::string automatic = node.get_string("auto_pad", "NOTSET");
  if (strides.size() != dims || dilations.size() != dims || pads.size() != 2 * dims) return std::nullopt;
  const auto usual = [](int64_t value) { return value >= 1 && value < kLargestWindow; };
  Window w;
  for (size_t i = 0; i < dims; ++i) {
    const size_t at = 2 - dims + i;
    if (!usual(kernel[i]) || !usual(strides[i]) || !usual(dilations[i])) return std::nullopt;
    w.kernel[at] = kernel[i];
    w.stride[at] = strides[i];
    w.dilation[at] = dilations[i];
    const int64_t reach = (out[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1;
    const int64_t total = std::max<int64_t>(0, reach - spatial[i]);
    if (automatic == "SAME_UPPER")
      w.before[at] = total / 2;
    else if (automatic == "SAME_LOWER")
      w.before[at] = total - total / 2;
    else
      w.before[at] = automatic == "VALID" ? 0 : pads[i];
    w.after[at] = std::max<int64_t>(0, reach - spatial[i] - w.before[at]);
    if (w.before[at] < 0 || w.before[at] >= kLargestWindow) return std::nullopt;
  }
  return w;
}

npu::Stage requantise(std::vector<float> multiplier, std::vector<int32_t> bias, const Quantisation& y) {
  npu::Stage stage;
  stage.convert = true;
  stage.multiplier = std::move(multiplier);
  stage.bias = std::move(bias);
  const Range range = range_of(y.dtype);
  stage.low = range.low - y.z();
  stage.high = range.high - y.z();
  stage.out_zero = y.z();
  return stage;
}

Claim base_claim(NodeOp op, std::vector<mlir::Value> operands) {
  Claim c;
  c.root = op;
  c.op.name = nn::node_name(op.getOperation());
  c.op.kind = op.getOpType().str();
  c.operands = std::move(operands);
  c.covered = {op.getOperation()};
  c.op.macs = model_macs(op);
  return c;
}

bool all_static(NodeOp op) {
  for (mlir::Value v : op.getInputs())
    if (!nn::is_none(v) && !nn::is_static(v)) return false;
  for (mlir::Value v : op.getOutputs())
    if (!nn::is_static(v)) return false;
  return true;
}

bool has_elements(mlir::Value value) {
  const auto shape = nn::shape_of(value);
  return shape && std::all_of(shape->begin(), shape->end(), [](int64_t d) { return d > 0; });
}

bool is_power_of_two(float value) {
  int exponent = 0;
  return std::isfinite(value) && value > 0 && std::frexp(value, &exponent) == 0.5f && exponent > -60 && exponent < 60;
}

}  // namespace tessera::partition
