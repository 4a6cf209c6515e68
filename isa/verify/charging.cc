// SPDX-License-Identifier: Apache-2.0
// The work of each engine becomes disjoint stretches; then one sweep over their borders counts every cycle once.
#include "isa/verify/charging.h"

#include <algorithm>

namespace tessera::isa {

namespace {

/// Sorted and disjoint.
void make_disjoint(std::vector<Stretch>& stretches) {
  std::stable_sort(stretches.begin(), stretches.end(),
                   [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
  uint64_t reached = 0;
  for (Stretch& stretch : stretches) {
    stretch.begin = std::max(stretch.begin, reached);
    reached = std::max(reached, stretch.end);
  }
  std::erase_if(stretches, [](const Stretch& stretch) { return stretch.begin >= stretch.end; });
}

}  // namespace

std::vector<std::array<uint64_t, kCharges>> charge(std::array<std::vector<Stretch>, kChargedEngines> work,
                                                   size_t layers, uint64_t cycles) {
  std::vector<std::array<uint64_t, kCharges>> result(layers);
  if (layers == 0) return result;
  for (auto& stretches : work) make_disjoint(stretches);
  std::array<size_t, kChargedEngines> next{};
  uint32_t current = 0;  // the layer that was charged last
  for (uint64_t now = 0; now < cycles;) {
    // The first engine that works now, and how long nothing changes for it and those before it.
    size_t cause = 0;
    uint64_t until = cycles;
    uint32_t owner = kNoLayer, coming = kNoLayer;
    for (; cause < work.size(); ++cause) {
      auto& at = next[cause];
      while (at < work[cause].size() && work[cause][at].end <= now) ++at;
      if (at == work[cause].size()) continue;
      const Stretch& stretch = work[cause][at];
      if (stretch.begin <= now) {
        until = std::min(until, stretch.end);
        owner = stretch.layer;
        break;
      }
      if (stretch.begin < until) {
        until = stretch.begin;
        coming = stretch.layer;
      }
    }
    if (cause == work.size()) owner = coming;  // nobody works: charged to what is waited for
    if (owner < layers) current = owner;
    result[current][cause] += until - now;
    now = until;
  }
  return result;
}

}  // namespace tessera::isa
