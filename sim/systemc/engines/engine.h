// SPDX-License-Identifier: Apache-2.0
// What LOAD, GEMM, ALU and STORE have in common: a command queue, conditions on timelines, range checks, completion in
// order. Enters: instructions from FETCH. Leaves: signals and faults to the machine. An engine has a turn when
// something may change for it: its head becomes visible, a timeline it waits for counts, a moment it has planned
// itself.
#pragma once

#include <systemc>

#include "sim/systemc/context.h"
#include "sim/systemc/engines/conditions.h"
#include "sim/systemc/ring.h"

namespace tessera::sim::systemc {

class Npu;

/// What is left of an instruction inside an engine: how it ends.
struct Item {
  uint32_t pc = 0;
  isa::Fault fault = isa::Fault::kNone;
  bool signal = false;
  bool publish = false;
  InstructionTrace trace;
};

/// One instruction in an engine's queue.
struct Queued {
  Item item;
  isa::Instruction instruction;
  Cycle visible = 0;  // at the queue's head at the earliest
};

class Engine : public sc_core::sc_module, public Process {
 public:
  Engine(sc_core::sc_module_name name, isa::Engine engine, Context& context, Npu& npu);

  isa::Engine engine() const { return engine_; }
  virtual void reset();
  /// Whether FETCH may not push in this cycle; a head that leaves makes room from the next cycle on.
  bool full() const { return queue_.size() + (popped_at_ == context_.agenda.now() ? 1 : 0) >= depth_; }
  /// Whether it may in the next cycle.
  bool has_room_next() const { return queue_.size() < depth_; }
  void push(uint32_t pc, const isa::Instruction& instruction);
  bool queue_empty() const { return queue_.empty(); }
  uint32_t head_pc() const { return queue_.front().item.pc; }
  /// Nothing inside, and the last completion lies in the past.
  bool idle() const { return inside_ == 0; }
  /// A timeline has counted.
  void timeline_counted(isa::Engine engine);
  /// A core has published.
  void public_counted() {
    if (awaiting_ && await_held_ == kNever) wake();
  }
  void wake() { wake_at(0); }
  void step() override;
  /// Whether the head waits for a public counter that has not come.
  bool awaits() const;
  /// Cycles of waiting up to the end of the run.
  void close_wait();

 protected:
  /// The engine's own work in this cycle; calls take() when it can take an instruction.
  virtual void work(Cycle now) = 0;

  /// The head, when it may be taken in this cycle: visible, its conditions hold, no older fault. Range faults are found
  /// and legal instructions executed here. Null when there is none.
  Queued* take(Cycle now);
  /// The oldest instruction inside completes in cycle `at` (its signal counts from at + 1). In order.
  void complete(const Item& item, Cycle at);
  /// Takes cycles of waiting for memory from the last completed instruction that has some; it has not been reported
  /// yet.
  void wait_less(Cycle cycles);
  void wake_at(Cycle at) { context_.agenda.ask(turn(), at); }
  UnitCounters& counters() { return context_.counters(static_cast<isa::Unit>(engine_)); }

  Context& context_;
  Npu& npu_;

 private:
  Agenda::Turn turn() const { return static_cast<Agenda::Turn>(engine_); }
  void watch_head(Cycle now);

  struct Completion {
    Item item;
    Cycle at;
  };
  isa::Engine engine_;
  size_t depth_ = 1;
  size_t inside_ = 0;
  Ring<Queued> queue_;
  Ring<Completion> completions_;
  Queued taken_;
  Conditions conditions_;      // of the head
  bool awaiting_ = false;      // the head has been seen to wait for a public counter
  Cycle await_held_ = kNever;  // the cycle in which that was found to have come
  Cycle popped_at_ = kNever;
  bool halted_ = false;  // a fault has been found: nothing more is taken
  int waiting_on_ = -1;
  Cycle waiting_since_ = 0;
};

}  // namespace tessera::sim::systemc
