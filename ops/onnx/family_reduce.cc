// SPDX-License-Identifier: Apache-2.0
// Reductions over axes: ten arithmetic ones, ArgMax and ArgMin. Axes are an attribute or, from opset 13 (sum) or 18
// (the others), an input. The input is walked once in memory order while each element updates the accumulator of its
// result. Integers accumulate in their own type and wrap; floats accumulate in double and round once, so that a result
// does not depend on the order of a long sum.
#include <array>
#include <cmath>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

using namespace kernel;

enum class Reduction { kSum, kMean, kMax, kMin, kProd, kL1, kL2, kLogSum, kLogSumExp, kSumSquare };

struct ReductionName {
  const char* name;
  Reduction kind;
  int axes_input_since;
  TypeSet types;
};

constexpr TypeSet kWide = kFloats | set_of({DType::kInt32, DType::kInt64, DType::kUint32, DType::kUint64});

constexpr ReductionName kReductions[] = {
    {"ReduceSum", Reduction::kSum, 13, kNumeric},
    {"ReduceMean", Reduction::kMean, 18, kNumeric},
    {"ReduceMax", Reduction::kMax, 18, kNumeric | kBoolSet},
    {"ReduceMin", Reduction::kMin, 18, kNumeric | kBoolSet},
    {"ReduceProd", Reduction::kProd, 18, kNumeric},
    {"ReduceL1", Reduction::kL1, 18, kNumeric},
    {"ReduceL2", Reduction::kL2, 18, kNumeric},
    {"ReduceLogSum", Reduction::kLogSum, 18, kWide},
    {"ReduceLogSumExp", Reduction::kLogSumExp, 18, kWide},
    {"ReduceSumSquare", Reduction::kSumSquare, 18, kNumeric},
};

/// The axes as given; nullopt when they are an input whose content is unknown.
std::optional<std::vector<int64_t>> given_axes(const InferContext& c, bool axes_input) {
  if (!axes_input) return c.node.get_ints("axes");
  if (!c.has(1)) return std::vector<int64_t>{};
  return known_ints(c, 1);
}

InferFunction infer_reduction(TypeSet set, bool axes_input) {
  return [set, axes_input](InferContext& c) {
    const TypeInfo& in = c.input(0);
    require_type(c.node, in.dtype, set, "input");
    if (axes_input && c.has(1)) require_type(c.node, c.input(1).dtype, kIndex, "axes");
    const bool keep = c.node.get_int("keepdims", 1) != 0;
    const auto axes = given_axes(c, axes_input);
    TypeInfo& out = c.outputs[0];
    if (axes && axes->empty() && axes_input && c.node.get_int("noop_with_empty_axes", 0) != 0) {
      out = without_constant(in);
      return;
    }
    if (axes && axes->empty() && !keep) {
      out = TypeInfo::tensor(in.dtype, {});
      return;
    }
    if (!in.ranked) {
      out = TypeInfo::unranked(in.dtype);
      return;
    }
    const int64_t rank = static_cast<int64_t>(in.shape.size());
    if (!axes) {
      const int64_t count = known_length(c, 1);
      if (keep)
        out = of_rank(in.dtype, rank);
      else if (count > 0 && count <= rank)
        out = of_rank(in.dtype, rank - count);
      else
        out = TypeInfo::unranked(in.dtype);
      return;
    }
    std::vector<bool> reduced(in.shape.size(), axes->empty());
    for (int64_t axis : *axes) reduced[static_cast<size_t>(normalise_axis(c.node, axis, rank))] = true;
    Shape shape;
    for (size_t d = 0; d < reduced.size(); ++d) {
      if (!reduced[d])
        shape.push_back(in.shape[d]);
      else if (keep)
        shape.push_back(1);
    }
    out = TypeInfo::tensor(in.dtype, std::move(shape));
  };
}

/// Accumulator type: double for floats, the element type for integers.
template <typename T>
using Accumulator = std::conditional_t<std::is_floating_point_v<T>, double, T>;

