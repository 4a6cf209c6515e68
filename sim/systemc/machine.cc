// SPDX-License-Identifier: Apache-2.0
// The one elaborated machine and the lock around it. SystemC keeps its state in the process, so that runs of several
// objects, on whatever thread, follow one another.
#include "sim/systemc/machine.h"

#include <cstdlib>
#include <mutex>
#include <string>
#include <systemc>

#include "base/error.h"
#include "sim/systemc/chip.h"

/// libsystemc's own main() asks for it; programs here have theirs.
extern "C" __attribute__((weak)) int sc_main(int, char**) { return 1; }

namespace tessera::sim::systemc {
namespace {

std::mutex& kernel_mutex() {
  static std::mutex mutex;
  return mutex;
}

/// Never destroyed: SystemC's own statics may be gone by then.
Chip& the_chip() {
  static Chip* chip = [] {
    if (sc_core::sc_get_status() != sc_core::SC_ELABORATION)
      throw Error(ErrorCode::kUnsupported,
                  "SystemC runs already in this process, for a program of its own or another copy of Tessera, and has "
                  "one machine a process; run this one in another process, or on device fsim or rtl");
    setenv("SYSTEMC_DISABLE_COPYRIGHT_MESSAGE", "1", 0);
    Chip* made = new Chip("chip");
    sc_core::sc_start(sc_core::SC_ZERO_TIME);  // ends the elaboration
    return made;
  }();
  return *chip;
}

void check_timing(const DramOptions& timing, const isa::MachineConfig& config) {
  if (timing.latency_cycles < 1) throw Error(ErrorCode::kInvalidArgument, "DRAM's latency is at least 1 cycle");
  if (timing.bandwidth_bytes < 0 || timing.bandwidth_bytes > config.memory_bytes()) {
    throw Error(ErrorCode::kInvalidArgument, "DRAM's bandwidth is 1 to " + std::to_string(config.memory_bytes()) +
                                                 " bytes a cycle, the bus's width");
  }
}

std::vector<Machine> make_cores(const isa::MachineConfig& config) {
  isa::validate(config);
  std::vector<Machine> cores;
  for (int k = 0; k < config.cores; ++k) cores.emplace_back(config);
  return cores;
}

}  // namespace

TimedMachine::TimedMachine(const isa::MachineConfig& config) : functional_(make_cores(config)) {}
TimedMachine::~TimedMachine() = default;

TimedResult TimedMachine::run(const TimedRequest& request) { return run(std::span(&request, 1))[0]; }

std::vector<TimedResult> TimedMachine::run(std::span<const TimedRequest> cores) {
  if (cores.empty() || cores.size() > functional_.size()) {
    throw Error(ErrorCode::kInvalidArgument, "programs for " + std::to_string(cores.size()) + " cores; '" +
                                                 config().name + "' has " + std::to_string(functional_.size()));
  }
  check_timing(cores[0].timing, config());
  const std::lock_guard lock(kernel_mutex());
  if (functional_.size() == 1) return {the_chip().core().run(functional_[0], cores[0])};
  std::vector<TimedResult> results(functional_.size());
  const auto source = [&, first = true](std::vector<TimedEnd> ended, bool) mutable {
    for (TimedEnd& end : ended) std::move(end.results.begin(), end.results.end(), results.begin());
    std::vector<TimedJob> jobs(first ? 1 : 0);
    for (TimedJob& job : jobs) {
      job.requests.assign(cores.begin(), cores.end());
      for (size_t k = 0; k < cores.size(); ++k) job.cores.push_back(k);
    }
    first = false;
    return jobs;
  };
  const DramController::Counters dram = the_chip().run(functional_, cores[0].timing, cores[0].memory_address, source);
  for (TimedResult& result : results) result.dram = dram;
  return results;
}

void TimedMachine::run_jobs(const TimedSource& source, const DramOptions& timing, uint64_t memory_address) {
  TESSERA_INVARIANT(functional_.size() > 1, "jobs run on a chip of several cores");
  check_timing(timing, config());
  const std::lock_guard lock(kernel_mutex());
  the_chip().run(functional_, timing, memory_address, source);
}

}  // namespace tessera::sim::systemc
