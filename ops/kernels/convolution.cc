// SPDX-License-Identifier: Apache-2.0
// Convolution of any number of spatial dimensions. For each image and group the patches of a run of output positions
// are written as columns [channel x kernel position, position] and multiplied by the group's weights; runs are sized to
// stay in cache. A 1x1 kernel at stride 1 reads the input as it lies. The order of every sum is that of the plain loop
// nest.
#include "ops/kernels/convolution.h"

#include <algorithm>

#include "ops/kernels/elementwise_kernel.h"
#include "ops/kernels/gemm_kernel.h"

namespace tessera::ops {

namespace {

constexpr int64_t kColumnBytes = 1 << 18;  // patches of one run, about a second-level cache

/// Output positions first.. of a run that read a plane at equal steps, by one tap.
struct Stretch {
  int64_t tap, first, count, from, step;
};

std::vector<Stretch> stretches_of(const std::vector<int64_t>& offsets, int64_t count) {
  std::vector<Stretch> all;
  for (int64_t i = 0; i < static_cast<int64_t>(offsets.size());) {
    const int64_t end = (i / count + 1) * count, *at = offsets.data() + i;
    const int64_t step = i + 1 < end && at[1] >= 0 ? at[1] - at[0] : 1;
    int64_t length = 1;
    while (i + length < end && at[length] >= 0 && at[length] - at[length - 1] == step) ++length;
    if (at[0] < 0) length = 1;  // padding adds nothing
    if (at[0] >= 0) all.push_back({i / count, i % count, length, at[0], step});
    i += length;
  }
  return all;
}

/// Adds the patches of a run times one filter to `row`, without writing them down: a single filter reads each element
/// of them once. `planes`: a row for each of `channels`.
template <typename U>
void add_taps(MatrixView<U> planes, int64_t channels, int64_t taps, const std::vector<Stretch>& stretches,
              const U* weights, U* row) {
  for (int64_t ic = 0; ic < channels; ++ic)
    for (const Stretch& s : stretches) {
      const U weight = weights[ic * taps + s.tap];
      const U* source = planes.data + ic * planes.row + s.from;
      for (int64_t j = 0; j < s.count; ++j) row[s.first + j] += weight * source[j * s.step];
    }
}

template <typename T>
void convolve_typed(const Window& window, const Tensor& x, const Tensor& w, const Tensor* bias, int64_t groups,
                    Tensor& y) {
  using U = Wrapping<T>;
  const int64_t batch = x.shape()[0], channels = x.shape()[1], filters = w.shape()[0];
  const int64_t in_plane = element_count(window.input), out_plane = element_count(window.output);
  const int64_t taps = window.kernel_size();
  const int64_t group_channels = channels / groups, group_filters = filters / groups;
  const int64_t depth = group_channels * taps;
  const U* source = kernel::elements<U>(x);
  const U* weights = kernel::elements<U>(w);
  U* result = kernel::mutable_elements<U>(y);
  if (y.size() == 0) return;

  const bool plain = taps == 1 && in_plane == out_plane && window.input == window.output &&
                     std::all_of(window.strides.begin(), window.strides.end(), [](int64_t s) { return s == 1; }) &&
                     std::all_of(window.pads_begin.begin(), window.pads_begin.end(), [](int64_t p) { return p == 0; });
  const int64_t fit = kColumnBytes / static_cast<int64_t>(sizeof(U)) / std::max<int64_t>(depth, 1);
  const int64_t run = plain ? out_plane : std::min(out_plane, std::max<int64_t>(48, fit));
  std::vector<int64_t> offsets;
  std::vector<U> columns(plain ? 0 : static_cast<size_t>(depth * run));
  for (int64_t first = 0; first < out_plane; first += run) {
    const int64_t count = std::min(run, out_plane - first);
    if (!plain) patch_offsets(window, first, count, offsets);
    const bool single = std::is_integral_v<U> && group_filters == 1 && !plain;
    const std::vector<Stretch> stretches = single ? stretches_of(offsets, count) : std::vector<Stretch>{};
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t g = 0; g < groups; ++g) {
        const U* planes = source + (n * channels + g * group_channels) * in_plane;
        if (single) {
          add_taps({planes, in_plane, 1}, group_channels, taps, stretches, weights + g * depth,
                   result + (n * filters + g) * out_plane + first);
          continue;
        }
        MatrixView<U> patches{planes, in_plane, 1};
        if (!plain) {
          U* column = columns.data();
          for (int64_t ic = 0; ic < group_channels; ++ic) {
            const U* plane = planes + ic * in_plane;
            for (const int64_t offset : offsets) *column++ = offset < 0 ? U{} : plane[offset];
          }
          patches = {columns.data(), count, 1};
        }
        multiply<U>(group_filters, count, depth, {weights + g * group_filters * depth, depth, 1}, patches,
                    result + (n * filters + g * group_filters) * out_plane + first, out_plane);
      }
    }
  }
  if (bias != nullptr) {
    const U* added = kernel::elements<U>(*bias);
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t m = 0; m < filters; ++m) {
        U* row = result + (n * filters + m) * out_plane;
        for (int64_t i = 0; i < out_plane; ++i) row[i] += added[m];
      }
  }
}

}  // namespace

