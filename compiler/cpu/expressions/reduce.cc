// SPDX-License-Identifier: Apache-2.0
// Reductions over axes: the table ops/kernels/reduction.h as loops in row-major order, and what is more than a fold of
// expressions, with the formulas of ops/onnx/family_reduce.cc.
#include "ops/kernels/reduction.h"

#include <cmath>

#include "compiler/cpu/expressions/reduction.h"

namespace tessera::cpu {

Indices only_element(const Body& body, const Tensor& tensor) {
  require(tensor.size() == 1);
  return Indices(tensor.rank(), mlir::getAffineConstantExpr(0, body.context()));
}

namespace {

/// Two sums in turn of every fourth element of each result, added, and then the four.
Tensor sum_in_lanes(Graph& graph, const Tensor& given, const Axes& axes) {
  const int64_t rows = given.size() / axes.count, fours = axes.count / 4, pairs = fours / 2;
  const Tensor x = graph.reshape(given, {rows, fours, 4});
  const auto constant = [](const Body& body, int64_t v) { return mlir::getAffineConstantExpr(v, body.context()); };
  std::optional<Tensor> lanes;
  if (pairs > 0) {
    const Tensor even = fours % 2 == 0 ? x : graph.slice(x, {0, 0, 0}, {1, 1, 1}, {rows, 2 * pairs, 4});
    const Tensor both = graph.reshape(even, {rows, pairs, 8});
    const Tensor sums = graph.reduce(DType::kFloat, {rows, 8}, {pairs}, zero(DType::kFloat),
                                     [&](Body& body, const Indices& i, const Indices& k, Scalar s) {
                                       return s + body.load(both, {i[0], k[0], i[1]});
                                     });
    lanes = graph.reshape(sums, {rows, 2, 4});
  }
  const Tensor four = graph.compute(DType::kFloat, {rows, 4}, [&](Body& body, const Indices& i) {
    const auto last = [&] { return body.load(x, {i[0], constant(body, fours - 1), i[1]}); };
    if (!lanes) return last();
    const Scalar s =
        body.load(*lanes, {i[0], constant(body, 0), i[1]}) + body.load(*lanes, {i[0], constant(body, 1), i[1]});
    return fours % 2 == 0 ? s : s + last();
  });
  const Tensor sum = graph.compute(DType::kFloat, {rows}, [&](Body& body, const Indices& i) {
    const auto lane = [&](int64_t n) { return body.load(four, {i[0], constant(body, n)}); };
    return (lane(0) + lane(2)) + (lane(1) + lane(3));
  });
  return graph.reshape(sum, axes.kept_shape);
}

ops::ReducedAxes reduced_axes(const Operator& o, int axes_input_since) {
  const bool by_input = o.node.version >= axes_input_since;
  const std::vector<int64_t> given =
      by_input ? (o.has(1) ? o.constant(1).to_int64s() : std::vector<int64_t>{}) : o.node.get_ints("axes");
  const bool alone = by_input && o.node.get_int("noop_with_empty_axes", 0) != 0;
  return ops::ReducedAxes(o.node, given, o.in(0).rank(), !alone);
}

/// What ops::reductions() calls: each entry of the table becomes a loop.
struct ReductionLoops {
  Lowerings& t;

  template <typename First, typename Step, typename Finish>
  void fold(const char* name, int axes_input_since, ops::kernel::TypeSet, ops::Accumulation how, First first, Step step,
            Finish last) {
    t.add(name, [=](Operator& o) {
      const Tensor x = o.in(0);
      const ops::ReducedAxes reduced = reduced_axes(o, axes_input_since);
      const Axes axes(x.shape, reduced.reduced);
      const DType type = how.wide && is_real(x.dtype) ? DType::kDouble : x.dtype;
      const bool in_lanes = how.in_lanes && x.dtype == DType::kFloat && reduced.in_fours(x.shape);
      const Tensor sums = in_lanes ? sum_in_lanes(o.graph, x, axes)
                                   : cpu::fold(
                                         o, x, axes, type, [&](Body& body) { return first(Scalar(&body, {}, type)); },
                                         [&](Scalar sum, Scalar v) { return step(sum, cast(v, type)); });
      finish(o, sums, [&](Scalar sum) {
        const Scalar y = last(sum, axes.count);
        require(is_real(x.dtype) || y.dtype() == x.dtype);  // real results of integers saturate in the library
        return cast(y, x.dtype);
      });
    });
  }
};

/// An infinite maximum is not subtracted.
void log_sum_exp(Operator& o) {
  const Tensor x = o.in(0);
  require(is_real(x.dtype));
  const Axes axes(x.shape, reduced_axes(o, 18).reduced);
  constexpr DType kWide = DType::kDouble;
  const Tensor top = fold(
      o, x, axes, kWide, [](Body& body) { return body.number(kWide, -INFINITY); },
      [](Scalar s, Scalar v) { return nan_max(s, cast(v, kWide)); });
  const auto finite = [](Scalar m) { return select(magnitude(m) < m.same(INFINITY), m, m.same(0)); };
  const Tensor sum = o.graph.reduce(kWide, axes.kept_shape, axes.extents, zero(kWide),
                                    [&](Body& body, const Indices& i, const Indices& k, Scalar s) {
                                      const Scalar v = cast(body.load(x, axes.merge(i, k)), kWide);
                                      return s + exp(v - finite(body.load(top, i)));
                                    });
  const Tensor y = o.graph.compute(o.dtype(), axes.kept_shape, [&](Body& body, const Indices& i) {
    return cast(finite(body.load(top, i)) + log(body.load(sum, i)), x.dtype);
  });
  o.yield(o.graph.reshape(y, o.shape()));
}

Lowering arg(bool maximum) {
  return [maximum](Operator& o) {
    const Tensor x = o.in(0);
    const auto axis = ops::axis_attribute(o.node, 0, x.shape);
    const bool last = o.node.get_int("select_last_index", 0) != 0;
    std::vector<bool> reduced(x.rank(), false);
    reduced[axis] = true;
    const Axes axes(x.shape, reduced);
    const Tensor best = o.graph.reduce(DType::kInt64, axes.kept_shape, axes.extents, zero(DType::kInt64),
                                       [&](Body& body, const Indices& i, const Indices& k, Scalar at) {
                                         std::vector<Scalar> place;
                                         const Indices here = axes.merge(i, k);
                                         for (size_t d = 0; d < x.rank(); ++d)
                                           place.push_back(d == axis ? at : body.index(here[d]));
                                         const Scalar a = body.load(x, here), b = body.extract(x, place);
                                         Scalar better = maximum ? a > b : a < b;
                                         if (last) better = better | (a == b);
                                         return select(better, body.index(k[0]), at);
                                       });
    o.yield(o.graph.reshape(best, o.shape()));
  };
}

}  // namespace

void add_reduce(Lowerings& t) {
  ReductionLoops loops{t};
  ops::reductions(loops);
  t.add("ReduceLogSumExp", log_sum_exp);
  t.add("ArgMax", arg(true));
  t.add("ArgMin", arg(false));
}

}  // namespace tessera::cpu
