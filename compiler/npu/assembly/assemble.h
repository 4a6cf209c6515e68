// SPDX-License-Identifier: Apache-2.0
// The last choices of a compilation, which concern the whole stream: what stays on the chip between its layers and when
// weights are fetched. Each way is predicted, the fastest is taken.
#pragma once

#include "compiler/emit/synchronise.h"
#include "compiler/npu/graph/plan.h"
#include "compiler/npu/lowering/emitter.h"
#include "compiler/npu/values/forward.h"

namespace tessera::npu {

/// Where the outputs of a graph lie in the arena.
ArenaBytes results_of(const Graph& graph, const std::vector<Placement>& placements);

/// What the order of a stream's instructions has to heed, beside their own addresses.
emit::SynchroniseOptions order_of(const MemoryPlan& plan, const Options& options);

/// The stream out of the steps of a whole graph, not yet synchronised. `judged`: false takes the first way of each
/// choice without a prediction, and forwards nothing.
Emitter assembled(Emitter lowered, const ArenaBytes& results, const emit::SynchroniseOptions& order,
                  const Options& options, bool judged);

}  // namespace tessera::npu
