// SPDX-License-Identifier: Apache-2.0
// The effects that isa.toml declares, as far as they are asked for.
#include "compiler/emit/work.h"

namespace tessera::emit {

Work work_of(const isa::Instruction& instruction, const isa::MachineConfig& config) {
  Work work;
  find_work(instruction, config, work);
  return work;
}

void find_work(const isa::Instruction& instruction, const isa::MachineConfig& config, Work& work) {
  work.engine = isa::engine_of(instruction);
  if (!work.engine) return;
  const isa::Effects effects = isa::effects(instruction, config);
  if (effects.operands.empty()) return;
  work.idle = false;
  for (const isa::Operand& operand : effects.operands) {
    work.touches.push_back({operand.begin, operand.end, static_cast<int16_t>(operand.memory()), operand.write});
    if (operand.dram) continue;
    work.reads_inp = work.reads_inp || (!operand.write && operand.space == isa::Space::kInp);
    work.reads_acc = work.reads_acc || (!operand.write && operand.space == isa::Space::kAcc);
    work.writes_inp = work.writes_inp || (operand.write && operand.space == isa::Space::kInp);
  }
  work.duration = duration(instruction, effects, config);
  work.dram_bytes = effects.dram_read_bytes + effects.dram_write_bytes;
  work.latency_cycles = effects.latency_cycles;
}

Works WorkPool::add(std::span<const isa::Instruction> instructions, const isa::MachineConfig& config) {
  Works works;
  works.reserve(instructions.size());
  for (const isa::Instruction& instruction : instructions) works.push_back(add(instruction, config));
  return works;
}

}  // namespace tessera::emit
