// SPDX-License-Identifier: Apache-2.0
// The last step of partitioning: graphs whose passes have run, and the order of turns, become the program container.
#pragma once

#include <vector>

#include "compiler/partition/partition.h"
#include "compiler/partition/select.h"

namespace tessera::partition {

/// Errors: those of partition().
program::Artifact package(mlir::func::FuncOp function, const Selection& selection,
                          const std::vector<npu::Graph>& graphs, const isa::MachineConfig& config,
                          const Options& options);

}  // namespace tessera::partition
