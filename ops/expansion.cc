// SPDX-License-Identifier: Apache-2.0
// Inference and evaluation of an operator that is given by its expansion: step by step, each by the library itself.
#include "ops/expansion.h"

#include <algorithm>

namespace tessera::ops {

namespace {

/// The operand as `Item` (a type or a value) among those of the node and of the steps so far.
template <typename Item>
Item resolve(const Expansion::Operand& operand, const std::vector<Item>& inputs,
             const std::vector<std::vector<Item>>& steps, Item none, Item (*of_constant)(const Tensor&)) {
  switch (operand.kind) {
    case Expansion::Operand::Kind::kInput: return operand.index < inputs.size() ? inputs[operand.index] : none;
    case Expansion::Operand::Kind::kStep: return steps.at(operand.index).at(operand.result);
    case Expansion::Operand::Kind::kConstant: return of_constant(operand.constant);
    case Expansion::Operand::Kind::kNone: break;
  }
  return none;
}

/// Walks the steps with `run`, which turns a node and its operands into its results.
template <typename Item, typename Run>
std::vector<Item> walk(const Expansion& expansion, const std::vector<Item>& inputs, const Item& none,
                       Item (*of_constant)(const Tensor&), Run run) {
  std::vector<std::vector<Item>> steps;
  const auto all = [&](const std::vector<Expansion::Operand>& operands) {
    std::vector<Item> items;
    for (const auto& operand : operands) items.push_back(resolve(operand, inputs, steps, none, of_constant));
    return items;
  };
  for (const Expansion::Step& step : expansion.steps) steps.push_back(run(step.node, all(step.operands)));
  return all(expansion.results);
}

}  // namespace

Expander::Operand Expander::input(size_t i) const {
  Operand operand;
  if (i >= inputs_.size() || !inputs_[i].present) return operand;
  operand.kind = Operand::Kind::kInput;
  operand.index = i;
  return operand;
}

std::vector<Expander::Operand> Expander::inputs() const {
  std::vector<Operand> operands;
  for (size_t i = 0; i < inputs_.size(); ++i) operands.push_back(input(i));
  return operands;
}

Expander::Operand Expander::constant(Tensor value) {
  Operand operand;
  operand.kind = Operand::Kind::kConstant;
  operand.constant = std::move(value);
  return operand;
}

Expander::Operand Expander::scalar(DType dtype, double value) {
  if (dtype == DType::kDouble) return constant(Tensor::of<double>(dtype, {}, {value}));
  return constant(kernel::narrow(Tensor::scalar_f32(static_cast<float>(value)), dtype));
}

std::vector<Expander::Operand> Expander::steps(const std::string& op, std::vector<Operand> operands,
                                               Attributes attributes, size_t results, const std::string& domain,
                                               int version) {
  while (!operands.empty() && operands.back().kind == Operand::Kind::kNone) operands.pop_back();
  Node node{domain, op, version > 0 ? version : version_, node_.name, std::move(attributes), results};
  expansion_.steps.push_back({std::move(node), std::move(operands)});
  std::vector<Operand> out(results);
  for (size_t i = 0; i < results; ++i) {
    out[i].kind = Operand::Kind::kStep;
    out[i].index = expansion_.steps.size() - 1;
    out[i].result = i;
  }
  return out;
}

Expander::Operand Expander::step(const std::string& op, std::vector<Operand> operands, Attributes attributes) {
  return steps(op, std::move(operands), std::move(attributes), 1)[0];
}

Expander::Operand Expander::cast(Operand operand, DType to) {
  return step("Cast", {std::move(operand)}, {{"to", static_cast<int64_t>(to)}});
}

Expansion Expander::finish(std::vector<Operand> results) {
  results.resize(node_.output_count);
  expansion_.results = std::move(results);
  return std::move(expansion_);
}

std::vector<Value> evaluate_expansion(const Expansion& expansion, const std::vector<Value>& inputs) {
  return walk<Value>(
      expansion, inputs, Value(), [](const Tensor& tensor) { return Value(tensor); },
      [](const Node& node, const std::vector<Value>& operands) { return evaluate(node, operands); });
}

std::vector<int64_t> channel_permutation(size_t rank, bool to_channels_last) {
  std::vector<int64_t> axes(rank);
  for (size_t d = 0; d < rank; ++d) axes[d] = static_cast<int64_t>(d);
  if (to_channels_last) {
    std::rotate(axes.begin() + 1, axes.begin() + 2, axes.end());
  } else {
    std::rotate(axes.begin() + 1, axes.end() - 1, axes.end());
  }
  return axes;
}

std::optional<Expansion> between_transpositions(const Node& node, const std::vector<TypeInfo>& inputs,
                                                const std::string& op, const std::string& domain, int version) {
  if (inputs.empty() || !inputs[0].present) node.fail(ErrorCode::kInvalidModel, "input 0 is missing");
  if (!inputs[0].ranked) return std::nullopt;
  const size_t rank = inputs[0].shape.size();
  if (rank < 3)
    node.fail(ErrorCode::kInvalidModel, "the input " + to_string(inputs[0].shape) + " must have rank 3 or more");
  Expander e(node, inputs, 13);
  std::vector<Expander::Operand> operands = e.inputs();
  operands[0] = e.step("Transpose", {operands[0]}, {{"perm", channel_permutation(rank, false)}});
  Expander::Attributes attributes = node.attributes;
  attributes.erase("channels_last");
  auto results = e.steps(op, std::move(operands), std::move(attributes), node.output_count, domain, version);
  for (auto& result : results) result = e.step("Transpose", {result}, {{"perm", channel_permutation(rank, true)}});
  return e.finish(std::move(results));
}

void add_expansion(Registry& registry, const char* name, int since_version, kernel::Arity inputs, ExpandFunction expand,
                   std::set<std::string> attributes, kernel::Arity outputs, const char* domain, InferFunction unknown) {
  if (!unknown)
    unknown = [](InferContext& c) {
      for (TypeInfo& output : c.outputs) output = TypeInfo::unranked(c.input(0).dtype);
    };
  InferFunction infer_types = [expand, unknown = std::move(unknown)](InferContext& c) {
    const std::optional<Expansion> expansion = expand(c.node, c.inputs);
    if (!expansion) return unknown(c);
    c.outputs = walk<TypeInfo>(
        *expansion, c.inputs, TypeInfo::absent(), TypeInfo::of,
        [](const Node& node, const std::vector<TypeInfo>& operands) { return infer(node, operands, /*fold=*/true); });
  };
  EvalFunction evaluate_steps = [expand](EvalContext& c) {
    std::vector<TypeInfo> types;
    for (const Value& value : c.inputs) types.push_back(kernel::type_of(value));
    const std::optional<Expansion> expansion = expand(c.node, types);
    if (!expansion) c.node.fail(ErrorCode::kUnsupported, "its meaning is not known for these operands");
    c.outputs = evaluate_expansion(*expansion, c.inputs);
  };
  kernel::add_checked(registry, name, since_version, inputs, std::move(infer_types), std::move(evaluate_steps),
                      std::move(attributes), outputs, domain, std::move(expand));
}

}  // namespace tessera::ops
