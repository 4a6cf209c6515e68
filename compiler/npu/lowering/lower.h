// SPDX-License-Identifier: Apache-2.0
// From a task and its schedule to instructions without waits. A nest, its weights and stage and a legal schedule enter;
// LOAD, GEMM, ALU and STORE instructions leave in an order in which they could run one at a time, tile after tile. Each
// operand of each tile lives in a slot of a ring; a fetch is skipped while the slot still holds the tile. Who must wait
// for whom is found afterwards from the addresses (compiler/emit/synchronise).
#pragma once

#include "compiler/npu/graph/graph.h"
#include "compiler/npu/lowering/emitter.h"
#include "compiler/npu/tasks/task.h"
#include "compiler/schedule/schedule.h"

namespace tessera::npu {

/// Appends the instructions of a task under a schedule of `nest` (one of its alternatives). Adds to info: tiles.
void lower(const Task& task, const schedule::Nest& nest, const schedule::Schedule& schedule, Emitter& emitter,
           LayerInfo& info);

}  // namespace tessera::npu
