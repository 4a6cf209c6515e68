// SPDX-License-Identifier: Apache-2.0
// One run of the timing model: what every module needs of it, and the shares in which engines ask for scratchpad ports.
#pragma once

#include <systemc>

#include <algorithm>

#include "sim/systemc/acc_use.h"
#include "sim/systemc/machine.h"

namespace tessera::sim::systemc {

/// The model's clock: one cycle is one unit of SystemC's time resolution, counted from the start of the run.
struct Clock {
  uint64_t origin = 0;
  Cycle now() const { return sc_core::sc_time_stamp().value() - origin; }
  static sc_core::sc_time cycles(uint64_t count) { return sc_core::sc_time::from_value(count); }
};

/// Runs an event's processes in cycle `at`, now when that has passed.
inline void notify_at(sc_core::sc_event& event, const Clock& clock, Cycle at) {
  const Cycle now = clock.now();
  if (at <= now) {
    event.notify(sc_core::SC_ZERO_TIME);
  } else {
    event.notify(Clock::cycles(at - now));
  }
}

/// Who asks for a port in which share of the cycles, now. Higher priority first (isa/ports.md).
class PortShares {
 public:
  enum Who { kGemm, kAlu, kLoad, kStore };

  void set(Port port, Who who, double share) { share_[static_cast<size_t>(port)][who] = share; }
  double get(Port port, Who who) const { return share_[static_cast<size_t>(port)][who]; }
  /// The share that is left when all of higher priority than `who` have been served.
  double left(Port port, Who who) const {
    if (port == Port::kNone) return 1;
    double taken = 0;
    for (int w = 0; w < who; ++w) taken += share_[static_cast<size_t>(port)][static_cast<size_t>(w)];
    return std::max(0.0, 1 - taken);
  }
  void clear() { share_ = {}; }

 private:
  std::array<std::array<double, 4>, kPorts> share_{};
};

struct Context {
  Clock clock;
  const TimedRequest* request = nullptr;
  TimedResult* result = nullptr;
  Machine* functional = nullptr;
  isa::MachineConfig config;
  PortShares ports;
  AccUse gemm_acc;
  double padding_share = 0;    // of INP's second port, by LOAD beside its reads' beats
  bool acc_moves = false;      // LOAD or STORE have had an instruction that moves ACC
  bool alu_reads_inp = false;  // in its turn behind LOAD's writes

  UnitCounters& counters(isa::Unit unit) { return result->units[static_cast<size_t>(unit)]; }
};

}  // namespace tessera::sim::systemc
