// SPDX-License-Identifier: Apache-2.0
// Work is a product of extents; LOAD reads no padding.
#include "driver/profile.h"

#include <algorithm>
#include <cstring>

namespace tessera::driver {
namespace {

template <typename Extents>
uint64_t product(const Extents& extents) {
  uint64_t all = 1;
  for (const auto extent : extents) all *= extent;
  return all;
}

uint64_t read_bytes(const isa::Load& load) {
  if (load.fill) return 0;
  uint64_t bytes = load.length;
  for (size_t k = 0; k < load.extent.size(); ++k) {
    uint64_t extent = load.extent[k];
    if (k < load.pad_before.size()) {
      const uint64_t padding = uint64_t{load.pad_before[k]} + load.pad_after[k];
      extent -= std::min(extent, padding);
    }
    bytes *= extent;
  }
  return bytes;
}

}  // namespace

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

uint64_t macs_of(const isa::Instruction& instruction, const isa::MachineConfig& config) {
  const auto* gemm = std::get_if<isa::Gemm>(&instruction);
  if (gemm == nullptr) return 0;
  return product(gemm->extent) * static_cast<uint64_t>(gemm->mode == isa::GemmMode::kDense
                                                           ? config.peak_macs()
                                                           : int64_t{config.batch} * config.lanes());
}

uint64_t executed_macs(std::span<const isa::Instruction> program, uint64_t executed, const isa::MachineConfig& config) {
  uint64_t macs = 0;
  for (const isa::Instruction& instruction : program) {
    if (executed == 0) break;
    const auto* fence = std::get_if<isa::Fence>(&instruction);
    if (!std::holds_alternative<isa::Gemm>(instruction) && (fence == nullptr || fence->engine != isa::Engine::kGemm)) {
      continue;
    }
    macs += macs_of(instruction, config);
    --executed;
  }
  return macs;
}

void fill_profile(RunReport& report, const sim::Trace& trace, std::span<const isa::Instruction> program,
                  const isa::MachineConfig& config) {
  report.profile.reserve(trace.instructions.size());
  for (const sim::InstructionTrace& from : trace.instructions) {
    InstructionProfile to;
    to.pc = from.pc;
    to.unit = from.unit;
    if (from.pc < program.size()) {
      const isa::Instruction& instruction = program[from.pc];
      to.macs = macs_of(instruction, config);
      if (const auto* alu = std::get_if<isa::Alu>(&instruction)) to.vectors = product(alu->extent);
      if (const auto* load = std::get_if<isa::Load>(&instruction)) to.bytes_read = read_bytes(*load);
      if (const auto* store = std::get_if<isa::Store>(&instruction)) {
        to.bytes_written = product(store->extent) * store->length;
      }
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
  report.bursts.reserve(trace.bursts.size());
  for (const sim::BurstTrace& from : trace.bursts) {
    report.bursts.push_back(
        {from.unit, from.write, from.address, from.bytes, from.address_cycle, from.first_cycle, from.last_cycle});
  }
}

}  // namespace tessera::driver
