// SPDX-License-Identifier: Apache-2.0
// Evaluation in program order over frames of values, one frame for each execution of a block; bodies see the enclosing
// frames.
#include "compiler/nn/interpreter.h"

#include <unordered_map>

#include "llvm/ADT/DenseMap.h"

namespace tessera::nn {
namespace {

using ValueMap = llvm::DenseMap<mlir::Value, ops::Value>;

struct Frame {
  const Frame* parent = nullptr;
  ValueMap values;
};

class Interpreter {
 public:
  explicit Interpreter(const Observer& observer) : observer_(observer) {}

  std::vector<ops::Value> run_block(mlir::Block& block, const std::vector<ops::Value>& inputs, const Frame* parent) {
    Frame frame;
    frame.parent = parent;
    for (auto [argument, value] : llvm::zip(block.getArguments(), inputs)) frame.values[argument] = value;
    const auto& dying = last_uses(block);
    for (mlir::Operation& op : block.without_terminator()) {
      run_op(op, frame);
      if (auto it = dying.find(&op); it != dying.end()) {
        for (mlir::Value value : it->second) frame.values.erase(value);
      }
    }
    std::vector<ops::Value> results;
    for (mlir::Value value : block.getTerminator()->getOperands()) results.push_back(lookup(value, frame));
    return results;
  }

 private:
  using LastUses = std::unordered_map<mlir::Operation*, std::vector<mlir::Value>>;

  /// For each operation of the block the values of the block that nothing needs afterwards.
  const LastUses& last_uses(mlir::Block& block) {
    auto [it, inserted] = last_uses_.try_emplace(&block);
    if (!inserted) return it->second;
    LastUses& dying = it->second;
    auto add = [&](mlir::Value value, mlir::Operation* definition) {
      mlir::Operation* last = definition;
      for (mlir::Operation* user : value.getUsers()) {
        mlir::Operation* ancestor = block.findAncestorOpInBlock(*user);
        if (ancestor && (!last || last->isBeforeInBlock(ancestor))) last = ancestor;
      }
      if (last) dying[last].push_back(value);
    };
    for (mlir::BlockArgument argument : block.getArguments()) add(argument, nullptr);
    for (mlir::Operation& op : block) {
      for (mlir::Value result : op.getResults()) add(result, &op);
    }
    return dying;
  }

  static const ops::Value& lookup(mlir::Value value, const Frame& frame) {
    for (const Frame* f = &frame; f; f = f->parent) {
      auto it = f->values.find(value);
      if (it != f->values.end()) return it->second;
    }
    throw Error(ErrorCode::kInternal, "the value '" + value_name(value) + "' was not computed before its use");
  }

  void run_op(mlir::Operation& op, Frame& frame);

  const Observer& observer_;
  std::unordered_map<mlir::Block*, LastUses> last_uses_;

  friend class InterpretedBody;
};

/// A region as the operator library calls it.
class InterpretedBody : public ops::Subgraph {
 public:
  InterpretedBody(Interpreter& interpreter, mlir::Region& region, const Frame& frame)
      : interpreter_(interpreter), region_(region), frame_(frame) {}
  size_t input_count() const override { return region_.getNumArguments(); }
  size_t output_count() const override { return region_.front().getTerminator()->getNumOperands(); }
  std::vector<ops::TypeInfo> input_types() const override {
    std::vector<ops::TypeInfo> types;
    for (mlir::Type type : region_.front().getArgumentTypes()) types.push_back(to_type_info(type));
    return types;
  }
  std::vector<ops::Value> run(const std::vector<ops::Value>& inputs) const override {
    if (inputs.size() != input_count()) {
      throw Error(ErrorCode::kInvalidModel, "the subgraph has " + std::to_string(input_count()) +
                                                " inputs, the operator gives it " + std::to_string(inputs.size()));
    }
    return interpreter_.run_block(region_.front(), inputs, &frame_);
  }
  std::vector<ops::TypeInfo> infer(const std::vector<ops::TypeInfo>&) const override {
    std::vector<ops::TypeInfo> types;
    for (mlir::Type type : region_.front().getTerminator()->getOperandTypes()) types.push_back(to_type_info(type));
    return types;
  }

 private:
  Interpreter& interpreter_;
  mlir::Region& region_;
  const Frame& frame_;
};

void Interpreter::run_op(mlir::Operation& op, Frame& frame) {
  if (auto constant = llvm::dyn_cast<ConstantOp>(op)) {
    frame.values[constant.getResult()] = ops::Value(to_tensor(constant.getValue()));
    return;
  }
  if (auto none = llvm::dyn_cast<NoneOp>(op)) {
    frame.values[none.getResult()] = ops::Value();
    return;
  }
  auto node_op = llvm::dyn_cast<NodeOp>(op);
  if (!node_op) {
    throw Error(ErrorCode::kUnsupported,
                "the reference interpreter runs nn operations only, not " + op.getName().getStringRef().str());
  }
  BodyMap bodies;
  for (auto [name, region] : llvm::zip(node_op.getBodyNames(), node_op.getBodies())) {
    bodies[llvm::cast<mlir::StringAttr>(name).getValue().str()] =
        std::make_shared<InterpretedBody>(*this, region, frame);
  }
  std::vector<ops::Value> inputs;
  for (mlir::Value operand : op.getOperands()) inputs.push_back(lookup(operand, frame));
  std::vector<ops::Value> outputs = ops::evaluate(to_node(node_op, bodies), inputs);
  if (observer_) observer_(node_op, outputs);
  for (auto [result, value] : llvm::zip(op.getResults(), outputs)) frame.values[result] = std::move(value);
}

/// Refuses an input whose kind, element type or shape contradicts the argument's type.
void check_input(const ops::Value& value, mlir::Type type, const std::string& name) {
  ops::TypeInfo info = to_type_info(type);
  auto refuse = [&](const std::string& cause) {
    throw Error(ErrorCode::kInvalidArgument, "input '" + name + "' " + cause);
  };
  if (info.kind == ops::TypeInfo::Kind::kOptional) return;
  bool wants_sequence = info.kind == ops::TypeInfo::Kind::kSequence;
  if (value.is_none() || (value.kind == ops::Value::Kind::kSequence) != wants_sequence) {
    refuse(wants_sequence ? "must be a sequence" : "must be a tensor");
  }
  if (wants_sequence) return;
  const ops::Tensor& tensor = value.tensor;
  if (tensor.dtype() != info.dtype) {
    refuse("has type " + std::string(ops::to_string(tensor.dtype())) + ", the model wants " +
           std::string(ops::to_string(info.dtype)));
  }
  if (!info.ranked) return;
  bool fits = tensor.shape().size() == info.shape.size();
  for (size_t i = 0; fits && i < info.shape.size(); ++i) fits = info.shape[i] < 0 || info.shape[i] == tensor.shape()[i];
  if (!fits) refuse("has shape " + ops::to_string(tensor.shape()) + ", the model wants " + ops::to_string(info.shape));
}

}  // namespace

std::vector<ops::Value> interpret(mlir::func::FuncOp func, const std::vector<ops::Value>& inputs,
                                  const Observer& observer) {
  if (inputs.size() != func.getNumArguments()) {
    throw Error(ErrorCode::kInvalidArgument, "the model has " + std::to_string(func.getNumArguments()) +
                                                 " inputs, but " + std::to_string(inputs.size()) + " were given");
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_input(inputs[i], func.getArgumentTypes()[i], value_name(func.getArgument(static_cast<unsigned>(i))));
  }
  return Interpreter(observer).run_block(func.front(), inputs, nullptr);
}

}  // namespace tessera::nn
