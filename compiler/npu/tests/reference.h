// SPDX-License-Identifier: Apache-2.0
// For tests: what a Graph means, in plain loops over plain arrays, and a run of its compiled program on the functional
// simulator. The loops share nothing with the generator but the structs of graph.h. A run poisons scratchpads and
// arena, checks races, and places constants and arena at two different addresses.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "compiler/npu/graph/graph.h"

namespace tessera::npu::test {

/// Elements of a tensor in NHWC order.
using Values = std::vector<int32_t>;

/// Values of every tensor of the graph after all operations, from those of its inputs (in the order of graph.inputs).
/// `length`: of the rows whose length is known when they run.
std::vector<Values> evaluate(const Graph& graph, const std::vector<Values>& inputs, int64_t length = 0);

/// Compiles and runs the graph, compares every graph output with evaluate(). Returns what went wrong, or "". What stays
/// from run to run has random bytes before the run, behind a past of random length up to `options.room`.
/// `program`: receives the program when not null. `change`: is applied to its instructions before they run.
std::string compare(const Graph& graph, const isa::MachineConfig& config, uint64_t seed, const Options& options = {},
                    Program* program = nullptr, const std::function<void(std::vector<isa::Instruction>&)>& change = {});

/// The same of a program that the graph was compiled to with these options.
std::string compare(const Graph& graph, const isa::MachineConfig& config, uint64_t seed, const Options& options,
                    const Program& program);

/// Pools the graph's output over its whole width: `pool` has the kind, the value of padding and the stage. The result
/// is the output.
void append_pool(Graph& graph, Pool pool);

/// Random values of a tensor's type, from a seed; inputs of compare().
Values random_values(const Tensor& tensor, std::mt19937_64& random);

}  // namespace tessera::npu::test
