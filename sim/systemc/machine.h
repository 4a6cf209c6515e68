// SPDX-License-Identifier: Apache-2.0
// The timing model of the NPU. Enters: a configuration, DRAM and its timing, a program. Leaves: the same bytes and the
// same fault record as the functional simulator, whose executor computes them, and the cycles, counters and trace that
// isa/timing.md derives for the RTL. Method: modules that move by whole instructions and bursts and never by cycles, in
// one temporally decoupled SystemC process (agenda.h); engines and memory talk TLM-2.0 (approximately timed). There is
// one elaborated machine in a program, which takes a configuration at the start of each run as hardware takes a reset;
// runs of several objects exclude one another.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "isa/config.h"
#include "sim/functional/machine.h"
#include "sim/memory/dram_model.h"
#include "sim/systemc/types.h"
#include "sim/trace.h"

namespace tessera::sim::systemc {

/// Memory that the spans name stays the caller's and must outlive the run.
struct TimedRequest {
  uint64_t program_address = 0;  // a multiple of 64
  uint32_t instruction_count = 0;
  std::array<uint64_t, 16> bases{};
  uint64_t window_first = 0;
  uint64_t window_last = UINT64_MAX;
  /// The memory behind the bus; accesses outside are axi_error.
  std::span<const DramRegion> dram;
  /// Device addresses that the memory refuses to read or to write.
  std::span<const Interval> failing_reads;
  std::span<const Interval> failing_writes;
  DramOptions timing;           // pressure and seed do not concern this model
  uint64_t memory_address = 0;  // of a real DRAM's first byte
  Trace* trace = nullptr;
  /// Called for each instruction as it is executed, with its work.
  std::function<void(const Work&)> observer;
};

struct TimedResult {
  isa::FaultRecord fault;
  uint64_t cycles = 0;  // from the start to this core's end
  uint64_t instructions = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t macs = 0;
  std::array<UnitCounters, isa::kEngines + 1> units{};  // by isa::Unit
  DramController::Counters dram;                        // of a real DRAM
  // Of a core of a chip, from its job's start to its end: cycles in which a burst of it waited for its turn on the
  // shared bus, and in which the bus moved a beat, whoever's.
  uint64_t bus_waited = 0;
  uint64_t bus_moved = 0;
};

/// A program of its own on some cores of a chip, beside what others run.
struct TimedJob {
  uint64_t number = 0;                 // the caller's name for it
  std::vector<size_t> cores;           // of the chip
  std::vector<TimedRequest> requests;  // one for each of `cores`; without instructions that core does not start
};

/// A job that has ended: a result for each of its cores, in the job's order. Cycles count from the job's start.
struct TimedEnd {
  uint64_t number = 0;
  std::vector<TimedResult> results;
};

/// Takes what has ended and whether others still run; gives what begins now, on cores on which nothing runs. It may
/// wait: time stands still meanwhile.
using TimedSource = std::function<std::vector<TimedJob>(std::vector<TimedEnd> ended, bool running)>;

/// One NPU, or a chip of several. Scratchpads keep their contents from run to run. Any thread may run any machine; runs
/// wait for one another.
class TimedMachine {
 public:
  /// Throws Error kInvalidArgument when the configuration is not valid.
  explicit TimedMachine(const isa::MachineConfig& config);
  ~TimedMachine();

  const isa::MachineConfig& config() const { return functional_[0].config(); }
  /// Runs a program until FINISH or a fault. Faults are data in the result.
  TimedResult run(const TimedRequest& request);
  /// The same on the cores of a chip, from core 0 on; one without instructions does not start. All have the DRAM,
  /// `timing` and `memory_address` of the first. Results are by core, of all cores: zeros where one has not run.
  std::vector<TimedResult> run(std::span<const TimedRequest> cores);
  /// Jobs on the cores of a chip, until nothing runs and `source` gives nothing more. It is called whenever a job has
  /// ended, and from time to time. All share the DRAM of `timing`, which begins at `memory_address`.
  void run_jobs(const TimedSource& source, const DramOptions& timing, uint64_t memory_address);
  /// Scratchpads of a core and their contents.
  Machine& functional(size_t core = 0) { return functional_[core]; }

 private:
  std::vector<Machine> functional_;
};

}  // namespace tessera::sim::systemc
