// SPDX-License-Identifier: Apache-2.0
// FETCH of isa/timing.md: reads words ahead, checks them, dispatches one after another. Enters: the program in DRAM.
// Leaves: instructions to the queues, FINISH, FETCH's own faults.
#pragma once

#include <tlm_utils/simple_initiator_socket.h>
#include <systemc>
#include <tlm>

#include <memory>
#include <vector>

#include "isa/generated/timing.h"
#include "sim/systemc/context.h"
#include "sim/systemc/engines/conditions.h"
#include "sim/systemc/memory.h"
#include "sim/systemc/ring.h"

namespace tessera::sim::systemc {

class Npu;

class Fetch : public sc_core::sc_module, public Process, public BeatSide {
 public:
  Fetch(sc_core::sc_module_name name, Context& context, Npu& npu);
  tlm_utils::simple_initiator_socket<Fetch> socket;

  void reset();
  void start();
  void step() override;
  void wake_at(Cycle at) { context_.agenda.ask(Agenda::kFetch, at); }
  /// FINISH stands in the checked register.
  bool finish_held() const;
  /// FINISH stands in the register and its conditions hold.
  bool finish_ready();
  const isa::Header& finish_header() const { return isa::header_of(instruction_); }
  bool held() const { return held_ && !stopped_; }
  uint32_t pc() const { return pc_; }
  void finish_taken();
  void timeline_counted(isa::Engine engine);
  void close(Cycle end);

  Ready ready(const Burst&) const override { return {0, Port::kNone}; }

 private:
  static constexpr int kWordsAhead = isa::timing::fetch::kWordsAhead;
  struct Word {
    Cycle arrived;  // its last beat
    bool error;
  };
  tlm::tlm_sync_enum nb_transport_bw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time& delay);
  void take_word(Cycle now);
  void offer(Cycle at);
  bool in_window(uint32_t word) const;
  uint64_t address(uint32_t word) const { return context_.request->program_address + uint64_t{word} * 64; }
  void watch_finish(Cycle now);

  Context& context_;
  Npu& npu_;
  std::vector<std::unique_ptr<BurstTransaction>> transactions_;  // one for each word ahead, used in turn
  size_t next_transaction_ = 0;
  bool offering_ = false;
  Ring<Cycle> room_;  // since when each free place for a word has been free
  Ring<Word> words_;
  uint32_t requested_ = 0;
  uint32_t next_ = 0;  // word to be taken next
  bool held_ = false;
  bool stopped_ = false;
  Cycle held_from_ = 0;
  Cycle free_from_ = 0;  // the checked register can take a word in this cycle
  uint32_t pc_ = 0;
  isa::Instruction instruction_;
  isa::Fault code_ = isa::Fault::kNone;
  Cycle empty_since_ = 0;
  int waiting_on_ = -1;
  Conditions conditions_;  // of FINISH
  Cycle waiting_since_ = 0;
};

}  // namespace tessera::sim::systemc
