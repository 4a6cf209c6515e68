// SPDX-License-Identifier: Apache-2.0
// When GEMM reads and writes ACC, cycle by cycle. Enters: each instruction's form and the cycle of its first step, when
// it is taken. Leaves: whether a cycle is one of a read or a write, as isa/timing.md derives it from the steps. GEMM is
// never refused, so that what is known here holds; the ALU, which is served after it, asks.
#pragma once

#include <algorithm>
#include <optional>

#include "isa/generated/timing.h"
#include "sim/systemc/engines/gemm_form.h"
#include "sim/systemc/ring.h"
#include "sim/systemc/types.h"

namespace tessera::sim::systemc {

class AccUse {
 public:
  static constexpr Cycle kRead = isa::timing::gemm::kRead;    // from the start of a sum to its read
  static constexpr Cycle kWrite = isa::timing::gemm::kWrite;  // from the end of a sum to its write
  static constexpr Cycle kStart = isa::timing::gemm::kStart;  // from taking an instruction to its first step

  void reset() {
    uses_.clear();
    free_ = 0;
  }
  /// An instruction makes its steps in the cycles from `first` to before `free`. Those that lie `kHistory` before `now`
  /// are forgotten.
  void add(const isa::Gemm& gemm, const GemmForm& form, Cycle first, Cycle free, Cycle now) {
    while (!uses_.empty() && uses_.front().free + kHistory < now) uses_.pop_front();
    uses_.push_back({first, free, form.steps / form.sums, gemm.accumulate, form.raster});
    if (form.raster) uses_.back().sum_steps = 1;
    free_ = free;
  }
  /// Whether GEMM reads (writes) ACC in cycle t < known(now).
  bool reads(Cycle t) const { return at_sum(t, kRead, true); }
  bool writes(Cycle t) const { return at_sum(t, kWrite, false); }
  /// The first cycle from t on in which GEMM may read (write) ACC; kNever when no instruction taken so far does.
  Cycle next_read(Cycle t) const { return next(t, kRead, true); }
  Cycle next_write(Cycle t) const { return next(t, kWrite, false); }
  /// The first cycle from t on in which GEMM does not read ACC in every cycle.
  Cycle after_reads(Cycle t) const {
    for (const Use& use : uses_) {
      if (use.first + kRead <= t && t < use.free + kRead && use.reads && use.sum_steps == 1 && !use.raster) {
        t = use.free + kRead;
      }
    }
    return t;
  }
  /// What an instruction taken in cycle `now` or later does lies in this cycle or behind it.
  Cycle known(Cycle now) const { return std::max(free_, now + kStart) + kRead; }

 private:
  static constexpr Cycle kHistory = 64;
  struct Use {
    Cycle first;
    Cycle free;
    uint64_t sum_steps;
    bool reads;
    std::optional<isa::Raster> raster;
  };

  Cycle next(Cycle t, Cycle distance, bool read) const {
    for (const Use& use : uses_) {
      if (t < use.free + distance && (use.reads || !read)) return std::max(t, use.first + distance);
    }
    return kNever;
  }
  bool at_sum(Cycle t, Cycle distance, bool read) const {
    for (const Use& use : uses_) {
      if (t >= use.free + distance) continue;
      if (t < use.first + distance) return false;
      if (read && !use.reads) return false;
      const uint64_t step = t - distance - use.first;
      if (use.raster) return use.raster->result_in(step);
      if (use.sum_steps == 1) return true;
      return step % use.sum_steps == (read ? 0 : use.sum_steps - 1);
    }
    return false;
  }

  Ring<Use> uses_;
  Cycle free_ = 0;
};

}  // namespace tessera::sim::systemc
