// SPDX-License-Identifier: Apache-2.0
// What the benches of the engines share: a queue that offers instructions with random gaps, the record of completions,
// and the comparison of memories with sim::Machine after each batch of instructions. An engine sees memories of plain
// bytes; ports are copied as bytes because Verilator lays every width out little-endian.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "isa/config.h"
#include "isa/generated/instructions.h"
#include "sim/functional/machine.h"

namespace tessera::testing {

inline constexpr int kWatchdogCycles = 200000;

struct Completion {
  uint32_t pc = 0;
  bool signal = false;
  bool fault = false;
  uint32_t code = 0;
};

/// A scratchpad and its synchronous read ports.
struct Memory {
  std::vector<uint8_t> bytes;
  size_t entry = 1;

  void load(const sim::Machine& machine, isa::Space space, size_t entry_bytes) {
    const auto from = machine.scratchpad(space);
    bytes.assign(from.begin(), from.end());
    entry = entry_bytes;
  }
  /// False when the address lies outside.
  bool read(uint32_t address, void* port) const {
    if ((address + 1) * entry > bytes.size()) return false;
    std::memcpy(port, &bytes[address * entry], entry);
    return true;
  }
  /// Writes an entry but for its first `kept` bytes.
  bool write(uint32_t address, const void* port, size_t kept = 0) {
    if ((address + 1) * entry > bytes.size()) return false;
    std::memcpy(&bytes[address * entry + kept], static_cast<const uint8_t*>(port) + kept, entry - kept);
    return true;
  }
};

/// Offers a batch of instructions to an engine and keeps what completes.
class Feeder {
 public:
  Feeder(std::span<const isa::Instruction> program, uint32_t first_pc, uint64_t seed)
      : program_(program), first_pc_(first_pc), random_(seed) {}

  /// Before the clock edge, first evaluation: drives the instruction port.
  template <typename Model>
  void drive(Model& model) {
    if (!offered_ && next_ < program_.size() && !stopped_ && random_() % 4 != 0) {
      const isa::Word word = isa::encode(program_[next_]);
      std::memcpy(&model.instr_i, word.data(), word.size());
      model.instr_pc_i = first_pc_ + static_cast<uint32_t>(next_);
      offered_ = true;
    }
    model.instr_valid_i = offered_ && !stopped_;
  }

  /// Before the clock edge, inputs settled: sees what the engine takes and completes.
  template <typename Model>
  void observe(Model& model) {
    if (model.complete_o) {
      completions_.push_back({model.complete_pc_o, model.complete_signal_o != 0, model.complete_fault_o != 0,
                              static_cast<uint32_t>(model.complete_code_o)});
      if (model.complete_fault_o) stopped_ = true;
    }
    if (model.instr_valid_i && model.instr_ready_o) {
      ++next_;
      offered_ = false;
    }
    busy_ = model.busy_o;
  }

  bool done() const { return (stopped_ || (next_ == program_.size() && completions_.size() == next_)) && !busy_; }

  /// Completions in order, with the signals of the program and the fault expected, if any. Prints what differs.
  bool check(const isa::FaultRecord& fault) const {
    const bool faulted = fault.code != isa::Fault::kNone;
    const size_t expected = faulted ? size_t{fault.pc} + 1 : program_.size();
    if (completions_.size() != expected) {
      std::printf("%zu completions, expected %zu\n", completions_.size(), expected);
      return false;
    }
    for (size_t n = 0; n < expected; ++n) {
      const Completion& c = completions_[n];
      const bool last_faults = faulted && n + 1 == expected;
      const bool signal = isa::header_of(program_[n]).signal && !last_faults;
      if (c.pc != first_pc_ + n || c.signal != signal || c.fault != last_faults ||
          c.code != (last_faults ? static_cast<uint32_t>(fault.code) : 0)) {
        std::printf("completion %zu: pc %u signal %d fault %d code %u\n", n, c.pc, c.signal, c.fault, c.code);
        return false;
      }
    }
    return true;
  }

 private:
  std::span<const isa::Instruction> program_;
  uint32_t first_pc_;
  std::mt19937_64 random_;
  size_t next_ = 0;
  bool offered_ = false;
  bool stopped_ = false;
  bool busy_ = false;
  std::vector<Completion> completions_;
};

/// Compares a memory with the machine's. Prints the first byte that differs.
inline bool same(const Memory& memory, const sim::Machine& machine, isa::Space space) {
  const auto expected = machine.scratchpad(space);
  for (size_t n = 0; n < expected.size(); ++n) {
    if (memory.bytes[n] == expected[n]) continue;
    std::printf("%s byte %zu (entry %zu): %u, expected %u\n", std::string(isa::to_string(space)).c_str(), n,
                n / memory.entry, memory.bytes[n], expected[n]);
    return false;
  }
  return true;
}

/// Two evaluations make a cycle; `before` drives inputs and `settled` looks at outputs before the edge.
template <typename Model>
void reset(Model& model) {
  model.rst_ni = 0;
  model.instr_valid_i = 0;
  for (int n = 0; n < 3; ++n) {
    model.clk_i = 0;
    model.eval();
    model.clk_i = 1;
    model.eval();
  }
  model.rst_ni = 1;
}

}  // namespace tessera::testing
