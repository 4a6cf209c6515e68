// SPDX-License-Identifier: Apache-2.0
// What LOAD and STORE have in common: the preparation register, the walk over the nest, the runs it emits and the
// bursts of a run (isa/timing.md, "Runs" and "Bursts"). Enters: instructions. Leaves: runs with the cycle in which they
// are emitted, and bursts offered to the bus. Times may lie a few cycles ahead of now.
#pragma once

#include <tlm_utils/simple_initiator_socket.h>
#include <systemc>
#include <tlm>

#include <bit>
#include <memory>
#include <vector>

#include "sim/systemc/engines/engine.h"
#include "sim/systemc/engines/walk.h"
#include "sim/systemc/memory.h"
#include "sim/systemc/ring.h"

namespace tessera::sim::systemc {

class Transfer : public Engine, public BeatSide {
 public:
  Transfer(sc_core::sc_module_name name, isa::Engine engine, Context& context, Npu& npu);
  tlm_utils::simple_initiator_socket<Transfer> socket;
  void reset() override;

 protected:
  void work(Cycle now) override;
  /// Whether beats are requested for the run.
  static bool moves(const Run& run) { return run.beats > 0; }

  /// The earliest cycle in which the run may leave, given that the walk has it ready in `ready`; kNever: not before a
  /// later wake().
  virtual Cycle emit_from(const Run& run, Cycle ready) = 0;
  /// The same for a run that joins the one before: the burst unit need not be free.
  virtual Cycle join_from(Cycle ready) { return ready; }
  /// A run has left in cycle `at`. `moves`: bursts of it follow, the first of which carries run_first.
  virtual void emitted(const Run& run, Cycle at, bool moves) = 0;
  /// Whether runs may join the one in front of them while a burst of it waits.
  virtual bool joins() const { return false; }
  /// A run has left in cycle `at`, and its beats come with those of the run before.
  virtual void joined(const Run&, Cycle) {}
  /// The beats of one burst have moved; of writes: the response comes at `at`.
  virtual void moved(Burst& burst, bool error, Cycle at) = 0;

  /// An instruction has been taken in this cycle.
  virtual void took(Cycle) {}

  /// Instructions inside, oldest first; runs with `last` belong to them in order.
  Ring<Item> instructions_;
  /// Nothing is left to be sent but what the engine itself holds.
  bool sent() const { return !has_prepared_ && !has_run_ && walk_.done() && !bursting_; }
  /// So many bursts have been offered.
  uint64_t bursts() const { return bursts_; }
  /// Boundary up to which the burst unit works on earlier runs; kNever while a burst of one has not been granted.
  Cycle bursts_free() const { return bursting_ ? kNever : bursts_free_; }

  struct Current {
    isa::Space space = isa::Space::kOut;
    isa::Fault fault = isa::Fault::kNone;
  };
  Current run_item_;  // of the run that leaves

 private:
  static constexpr Cycle kLookahead = 8;  // runs are emitted this far ahead of their time
  tlm::tlm_sync_enum nb_transport_bw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time& delay);
  void advance(Cycle now);
  void advance_and_wake(Cycle now);
  void offer(uint64_t address, Cycle at);
  void cut(Burst& burst);
  bool next_run();
  void join_before(Cycle limit);
  void grow();
  BurstTransaction& fresh();

  struct Prepared {
    Walk walk;
    Current item;
    Cycle done;  // of the range check
  };
  bool has_prepared_ = false;
  Prepared prepared_;
  Walk walk_;
  Current walk_item_;
  Cycle walk_from_ = 0;  // the walk's instruction can step from this cycle on
  Cycle walk_over_ = 0;  // the last step of the walk before
  Cycle free_from_ = 0;  // the preparation register is free
  bool has_run_ = false;
  Run run_;
  Cycle run_ready_ = 0;
  Cycle last_emit_ = 0;
  // The run in the burst unit.
  bool bursting_ = false;
  Burst* offered_ = nullptr;       // its burst that is not granted
  uint32_t burst_beats_left_ = 0;  // those of that burst included
  bool more_ = false;              // the next run will join
  bool burst_first_ = false;
  uint64_t bursts_ = 0;
  Cycle bursts_free_ = 0;
  bool advancing_ = false;
  std::vector<std::unique_ptr<BurstTransaction>> pool_;
  std::vector<BurstTransaction*> free_transactions_;
};

/// Groups of the bus's width, a power of two, that [from, from + bytes) touches.
inline uint32_t groups_of(uint64_t from, uint32_t bytes, uint32_t width) {
  const auto offset = static_cast<uint32_t>(from & (width - 1));
  return (offset + bytes + width - 1) >> std::countr_zero(width);
}

}  // namespace tessera::sim::systemc
