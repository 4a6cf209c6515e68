// SPDX-License-Identifier: Apache-2.0
// The turns of each core's engines, decided by all streams together: a core's own replay sees nothing of what it waits
// for others, nor of the bus that they share. Enters: each core's instructions, right when run one at a time, without
// FENCEs. Leaves: the same ones in an order that does the same.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "compiler/npu/assembly/interleave.h"
#include "compiler/npu/cores/cores_order.h"

namespace tessera::npu {

/// What the streams take together, in cycles; nothing where they would block each other.
using Together = std::function<std::optional<int64_t>(const std::vector<CoreCode>&)>;
/// What a core's stream takes alone, with its share of the bus, in cycles.
using Alone = std::function<int64_t(const CoreCode&)>;
/// The instructions of a core that wait for others.
using AwaitsOf = std::function<Awaits(const CoreCode&)>;

/// Puts the instructions of each core into the order with which all cores take the fewest cycles together. Long streams
/// stay as they are.
void refine(std::vector<CoreCode>& codes, const AwaitsOf& awaits, const Alone& alone, const Together& together);

}  // namespace tessera::npu
