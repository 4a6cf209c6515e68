// SPDX-License-Identifier: Apache-2.0
// Which nodes of a graph run on Tessera. Enters: a graph of ONNX Runtime. Leaves: partitions, each with a session that
// is open, and for every other node the reason why it stays with ONNX Runtime. The compiler decides: a partition is one
// that it has taken as a model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/onnxruntime_ep/graph_model.h"
#include "tessera/session.h"

namespace tessera::ort {

struct Rules {
  const SessionOptions& options;
  /// Whether a partition gets the values that only subgraphs of its nodes take from outside.
  bool captured_values_pass;
};

struct Partition {
  std::vector<size_t> nodes;  // places in GraphReader::nodes()
  std::string model;          // the bytes that it was made from
  std::shared_ptr<Session> session;
};

struct Partitions {
  std::vector<Partition> taken;
  std::vector<std::string> reasons;  // for each node; empty where it is taken
};

/// One partition where the compiler takes the whole graph, else as few as there can be: nodes of one partition have no
/// path between them through a node outside. `left_out`: reasons of nodes that are no candidates, or empty.
Partitions partitions_of(const GraphReader& graph, std::vector<std::string> left_out, const Rules& rules);

/// Why the compiler does not take the only node of a reader; empty where it does.
std::string reason_against(const GraphReader& node, const Rules& rules);

/// Groups of the nodes that are taken: in an order in which producers stand before consumers, as few groups as there
/// are changes from other nodes to taken ones on a path.
std::vector<std::vector<size_t>> convex_groups(const std::vector<NodeFacts>& nodes, const std::vector<bool>& taken);

}  // namespace tessera::ort
