// SPDX-License-Identifier: Apache-2.0
// Convolution as the operators Conv, ConvInteger, FusedConv and DeformConv share it: checks and result types, and the
// evaluation as patches times weights.
#pragma once

#include "ops/kernels/window.h"
#include "ops/operator.h"

namespace tessera::ops {

/// Checks groups, ranks and kernel_shape of a convolution of x by weights w, or of its transpose; w's first dimension
/// divides into groups. The kernel's extents (-1: unknown), or nothing where not even the rank is known. Throws Error
/// kInvalidModel through node.fail(), like what follows.
std::optional<Shape> infer_kernel(const Node& node, const TypeInfo& x, const TypeInfo& w);
/// Fails unless the bias at input `bias` is absent or has an element for each of `filters` (-1: unknown).
void check_bias(const InferContext& c, size_t bias, int64_t filters);

/// Infers [N, M, ...] from x [N, C, ...] and w [M, C/group, ...]; checks ranks, groups, channels, kernel_shape and the
/// bias [M] at input `bias` (when present). Throws Error kInvalidModel through node.fail().
TypeInfo infer_convolution(const InferContext& c, DType result, size_t bias);

/// y [N, M, ...] of x [N, C, ...] and w [M, C/group, ...], bias [M] or nullptr, all of one element type: float32,
/// float64, or int32 (whose sums wrap). Sums run over ascending (channel, kernel position), then the bias is added.
/// Padding contributes 0 * w.
Tensor convolve(const Node& node, const Tensor& x, const Tensor& w, const Tensor* bias);

}  // namespace tessera::ops