std::optional<Shape> infer_kernel(const Node& node, const TypeInfo& x, const TypeInfo& w) {
  const int64_t groups = node.get_int("group", 1);
  if (groups < 1) node.fail(ErrorCode::kInvalidModel, "group is " + std::to_string(groups));
  for (const TypeInfo* operand : {&x, &w})
    if (operand->ranked) spatial_extents(node, operand->shape);
  if (x.ranked && w.ranked && x.shape.size() != w.shape.size())
    node.fail(ErrorCode::kInvalidModel,
              "input " + to_string(x.shape) + " and weights " + to_string(w.shape) + " differ in rank");
  if (w.ranked && w.shape[0] >= 0 && w.shape[0] % groups != 0)
    node.fail(ErrorCode::kInvalidModel,
              "weights " + to_string(w.shape) + " do not divide into " + std::to_string(groups) + " groups");
  Shape kernel = node.get_ints("kernel_shape");
  if (!x.ranked && !w.ranked && kernel.empty()) return std::nullopt;
  const size_t rank = x.ranked ? x.shape.size() : w.ranked ? w.shape.size() : kernel.size() + 2;
  if (!kernel.empty()) kernel_attribute(node, static_cast<int64_t>(rank) - 2);
  if (kernel.empty()) kernel.assign(rank - 2, -1);
  for (size_t i = 0; w.ranked && i < kernel.size(); ++i) {
    const int64_t extent = w.shape[i + 2];
    if (extent >= 0 && kernel[i] >= 0 && extent != kernel[i])
      node.fail(ErrorCode::kInvalidModel,
                "kernel_shape " + to_string(kernel) + " and weights " + to_string(w.shape) + " disagree");
    if (kernel[i] < 0) kernel[i] = extent;
  }
  return kernel;
}

void check_bias(const InferContext& c, size_t bias, int64_t filters) {
  if (!c.has(bias) || !c.input(bias).ranked) return;
  const Shape& shape = c.input(bias).shape;
  if (shape.size() != 1 || (shape[0] >= 0 && filters >= 0 && shape[0] != filters))
    c.node.fail(ErrorCode::kInvalidModel,
                "bias " + to_string(shape) + " does not fit " + std::to_string(filters) + " filters");
}

TypeInfo infer_convolution(const InferContext& c, DType result, size_t bias) {
  const Node& node = c.node;
  const TypeInfo &x = c.input(0), &w = c.input(1);
  const std::optional<Shape> kernel = infer_kernel(node, x, w);
  if (!kernel) return TypeInfo::unranked(result);
  const int64_t groups = node.get_int("group", 1);
  if (x.ranked && w.ranked && x.shape[1] >= 0 && w.shape[1] >= 0 && x.shape[1] != w.shape[1] * groups)
    node.fail(ErrorCode::kInvalidModel, "input " + to_string(x.shape) + " needs weights of " + std::to_string(groups) +
                                            " groups with " + std::to_string(x.shape[1]) + " channels in all, not " +
                                            to_string(w.shape));
  if (w.ranked) check_bias(c, bias, w.shape[0]);
  const Shape input = x.ranked ? Shape(x.shape.begin() + 2, x.shape.end()) : Shape(kernel->size(), -1);
  const Window window = sliding_window(node, input, *kernel);
  Shape shape = {x.ranked ? x.shape[0] : -1, w.ranked ? w.shape[0] : -1};
  shape.insert(shape.end(), window.output.begin(), window.output.end());
  return TypeInfo::tensor(result, std::move(shape));
}

Tensor convolve(const Node& node, const Tensor& x, const Tensor& w, const Tensor* bias) {
  const Shape kernel(w.shape().begin() + 2, w.shape().end());
  const Window window = sliding_window(node, spatial_extents(node, x.shape()), kernel);
  Shape shape = {x.shape()[0], w.shape()[0]};
  shape.insert(shape.end(), window.output.begin(), window.output.end());
  Tensor y(x.dtype(), std::move(shape));
  const int64_t groups = node.get_int("group", 1);
  switch (x.dtype()) {
    case DType::kFloat: convolve_typed<float>(window, x, w, bias, groups, y); break;
    case DType::kDouble: convolve_typed<double>(window, x, w, bias, groups, y); break;
    case DType::kInt32: convolve_typed<int32_t>(window, x, w, bias, groups, y); break;
    default: kernel::unsupported_type(node, x.dtype());
  }
  return y;
}

}  // namespace tessera::ops
