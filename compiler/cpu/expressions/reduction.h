// SPDX-License-Identifier: Apache-2.0
// What reductions, normalisations and pooling share: the loops over what is kept and what is reduced, and the first and
// the last step of a sum.
#pragma once

#include "compiler/cpu/expressions/lowering.h"

namespace tessera::cpu {

inline Start zero(DType dtype) {
  return [dtype](Body& body) { return body.number(dtype, 0); };
}

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
  Indices merge(const Indices& i, const Indices& k) const {
    Indices at(kept.size() + reduced.size());
    for (size_t d = 0; d < kept.size(); ++d) at[kept[d]] = i[d];
    for (size_t d = 0; d < k.size(); ++d) at[reduced[d]] = k[d];
    return at;
  }
};

inline Tensor fold(Operator& o, const Tensor& x, const Axes& axes, DType dtype, const Start& start,
                   const std::function<Scalar(Scalar sum, Scalar x)>& f) {
  return o.graph.reduce(dtype, axes.kept_shape, axes.extents, start,
                        [&](Body& body, const Indices& i, const Indices& k, Scalar sum) {
                          return f(sum, body.load(x, axes.merge(i, k)));
                        });
}

/// Tensors seen as [outer, length, inner], for what folds along an axis; with `flatten` that and all behind it.
struct Lines {
  Shape shape = {1, 1, 1};
  Lines(const Shape& given, size_t axis, bool flatten) {
    for (size_t d = 0; d < given.size(); ++d) shape[d < axis ? 0 : d == axis || flatten ? 1 : 2] *= given[d];
  }
  /// [outer, inner]: `x` of these lines folded along each, f(body, element, indices of the line, sum).
  Tensor fold(Graph& graph, const Tensor& x, DType dtype, const Start& start,
              const std::function<Scalar(Body&, Scalar x, const Indices& line, Scalar sum)>& f) const {
    return graph.reduce(dtype, {shape[0], shape[2]}, {shape[1]}, start,
                        [&](Body& body, const Indices& i, const Indices& k, Scalar sum) {
                          return f(body, body.load(x, {i[0], k[0], i[1]}), i, sum);
                        });
  }
};

/// Folds each window of input 0, padded with `padding`: f(body, sum, element).
Tensor pooled(Operator& o, const ops::Window& window, DType dtype, const Start& start, const Start& padding,
              const std::function<Scalar(Body&, Scalar sum, Scalar x)>& f);

/// Yields f of every element of `sums` in the result's type and shape.
inline void finish(Operator& o, const Tensor& sums, const std::function<Scalar(Scalar)>& f) {
  const Tensor y =
      o.graph.compute(o.dtype(), sums.shape, [&](Body& body, const Indices& i) { return f(body.load(sums, i)); });
  o.yield(o.graph.reshape(y, o.shape()));
}

}  // namespace tessera::cpu
