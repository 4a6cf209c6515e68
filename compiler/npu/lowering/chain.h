// SPDX-License-Identifier: Apache-2.0
// Chains of operations whose intermediate tensors stay in the scratchpads: which operations of a graph they are, and
// their instructions. A graph, the tasks of its operations and the machine enter; links and an interleaved stream of
// instructions leave.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/npu/graph/graph.h"
#include "compiler/npu/lowering/emitter.h"
#include "compiler/npu/tasks/task.h"
#include "compiler/schedule/chain.h"

namespace tessera::npu {

/// Consecutive operations as one piece of work.
struct Chain {
  size_t first = 0;
  std::vector<Task> tasks;                   // of operations first, first + 1, ...
  std::vector<const schedule::Nest*> nests;  // the alternative chosen of each
  schedule::ChainPlan plan;
  size_t size() const { return tasks.size(); }
};

/// Longest chain that is tried.
inline constexpr size_t kMostLinks = 4;

/// For each operation whether its result is read by the next operation alone, as that one's first input, and by nobody
/// else.
std::vector<bool> feeds_next(const Graph& graph);

/// The operations [first, first + count) as links, without a plan; nothing when they cannot be (`reason` then says
/// why). Their nests may be chosen by the first one's layouts. The caller has asked feeds_next().
std::optional<Chain> make_chain(const Graph& graph, size_t first, size_t count,
                                const std::vector<Placement>& placements, const isa::MachineConfig& config,
                                const Options& options, std::string* reason = nullptr);

/// The nests of a chain whose first operation is in its alternative `head`.
std::vector<const schedule::Nest*> nests_of(const Chain& chain, const schedule::Nest& head);

/// Gives the chain the tasks of its operations as they are where tensors have other places. Its plan stays, and what it
/// has room for.
void take_tasks(Chain& chain, std::vector<Task> tasks);

/// Moves the chain's tensors to other places. The layouts that the nests were chosen for must still exist.
void place_chain(Chain& chain, const Graph& graph, const std::vector<Placement>& placements,
                 const isa::MachineConfig& config, const Options& options);

/// The tasks of a compiled graph, where its tensors stand, in order of operations.
std::vector<Task> tasks_of(const Graph& graph, const Program& program, const isa::MachineConfig& config,
                           const Options& options);

/// Appends the chain's instructions. Adds to the links' infos: tiles.
void lower_chain(const Chain& chain, Emitter& emitter, std::vector<LayerInfo>& infos);

/// The chain as it is written down.
schedule::ChainSchedule schedule_of(const Chain& chain, const Graph& graph);

}  // namespace tessera::npu
