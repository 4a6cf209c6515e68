// SPDX-License-Identifier: Apache-2.0
// Index arithmetic of matrix products and convolutions, which float and quantised operators share.
#pragma once

#include "compiler/cpu/expressions/lowering.h"

namespace tessera::cpu {

/// Operands of a batched product as a [batch..., m, k] and b [batch..., k, n]; 1-D operands get a unit axis, batches
/// broadcast.
struct Matrices {
  Tensor a, b;
  Shape full;        // [batch..., m, n]
  size_t batch = 0;  // number of batch axes of the result
  int64_t m = 1, k = 1, n = 1;

  Matrices(Graph& graph, const Tensor& left, const Tensor& right);
  /// Indices in a and b at result index i and summed index k.
  Indices left(const Indices& i, Index k) const;
  Indices right(const Indices& i, Index k) const;

 private:
  Indices element(const Tensor& t, const Indices& i, Index row, Index column) const;
};

/// A convolution as a sum over extents [depth, kernel...] for result [batch, group, filter, spatial...] of
/// x [batch, group, depth, padded spatial...] times w [group, filter, depth, kernel...].
///
/// Where rows are short beside a vector and windows move by 1, the two spatial axes of x and of the result are one
/// axis in the pitch of the padded rows (`pitch` > 0): position h * pitch + w. Sums between the rows mean nothing, and
/// values() leaves them out.
struct Convolution {
  ops::Window window;
  int64_t groups = 1, pitch = 0;
  Tensor x, w;
  Shape result, extents;

  Convolution(Graph& graph, const ops::Node& node, const Tensor& x, const Tensor& w, const Start& padding);
  Indices input(const Indices& i, const Indices& k) const;
  Indices weight(const Indices& i, const Indices& k) const;
  /// The sums [result...] as [batch, channels, spatial...].
  Tensor values(Graph& graph, const Tensor& sums) const;
};

}  // namespace tessera::cpu
