// SPDX-License-Identifier: Apache-2.0
// The Verilated NPU as a C++ object. Enters: a configuration, DRAM, a program. Leaves: the memories, the fault record,
// counters and cycles, exactly as the RTL has them, and on request what happened when. A configuration that this build
// has verilated is linked in; any other is verilated, compiled and loaded when it is first asked for (build.h). One
// call of the model is one clock; the memory model answers in the same cycle, because every output of the machine's bus
// depends on state only. Deterministic.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "isa/config.h"
#include "isa/generated/instructions.h"
#include "sim/memory/dram_model.h"
#include "sim/trace.h"
#include "sim/verilator/model_api.h"

namespace tessera::sim {

struct RtlRequest {
  uint64_t program_address = 0;  // a multiple of 64
  uint32_t instruction_count = 0;
  std::array<uint64_t, 16> bases{};
  uint64_t window_first = 0;
  uint64_t window_last = UINT64_MAX;
  /// Cycles after which a run that has not ended is a broken invariant of the machine: Error kInternal.
  uint64_t max_cycles = UINT64_MAX;
  /// The program's instructions, for RtlResult::trace; without them nothing is traced.
  std::span<const isa::Instruction> trace_program;
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
  Trace trace;
};

struct RtlOptions {
  /// Waveforms of every cycle go to this file (FST); such a machine is verilated a second time, with tracing.
  std::string waves;
  /// Verilate what this build does not have; else Error kUnsupported.
  bool build = true;
};

/// A verilated machine, or one core of a chip, and its memories.
class RtlCore {
 public:
  /// After reset; memories are zero. `api` stays valid.
  RtlCore(const isa::MachineConfig& config, const TesseraRtlApi& api);
  ~RtlCore();
  RtlCore(const RtlCore&) = delete;
  RtlCore& operator=(const RtlCore&) = delete;

  const isa::MachineConfig& config() const { return config_; }
  const TesseraRtlApi& api() const { return api_; }
  void* model() { return model_; }

  /// A scratchpad's bytes, past the ports. Errors: kInvalidArgument when they leave it.
  std::vector<uint8_t> scratchpad(isa::Space space);
  void write_scratchpad(isa::Space space, size_t offset, std::span<const uint8_t> bytes);

  /// Turns one bit of a scratchpad over, as radiation would: a machine with parity finds it when it reads the byte's
  /// word. `bit` 8 is the byte's parity bit. Errors: kInvalidArgument for a byte or bit that the machine does not have.
  void flip_bit(isa::Space space, size_t offset, int bit);

 private:
  TesseraRtlMemory memory(isa::Space space);
  size_t word_bytes(isa::Space space) const;
  template <typename F>
  void for_each_piece(isa::Space space, size_t offset, size_t count, F&& body);

  isa::MachineConfig config_;
  const TesseraRtlApi& api_;
  void* model_;
};

/// Memory's cycle: what a machine drives, answered in its inputs.
void answer(DramModel& dram, TesseraRtlPins& pins);

/// How registers are reached.
struct RtlRegisters {
  std::function<uint32_t(uint32_t offset)> read;
  std::function<void(uint32_t offset, uint32_t value)> write;
};

/// Writes all that a program begins with but its start.
void write_request(const RtlRegisters& registers, const RtlRequest& request);

/// Reads what an ended program leaves, and clears its interrupt.
RtlResult read_result(const RtlRegisters& registers);

/// The pins of a machine or a chip, and how its registers are reached by them.
class RtlPins {
 public:
  /// One access through the AXI4-Lite slave; `dram` sees the cycles that pass.
  void write_register(uint32_t offset, uint32_t value, DramModel& dram);
  uint32_t read_register(uint32_t offset, DramModel& dram);
  bool interrupt() const { return pins_.interrupt != 0; }

  /// A bus that is slow: from now on the halves of a write come so many cycles apart, and every response stands so long
  /// before it is taken.
  void set_register_delay(int cycles) { register_delay_ = cycles; }

 protected:
  ~RtlPins() = default;
  virtual void clock(DramModel& dram) = 0;

  TesseraRtlPins pins_{};

 private:
  uint32_t respond(DramModel& dram, const uint8_t& response);

  int register_delay_ = 0;
};

/// One NPU in RTL. Scratchpads keep their contents from run to run and through reset(). Not thread-safe; separate
/// machines are independent.
class RtlMachine final : public RtlPins {
 public:
  /// A machine after reset; memories are zero. `api` stays valid.
  RtlMachine(const isa::MachineConfig& config, const TesseraRtlApi& api) : core_(config, api) {}

  const isa::MachineConfig& config() const { return core_.config(); }

  /// Runs a program until FINISH or a fault, against `dram`. Faults are data in the result.
  RtlResult run(const RtlRequest& request, DramModel& dram);

  /// The first half of run(): registers are written and the program is started.
  void start(const RtlRequest& request, DramModel& dram);

  /// Lets cycles pass until the interrupt, at most `limit`; true when it has come.
  bool advance(uint64_t limit, DramModel& dram);

  /// Resets the machine and the bus in the middle of whatever they do: bursts in flight are dropped, what has been
  /// written stays written.
  void reset(DramModel& dram);

  /// As those of RtlCore.
  std::vector<uint8_t> scratchpad(isa::Space space) { return core_.scratchpad(space); }
  void write_scratchpad(isa::Space space, size_t offset, std::span<const uint8_t> bytes) {
    core_.write_scratchpad(space, offset, bytes);
  }
  void flip_bit(isa::Space space, size_t offset, int bit) { core_.flip_bit(space, offset, bit); }

  /// Waveforms from here on. Errors: kUnsupported when the model has none.
  void open_waves(const std::string& path);

 private:
  void clock(DramModel& dram) override;
  void clock_probed(DramModel& dram, TesseraRtlProbe& probe);
  RtlRegisters registers(DramModel& dram);

  RtlCore core_;
};

/// The configurations that this build has verilated.
std::vector<isa::MachineConfig> rtl_configs();

/// A machine with these parameters (the name does not matter). Errors: kUnsupported when it is not in this build and
/// cannot be verilated here (the message says what is missing), kIo when the cache directory cannot be written.
std::unique_ptr<RtlMachine> make_rtl(const isa::MachineConfig& config, const RtlOptions& options = {});

}  // namespace tessera::sim
