// SPDX-License-Identifier: Apache-2.0
// Matrix products and convolutions on floats: sums over ascending k, or ascending (channel, kernel position), from
// zero, each product and each sum rounded once; then the bias. See ops/kernels/product.cc, convolution.cc and
// family_fused.cc.
#include <algorithm>
#include <cmath>

#include "compiler/cpu/expressions/products.h"
#include "compiler/cpu/expressions/reduction.h"
#include "ops/contrib/fused_activation.h"

namespace tessera::cpu {

Matrices::Matrices(Graph& graph, const Tensor& left, const Tensor& right) {
  Shape a_shape = left.shape, b_shape = right.shape;
  require(!a_shape.empty() && !b_shape.empty());
  const bool a_vector = a_shape.size() == 1, b_vector = b_shape.size() == 1;
  if (a_vector) a_shape.insert(a_shape.begin(), 1);
  if (b_vector) b_shape.push_back(1);
  m = a_shape[a_shape.size() - 2];
  k = a_shape.back();
  n = b_shape.back();
  a = graph.reshape(left, a_shape);
  b = graph.reshape(right, b_shape);
  batch = std::max(a_shape.size(), b_shape.size()) - 2;
  for (size_t d = 0; d < batch; ++d) {
    const auto dim = [&](const Shape& s) {
      return d + s.size() < batch + 2 ? int64_t{1} : s[d + s.size() - batch - 2];
    };
    full.push_back(dim(a_shape) == 1 ? dim(b_shape) : dim(a_shape));
  }
  full.push_back(m);
  full.push_back(n);
}

Indices Matrices::left(const Indices& i, Index k) const { return element(a, i, i[batch], k); }
Indices Matrices::right(const Indices& i, Index k) const { return element(b, i, k, i[batch + 1]); }

Indices Matrices::element(const Tensor& t, const Indices& i, Index row, Index column) const {
  Indices at;
  const size_t own = t.rank() - 2;
  for (size_t d = 0; d < own; ++d) at.push_back(t.shape[d] == 1 ? row * 0 : i[batch - own + d]);
  at.push_back(row);
  at.push_back(column);
  return at;
}

namespace {

bool is_product_type(DType dtype) {
  return dtype == DType::kFloat || dtype == DType::kDouble || dtype == DType::kInt32 || dtype == DType::kUint32 ||
         dtype == DType::kInt64 || dtype == DType::kUint64;
}

/// sum + a * b: rounded once for floats (ops/kernels/gemm_kernel.h), wrapping for integers.
Scalar accumulate(Scalar sum, Scalar a, Scalar b) {
  return ops::is_floating(sum.dtype()) ? fma(a, b, sum) : sum + a * b;
}

Tensor multiply(const Operator& o, const Matrices& p) {
  const DType dtype = p.a.dtype;
  require(is_product_type(dtype) && p.b.dtype == dtype);
  return o.graph.reduce(dtype, p.full, {p.k}, zero(dtype),
                        [&](Body& body, const Indices& i, const Indices& k, Scalar sum) {
                          return accumulate(sum, body.load(p.a, p.left(i, k[0])), body.load(p.b, p.right(i, k[0])));
                        });
}

void matmul(Operator& o) { o.yield(o.graph.reshape(multiply(o, Matrices(o.graph, o.in(0), o.in(1))), o.shape())); }

using Finish = std::function<Scalar(Scalar)>;

Finish activation(const ops::Node& node, const std::vector<float>& parameters) {
  Finish finish;
  ops::scalar::with_activation(node, parameters, [&](auto expression) { finish = expression; });
  return finish;
}

void gemm(Operator& o, const Finish& last) {
  const Tensor a = o.in(0);
  const DType dtype = a.dtype;
  require(is_product_type(dtype));
  const bool trans_a = o.node.get_int("transA", 0) != 0;
  bool trans_b = o.node.get_int("transB", 0) != 0;
  const float alpha = o.node.get_float("alpha", 1.0f), beta = o.node.get_float("beta", 1.0f);
  require(ops::is_floating(dtype) || (alpha == 1.0f && beta == 1.0f));
  const Shape shape = o.shape();
  const int64_t k = a.shape[trans_a ? 0 : 1];
  Tensor b = o.in(1);
  if (trans_b && shape[0] >= 4) {  // columns are read as vectors: worth a copy when several rows use them
    b = o.graph.transpose(b, {1, 0});
    trans_b = false;
  }
  const Tensor sums =
      o.graph.reduce(dtype, shape, {k}, zero(dtype), [&](Body& body, const Indices& i, const Indices& at, Scalar sum) {
        return accumulate(sum, body.load(a, trans_a ? Indices{at[0], i[0]} : Indices{i[0], at[0]}),
                          body.load(b, trans_b ? Indices{i[1], at[0]} : Indices{at[0], i[1]}));
      });
  o.yield(o.graph.compute(dtype, shape, [&](Body& body, const Indices& i) {
    Scalar v = body.load(sums, i);
    if (alpha != 1.0f) v = v * v.same(alpha);
    if (o.has(2) && beta != 0.0f) v = v + v.same(beta) * body.broadcast(o.in(2), i);
    return last(v);
  }));
}

void conv(Operator& o, const Finish& last) {
  const DType dtype = o.in(0).dtype;
  require((dtype == DType::kFloat || dtype == DType::kDouble) && o.in(1).dtype == dtype);
  const Convolution c(o.graph, o.node, o.in(0), o.in(1), zero(dtype));
  const Tensor sums = o.graph.reduce(
      dtype, c.result, c.extents, zero(dtype), [&](Body& body, const Indices& i, const Indices& k, Scalar sum) {
        return accumulate(sum, body.load(c.x, c.input(i, k)), body.load(c.w, c.weight(i, k)));
      });
  const Tensor y = c.values(o.graph, sums);
  o.yield(o.graph.compute(dtype, o.shape(), [&](Body& body, const Indices& i) {
    Scalar v = body.load(y, i);
    if (o.has(2)) v = v + body.load(o.in(2), {i[1]});
    if (o.has(3)) v = v + body.load(o.in(3), i);
    return last(v);
  }));
}

/// Whether vectors of `lanes` elements that run on from a padded row to the next are so many fewer than vectors of rows
/// that this is worth moving the result once more. `terms`: of each sum.
bool rows_are_short(const ops::Window& window, const Tensor& padded, int64_t lanes, int64_t terms) {
  constexpr int64_t kMove = 8;  // of a vector, in terms
  if (window.rank() != 2 || window.strides[0] != 1 || window.strides[1] != 1) return false;
  const int64_t rows = window.output[0], columns = window.output[1], pitch = padded.shape[3];
  const auto vectors = [&](int64_t elements) { return (elements + lanes - 1) / lanes; };
  const int64_t run = vectors((rows - 1) * pitch + columns), saved = rows * vectors(columns) - run;
  return pitch > columns && saved * 33 > run && saved * terms > run * kMove;
}

}  // namespace

Convolution::Convolution(Graph& graph, const ops::Node& node, const Tensor& x_given, const Tensor& w_given,
                         const Start& padding) {
  groups = node.get_int("group", 1);
  const Shape kernel(w_given.shape.begin() + 2, w_given.shape.end());
  window = ops::sliding_window(node, ops::spatial_extents(node, x_given.shape), kernel);
  const Tensor padded = padded_for(graph, x_given, window, padding);
  const int64_t depth = w_given.shape[1], filters = w_given.shape[0] / groups;
  Shape x_shape = {padded.shape[0], groups, depth}, w_shape = {groups, filters, depth};
  Shape spatial = window.output;
  if (rows_are_short(window, padded, graph.lanes(ops::element_bytes(padded.dtype)),
                     depth * ops::element_count(kernel))) {
    pitch = padded.shape[3];
    x_shape.push_back(padded.shape[2] * pitch);
    spatial = {(window.output[0] - 1) * pitch + window.output[1]};
  } else {
    x_shape.insert(x_shape.end(), padded.shape.begin() + 2, padded.shape.end());
  }
  w_shape.insert(w_shape.end(), kernel.begin(), kernel.end());
  x = graph.reshape(padded, x_shape);
  w = graph.reshape(w_given, w_shape);
  result = {padded.shape[0], groups, filters};
  result.insert(result.end(), spatial.begin(), spatial.end());
  extents = {depth};
  extents.insert(extents.end(), kernel.begin(), kernel.end());
}

Indices Convolution::input(const Indices& i, const Indices& k) const {
  Indices at = {i[0], i[1], k[0]};
  if (pitch > 0) {
    at.push_back(i[3] + k[1] * (window.dilations[0] * pitch) + k[2] * window.dilations[1]);
    return at;
  }
  const Indices inside = window_indices(window, llvm::ArrayRef(i).drop_front(3), llvm::ArrayRef(k).drop_front(1));
  at.insert(at.end(), inside.begin(), inside.end());
  return at;
}

Indices Convolution::weight(const Indices& i, const Indices& k) const {
  Indices at = {i[1], i[2]};
  at.insert(at.end(), k.begin(), k.end());
  return at;
}

Tensor Convolution::values(Graph& graph, const Tensor& sums) const {
  Shape shape = {result[0], result[1] * result[2]};
  shape.insert(shape.end(), window.output.begin(), window.output.end());
  if (pitch == 0) return graph.reshape(sums, shape);
  const Tensor flat = graph.reshape(sums, {shape[0], shape[1], result[3]});
  return graph.compute(sums.dtype, shape, [&](Body& body, const Indices& i) {
    return body.load(flat, {i[0], i[1], i[2] * pitch + i[3]});
  });
}

void add_product(Lowerings& t) {
  const std::string microsoft = nn::kMicrosoftDomain.str();
  const Finish nothing = [](Scalar v) { return v; };
  t.add("MatMul", matmul);
  t.add("Gemm", [=](Operator& o) { gemm(o, nothing); });
  t.add(
      "FusedGemm", [](Operator& o) { gemm(o, activation(o.node, ops::scalar::gemm_activation_parameters(o.node))); },
      microsoft);
  t.add("Conv", [=](Operator& o) { conv(o, nothing); });
  t.add(
      "FusedConv", [](Operator& o) { conv(o, activation(o.node, o.node.get_floats("activation_params"))); }, microsoft);
}

}  // namespace tessera::cpu
