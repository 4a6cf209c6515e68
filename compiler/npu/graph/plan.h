// SPDX-License-Identifier: Apache-2.0
// Static placement of tensors in device DRAM. A checked graph enters; a Placement for each tensor and the arena's size
// leave. A tensor lives from the operation that first writes it to the one that last reads it; tensors whose lives do
// not overlap may share bytes. Graph inputs and outputs have places of their own. Views and reshapes lie inside their
// parent.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/npu/graph/graph.h"

namespace tessera::npu {

struct MemoryPlan {
  std::vector<Placement> placements;
  uint64_t arena_bytes = 0;
  uint64_t unshared_bytes = 0;
  std::vector<int64_t> slides;  // by base register, from kFirstSlideBase on
};

/// Greedy by size: each allocation, largest first, takes the lowest offset free during its whole life.
/// Tensors in `on_chip` (by id; empty: none) get no place. An operation happens at the time `when` says (empty: its
/// index).
MemoryPlan plan_memory(const Graph& graph, const Options& options, const std::vector<bool>& on_chip = {},
                       const std::vector<std::pair<int64_t, int64_t>>& when = {});
/// Places without reuse of memory: any neighbours can be replayed behind each other, however they are cut into chains.
std::vector<Placement> places_apart(const Graph& graph, Options options);
/// Where a tensor stands whose pixels follow each other, its border included, from a byte of the arena on.
Placement dense_placement(const Tensor& t, int64_t region_offset);

/// The tensor whose allocation holds `tensor`.
TensorId root_of(const Graph& graph, TensorId tensor);

/// Tensors an operation reads, the output last in `written`.
struct Uses {
  std::vector<TensorId> read;
  TensorId written = kNoTensor;
};
Uses uses_of(const Operation& operation);
/// The tensor that an operation writes.
TensorId written_by(const Operation& operation);

}  // namespace tessera::npu
