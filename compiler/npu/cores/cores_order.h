// SPDX-License-Identifier: Apache-2.0
// Who waits for whom between the cores of a chip. Enters: the graph of parts, where its tensors stand, and each core's
// instructions, right when run one at a time and without waits. Leaves: the same with FENCEs that publish and await.
// Which parts depend on each other is found exactly, by the bytes that they read and write; which instructions of two
// such parts do, by the bytes between the lowest and the highest that each touches.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/emit/synchronise.h"
#include "compiler/npu/cores/cores_split.h"
#include "compiler/npu/graph/plan.h"

namespace tessera::npu {

/// A core's instructions.
struct CoreCode {
  std::vector<isa::Instruction> instructions;
  std::vector<uint32_t> tags;    // by instruction: the operation of the graph of parts
  std::vector<uint32_t> layers;  // by instruction: the layer of the program
  emit::Works works;             // of the instructions
  emit::WorkPool pool;
  std::vector<emit::SynchroniseOptions::Order> orders;  // of the FENCEs that publish
};

/// By operation of the graph of parts: those of other cores that must be complete before it.
std::vector<std::vector<uint32_t>> waits_of_parts(const ChipGraph& chip, const std::vector<Placement>& placements,
                                                  const Options& options);

/// Adds the FENCEs. `waits`: what waits_of_parts has found; `slides`: bytes by which what a base register names may lie
/// lower when the program runs.
void order_cores(const ChipGraph& chip, const std::vector<std::vector<uint32_t>>& waits,
                 const std::vector<int64_t>& slides, const isa::MachineConfig& config, std::vector<CoreCode>& cores);

/// Whether all streams end when each core runs its instructions one at a time.
bool all_end(const std::vector<CoreCode>& cores);

}  // namespace tessera::npu
