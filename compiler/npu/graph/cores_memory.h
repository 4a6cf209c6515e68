// SPDX-License-Identifier: Apache-2.0
// Places of tensors where several cores work at once. As plan.h, and for each tensor who touches it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "compiler/npu/graph/plan.h"

namespace tessera::npu {

/// `owners`, by tensor: the core that alone reads and writes it, or a negative number. Tensors share memory with those
/// of the same core alone, and where there is none with nobody.
MemoryPlan plan_memory(const Graph& graph, const Options& options, const std::vector<bool>& on_chip,
                       const std::vector<std::pair<int64_t, int64_t>>& when, const std::vector<int>& owners);

}  // namespace tessera::npu
