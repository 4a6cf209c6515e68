// SPDX-License-Identifier: Apache-2.0
// The passes of the graph, each in a file of its own; passes.cc registers them in the order of the default pipeline.
#pragma once

#include "compiler/graph/pass.h"

namespace tessera::graph {

/// assign-layouts: each value gets strides into a tensor; operators that only move elements become strides or copies.
/// Errors: kUnsupported when an operation cannot be arranged; the partitioner asks before.
npu::Graph assign_layouts(const ValueGraph& values, const PassContext& context);

/// transpose-factors: a factor of a product that stands as [k, columns] is transposed first, where that costs less
/// than fetching it byte by byte.
void transpose_factors(npu::Graph& graph, const PassContext& context);

/// fold-layout: producers and readers take over what copies and selections of channels would do.
void fold_layout(npu::Graph& graph, const PassContext& context);

/// fuse-stages: element-wise operations join the operation that produces their input.
void fuse_stages(npu::Graph& graph, const PassContext& context);

/// fold-borders: the input of a first layer with few channels carries a border instead of pads, where folding its
/// window into the channels pays.
void fold_borders(npu::Graph& graph, const PassContext& context);

/// order-factors: what stands between a product and what makes its input, as the making of its factor, goes first where
/// it may, so that the input need not leave the chip.
void order_factors(npu::Graph& graph, const PassContext& context);

/// mark-chains: says of each operation whether its result may stay on chip for the next one.
void mark_chains(npu::Graph& graph, const PassContext& context);

/// place-chains: says of each tensor whether it lives in DRAM or stays on chip between an operation and the next.
/// Errors: kInvalidArgument for a scope that cannot be, kDoesNotFit; both name the node.
void place_chains(npu::Graph& graph, const PassContext& context);

}  // namespace tessera::graph
