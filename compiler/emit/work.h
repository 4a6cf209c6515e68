// SPDX-License-Identifier: Apache-2.0
// What prefetch, synchronisation and replay ask of an instruction, found once. An instruction and the machine enter;
// the bytes that it touches and its closed forms leave.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compiler/emit/duration.h"
#include "isa/effects.h"
#include "isa/fixed_vector.h"

namespace tessera::emit {

/// Bytes [begin, end) of a memory of isa::Operand::memory().
struct Touch {
  int64_t begin = 0, end = 0;
  int16_t memory = 0;
  bool write = false;
};

struct Work {
  isa::FixedVector<Touch, isa::kMostOperands> touches;  // none: it only waits and signals
  Duration duration;
  std::optional<isa::Engine> engine;  // nothing: FETCH executes it
  int64_t dram_bytes = 0;             // its own word does not count
  int64_t latency_cycles = 0;         // from the last step to the completion
  bool reads_inp = false, reads_acc = false, writes_inp = false;
};

Work work_of(const isa::Instruction& instruction, const isa::MachineConfig& config);
std::vector<Work> works_of(std::span<const isa::Instruction> instructions, const isa::MachineConfig& config);

}  // namespace tessera::emit
