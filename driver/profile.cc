// SPDX-License-Identifier: Apache-2.0
// Work is what the instructions' words say.
#include "driver/profile.h"

#include <cstring>

#include "isa/verify/effects.h"

namespace tessera::driver {

std::vector<isa::Instruction> decode_program(std::span<const uint8_t> words) {
  std::vector<isa::Instruction> program;
  for (size_t at = 0; at + isa::kInstructionBytes <= words.size(); at += isa::kInstructionBytes) {
    isa::Word word;
    std::memcpy(word.data(), words.data() + at, word.size());
    const isa::Decoded decoded = isa::decode(word);
    if (!decoded.instruction) break;
    program.push_back(*decoded.instruction);
  }
  return program;
}

uint64_t executed_macs(std::span<const isa::Instruction> program, uint64_t executed, const isa::MachineConfig& config) {
  uint64_t macs = 0;
  for (const isa::Instruction& instruction : program) {
    if (executed == 0) break;
    if (isa::engine_of(instruction) != isa::Engine::kGemm) continue;
    macs += static_cast<uint64_t>(isa::effects(instruction, config).macs);
    --executed;
  }
  return macs;
}

void fill_profile(RunReport& report, const sim::Trace& trace, std::span<const isa::Instruction> program,
                  const isa::MachineConfig& config, uint32_t core) {
  report.profile.reserve(report.profile.size() + trace.instructions.size());
  for (const sim::InstructionTrace& from : trace.instructions) {
    InstructionProfile to;
    to.pc = from.pc;
    to.unit = from.unit;
    to.core = core;
    if (from.pc < program.size()) {
      const isa::Effects effects = isa::effects(program[from.pc], config);
      to.macs = static_cast<uint64_t>(effects.macs);
      to.vectors = static_cast<uint64_t>(effects.vectors);
      to.steps = static_cast<uint64_t>(effects.steps);
      to.bytes_read = static_cast<uint64_t>(effects.dram_read_bytes);
      to.bytes_written = static_cast<uint64_t>(effects.dram_write_bytes);
    }
    to.queued_cycle = from.queued_cycle;
    to.start_cycle = from.issued_cycle;
    to.first_busy_cycle = from.first_cycle;
    to.last_busy_cycle = from.last_cycle;
    to.end_cycle = from.retired_cycle;
    to.wait_cycles = from.wait_cycles;
    to.stall_memory_cycles = from.stall_memory_cycles;
    to.stall_port_cycles = from.stall_port_cycles;
    report.profile.push_back(to);
  }
  report.bursts.reserve(report.bursts.size() + trace.bursts.size());
  for (const sim::BurstTrace& from : trace.bursts) {
    report.bursts.push_back(
        {from.unit, from.write, from.address, from.bytes, from.address_cycle, from.first_cycle, from.last_cycle, core});
  }
}

}  // namespace tessera::driver
