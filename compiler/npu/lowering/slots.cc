// SPDX-License-Identifier: Apache-2.0
// Of a few places that which overlaps least with what is in use.
#include "compiler/npu/lowering/slots.h"

#include <algorithm>

#include "base/error.h"

namespace tessera::npu {

int64_t Slots::place(isa::Space space, int64_t depth, int64_t total, int64_t first) const {
  const auto [begin, end] = in_use_[static_cast<size_t>(space)];
  int64_t best = 0, best_overlap = -1;
  for (const int64_t base : {end, int64_t{0}, begin - total, depth - total}) {
    if (base < 0 || base + total > depth) continue;
    const auto overlap = [&, begin = begin, end = end](int64_t size) {
      return std::max<int64_t>(0, std::min(base + size, end) - std::max(base, begin));
    };
    const int64_t cost = overlap(first) * (depth + 1) + overlap(total);
    if (best_overlap >= 0 && cost >= best_overlap) continue;
    best = base;
    best_overlap = cost;
  }
  return best;
}

int64_t Slots::reserve(isa::Space space, int64_t depth, int64_t total, int64_t first) {
  TESSERA_INVARIANT(total <= depth, "a schedule reserves more than a scratchpad");
  const int64_t best = place(space, depth, total, first);
  in_use_[static_cast<size_t>(space)] = {best, best + total};
  log_.push_back({true, space, best, best + total, first});
  return best;
}

void Slots::set_in_use(isa::Space space, int64_t begin, int64_t end) {
  in_use_[static_cast<size_t>(space)] = {begin, end};
  log_.push_back({false, space, begin, end, 0});
}

bool same_slots(const SlotLog& log, const isa::MachineConfig& config) {
  Slots slots;
  return std::all_of(log.begin(), log.end(), [&](const SlotStep& step) {
    if (!step.reserved) {
      slots.set_in_use(step.space, step.begin, step.end);
      return true;
    }
    const int64_t depth = config.depth(step.space), total = step.end - step.begin;
    return total <= depth && slots.reserve(step.space, depth, total, step.first) == step.begin;
  });
}

}  // namespace tessera::npu
