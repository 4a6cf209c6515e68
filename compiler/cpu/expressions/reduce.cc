// SPDX-License-Identifier: Apache-2.0
// Reductions, softmax, normalisations and pooling, with the formulas and the order of summation of
// ops/onnx/family_reduce.cc, normalization.h, family_norm.cc, family_activation.cc and family_pool.cc: reductions over
// axes of floats accumulate in float64, all else in the element type, always in row-major order from a zero.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/cpu/expressions/lowering.h"
#include "ops/kernels/normalization.h"

namespace tessera::cpu {

Tensor padded_for(Graph& graph, const Tensor& x, const ops::Window& window, const Start& value) {
  Shape shape = x.shape, inside = x.shape;
  std::vector<int64_t> low(x.rank(), 0);
  bool covered = true;
  for (size_t d = 0; d < window.rank(); ++d) {
    require(window.pads_begin[d] >= 0 && window.pads_end[d] >= 0);
    const int64_t extent = (window.output[d] - 1) * window.strides[d] + window.span(d);
    low[d + 2] = window.pads_begin[d];
    covered = covered && low[d + 2] == 0 && extent <= x.shape[d + 2];
    shape[d + 2] = extent;
    inside[d + 2] = std::min(x.shape[d + 2], extent - low[d + 2]);  // what no window reaches is left out
    require(inside[d + 2] > 0);
  }
  if (covered) return x;
  Tensor part = x;
  if (inside != x.shape)
    part = graph.slice(x, std::vector<int64_t>(x.rank(), 0), std::vector<int64_t>(x.rank(), 1), inside);
  return graph.pad(part, low, shape, value);
}

Indices window_indices(const ops::Window& window, llvm::ArrayRef<Index> at, llvm::ArrayRef<Index> tap) {
  Indices result;
  for (size_t d = 0; d < window.rank(); ++d) result.push_back(at[d] * window.strides[d] + tap[d] * window.dilations[d]);
  return result;
}

std::vector<Tensor> tap_counts(Graph& graph, const ops::Window& window, bool padding) {
  std::vector<Tensor> counts;
  for (size_t d = 0; d < window.rank(); ++d)
    counts.push_back(graph.reduce(
        DType::kInt64, {window.output[d]}, {window.kernel[d]},
        [](Body& body) { return body.integer(DType::kInt64, 0); },
        [&](Body& body, const Indices& i, const Indices& k, Scalar n) {
          const Scalar at = body.index(i[0] * window.strides[d] + k[0] * window.dilations[d] - window.pads_begin[d]);
          const Scalar before_end =
              at < body.integer(DType::kInt64, window.input[d] + (padding ? window.pads_end[d] : 0));
          return n + cast(padding ? before_end : before_end & (at >= at.same(0)), DType::kInt64);
        }));
  return counts;
}

Scalar tap_count(Body& body, const std::vector<Tensor>& counts, llvm::ArrayRef<Index> at) {
  Scalar count = body.integer(DType::kInt64, 1);
  for (size_t d = 0; d < counts.size(); ++d) count = count * body.load(counts[d], {at[d]});
  return count;
}

Indices only_element(const Body& body, const Tensor& tensor) {
  require(tensor.size() == 1);
  return Indices(tensor.rank(), mlir::getAffineConstantExpr(0, body.context()));
}

namespace {

bool is_real(DType dtype) { return dtype == DType::kFloat || dtype == DType::kDouble; }

Start zero(DType dtype) {
  return [dtype](Body& body) { return body.number(dtype, 0); };
}

// --- reductions over axes
// ------------------------------------------------------------------------------------------------------

/// Which axes are kept and which reduced.
struct Axes {
  std::vector<size_t> kept, reduced;
  Shape kept_shape, extents;
  int64_t count = 1;

