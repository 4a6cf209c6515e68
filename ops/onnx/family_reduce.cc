// SPDX-License-Identifier: Apache-2.0
// Reductions over axes: ten arithmetic ones, ArgMax and ArgMin. Axes are an attribute or, from opset 13 (sum) or 18
// (the others), an input. The input is walked once in memory order while each element updates the accumulator of its
// result. Integers accumulate in their own type and wrap; floats accumulate in double and round once, so that a result
// does not depend on the order of a long sum.
#include <array>
#include <cmath>
#include <span>

#include "ops/kernels/reduction.h"

namespace tessera::ops {

namespace {

using namespace kernel;
using scalar::Number;

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
    out = TypeInfo::tensor(in.dtype, ReducedAxes(c.node, *axes, in.shape.size(), true).result(in.shape, keep));
  };
}

/// Of `count` elements each: two sums in turn of every fourth element, added, and then the four.
void sums_in_lanes(const float* x, int64_t count, std::span<float> results) {
  for (float& result : results) {
    std::array<float, 8> sums{};
    const int64_t pairs = count / 8 * 8;
    for (int64_t i = 0; i < pairs; ++i) sums[static_cast<size_t>(i % 8)] += x[i];
    for (size_t k = 0; k < 4; ++k) {
      sums[k] += sums[k + 4];
      if (pairs < count) sums[k] += x[pairs + static_cast<int64_t>(k)];
    }
    result = (sums[0] + sums[2]) + (sums[1] + sums[3]);
    x += count;
  }
}

/// A result in T: floats round, integers truncate and saturate (NaN gives 0).
template <typename T, typename R>
T result_in(R value) {
  if constexpr (std::is_same_v<T, R> || std::is_floating_point_v<T>) return static_cast<T>(value);
  if (std::isnan(static_cast<double>(value))) return 0;
  if (value <= static_cast<R>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  if (value >= static_cast<R>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

/// Reduces `in` into the whole of `out`.
using Reduce = std::function<void(const Node&, const Tensor& in, const ReducedAxes&, Tensor& out)>;

/// An entry of the table of reductions, with A for the accumulator of elements of type T.
template <typename T, typename A, typename Start, typename Step, typename Finish>
void fold(const Tensor& in, const ReducedAxes& axes, bool in_lanes, Tensor& out, Start start, Step step,
          Finish finish) {
  const int64_t count = axes.count(in.shape());
  const T* x = elements<T>(in);
  T* y = mutable_elements<T>(out);
  if constexpr (std::is_same_v<T, float>)
    if (in_lanes && axes.in_fours(in.shape())) {
      sums_in_lanes(x, count, out.as_mutable<float>());
      for (float& sum : out.as_mutable<float>()) sum = finish(Number<float>{sum}, count).value;
      return;
    }
  std::vector<A> sums(static_cast<size_t>(out.size()), start(Number<A>{}).value);
  accumulate(in.shape(), axes, x, sums.data(),
             [&](A& sum, T element) { sum = step(Number<A>{sum}, Number<A>{static_cast<A>(element)}).value; });
  for (const A sum : sums) *y++ = result_in<T>(finish(Number<A>{sum}, count).value);
}

/// log(sum(exp(x))) = m + log(sum(exp(x - m))); an infinite maximum is not subtracted.
template <typename T>
void log_sum_exp(const Tensor& in, const ReducedAxes& axes, Tensor& out) {
  struct Sum {
    double top = -std::numeric_limits<double>::infinity(), exponentials = 0;
  };
  std::vector<Sum> sums(static_cast<size_t>(out.size()));
  const T* x = elements<T>(in);
  accumulate(in.shape(), axes, x, sums.data(),
             [](Sum& s, T element) { s.top = nan_max(s.top, static_cast<double>(element)); });
  for (Sum& s : sums)
    if (!std::isfinite(s.top)) s.top = 0;
  accumulate(in.shape(), axes, x, sums.data(),
             [](Sum& s, T element) { s.exponentials += std::exp(static_cast<double>(element) - s.top); });
  T* y = mutable_elements<T>(out);
  for (const Sum& s : sums) *y++ = result_in<T>(s.top + std::log(s.exponentials));
}

Kernel reduction(bool keeps_single, bool axes_input, const Reduce& reduce) {
  return [=](EvalContext& c, const std::vector<TypeInfo>& types) {
    const Tensor& given = c.input(0);
    const std::vector<int64_t> axes =
        axes_input ? (c.has(1) ? c.input(1).to_int64s() : std::vector<int64_t>{}) : c.node.get_ints("axes");
    // Without axes each element is reduced alone: norms, squares and logarithms are taken all the same.
    const bool alone = axes_input && c.node.get_int("noop_with_empty_axes", 0) != 0;
    if (axes.empty() && alone && keeps_single) {
      c.outputs[0] = given;
      return;
    }
    const Tensor in = given.dtype() == DType::kBool ? given.bitcast(DType::kUint8) : widen(given);
    Tensor out(in.dtype(), types[0].shape);
    reduce(c.node, in, ReducedAxes(c.node, axes, in.shape().size(), !alone), out);
    if (given.dtype() == DType::kBool) {
      // An empty maximum of booleans is false, an empty minimum true.
      for (uint8_t& v : out.as_mutable<uint8_t>()) v = v != 0;
      out = out.bitcast(DType::kBool);
    }
    c.outputs[0] = narrow(std::move(out), types[0].dtype);
  };
}

/// What reductions() calls: each entry of the table is registered.
struct Registration {
  Registry& r;

  template <typename Start, typename Step, typename Finish>
  void fold(const char* name, int axes_input_since, TypeSet types, Accumulation how, Start start, Step step,
            Finish finish) {
    add_reduction(name, axes_input_since, types, how.keeps_single,
                  [=](const Node& node, const Tensor& in, const ReducedAxes& axes, Tensor& out) {
                    visit_arithmetic(node, in.dtype(), [&]<typename T>(Tag<T>) {
                      if constexpr (std::is_floating_point_v<T>)
                        if (how.wide) return ops::fold<T, double>(in, axes, how.in_lanes, out, start, step, finish);
                      ops::fold<T, T>(in, axes, how.in_lanes, out, start, step, finish);
                    });
                  });
  }

  void add_reduction(const char* name, int axes_input_since, TypeSet types, bool keeps_single, const Reduce& reduce) {
    add(r, name, 1, kOne, infer_reduction(types, false), reduction(keeps_single, false, reduce), {"axes", "keepdims"});
    add(r, name, axes_input_since, {1, 2}, infer_reduction(types, true), reduction(keeps_single, true, reduce),
        {"keepdims", "noop_with_empty_axes"});
  }
};

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
  Registration registration{r};
  reductions(registration);
  registration.add_reduction("ReduceLogSumExp", 18, kWideTypes, true,
                             [](const Node& node, const Tensor& in, const ReducedAxes& axes, Tensor& out) {
                               visit_arithmetic(node, in.dtype(),
                                                [&]<typename T>(Tag<T>) { log_sum_exp<T>(in, axes, out); });
                             });
  add(r, "ArgMax", 1, kOne, infer_arg, arg(true), {"axis", "keepdims"});
  add(r, "ArgMin", 1, kOne, infer_arg, arg(false), {"axis", "keepdims"});
  add(r, "ArgMax", 12, kOne, infer_arg, arg(true), {"axis", "keepdims", "select_last_index"});
  add(r, "ArgMin", 12, kOne, infer_arg, arg(false), {"axis", "keepdims", "select_last_index"});
}

}  // namespace tessera::ops
