// SPDX-License-Identifier: Apache-2.0
// Pieces of work that do not know each other, on several threads. How many there are changes no result.
#pragma once

#include <cstddef>
#include <functional>

namespace tessera::npu {

/// Predictions of whole streams that run at once: each holds a copy of its stream.
inline constexpr size_t kAtOnce = 3;

/// Calls work(item, hand) for the items 0 to count - 1; of those that run at once each has a hand of its own, from 0 to
/// hands - 1. The caller is the first hand, and threads that have nothing else to do are the others, so items may have
/// items of their own. Throws what the first item threw that threw something, after all have ended.
void at_once(size_t hands, size_t count, const std::function<void(size_t item, size_t hand)>& work);

}  // namespace tessera::npu
