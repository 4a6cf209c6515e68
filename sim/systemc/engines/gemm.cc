// SPDX-License-Identifier: Apache-2.0
#include "sim/systemc/engines/gemm.h"

#include "base/error.h"
#include "sim/systemc/engines/gemm_form.h"
#include "sim/systemc/npu.h"

namespace tessera::sim::systemc {
namespace {

constexpr Cycle kPrepare = isa::timing::gemm::kPrepare;
constexpr Cycle kWrite = isa::timing::gemm::kWrite;
constexpr Cycle kRead = AccUse::kRead + kReadToBeat;  // as STORE's beats meet it
constexpr Cycle kSumsApart = isa::timing::gemm::kApart;

}  // namespace

void Gemm::reset() {
  Engine::reset();
  free_ = next_take_ = 0;
  last_ = {};
  for (PortUse& port : ports_) {
    port.uses.clear();
    port.now = 0;
  }
  context_.gemm_acc.reset();
}

/// Nobody but LOAD and STORE has to be told, and only when one of them has business with ACC.
void Gemm::use_ports(Cycle now) {
  for (PortUse& port : ports_) {
    while (!port.uses.empty() && port.uses.front().to <= now) port.uses.pop_front();
    const bool used = !port.uses.empty() && port.uses.front().from <= now;
    const double share = used ? port.uses.front().share : 0;
    if (share != port.now) {
      port.now = share;
      context_.ports.set(port.port, PortShares::kGemm, share);
      npu_.port_changed(port.port);
    }
    if (!port.uses.empty() && context_.acc_moves) wake_at(used ? port.uses.front().to : port.uses.front().from);
  }
}

/// Cycles that a sum starting in cycle `start` on this entry waits for one of the last two sums to be written.
Cycle Gemm::wait_for(uint32_t entry, Cycle start) const {
  for (const Sum& sum : last_) {
    if (sum.entry != entry || sum.end >= start) continue;
    if (start < sum.end + kSumsApart) return sum.end + kSumsApart - start;
  }
  return 0;
}

void Gemm::work(Cycle now) {
  use_ports(now);
  if (now < next_take_) {
    wake_at(next_take_);
    return;
  }
  Queued* taken = take(now);
  if (taken == nullptr) return;
  Item& item = taken->item;
  const isa::Gemm* gemm = nullptr;  // none: FENCE
  std::visit(isa::Overloaded{[](const isa::Fence&) {}, [&](const isa::Gemm& instruction) { gemm = &instruction; },
                             [](const isa::ForeignTo<isa::Engine::kGemm> auto&) {
                               TESSERA_INVARIANT(false, "another engine's instruction in GEMM's queue");
                             }},
             taken->instruction);
  if (gemm == nullptr || item.fault != isa::Fault::kNone) {
    const Cycle drained = free_ + isa::timing::gemm::kDrain - 1;
    const Cycle at = std::max(now + (gemm == nullptr ? 1 : kPrepare), drained);
    next_take_ = at + 1;
    complete(item, at);
    wake_at(next_take_);
    return;
  }
  const GemmForm form = form_of(*gemm, context_.config.raster_pairs);
  const Cycle first = std::max(now + isa::timing::gemm::kStart, free_);
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
  item.trace.stall_port_cycles = stalls;
  item.trace.first_cycle = first;
  item.trace.last_cycle = free_ - 1;
  const double share = static_cast<double>(form.sums) / static_cast<double>(form.steps);
  if (gemm->accumulate) ports_[0].uses.push_back({first + kRead, free_ + kRead, share});
  ports_[1].uses.push_back({first + kWrite, free_ + kWrite, share});
  context_.gemm_acc.add(*gemm, form, first, free_, now);
  npu_.gemm_taken();
  complete(item, free_ - 1 + kWrite);
  use_ports(now);
  wake_at(std::max(next_take_, now + 1));
}

}  // namespace tessera::sim::systemc
