// SPDX-License-Identifier: Apache-2.0
// Windows and pooling, with the formulas and the order of summation of ops/onnx/family_pool.cc.
#include <limits>
#include <optional>

#include "compiler/cpu/expressions/reduction.h"

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

Tensor pooled(Operator& o, const ops::Window& window, DType dtype, const Start& start, const Start& padding,
              const std::function<Scalar(Body&, Scalar, Scalar)>& f) {
  const Tensor x = padded_for(o.graph, o.in(0), window, padding);
  return o.graph.reduce(dtype, o.shape(), window.kernel, start,
                        [&](Body& body, const Indices& i, const Indices& k, Scalar s) {
                          Indices at = {i[0], i[1]};
                          const Indices inside = window_indices(window, llvm::ArrayRef(i).drop_front(2), k);
                          at.insert(at.end(), inside.begin(), inside.end());
                          return f(body, s, body.load(x, at));
                        });
}

namespace {

ops::Window pooling_window(const Operator& o) {
  return ops::pooling_window(o.node, ops::spatial_extents(o.node, o.in(0).shape));
}

void max_pool(Operator& o) {
  require(o.op->getNumResults() == 1);
  const DType dtype = o.in(0).dtype;
  require(is_real(dtype) || dtype == DType::kInt8 || dtype == DType::kUint8);
  const Start lowest = [dtype](Body& body) { return cpu::lowest(Scalar(&body, {}, dtype)); };
  // The first of equal elements wins; a NaN wins over numbers.
  o.yield(pooled(o, pooling_window(o), dtype, lowest, lowest, [&](Body&, Scalar best, Scalar v) {
    return select(is_real(dtype) ? (best >= v) | (best != best) : best >= v, best, v);
  }));
}

/// The sum of each row of x [rows, n], in lanes as ops::sum_lanes() adds them.
Tensor sum_lanes(Graph& graph, const Tensor& x) {
  constexpr int64_t kLanes = 4;
  const int64_t rows = x.shape[0], count = x.shape[1], chunks = count / kLanes;
  const auto constant = [](const Body& body, int64_t v) { return mlir::getAffineConstantExpr(v, body.context()); };
  std::optional<Tensor> lanes;
  if (chunks > 0) {
    const Tensor whole = count % kLanes == 0 ? x : graph.slice(x, {0, 0}, {1, 1}, {rows, chunks * kLanes});
    const Tensor parts = graph.reshape(whole, {rows, chunks, kLanes});
    lanes = graph.reduce(x.dtype, {rows, kLanes}, {chunks}, zero(x.dtype),
                         [&](Body& body, const Indices& i, const Indices& k, Scalar s) {
                           return s + body.load(parts, {i[0], k[0], i[1]});
                         });
  }
  return graph.compute(x.dtype, {rows}, [&](Body& body, const Indices& i) {
    const auto lane = [&](int64_t n) { return body.load(*lanes, {i[0], constant(body, n)}); };
    Scalar sum = lanes ? (lane(0) + lane(2)) + (lane(1) + lane(3)) : body.number(x.dtype, 0);
    for (int64_t n = chunks * kLanes; n < count; ++n) sum = sum + body.load(x, {i[0], constant(body, n)});
    return sum;
  });
}

/// The planes of x [N,C,..] as rows.
Tensor planes_of(Graph& graph, const Tensor& x) {
  const int64_t planes = x.shape[0] * x.shape[1];
  return graph.reshape(x, {planes, x.size() / planes});
}

/// Sums of windows along all axes but the last, for each place of that axis, then along the last.
Tensor sum_columns(Operator& o, const ops::Window& window, DType dtype) {
  const Tensor x = padded_for(o.graph, o.in(0), window, zero(dtype));
  const size_t last = window.rank() - 1;
  Shape shape = o.shape();
  shape.back() = x.shape.back();
  const Tensor columns = o.graph.reduce(dtype, shape, Shape(window.kernel.begin(), window.kernel.end() - 1),
                                        zero(dtype), [&](Body& body, const Indices& i, const Indices& k, Scalar s) {
                                          Indices at = {i[0], i[1]};
                                          for (size_t d = 0; d < last; ++d)
                                            at.push_back(i[d + 2] * window.strides[d] + k[d] * window.dilations[d]);
                                          at.push_back(i.back());
                                          return s + body.load(x, at);
                                        });
  return o.graph.reduce(dtype, o.shape(), {window.kernel.back()}, zero(dtype),
                        [&](Body& body, const Indices& i, const Indices& k, Scalar s) {
                          Indices at(i.begin(), i.end() - 1);
                          at.push_back(i.back() * window.strides[last] + k[0] * window.dilations[last]);
                          return s + body.load(columns, at);
                        });
}

/// In the order in which the library adds (ops/kernels/window.h).
Tensor window_sums(Operator& o, const ops::Window& window, DType dtype) {
  const ops::SumOrder order = dtype == DType::kFloat ? ops::order_of_average(o.node, window) : ops::SumOrder::kRows;
  if (order == ops::SumOrder::kColumns) return sum_columns(o, window, dtype);
  if (order == ops::SumOrder::kLanes)
    return o.graph.reshape(sum_lanes(o.graph, planes_of(o.graph, o.in(0))), o.shape());
  return pooled(o, window, dtype, zero(dtype), zero(dtype), [](Body&, Scalar s, Scalar v) { return s + v; });
}

void average_pool(Operator& o) {
  const DType dtype = o.in(0).dtype;
  require(is_real(dtype));
  const ops::Window window = pooling_window(o);
  const Tensor sums = window_sums(o, window, dtype);
  const bool padding = o.node.get_int("count_include_pad", 0) != 0;
  const std::vector<Tensor> counts = tap_counts(o.graph, window, padding);
  o.yield(o.graph.compute(dtype, sums.shape, [&](Body& body, const Indices& i) {
    const Scalar s = body.load(sums, i), count = tap_count(body, counts, llvm::ArrayRef(i).drop_front(2));
    return select(count == count.same(0), s.same(0), s / cast(count, dtype));
  }));
}

void global_pool(Operator& o, bool average) {
  require(is_real(o.in(0).dtype));
  const Tensor x = planes_of(o.graph, o.in(0));
  const Start lowest = [&](Body& body) { return body.number(x.dtype, -INFINITY); };
  const Tensor folded = average ? sum_lanes(o.graph, x)
                                : o.graph.reduce(x.dtype, {x.shape[0]}, {x.shape[1]}, lowest,
                                                 [&](Body& body, const Indices& i, const Indices& k, Scalar s) {
                                                   return nan_max(s, body.load(x, {i[0], k[0]}));
                                                 });
  finish(o, folded, [&](Scalar s) { return average ? s / s.same(static_cast<double>(x.shape[1])) : s; });
}

}  // namespace

void add_pool(Lowerings& t) {
  t.add("MaxPool", max_pool);
  t.add("AveragePool", average_pool);
  t.add("GlobalAveragePool", [](Operator& o) { global_pool(o, true); });
  t.add("GlobalMaxPool", [](Operator& o) { global_pool(o, false); });
}

}  // namespace tessera::cpu
