// SPDX-License-Identifier: Apache-2.0
// What is decided of a chip's streams by all of them together: the turns of each core's engines, and which layers move
// and multiply in smaller pieces. A core's own replay sees none of what it waits for others. Enters: each core's
// instructions, right when run one at a time, without FENCEs. Leaves: the same or others that do the same.
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

/// Changes the streams to those that take the fewest cycles together. `orders`: whether turns are looked at, `pieces`:
/// whether layers are.
void refine(std::vector<CoreCode>& codes, const isa::MachineConfig& config, const AwaitsOf& awaits,
            const Alone& alone, const Together& together, bool orders, bool pieces);

}  // namespace tessera::npu
