// SPDX-License-Identifier: Apache-2.0
// Attributes, contexts, and the two entry points infer() and evaluate(): they look the definition up, check operand and
// result counts and attribute names, call the family's function and check what it left. Errors name the node, the cause
// and a way out.
#include "ops/operator.h"

#include <algorithm>
#include <new>
#include <stdexcept>

#include "ops/limits.h"

namespace tessera::ops {

namespace {

/// Inference folds only values of this size or smaller (elements): shape arithmetic, never weights.
constexpr int64_t kFoldLimit = 1 << 16;

template <typename T>
const T* get_attribute(const Node& node, const std::string& name, const char* type) {
  const auto it = node.attributes.find(name);
  if (it == node.attributes.end()) return nullptr;
  const T* value = std::get_if<T>(&it->second);
  if (value == nullptr) node.fail(ErrorCode::kInvalidModel, "attribute '" + name + "' must be " + type);
  return value;
}

std::string qualified(const std::string& domain, const std::string& name) {
  return domain.empty() ? name : domain + "::" + name;
}

void check_results(const Node& node, const OperatorDef& def, size_t filled) {
  if (filled != node.output_count)
    node.fail(ErrorCode::kInternal, "the operator left " + std::to_string(filled) + " results instead of " +
                                        std::to_string(node.output_count));
}

/// Before a kernel makes room for what it computes.
void check_sizes(const Node& node, const OperatorDef& def, const std::vector<TypeInfo>& results) {
  for (const TypeInfo& result : results) {
    if (!result.present || result.kind != TypeInfo::Kind::kTensor || !result.is_static()) continue;
    const int64_t left = result.dtype == DType::kUndefined ? 1 : element_bytes(result.dtype);
    const int64_t width = std::max<int64_t>(left, def.work_bytes);
    if (element_count(result.shape) > memory_limit_bytes() / width)
      node.fail(ErrorCode::kDoesNotFit, "a result of shape " + to_string(result.shape) +
                                            " needs more memory than the " + std::to_string(memory_limit_bytes()) +
                                            " bytes that tensors may have");
  }
}

bool has_graph(const Node& node) {
  for (const auto& [name, attribute] : node.attributes)
    if (std::holds_alternative<std::shared_ptr<const Subgraph>>(attribute)) return true;
  return false;
}

/// Runs one function of a family; what it throws names the node. Shared helpers do not know the node they work for.
template <typename F>
void guarded(const Node& node, F&& f) {
  try {
    f();
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with("node '")) throw;
    node.fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    node.fail(ErrorCode::kDoesNotFit, "a result does not fit in memory");
  } catch (const std::length_error&) {
    node.fail(ErrorCode::kDoesNotFit, "a result does not fit in memory");
  } catch (const std::out_of_range& error) {
    node.fail(ErrorCode::kInternal, std::string("an operand was read outside its bounds: ") + error.what());
  }
}

/// Type of a run-time value, content included.
TypeInfo type_of(const Value& value) {
  if (value.kind == Value::Kind::kTensor) return TypeInfo::of(value.tensor);
  if (value.kind == Value::Kind::kNone) return TypeInfo::absent();
  TypeInfo type;
  type.kind = TypeInfo::Kind::kSequence;
  type.dtype = value.sequence.empty() ? value.sequence_dtype : value.sequence[0].tensor.dtype();
  return type;
}

bool foldable(const Node& node, const OperatorDef& def, const std::vector<TypeInfo>& inputs,
              const std::vector<TypeInfo>& outputs) {
  if (!def.deterministic || !def.evaluate || has_graph(node)) return false;
  for (const TypeInfo& input : inputs) {
    if (!input.present) continue;
    if (input.kind != TypeInfo::Kind::kTensor || !input.constant || input.constant->size() > kFoldLimit) return false;
  }
  bool missing = false;
  for (const TypeInfo& output : outputs) {
    if (output.kind != TypeInfo::Kind::kTensor) return false;
    if (output.is_static() && element_count(output.shape) > kFoldLimit) return false;
    missing = missing || (output.present && !output.constant);
  }
  return missing;
}

}  // namespace

