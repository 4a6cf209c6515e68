// SPDX-License-Identifier: Apache-2.0
// Subgraphs that operators name: inlined into the graph around them, or as bodies of If and Loop. Values inside of one
// have names with a prefix of their own.
#include "compiler/litert/operator.h"

namespace tessera::litert {

using onnx_proto::GraphProto;

namespace {

constexpr int kMostDepth = 32;

void add_identity(GraphProto& proto, const Value& from, const std::string& to) {
  auto& node = *proto.add_node();
  node.set_op_type("Identity");
  node.add_input(from);
  node.add_output(to);
}

void declare(onnx_proto::ValueInfoProto& port, const std::string& name, ops::DType dtype) {
  port.set_name(name);
  auto& type = *port.mutable_type()->mutable_tensor_type();
  type.set_elem_type(static_cast<int32_t>(dtype));
  type.mutable_shape();
}

}  // namespace

Graph Graph::inner(int32_t subgraph, GraphProto& proto, const std::string& prefix, bool own) {
  if (subgraph < 0 || static_cast<size_t>(subgraph) >= model_.subgraphs.size())
    throw Error(ErrorCode::kInvalidModel, "there is no subgraph " + std::to_string(subgraph));
  if (depth_ >= kMostDepth) throw Error(ErrorCode::kInvalidModel, "subgraphs use each other without end");
  Graph graph(model_, static_cast<size_t>(subgraph), kernels_, proto, prefix_ + prefix);
  graph.depth_ = depth_ + 1;
  graph.variables_ = variables_;
  if (own) {
    graph.variables_ = std::make_shared<Variables>(*variables_);
    graph.variables_->fixed = true;
  }
  return graph;
}

namespace {

void require_arguments(const Subgraph& subgraph, size_t count) {
  if (subgraph.inputs.size() != count)
    throw Error(ErrorCode::kInvalidModel, "subgraph '" + subgraph.name + "' has " +
                                              std::to_string(subgraph.inputs.size()) + " inputs and is given " +
                                              std::to_string(count));
}

}  // namespace

Values Graph::inline_subgraph(int32_t subgraph, const Values& arguments, const std::string& prefix) {
  Graph graph = inner(subgraph, proto_, prefix, false);
  require_arguments(graph.subgraph(), arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) graph.arguments_[graph.subgraph().inputs[i]] = arguments[i];
  graph.convert_operators();
  Values results;
  for (const int32_t tensor : graph.subgraph().outputs) results.push_back(graph.value(tensor));
  return results;
}

void Graph::add_outputs(const std::string& condition) {
  if (!condition.empty()) {
    add_identity(proto_, condition, prefix_ + "again");
    declare(*proto_.add_output(), prefix_ + "again", ops::DType::kBool);
  }
  for (size_t i = 0; i < subgraph().outputs.size(); ++i) {
    const int32_t tensor = subgraph().outputs[i];
    const std::string name = prefix_ + "result" + std::to_string(i);
    add_identity(proto_, value(tensor), name);
    auto& port = *proto_.add_output();
    add_port(tensor, port);
    port.set_name(name);
  }
}

GraphProto Graph::branch(int32_t subgraph, const Values& arguments, const std::string& prefix) {
  GraphProto proto;
  Graph graph = inner(subgraph, proto, prefix, true);
  require_arguments(graph.subgraph(), arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) graph.arguments_[graph.subgraph().inputs[i]] = arguments[i];
  proto.set_name(graph.prefix_);
  graph.convert_operators();
  graph.add_outputs("");
  return proto;
}

GraphProto Graph::loop_body(int32_t condition, int32_t body, const std::string& prefix) {
  GraphProto proto;
  Graph graph = inner(body, proto, prefix, true);
  proto.set_name(graph.prefix_);
  declare(*proto.add_input(), graph.prefix_ + "turn", ops::DType::kInt64);
  declare(*proto.add_input(), graph.prefix_ + "goes_on", ops::DType::kBool);
  for (const int32_t tensor : graph.subgraph().inputs) graph.add_port(tensor, *proto.add_input());
  graph.convert_operators();
  Values states;
  for (const int32_t tensor : graph.subgraph().outputs) states.push_back(graph.value(tensor));
  const Values again = graph.inline_subgraph(condition, states, "condition/");
  if (again.size() != 1) throw Error(ErrorCode::kInvalidModel, "a condition has more than one result, or none");
  graph.add_outputs(again[0]);
  return proto;
}

}  // namespace tessera::litert
