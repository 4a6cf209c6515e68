// SPDX-License-Identifier: Apache-2.0
// Who computes what, and in which order. Enters: a block of nn operations. Leaves: turns of the NPU and of the CPU, and
// the value graph of each NPU turn. Only what the results need is there: an operation that a claim stands for
// disappears unless somebody else reads its value. A graph of the NPU grows as far as it can; then the CPU operations
// that are ready run; and so on until all is placed. The bodies of If, Loop and Scan are blocks with turns of their
// own: what stands around a body is on the host for it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "compiler/graph/value_graph.h"
#include "compiler/nn/bridge.h"
#include "compiler/nn/growing_axes.h"
#include "isa/config.h"
#include "isa/program/artifact.h"
#include "mlir/IR/Block.h"

namespace tessera::partition {

/// One turn of the NPU or of the CPU.
struct Turn {
  std::optional<size_t> graph;  // of the NPU: index into Selection::graphs
  std::vector<nn::NodeOp> cpu;  // or operations in order
};

struct Selection {
  std::vector<Turn> turns;
  std::map<const mlir::Block*, std::vector<Turn>> bodies;  // of operations in CPU turns, at any depth
  std::vector<graph::ValueGraph> graphs;                   // named npu0, npu1, ..; ValueGraph::numbers index `values`
  std::vector<mlir::Value> values;
  std::set<const void*> claim_reads;     // values that claims read past the operations they stand for
  std::vector<int64_t> cache_bytes;      // of values that stay on the device, by graph::Value::cache
  std::map<const void*, uint8_t> fills;  // of values of the host that grow: the byte behind their end
};

/// What the machine computes of an operation that the matchers recognise; nothing: all of it.
using Ability = std::function<bool(const graph::Operation&, const graph::ValueGraph&)>;
/// That of a configuration.
Ability ability_of(const isa::MachineConfig& config);

/// Indices of the graphs in the order of their programs: that of the turns, with bodies where their operation stands.
std::vector<size_t> graphs_in_order(const Selection& selection);

/// `use_npu` false: everything on the CPU. `growing`: axes whose extent is known at run time, and that the NPU computes
/// at their largest; `growth`: of a decoder, with the inputs that a Concat may extend where they are. The bodies of a
/// decoder that grows stay on the CPU. Errors: kInternal.
Selection select(mlir::Block& block, bool use_npu, const Ability& ability = {}, const nn::GrowingAxes& growing = {},
                 const program::Growth& growth = {});

}  // namespace tessera::partition
