// SPDX-License-Identifier: Apache-2.0
// A verilated chip of several cores as a C++ object, as RtlMachine is one machine. A core is verilated once and made as
// often as the chip has cores; the interconnect is a model of its own. All of them are evaluated once a cycle, from
// what the others drove in the cycle before: every output between them depends on state only. So the order among them
// is free, and a long run may use several threads, with the same result. Deterministic.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "isa/config.h"
#include "sim/memory/dram_model.h"
#include "sim/verilator/machine.h"

namespace tessera::sim {

struct RtlChipProgram {
  uint64_t program_address = 0;    // a multiple of 64
  uint32_t instruction_count = 0;  // 0: the core has no program
  std::array<uint64_t, 16> bases{};
  /// Its instructions, for RtlResult::trace; without them nothing of this core is traced.
  std::span<const isa::Instruction> trace_program;
};

struct RtlChipRequest {
  std::vector<RtlChipProgram> cores;  // by number; those behind its end have no program
  uint64_t window_first = 0;
  uint64_t window_last = UINT64_MAX;
  /// Cycles after which a run that has not ended is a broken invariant of the machine: Error kInternal.
  uint64_t max_cycles = UINT64_MAX;
};

/// A program of its own on some cores, beside what the others run.
struct RtlChipJob {
  uint64_t number = 0;                   // the caller's name for it
  std::vector<size_t> cores;             // of the chip
  std::vector<RtlChipProgram> programs;  // one for each of `cores`; none is traced
};

/// A job that has ended: a result for each of its cores, in the job's order.
struct RtlChipEnd {
  uint64_t number = 0;
  std::vector<RtlResult> results;
};

/// Takes what has ended and whether others still run; gives what begins now, on cores on which nothing runs. It may
/// wait: time stands still meanwhile.
using RtlChipSource = std::function<std::vector<RtlChipJob>(std::vector<RtlChipEnd> ended, bool running)>;

struct RtlChipResult {
  std::vector<RtlResult> cores;  // by number; zeros where a core has no program
  uint64_t cycles = 0;           // to the last core's end
  uint64_t moved = 0;            // in which the shared bus moved a beat
  std::vector<uint64_t> waited;  // by core: in which a burst of it waited for its turn
};

/// Scratchpads keep their contents from run to run and through reset(). Not thread-safe; separate chips are
/// independent.
class RtlChip final : public RtlPins {
 public:
  /// A chip after reset; memories are zero. `api` stays valid and has an interconnect.
  RtlChip(const isa::MachineConfig& config, const TesseraRtlApi& api);
  ~RtlChip();
  RtlChip(const RtlChip&) = delete;
  RtlChip& operator=(const RtlChip&) = delete;

  const isa::MachineConfig& config() const { return config_; }
  RtlCore& core(size_t number) { return *cores_[number]; }

  /// Runs programs, all started in the same cycle, until each has ended. Faults are data in the result. Errors:
  /// kInvalidArgument for more programs than cores.
  RtlChipResult run(const RtlChipRequest& request, DramModel& dram);

  /// Jobs until nothing runs and `source` gives nothing more. It is called whenever a job has ended, and from time to
  /// time. The cycles in which the registers of a job's cores are written and read pass for the other cores, too.
  void run_jobs(const RtlChipSource& source, uint64_t window_first, uint64_t window_last, DramModel& dram);

  /// The first half of run(): registers are written and the programs are started.
  void start(const RtlChipRequest& request, DramModel& dram);

  /// Lets cycles pass until no core runs, at most `limit`; true when that is so.
  bool advance(uint64_t limit, DramModel& dram);

  /// Resets the chip and the bus in the middle of whatever they do, as RtlMachine::reset.
  void reset(DramModel& dram);

  /// Threads of a long advance(), this one included; at most one a core. 1 at first.
  void set_threads(int threads);

 private:
  struct alignas(64) Data {
    std::array<uint8_t, 64> bytes{};
  };
  /// What stands between two cycles. A cycle reads one of two and writes the other.
  struct Wires {
    std::array<TesseraRtlPins, isa::kMostCores> outputs{}, inputs{};  // of the cores
    std::array<Data, isa::kMostCores> data{};                         // what w_data points to
    alignas(64) std::array<uint16_t, isa::kMostCores> counters{};     // the public ones, an input of all cores
  };
  void cycle_core(size_t core, size_t turn, TesseraRtlProbe* probe = nullptr);
  void cycle_interconnect(size_t turn, DramModel& dram);
  void clock(DramModel& dram) override;
  bool idle(size_t turn) const;
  bool idle(size_t turn, uint32_t cores) const;
  uint32_t write_programs(std::span<const size_t> numbers, std::span<const RtlChipProgram> programs,
                          uint64_t window_first, uint64_t window_last, DramModel& dram);
  uint64_t advance_in_threads(uint64_t limit, DramModel& dram, bool& ended);
  std::vector<Trace> advance_traced(const RtlChipRequest& request, DramModel& dram);
  RtlRegisters registers(size_t core, DramModel& dram);

  isa::MachineConfig config_;
  const TesseraRtlApi& api_;
  std::vector<std::unique_ptr<RtlCore>> cores_;
  void* interconnect_;
  std::array<Wires, 2> wires_;
  size_t turn_ = 0;
  std::vector<uint32_t> awaited_;  // sets of cores, a bit each: advance() ends when those of one set are idle
  int threads_ = 1;
};

/// A chip with these parameters, as make_rtl. Errors: kUnsupported also for waveforms, which machines of one core have.
std::unique_ptr<RtlChip> make_rtl_chip(const isa::MachineConfig& config, const RtlOptions& options = {});

}  // namespace tessera::sim
