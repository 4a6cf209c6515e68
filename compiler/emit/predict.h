// SPDX-License-Identifier: Apache-2.0
// What a finished program will cost: the stream of instructions is replayed against the closed forms of isa/timing.md,
// one instruction at a time, with the bus and the contended ports as ledgers of uses. Instructions with waits and
// signals enter; cycles leave. It is coarser than the timing model in sim/ (no single bursts) and handles some thousand
// instructions a millisecond, so that the compiler can say what it expects before anything runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/emit/synchronise.h"
#include "compiler/emit/work.h"
#include "isa/config.h"
#include "isa/dram.h"
#include "isa/generated/instructions.h"

namespace tessera::emit {

struct Prediction {
  int64_t cycles = 0;
  std::vector<int64_t> layer_cycles;  // by tag; they sum to `cycles`
};

/// The memory behind the machine's port.
struct Dram {
  int64_t latency_cycles = 100;  // from a request to its first data
  int64_t bandwidth_bytes = 0;   // a cycle, reads and writes together; 0: the width of the bus
  isa::DramCost cost = {};       // of a real DRAM
};

/// `tags`: the layer of each instruction, below `layers`; others count to nobody. No layers: `cycles` alone are found.
Prediction predict(std::span<const isa::Instruction> instructions, std::span<const uint32_t> tags, size_t layers,
                   const isa::MachineConfig& config, const Dram& dram = {});
/// The same for instructions whose work is known.
Prediction predict(std::span<const isa::Instruction> instructions, std::span<const uint32_t> tags,
                   std::span<const Work* const> works, size_t layers, const isa::MachineConfig& config,
                   const Dram& dram = {});
/// The same without instructions.
Prediction predict(std::span<const isa::Header> headers, std::span<const uint32_t> tags,
                   std::span<const Work* const> works, size_t layers, const isa::MachineConfig& config,
                   const Dram& dram = {});
Prediction predict(const Ordered& stream, size_t layers, const isa::MachineConfig& config, const Dram& dram = {});

}  // namespace tessera::emit
