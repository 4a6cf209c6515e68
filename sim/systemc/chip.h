// SPDX-License-Identifier: Apache-2.0
// The elaborated cores and, where a machine has several, what drives them: their public counters, the interconnect, and
// the cycles in which they and it have turns. Enters: jobs, each for some of the cores, which may begin while others
// run. Leaves: their results by core. One object in a process; see machine.h.
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

  /// Runs the jobs of `source` and returns what DRAM has counted. Not to be called from a SystemC process.
  DramController::Counters run(std::span<Machine> functional, const DramOptions& timing, uint64_t memory_address,
                               const TimedSource& source);

 private:
  /// A core with a program. Its own time begins with its job.
  struct Started {
    Npu* npu = nullptr;
    size_t core = 0;
    Cycle begun = 0;
  };
  /// A job under way.
  struct Running {
    TimedJob job;
    std::vector<TimedResult> results;
  };

  void turns();
  bool exchange();
  void begin(TimedJob job);
  bool ended(const Running& one) const;
  bool any_ended() const;
  void cycle(Cycle at);
  void step_bus(Cycle before);
  void rest();
  Cycle next();
  Cycle first_offer() const;
  bool bus_busy() const;
  void publish(size_t core);

  std::vector<std::unique_ptr<Npu>> cores_;
  std::span<Machine> functional_;
  const TimedSource* source_ = nullptr;
  std::vector<std::unique_ptr<Running>> running_;
  std::vector<Started> started_;  // of the jobs under way
  std::vector<uint16_t> publics_;
  std::optional<Interconnect> interconnect_;
  Cycle clocked_ = 0;  // cycles before it are over on the bus
  Cycle now_ = 0;
  Cycle free_ = 0;     // what begins now begins in this cycle
  bool news_ = false;  // a core has ended
  Cycle synchronised_ = 0;
  sc_core::sc_event start_;
};

}  // namespace tessera::sim::systemc
