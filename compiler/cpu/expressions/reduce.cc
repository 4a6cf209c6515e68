// SPDX-License-Identifier: Apache-2.0
// Reductions over axes, with the formulas and the order of summation of ops/onnx/family_reduce.cc: floats accumulate
// in float64, all else in the element type, always in row-major order from a zero.
#include <cmath>
#include <limits>

#include "compiler/cpu/expressions/reduction.h"

namespace tessera::cpu {

Indices only_element(const Body& body, const Tensor& tensor) {
  require(tensor.size() == 1);
  return Indices(tensor.rank(), mlir::getAffineConstantExpr(0, body.context()));
}

namespace {

enum class Kind { kSum, kMean, kMax, kMin, kProd, kL1, kL2, kLogSum, kLogSumExp, kSumSquare };

/// One reduction of a tensor over some of its axes.
class Reduction {
 public:
  Reduction(Operator& o, Tensor x, const std::vector<bool>& reduced)
      : o_(o),
        x_(std::move(x)),
        axes_(x_.shape, reduced),
        real_(is_real(x_.dtype)),
        sum_type_(real_ ? DType::kDouble : x_.dtype) {}

  void lower(Kind kind) {
    const auto self = [](Scalar v) { return v; };
    const auto plain = [this](Scalar s) { return cast(s, x_.dtype); };
    switch (kind) {
      case Kind::kMax:
      case Kind::kMin: return extreme(kind == Kind::kMax);
      case Kind::kSum: return in_lanes() ? finish(o_, sum_in_lanes(), self) : finish(o_, sum(self), plain);
      case Kind::kLogSum: require(real_); return finish(o_, sum(self), [&](Scalar s) { return plain(log(s)); });
      case Kind::kMean:
        return finish(o_, in_lanes() ? sum_in_lanes() : sum(self), [this](Scalar s) { return mean(s); });
      case Kind::kProd:
        return finish(o_,
                      fold(
                          o_, x_, axes_, sum_type_, [this](Body& body) { return body.number(sum_type_, 1); },
                          [this](Scalar s, Scalar v) { return s * cast(v, sum_type_); }),
                      plain);
      case Kind::kL1: return finish(o_, sum(magnitude), plain);
      case Kind::kL2: require(real_); return finish(o_, squares(), [&](Scalar s) { return plain(sqrt(s)); });
      case Kind::kSumSquare: return finish(o_, squares(), plain);
      case Kind::kLogSumExp: return log_sum_exp();
    }
  }

 private:
  /// The sum of f of every element.
  Tensor sum(const std::function<Scalar(Scalar)>& f) {
    return fold(o_, x_, axes_, sum_type_, zero(sum_type_),
                [&](Scalar s, Scalar v) { return s + cast(f(v), sum_type_); });
  }
  /// Whether the elements of a sum stand side by side, in fours. ONNX Runtime adds them in lanes of four then.
  bool in_lanes() const {
    size_t first = x_.rank();
    int64_t side_by_side = 1;
    while (first > 0 && axes_.is_reduced(first - 1)) side_by_side *= x_.shape[--first];
    return x_.dtype == DType::kFloat && side_by_side == axes_.count && axes_.count > 0 && axes_.count % 4 == 0;
  }
  /// Two sums in turn of every fourth element, added, and then the four.
  Tensor sum_in_lanes() {
    const int64_t rows = x_.size() / axes_.count, fours = axes_.count / 4, pairs = fours / 2;
    const Tensor x = o_.graph.reshape(x_, {rows, fours, 4});
    const auto constant = [](const Body& body, int64_t v) { return mlir::getAffineConstantExpr(v, body.context()); };
    std::optional<Tensor> lanes;
    if (pairs > 0) {
      const Tensor even = fours % 2 == 0 ? x : o_.graph.slice(x, {0, 0, 0}, {1, 1, 1}, {rows, 2 * pairs, 4});
      const Tensor both = o_.graph.reshape(even, {rows, pairs, 8});
      const Tensor sums = o_.graph.reduce(DType::kFloat, {rows, 8}, {pairs}, zero(DType::kFloat),
                                          [&](Body& body, const Indices& i, const Indices& k, Scalar s) {
                                            return s + body.load(both, {i[0], k[0], i[1]});
                                          });
      lanes = o_.graph.reshape(sums, {rows, 2, 4});
    }
    const Tensor four = o_.graph.compute(DType::kFloat, {rows, 4}, [&](Body& body, const Indices& i) {
      const auto last = [&] { return body.load(x, {i[0], constant(body, fours - 1), i[1]}); };
      if (!lanes) return last();
      const Scalar s =
          body.load(*lanes, {i[0], constant(body, 0), i[1]}) + body.load(*lanes, {i[0], constant(body, 1), i[1]});
      return fours % 2 == 0 ? s : s + last();
    });
    const Tensor sum = o_.graph.compute(DType::kFloat, {rows}, [&](Body& body, const Indices& i) {
      const auto lane = [&](int64_t n) { return body.load(four, {i[0], constant(body, n)}); };
      return (lane(0) + lane(2)) + (lane(1) + lane(3));
    });
    return o_.graph.reshape(sum, axes_.kept_shape);
  }
  Tensor squares() {
    return fold(o_, x_, axes_, sum_type_, zero(sum_type_),
                [this](Scalar s, Scalar v) { return s + cast(v, sum_type_) * cast(v, sum_type_); });
  }

