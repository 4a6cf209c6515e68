// SPDX-License-Identifier: Apache-2.0
// Sampling at computed positions: GridSample reads an image of any number of spatial dimensions at normalised
// coordinates, AffineGrid makes such coordinates from affine matrices. The last coordinate of a grid entry belongs to
// the first spatial dimension. Positions outside are clamped or reflected first; taps that still lie outside are zero,
// the border, or reflected.
#include <cmath>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

using namespace kernel;

enum class GridMode { kNearest, kLinear, kCubic };
enum class Padding { kZeros, kBorder, kReflection };

GridMode grid_mode_of(const Node& node) {
  const std::string mode = node.get_string("mode", node.version < 20 ? "bilinear" : "linear");
  if (mode == "nearest") return GridMode::kNearest;
  if (mode == (node.version < 20 ? "bilinear" : "linear")) return GridMode::kLinear;
  if (mode == (node.version < 20 ? "bicubic" : "cubic")) return GridMode::kCubic;
  node.fail(ErrorCode::kInvalidModel, "mode '" + mode + "' is not known in opset " + std::to_string(node.version));
}

Padding padding_of(const Node& node) {
  const std::string mode = node.get_string("padding_mode", "zeros");
  if (mode == "zeros") return Padding::kZeros;
  if (mode == "border") return Padding::kBorder;
  if (mode == "reflection") return Padding::kReflection;
  node.fail(ErrorCode::kInvalidModel, "padding_mode '" + mode + "' is not zeros, border or reflection");
}

void infer_grid_sample(InferContext& c) {
  const TypeInfo &x = c.input(0), &grid = c.input(1);
  grid_mode_of(c.node);
  padding_of(c.node);
  require_type(c.node, x.dtype, kNumeric, "X");
  require_type(c.node, grid.dtype, kFloats, "grid");
  if (x.ranked && x.shape.size() < 3)
    c.node.fail(ErrorCode::kInvalidModel, "X needs a spatial dimension, has shape " + to_string(x.shape));
  if (x.ranked) require_rank(c.node, grid, static_cast<int64_t>(x.shape.size()), "grid");
  if (grid.ranked && grid.shape.size() < 3)
    c.node.fail(ErrorCode::kInvalidModel, "grid needs a spatial dimension, has shape " + to_string(grid.shape));
  if (!x.ranked && !grid.ranked) {
    c.outputs[0] = TypeInfo::unranked(x.dtype);
    return;
  }
  const size_t rank = x.ranked ? x.shape.size() : grid.shape.size();
  if (grid.ranked && grid.shape.back() >= 0 && grid.shape.back() != static_cast<int64_t>(rank) - 2)
    c.node.fail(ErrorCode::kInvalidModel,
                "the last dimension of grid " + to_string(grid.shape) + " must be " + std::to_string(rank - 2));
  if (x.ranked && grid.ranked && x.shape[0] >= 0 && grid.shape[0] >= 0 && x.shape[0] != grid.shape[0])
    c.node.fail(ErrorCode::kInvalidModel, "X and grid differ in batch");
  c.outputs[0] = of_rank(x.dtype, static_cast<int64_t>(rank));
  Shape& shape = c.outputs[0].shape;
  if (x.ranked) std::copy(x.shape.begin(), x.shape.begin() + 2, shape.begin());
  if (grid.ranked) {
    if (shape[0] < 0) shape[0] = grid.shape[0];
    std::copy(grid.shape.begin() + 1, grid.shape.end() - 1, shape.begin() + 2);
  }
}

/// Mirrors x into [low, high], as often as needed.
template <typename R>
R reflect(R x, R low, R high) {
  const R range = high - low;
  if (range <= 0) return low;
  const R distance = x < low ? low - x : x > high ? x - high : R{0};
  if (distance == 0) return x;
  const R turns = std::floor(distance / range), rest = distance - turns * range;
  const bool even = std::fmod(turns, R{2}) == 0;
  return (x < low) == even ? low + rest : high - rest;
}

/// One spatial dimension at one position: up to four taps, index -1 for a zero.
template <typename R>
struct AxisTaps {
  int count = 0;
  std::array<int64_t, 4> index{};
  std::array<R, 4> weight{};
};

