// SPDX-License-Identifier: Apache-2.0
// What the finished programs of a chip's cores will cost together, with what each core waits for the others. Streams
// with waits, signals and the FENCEs that publish and await enter; cycles by core leave. Each core is replayed as
// predict.h says, and the replays advance in the order of time.
#pragma once

#include <span>
#include <vector>

#include "compiler/emit/predict.h"

namespace tessera::emit {

/// A core's stream, whose FENCEs publish and await.
struct CoreStream {
  std::span<const isa::Instruction> instructions;
  std::span<const uint32_t> tags;
  std::span<const Work* const> works;
};

/// The streams of a chip's cores, by core, with what each waits for the others. `dram`: a core's share of the memory;
/// `shared_bandwidth`: bytes a cycle of all. `rests`: if given, by core and transfer of LOAD the cycles in front of it
/// in which LOAD moves no data.
std::vector<Prediction> predict(std::span<const CoreStream> cores, size_t layers, const isa::MachineConfig& config,
                                const Dram& dram, int64_t shared_bandwidth,
                                std::vector<std::vector<int64_t>>* rests = nullptr);

}  // namespace tessera::emit
