// SPDX-License-Identifier: Apache-2.0
// Tessera's own operators on integers, of which tessera.tile makes the loop nests that a user describes (domain
// ai.tessera):
//   Requantise  int32 sums to bytes: clamp(RNE(float(x + bias[c]) * scale[c]), low, high) + zero, c along `axis`
//   Pairs       a function of two bytes, broadcast: table[256 * x + y], indexed by their bits
//   WindowSum   int32 sums of bytes over windows of [N, C, D1, ..]; what lies outside counts as `pad_value`
//   AxisSum     int32 sums of bytes over `axes`, which stay with extent 1
// Attributes of Pairs beside the table say which form of the machine is likely; they have no part in its meaning.
#include <algorithm>
#include <cmath>

#include "ops/kernels/reduction.h"
#include "ops/kernels/window.h"
#include "ops/quantized/quantized_math.h"

namespace tessera::ops {
namespace {

constexpr kernel::TypeSet kBytes = kernel::set_of({DType::kInt8, DType::kUint8});

DType result_type(const Node& node) { return node.get_int("unsigned", 0) != 0 ? DType::kUint8 : DType::kInt8; }

// --- Requantise

void infer_requantise(InferContext& c) {
  kernel::require_type(c.node, c.input(0).dtype, kernel::set_of({DType::kInt32}), "X");
  c.outputs[0] = kernel::without_constant(c.input(0));
  c.outputs[0].dtype = result_type(c.node);
}

void evaluate_requantise(EvalContext& c) {
  const Node& node = c.node;
  const Tensor& x = c.input(0);
  const std::vector<float> scale = c.input(1).to_floats();
  const std::vector<int64_t> bias = c.has(2) ? c.input(2).to_int64s() : std::vector<int64_t>{0};
  int64_t channels = 1, inner = 1;
  if (scale.size() > 1 || bias.size() > 1) {
    const auto axis = axis_attribute(node, -1, x.shape());
    channels = x.shape()[axis];
    for (size_t a = axis + 1; a < x.shape().size(); ++a) inner *= x.shape()[a];
  }
  const auto fits = [&](size_t size) { return size == 1 || static_cast<int64_t>(size) == channels; };
  if (!fits(scale.size()) || !fits(bias.size()))
    node.fail(ErrorCode::kInvalidModel, "scale and bias have one element or one for each channel");
  const auto low = static_cast<float>(node.get_int("low", -128)), high = static_cast<float>(node.get_int("high", 127));
  const bool finite = std::all_of(scale.begin(), scale.end(), [](float s) { return std::isfinite(s); });
  if (!finite || low > high) node.fail(ErrorCode::kInvalidModel, "scales are finite, and low is at most high");
  const int64_t zero = node.get_int("zero", 0);
  Tensor y(result_type(node), x.shape());
  auto out = y.as_mutable<uint8_t>();
  const auto in = x.as<int32_t>();
  for (size_t i = 0; i < in.size(); ++i) {
    const auto channel = static_cast<size_t>(static_cast<int64_t>(i) / inner % channels);
    const auto sum = static_cast<int32_t>(static_cast<uint32_t>(in[i]) +
                                          static_cast<uint32_t>(bias[bias.size() == 1 ? 0 : channel]));
    const float scaled = static_cast<float>(sum) * scale[scale.size() == 1 ? 0 : channel];
    out[i] = static_cast<uint8_t>(static_cast<int64_t>(std::nearbyint(std::clamp(scaled, low, high))) + zero);
  }
  c.outputs[0] = std::move(y);
}

// --- Pairs

void infer_pairs(InferContext& c) {
  const Tensor* table = c.node.get_tensor("table");
  if (table == nullptr || table->bytes() != 65536 || !kernel::contains(kBytes, table->dtype()))
    c.node.fail(ErrorCode::kInvalidModel, "attribute 'table' has 65,536 bytes");
  for (size_t i = 0; i < 2; ++i) kernel::require_type(c.node, c.input(i).dtype, kBytes, "an operand");
  c.outputs[0] = broadcast_types(c.node, table->dtype(), {&c.input(0), &c.input(1)});
}

void evaluate_pairs(EvalContext& c) {
  const Tensor& table = *c.node.get_tensor("table");
  const Tensor &a = c.input(0), &b = c.input(1);
  const Shape shape = broadcast_shapes(c.node, {a.shape(), b.shape()});
  Tensor y(table.dtype(), shape);
  kernel::binary_loop(
      shape, a.shape(), b.shape(), kernel::elements<uint8_t>(a), kernel::elements<uint8_t>(b),
      kernel::mutable_elements<uint8_t>(y),
      [entries = kernel::elements<uint8_t>(table)](uint8_t p, uint8_t q) { return entries[256 * p + q]; });
  c.outputs[0] = std::move(y);
}

// --- WindowSum

Window window_sum_places(const Node& node, const Shape& shape) {
  const Shape extents = spatial_extents(node, shape);
  return sliding_window(node, extents, kernel_attribute(node, static_cast<int64_t>(extents.size())));
}

void infer_window_sum(InferContext& c) {
  const Node& node = c.node;
  kernel::require_type(node, c.input(0).dtype, kBytes, "X");
  c.outputs[0] = kernel::without_constant(c.input(0));
  c.outputs[0].dtype = DType::kInt32;
  if (!c.outputs[0].ranked) return;
  Shape& shape = c.outputs[0].shape;
  const Shape extents = window_sum_places(node, shape).output;
  if (std::count(extents.begin(), extents.end(), 0) != 0)
    node.fail(ErrorCode::kInvalidModel, "a window is larger than its axis");
  std::copy(extents.begin(), extents.end(), shape.begin() + 2);
}

void evaluate_window_sum(EvalContext& c) {
  const Node& node = c.node;
  const Tensor& x = c.input(0);
  const Window window = window_sum_places(node, x.shape());
  Shape shape = x.shape();
  std::copy(window.output.begin(), window.output.end(), shape.begin() + 2);
  const auto pad = static_cast<int32_t>(node.get_int("pad_value", 0));
  Tensor y(DType::kInt32, shape);
  int32_t* sums = kernel::mutable_elements<int32_t>(y);
  std::fill_n(sums, y.size(), pad * static_cast<int32_t>(window.kernel_size()));  // as if all were padding
  const std::vector<int32_t> bytes = quantized::to_int32s(x);
  fold_windows(window, shape[0] * shape[1], bytes.data(), sums, [pad](int32_t& sum, int32_t v) { sum += v - pad; });
  c.outputs[0] = std::move(y);
}

// --- AxisSum

ReducedAxes summed_axes(const Node& node, size_t rank) {
  return ReducedAxes(node, node.get_ints("axes"), rank, /*all_without_any=*/false);
}

void infer_axis_sum(InferContext& c) {
  kernel::require_type(c.node, c.input(0).dtype, kBytes, "X");
  c.outputs[0] = kernel::without_constant(c.input(0), DType::kInt32);
  if (!c.outputs[0].ranked) return;
  Shape& shape = c.outputs[0].shape;
  shape = summed_axes(c.node, shape.size()).result(shape, /*keep=*/true);
}

void evaluate_axis_sum(EvalContext& c) {
  const Tensor& x = c.input(0);
  const ReducedAxes axes = summed_axes(c.node, x.shape().size());
  Tensor y(DType::kInt32, axes.result(x.shape(), /*keep=*/true));
  const std::vector<int32_t> bytes = quantized::to_int32s(x);
  accumulate(x.shape(), axes, bytes.data(), kernel::mutable_elements<int32_t>(y),
             [](int32_t& sum, int32_t v) { sum += v; });
  c.outputs[0] = std::move(y);
}

}  // namespace

void register_loops(Registry& registry) {
  const auto add = [&](const char* name, kernel::Arity operands, InferFunction infer, EvalFunction evaluate,
                       std::set<std::string> attributes) {
    kernel::add_operator(registry, "ai.tessera", name, 1, operands, std::move(infer), std::move(evaluate),
                         std::move(attributes));
  };
  add("Requantise", {2, 3}, infer_requantise, evaluate_requantise, {"axis", "zero", "low", "high", "unsigned"});
  add("Pairs", kernel::kTwo, infer_pairs, evaluate_pairs,
      {"table", "kind", "rx", "ry", "f", "zx", "zy", "low", "high", "zero"});
  add("WindowSum", kernel::kOne, infer_window_sum, evaluate_window_sum,
      {"kernel_shape", "strides", "dilations", "pads", "pad_value"});
  add("AxisSum", kernel::kOne, infer_axis_sum, evaluate_axis_sum, {"axes"});
}

}  // namespace tessera::ops
