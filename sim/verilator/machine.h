// SPDX-License-Identifier: Apache-2.0
// The Verilated NPU as a C++ object. Enters: a configuration that was verilated, DRAM, a program. Leaves: the memories,
// the fault record, counters and cycles, exactly as the RTL has them. One call of the model is one clock; the memory
// model answers in the same cycle, because every output of the machine's bus depends on state only. Deterministic.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "isa/config.h"
#include "isa/generated/instructions.h"
#include "sim/memory/dram_model.h"

namespace tessera::sim {

struct RtlRequest {
  uint64_t program_address = 0;  // a multiple of 64
  uint32_t instruction_count = 0;
  std::array<uint64_t, 16> bases{};
  uint64_t window_first = 0;
  uint64_t window_last = UINT64_MAX;
  /// Cycles after which a run that has not ended is a broken invariant of the machine: Error kInternal.
  uint64_t max_cycles = UINT64_MAX;
};

struct RtlUnitCounters {
  uint64_t busy = 0;
  std::array<uint64_t, isa::kEngines> wait{};
  uint64_t stall_memory = 0;
  uint64_t stall_port = 0;
  uint64_t executed = 0;
};

struct RtlResult {
  isa::FaultRecord fault;
  uint64_t cycles = 0;
  uint64_t instructions = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  std::array<RtlUnitCounters, isa::kEngines + 1> units{};  // by isa::Unit
};

/// One NPU in RTL. Scratchpads keep their contents from run to run. Not thread-safe; separate machines are independent.
class RtlMachine {
 public:
  virtual ~RtlMachine() = default;
  const isa::MachineConfig& config() const { return config_; }

  /// Runs a program until FINISH or a fault, against `dram`. Faults are data in the result.
  RtlResult run(const RtlRequest& request, DramModel& dram);

  /// One access through the AXI4-Lite slave; `dram` sees the cycles that pass.
  void write_register(uint32_t offset, uint32_t value, DramModel& dram);
  uint32_t read_register(uint32_t offset, DramModel& dram);
  bool interrupt() const { return interrupt_; }

  /// A scratchpad's bytes, past the ports. Errors: kInvalidArgument when they leave it.
  std::vector<uint8_t> scratchpad(isa::Space space);
  void write_scratchpad(isa::Space space, size_t offset, std::span<const uint8_t> bytes);

 protected:
  /// The slave's pins in one cycle.
  struct Slave {
    bool write = false;  // address and data together
    uint32_t write_address = 0;
    uint32_t write_data = 0;
    bool read = false;
    uint32_t read_address = 0;
    // Answers.
    bool written = false;
    bool read_valid = false;
    uint32_t read_data = 0;
  };
  /// Where the model keeps a memory: entry n begins at data + n * stride_bytes.
  struct Memory {
    uint8_t* data = nullptr;
    size_t stride_bytes = 0;
    size_t entry_bytes = 0;
    size_t entries = 0;
  };

  explicit RtlMachine(isa::MachineConfig config) : config_(std::move(config)) {}
  virtual void clock(Slave& slave, DramModel& dram) = 0;
  virtual std::vector<Memory> memory(isa::Space space) = 0;  // copies of the same contents

  isa::MachineConfig config_;
  bool interrupt_ = false;
};

/// The configurations that this build has verilated.
std::vector<isa::MachineConfig> rtl_configs();

/// A machine after reset; memories are zero. Errors: kUnsupported when no verilated configuration has these parameters
/// (the name does not matter); the message lists those that exist.
std::unique_ptr<RtlMachine> make_rtl(const isa::MachineConfig& config);

}  // namespace tessera::sim
