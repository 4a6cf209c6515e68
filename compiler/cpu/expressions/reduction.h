// SPDX-License-Identifier: Apache-2.0
// What reductions, normalisations and pooling share: the loops over what is kept and what is reduced, and the first and
// the last step of a sum.
#pragma once

#include "compiler/cpu/expressions/lowering.h"

namespace tessera::cpu {

inline bool is_real(DType dtype) { return dtype == DType::kFloat || dtype == DType::kDouble; }

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

/// Yields f of every element of `sums` in the result's type and shape.
inline void finish(Operator& o, const Tensor& sums, const std::function<Scalar(Scalar)>& f) {
  const Tensor y =
      o.graph.compute(o.dtype(), sums.shape, [&](Body& body, const Indices& i) { return f(body.load(sums, i)); });
  o.yield(o.graph.reshape(y, o.shape()));
}

}  // namespace tessera::cpu
