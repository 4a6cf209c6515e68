// SPDX-License-Identifier: Apache-2.0
// How the cores of a chip wait for each other: each counts the publishing FENCEs that it has completed, and all see it.
// Threads: one core publishes on its own counter, any may read it; what a core has written before it publishes is seen
// by the one that has read the count.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "isa/config.h"
#include "isa/generated/instructions.h"

namespace tessera::sim {

using PublicCounts = std::array<uint16_t, isa::kMostCores>;  // by core

/// Whether the FENCE need not wait for another core.
inline bool holds(const isa::Fence& fence, const PublicCounts& counts) {
  return !fence.await || static_cast<int16_t>(counts[fence.await_core] - fence.await_count) >= 0;
}

class PublicCounters {
 public:
  uint16_t count(size_t core) const { return counts_[core].load(std::memory_order_acquire); }
  void publish(size_t core) {
    counts_[core].fetch_add(1, std::memory_order_release);
    if (published) published();
  }
  /// All of them, each as it is when it is read.
  PublicCounts counts() const {
    PublicCounts found;
    for (size_t core = 0; core < found.size(); ++core) found[core] = count(core);
    return found;
  }

  /// Called after each publish, on the core's thread.
  std::function<void()> published;

 private:
  std::array<std::atomic<uint16_t>, isa::kMostCores> counts_{};
};

}  // namespace tessera::sim
