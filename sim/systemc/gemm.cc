// SPDX-License-Identifier: Apache-2.0
#include "sim/systemc/gemm.h"

#include "sim/systemc/gemm_form.h"
#include "sim/systemc/npu.h"

namespace tessera::sim::systemc {
namespace {

constexpr Cycle kPrepare = 7;  // from taking to the end of the range check
constexpr Cycle kWrite = 4;    // from the end of a sum to its write

}  // namespace

void Gemm::reset() {
  Engine::reset();
  free_ = next_take_ = 0;
  last_ = {};
  uses_.clear();
  using_ = false;
}

void Gemm::use_ports(Cycle now) {
  bool changed = false;
  while (!uses_.empty() && uses_.front().to <= now) {
    uses_.pop_front();
    if (using_) {
      using_ = false;
      context_.ports.set(Port::kAccRead, PortShares::kGemm, 0);
      context_.ports.set(Port::kAccWrite, PortShares::kGemm, 0);
      changed = true;
    }
  }
  if (!uses_.empty() && uses_.front().from <= now && !using_) {
    using_ = true;
    context_.ports.set(Port::kAccRead, PortShares::kGemm, uses_.front().read);
    context_.ports.set(Port::kAccWrite, PortShares::kGemm, uses_.front().write);
    changed = true;
  }
  if (changed) npu_.ports_changed();
  if (!uses_.empty()) wake_at(using_ ? uses_.front().to : uses_.front().from);
}

/// Cycles that a sum starting in cycle `start` on this entry waits for one of the last two sums to be written.
Cycle Gemm::wait_for(uint32_t entry, Cycle start) const {
  for (const Sum& sum : last_) {
    if (sum.entry != entry || sum.end >= start) continue;
    if (sum.end + 1 == start) return 2;
    if (sum.end + 2 == start) return 1;
  }
  return 0;
}

void Gemm::work(Cycle now) {
  use_ports(now);
  if (now < next_take_) {
    wake_at(next_take_);
    return;
  }
  Item* item = take(now);
  if (item == nullptr) return;
  const auto* gemm = std::get_if<isa::Gemm>(&item->instruction);
  if (gemm == nullptr || item->fault != isa::Fault::kNone) {
    const Cycle at = std::max(now + (gemm == nullptr ? 1 : kPrepare), free_ + kWrite);
    next_take_ = at + 1;
    complete(*item, at);
    wake_at(next_take_);
    return;
  }
  const GemmForm form = form_of(*gemm);
  const Cycle first = std::max(now + kPrepare + 1, free_);
  const Cycle first_wait = gemm->accumulate ? wait_for(form.first_acc, first + (form.single ? form.first_end : 0)) : 0;
  const Cycle stalls = form.stalls + first_wait;
  const Cycle last_stall = form.single && form.sums == 1 && form.steps == 1 ? first_wait : form.last_stall;
  next_take_ = std::max(now + kPrepare, free_ == 0 ? 0 : free_ - 1 - unprepared_);
  free_ = first + form.steps + stalls;
  unprepared_ = last_stall;
  last_[1] = form.single && form.sums > 1 ? Sum{form.before_last_acc, free_ - 2} : last_[0];
  last_[0] = {form.last_acc, free_ - 1};
  counters().busy += form.steps;
  counters().stall_port += stalls;
  item->trace.first_cycle = first;
  item->trace.last_cycle = free_ - 1;
  const double share = static_cast<double>(form.sums) / static_cast<double>(form.steps);
  uses_.push_back({first + 3, free_ + 3, gemm->accumulate ? share : 0, share});
  complete(*item, free_ - 1 + kWrite);
  use_ports(now);
  wake_at(std::max(next_take_, now + 1));
}

}  // namespace tessera::sim::systemc
