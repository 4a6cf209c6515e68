// SPDX-License-Identifier: Apache-2.0
// From a graph of ONNX Runtime to an ONNX model. Enters: a graph and some of its nodes, through the C interface.
// Leaves: the bytes of a model that holds them with their constants and subgraphs, and that can be told from others by
// these bytes: nodes in the order of their numbers, inputs and outputs in the order of their names.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tessera/onnxruntime_ep/ort_api.h"

namespace tessera::ort {

/// A value that crosses the border of some nodes.
struct BorderValue {
  const ValueInfo* info = nullptr;
  bool passes = false;  // a tensor of a type that both sides hold in memory in the same way
};

/// A node with what decides where it runs.
struct NodeFacts {
  const Node* node = nullptr;
  size_t id = 0;
  std::string name, op_type, domain;  // domain "": ONNX's own
  std::vector<std::string> uses;      // values that are no constants, those that its subgraphs take included
  std::vector<std::string> captured;  // of these, what its subgraphs take
  std::vector<std::string> results;
};

class GraphReader {
 public:
  GraphReader(const Api& api, const Graph* graph);
  /// One node alone, whose results are the outputs; the graph is one of the same model.
  GraphReader(const Api& api, const Graph* graph, const Node* node);

  /// In an order in which producers stand before consumers.
  const std::vector<NodeFacts>& nodes() const { return nodes_; }
  /// Versions of the operator sets by domain.
  const std::map<std::string, int64_t>& operator_sets() const { return operator_sets_; }
  const BorderValue& value(const std::string& name) const { return values_.at(name); }
  bool is_output(const std::string& name) const { return outputs_.contains(name); }
  std::string name() const;
  /// Of the file that the model was read from; empty for a model in memory.
  std::string path() const;

  struct Border {
    std::set<std::string> inputs, outputs;
  };
  /// What some nodes take from outside, and what others or the graph's outputs take from them.
  Border border_of(const std::vector<size_t>& nodes) const;
  /// The model of some nodes, given by their places in nodes(), with these inputs and outputs. Errors: kUnsupported for
  /// what the interface does not show, naming the node, and beyond the 2 GiB of protobuf.
  std::string model_of(const std::vector<size_t>& nodes, const Border& border) const;

  /// Attributes of a node that are words, by name, and one that is a number.
  std::map<std::string, std::string> strings_of(const Node* node) const;
  int64_t int_of(const Node* node, const std::string& name, int64_t otherwise) const;

 private:
  GraphReader(const Api& api, const Graph* graph, const std::vector<const Node*>& nodes);

  const Api& api_;
  const Graph* graph_;
  std::vector<NodeFacts> nodes_;
  std::map<std::string, int64_t> operator_sets_;
  std::map<std::string, BorderValue> values_;  // no constants
  std::map<std::string, std::vector<size_t>> users_;
  std::set<std::string> outputs_;
};

/// "node 'name' (Op)"; a node without a name is called by its first result.
std::string describe(const NodeFacts& node);

}  // namespace tessera::ort
