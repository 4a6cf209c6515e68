// SPDX-License-Identifier: Apache-2.0
// Chains of operations whose intermediate tensors stay in the scratchpads: which operations of a graph they are, and
// their instructions. A graph, the tasks of its operations and the machine enter; links and an interleaved stream of
// instructions leave.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/npu/emitter.h"
#include "compiler/npu/graph.h"
#include "compiler/npu/task.h"
#include "compiler/schedule/chain.h"

namespace tessera::npu {

/// Consecutive operations as one piece of work.
struct Chain {
  size_t first = 0;
  std::vector<Task> tasks;                   // of operations first, first + 1, ...
  std::vector<const schedule::Nest*> nests;  // the alternative chosen of each
  schedule::ChainPlan plan;
  std::vector<schedule::ChainPlan> others;  // plans that may do better
  size_t size() const { return tasks.size(); }
};

/// Longest chain that is tried.
inline constexpr size_t kMostLinks = 4;

/// For each operation whether its result is read by the next operation alone, as that one's first input, and by nobody
/// else.
std::vector<bool> feeds_next(const Graph& graph);

/// The chain of `count` operations from `first` on with the best plan, or with the given tile; nothing when there is
/// none (`reason` then says why). The caller has asked feeds_next().
std::optional<Chain> make_chain(const Graph& graph, size_t first, size_t count,
                                const std::vector<Placement>& placements, const isa::MachineConfig& config,
                                const Options& options, const schedule::ChainTile* tile, std::string* reason = nullptr);

/// Moves the chain's tensors to other places. The layouts that the nests were chosen for must still exist.
void place_chain(Chain& chain, const Graph& graph, const std::vector<Placement>& placements,
                 const isa::MachineConfig& config, const Options& options);

/// Appends the chain's instructions. Adds to the links' infos: tiles, padded_macs.
void lower_chain(const Chain& chain, Emitter& emitter, std::vector<LayerInfo>& infos);

/// {"chain": [names], "tile": {"oh", "ow", "blocks"}} and back: nothing when the text is no chain's. Errors:
/// kInvalidArgument naming the key.
std::string to_json(const Chain& chain, const Graph& graph);
struct GivenChain {
  std::vector<std::string> names;
  schedule::ChainTile tile;
};
std::optional<GivenChain> chain_from_json(const std::string& text);

}  // namespace tessera::npu
