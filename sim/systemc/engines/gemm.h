// SPDX-License-Identifier: Apache-2.0
// GEMM of isa/timing.md: every instruction's cycles are known when it is taken.
#pragma once

#include "isa/generated/timing.h"
#include "sim/systemc/engines/engine.h"
#include "sim/systemc/ring.h"

namespace tessera::sim::systemc {

class Gemm : public Engine {
 public:
  Gemm(sc_core::sc_module_name name, Context& context, Npu& npu) : Engine(name, isa::Engine::kGemm, context, npu) {}
  void reset() override;

 protected:
  void work(Cycle now) override;

 private:
  /// One port of ACC in a share of the cycles.
  struct Use {
    Cycle from;
    Cycle to;
    double share;
  };
  struct PortUse {
    Port port;
    Ring<Use> uses;
    double now = 0;
  };
  void use_ports(Cycle now);
  struct Sum {
    uint32_t entry = UINT32_MAX;
    Cycle end = 0;
  };
  Cycle wait_for(uint32_t entry, Cycle start) const;

  Cycle free_ = 0;        // boundary of the last step
  Cycle unprepared_ = 0;  // stall of that step, during which the next instruction may be taken
  std::array<Sum, isa::timing::gemm::kApart - 1> last_{};  // that a sum may wait for, the newest first
  Cycle next_take_ = 0;                                    // the preparation register is free
  std::array<PortUse, 2> ports_{{{Port::kAccRead, {}}, {Port::kAccWrite, {}}}};
};

}  // namespace tessera::sim::systemc
