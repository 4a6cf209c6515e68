// SPDX-License-Identifier: Apache-2.0
// The order by counts of missing producers; a walk back along them finds the cycle where there is none.
#include "compiler/onnx/node_order.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <queue>
#include <set>
#include <unordered_map>

#include "base/error.h"

namespace tessera::onnx {

using google::protobuf::RepeatedPtrField;
using onnx_proto::AttributeProto;
using onnx_proto::GraphProto;
using onnx_proto::NodeProto;

namespace {

[[noreturn]] void refuse_order(const std::string& message) { throw Error(ErrorCode::kInvalidModel, message); }

/// Names that a node uses, those that its subgraphs take from outside included.
void collect_uses(const NodeProto& node, std::set<std::string>& uses, int depth) {
  if (depth > kMaxDepth) refuse_order(describe(node) + ": subgraphs nest deeper than " + std::to_string(kMaxDepth));
  for (const std::string& input : node.input()) {
    if (!input.empty()) uses.insert(input);
  }
  auto add_graph = [&](const GraphProto& graph) {
    std::set<std::string> inner;
    for (const NodeProto& n : graph.node()) collect_uses(n, inner, depth + 1);
    for (const auto& output : graph.output()) inner.insert(output.name());
    for (const auto& input : graph.input()) inner.erase(input.name());
    for (const auto& tensor : graph.initializer()) inner.erase(tensor.name());
    for (const auto& tensor : graph.sparse_initializer()) inner.erase(tensor.values().name());
    for (const NodeProto& n : graph.node()) {
      for (const std::string& output : n.output()) inner.erase(output);
    }
    uses.insert(inner.begin(), inner.end());
  };
  for (const AttributeProto& attribute : node.attribute()) {
    if (attribute.has_g()) add_graph(attribute.g());
    for (const GraphProto& graph : attribute.graphs()) add_graph(graph);
  }
}

}  // namespace

std::string display_name(const NodeProto& node) {
  if (!node.name().empty()) return node.name();
  for (const std::string& output : node.output()) {
    if (!output.empty()) return output;
  }
  return node.op_type();
}
std::string describe(const NodeProto& node) { return "node '" + display_name(node) + "' (" + node.op_type() + ")"; }

std::vector<int> sort_nodes(const RepeatedPtrField<NodeProto>& nodes, const std::string& where) {
  std::unordered_map<std::string, int> producer;
  for (int i = 0; i < nodes.size(); ++i) {
    for (const std::string& output : nodes[i].output()) {
      if (output.empty()) continue;
      auto [it, inserted] = producer.emplace(output, i);
      if (!inserted) {
        refuse_order(describe(nodes[i]) + ": produces '" + output + "', which " + describe(nodes[it->second]) +
                     " produces already; each value of " + where + " must have one producer");
      }
    }
  }
  std::vector<std::vector<int>> consumers(static_cast<size_t>(nodes.size()));
  std::vector<std::vector<int>> producers(static_cast<size_t>(nodes.size()));
  std::vector<int> missing(static_cast<size_t>(nodes.size()), 0);
  for (int i = 0; i < nodes.size(); ++i) {
    std::set<std::string> uses;
    collect_uses(nodes[i], uses, 0);
    for (const std::string& use : uses) {
      auto it = producer.find(use);
      if (it == producer.end()) continue;
      consumers[static_cast<size_t>(it->second)].push_back(i);
      producers[static_cast<size_t>(i)].push_back(it->second);
      ++missing[static_cast<size_t>(i)];
    }
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int i = 0; i < nodes.size(); ++i) {
    if (missing[static_cast<size_t>(i)] == 0) ready.push(i);
  }
  std::vector<int> order;
  while (!ready.empty()) {
    int i = ready.top();
    ready.pop();
    order.push_back(i);
    for (int consumer : consumers[static_cast<size_t>(i)]) {
      if (--missing[static_cast<size_t>(consumer)] == 0) ready.push(consumer);
    }
  }
  if (static_cast<int>(order.size()) == nodes.size()) return order;
  // Walk backwards along unsatisfied producers until a node repeats: that is a cycle.
  int at =
      static_cast<int>(std::find_if(missing.begin(), missing.end(), [](int m) { return m > 0; }) - missing.begin());
  std::vector<int> path;
  while (std::find(path.begin(), path.end(), at) == path.end()) {
    path.push_back(at);
    for (int p : producers[static_cast<size_t>(at)]) {
      if (missing[static_cast<size_t>(p)] > 0) {
        at = p;
        break;
      }
    }
  }
  std::string text;
  auto start = std::find(path.begin(), path.end(), at);
  for (auto it = path.rbegin(); it != std::make_reverse_iterator(start); ++it)
    text += "'" + display_name(nodes[*it]) + "' -> ";
  refuse_order(where + " has a cycle: " + text + "'" + display_name(nodes[path.back()]) +
               "'; an ONNX graph must be acyclic");
}

}  // namespace tessera::onnx
