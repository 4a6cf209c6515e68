// SPDX-License-Identifier: Apache-2.0
// ALU of isa/timing.md as an engine. Enters: instructions, GEMM's use of ACC and LOAD's of INP. Leaves: completions,
// and to LOAD and STORE in which share of which cycles ports are taken. Issues are made (AluWalk) as far ahead as what
// others do is known; what lies behind that is supposed to go on without a wait, and corrected before it is reached.
#pragma once

#include <optional>

#include "sim/systemc/engines/alu_form.h"
#include "sim/systemc/engines/engine.h"
#include "sim/systemc/engines/rows.h"
#include "sim/systemc/ring.h"

namespace tessera::sim::systemc {

class Alu : public Engine {
 public:
  Alu(sc_core::sc_module_name name, Context& context, Npu& npu) : Engine(name, isa::Engine::kAlu, context, npu) {}
  void reset() override;
  /// LOAD's share of INP's port has changed.
  void load_share_changed();
  /// The first cycle in which the ALU may take this port, OUT's of writes or INP's, before LOAD.
  Cycle writes_from(Port port) const;
  /// GEMM has taken an instruction: its use of ACC is known further ahead.
  void gemm_taken();

 protected:
  void work(Cycle now) override;

 private:
  struct Job {
    Item item;
    AluWork work;
    Cycle prepared = 0;  // its ranges are known
    bool moves = true;   // else FENCE or a fault
    std::optional<RowWork> rows;
    Port destination = Port::kNone;
    bool reads_out = false;         // source or second operand
    bool reads_out_always = false;  // the source
    void set(const Queued& taken, Cycle now, const isa::Alu& alu, const isa::MachineConfig& config);
    template <typename Rows>
    void set(const Queued& taken, Cycle now, const Rows& instruction, const Machine& machine);
  };
  /// A port in a share of the cycles from `from` to before `to`.
  struct Use {
    Cycle from;
    Cycle to;
    Port port;
    double share;
    bool supposed;  // of issues yet to be made
  };
  struct Uses {
    Ring<Use> uses;
    Port port = Port::kNone;  // published
    double share = 0;
  };
  static Use reads_of(const AluStretch& reads, Port port) {
    return {reads.from + kReadToBeat, reads.to + kReadToBeat, port, reads.share, false};
  }
  Use read_by_rows(const AluStretch& reads) const;
  Job describe(const Queued& taken, Cycle now) const;
  double load_share(Cycle now);
  void advance(Cycle now);
  void stalled(Job& job, Cycle cycles);
  void add_write(const Use& use);
  void suppose(Uses& uses, Cycle from, Port port, double share);
  void begin(Cycle now);
  void end();
  void use_ports(Cycle now);
  void begin_rows(Cycle from);
  bool end_rows(Cycle now);

  AluWalk walk_;
  RowWalk rows_;
  std::optional<Job> prepared_;
  std::optional<Job> active_;
  Cycle next_take_ = 0;
  Cycle active_from_ = 0;  // first issue
  bool begun_ = false;
  Cycle issue_free_ = 0;  // boundary of the last issue
  Cycle write_free_ = 0;  // boundary of the last write
  Uses writes_, out_reads_, acc_reads_;
  double inp_share_ = 0;  // of LOAD, since the last time it changed
  // LOAD's share by its beats on the bus: since bus_since_, and before.
  double bus_share_ = 0, bus_before_ = 0;
  Cycle bus_since_ = 0;
};

}  // namespace tessera::sim::systemc
