// SPDX-License-Identifier: Apache-2.0
// A graph as a program of several cores. Enters: a checked graph, and a machine with cores > 1. Leaves: a program with
// a stream for each core. How each operation is divided (by images, rows, columns or channels of its result, or not at
// all) is chosen by what its parts take of the engines and of the shared bus, and by who then waits for whom. Each
// core's operations are compiled as a graph of their own, at places that are planned for all of them together.
#pragma once

#include <vector>

#include "compiler/npu/cores/cores_split.h"
#include "compiler/npu/graph/graph.h"

namespace tessera::npu {

/// What each core computes of each operation: the ways of least estimated cycles, for each price of waiting up to
/// `most` with neighbours changed together, the best first, and the best one before that. Of programs that are not
/// short the first one alone. Divisions that the options give stay.
std::vector<Shares> choose_shares(const Graph& graph, const isa::MachineConfig& config, const Options& options,
                                  size_t most);

/// Errors: as compile().
Program compile_cores(const Graph& graph, const isa::MachineConfig& config, const Options& options);

/// A core's operations; `parts`: by operation its number in the graph of parts.
Graph graph_of(const ChipGraph& chip, size_t core, std::vector<uint32_t>& parts);

/// What a core of a chip is compiled by: its share of the bus, and reads that wait so many cycles for their turn on it
/// for each other core.
Options options_of_a_core(const isa::MachineConfig& config, const Options& options, int64_t turn);

/// A checked graph on one core alone.
Program compile_one(const Graph& graph, const isa::MachineConfig& config, const Options& options);

/// Whether depthwise rasters in pairs may have changed which schedules are taken, so that compile_one() also looks for
/// those of a machine without pairs.
bool has_pairs(const Graph& graph, const isa::MachineConfig& config);
isa::MachineConfig without_pairs(isa::MachineConfig config);

/// Of all layers.
int64_t predicted_cycles(const Program& program);

/// Multiply-accumulates of an operation.
int64_t model_macs(const Graph& graph, const Operation& operation);

}  // namespace tessera::npu
