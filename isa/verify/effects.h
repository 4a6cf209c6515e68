// SPDX-License-Identifier: Apache-2.0
// What an instruction does, as far as its word tells: which ranges of which memories it reads and writes, how many
// accesses and bytes these are, and what it computes. Enters: an instruction and a configuration. Leaves: its Effects,
// found from the operands that isa.toml declares, so that a new instruction needs no code here. The compiler, the
// static rules, profiles and timing models share them. Three oracles describe the same things by themselves and must
// not include this file: the race checker's footprint (sim/functional/footprint.h), the plain-loop reference
// (sim/tests/reference.h) and the RTL's benches (tests/rtl_engines).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "isa/config.h"
#include "isa/fixed_vector.h"
#include "isa/generated/instructions.h"

namespace tessera::isa {

/// Base registers of DRAM addresses.
inline constexpr int kBases = 16;
/// Rows that are limited have so many elements as the lowest bits of this base register say.
inline constexpr int kRowLimitBase = kBases - 1;
inline constexpr uint64_t kRowLimitMask = 0xffff;

/// Memories in one numbering: the scratchpads by Space, then DRAM by base register.
inline constexpr int kMemories = kSpaces + kBases;

/// One operand that takes part. `lowest` and `highest` are inclusive and exact: every nest attains them. Signed sums,
/// so that `lowest` may be negative.
struct Operand {
  const char* name = "";   // as in the manual, e.g. "activations"
  const char* field = "";  // the address field, e.g. "inp_addr"
  bool dram = false;
  bool write = false;
  Space space = Space::kInp;  // of a scratchpad
  uint8_t base = 0;           // DRAM: the base register to which addresses are relative
  bool in_entries = false;    // unit of lowest, highest and limit: entries, else bytes
  int64_t lowest = 0;
  int64_t highest = 0;
  int64_t limit = 0;  // entries or bytes that the scratchpad has
  int64_t begin = 0;  // the same range in bytes, the end exclusive
  int64_t end = 0;
  int64_t accesses = 0;  // entries or runs, each as often as the loops name it; counts stop at kMostCount of count.h
  int64_t bytes = 0;     // of all accesses
  int memory() const { return dram ? kSpaces + base : static_cast<int>(space); }
  bool in_range() const { return dram || (0 <= lowest && highest < limit); }
};

/// At most as many as the instruction has that has most.
using Operands = FixedVector<Operand, kMostOperands>;

struct Effects {
  Operands operands;       // in the order of isa.toml
  int64_t iterations = 0;  // of all loops; 0: the instruction has none
  int64_t results = 0;     // iterations of the loops outside the reduction
  int64_t dram_read_bytes = 0;
  int64_t dram_write_bytes = 0;
  int64_t fill_bytes = 0;      // that a transfer writes to a scratchpad without having read them: padding and fills
  int64_t macs = 0;            // multiply-accumulates, padding of blocks included
  int64_t vectors = 0;         // source entries through the vector unit
  int64_t steps = 0;           // cycles in which GEMM or ALU works on it when nothing holds it up; transfers have none
  int64_t pauses = 0;          // cycles that the ALU leaves between steps at most
  int64_t latency_cycles = 0;  // from the last step to the completion

  /// The operand in DRAM, or null.
  const Operand* dram() const;
  /// Whether an operand reads or writes that scratchpad.
  bool reads(Space space) const;
  bool writes(Space space) const;
};

/// Needs check_operands() of isa/verify/verify.h to hold.
Effects effects(const Instruction& instruction, const MachineConfig& config);

/// The same without the operands in scratchpads.
Effects effects_beside_scratchpads(const Instruction& instruction, const MachineConfig& config);

/// What does not depend on a configuration: the loops, the steps and the operand in DRAM alone.
Effects effects(const Instruction& instruction);

/// The operand in DRAM alone; it does not depend on the configuration. Nothing when the instruction touches no DRAM.
std::optional<Operand> dram_range(const Instruction& instruction);

/// Bytes of DRAM that an instruction reads and writes; its own word does not count.
int64_t dram_bytes(const Instruction& instruction);

}  // namespace tessera::isa
