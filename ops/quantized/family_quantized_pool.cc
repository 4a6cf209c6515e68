// SPDX-License-Identifier: Apache-2.0
// Quantised averages of domain com.microsoft: QLinearGlobalAveragePool, QLinearAveragePool (channels first or last),
// QLinearReduceMean. In and out: 8-bit tensors with fp32 scales and zero points. The whole-image average is an int32
// sum requantised like a convolution; a window's average is an fp32 sum of dequantised elements in row-major order,
// divided by the count.
#include <cmath>
#include <numeric>

#include "ops/expansion.h"
#include "ops/kernels/reduction.h"
#include "ops/kernels/window.h"
#include "ops/quantized/quantized_math.h"

namespace tessera::ops {

namespace {

using namespace quantized;

struct Scales {
  Parameters x, y;
  explicit Scales(const EvalContext& context)
      : x(context, 1, context.input(0).dtype()), y(context, 3, context.input(0).dtype()) {}
  /// Of a sum of `count` elements to their mean.
  float multiplier(int64_t count) const { return x.scale / (y.scale * static_cast<float>(count)); }
};

void check_unary(InferContext& context) {
  expect_dtype(context, 0, kBytes, "X");
  for (size_t i : {1u, 3u}) expect_parameters(context, i, bytes_as(context, 0));
}

/// Axes of an image tensor: [N, C, spatial..] or [N, spatial.., C].
struct Layout {
  size_t channel, first, count;  // axis of the channels, first spatial axis, number of spatial axes
  Layout(const Node& node, int64_t rank) {
    if (rank < 3) node.fail(ErrorCode::kInvalidModel, "X must have at least three axes");
    const bool last = node.get_int("channels_last", 0) != 0;
    count = static_cast<size_t>(rank - 2);
    channel = last ? static_cast<size_t>(rank - 1) : 1;
    first = last ? 1 : 2;
  }
  /// Those of the spatial axes.
  Shape extents(const Shape& shape) const {
    const auto begin = shape.begin() + static_cast<int64_t>(first);
    return {begin, begin + static_cast<int64_t>(count)};
  }
};

/// int32 sums of x - x_zero over the reduced axes, times x_scale / (y_scale * float(count)).
Tensor average(const Tensor& x, const Scales& p, const ReducedAxes& axes, bool keep) {
  const std::vector<int32_t> in = to_int32s(x);
  std::vector<uint32_t> sums(static_cast<size_t>(element_count(axes.result(x.shape(), true))));
  accumulate(x.shape(), axes, in.data(), sums.data(),
             [zero = p.x.zero](uint32_t& sum, int32_t v) { sum += static_cast<uint32_t>(v - zero); });
  const float multiplier = p.multiplier(axes.count(x.shape()));
  const Range range = range_of(x.dtype());
  std::vector<int32_t> out;
  out.reserve(sums.size());
  for (const uint32_t sum : sums) out.push_back(requantize(static_cast<int32_t>(sum), multiplier, p.y.zero, range));
  return from_int32s(x.dtype(), axes.result(x.shape(), keep), out);
}

ReducedAxes spatial_axes(const Node& node, int64_t rank) {
  const Layout layout(node, rank);
  std::vector<int64_t> axes(layout.count);
  std::iota(axes.begin(), axes.end(), static_cast<int64_t>(layout.first));
  return ReducedAxes(node, axes, static_cast<size_t>(rank), false);
}

void infer_global(InferContext& context) {
  check_unary(context);
  TypeInfo result = same_shape(context.input(0), context.input(0).dtype);
  if (result.ranked)
    result.shape =
        spatial_axes(context.node, static_cast<int64_t>(result.shape.size())).result(result.shape, /*keep=*/true);
  context.outputs[0] = std::move(result);
}

void evaluate_global(EvalContext& context) {
  const Tensor& x = context.input(0);
  context.outputs[0] = average(x, Scales(context), spatial_axes(context.node, x.rank()), /*keep=*/true);
}

void infer_average(InferContext& context) {
  check_unary(context);
  const Node& node = context.node;
  TypeInfo result = same_shape(context.input(0), context.input(0).dtype);
  if (result.ranked) {
    const Layout layout(node, static_cast<int64_t>(result.shape.size()));
    const Shape extents = pooling_window(node, layout.extents(result.shape)).output;
    std::copy(extents.begin(), extents.end(), result.shape.begin() + static_cast<int64_t>(layout.first));
  }
  context.outputs[0] = std::move(result);
}

/// The compiler knows channels in dimension 1.
std::optional<Expansion> expand_channels_last(const Node& node, const std::vector<TypeInfo>& inputs) {
  if (node.get_int("channels_last", 0) == 0) return std::nullopt;
  return between_transpositions(node, inputs, node.op_type, node.domain, node.version);
}

void evaluate_average(EvalContext& context) {
  const Node& node = context.node;
  const Tensor& x = context.input(0);
  const Window window = pooling_window(node, Layout(node, x.rank()).extents(x.shape()));
  const auto none = [](const std::vector<int64_t>& pads) {
    return std::all_of(pads.begin(), pads.end(), [](int64_t pad) { return pad == 0; });
  };
  const Scales p(context);
  if (window.input == window.kernel && none(window.pads_begin) && none(window.pads_end)) {
    context.outputs[0] = average(x, p, spatial_axes(node, x.rank()), /*keep=*/true);
    return;
  }
  std::vector<TypeInfo> types;
  for (const Value& value : context.inputs) types.push_back(kernel::type_of(value));
  if (const auto expansion = expand_channels_last(node, types)) {
    context.outputs[0] = evaluate_expansion(*expansion, context.inputs)[0];
    return;
  }
  Shape shape = x.shape();
  std::copy(window.output.begin(), window.output.end(), shape.begin() + 2);
  std::vector<float> sums(static_cast<size_t>(element_count(shape)));
  const std::vector<int32_t> in = to_int32s(x);
  fold_windows(window, shape[0] * shape[1], in.data(), sums.data(),
               [&](float& sum, int32_t v) { sum += dequantize(v, p.x.scale, p.x.zero); });
  std::vector<int64_t> counts = tap_counts(window, false);
  if (node.get_int("count_include_pad", 0) != 0) std::fill(counts.begin(), counts.end(), window.kernel_size());
  const Range range = range_of(x.dtype());
  std::vector<int32_t> out(sums.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const float mean = sums[i] / static_cast<float>(counts[i % counts.size()]);
    const int32_t q = round_to_int32(mean / p.y.scale + static_cast<float>(p.y.zero));
    out[i] = std::min(std::max(q, range.low), range.high);
  }
  context.outputs[0] = from_int32s(x.dtype(), shape, out);
}

// --- QLinearReduceMean
// ---------------------------------------------------------------------------------------------------------

ReducedAxes reduced_axes(const Node& node, size_t rank) {
  return ReducedAxes(node, node.get_ints("axes"), rank, /*all_without_any=*/true);
}

bool keeps_axes(const Node& node) { return node.get_int("keepdims", 1) != 0; }

void infer_reduce_mean(InferContext& context) {
  check_unary(context);
  const TypeInfo& x = context.input(0);
  context.outputs[0] = TypeInfo::unranked(x.dtype);
  if (!x.ranked) return;
  const ReducedAxes axes = reduced_axes(context.node, x.shape.size());
  context.outputs[0] = TypeInfo::tensor(x.dtype, axes.result(x.shape, keeps_axes(context.node)));
}

void evaluate_reduce_mean(EvalContext& context) {
  const Tensor& x = context.input(0);
  context.outputs[0] =
      average(x, Scales(context), reduced_axes(context.node, x.shape().size()), keeps_axes(context.node));
}

}  // namespace

void register_quantized_pool(Registry& registry) {
  const std::string ms = "com.microsoft";
  kernel::add_operator(registry, ms, "QLinearGlobalAveragePool", 1, {5, 5}, infer_global, evaluate_global,
                       {"channels_last"}, 4, {1, 1}, expand_channels_last);
  kernel::add_operator(
      registry, ms, "QLinearAveragePool", 1, {4, 5}, infer_average, evaluate_average,
      {"auto_pad", "ceil_mode", "channels_last", "count_include_pad", "kernel_shape", "pads", "strides", "dilations"},
      4, {1, 1}, expand_channels_last);
  kernel::add_operator(registry, ms, "QLinearReduceMean", 1, {4, 5}, infer_reduce_mean, evaluate_reduce_mean,
                       {"axes", "keepdims"});
}

}  // namespace tessera::ops
