// SPDX-License-Identifier: Apache-2.0
// Which results may stay on chip: those that the next operation alone reads. The pass place-chains decides which
// neighbours become chains; this one says which may, and a text can forbid one.
#include "compiler/graph/passes.h"
#include "compiler/npu/lowering/chain.h"

namespace tessera::graph {

void mark_chains(npu::Graph& graph, const PassContext& context) {
  const bool wanted = context.options.chain && context.options.virtual_threads;
  const std::vector<bool> feeds = npu::feeds_next(graph);
  for (size_t i = 0; i < graph.operations.size(); ++i) graph.operations[i].feeds_next = wanted && feeds[i];
}

}  // namespace tessera::graph
