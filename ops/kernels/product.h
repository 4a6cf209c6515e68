// SPDX-License-Identifier: Apache-2.0
// Matrix products as the operators MatMul, Gemm, their integer and fused forms and Einsum share them.
#pragma once

#include "ops/operator.h"

namespace tessera::ops {

/// Shapes of a batched product with the rules of numpy's matmul: a 1-D operand gets a unit dimension that the result
/// drops, batch dimensions broadcast. Unknown ranks give an unranked result. Throws Error kInvalidModel when the inner
/// extents differ.
TypeInfo infer_product(const Node& node, const TypeInfo& a, const TypeInfo& b, DType result);

/// The product of two tensors of one element type (float32, float64, 32- and 64-bit integers; integers wrap), sums over
/// ascending k.
Tensor matrix_product(const Node& node, const Tensor& a, const Tensor& b);

/// `x` with dimensions permuted: result dimension i is dimension order[i] of x.
Tensor permuted(const Tensor& x, const std::vector<int64_t>& order);

/// alpha * op(a) * op(b) + beta * c as Gemm means it: a, b rank 2, transposed by transA and transB; c (nullptr: none)
/// broadcast to the result. float32 and float64: the sum is rounded, then scaled, then added; integers: alpha and beta
/// must be whole.
Tensor general_product(const Node& node, const Tensor& a, const Tensor& b, const Tensor* c);
TypeInfo infer_general_product(const InferContext& c);

}  // namespace tessera::ops
