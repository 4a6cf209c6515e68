// SPDX-License-Identifier: Apache-2.0
// What a graph must satisfy before code is generated: indices, shapes, value ranges, order. Everything behind this
// check may rely on it.
#pragma once

#include "compiler/npu/graph/graph.h"

namespace tessera::npu {

/// Throws Error kInvalidArgument; the message names the operation (or tensor), the rule and the values.
void check_graph(const Graph& graph);

}  // namespace tessera::npu
