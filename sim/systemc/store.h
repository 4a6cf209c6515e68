// SPDX-License-Identifier: Apache-2.0
// STORE of isa/timing.md: reads of OUT and ACC run at most four groups ahead of the bus; responses come back in order.
#pragma once

#include "sim/systemc/transfer.h"

namespace tessera::sim::systemc {

class Store : public Transfer {
 public:
  Store(sc_core::sc_module_name name, Context& context, Npu& npu)
      : Transfer(name, isa::Engine::kStore, context, npu) {}
  void reset() override;

  Cycle first_beat(const Burst& burst) override;
  Port port(const Burst& burst) const override;

 protected:
  Cycle emit_from(const Run& run, Cycle ready) override;
  void emitted(const Run& run, Cycle at, bool moves) override;
  void moved(Burst& burst, bool error, Cycle at) override;

 private:
  static constexpr uint32_t kAhead = 4;  // groups read and not yet on their way to the bus
  struct Piece {
    uint32_t reads;
    uint32_t beats;
    uint32_t prime;
    Cycle emitted;
    Port port;
    bool last;

  };

  std::deque<Piece> pieces_;  // runs whose beats have not all moved
  uint32_t reads_ahead_ = 0;  // of pieces_
  Cycle reads_free_ = 0;      // last read of the run before
  Cycle beats_free_ = 0;      // boundary of the last beat on the bus
  Cycle responded_ = 0;       // last response
  double blocked_ = 0;
  bool error_ = false;
};

}  // namespace tessera::sim::systemc
