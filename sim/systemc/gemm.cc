// SPDX-License-Identifier: Apache-2.0
#include "sim/systemc/gemm.h"

#include "sim/systemc/npu.h"

namespace tessera::sim::systemc {
namespace {

constexpr Cycle kPrepare = 7;  // from taking to the end of the range check
constexpr Cycle kWrite = 3;    // from a tile to its write

}  // namespace

void Gemm::reset() {
  Engine::reset();
  free_ = next_take_ = 0;
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

void Gemm::work(Cycle now) {
  use_ports(now);
  if (now < next_take_) {
    wake_at(next_take_);
    return;
  }
  Item* item = take(now);
  if (item == nullptr) return;
  const auto* gemm = std::get_if<isa::Gemm>(&item->instruction);
  const Cycle drained = free_ + kWrite;
  if (gemm == nullptr || item->fault != isa::Fault::kNone) {
    const Cycle at = std::max(now + (gemm == nullptr ? 1 : kPrepare), drained);
    next_take_ = at + 1;
    complete(*item, at);
    wake_at(next_take_);
    return;
  }
  uint64_t tiles = 1, sum_tiles = 1;
  for (int k = 0; k < isa::kLoops; ++k) {
    tiles *= gemm->extent[static_cast<size_t>(k)];
    if (k >= isa::kLoops - gemm->reduce) sum_tiles *= gemm->extent[static_cast<size_t>(k)];
  }
  const Cycle first = std::max(now + kPrepare + 1, free_);
  free_ = first + tiles;
  next_take_ = first - 1;
  counters().busy += tiles;
  item->trace.first_cycle = first;
  item->trace.last_cycle = free_ - 1;
  const double share = 1.0 / static_cast<double>(sum_tiles);
  uses_.push_back({first + 2, free_ + 2, gemm->accumulate ? share : 0, share});
  complete(*item, free_ - 1 + kWrite);
  use_ports(now);
  wake_at(std::max(next_take_, now + 1));
}

}  // namespace tessera::sim::systemc
