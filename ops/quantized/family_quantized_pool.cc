// SPDX-License-Identifier: Apache-2.0
// Quantised averages of domain com.microsoft: QLinearGlobalAveragePool, QLinearAveragePool (channels first or last),
// QLinearReduceMean. In and out: 8-bit tensors with fp32 scales and zero points. The whole-image average is an int32
// sum requantised like a convolution; a window's average is an fp32 sum of dequantised elements in row-major order,
// divided by the count.
#include <cmath>
#include <numeric>

#include "ops/expansion.h"
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

void infer_global(InferContext& context) {
  check_unary(context);
  TypeInfo result = same_shape(context.input(0), context.input(0).dtype);
  if (result.ranked) {
    const Layout layout(context.node, static_cast<int64_t>(result.shape.size()));
    for (size_t d = 0; d < layout.count; ++d) result.shape[layout.first + d] = 1;
  }
  context.outputs[0] = std::move(result);
}

/// int32 sum over each image of x - x_zero, times x_scale / (y_scale * float(count)).
Tensor global_average(const Tensor& x, const Scales& p, const Layout& layout) {
  const Range range = range_of(x.dtype());
  Shape shape = x.shape();
  int64_t size = 1;
  for (size_t d = 0; d < layout.count; ++d) {
    size *= shape[layout.first + d];
    shape[layout.first + d] = 1;
  }
  const int64_t batch = shape[0], channels = shape[layout.channel];
  const float multiplier = p.multiplier(size);
  const std::vector<int32_t> in = to_int32s(x);
  std::vector<int32_t> out(static_cast<size_t>(batch * channels));
  const bool last = layout.first == 1;
  for (int64_t n = 0; n < batch; ++n) {
    for (int64_t c = 0; c < channels; ++c) {
      uint32_t sum = 0;
      for (int64_t i = 0; i < size; ++i) {
        const int64_t at = last ? (n * size + i) * channels + c : (n * channels + c) * size + i;
        sum += static_cast<uint32_t>(in[static_cast<size_t>(at)] - p.x.zero);
      }
      out[static_cast<size_t>(n * channels + c)] = requantize(static_cast<int32_t>(sum), multiplier, p.y.zero, range);
    }
  }
  return from_int32s(x.dtype(), shape, out);
}

