// SPDX-License-Identifier: Apache-2.0
// Weights and parameters ahead of what waits for other cores. LOAD takes its instructions in order, so that it rests
// while a core waits, and then all cores fetch what the next layers need at once. Enters: each core's instructions,
// right when run one at a time, without FENCEs. Leaves: the same ones, in which fetches of constants stand earlier.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "compiler/npu/cores/cores_order.h"

namespace tessera::npu {

/// What all streams take together, in cycles, and by core and transfer of LOAD the cycles without data in front of it.
struct Replayed {
  int64_t cycles = 0;
  std::vector<std::vector<int64_t>> rests;
};
/// Nothing where the streams would block each other.
using ReplayAll = std::function<std::optional<Replayed>(std::vector<CoreCode>)>;

/// Moves fetches of constants to where LOAD rests, as far as all cores take fewer cycles by it. `bytes`: of a core's
/// bus, a cycle. Long streams stay as they are.
void fetch_ahead(std::vector<CoreCode>& codes, int64_t bytes, const ReplayAll& replay);

}  // namespace tessera::npu
