// SPDX-License-Identifier: Apache-2.0
// The elaborated cores and, where a machine has several, what drives them: their public counters, the interconnect, and
// the cycles in which they and it have turns. Enters: a request for each core that has a program. Leaves: the results
// by core. One object in a process; see machine.h.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <systemc>
#include <vector>

#include "sim/systemc/interconnect.h"
#include "sim/systemc/npu.h"

namespace tessera::sim::systemc {

class Chip : public sc_core::sc_module {
 public:
  SC_HAS_PROCESS(Chip);
  explicit Chip(sc_core::sc_module_name name);

  /// Of a machine of one core.
  Npu& core() { return *cores_[0]; }

  /// Runs all programs; `requests` by core, those without an instruction have none. Not to be called from a SystemC
  /// process.
  std::vector<TimedResult> run(std::span<Machine> functional, std::span<const TimedRequest> requests);

 private:
  void turns();
  void cycle(Cycle at);
  void step_bus(Cycle before);
  void rest();
  Cycle next();
  Cycle first_offer() const;
  bool bus_busy() const;
  void publish(size_t core);

  std::vector<std::unique_ptr<Npu>> cores_;
  std::vector<Npu*> started_;  // of this run
  std::vector<uint16_t> publics_;
  std::optional<Interconnect> interconnect_;
  Cycle clocked_ = 0;  // cycles before it are over on the bus
  Cycle now_ = 0;
  Cycle synchronised_ = 0;
  sc_core::sc_event start_;
};

}  // namespace tessera::sim::systemc