void evaluate_global(EvalContext& context) {
  const Tensor& x = context.input(0);
  context.outputs[0] = global_average(x, Scales(context), Layout(context.node, x.rank()));
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

void evaluate_average(EvalContext& context) {
  const Node& node = context.node;
  const Tensor& x = context.input(0);
  const Scales p(context);
  const Layout layout(node, x.rank());
  const Shape in_extents = layout.extents(x.shape());
  const Window window = pooling_window(node, in_extents);
  const Shape& out_extents = window.output;
  Shape shape = x.shape();
  std::copy(out_extents.begin(), out_extents.end(), shape.begin() + static_cast<int64_t>(layout.first));
  const bool no_pads =
      std::all_of(window.pads_begin.begin(), window.pads_begin.end(), [](int64_t v) { return v == 0; }) &&
      std::all_of(window.pads_end.begin(), window.pads_end.end(), [](int64_t v) { return v == 0; });
  if (in_extents == window.kernel && no_pads) {
    context.outputs[0] = global_average(x, p, layout);
    return;
  }
  const bool include_pad = node.get_int("count_include_pad", 0) != 0;
  const int64_t kernel_size = element_count(window.kernel);
  const int64_t batch = shape[0], channels = shape[layout.channel];
  const int64_t in_size = element_count(in_extents), out_size = element_count(out_extents);
  const bool last = layout.first == 1;
  const Range range = range_of(x.dtype());
  const std::vector<int32_t> in = to_int32s(x);
  std::vector<int32_t> out(static_cast<size_t>(batch * channels * out_size));
  for (int64_t n = 0; n < batch; ++n) {
    for (int64_t c = 0; c < channels; ++c) {
      for_each_index(out_extents, [&](int64_t flat, const std::vector<int64_t>& position) {
        float sum = 0.0f;
        int64_t count = 0;
        for_each_index(window.kernel, [&](int64_t, const std::vector<int64_t>& tap) {
          int64_t at = 0;
          for (size_t d = 0; d < tap.size(); ++d) {
            const int64_t i = position[d] * window.strides[d] - window.pads_begin[d] + tap[d];
            if (i < 0 || i >= in_extents[d]) return;
            at = at * in_extents[d] + i;
          }
          ++count;
          sum += dequantize(
              in[static_cast<size_t>(last ? (n * in_size + at) * channels + c : (n * channels + c) * in_size + at)],
              p.x.scale, p.x.zero);
        });
        const float mean = sum / static_cast<float>(include_pad ? kernel_size : count);
        const int32_t q = round_to_int32(mean / p.y.scale + static_cast<float>(p.y.zero));
        out[static_cast<size_t>(last ? (n * out_size + flat) * channels + c : (n * channels + c) * out_size + flat)] =
            std::min(std::max(q, range.low), range.high);
      });
    }
  }
  context.outputs[0] = from_int32s(x.dtype(), shape, out);
}

// --- QLinearReduceMean
// ---------------------------------------------------------------------------------------------------------

std::vector<bool> reduced_axes(const Node& node, int64_t rank) {
  const std::vector<int64_t> axes = node.get_ints("axes");
  std::vector<bool> reduced(static_cast<size_t>(rank), axes.empty());
  for (int64_t axis : axes) reduced[static_cast<size_t>(normalise_axis(node, axis, rank))] = true;
  return reduced;
}

void infer_reduce_mean(InferContext& context) {
  check_unary(context);
  const TypeInfo& x = context.input(0);
  context.outputs[0] = TypeInfo::unranked(x.dtype);
  if (!x.ranked) return;
  const std::vector<bool> reduced = reduced_axes(context.node, static_cast<int64_t>(x.shape.size()));
  const bool keep = context.node.get_int("keepdims", 1) != 0;
  Shape shape;
  for (size_t d = 0; d < x.shape.size(); ++d) {
    if (!reduced[d])
      shape.push_back(x.shape[d]);
    else if (keep)
      shape.push_back(1);
  }
  context.outputs[0] = TypeInfo::tensor(x.dtype, shape);
}

void evaluate_reduce_mean(EvalContext& context) {
  const Node& node = context.node;
  const Tensor& x = context.input(0);
  const Scales p(context);
  const Range range = range_of(x.dtype());
  const std::vector<bool> reduced = reduced_axes(node, x.rank());
  const bool keep = node.get_int("keepdims", 1) != 0;
  Shape shape, kept;
  int64_t count = 1;
  for (size_t d = 0; d < reduced.size(); ++d) {
    if (reduced[d]) count *= x.shape()[d];
    kept.push_back(reduced[d] ? 1 : x.shape()[d]);
    if (!reduced[d] || keep) shape.push_back(kept.back());
  }
  const std::vector<int64_t> strides = broadcast_strides(kept, x.shape());
  const std::vector<int32_t> in = to_int32s(x);
  std::vector<uint32_t> sums(static_cast<size_t>(element_count(kept)), 0u);
  for_each_index(x.shape(), [&](int64_t flat, const std::vector<int64_t>& index) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * strides[d];
    sums[static_cast<size_t>(at)] += static_cast<uint32_t>(in[static_cast<size_t>(flat)] - p.x.zero);
  });
  const float multiplier = p.multiplier(count);
  std::vector<int32_t> out(sums.size());
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = requantize(static_cast<int32_t>(sums[i]), multiplier, p.y.zero, range);
  context.outputs[0] = from_int32s(x.dtype(), shape, out);
}

/// The compiler knows channels in dimension 1; what remains channels last is evaluated as it is.
std::optional<Expansion> expand_channels_last(const Node& node, const std::vector<TypeInfo>& inputs) {
  if (node.get_int("channels_last", 0) == 0) return std::nullopt;
  return between_transpositions(node, inputs, node.op_type, node.domain, node.version);
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
