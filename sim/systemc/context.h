// SPDX-License-Identifier: Apache-2.0
// One run of the timing model: what every module needs of it, and the shares in which engines ask for scratchpad ports.
#pragma once

#include <algorithm>

#include "isa/generated/timing.h"
#include "sim/systemc/agenda.h"
#include "sim/systemc/engines/acc_use.h"
#include "sim/systemc/machine.h"

namespace tessera::sim::systemc {

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

/// Cycles from STORE's read of a group to its beat on the bus: reads of others refuse it the beats so much later.
inline constexpr Cycle kReadToBeat = isa::timing::store::kFirstBeat - 1;

class Interconnect;

struct Context {
  Agenda agenda;
  Interconnect* interconnect = nullptr;  // between this core's bus and DRAM; null on a machine of one core
  size_t core = 0;
  const TimedRequest* request = nullptr;
  TimedResult* result = nullptr;
  Machine* functional = nullptr;
  isa::MachineConfig config;
  PortShares ports;
  AccUse gemm_acc;
  double padding_share = 0;    // of INP's second port, by LOAD beside its reads' beats
  bool acc_moves = false;      // LOAD or STORE have had an instruction that moves ACC
  bool alu_reads_inp = false;  // in its turn behind LOAD's writes

  /// Whether the bus is stepped cycle by cycle.
  bool bus_stepped() const { return interconnect != nullptr || request->timing.spec.has_value(); }

  UnitCounters& counters(isa::Unit unit) { return result->units[static_cast<size_t>(unit)]; }
};

}  // namespace tessera::sim::systemc
