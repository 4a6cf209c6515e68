// SPDX-License-Identifier: Apache-2.0
// The last step of partitioning: graphs whose passes have run, and the order of turns, become the program container.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/partition/partition.h"
#include "compiler/partition/select.h"

namespace tessera::partition {

/// The schedules given for the layers of a graph. `named` counts the layers of each name in all graphs before, in the
/// order of turns.
std::vector<std::optional<schedule::LayerSchedule>> given_schedules(const npu::Graph& graph, const Options& options,
                                                                    std::map<std::string, int64_t>& named);

/// Errors: those of partition().
program::Artifact package(mlir::func::FuncOp function, const Selection& selection,
                          const std::vector<npu::Graph>& graphs, const isa::MachineConfig& config,
                          const Options& options);

}  // namespace tessera::partition