template <typename R>
AxisTaps<R> axis_taps(R x, int64_t length, GridMode sample, Padding padding, bool align) {
  const R size = static_cast<R>(length), low = align ? R{0} : R{-0.5}, high = align ? size - 1 : size - R{0.5};
  x = align ? (x + 1) / 2 * (size - 1) : ((x + 1) * size - 1) / 2;
  if (sample == GridMode::kNearest) x = std::nearbyint(x);
  if (!std::isfinite(x)) x = R{-1e9};  // far outside
  if (x < low || x > high) {
    // Cubic keeps its position: its taps are clamped one by one.
    if (padding == Padding::kBorder && sample != GridMode::kCubic)
      x = std::clamp<R>(x, 0, size - 1);
    else if (padding == Padding::kReflection)
      x = reflect(x, low, high);
  }
  x = std::clamp<R>(x, R{-1e9}, R{1e9});
  const auto place = [&](int64_t i) -> int64_t {
    if (i >= 0 && i < length) return i;
    if (padding == Padding::kZeros) return -1;
    if (padding == Padding::kBorder) return std::clamp<int64_t>(i, 0, length - 1);
    return std::clamp<int64_t>(static_cast<int64_t>(reflect(static_cast<R>(i), low, high)), 0, length - 1);
  };
  AxisTaps<R> taps;
  const auto add_tap = [&](int64_t i, R weight) {
    taps.index[static_cast<size_t>(taps.count)] = place(i);
    taps.weight[static_cast<size_t>(taps.count++)] = weight;
  };
  if (sample == GridMode::kNearest) {
    add_tap(static_cast<int64_t>(std::nearbyint(x)), 1);
    return taps;
  }
  const int64_t left = static_cast<int64_t>(std::floor(x));
  const R t = x - static_cast<R>(left);
  if (sample == GridMode::kLinear) {
    add_tap(left, 1 - t);
    add_tap(left + 1, t);
    return taps;
  }
  const R a = R{-0.75};  // Catmull-Rom-like coefficient of the operator
  const auto near = [&](R d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
  const auto far = [&](R d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
  add_tap(left - 1, far(t + 1));
  add_tap(left, near(t));
  add_tap(left + 1, near(1 - t));
  add_tap(left + 2, far(2 - t));
  return taps;
}

/// Weighted sum over all taps from spatial dimension d on.
template <typename T, typename R>
R gather_taps(const T* plane, const std::vector<AxisTaps<R>>& taps, const std::vector<int64_t>& strides, size_t d) {
  if (d == taps.size()) return static_cast<R>(*plane);
  R sum = 0;
  for (int k = 0; k < taps[d].count; ++k) {
    const int64_t index = taps[d].index[static_cast<size_t>(k)];
    if (index >= 0)
      sum += taps[d].weight[static_cast<size_t>(k)] * gather_taps(plane + index * strides[d], taps, strides, d + 1);
  }
  return sum;
}

void evaluate_grid_sample(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor x = widen(c.input(0));
  const GridMode sample = grid_mode_of(c.node);
  const Padding padding = padding_of(c.node);
  const bool align = c.node.get_int("align_corners", 0) != 0;
  const Shape& shape = x.shape();
  const size_t spatial = shape.size() - 2;
  const std::vector<int64_t> all = row_strides(shape), strides(all.begin() + 2, all.end());
  const int64_t plane = product(shape, 2, shape.size()), positions = product(types[0].shape, 2, types[0].shape.size());
  Tensor out(x.dtype(), types[0].shape);
  if (out.size() != 0 && plane == 0)
    c.node.fail(ErrorCode::kInvalidArgument, "an image without elements cannot be sampled");
  if (out.size() != 0 && !visit_arithmetic(x.dtype(), [&]<typename T>(Tag<T>) {
        using R = std::conditional_t<std::is_same_v<T, double>, double, float>;
        std::vector<R> grid;
        if constexpr (std::is_same_v<R, double>)
          grid = c.input(1).to_doubles();
        else
          grid = c.input(1).to_floats();
        const T* data = elements<T>(x);
        T* y = mutable_elements<T>(out);
        std::vector<AxisTaps<R>> taps(spatial);
        for (int64_t n = 0; n < shape[0]; ++n)
          for (int64_t p = 0; p < positions; ++p) {
            const R* at = grid.data() + static_cast<size_t>(n * positions + p) * spatial;
            for (size_t d = 0; d < spatial; ++d)
              taps[d] = axis_taps(at[spatial - 1 - d], shape[d + 2], sample, padding, align);
            for (int64_t ch = 0; ch < shape[1]; ++ch) {
              const R value = gather_taps<T, R>(data + (n * shape[1] + ch) * plane, taps, strides, 0);
              y[(n * shape[1] + ch) * positions + p] = static_cast<T>(value);
            }
          }
      }))
    unsupported_type(c.node, x.dtype());
  c.outputs[0] = narrow(std::move(out), types[0].dtype);
}

// ------------------------------------------------------------------------------------------------ AffineGrid

void infer_affine_grid(InferContext& c) {
  const TypeInfo &theta = c.input(0), &size = c.input(1);
  require_type(c.node, theta.dtype, kFloats, "theta");
  require_type(c.node, size.dtype, kInt64Set, "size");
  require_rank(c.node, theta, 3, "theta");
  require_rank(c.node, size, 1, "size");
  int64_t rank = known_length(c, 1);
  if (rank < 0 && theta.ranked && theta.shape[1] > 0) rank = theta.shape[1] + 2;
  if (rank < 0) {
    c.outputs[0] = TypeInfo::unranked(theta.dtype);
    return;
  }
  if (rank != 4 && rank != 5)
    c.node.fail(ErrorCode::kInvalidModel, "size must hold 4 or 5 entries, not " + std::to_string(rank));
  const int64_t spatial = rank - 2;
  if (theta.ranked &&
      ((theta.shape[1] >= 0 && theta.shape[1] != spatial) || (theta.shape[2] >= 0 && theta.shape[2] != spatial + 1)))
    c.node.fail(ErrorCode::kInvalidModel, "theta of shape " + to_string(theta.shape) + " does not fit " +
                                              std::to_string(spatial) + " spatial dimensions");
  c.outputs[0] = of_rank(theta.dtype, rank);
  Shape& shape = c.outputs[0].shape;
  shape[0] = theta.ranked ? theta.shape[0] : -1;
  shape.back() = spatial;
  if (const auto dims = known_ints(c, 1)) {
    if (theta.ranked && theta.shape[0] >= 0 && theta.shape[0] != (*dims)[0])
      c.node.fail(ErrorCode::kInvalidModel, "theta and size differ in batch");
    shape[0] = (*dims)[0];
    for (int64_t d = 0; d < spatial; ++d) {
      if ((*dims)[static_cast<size_t>(d + 2)] < 0) c.node.fail(ErrorCode::kInvalidModel, "negative size");
      shape[static_cast<size_t>(d + 1)] = (*dims)[static_cast<size_t>(d + 2)];
    }
  }
}

void evaluate_affine_grid(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Shape& shape = types[0].shape;
  const size_t spatial = shape.size() - 2;
  const bool align = c.node.get_int("align_corners", 0) != 0;
  c.outputs[0] = in_floats(c.node, c.input(0), types[0], [&]<typename T>(const T* matrix, T* y) {
    Shape points(shape.begin(), shape.end() - 1);
    for_each_index(points, [&](int64_t flat, const std::vector<int64_t>& index) {
      std::array<T, 4> v{};  // (x, y[, z], 1): the last spatial dimension first
      for (size_t d = 0; d < spatial; ++d) {
        const T i = static_cast<T>(index[spatial - d]), length = static_cast<T>(shape[spatial - d]);
        v[d] = align ? (length > 1 ? -1 + i * (T{2} / (length - 1)) : T{-1}) : (2 * i + 1) / length - 1;
      }
      v[spatial] = 1;
      const T* m = matrix + index[0] * static_cast<int64_t>(spatial * (spatial + 1));
      for (size_t row = 0; row < spatial; ++row) {
        T sum = 0;
        for (size_t k = 0; k <= spatial; ++k) sum += m[row * (spatial + 1) + k] * v[k];
        y[static_cast<size_t>(flat) * spatial + row] = sum;
      }
    });
  });
}

}  // namespace

void register_grid(Registry& r) {
  add(r, "GridSample", 16, kTwo, infer_grid_sample, evaluate_grid_sample, {"align_corners", "mode", "padding_mode"});
  add(r, "AffineGrid", 20, kTwo, infer_affine_grid, evaluate_affine_grid, {"align_corners"});
}

}  // namespace tessera::ops
