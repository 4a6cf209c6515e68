// SPDX-License-Identifier: Apache-2.0
// The conditions of one instruction, a queue's head or FINISH, which the machine looks at one after another
// (hw/rtl/tsr_timeline.sv). Enters: the instruction's header and the timelines, in any number of looks a cycle. Leaves:
// the condition that it waits for. Looks of one cycle agree.
#pragma once

#include <algorithm>
#include <cstddef>

#include "isa/generated/timing.h"
#include "sim/systemc/types.h"

namespace tessera::sim::systemc {

class Conditions {
 public:
  /// The condition that the instruction waits for in this cycle; null when all are known to hold. `Timelines` tells by
  /// holds(wait) what has been reached.
  template <typename Timelines>
  const isa::Wait* unmet(const isa::Header& header, const Timelines& timelines, Cycle now) {
    if (now < next_) return &header.waits[static_cast<size_t>(looked_)];
    const auto open = [](const isa::Wait& wait) { return wait.enable; };
    if (std::none_of(header.waits.begin() + known_, header.waits.end(), open)) return nullptr;
    looked_ = known_;
    if (timelines.holds(header.waits[static_cast<size_t>(looked_)])) {
      ++known_;
      next_ = now + isa::timing::queue::kCondition;
    }
    return &header.waits[static_cast<size_t>(looked_)];
  }
  /// The cycle of the next look, when the last one succeeded.
  Cycle next() const { return next_; }

 private:
  std::ptrdiff_t known_ = 0;   // conditions that have held or are none
  std::ptrdiff_t looked_ = 0;  // the one of the last look
  Cycle next_ = 0;
};

}  // namespace tessera::sim::systemc
