// SPDX-License-Identifier: Apache-2.0
// Pieces of work that do not know each other, on several threads. How many there are changes no result.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

namespace tessera::npu {

/// Predictions of whole streams that run at once: each holds a copy of its stream.
inline constexpr size_t kAtOnce = 3;

/// Calls work(item, hand) for the items 0 to count - 1; of those that run at once each has a hand of its own, from 0 to
/// hands - 1. Throws what the first item threw that threw something, after all have ended.
template <typename Work>
void at_once(size_t hands, size_t count, Work&& work) {
  std::vector<std::exception_ptr> thrown(count);
  std::atomic<size_t> next{0};
  const auto serve = [&](size_t hand) {
    for (size_t item = next++; item < count; item = next++) {
      try {
        work(item, hand);
      } catch (...) {
        thrown[item] = std::current_exception();
      }
    }
  };
  std::vector<std::jthread> others;
  for (size_t hand = 1; hand < std::min(hands, count); ++hand) others.emplace_back(serve, hand);
  serve(0);
  others.clear();  // waits
  for (const std::exception_ptr& one : thrown) {
    if (one) std::rethrow_exception(one);
  }
}

}  // namespace tessera::npu
