// SPDX-License-Identifier: Apache-2.0
// The one elaborated machine and the lock around it. SystemC keeps its state in the process, so that runs of several
// objects, on whatever thread, follow one another.
#include "sim/systemc/machine.h"

#include <cstdlib>
#include <mutex>
#include <string>
#include <systemc>

#include "base/error.h"
#include "sim/systemc/npu.h"

/// libsystemc's own main() asks for it; programs here have theirs.
extern "C" __attribute__((weak)) int sc_main(int, char**) { return 1; }

namespace tessera::sim::systemc {
namespace {

std::mutex& kernel_mutex() {
  static std::mutex mutex;
  return mutex;
}

/// Never destroyed: SystemC's own statics may be gone by then.
Npu& the_npu() {
  static Npu* npu = [] {
    if (sc_core::sc_get_status() != sc_core::SC_ELABORATION)
      throw Error(ErrorCode::kUnsupported,
                  "SystemC runs already in this process, for a program of its own or another copy of Tessera, and has "
                  "one machine a process; run this one in another process, or on device fsim or rtl");
    setenv("SYSTEMC_DISABLE_COPYRIGHT_MESSAGE", "1", 0);
    Npu* made = new Npu("npu");
    sc_core::sc_start(sc_core::SC_ZERO_TIME);  // ends the elaboration
    return made;
  }();
  return *npu;
}

}  // namespace

TimedMachine::TimedMachine(const isa::MachineConfig& config) : functional_(config) {}
TimedMachine::~TimedMachine() = default;

TimedResult TimedMachine::run(const TimedRequest& request) {
  if (request.timing.latency_cycles < 1) throw Error(ErrorCode::kInvalidArgument, "DRAM's latency is at least 1 cycle");
  if (request.timing.bandwidth_bytes < 0 || request.timing.bandwidth_bytes > config().axi_bytes) {
    throw Error(ErrorCode::kInvalidArgument,
                "DRAM's bandwidth is 1 to " + std::to_string(config().axi_bytes) + " bytes a cycle, the bus's width");
  }
  const std::lock_guard lock(kernel_mutex());
  return the_npu().run(functional_, request);
}

}  // namespace tessera::sim::systemc
