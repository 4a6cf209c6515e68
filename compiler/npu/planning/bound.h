// SPDX-License-Identifier: Apache-2.0
// What no program of a whole graph does without on a machine, whatever its schedules, its chains and the sizes of the
// scratchpads: what a machine is too slow for is known without a search. A checked graph, as it stands before anyone
// looks for schedules, enters; least cycles, bytes and products leave.
#pragma once

#include <cstdint>

#include "compiler/npu/graph/graph.h"
#include "compiler/npu/tasks/task.h"
#include "isa/config.h"

namespace tessera::npu {

struct GraphBound {
  int64_t cycles = 0;  // of the prediction, too
  int64_t bytes = 0;   // of DRAM: constants once, and tensors that cannot stay on chip
  int64_t macs = 0;    // of dense products, padding of blocks included
};

/// Engines of different operations may work at the same time, so that cycles are those of the busiest of matrix
/// engine, vector unit and bus over the whole graph. The border of a folded first layer need not be there yet, and
/// factors need not be transposed.
GraphBound graph_bound(const Graph& graph, const isa::MachineConfig& config, const Options& options);

/// Entries of PARAM that have biases other than zero, which are fetched with their scales: a nest's channels at least
/// once each.
int64_t biased_entries(const Task& task, const schedule::Nest& nest);

}  // namespace tessera::npu
