// SPDX-License-Identifier: Apache-2.0
// IF, WHILE, variables and compositions. Variables become plain values: what was assigned last is what is read, in the
// run before where this one has not (states.h). A body may read but not assign them.
#include "compiler/litert/build.h"

namespace tessera::litert {
namespace {

Values operands_from(Op& op, size_t first) {
  Values operands;
  for (size_t i = first; i < op.input_count(); ++i) operands.push_back(op.value(i));
  return operands;
}

void give_all(Op& op, const Values& results) {
  if (results.size() != op.output_count())
    op.refuse("the subgraph has another number of results", ErrorCode::kInvalidModel);
  for (size_t i = 0; i < results.size(); ++i) op.give(i, results[i]);
}

std::string prefix_of(Op& op) { return op.output().name + "/"; }

void convert_if(Op& op) {
  const Values operands = operands_from(op, 1);
  std::map<std::string, onnx_proto::GraphProto> bodies;
  bodies["then_branch"] =
      op.graph().branch(op.option(IfOptions::then_subgraph_index), operands, prefix_of(op) + "then/");
  bodies["else_branch"] =
      op.graph().branch(op.option(IfOptions::else_subgraph_index), operands, prefix_of(op) + "else/");
  const Value condition = op.reshape(op.value(0), {});
  give_all(op, op.nodes_with_bodies("If", {condition}, std::move(bodies), op.output_count()));
}

void convert_while(Op& op) {
  const int32_t condition = op.option(WhileOptions::cond_subgraph_index),
                body = op.option(WhileOptions::body_subgraph_index);
  Values operands = operands_from(op, 0);
  const Values first = op.graph().inline_subgraph(condition, operands, prefix_of(op) + "condition/");
  if (first.size() != 1) op.refuse("the condition must have one result", ErrorCode::kInvalidModel);
  std::map<std::string, onnx_proto::GraphProto> bodies;
  bodies["body"] = op.graph().loop_body(condition, body, prefix_of(op) + "body/");
  operands.insert(operands.begin(), {"", op.reshape(first[0], {})});
  give_all(op, op.nodes_with_bodies("Loop", operands, std::move(bodies), op.output_count()));
}

void convert_call_once(Op& op) {
  const int32_t subgraph = op.option(CallOnceOptions::init_subgraph_index);
  op.graph().inline_subgraph(subgraph, {}, "once" + std::to_string(subgraph) + "/");
  op.graph().carry_variables();
}

/// A composition has a decomposition, which says the same.
void convert_composite(Op& op) {
  const int32_t subgraph = op.info().options2[StableHLOCompositeOptions::decomposition_subgraph_index];
  give_all(op, op.graph().inline_subgraph(subgraph, operands_from(op, 0), prefix_of(op)));
}

void convert_var_handle(Op& op) {
  op.output(0);
  op.graph().handles()[op.info().outputs[0]] = variable_name(op.info());
}

std::string variable(Op& op) {
  op.input(0);
  const auto found = op.graph().handles().find(op.info().inputs[0]);
  if (found == op.graph().handles().end()) op.refuse("a handle that comes from another graph is not supported");
  return found->second;
}

void convert_assign_variable(Op& op) {
  Variables& variables = op.graph().variables();
  if (variables.fixed) op.refuse("a variable that a body assigns is not supported");
  variables.values[variable(op)] = {op.value(1), &op.input(1)};
}

void convert_read_variable(Op& op) {
  const std::string name = variable(op);
  const auto found = op.graph().variables().values.find(name);
  if (found == op.graph().variables().values.end())
    op.refuse("variable '" + name + "' is read before it is assigned", ErrorCode::kInvalidModel);
  op.give(0, found->second.value);
}

}  // namespace

void register_control(Conversions& conversions) {
  using B = BuiltinOperator;
  conversions.add(B::kIf, convert_if);
  conversions.add(B::kWhile, convert_while);
  conversions.add(B::kCallOnce, convert_call_once);
  conversions.add(B::kStablehloComposite, convert_composite);
  conversions.add(B::kVarHandle, convert_var_handle);
  conversions.add(B::kAssignVariable, convert_assign_variable);
  conversions.add(B::kReadVariable, convert_read_variable);
}

}  // namespace tessera::litert