  Scalar mean(Scalar s) const {
    if (real_) return cast(s / s.same(static_cast<double>(axes_.count)), x_.dtype);
    const DType wide = ops::is_signed_integer(x_.dtype) ? DType::kInt64 : DType::kUint64;
    return cast(cast(s, wide) / s.body().integer(wide, axes_.count), x_.dtype);
  }

  /// What every value is at least (`top`) or at most as large as.
  Scalar limit(Body& body, bool top) const {
    if (real_) return body.number(x_.dtype, top ? -INFINITY : INFINITY);
    if (!ops::is_signed_integer(x_.dtype)) return body.integer(x_.dtype, top ? 0 : -1);
    const int bits = static_cast<int>(8 * ops::element_bytes(x_.dtype));
    const int64_t lowest = bits == 64 ? std::numeric_limits<int64_t>::min() : -(int64_t{1} << (bits - 1));
    return body.integer(x_.dtype, top ? lowest : ~lowest);
  }

  void extreme(bool top) {
    const auto self = [](Scalar s) { return s; };
    if (x_.dtype == DType::kBool) {
      finish(o_,
             fold(
                 o_, x_, axes_, DType::kBool, [&](Body& body) { return body.integer(DType::kBool, top ? 0 : 1); },
                 [&](Scalar s, Scalar v) { return top ? s | v : s & v; }),
             self);
      return;
    }
    finish(o_,
           fold(
               o_, x_, axes_, x_.dtype, [&](Body& body) { return limit(body, top); },
               [&](Scalar s, Scalar v) { return top ? nan_max(s, v) : nan_min(s, v); }),
           self);
  }

  /// An infinite maximum is not subtracted.
  void log_sum_exp() {
    require(real_);
    const Tensor top = fold(
        o_, x_, axes_, sum_type_, [this](Body& body) { return body.number(sum_type_, -INFINITY); },
        [this](Scalar s, Scalar v) { return nan_max(s, cast(v, sum_type_)); });
    const auto finite = [](Scalar m) { return select(magnitude(m) < m.same(INFINITY), m, m.same(0)); };
    const Tensor sum =
        o_.graph.reduce(sum_type_, axes_.kept_shape, axes_.extents, zero(sum_type_),
                        [&](Body& body, const Indices& i, const Indices& k, Scalar s) {
                          return s + exp(cast(body.load(x_, axes_.merge(i, k)), sum_type_) - finite(body.load(top, i)));
                        });
    const Tensor y = o_.graph.compute(o_.dtype(), axes_.kept_shape, [&](Body& body, const Indices& i) {
      return cast(finite(body.load(top, i)) + log(body.load(sum, i)), x_.dtype);
    });
    o_.yield(o_.graph.reshape(y, o_.shape()));
  }

  Operator& o_;
  const Tensor x_;
  const Axes axes_;
  const bool real_;
  const DType sum_type_;
};

Lowering reduction(Kind kind, int axes_input_since) {
  return [kind, axes_input_since](Operator& o) {
    const Tensor x = o.in(0);
    const bool by_input = o.node.version >= axes_input_since;
    std::vector<int64_t> given =
        by_input ? (o.has(1) ? o.constant(1).to_int64s() : std::vector<int64_t>{}) : o.node.get_ints("axes");
    const bool alone = given.empty() && by_input && o.node.get_int("noop_with_empty_axes", 0) != 0;
    std::vector<bool> reduced(x.rank(), given.empty() && !alone);
    for (int64_t axis : given)
      reduced[static_cast<size_t>(ops::normalise_axis(o.node, axis, static_cast<int64_t>(x.rank())))] = true;
    Reduction(o, x, reduced).lower(kind);
  };
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
  t.add("ReduceSum", reduction(Kind::kSum, 13));
  t.add("ReduceMean", reduction(Kind::kMean, 18));
  t.add("ReduceMax", reduction(Kind::kMax, 18));
  t.add("ReduceMin", reduction(Kind::kMin, 18));
  t.add("ReduceProd", reduction(Kind::kProd, 18));
  t.add("ReduceL1", reduction(Kind::kL1, 18));
  t.add("ReduceL2", reduction(Kind::kL2, 18));
  t.add("ReduceLogSum", reduction(Kind::kLogSum, 18));
  t.add("ReduceLogSumExp", reduction(Kind::kLogSumExp, 18));
  t.add("ReduceSumSquare", reduction(Kind::kSumSquare, 18));
  t.add("ArgMax", arg(true));
  t.add("ArgMin", arg(false));
}

}  // namespace tessera::cpu