/// Walks `in` with the strides of the accumulators (0 on reduced axes): f(accumulator, element).
template <typename T, typename A, typename F>
void accumulate(const Tensor& in, const std::vector<int64_t>& out_strides, std::vector<A>& sums, F f) {
  const LoopNest<2> nest(in.shape(), {row_strides(in.shape()), out_strides});
  const auto [si, so] = nest.inner();
  const T* data = elements<T>(in);
  nest.for_each_row([&, si = si, so = so](const std::array<int64_t, 2>& at, int64_t count) {
    const T* x = data + at[0];
    A* sum = sums.data() + at[1];
    if (so == 0) {
      A local = *sum;
      for (int64_t i = 0; i < count; ++i) f(local, x[i * si]);
      *sum = local;
    } else {
      for (int64_t i = 0; i < count; ++i) f(sum[i * so], x[i * si]);
    }
  });
}

/// The elements of each sum when they stand side by side, in fours; 0 otherwise. Then ONNX Runtime adds them in lanes
/// of four, and what follows is its order.
template <typename T>
int64_t lanes_length(const Tensor& in, const std::vector<int64_t>& out_strides, int64_t count) {
  if constexpr (!std::is_same_v<T, float>) return 0;
  int64_t side_by_side = 1;
  for (size_t d = out_strides.size(); d-- > 0 && out_strides[d] == 0;) side_by_side *= in.shape()[d];
  return side_by_side == count && count > 0 && count % 4 == 0 ? count : 0;
}

