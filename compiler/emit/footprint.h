// SPDX-License-Identifier: Apache-2.0
// What an instruction touches, for the synchronisation pass: one interval of bytes for each operand, from the lowest to
// the highest address its loops reach. Derived from isa/semantics.md alone; the simulator's race checker, which judges
// the result, does not use it.
#pragma once

#include <cstdint>
#include <vector>

#include "isa/config.h"
#include "isa/generated/instructions.h"

namespace tessera::emit {

/// Memories in one numbering: the scratchpads by isa::Space, then DRAM by base register.
inline constexpr int kMemories = isa::kSpaces + 16;
inline constexpr int dram_memory(int base) { return isa::kSpaces + base; }

struct Touch {
  int memory = 0;
  int64_t begin = 0, end = 0;  // bytes, end exclusive
  bool write = false;
};

/// Appends the operands of an instruction; none for FINISH and FENCE.
void append_touches(const isa::Instruction& instruction, const isa::MachineConfig& config, std::vector<Touch>& touches);

}  // namespace tessera::emit
