// SPDX-License-Identifier: Apache-2.0
// Which results of each operation have to be computed and stored, whatever is fused: a chain computes what its next
// link reads, and of what stays on the chip (npu/forward.h) the vector unit's work and stores go that nobody reads. A
// graph and the nests of its operations enter; rows and columns leave, at most those that every program needs.
#pragma once

#include <vector>

#include "compiler/npu/graph/graph.h"
#include "compiler/npu/tasks/task.h"
#include "compiler/schedule/bound.h"

namespace tessera::npu {

struct Needed {
  schedule::Lines computed, read;  // of the operation's result; empty lines: nothing of it is known to be needed
  bool all = false;                // the whole result is computed
};

/// Those in the rows and the columns.
int64_t pixels(const schedule::Lines& lines);

/// `tasks`: of each operation, with pixels as they stand. `chains`, `forwards`: what may happen to results.
std::vector<Needed> needed_results(const Graph& graph, const std::vector<std::vector<Task>>& tasks, bool chains,
                                   bool forwards);

}  // namespace tessera::npu
