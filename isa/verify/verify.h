// SPDX-License-Identifier: Apache-2.0
// The static rules of isa/semantics.md. Enters: instructions and a configuration. Leaves: the first broken rule, or
// nothing. Simulators, assembler and compiler share these functions, so that one rule has one home; the RTL is tested
// against them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isa/config.h"
#include "isa/generated/instructions.h"
#include "isa/verify/effects.h"

namespace tessera::isa {

struct Violation {
  Fault fault;
  std::string message;  // names the field and the rule
};

/// The illegal_operand rules that concern one instruction, beyond what decode() refuses. Address ranges are not looked
/// at.
std::optional<Violation> check_operands(const Instruction& instruction, const MachineConfig& config);

/// scratchpad_range when an operand leaves its memory. Needs check_operands() to hold.
std::optional<Violation> check_ranges(const Instruction& instruction, const MachineConfig& config);

/// Whether the operand in DRAM may have `lowest` as its lowest address: that of a packed LOAD is a multiple of a beat.
bool dram_aligned(const Instruction& instruction, const MachineConfig& config, uint64_t lowest);

/// What check_program found out on the way.
struct ProgramSummary {
  size_t instructions = 0;
  std::array<uint64_t, kEngines> signals{};
};

/// Checks a whole program: operands, scratchpad ranges, FINISH last and only last, and the wait rule: the stream is a
/// topological order (every condition holds when instructions run one at a time in stream order), no condition waits
/// for signals that never come, and none can be overtaken by more than 32767 signals while it is queued. Throws Error
/// kInvalidProgram; the message starts with "instruction N (name):".
ProgramSummary check_program(std::span<const Instruction> program, const MachineConfig& config);

/// Checks the programs of a chip, by core: each as check_program does (an empty one is of a core that does not start);
/// no core publishes more than 32767 times, so that no count wraps; every count that is awaited comes; and the programs
/// do not block each other: with queues of the configured depth all of them end. Conditions on public counters stay
/// true once they are, so that one order of execution tells for all. Throws Error kInvalidProgram; the message starts
/// with "core N: instruction N (name):" or with "cores block each other:".
std::vector<ProgramSummary> check_programs(std::span<const std::span<const Instruction>> programs,
                                           const MachineConfig& config);

}  // namespace tessera::isa
