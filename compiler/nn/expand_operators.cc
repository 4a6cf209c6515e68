// SPDX-License-Identifier: Apache-2.0
// A step of an expansion becomes an operation of the node's name; those that make results of the node carry the names
// of these results, so that they are observed under them.
#include "compiler/nn/expand_operators.h"

namespace tessera::nn {
namespace {

constexpr int kOldestVersion = 7;

using Operand = ops::Expansion::Operand;

/// Domains of QONNX's quantisers, as exporters have called them.
bool is_qonnx(llvm::StringRef domain) {
  return domain == "qonnx.custom_op.general" || domain == "finn.custom_op.general" || domain == "onnx.brevitas";
}

/// Names of a step's results: those of the node's results that the step makes, "" for others.
std::vector<std::string> names_of(NodeOp op, const ops::Expansion& expansion, size_t step) {
  std::vector<std::string> names(expansion.steps[step].node.output_count);
  bool any = false;
  for (size_t i = 0; i < expansion.results.size(); ++i) {
    const Operand& result = expansion.results[i];
    if (result.kind != Operand::Kind::kStep || result.index != step) continue;
    names[result.result] = value_name(op->getResult(static_cast<unsigned>(i)));
    any = true;
  }
  if (!any) names.clear();
  return names;
}

void replace(NodeOp op, const ops::Expansion& expansion) {
  mlir::OpBuilder builder(op);
  std::vector<NodeOp> steps;
  const auto value_of = [&](const Operand& operand) -> mlir::Value {
    switch (operand.kind) {
      case Operand::Kind::kInput: return op->getOperand(static_cast<unsigned>(operand.index));
      case Operand::Kind::kStep: return steps[operand.index]->getResult(static_cast<unsigned>(operand.result));
      case Operand::Kind::kConstant: return create_constant(builder, op.getLoc(), operand.constant);
      case Operand::Kind::kNone: break;
    }
    return create_none(builder, op.getLoc());
  };
  const mlir::Type unknown = mlir::UnrankedTensorType::get(builder.getF32Type());
  for (size_t i = 0; i < expansion.steps.size(); ++i) {
    const ops::Expansion::Step& step = expansion.steps[i];
    llvm::SmallVector<mlir::Value> operands;
    for (const Operand& operand : step.operands) operands.push_back(value_of(operand));
    const llvm::SmallVector<mlir::Type> types(step.node.output_count, unknown);
    steps.push_back(create_op(builder, make_location(op.getContext(), node_name(op), names_of(op, expansion, i)),
                              step.node.op_type, step.node.domain, step.node.version, operands, step.node.attributes,
                              types));
  }
  for (size_t i = 0; i < expansion.results.size(); ++i) {
    mlir::Value result = op->getResult(static_cast<unsigned>(i));
    if (!result.use_empty()) result.replaceAllUsesWith(value_of(expansion.results[i]));
  }
  op.erase();
}

}  // namespace

bool expand_operators(mlir::func::FuncOp func, const TypeInference& inference) {
  std::vector<std::pair<NodeOp, ops::Expansion>> found;
  func.walk<mlir::WalkOrder::PreOrder>([&](NodeOp op) {
    const int version = static_cast<int>(op.getVersion());
    const ops::OperatorDef* def = ops::registry().find(op.getDomain().str(), op.getOpType().str(), version);
    if (def == nullptr) return;
    if (op.getDomain().empty() && version < kOldestVersion &&
        def == ops::registry().find("", op.getOpType().str(), kOldestVersion))
      op.setVersion(kOldestVersion);
    if (!def->expand || !op.getBodies().empty()) return;
    if (is_qonnx(op.getDomain())) func->setAttr(kFreeGroupsAttr, mlir::UnitAttr::get(func.getContext()));
    std::vector<ops::TypeInfo> inputs;
    for (mlir::Value operand : op->getOperands()) inputs.push_back(inference.info(operand));
    if (std::optional<ops::Expansion> expansion = def->expand(to_node(op), inputs))
      found.emplace_back(op, std::move(*expansion));
  });
  // Nothing is asked of `inference` from here on: it knows values by their places, which new ones take again.
  for (const auto& [op, expansion] : found) replace(op, expansion);
  return !found.empty();
}

}  // namespace tessera::nn
