// SPDX-License-Identifier: Apache-2.0
// Variables and states of a LiteRT model as inputs and outputs of the ONNX graph (states.h).
#include "compiler/litert/states.h"

#include <algorithm>

#include "compiler/litert/operator.h"

namespace tessera::litert {

namespace {

void add_node(onnx_proto::GraphProto& proto, const char* op_type, const Values& operands, const Value& result) {
  auto& node = *proto.add_node();
  node.set_op_type(op_type);
  for (const Value& operand : operands) node.add_input(operand);
  node.add_output(result);
}

bool is_open(const TensorInfo& tensor) { return std::count(tensor.shape.begin(), tensor.shape.end(), -1) > 0; }

/// Names of the variables that some subgraph assigns, those left out that CALL_ONCE names.
std::set<std::string> assigned_variables(const Model& model) {
  std::set<size_t> first;
  for (const Subgraph& graph : model.subgraphs) {
    for (const OperatorInfo& op : graph.operators) {
      if (op.code == BuiltinOperator::kCallOnce)
        first.insert(static_cast<size_t>(op.options[CallOnceOptions::init_subgraph_index]));
    }
  }
  std::set<std::string> names;
  for (size_t g = 0; g < model.subgraphs.size(); ++g) {
    if (first.count(g) != 0) continue;
    std::map<int32_t, std::string> handles;
    for (const OperatorInfo& op : model.subgraphs[g].operators) {
      if (op.code == BuiltinOperator::kVarHandle && !op.outputs.empty())
        handles[op.outputs[0]] = variable_name(op);
      else if (op.code == BuiltinOperator::kAssignVariable && !op.inputs.empty())
        names.insert(handles[op.inputs[0]]);
    }
  }
  return names;
}

}  // namespace

std::string variable_name(const OperatorInfo& handle) {
  return std::string(handle.options[VarHandleOptions::container]) + "/" +
         std::string(handle.options[VarHandleOptions::shared_name]);
}

Value Graph::carried(const std::string& name, const TensorInfo& like, const Value& first) {
  const Value flag(kFirstRun), before = std::string(kStateBefore) + name;
  if (names_.insert(flag).second) {
    onnx_proto::ValueInfoProto& port = *proto_.add_input();
    port.set_name(flag);
    port.mutable_type()->mutable_tensor_type()->set_elem_type(static_cast<int32_t>(ops::DType::kBool));
    port.mutable_type()->mutable_tensor_type()->mutable_shape();
  }
  add_port(before, like, *proto_.add_input());
  Value now = fresh(prefix_ + name + "/before");
  add_node(proto_, "Where", {flag, first, before}, now);
  return now;
}

void Graph::carry_on(const std::string& name, const TensorInfo& like, const Value& value) {
  const Value behind = std::string(kStateBehind) + name;
  add_node(proto_, "Identity", {value}, behind);
  add_port(behind, like, *proto_.add_output());
}

void Graph::carry_variables() {
  if (depth_ > 0 || variables_->fixed) return;
  const std::set<std::string> assigned = assigned_variables(model_);
  for (auto& [name, present] : variables_->values) {
    if (assigned.count(name) == 0 || is_open(*present.like) || !carried_.insert(name).second) continue;
    present.value = carried(name, *present.like, present.value);
  }
}

Value Graph::state(int32_t tensor) {
  if (const auto known = states_.find(tensor); known != states_.end()) return known->second;
  const TensorInfo& info = subgraph().tensors.at(static_cast<size_t>(tensor));
  const Value zeros = fresh(prefix_ + info.name + "/zeros");
  add_initializer(zeros, ops::Tensor(to_dtype(info.type, "tensor '" + info.name + "'"), info.shape));
  const bool carries = depth_ == 0 && !variables_->fixed;
  return states_[tensor] = carries ? carried(info.name, info, zeros) : zeros;
}

void Graph::carry_states_on() {
  for (const std::string& name : carried_) {
    const Present& present = variables_->values.at(name);
    carry_on(name, *present.like, present.value);
  }
  for (const auto& [tensor, value] : states_) {
    const TensorInfo& info = subgraph().tensors.at(static_cast<size_t>(tensor));
    carry_on(info.name, info, value);
  }
}

void Op::set_state(size_t i, const Value& value) {
  if (input(i).is_variable) graph_.set_state(info_.inputs[i], value);
}

}  // namespace tessera::litert
