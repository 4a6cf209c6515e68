// SPDX-License-Identifier: Apache-2.0
// ALU of isa/timing.md: an instruction's issue cycles are spread by the ports it shares; its writes follow at a fixed
// distance.
#pragma once

#include <optional>

#include "sim/systemc/alu_form.h"
#include "sim/systemc/engine.h"

namespace tessera::sim::systemc {

class Alu : public Engine {
 public:
  Alu(sc_core::sc_module_name name, Context& context, Npu& npu) : Engine(name, isa::Engine::kAlu, context, npu) {}
  void reset() override;
  /// GEMM's or LOAD's shares have changed.
  void ports_changed();

 protected:
  void work(Cycle now) override;

 private:
  struct Job {
    Item item;
    AluForm form;
    Cycle prepared = 0;  // its ranges are known
    bool moves = true;   // else FENCE or a fault
    Port source = Port::kNone;
    Port destination = Port::kNone;
    double writes = 0;     // share of issue cycles that lead to a write
    double out_reads = 0;  // share of issue cycles that read OUT
  };
  struct Use {
    Cycle from;
    Cycle to;
    Port port;
    double share;
  };
  Job describe(const Item& item, Cycle now) const;
  double rate() const;
  void settle(Cycle now);
  void begin(Cycle now);
  void end(Cycle now);
  void use_ports(Cycle now);

  std::optional<Job> prepared_;
  std::optional<Job> active_;
  Cycle next_take_ = 0;
  Cycle active_from_ = 0;  // first issue
  bool begun_ = false;
  double left_ = 0;
  double rate_ = 0;
  Cycle since_ = 0;
  Cycle issue_free_ = 0;  // boundary of the last issue
  Cycle write_free_ = 0;  // boundary of the last write
  std::deque<Use> uses_;  // writes to come
  bool writing_ = false;
  AluHistory history_;
};

}  // namespace tessera::sim::systemc
