// SPDX-License-Identifier: Apache-2.0
// Which tensors stay on chip and which live in DRAM. The generator's planner finds the cheapest way to cut the sequence
// of operations into single ones and chains; this pass writes it down as scopes, and the generator then does what the
// graph says. A scope that stands there already is kept, so a text can split a chain or ask for one.
#include "compiler/graph/passes.h"
#include "compiler/npu/graph/graph.h"

namespace tessera::graph {

void place_chains(npu::Graph& graph, const PassContext& context) {
  if (context.config.cores > 1) return;  // each core has chains of its own (npu/cores.h)
  npu::Options options = context.options;
  if (context.schedules) options.schedules = context.schedules(graph);
  npu::place_chains(graph, context.config, options);
}

}  // namespace tessera::graph
