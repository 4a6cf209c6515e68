// SPDX-License-Identifier: Apache-2.0
// The geometry of a window that slides over the spatial dimensions of [N, C, D1, D2, ...]: convolution, pooling and
// their transposes, any number of dimensions. One place resolves strides, dilations, pads, auto_pad and ceil_mode into
// extents, and one helper turns (output position, kernel position) into the offset of an input element or -1 for
// padding.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/operator.h"

namespace tessera::ops {

/// Extents count elements; an unknown input extent is -1 and makes the output extent -1.
struct Window {
  Shape input;
  Shape kernel;
  std::vector<int64_t> strides;
  std::vector<int64_t> dilations;
  std::vector<int64_t> pads_begin;
  std::vector<int64_t> pads_end;
  Shape output;

  size_t rank() const { return input.size(); }
  int64_t kernel_size() const { return element_count(kernel); }
  /// Elements the dilated kernel spans along an axis.
  int64_t span(size_t axis) const { return dilations[axis] * (kernel[axis] - 1) + 1; }
};

/// Window of a convolution node from its attributes strides, dilations, pads, auto_pad. `input`: spatial extents (-1
/// unknown); `kernel`: its extents (-1 unknown, then the output is unknown where it matters). Throws Error
/// kInvalidModel on wrong counts, values out of range, or a kernel larger than the padded input.
Window sliding_window(const Node& node, const Shape& input, const Shape& kernel);

/// Window of a pooling node, likewise, with the attributes kernel_shape and ceil_mode, which rounds the output extent
/// up, but no window starts behind input and leading padding. As in ONNX Runtime, a kernel that is larger than the
/// padded input by less than a stride makes one window, cut at the input's end.
Window pooling_window(const Node& node, const Shape& input);

/// Window of a transposed convolution, seen from its result: `input` is the result's extent, `output` the extent of the
/// operand, so that patch_offsets() tells where an operand's element is added. Reads also output_padding and
/// output_shape.
Window transposed_window(const Node& node, const Shape& operand, const Shape& kernel);

/// offsets[k * count + j]: offset in a plane of the input extents that kernel position k reads for output position
/// first + j, or -1 when it lies in the padding. Positions and kernel positions count row-major.
void patch_offsets(const Window& window, int64_t first, int64_t count, std::vector<int64_t>& offsets);

/// Calls f(first, count, offsets) over runs of output positions; offsets[k * count + j] as patch_offsets() leaves them.
template <typename F>
void for_each_run(const Window& window, F&& f) {
  constexpr int64_t kTableEntries = 1 << 16;  // offsets held at a time
  const int64_t positions = element_count(window.output);
  const int64_t run = std::max<int64_t>(1, kTableEntries / window.kernel_size());
  std::vector<int64_t> offsets;
  for (int64_t first = 0; first < positions; first += run) {
    const int64_t count = std::min(run, positions - first);
    patch_offsets(window, first, count, offsets);
    f(first, count, offsets);
  }
}

/// Folds what each window of `planes` planes holds: f(sums[plane, output position], element) for each kernel position
/// inside of the input, in row-major order.
template <typename T, typename A, typename F>
void fold_windows(const Window& window, int64_t planes, const T* x, A* sums, F f) {
  const int64_t in_plane = element_count(window.input), out_plane = element_count(window.output);
  const int64_t taps = window.kernel_size();
  for_each_run(window, [&](int64_t first, int64_t count, const std::vector<int64_t>& offsets) {
    for (int64_t p = 0; p < planes; ++p) {
      const T* plane = x + p * in_plane;
      A* row = sums + p * out_plane + first;
      for (int64_t k = 0; k < taps; ++k) {
        const int64_t* offset = offsets.data() + k * count;
        for (int64_t j = 0; j < count; ++j)
          if (offset[j] >= 0) f(row[j], plane[offset[j]]);
      }
    }
  });
}

/// In which order ONNX Runtime adds the elements of a window of fp32 for their average (docs/numerics.md).
enum class SumOrder : uint8_t {
  kRows,     // in row-major order
  kColumns,  // first along all axes but the last, then along that
  kLanes,    // every fourth element of a whole plane, then `(s0 + s2) + (s1 + s3)`, then what is left over
};
SumOrder order_of_average(const Node& node, const Window& window);

/// The sums of fold_windows() in columns; `sums` are zero.
template <typename T>
void sum_columns(const Window& window, int64_t planes, const T* x, T* sums) {
  const int64_t in_plane = element_count(window.input), out_plane = element_count(window.output);
  const int64_t taps = window.kernel_size(), width = window.kernel.back();
  std::vector<T> column;
  for_each_run(window, [&](int64_t first, int64_t count, const std::vector<int64_t>& offsets) {
    for (int64_t p = 0; p < planes; ++p) {
      T* row = sums + p * out_plane + first;
      for (int64_t start = 0; start < width; ++start) {
        column.assign(static_cast<size_t>(count), T{0});
        for (int64_t k = start; k < taps; k += width)
          for (int64_t j = 0; j < count; ++j) {
            const int64_t offset = offsets[static_cast<size_t>(k * count + j)];
            if (offset >= 0) column[static_cast<size_t>(j)] += x[p * in_plane + offset];
          }
        for (int64_t j = 0; j < count; ++j) row[j] += column[static_cast<size_t>(j)];
      }
    }
  });
}

/// The sum of a plane in lanes.
template <typename T>
T sum_lanes(const T* x, int64_t count) {
  T lanes[4] = {};
  for (int64_t i = 0; i < count / 4 * 4; ++i) lanes[i % 4] += x[i];
  T sum = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
  for (int64_t i = count / 4 * 4; i < count; ++i) sum += x[i];
  return sum;
}

/// Kernel positions that count for each output position: those inside the input, or with `padding` those inside input
/// and pads.
std::vector<int64_t> tap_counts(const Window& window, bool padding);

/// The attribute kernel_shape, required and checked against the number of spatial dimensions (-1: unknown).
Shape kernel_attribute(const Node& node, int64_t spatial_rank);

/// Spatial extents of a [N, C, ...] shape; fails when the rank is below 3 (2 with `allow_flat`).
Shape spatial_extents(const Node& node, const Shape& shape, size_t minimum_rank = 3);

}  // namespace tessera::ops
