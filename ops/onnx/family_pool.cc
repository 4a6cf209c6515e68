// SPDX-License-Identifier: Apache-2.0
// Pooling over any number of spatial dimensions: MaxPool with indices, AveragePool, LpPool, their global forms,
// MaxUnpool and MaxRoiPool. A run of output positions shares one table of input offsets (-1: padding) which every plane
// is read through, taps in row-major order. Padding never takes part in a maximum or a sum; it counts in an average
// where count_include_pad says so.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "ops/kernels/elementwise_kernel.h"
#include "ops/kernels/window.h"

namespace tessera::ops {

namespace {

using kernel::elements;
using kernel::mutable_elements;

TypeInfo infer_pooled(const InferContext& c, const TypeInfo& x) {
  const Shape kernel = kernel_attribute(c.node, -1);
  Shape shape = x.ranked ? x.shape : Shape(kernel.size() + 2, -1);
  const Window window = pooling_window(c.node, spatial_extents(c.node, shape));
  std::copy(window.output.begin(), window.output.end(), shape.begin() + 2);
  return TypeInfo::tensor(x.dtype, std::move(shape));
}

// ---------------------------------------------------------------------------------------------------------- MaxPool

void infer_max_pool(InferContext& c) {
  kernel::require_type(c.node, c.input(0).dtype, kernel::kFloats | kernel::set_of({DType::kInt8, DType::kUint8}),
                       "the input");
  c.outputs[0] = infer_pooled(c, c.input(0));
  if (c.outputs.size() > 1) {
    c.outputs[1] = c.outputs[0];
    c.outputs[1].dtype = DType::kInt64;
  }
}

/// Index of a plane's element when its dimensions count in column-major order.
int64_t column_major(int64_t offset, const Shape& extents) {
  std::vector<int64_t> index(extents.size());
  for (size_t axis = extents.size(); axis-- > 0; offset /= extents[axis]) index[axis] = offset % extents[axis];
  int64_t result = 0;
  for (size_t axis = extents.size(); axis-- > 0;) result = result * extents[axis] + index[axis];
  return result;
}

/// Maxima of a run of `row.size()` outputs over the taps of a plane; `offsets`: by tap and output, negative: padding.
template <typename T>
void run_maxima(const T* plane, const std::vector<int64_t>& offsets, std::span<T> row) {
  const auto count = static_cast<int64_t>(row.size());
  const T lowest = row.empty() ? T() : row[0];  // what the run begins with
  for (const int64_t *offset = offsets.data(), *end = offset + offsets.size(); offset != end; offset += count) {
    for (int64_t j = 0; j < count; ++j) {
      const T value = offset[j] >= 0 ? plane[offset[j]] : lowest;
      T& best = row[static_cast<size_t>(j)];
      best = best >= value ? best : value;
    }
  }
}

/// The same where NaNs count or places are asked for: the first of equal elements wins, a NaN wins over numbers.
/// `best`: the places, -1 where there is none.
template <typename T>
void run_maxima_with_places(const T* plane, const std::vector<int64_t>& offsets, std::span<T> row,
                            std::vector<int64_t>& best) {
  const size_t count = row.size();
  best.assign(count, -1);
  for (size_t k = 0; k < offsets.size(); ++k) {
    const size_t j = k % count;
    if (offsets[k] < 0) continue;
    const T value = plane[offsets[k]];
    if (best[j] >= 0 && !(value > row[j]) && !(value != value && row[j] == row[j])) continue;
    row[j] = value;
    best[j] = offsets[k];
  }
}

template <typename T>
void max_pool(const Window& window, const Tensor& x, bool columns, Tensor& y, Tensor* indices) {
  const int64_t in_plane = element_count(window.input), out_plane = element_count(window.output);
  const int64_t planes = x.shape()[0] * x.shape()[1];
  constexpr T kLowest =
      std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
  const T* in = elements<T>(x);
  T* out = mutable_elements<T>(y);
  int64_t* chosen = indices ? mutable_elements<int64_t>(*indices) : nullptr;
  const bool any_nan = std::any_of(in, in + x.size(), [](T value) { return value != value; });
  std::vector<int64_t> best;
  for_each_run(window, [&](int64_t first, int64_t count, const std::vector<int64_t>& offsets) {
    for (int64_t p = 0; p < planes; ++p) {
      const T* plane = in + p * in_plane;
      const std::span<T> row(out + p * out_plane + first, static_cast<size_t>(count));
      std::fill(row.begin(), row.end(), kLowest);
      if (chosen == nullptr && !any_nan) {
        run_maxima(plane, offsets, row);
        continue;
      }
      run_maxima_with_places(plane, offsets, row, best);
      for (int64_t j = 0; chosen != nullptr && j < count; ++j) {
        const int64_t at = best[static_cast<size_t>(j)];
        chosen[p * out_plane + first + j] =
            at < 0 ? -1 : p * in_plane + (columns ? column_major(at, window.input) : at);
      }
    }
  });
}

void evaluate_max_pool(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor x = kernel::widen(c.input(0));
  const Window window = pooling_window(c.node, spatial_extents(c.node, x.shape()));
  Tensor y(x.dtype(), types[0].shape), indices;
  if (c.outputs.size() > 1) indices = Tensor(DType::kInt64, types[0].shape);
  kernel::visit_arithmetic(x.dtype(), [&]<typename T>(kernel::Tag<T>) {
    max_pool<T>(window, x, c.node.get_int("storage_order", 0) != 0, y, c.outputs.size() > 1 ? &indices : nullptr);
  });
  c.outputs[0] = kernel::narrow(y, types[0].dtype);
  if (c.outputs.size() > 1) c.outputs[1] = indices;
}

// ------------------------------------------------------------------------------------------- AveragePool and LpPool

void infer_float_pool(InferContext& c) {
  kernel::require_type(c.node, c.input(0).dtype, kernel::kFloats, "the input");
  c.outputs[0] = infer_pooled(c, c.input(0));
}

/// |x|^p as a sum's term and the root that ends it.
template <typename T>
T power(T x, int64_t p) {
  if (p == 1) return std::fabs(x);
  if (p == 2) return x * x;
  return std::pow(std::fabs(x), static_cast<T>(p));
}
template <typename T>
T root(T sum, int64_t p) {
  if (p == 1) return sum;
  if (p == 2) return std::sqrt(sum);
  return std::pow(sum, T{1} / static_cast<T>(p));
}

/// y = finish(y, output position), for each plane.
template <typename T, typename Finish>
void finish_pool(const Window& window, int64_t planes, T* y, Finish finish) {
  const int64_t positions = element_count(window.output);
  for (int64_t p = 0; p < planes; ++p)
    for (int64_t j = 0; j < positions; ++j, ++y) *y = finish(*y, j);
}

/// The sums of the windows. ONNX Runtime has an order of its own for fp32.
template <typename T>
void sum_windows(const Window& window, SumOrder order, int64_t planes, const T* x, T* sums) {
  if (order == SumOrder::kColumns) {
    sum_columns(window, planes, x, sums);
  } else if (order == SumOrder::kLanes) {
    const int64_t plane = element_count(window.input);
    for (int64_t p = 0; p < planes; ++p) sums[p] = sum_lanes(x + p * plane, plane);
  } else {
    fold_windows(window, planes, x, sums, [](T& sum, T value) { sum += value; });
  }
}

void evaluate_average_pool(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Shape& shape = types[0].shape;
  const Window window = pooling_window(c.node, spatial_extents(c.node, c.input(0).shape()));
  const std::vector<int64_t> counts = tap_counts(window, c.node.get_int("count_include_pad", 0) != 0);
  const SumOrder order = c.input(0).dtype() == DType::kFloat ? order_of_average(c.node, window) : SumOrder::kRows;
  c.outputs[0] = kernel::in_floats(c.node, c.input(0), types[0], [&]<typename T>(const T* x, T* y) {
    sum_windows(window, order, shape[0] * shape[1], x, y);
    finish_pool(window, shape[0] * shape[1], y, [&](T sum, int64_t position) {
      const int64_t count = counts[static_cast<size_t>(position)];
      return count == 0 ? T{0} : sum / static_cast<T>(count);
    });
  });
}

int64_t norm_order(const Node& node) {
  const int64_t p = node.get_int("p", 2);
  if (p < 1) node.fail(ErrorCode::kInvalidModel, "p is " + std::to_string(p));
  return p;
}

void evaluate_lp_pool(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Shape& shape = types[0].shape;
  const Window window = pooling_window(c.node, spatial_extents(c.node, c.input(0).shape()));
  const int64_t p = norm_order(c.node);
  c.outputs[0] = kernel::in_floats(c.node, c.input(0), types[0], [&]<typename T>(const T* x, T* y) {
    fold_windows(window, shape[0] * shape[1], x, y, [p](T& sum, T value) { sum += power(value, p); });
    finish_pool(window, shape[0] * shape[1], y, [p](T sum, int64_t) { return root(sum, p); });
  });
}

// ------------------------------------------------------------------------------------------------------ global forms

void infer_global(InferContext& c) {
  kernel::require_type(c.node, c.input(0).dtype, kernel::kFloats, "the input");
  c.outputs[0] = kernel::without_constant(c.input(0));
  if (!c.outputs[0].ranked) return;
  spatial_extents(c.node, c.outputs[0].shape);
  std::fill(c.outputs[0].shape.begin() + 2, c.outputs[0].shape.end(), 1);
}

/// Kernel that maps each plane, a span of elements, to one value.
template <typename Reduce>
kernel::Kernel global_kernel(Reduce reduce) {
  return [reduce](EvalContext& c, const std::vector<TypeInfo>& types) {
    const Shape& shape = c.input(0).shape();
    const int64_t planes = element_count(types[0].shape), plane = kernel::product(shape, 2, shape.size());
    c.outputs[0] = kernel::in_floats(c.node, c.input(0), types[0], [&]<typename T>(const T* x, T* y) {
      for (int64_t i = 0; i < planes; ++i)
        y[i] = reduce(c.node, std::span<const T>(x + i * plane, static_cast<size_t>(plane)));
    });
  };
}

struct GlobalAverage {
  template <typename T>
  T operator()(const Node&, std::span<const T> plane) const {
    return sum_lanes(plane.data(), static_cast<int64_t>(plane.size())) / static_cast<T>(plane.size());
  }
};
struct GlobalMax {
  template <typename T>
  T operator()(const Node&, std::span<const T> plane) const {
    T best = -std::numeric_limits<T>::infinity();
    for (T value : plane) best = kernel::nan_max(best, value);
    return best;
  }
};
struct GlobalNorm {
  template <typename T>
  T operator()(const Node& node, std::span<const T> plane) const {
    const int64_t p = norm_order(node);
    T sum = 0;
    for (T value : plane) sum += power(value, p);
    return root(sum, p);
  }
};

// -------------------------------------------------------------------------------------------------------- MaxUnpool

void infer_max_unpool(InferContext& c) {
  const Node& node = c.node;
  const TypeInfo& x = c.input(0);
  const TypeInfo& indices = c.input(1);
  kernel::require_type(node, x.dtype, kernel::kFloats, "the input");
  kernel::require_type(node, indices.dtype, kernel::kInt64Set, "the indices");
  const Shape kernel = kernel_attribute(node, -1);
  const TypeInfo both = broadcast_types(node, x.dtype, {&x, &indices});
  Shape shape = both.ranked ? both.shape : Shape(kernel.size() + 2, -1);
  if (x.ranked && indices.ranked)
    for (size_t i = 0; i < shape.size(); ++i)
      if (x.shape.size() != indices.shape.size() ||
          (x.shape[i] >= 0 && indices.shape[i] >= 0 && x.shape[i] != indices.shape[i]))
        node.fail(ErrorCode::kInvalidModel,
                  "input " + to_string(x.shape) + " and indices " + to_string(indices.shape) + " differ");
  const Window window = transposed_window(node, spatial_extents(node, shape),
                                          kernel_attribute(node, static_cast<int64_t>(shape.size()) - 2));
  std::copy(window.input.begin(), window.input.end(), shape.begin() + 2);
  if (c.has(2)) {
    const auto wanted = kernel::known_ints(c, 2);
    if (wanted && wanted->size() != shape.size())
      node.fail(ErrorCode::kInvalidModel, "output_shape has " + std::to_string(wanted->size()) + " values for rank " +
                                              std::to_string(shape.size()));
    shape = wanted ? Shape(*wanted) : Shape(shape.size(), -1);
  }
  c.outputs[0] = TypeInfo::tensor(x.dtype, std::move(shape));
}

void evaluate_max_unpool(EvalContext& c, const std::vector<TypeInfo>& types) {
  const auto indices = c.input(1).as<int64_t>();
  const Shape& shape = types[0].shape;
  c.outputs[0] = kernel::in_storage(c.input(0), shape, [&](const auto* in, auto* out) {
    for (size_t i = 0; i < indices.size(); ++i) {
      if (indices[i] < 0 || indices[i] >= element_count(shape))
        c.node.fail(ErrorCode::kInvalidModel,
                    "index " + std::to_string(indices[i]) + " is outside the result " + to_string(shape));
      out[indices[i]] = in[i];
    }
  });
}

// ------------------------------------------------------------------------------------------------------- MaxRoiPool

void infer_max_roi_pool(InferContext& c) {
  const Node& node = c.node;
  const TypeInfo& x = c.input(0);
  const TypeInfo& regions = c.input(1);
  kernel::require_type(node, x.dtype, kernel::kFloats, "the input");
  kernel::require_same_type(node, x, regions);
  kernel::require_rank(node, x, 4, "the input");
  kernel::require_rank(node, regions, 2, "the regions");
  if (regions.ranked && regions.shape[1] >= 0 && regions.shape[1] != 5)
    node.fail(ErrorCode::kInvalidModel, "the regions " + to_string(regions.shape) + " must have 5 columns");
  const std::vector<int64_t> pooled = node.get_ints("pooled_shape");
  if (pooled.size() != 2 || pooled[0] < 1 || pooled[1] < 1)
    node.fail(ErrorCode::kInvalidModel, "pooled_shape must hold two positive extents");
  c.outputs[0] = TypeInfo::tensor(
      x.dtype, {regions.ranked ? regions.shape[0] : -1, x.ranked ? x.shape[1] : -1, pooled[0], pooled[1]});
}

void evaluate_max_roi_pool(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor x = kernel::widen(c.input(0));
  const Tensor regions = kernel::widen(c.input(1));
  const float scale = c.node.get_float("spatial_scale", 1.0f);
  const int64_t channels = x.shape()[1], height = x.shape()[2], width = x.shape()[3];
  const Shape& shape = types[0].shape;
  Tensor y(x.dtype(), shape);
  kernel::visit_float(x.dtype(), [&]<typename T>(kernel::Tag<T>) {
    T* out = mutable_elements<T>(y);
    for (int64_t r = 0; r < shape[0]; ++r) {
      const T* region = elements<T>(regions) + r * 5;
      const T batch = region[0];
      if (!(batch >= 0 && batch < static_cast<T>(x.shape()[0])))
        c.node.fail(ErrorCode::kInvalidModel, "region " + std::to_string(r) + " names an image that does not exist");
      const auto rounded = [&](T value) {
        return static_cast<int64_t>(std::round(std::clamp<T>(value * static_cast<T>(scale), -1e9, 1e9)));
      };
      const int64_t left = rounded(region[1]), top = rounded(region[2]);
      const int64_t region_width = std::max<int64_t>(rounded(region[3]) - left + 1, 1);
      const int64_t region_height = std::max<int64_t>(rounded(region[4]) - top + 1, 1);
      const T bin_height = static_cast<T>(region_height) / static_cast<T>(shape[2]);
      const T bin_width = static_cast<T>(region_width) / static_cast<T>(shape[3]);
      const auto bound = [](T edge, int64_t offset, int64_t extent) {
        return std::clamp<int64_t>(static_cast<int64_t>(edge) + offset, 0, extent);
      };
      for (int64_t channel = 0; channel < channels; ++channel) {
        const T* plane = elements<T>(x) + (static_cast<int64_t>(batch) * channels + channel) * height * width;
        for (int64_t i = 0; i < shape[2]; ++i) {
          for (int64_t j = 0; j < shape[3]; ++j) {
            const int64_t y0 = bound(std::floor(static_cast<T>(i) * bin_height), top, height);
            const int64_t y1 = bound(std::ceil(static_cast<T>(i + 1) * bin_height), top, height);
            const int64_t x0 = bound(std::floor(static_cast<T>(j) * bin_width), left, width);
            const int64_t x1 = bound(std::ceil(static_cast<T>(j + 1) * bin_width), left, width);
            T best = y1 <= y0 || x1 <= x0 ? T{0} : -std::numeric_limits<T>::infinity();  // an empty bin gives 0
            for (int64_t row = y0; row < y1; ++row)
              for (int64_t column = x0; column < x1; ++column)
                best = kernel::nan_max(best, plane[row * width + column]);
            *out++ = best;
          }
        }
      }
    }
  });
  c.outputs[0] = kernel::narrow(y, types[0].dtype);
}

}  // namespace

void register_pool(Registry& registry) {
  using Names = std::set<std::string>;
  const auto with = [](Names names, const Names& more) {
    names.insert(more.begin(), more.end());
    return names;
  };
  const Names base = {"auto_pad", "kernel_shape", "pads", "strides"};
  kernel::add(registry, "MaxPool", 1, kernel::kOne, infer_max_pool, evaluate_max_pool, base);
  kernel::add(registry, "MaxPool", 8, kernel::kOne, infer_max_pool, evaluate_max_pool, with(base, {"storage_order"}),
              {1, 2});
  kernel::add(registry, "MaxPool", 10, kernel::kOne, infer_max_pool, evaluate_max_pool,
              with(base, {"storage_order", "ceil_mode", "dilations"}), {1, 2});
  kernel::add(registry, "AveragePool", 1, kernel::kOne, infer_float_pool, evaluate_average_pool, base);
  kernel::add(registry, "AveragePool", 7, kernel::kOne, infer_float_pool, evaluate_average_pool,
              with(base, {"count_include_pad"}));
  kernel::add(registry, "AveragePool", 10, kernel::kOne, infer_float_pool, evaluate_average_pool,
              with(base, {"count_include_pad", "ceil_mode"}));
  kernel::add(registry, "AveragePool", 19, kernel::kOne, infer_float_pool, evaluate_average_pool,
              with(base, {"count_include_pad", "ceil_mode", "dilations"}));
  kernel::add(registry, "LpPool", 2, kernel::kOne, infer_float_pool, evaluate_lp_pool, with(base, {"p"}));
  kernel::add(registry, "LpPool", 18, kernel::kOne, infer_float_pool, evaluate_lp_pool,
              with(base, {"p", "ceil_mode", "dilations"}));
  kernel::add(registry, "GlobalAveragePool", 1, kernel::kOne, infer_global, global_kernel(GlobalAverage{}));
  kernel::add(registry, "GlobalMaxPool", 1, kernel::kOne, infer_global, global_kernel(GlobalMax{}));
  kernel::add(registry, "GlobalLpPool", 2, kernel::kOne, infer_global, global_kernel(GlobalNorm{}), {"p"});
  kernel::add(registry, "MaxUnpool", 9, {2, 3}, infer_max_unpool, evaluate_max_unpool,
              {"kernel_shape", "pads", "strides"});
  kernel::add(registry, "MaxRoiPool", 1, kernel::kTwo, infer_max_roi_pool, evaluate_max_roi_pool,
              {"pooled_shape", "spatial_scale"});
}

}  // namespace tessera::ops