/// Two sums in turn of every fourth element, added, and then the four.
float sum_in_lanes(const float* x, int64_t count) {
  std::array<float, 8> sums{};
  const int64_t pairs = count / 8 * 8;
  for (int64_t i = 0; i < pairs; ++i) sums[static_cast<size_t>(i % 8)] += x[i];
  for (size_t k = 0; k < 4; ++k) {
    sums[k] += sums[k + 4];
    if (pairs < count) sums[k] += x[pairs + static_cast<int64_t>(k)];
  }
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

template <typename T>
constexpr T lowest() {
  if constexpr (std::is_floating_point_v<T>)
    return -std::numeric_limits<T>::infinity();
  else
    return std::numeric_limits<T>::min();
}
template <typename T>
constexpr T highest() {
  if constexpr (std::is_floating_point_v<T>)
    return std::numeric_limits<T>::infinity();
  else
    return std::numeric_limits<T>::max();
}

/// A real result in T: floats round, integers truncate and saturate (NaN gives 0).
template <typename T>
T from_real(double value) {
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(value);
  if (std::isnan(value)) return 0;
  if (value <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  if (value >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

/// `count`: elements that one result sums.
template <typename T>
void reduce(Reduction kind, const Tensor& in, const std::vector<int64_t>& out_strides, int64_t count, Tensor& out) {
  using A = Accumulator<T>;
  const size_t n = static_cast<size_t>(out.size());
  T* y = mutable_elements<T>(out);
  std::vector<A> sums(n, A{0});
  const auto store = [&](auto f) {
    for (size_t i = 0; i < n; ++i) y[i] = f(sums[i]);
  };
  if constexpr (std::is_same_v<T, float>) {
    const int64_t length = lanes_length<T>(in, out_strides, count);
    if (length > 0 && (kind == Reduction::kSum || kind == Reduction::kMean)) {
      const float divisor = kind == Reduction::kMean ? static_cast<float>(count) : 1.0f;
      for (size_t i = 0; i < n; ++i)
        y[i] = sum_in_lanes(elements<float>(in) + static_cast<int64_t>(i) * length, length) / divisor;
      return;
    }
  }
  switch (kind) {
    case Reduction::kSum:
    case Reduction::kMean:
    case Reduction::kLogSum:
      accumulate<T>(in, out_strides, sums, [](A& s, T x) { s = wrap_add<A>(s, x); });
      if (kind == Reduction::kSum)
        store([](A s) { return static_cast<T>(s); });
      else if (kind == Reduction::kLogSum)
        store([](A s) { return from_real<T>(std::log(static_cast<double>(s))); });
      else
        store([&](A s) {
          if constexpr (std::is_floating_point_v<T>)
            return static_cast<T>(s / static_cast<double>(count));
          else if constexpr (std::is_signed_v<T>)
            return count == 0 ? T{0} : static_cast<T>(static_cast<int64_t>(s) / count);
          else
            return count == 0 ? T{0} : static_cast<T>(static_cast<uint64_t>(s) / static_cast<uint64_t>(count));
        });
      return;
    case Reduction::kMax:
      std::fill(sums.begin(), sums.end(), lowest<A>());
      accumulate<T>(in, out_strides, sums, [](A& s, T x) { s = nan_max<A>(s, x); });
      store([](A s) { return static_cast<T>(s); });
      return;
    case Reduction::kMin:
      std::fill(sums.begin(), sums.end(), highest<A>());
      accumulate<T>(in, out_strides, sums, [](A& s, T x) { s = nan_min<A>(s, x); });
      store([](A s) { return static_cast<T>(s); });
      return;
    case Reduction::kProd:
      std::fill(sums.begin(), sums.end(), A{1});
      accumulate<T>(in, out_strides, sums, [](A& s, T x) { s = wrap_mul<A>(s, x); });
      store([](A s) { return static_cast<T>(s); });
      return;
    case Reduction::kL1:
      accumulate<T>(in, out_strides, sums, [](A& s, T x) { s = wrap_add<A>(s, x < 0 ? wrap_neg<A>(x) : A(x)); });
      store([](A s) { return static_cast<T>(s); });
      return;
    case Reduction::kL2:
    case Reduction::kSumSquare:
      accumulate<T>(in, out_strides, sums, [](A& s, T x) { s = wrap_add<A>(s, wrap_mul<A>(x, x)); });
      if (kind == Reduction::kSumSquare)
        store([](A s) { return static_cast<T>(s); });
      else
        store([](A s) { return from_real<T>(std::sqrt(static_cast<double>(s))); });
      return;
    case Reduction::kLogSumExp: {
      // log(sum(exp(x))) = m + log(sum(exp(x - m))); an infinite maximum is not subtracted.
      std::vector<double> maxima(n, lowest<double>()), exponentials(n, 0.0);
      accumulate<T>(in, out_strides, maxima, [](double& s, T x) { s = nan_max(s, static_cast<double>(x)); });
      for (double& m : maxima)
        if (!std::isfinite(m)) m = 0;
      std::vector<std::pair<double, double>> pairs(n);  // (maximum, sum of exponentials)
      for (size_t i = 0; i < n; ++i) pairs[i] = {maxima[i], 0.0};
      accumulate<T>(in, out_strides, pairs,
                    [](std::pair<double, double>& s, T x) { s.second += std::exp(static_cast<double>(x) - s.first); });
      for (size_t i = 0; i < n; ++i) y[i] = from_real<T>(pairs[i].first + std::log(pairs[i].second));
      return;
    }
  }
}

/// Whether the reduction of one element is that element.
bool keeps_single(Reduction kind) {
  return kind != Reduction::kL1 && kind != Reduction::kL2 && kind != Reduction::kLogSum &&
         kind != Reduction::kSumSquare;
}

Kernel reduction(Reduction kind, bool axes_input) {
  return [kind, axes_input](EvalContext& c, const std::vector<TypeInfo>& types) {
    const Tensor& given = c.input(0);
    std::vector<int64_t> axes =
        axes_input ? (c.has(1) ? c.input(1).to_int64s() : std::vector<int64_t>{}) : c.node.get_ints("axes");
    const bool empty = axes.empty();
    // Without axes each element is reduced alone: norms, squares and logarithms are taken all the same.
    const bool alone = empty && axes_input && c.node.get_int("noop_with_empty_axes", 0) != 0;
    if (alone && keeps_single(kind)) {
      c.outputs[0] = given;
      return;
    }
    const Tensor in = given.dtype() == DType::kBool ? given.bitcast(DType::kUint8) : widen(given);
    std::vector<bool> reduced(in.shape().size(), empty && !alone);
    for (int64_t axis : axes) reduced[static_cast<size_t>(normalise_axis(c.node, axis, in.rank()))] = true;
    Shape kept = in.shape();
    int64_t count = 1;
    for (size_t d = 0; d < reduced.size(); ++d)
      if (reduced[d]) {
        count *= kept[d];
        kept[d] = 1;
      }
    std::vector<int64_t> strides = row_strides(kept);
    for (size_t d = 0; d < reduced.size(); ++d)
      if (reduced[d]) strides[d] = 0;
    Tensor out(in.dtype(), types[0].shape);
    visit_arithmetic(c.node, in.dtype(), [&]<typename T>(Tag<T>) { reduce<T>(kind, in, strides, count, out); });
    if (given.dtype() == DType::kBool) {
      // An empty maximum of booleans is false, an empty minimum true.
      for (uint8_t& v : out.as_mutable<uint8_t>()) v = v != 0;
      out = out.bitcast(DType::kBool);
    }
    c.outputs[0] = narrow(std::move(out), types[0].dtype);
  };
}

// ------------------------------------------------------------------------------------------------ ArgMax, ArgMin

void infer_arg(InferContext& c) {
  const TypeInfo& in = c.input(0);
  require_type(c.node, in.dtype, kNumeric, "input");
  if (!in.ranked) {
    c.outputs[0] = TypeInfo::unranked(DType::kInt64);
    return;
  }
  const int64_t axis = static_cast<int64_t>(axis_attribute(c.node, 0, in.shape));
  Shape shape = in.shape;
  if (shape[static_cast<size_t>(axis)] == 0)
    c.node.fail(ErrorCode::kInvalidModel, "no element to choose: shape " + to_string(shape));
  if (c.node.get_int("keepdims", 1) != 0)
    shape[static_cast<size_t>(axis)] = 1;
  else
    shape.erase(shape.begin() + axis);
  c.outputs[0] = TypeInfo::tensor(DType::kInt64, std::move(shape));
}

Kernel arg(bool maximum) {
  return [maximum](EvalContext& c, const std::vector<TypeInfo>& types) {
    const Tensor in = widen(c.input(0));
    const Shape& shape = in.shape();
    const size_t axis = axis_attribute(c.node, 0, in.shape());
    const bool last = c.node.get_int("select_last_index", 0) != 0;
    const int64_t outer = product(shape, 0, axis), length = shape[axis], inner = product(shape, axis + 1, shape.size());
    Tensor out(DType::kInt64, types[0].shape);
    int64_t* y = mutable_elements<int64_t>(out);
    visit_arithmetic(c.node, in.dtype(), [&]<typename T>(Tag<T>) {
      const T* x = elements<T>(in);
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t i = 0; i < inner; ++i) {
          const T* line = x + o * length * inner + i;
          int64_t best = 0;
          for (int64_t n = 1; n < length; ++n) {
            const T a = line[n * inner], b = line[best * inner];
            if ((maximum ? a > b : a < b) || (last && a == b)) best = n;
          }
          y[o * inner + i] = best;
        }
    });
    c.outputs[0] = std::move(out);
  };
}

}  // namespace

void register_reduce(Registry& r) {
  for (const ReductionName& op : kReductions) {
    add(r, op.name, 1, kOne, infer_reduction(op.types, false), reduction(op.kind, false), {"axes", "keepdims"});
    add(r, op.name, op.axes_input_since, {1, 2}, infer_reduction(op.types, true), reduction(op.kind, true),
        {"keepdims", "noop_with_empty_axes"});
  }
  add(r, "ArgMax", 1, kOne, infer_arg, arg(true), {"axis", "keepdims"});
  add(r, "ArgMin", 1, kOne, infer_arg, arg(false), {"axis", "keepdims"});
  add(r, "ArgMax", 12, kOne, infer_arg, arg(true), {"axis", "keepdims", "select_last_index"});
  add(r, "ArgMin", 12, kOne, infer_arg, arg(false), {"axis", "keepdims", "select_last_index"});
}

}  // namespace tessera::ops
