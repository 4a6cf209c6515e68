// SPDX-License-Identifier: Apache-2.0
// STORE of isa/timing.md: reads of OUT and ACC run at most four groups ahead of the bus; responses come back in order.
#pragma once

#include "isa/generated/timing.h"
#include "sim/systemc/ring.h"
#include "sim/systemc/transfer.h"

namespace tessera::sim::systemc {

class Store : public Transfer {
 public:
  Store(sc_core::sc_module_name name, Context& context, Npu& npu) : Transfer(name, isa::Engine::kStore, context, npu) {}
  void reset() override;

  Ready ready(const Burst& burst) const override;

 protected:
  Cycle emit_from(const Run& run, Cycle ready) override;
  void emitted(const Run& run, Cycle at, bool moves) override;
  void moved(Burst& burst, bool error, Cycle at) override;
  void took(Cycle now) override;

 private:
  Cycle reads_free() const;

  static constexpr uint32_t kAhead = isa::timing::store::kGroupsWaiting;
  static constexpr size_t kOffsets = isa::timing::store::kRunsWaiting;
  struct Piece {
    uint32_t reads;
    uint32_t beats;
    uint32_t prime;
    uint64_t end;  // groups read up to and with this run
    Cycle emitted;
    Port port;
    bool last;
  };

  Ring<Piece> pieces_;  // runs whose beats have not all moved
  /// Runs whose beats have moved and may still say when a read ahead of them was possible.
  struct Moved {
    uint64_t end;    // groups read up to and with this run
    Cycle consumed;  // the last of them left the queue
  };
  Ring<Moved> moved_;
  uint64_t reads_ = 0;  // groups of all runs emitted
  Cycle last_emitted_ = 0;
  uint32_t last_reads_ = 0;
  Cycle offsets_free_ = 0;
  Cycle beats_free_ = 0;  // boundary of the last beat on the bus
  Cycle responded_ = 0;   // last response
  double blocked_ = 0;
  Cycle answered_ = 0;  // up to here only responses are missing, unless something is taken before
  bool error_ = false;
};

}  // namespace tessera::sim::systemc
