// SPDX-License-Identifier: Apache-2.0
// Convolution as the operators Conv, ConvInteger, FusedConv and DeformConv share it: checks and result types, and the
// evaluation as patches times weights.
#pragma once

#include "ops/kernels/window.h"
#include "ops/operator.h"

namespace tessera::ops {

/// Infers [N, M, ...] from x [N, C, ...] and w [M, C/group, ...]; checks ranks, groups, channels, kernel_shape and the
/// bias [M] at input `bias` (when present). Throws Error kInvalidModel through node.fail().
TypeInfo infer_convolution(const InferContext& c, DType result, size_t bias);

/// y [N, M, ...] of x [N, C, ...] and w [M, C/group, ...], bias [M] or nullptr, all of one element type: float32,
/// float64, or int32 (whose sums wrap). Sums run over ascending (channel, kernel position), then the bias is added.
/// Padding contributes 0 * w.
Tensor convolve(const Node& node, const Tensor& x, const Tensor& w, const Tensor* bias);

}  // namespace tessera::ops
