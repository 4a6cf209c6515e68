// SPDX-License-Identifier: Apache-2.0
// Resolution of window attributes. Output extents follow the ONNX formulas: floor or ceil((input + pads - span) /
// stride) + 1; SAME_* makes ceil(input / stride) outputs and splits the padding that needs, the odd element behind
// (UPPER) or before (LOWER).
#include "ops/kernels/window.h"

#include <algorithm>

namespace tessera::ops {

namespace {

/// Bound on attribute values, so that products of two stay in range.
constexpr int64_t kLargestValue = int64_t{1} << 30;

enum class AutoPad { kNotSet, kValid, kSameUpper, kSameLower };

AutoPad auto_pad(const Node& node) {
  const std::string text = node.get_string("auto_pad", "NOTSET");
  if (text == "NOTSET" || text.empty()) return AutoPad::kNotSet;
  if (text == "VALID") return AutoPad::kValid;
  if (text == "SAME_UPPER") return AutoPad::kSameUpper;
  if (text == "SAME_LOWER") return AutoPad::kSameLower;
  node.fail(ErrorCode::kInvalidModel, "auto_pad '" + text + "' is not NOTSET, VALID, SAME_UPPER or SAME_LOWER");
}

/// A list attribute of one value for each axis, `fallback` where absent, each at least `minimum`.
std::vector<int64_t> axis_values(const Node& node, const char* name, size_t count, int64_t fallback, int64_t minimum) {
  std::vector<int64_t> values = node.get_ints(name);
  if (values.empty()) values.assign(count, fallback);
  if (values.size() != count)
    node.fail(ErrorCode::kInvalidModel, std::string(name) + " has " + std::to_string(values.size()) + " values for " +
                                            std::to_string(count) + " spatial dimensions");
  for (int64_t value : values)
    if (value < minimum || value > kLargestValue)
      node.fail(ErrorCode::kInvalidModel, std::string(name) + " holds " + std::to_string(value));
  return values;
}

Window common(const Node& node, const Shape& input, const Shape& kernel) {
  if (kernel.size() != input.size())
    node.fail(ErrorCode::kInvalidModel,
              "the kernel " + to_string(kernel) + " has another rank than the spatial dimensions " + to_string(input));
  Window window;
  window.input = input;
  window.kernel = kernel;
  for (int64_t extent : kernel)
    if (extent == 0) node.fail(ErrorCode::kInvalidModel, "the kernel " + to_string(kernel) + " has no elements");
  window.strides = axis_values(node, "strides", input.size(), 1, 1);
  window.dilations = axis_values(node, "dilations", input.size(), 1, 1);
  window.pads_begin.assign(input.size(), 0);
  window.pads_end.assign(input.size(), 0);
  window.output.assign(input.size(), -1);
  return window;
}

void read_pads(const Node& node, Window& window) {
  const std::vector<int64_t> pads = axis_values(node, "pads", 2 * window.rank(), 0, -kLargestValue);
  std::copy_n(pads.begin(), window.rank(), window.pads_begin.begin());
  std::copy_n(pads.begin() + static_cast<int64_t>(window.rank()), window.rank(), window.pads_end.begin());
}

enum class Rounding { kConvolution, kPoolDown, kPoolUp };

Window placed(const Node& node, const Shape& input, const Shape& kernel, Rounding rounding) {
  Window window = common(node, input, kernel);
  const AutoPad mode = auto_pad(node);
  if (mode == AutoPad::kNotSet) read_pads(node, window);
  for (size_t i = 0; i < window.rank(); ++i) {
    const int64_t extent = input[i];
    const int64_t stride = window.strides[i];
    const bool same = mode == AutoPad::kSameUpper || mode == AutoPad::kSameLower;
    if (extent < 0 || (kernel[i] < 0 && !same)) continue;
    if (same) {
      window.output[i] = (extent + stride - 1) / stride;
      if (kernel[i] < 0) continue;
      const int64_t total = std::max<int64_t>(0, (window.output[i] - 1) * stride + window.span(i) - extent);
      window.pads_begin[i] = mode == AutoPad::kSameUpper ? total / 2 : total - total / 2;
      window.pads_end[i] = total - window.pads_begin[i];
      continue;
    }
    const int64_t room = extent + window.pads_begin[i] + window.pads_end[i] - window.span(i);
    if (room < 0 && (rounding == Rounding::kConvolution || -room >= stride)) {
      if (extent > 0)
        node.fail(ErrorCode::kInvalidModel, "the kernel " + to_string(kernel) + " with dilations " +
                                                to_string(window.dilations) + " is larger than the padded input " +
                                                to_string(input));
      window.output[i] = 0;
      continue;
    }
    int64_t output = room / stride + 1;
    if (rounding == Rounding::kPoolUp && room % stride != 0 && output * stride < extent + window.pads_begin[i])
      ++output;
    window.output[i] = output;
  }
  return window;
}

}  // namespace

Window sliding_window(const Node& node, const Shape& input, const Shape& kernel) {
  return placed(node, input, kernel, Rounding::kConvolution);
}

Window pooling_window(const Node& node, const Shape& input) {
  return placed(node, input, kernel_attribute(node, static_cast<int64_t>(input.size())),
                node.get_int("ceil_mode", 0) != 0 ? Rounding::kPoolUp : Rounding::kPoolDown);
}

Window transposed_window(const Node& node, const Shape& operand, const Shape& kernel) {
  Window window = common(node, operand, kernel);
  window.output = operand;
  window.input.assign(operand.size(), -1);
  const AutoPad mode = auto_pad(node);
  const std::vector<int64_t> extra = axis_values(node, "output_padding", operand.size(), 0, 0);
  std::vector<int64_t> wanted = node.get_ints("output_shape");
  if (!wanted.empty() && wanted.size() == operand.size() + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);
  if (!wanted.empty() && wanted.size() != operand.size())
    node.fail(ErrorCode::kInvalidModel, "output_shape has " + std::to_string(wanted.size()) + " values for " +
                                            std::to_string(operand.size()) + " spatial dimensions");
  if (mode == AutoPad::kNotSet && wanted.empty()) read_pads(node, window);
  for (size_t i = 0; i < window.rank(); ++i) {
    if (extra[i] >= std::max(window.strides[i], window.dilations[i]))
      node.fail(ErrorCode::kInvalidModel, "output_padding must be smaller than the stride or the dilation");
    if (!wanted.empty()) window.input[i] = wanted[i];
    if (operand[i] < 0 || kernel[i] < 0) continue;
    const int64_t full = (operand[i] - 1) * window.strides[i] + extra[i] + window.span(i);
    const bool same = mode == AutoPad::kSameUpper || mode == AutoPad::kSameLower;
    if (!wanted.empty() || same) {
      const int64_t target = wanted.empty() ? operand[i] * window.strides[i] : wanted[i];
      if (target < 0) node.fail(ErrorCode::kInvalidModel, "output_shape holds " + std::to_string(target));
      // A target beyond the full result gets zeros behind it.
      const int64_t total = std::max<int64_t>(0, full - target);
      window.pads_begin[i] = mode == AutoPad::kSameUpper ? total / 2 : total - total / 2;
      window.pads_end[i] = total - window.pads_begin[i];
    }
    if (wanted.empty()) window.input[i] = full - window.pads_begin[i] - window.pads_end[i];
    if (window.input[i] < 0) node.fail(ErrorCode::kInvalidModel, "the pads are larger than the result");
  }
  return window;
}

void patch_offsets(const Window& window, int64_t first, int64_t count, std::vector<int64_t>& offsets) {
  const size_t rank = window.rank();
  const int64_t taps = window.kernel_size();
  offsets.assign(static_cast<size_t>(taps * count), 0);
  std::vector<int64_t> tap(rank, 0);
  for (int64_t k = 0; k < taps; ++k) {
    std::vector<int64_t> position(rank, 0);
    for (int64_t rest = first, axis = static_cast<int64_t>(rank); axis-- > 0; rest /= window.output[axis])
      position[axis] = rest % window.output[axis];
    int64_t* row = offsets.data() + k * count;
    for (int64_t j = 0; j < count; ++j) {
      int64_t offset = 0;
      for (size_t axis = 0; axis < rank; ++axis) {
        const int64_t at =
            position[axis] * window.strides[axis] - window.pads_begin[axis] + tap[axis] * window.dilations[axis];
        if (at < 0 || at >= window.input[axis]) {
          offset = -1;
          break;
        }
        offset = offset * window.input[axis] + at;
      }
      row[j] = offset;
      for (size_t axis = rank; axis-- > 0;) {
        if (++position[axis] < window.output[axis]) break;
        position[axis] = 0;
      }
    }
    for (size_t axis = rank; axis-- > 0;) {
      if (++tap[axis] < window.kernel[axis]) break;
      tap[axis] = 0;
    }
  }
}

SumOrder order_of_average(const Node& node, const Window& window) {
  constexpr int kOwnLoop = 19;  // from this version on, and below in one case, ONNX Runtime has a plain loop
  constexpr int64_t kLargestKernel = 32, kRowLength = 2045;
  const auto every = [&](const auto& list, auto holds) { return std::all_of(list.begin(), list.end(), holds); };
  const auto none = [](int64_t pad) { return pad == 0; };
  const bool counts_what_ceil_adds = node.get_int("ceil_mode", 0) != 0 && node.get_int("count_include_pad", 0) != 0;
  if (node.version >= kOwnLoop || counts_what_ceil_adds) return SumOrder::kRows;
  if (window.kernel == window.input && every(window.strides, [](int64_t s) { return s == 1; }) &&
      every(window.pads_begin, none) && every(window.pads_end, none))
    return SumOrder::kLanes;
  const bool columns = (window.rank() == 2 || window.rank() == 3) && window.strides.back() <= 2 &&
                       every(window.kernel, [](int64_t k) { return k <= kLargestKernel; }) &&
                       window.input.back() + window.pads_begin.back() + window.pads_end.back() <= kRowLength;
  return columns ? SumOrder::kColumns : SumOrder::kRows;
}

std::vector<int64_t> tap_counts(const Window& window, bool padding) {
  std::vector<int64_t> counts(static_cast<size_t>(element_count(window.output)));
  for_each_index(window.output, [&](int64_t flat, const std::vector<int64_t>& position) {
    int64_t count = 1;
    for (size_t axis = 0; axis < window.rank(); ++axis) {
      int64_t inside = 0;
      for (int64_t k = 0; k < window.kernel[axis]; ++k) {
        const int64_t at = position[axis] * window.strides[axis] - window.pads_begin[axis] + k * window.dilations[axis];
        if (padding ? at < window.input[axis] + window.pads_end[axis] : at >= 0 && at < window.input[axis]) ++inside;
      }
      count *= inside;
    }
    counts[static_cast<size_t>(flat)] = count;
  });
  return counts;
}

Shape kernel_attribute(const Node& node, int64_t spatial_rank) {
  const Shape kernel = node.get_ints("kernel_shape");
  if (kernel.empty()) node.fail(ErrorCode::kInvalidModel, "attribute 'kernel_shape' is missing");
  if (spatial_rank >= 0 && static_cast<int64_t>(kernel.size()) != spatial_rank)
    node.fail(ErrorCode::kInvalidModel, "kernel_shape " + to_string(kernel) + " does not fit " +
                                            std::to_string(spatial_rank) + " spatial dimensions");
  for (int64_t extent : kernel)
    if (extent < 1 || extent > kLargestValue)
      node.fail(ErrorCode::kInvalidModel, "kernel_shape holds " + std::to_string(extent));
  return kernel;
}

Shape spatial_extents(const Node& node, const Shape& shape, size_t minimum_rank) {
  if (shape.size() < minimum_rank)
    node.fail(ErrorCode::kInvalidModel, "the input " + to_string(shape) + " must have at least rank " +
                                            std::to_string(minimum_rank) + " (batch, channels, spatial dimensions)");
  return Shape(shape.begin() + 2, shape.end());
}

}  // namespace tessera::ops
