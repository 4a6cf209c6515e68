// SPDX-License-Identifier: Apache-2.0
// One core: engines, memory, the four timelines, the fault record and the end of a program. Enters: a request. Leaves:
// its result. A machine of one core runs by itself; those of a chip have their turns from it (chip.h).
#pragma once

#include <functional>
#include <systemc>
#include <vector>

#include "sim/systemc/engines/alu.h"
#include "sim/systemc/engines/fetch.h"
#include "sim/systemc/engines/gemm.h"
#include "sim/systemc/engines/load.h"
#include "sim/systemc/engines/store.h"
#include "sim/systemc/memory.h"

namespace tessera::sim::systemc {

inline constexpr Cycle kIdleCycles = 64;  // without progress before a machine gives up

/// The bursts of a request's trace, when it has one, in the order of their addresses.
void sort_bursts(const TimedRequest& request);

class Npu : public sc_core::sc_module {
 public:
  SC_HAS_PROCESS(Npu);
  explicit Npu(sc_core::sc_module_name name);

  /// Runs one program. Not to be called from a SystemC process.
  TimedResult run(Machine& functional, const TimedRequest& request);

  /// What a core has of its chip.
  struct Place {
    size_t core = 0;
    Interconnect* interconnect = nullptr;
    const std::vector<uint16_t>* publics = nullptr;  // publishes by core
    std::function<void(size_t core)> publish;
  };
  /// Begins a program on a core of a chip.
  void begin(Machine& functional, const TimedRequest& request, TimedResult& result, const Place& place);
  Agenda& agenda() { return context_.agenda; }
  Memory& memory() { return memory_; }
  /// Its turns of the cycle that the agenda has entered; whether there were any.
  bool turn();
  /// The cycle of its last turn.
  Cycle active() const { return active_; }
  /// A core has published.
  void public_counted();
  /// Nothing can happen any more: no_progress, found in cycle `at`.
  void give_up(Cycle at);
  /// Whether a head waits for a public counter.
  bool awaits() const;

  // For the modules.
  Engine& engine(isa::Engine engine) { return *engines_[static_cast<size_t>(engine)]; }
  bool public_holds(const isa::Fence& fence) const {
    const uint16_t count = place_.publics != nullptr ? (*place_.publics)[fence.await_core] : uint16_t{0};
    return static_cast<int16_t>(count - fence.await_count) >= 0;
  }
  bool holds(const isa::Wait& wait) const {
    return !wait.enable || static_cast<int16_t>(timeline_[static_cast<size_t>(wait.engine)] - wait.count) >= 0;
  }
  /// Faults bar younger instructions.
  bool barred(uint32_t pc) const { return fault_.code != isa::Fault::kNone && pc >= fault_.pc; }
  bool faulted() const { return fault_.code != isa::Fault::kNone; }
  void report(isa::FaultRecord record);
  /// An instruction of `engine` has completed in the previous cycle.
  void completed(isa::Engine engine, const Item& item);
  /// Something that the end of the program waits for has happened.
  void check_end();
  void room(isa::Engine engine);  // its queue has lost its head in this cycle
  void port_changed(Port port);
  /// LOAD or STORE has taken an instruction that moves ACC.
  void acc_moves() {
    context_.acc_moves = true;
    gemm_.wake();
    alu_.wake();
  }
  void load_share_changed() { alu_.load_share_changed(); }
  /// Nobody who is served before LOAD writes through this port before that cycle.
  Cycle port_free_until(Port port) const { return port == Port::kAccWrite ? 0 : alu_.writes_from(port); }
  void gemm_taken() { alu_.gemm_taken(); }  // its use of ACC is known further ahead
  void poke_memory() { memory_.poke(); }
  /// The functional executor runs an instruction whose ranges have been checked.
  isa::Fault execute(uint32_t pc, const isa::Instruction& instruction);
  bool running() const { return running_; }

 private:
  void turns();
  void prepare(Machine& functional, const TimedRequest& request, TimedResult& result);
  void stop(Cycle at);
  isa::FaultRecord stuck() const;

  Context context_;
  RunRequest work_;  // bases and memory for the functional executor
  Fetch fetch_;
  Load load_;
  Gemm gemm_;
  Alu alu_;
  Store store_;
  Memory memory_;
  std::array<Engine*, isa::kEngines> engines_;
  std::array<Process*, Agenda::kTurns> processes_;  // by Agenda::Turn
  sc_core::sc_event start_;
  std::array<uint16_t, isa::kEngines> timeline_{};
  isa::FaultRecord fault_;
  bool running_ = false;
  Place place_;
  Cycle active_ = 0;
};

}  // namespace tessera::sim::systemc
