// SPDX-License-Identifier: Apache-2.0
// Inference in program order. A body is inferred whenever the operator library asks for its result types; loops ask
// until the types of the carried values do not change, and the last asking leaves its types in the body.
#include "compiler/nn/inference.h"

#include "ops/limits.h"

namespace tessera::nn {

/// What stands in a branch that cannot run, or null.
static NodeOp refusal_in(mlir::Block& block) {
  auto node = llvm::dyn_cast<NodeOp>(block.front());
  return node && node.is("Refuse", "ai.tessera") ? node : NodeOp();
}

/// A region seen by the operator library while types are inferred.
class InferredBody : public ops::Subgraph {
 public:
  InferredBody(TypeInference& inference, mlir::Region& region) : inference_(inference), region_(region) {}
  size_t input_count() const override { return region_.getNumArguments(); }
  size_t output_count() const override { return region_.front().getTerminator()->getNumOperands(); }
  std::vector<ops::TypeInfo> input_types() const override {
    std::vector<ops::TypeInfo> types;
    for (mlir::Type type : region_.front().getArgumentTypes()) types.push_back(to_type_info(type));
    return types;
  }
  std::vector<ops::Value> run(const std::vector<ops::Value>&) const override {
    throw Error(ErrorCode::kInternal, "a body cannot be evaluated during inference");
  }
  std::vector<ops::TypeInfo> infer(const std::vector<ops::TypeInfo>& inputs) const override {
    inference_.refused_.erase(&region_);
    try {
      return infer_once(inputs);
    } catch (const Error& error) {
      inference_.refused_[&region_] = error.what();
      throw;
    }
  }

 private:
  std::vector<ops::TypeInfo> infer_once(const std::vector<ops::TypeInfo>& inputs) const {
    mlir::Block& block = region_.front();
    if (NodeOp refuse = refusal_in(block))
      throw Error(ErrorCode::kInvalidModel, to_node(refuse).get_string("message", ""));
    if (inputs.size() != block.getNumArguments()) {
      throw Error(ErrorCode::kInvalidModel, "the subgraph has " + std::to_string(block.getNumArguments()) +
                                                " inputs, the operator gives it " + std::to_string(inputs.size()));
    }
    for (auto [argument, info] : llvm::zip(block.getArguments(), inputs)) {
      ops::TypeInfo type = info;
      type.constant.reset();  // another iteration may bring another value
      inference_.set(argument, type);
    }
    std::vector<ops::TypeInfo> results = inference_.visit_block(block);
    if (block.getNumArguments() > 0) {
      for (ops::TypeInfo& result : results) result.constant.reset();
    }
    return results;
  }

  TypeInference& inference_;
  mlir::Region& region_;
};

void check_size(const ops::TypeInfo& info, const std::string& what) {
  if (!info.present || info.kind != ops::TypeInfo::Kind::kTensor || !info.is_static()) return;
  auto refuse = [&] {
    throw Error(ErrorCode::kDoesNotFit, what + " has shape " + ops::to_string(info.shape) +
                                            ", which needs more memory than the " +
                                            std::to_string(ops::memory_limit_bytes()) + " bytes that tensors may have");
  };
  int64_t count = 0;
  try {
    count = ops::element_count(info.shape);
  } catch (const Error&) {
    refuse();
  }
  if (count > ops::memory_limit_bytes() / std::max<int64_t>(1, ops::element_bytes(info.dtype))) refuse();
}

ops::TypeInfo TypeInference::info(mlir::Value value) const {
  auto it = known_.find(value);
  return it != known_.end() ? it->second : to_type_info(value);
}

void TypeInference::set(mlir::Value value, const ops::TypeInfo& info) {
  value.setType(to_type(value.getContext(), info));
  known_[value] = info;
}

void TypeInference::visit(NodeOp op) {
  BodyMap bodies;
  for (auto [name, region] : llvm::zip(op.getBodyNames(), op.getBodies())) {
    bodies[llvm::cast<mlir::StringAttr>(name).getValue().str()] = std::make_shared<InferredBody>(*this, region);
  }
  ops::Node node = to_node(op, bodies);
  std::vector<ops::TypeInfo> inputs;
  for (mlir::Value operand : op->getOperands()) inputs.push_back(info(operand));
  std::vector<ops::TypeInfo> outputs = ops::infer(node, inputs, /*fold=*/true);
  for (auto [result, type] : llvm::zip(op->getResults(), outputs)) {
    if (type.dtype == ops::DType::kUndefined && type.present) {
      node.fail(ErrorCode::kInvalidModel,
                "the element type of output " + std::to_string(result.getResultNumber()) + " cannot be inferred");
    }
    check_size(type, "output " + std::to_string(result.getResultNumber()) + " of node '" + node.name + "' (" +
                         node.op_type + ")");
    set(result, type);
  }
}

std::vector<ops::TypeInfo> TypeInference::visit_block(mlir::Block& block) {
  for (mlir::Operation& op : block) {
    if (auto node = llvm::dyn_cast<NodeOp>(op)) visit(node);
  }
  std::vector<ops::TypeInfo> results;
  for (mlir::Value value : block.getTerminator()->getOperands()) results.push_back(info(value));
  return results;
}

/// Bodies that have failed stand in branches that something else gives the types of: else the failure had come out.
void TypeInference::put_refusals() {
  for (const auto& [region, why] : refused_) {
    auto parent = llvm::cast<NodeOp>(region->getParentOp());
    const bool inside =
        llvm::any_of(refused_, [&](const auto& other) { return other.first->isProperAncestor(region); });
    if (inside || !parent.is("If") || refusal_in(region->front())) continue;
    mlir::Block& block = region->front();
    mlir::OpBuilder builder = mlir::OpBuilder::atBlockBegin(&block);
    NodeOp refuse = create_op(builder, parent.getLoc(), "Refuse", "ai.tessera", 1, {}, {{"message", why}},
                              parent->getResultTypes());
    block.getTerminator()->setOperands(refuse->getResults());
    region->walk([&](mlir::Operation* op) {
      for (mlir::Value result : op->getResults()) known_.erase(result);
    });
    llvm::SmallVector<mlir::Operation*> rest;
    for (mlir::Operation& op : block.without_terminator()) {
      if (&op != refuse.getOperation()) rest.push_back(&op);
    }
    for (mlir::Operation* op : llvm::reverse(rest)) op->erase();
  }
  refused_.clear();
}

void TypeInference::run(mlir::func::FuncOp func) {
  visit_block(func.front());
  put_refusals();
  llvm::SmallVector<mlir::Type> results(func.front().getTerminator()->getOperandTypes());
  func.setType(mlir::FunctionType::get(func.getContext(), func.front().getArgumentTypes(), results));
}

mlir::LogicalResult infer_types(mlir::func::FuncOp func) {
  return guarded(func, [&] { TypeInference().run(func); });
}

}  // namespace tessera::nn