  Axes(const Shape& shape, const std::vector<bool>& is_reduced) {
    for (size_t d = 0; d < shape.size(); ++d) {
      (is_reduced[d] ? reduced : kept).push_back(d);
      (is_reduced[d] ? extents : kept_shape).push_back(shape[d]);
      if (is_reduced[d]) count *= shape[d];
    }
  }
  bool is_reduced(size_t axis) const { return std::find(reduced.begin(), reduced.end(), axis) != reduced.end(); }
  Indices merge(const Indices& i, const Indices& k) const {
    Indices at(kept.size() + reduced.size());
    for (size_t d = 0; d < kept.size(); ++d) at[kept[d]] = i[d];
    for (size_t d = 0; d < k.size(); ++d) at[reduced[d]] = k[d];
    return at;
  }
};

Tensor fold(Operator& o, const Tensor& x, const Axes& axes, DType dtype, const Start& start,
            const std::function<Scalar(Scalar sum, Scalar x)>& f) {
  return o.graph.reduce(dtype, axes.kept_shape, axes.extents, start,
                        [&](Body& body, const Indices& i, const Indices& k, Scalar sum) {
                          return f(sum, body.load(x, axes.merge(i, k)));
                        });
}

/// Yields f of every element of `sums` in the result's type and shape.
void finish(Operator& o, const Tensor& sums, const std::function<Scalar(Scalar)>& f) {
  const Tensor y =
      o.graph.compute(o.dtype(), sums.shape, [&](Body& body, const Indices& i) { return f(body.load(sums, i)); });
  o.yield(o.graph.reshape(y, o.shape()));
}

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

// --- softmax
// -------------------------------------------------------------------------------------------------------------------

void softmax(Operator& o, bool logarithm) {
  require(is_real(o.in(0).dtype));
  const Shape shape = o.in(0).shape;
  const bool flatten = o.node.version < 13;
  const auto axis = ops::axis_attribute(o.node, flatten ? 1 : -1, shape);
  Shape lines = {1, 1, 1};  // outer, length, inner
  for (size_t d = 0; d < shape.size(); ++d) lines[d < axis ? 0 : d == axis || flatten ? 1 : 2] *= shape[d];
  const Tensor x = o.graph.reshape(o.in(0), lines);
  const DType dtype = x.dtype;
  const auto along = [&](const Start& start,
                         const std::function<Scalar(Body&, const Indices& at, const Indices& line, Scalar sum)>& f) {
    return o.graph.reduce(dtype, {lines[0], lines[2]}, {lines[1]}, start,
                          [&](Body& body, const Indices& i, const Indices& k, Scalar sum) {
                            return f(body, {i[0], k[0], i[1]}, i, sum);
                          });
  };
  const Tensor top = along([&](Body& body) { return body.number(dtype, -INFINITY); },
                           [&](Body& body, const Indices& at, const Indices&, Scalar best) {
                             const Scalar v = body.load(x, at);
                             return select(v > best, v, best);
                           });
  const Tensor exponentials = o.graph.compute(
      dtype, lines, [&](Body& body, const Indices& i) { return exp(body.load(x, i) - body.load(top, {i[0], i[2]})); });
  const Tensor sum = along(zero(dtype), [&](Body& body, const Indices& at, const Indices&, Scalar s) {
    return s + body.load(exponentials, at);
  });
  const Tensor y = o.graph.compute(dtype, lines, [&](Body& body, const Indices& i) {
    const Indices line = {i[0], i[2]};
    if (!logarithm) return body.load(exponentials, i) / body.load(sum, line);
    return (body.load(x, i) - body.load(top, line)) - log(body.load(sum, line));
  });
  o.yield(o.graph.reshape(y, shape));
}

// --- normalisations
// ------------------------------------------------------------------------------------------------------------

/// Mean and 1 / sqrt(variance + epsilon) of each row of x [rows, width].
struct Moments {
  Tensor mean, inverse;
};

Moments moments(Graph& graph, const Tensor& x, float epsilon) {
  const Shape rows = {x.shape[0]}, width = {x.shape[1]};
  const auto divided = [&](Scalar s) { return s / s.same(static_cast<double>(x.shape[1])); };
  const Tensor sum = graph.reduce(
      x.dtype, rows, width, zero(x.dtype),
      [&](Body& body, const Indices& i, const Indices& k, Scalar s) { return s + body.load(x, {i[0], k[0]}); });
  const Tensor mean =
      graph.compute(x.dtype, rows, [&](Body& body, const Indices& i) { return divided(body.load(sum, i)); });
  const Tensor squares =
      graph.reduce(x.dtype, rows, width, zero(x.dtype), [&](Body& body, const Indices& i, const Indices& k, Scalar s) {
        const Scalar v = body.load(x, {i[0], k[0]}) - body.load(mean, i);
        return s + v * v;
      });
  return {mean, graph.compute(x.dtype, rows, [&](Body& body, const Indices& i) {
            const Scalar variance = divided(body.load(squares, i));
            return variance.same(1) / sqrt(variance + variance.same(epsilon));
          })};
}

/// Mean and 1 / sqrt(mean of squares about it + epsilon) of each row of x [rows, width]; the mean is absent where
/// nothing is subtracted. Sums as in ops/kernels/normalization.cc.
struct RowSums {
  std::optional<Tensor> mean;
  Tensor inverse;
};

RowSums sums_in_lanes(Graph& graph, const Tensor& x, float epsilon, bool centred) {
  constexpr int64_t kLanes = 8;
  RowSums result;
  const Shape rows = {x.shape[0]};
  const int64_t width = x.shape[1], chunks = width / kLanes;
  const auto constant = [](const Body& body, int64_t v) { return mlir::getAffineConstantExpr(v, body.context()); };
  if (centred) {
    const Tensor sum = graph.reduce(DType::kDouble, rows, {width}, zero(DType::kDouble),
                                    [&](Body& body, const Indices& i, const Indices& k, Scalar s) {
                                      return s + cast(body.load(x, {i[0], k[0]}), DType::kDouble);
                                    });
    result.mean = graph.compute(x.dtype, rows, [&](Body& body, const Indices& i) {
      const Scalar s = body.load(sum, i);
      return cast(s / s.same(static_cast<double>(width)), x.dtype);
    });
  }
  const auto about_mean = [&](Body& body, Scalar v, Index row) {
    return centred ? v - body.load(*result.mean, {row}) : v;
  };
  const Tensor whole = width % kLanes == 0 ? x : graph.slice(x, {0, 0}, {1, 1}, {x.shape[0], chunks * kLanes});
  const Tensor parts = graph.reshape(whole, {x.shape[0], chunks, kLanes});
  const Tensor lanes = graph.reduce(x.dtype, {x.shape[0], kLanes}, {chunks}, zero(x.dtype),
                                    [&](Body& body, const Indices& i, const Indices& k, Scalar s) {
                                      const Scalar d = about_mean(body, body.load(parts, {i[0], k[0], i[1]}), i[0]);
                                      return fma(d, d, s);
                                    });
  result.inverse = graph.compute(x.dtype, rows, [&](Body& body, const Indices& i) {
    const auto lane = [&](int64_t n) { return body.load(lanes, {i[0], constant(body, n)}); };
    Scalar sum = ((lane(0) + lane(4)) + (lane(2) + lane(6))) + ((lane(1) + lane(5)) + (lane(3) + lane(7)));
    for (int64_t n = chunks * kLanes; n < width; ++n) {
      const Scalar d = about_mean(body, body.load(x, {i[0], constant(body, n)}), i[0]);
      sum = n < width - width % static_cast<int64_t>(ops::kSquaredApart) ? sum + d * d : fma(d, d, sum);
    }
    const Scalar variance = sum / sum.same(static_cast<double>(width));
    return variance.same(1) / sqrt(variance + variance.same(epsilon));
  });
  return result;
}

/// sqrt(mean of squares + epsilon) of each row of x [rows, width].
Tensor root_of_squares(Graph& graph, const Tensor& x, float epsilon) {
  const Tensor squares = graph.reduce(x.dtype, {x.shape[0]}, {x.shape[1]}, zero(x.dtype),
                                      [&](Body& body, const Indices& i, const Indices& k, Scalar s) {
                                        const Scalar v = body.load(x, {i[0], k[0]});
                                        return s + v * v;
                                      });
  return graph.compute(x.dtype, {x.shape[0]}, [&](Body& body, const Indices& i) {
    const Scalar s = body.load(squares, i), variance = s / s.same(static_cast<double>(x.shape[1]));
    return sqrt(variance + variance.same(epsilon));
  });
}

/// Layer normalisation of `given` over its axes from `axis` on, times `scale`, plus `shift`.
struct LayerNormalized {
  Tensor y;
  RowSums sums;
};

/// Means that are brought forward from element to element are left to the library.
LayerNormalized layer_normalize(Graph& graph, const Tensor& given, size_t axis, float epsilon, bool centred,
                                const Tensor& scale, const std::optional<Tensor>& shift, bool lanes) {
  require(is_real(given.dtype));
  Shape flat = {1, 1};
  for (size_t d = 0; d < given.rank(); ++d) flat[d < axis ? 0 : 1] *= given.shape[d];
  const bool in_lanes = lanes && given.dtype == DType::kFloat && flat[1] >= ops::shortest_in_lanes(centred);
  require(in_lanes || !centred);
  const Tensor x = graph.reshape(given, flat);
  RowSums r;
  if (in_lanes) r = sums_in_lanes(graph, x, epsilon, centred);
  const Tensor deviation = in_lanes ? r.inverse : root_of_squares(graph, x, epsilon);
  const Tensor normal = graph.reshape(graph.compute(x.dtype, flat,
                                                    [&](Body& body, const Indices& i) {
                                                      Scalar v = body.load(x, i);
                                                      if (centred) v = v - body.load(*r.mean, {i[0]});
                                                      const Scalar d = body.load(deviation, {i[0]});
                                                      return in_lanes ? v * d : v / d;
                                                    }),
                                      given.shape);
  const Tensor y = graph.compute(x.dtype, given.shape, [&](Body& body, const Indices& i) {
    const Scalar v = body.load(normal, i), factor = body.broadcast(scale, i);
    if (!shift) return v * factor;
    const Scalar addend = body.broadcast(*shift, i);
    return in_lanes ? fma(v, factor, addend) : v * factor + addend;
  });
  if (!in_lanes)
    r.inverse = graph.compute(x.dtype, deviation.shape, [&](Body& body, const Indices& i) {
      const Scalar d = body.load(deviation, i);
      return d.same(1) / d;
    });
  return {y, r};
}

void layer_norm(Operator& o, bool centred) {
  const Tensor x = o.in(0);
  const auto axis = ops::axis_attribute(o.node, -1, x.shape);
  const LayerNormalized r =
      layer_normalize(o.graph, x, axis, o.node.get_float("epsilon", 1e-5f), centred, o.in(1), o.optional_in(2), true);
  o.yield(r.y);
  if (o.op->getNumResults() > 1 && centred) o.yield(o.graph.reshape(*r.sums.mean, o.shape(1)));
  if (o.op->getNumResults() > o.results.size()) o.yield(o.graph.reshape(r.sums.inverse, o.shape(o.results.size())));
}

/// Layer normalisation of x (+ bias) + skip.
void skip_layer_norm(Operator& o, bool centred) {
  require(o.op->getNumResults() == 1);
  const size_t bias = centred ? 4 : 3;
  const Tensor x = o.in(0);
  const Tensor sum = o.graph.compute(x.dtype, x.shape, [&](Body& body, const Indices& i) {
    Scalar v = body.load(x, i);
    if (o.has(bias)) v = v + body.broadcast(o.in(bias), i);
    return v + body.broadcast(o.in(1), i);
  });
  o.yield(layer_normalize(o.graph, sum, x.rank() - 1, o.node.get_float("epsilon", 1e-12f), centred, o.in(2),
                          centred ? o.optional_in(3) : std::nullopt, false)
              .y);
}

/// Instance and group normalisation: rows are runs of channels.
void group_norm(Operator& o, int64_t groups) {
  const Tensor given = o.in(0);
  require(is_real(given.dtype) && groups > 0);
  const int64_t batch = given.shape[0], channels = given.shape[1], members = channels / groups,
                plane = given.size() / (batch * channels);
  const Shape shape = {batch, groups, members, plane};
  const Tensor rows = o.graph.reshape(given, {batch * groups, members * plane}), x = o.graph.reshape(given, shape);
  const Moments m = moments(o.graph, rows, o.node.get_float("epsilon", 1e-5f));
  const auto parameter = [&](const Tensor& p) {
    return o.graph.reshape(p, p.size() == channels ? Shape{groups, members} : Shape{groups, 1});
  };
  const Tensor mean = o.graph.reshape(m.mean, {batch, groups}), inverse = o.graph.reshape(m.inverse, {batch, groups});
  const Tensor scale = parameter(o.in(1)), bias = parameter(o.in(2));
  const Tensor y = o.graph.compute(x.dtype, shape, [&](Body& body, const Indices& i) {
    const Indices row = {i[0], i[1]}, channel = {i[1], i[2]};
    return (body.load(x, i) - body.load(mean, row)) * body.load(inverse, row) * body.broadcast(scale, channel) +
           body.broadcast(bias, channel);
  });
  o.yield(o.graph.reshape(y, given.shape));
}

void batch_norm(Operator& o) {
  const Tensor x = o.in(0);
  require(is_real(x.dtype) && x.rank() >= 2 && o.op->getNumResults() == 1);
  require(o.node.version >= 9 || o.node.get_int("spatial", 1) != 0);
  require(o.node.version < 14 || o.node.get_int("training_mode", 0) == 0);
  for (size_t i = 1; i < 5; ++i) require(o.in(i).dtype == x.dtype);
  const Shape channels = {x.shape[1]};
  // One factor and one addend for a channel.
  const Tensor factor = o.graph.compute(x.dtype, channels, [&](Body& body, const Indices& c) {
    const Scalar variance = body.load(o.in(4), c);
    return body.load(o.in(1), c) *
           (variance.same(1) / sqrt(variance + variance.same(o.node.get_float("epsilon", 1e-5f))));
  });
  const Tensor addend = o.graph.compute(x.dtype, channels, [&](Body& body, const Indices& c) {
    return body.load(o.in(2), c) - body.load(o.in(3), c) * body.load(factor, c);
  });
  o.yield(o.graph.compute(x.dtype, x.shape, [&](Body& body, const Indices& i) {
    return body.load(x, i) * body.load(factor, {i[1]}) + body.load(addend, {i[1]});
  }));
}

void local_response_norm(Operator& o) {
  const Tensor x = o.in(0);
  require(is_real(x.dtype));
  const int64_t size = o.node.get_int("size", 1);
  // Channels beyond the ends are zero and add nothing to a sum of squares.
  std::vector<int64_t> low(x.rank(), 0);
  low[1] = (size - 1) / 2;
  Shape shape = x.shape;
  shape[1] += size - 1;
  const Tensor padded = o.graph.pad(x, low, shape, zero(x.dtype));
  const Tensor sums = o.graph.reduce(x.dtype, x.shape, {size}, zero(x.dtype),
                                     [&](Body& body, const Indices& i, const Indices& k, Scalar s) {
                                       Indices at = i;
                                       at[1] = i[1] + k[0];
                                       const Scalar v = body.load(padded, at);
                                       return s + v * v;
                                     });
  o.yield(o.graph.compute(x.dtype, x.shape, [&](Body& body, const Indices& i) {
    const Scalar s = body.load(sums, i);
    const Scalar factor = s.same(o.node.get_float("alpha", 1e-4f)) / s.same(static_cast<double>(size));
    return body.load(x, i) /
           power(s.same(o.node.get_float("bias", 1.0f)) + factor * s, s.same(o.node.get_float("beta", 0.75f)));
  }));
}

// --- pooling
// -------------------------------------------------------------------------------------------------------------------

ops::Window pooling_window(const Operator& o) {
  return ops::pooling_window(o.node, ops::spatial_extents(o.node, o.in(0).shape));
}

Tensor pooled(Operator& o, const ops::Window& window, const Start& start, const Start& padding,
              const std::function<Scalar(Scalar, Scalar)>& f) {
  const Tensor x = padded_for(o.graph, o.in(0), window, padding);
  return o.graph.reduce(x.dtype, o.shape(), window.kernel, start,
                        [&](Body& body, const Indices& i, const Indices& k, Scalar s) {
                          Indices at = {i[0], i[1]};
                          const Indices inside = window_indices(window, llvm::ArrayRef(i).drop_front(2), k);
                          at.insert(at.end(), inside.begin(), inside.end());
                          return f(s, body.load(x, at));
                        });
}

void max_pool(Operator& o) {
  require(o.op->getNumResults() == 1);
  const DType dtype = o.in(0).dtype;
  require(is_real(dtype) || dtype == DType::kInt8 || dtype == DType::kUint8);
  const Start lowest = [dtype](Body& body) {
    return body.number(dtype, is_real(dtype) ? -INFINITY : dtype == DType::kInt8 ? -128 : 0);
  };
  // The first of equal elements wins; a NaN wins over numbers.
  o.yield(pooled(o, pooling_window(o), lowest, lowest, [&](Scalar best, Scalar v) {
    return select(is_real(dtype) ? (best >= v) | (best != best) : best >= v, best, v);
  }));
}

void average_pool(Operator& o) {
  const DType dtype = o.in(0).dtype;
  require(is_real(dtype));
  const ops::Window window = pooling_window(o);
  const Tensor sums = pooled(o, window, zero(dtype), zero(dtype), [](Scalar s, Scalar v) { return s + v; });
  const bool padding = o.node.get_int("count_include_pad", 0) != 0;
  const std::vector<Tensor> counts = tap_counts(o.graph, window, padding);
  o.yield(o.graph.compute(dtype, sums.shape, [&](Body& body, const Indices& i) {
    const Scalar s = body.load(sums, i), count = tap_count(body, counts, llvm::ArrayRef(i).drop_front(2));
    return select(count == count.same(0), s.same(0), s / cast(count, dtype));
  }));
}

void global_pool(Operator& o, bool average) {
  const Tensor given = o.in(0);
  require(is_real(given.dtype));
  const Tensor x =
      o.graph.reshape(given, {given.shape[0], given.shape[1], given.size() / (given.shape[0] * given.shape[1])});
  const Start start = [&](Body& body) { return body.number(x.dtype, average ? 0 : -INFINITY); };
  const Tensor sums = o.graph.reduce(x.dtype, {x.shape[0], x.shape[1]}, {x.shape[2]}, start,
                                     [&](Body& body, const Indices& i, const Indices& k, Scalar s) {
                                       const Scalar v = body.load(x, {i[0], i[1], k[0]});
                                       return average ? s + v : nan_max(s, v);
                                     });
  finish(o, sums, [&](Scalar s) { return average ? s / s.same(static_cast<double>(x.shape[2])) : s; });
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
  t.add("Softmax", [](Operator& o) { softmax(o, false); });
  t.add("LogSoftmax", [](Operator& o) { softmax(o, true); });
  t.add("LayerNormalization", [](Operator& o) { layer_norm(o, true); });
  t.add("SimplifiedLayerNormalization", [](Operator& o) { layer_norm(o, false); });
  t.add("SkipLayerNormalization", [](Operator& o) { skip_layer_norm(o, true); }, nn::kMicrosoftDomain.str());
  t.add("SkipSimplifiedLayerNormalization", [](Operator& o) { skip_layer_norm(o, false); }, nn::kMicrosoftDomain.str());
  t.add("RMSNormalization", [](Operator& o) { layer_norm(o, false); });
  t.add("InstanceNormalization", [](Operator& o) { group_norm(o, o.in(0).shape[1]); });
  t.add("GroupNormalization", [](Operator& o) { group_norm(o, o.node.get_int("num_groups", 1)); });
  t.add("BatchNormalization", batch_norm);
  t.add("LRN", local_response_norm);
  t.add("MaxPool", max_pool);
  t.add("AveragePool", average_pool);
  t.add("GlobalAveragePool", [](Operator& o) { global_pool(o, true); });
  t.add("GlobalMaxPool", [](Operator& o) { global_pool(o, false); });
}

}  // namespace tessera::cpu