int64_t Node::get_int(const std::string& attribute, int64_t fallback) const {
  const auto* value = get_attribute<int64_t>(*this, attribute, "an integer");
  return value ? *value : fallback;
}
float Node::get_float(const std::string& attribute, float fallback) const {
  const auto* value = get_attribute<float>(*this, attribute, "a float");
  return value ? *value : fallback;
}
std::string Node::get_string(const std::string& attribute, const std::string& fallback) const {
  const auto* value = get_attribute<std::string>(*this, attribute, "a string");
  return value ? *value : fallback;
}
std::vector<int64_t> Node::get_ints(const std::string& attribute, const std::vector<int64_t>& fallback) const {
  const auto* value = get_attribute<std::vector<int64_t>>(*this, attribute, "a list of integers");
  return value ? *value : fallback;
}
std::vector<float> Node::get_floats(const std::string& attribute, const std::vector<float>& fallback) const {
  const auto* value = get_attribute<std::vector<float>>(*this, attribute, "a list of floats");
  return value ? *value : fallback;
}
std::vector<std::string> Node::get_strings(const std::string& attribute) const {
  const auto* value = get_attribute<std::vector<std::string>>(*this, attribute, "a list of strings");
  return value ? *value : std::vector<std::string>{};
}
const Tensor* Node::get_tensor(const std::string& attribute) const {
  return get_attribute<Tensor>(*this, attribute, "a tensor");
}
std::shared_ptr<const Subgraph> Node::get_subgraph(const std::string& attribute) const {
  const auto* value = get_attribute<std::shared_ptr<const Subgraph>>(*this, attribute, "a graph");
  if (value == nullptr || *value == nullptr)
    fail(ErrorCode::kInvalidModel, "attribute '" + attribute + "' (a graph) is missing");
  return *value;
}

void Node::fail(ErrorCode code, const std::string& message) const {
  throw Error(code, "node '" + name + "' (" + qualified(domain, op_type) + "): " + message);
}

const TypeInfo& InferContext::input(size_t i) const {
  if (!has(i)) node.fail(ErrorCode::kInvalidModel, "input " + std::to_string(i) + " is missing");
  return inputs[i];
}

const Tensor& EvalContext::input(size_t i) const {
  if (!has(i)) node.fail(ErrorCode::kInvalidModel, "input " + std::to_string(i) + " is missing");
  if (inputs[i].kind != Value::Kind::kTensor)
    node.fail(ErrorCode::kInvalidModel, "input " + std::to_string(i) + " is a sequence where a tensor is needed");
  return inputs[i].tensor;
}

const OperatorDef& lookup(const Node& node, size_t input_count) {
  const OperatorDef* def = registry().find(node.domain, node.op_type, node.version);
  if (def == nullptr) {
    std::string message = "operator " + qualified(node.domain, node.op_type) + " of opset " +
                          std::to_string(node.version) + " is not known";
    const std::vector<std::string> near = registry().similar(node.op_type);
    for (size_t i = 0; i < near.size(); ++i) message += (i == 0 ? "; did you mean " : ", ") + near[i];
    node.fail(ErrorCode::kUnsupported, message);
  }
  const auto count = [&](const char* what, size_t have, int low, int high) {
    if (have >= static_cast<size_t>(low) && (high < 0 || have <= static_cast<size_t>(high))) return;
    const std::string range = high < 0      ? "at least " + std::to_string(low)
                              : low == high ? std::to_string(low)
                                            : std::to_string(low) + " to " + std::to_string(high);
    node.fail(ErrorCode::kInvalidModel,
              "has " + std::to_string(have) + " " + what + " where the operator takes " + range);
  };
  count("inputs", input_count, def->min_inputs, def->max_inputs);
  count("outputs", node.output_count, def->min_outputs, def->max_outputs);
  if (!def->attributes.empty())
    for (const auto& [name, value] : node.attributes)
      if (def->attributes.count(name) == 0)
        node.fail(ErrorCode::kInvalidModel, "attribute '" + name + "' is not known");
  return *def;
}

std::vector<TypeInfo> infer(const Node& node, const std::vector<TypeInfo>& inputs, bool fold) {
  const OperatorDef& def = lookup(node, inputs.size());
  std::vector<TypeInfo> outputs(node.output_count);
  if (def.infer) {
    InferContext context{node, inputs, outputs};
    guarded(node, [&] { def.infer(context); });
    check_results(node, def, outputs.size());
  }
  if (fold && foldable(node, def, inputs, outputs)) {
    std::vector<Value> values;
    for (const TypeInfo& input : inputs) values.push_back(input.present ? Value(*input.constant) : Value());
    try {
      std::vector<Value> results = evaluate(node, values);
      for (size_t i = 0; i < results.size(); ++i)
        if (results[i].kind == Value::Kind::kTensor && results[i].tensor.size() <= kFoldLimit)
          outputs[i] = TypeInfo::of(results[i].tensor);
    } catch (const Error&) {
      // A node that cannot be evaluated stays as it is: it may stand in a branch that is never taken.
    }
  }
  return outputs;
}

std::vector<Value> evaluate(const Node& node, const std::vector<Value>& inputs) {
  const OperatorDef& def = lookup(node, inputs.size());
  if (!def.evaluate) node.fail(ErrorCode::kUnsupported, "the operator has no evaluation");
  std::vector<Value> outputs(node.output_count);
  EvalContext context{node, inputs, outputs};
  guarded(node, [&] {
    if (!def.checks_itself && def.infer && !has_graph(node)) {
      std::vector<TypeInfo> types, results(node.output_count);
      for (const Value& input : inputs) types.push_back(type_of(input));
      InferContext checks{node, types, results};
      def.infer(checks);
      check_sizes(node, def, results);
    }
    def.evaluate(context);
  });
  check_results(node, def, outputs.size());
  return outputs;
}

}  // namespace tessera::ops
