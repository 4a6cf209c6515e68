// SPDX-License-Identifier: Apache-2.0
// STORE of isa/timing.md: reads of OUT and ACC never hold beats up but by their port; responses come back in order.
#pragma once

#include "isa/generated/timing.h"
#include "sim/systemc/engines/transfer.h"
#include "sim/systemc/ring.h"

namespace tessera::sim::systemc {

class Store : public Transfer {
 public:
  Store(sc_core::sc_module_name name, Context& context, Npu& npu) : Transfer(name, isa::Engine::kStore, context, npu) {}
  void reset() override;

  Ready ready(const Burst& burst) const override;
  void gone(Burst& burst) override;

 protected:
  Cycle emit_from(const Run& run, Cycle ready) override;
  void emitted(const Run& run, Cycle at, bool moves) override;
  void moved(Burst& burst, bool error, Cycle at) override;
  void took(Cycle now) override;

 private:
  static constexpr size_t kOffsets = isa::timing::store::kRunsWaiting;
  struct Piece {
    uint32_t beats;
    uint32_t prime;
    Cycle emitted;
    Port port;
    bool last;
  };

  /// A FENCE among the answers that are expected, or an instruction that has failed its range check.
  struct Fenced {
    Cycle emitted = 0;
    uint64_t number = 0;  // of its instruction
    uint64_t bursts = 0;  // in front of it
  };
  void pass_fences();
  void answer_fences();
  void finish_instruction(bool error);

  Ring<Piece> pieces_;   // runs whose beats have not all moved
  Ring<Fenced> fences_;  // not answered
  Cycle offsets_free_ = 0;
  Cycle beats_free_ = 0;     // boundary of the last beat on the bus
  Cycle responded_ = 0;      // last response
  uint32_t unanswered_ = 0;  // bursts whose beats have moved
  uint32_t done_ = 0;        // instructions whose beats have all moved and whose responses are missing
  uint64_t left_ = 0;        // instructions whose runs have all left
  uint64_t finished_ = 0;    // instructions that have had their last answer
  uint64_t responses_ = 0;
  double blocked_ = 0;
  Cycle answered_ = 0;  // up to here only responses are missing, unless something is taken before
  bool error_ = false;
};

}  // namespace tessera::sim::systemc
