// SPDX-License-Identifier: Apache-2.0
// Softmax and normalisations, with the formulas and the order of summation of ops/kernels/normalization.h,
// ops/onnx/family_norm.cc and family_activation.cc: sums in row-major order from a zero.
#include <cmath>
#include <limits>

#include "compiler/cpu/expressions/reduction.h"
#include "ops/kernels/normalization.h"

namespace tessera::cpu {

namespace {

// --- softmax
// -------------------------------------------------------------------------------------------------------------------

void softmax(Operator& o, bool logarithm) {
  require(is_real(o.in(0).dtype));
  const Shape shape = o.in(0).shape;
  const bool flatten = o.node.version < 13;
  const auto axis = ops::axis_attribute(o.node, flatten ? 1 : -1, shape);
  const Lines lines(shape, axis, flatten);
  const Tensor x = o.graph.reshape(o.in(0), lines.shape);
  const DType dtype = x.dtype;
  const Tensor top = lines.fold(
      o.graph, x, dtype, [&](Body& body) { return body.number(dtype, -INFINITY); },
      [](Body&, Scalar v, const Indices&, Scalar best) { return select(v > best, v, best); });
  const Tensor exponentials = o.graph.compute(dtype, lines.shape, [&](Body& body, const Indices& i) {
    return exp(body.load(x, i) - body.load(top, {i[0], i[2]}));
  });
  const Tensor sum = lines.fold(o.graph, exponentials, dtype, zero(dtype),
                                [](Body&, Scalar v, const Indices&, Scalar s) { return s + v; });
  const Tensor y = o.graph.compute(dtype, lines.shape, [&](Body& body, const Indices& i) {
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
    if (p.size() == 1) return o.graph.reshape(p, {1, 1});
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

}  // namespace

void add_normalise(Lowerings& t) {
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
}

}  // namespace tessera::cpu
