// SPDX-License-Identifier: Apache-2.0
// Passes that ask the operator library what is known: result types, and results that are known at compile time.
#include "compiler/nn/inference.h"
#include "compiler/nn/passes/pass_util.h"
#include "compiler/nn/passes/passes.h"

namespace tessera::nn {
namespace {

/// A DequantizeLinear of either domain that has one.
bool dequantises(NodeOp op) { return op.is("DequantizeLinear") || op.is("DequantizeLinear", kMicrosoftDomain); }

/// Quantisation boundaries stay for the pass that folds them into integer operators.
bool is_quantisation(NodeOp op) {
  return dequantises(op) || op.is("QuantizeLinear") || op.is("QuantizeLinear", kMicrosoftDomain) ||
         op.is("DynamicQuantizeLinear");
}

/// Evaluates an operation whose operands are all constants; nothing if it cannot be or is too large.
std::optional<std::vector<ops::Value>> evaluate_constants(NodeOp op, int64_t limit_bytes) {
  if (!op.getBodies().empty() || op->getNumOperands() == 0 || !op.is_deterministic()) return std::nullopt;
  for (mlir::Type type : op->getResultTypes()) {
    ops::TypeInfo info = to_type_info(type);
    if (info.kind != ops::TypeInfo::Kind::kTensor) return std::nullopt;
    if (info.is_static() &&
        ops::element_count(info.shape) * std::max<int64_t>(1, ops::element_bytes(info.dtype)) > limit_bytes)
      return std::nullopt;
  }
  std::vector<ops::Value> inputs;
  for (mlir::Value operand : op->getOperands()) {
    if (is_none(operand)) {
      inputs.emplace_back();
    } else if (auto constant = constant_value(operand)) {
      inputs.emplace_back(std::move(*constant));
    } else {
      return std::nullopt;
    }
  }
  try {
    return ops::evaluate(to_node(op), inputs);
  } catch (const Error&) {
    return std::nullopt;  // it may stand where it is never run; if it runs it fails there
  }
}

void replace_by_constants(NodeOp op, const std::vector<std::optional<ops::Tensor>>& results) {
  mlir::OpBuilder builder(op);
  for (auto [result, tensor] : llvm::zip(op->getResults(), results)) {
    if (!tensor || result.use_empty()) continue;
    // The value keeps its own name, so that it can be observed under it.
    mlir::Location location = make_location(op.getContext(), node_name(op), {value_name(result)});
    result.replaceAllUsesWith(create_constant(builder, location, *tensor));
  }
  if (mlir::isOpTriviallyDead(op)) op.erase();
}

void fold(mlir::func::FuncOp func, int64_t limit_bytes, bool quantisation) {
  TypeInference inference;
  inference.run(func);
  std::vector<NodeOp> nodes;
  func.walk<mlir::WalkOrder::PreOrder>([&](NodeOp op) { nodes.push_back(op); });
  // Constants found inside a body hold for every execution of it, as only its outer values and its own constants make
  // them.
  llvm::DenseSet<mlir::Operation*>
      dequantised;  // operations that compute with dequantised values: they belong to a group or to its operands
  for (NodeOp op : nodes) {
    if (!quantisation) {
      const bool reads = llvm::any_of(
          op->getOperands(), [&](mlir::Value operand) { return dequantised.contains(operand.getDefiningOp()); });
      if (dequantises(op) || (reads && !op.is("Shape") && !op.is("Size"))) dequantised.insert(op);
      if (is_quantisation(op) || dequantised.contains(op)) continue;
    }
    if (!op.getBodies().empty() || !op.is_deterministic()) continue;
    std::vector<std::optional<ops::Tensor>> results(op->getNumResults());
    bool any = false, all = true;
    for (auto [i, result] : llvm::enumerate(op->getResults())) {
      results[i] = inference.info(result).constant;
      any = any || results[i].has_value();
      all = all && (results[i].has_value() || result.use_empty());
    }
    if (!all) {
      if (auto values = evaluate_constants(op, limit_bytes)) {
        any = true;
        for (size_t i = 0; i < values->size(); ++i) {
          if ((*values)[i].kind == ops::Value::Kind::kTensor) results[i] = (*values)[i].tensor;
        }
      }
    }
    if (any) replace_by_constants(op, results);
  }
}

}  // namespace

std::unique_ptr<mlir::Pass> create_infer_types_pass() {
  return make_function_pass("nn-infer-types", "infer result types of nn operations",
                            [](mlir::func::FuncOp func) { return infer_types(func); });
}

std::unique_ptr<mlir::Pass> create_fold_constants_pass(int64_t limit_bytes, bool quantisation) {
  return make_function_pass(quantisation ? "nn-fold-all-constants" : "nn-fold-constants",
                            quantisation
                                ? "evaluate what is known at compile time, quantisation included"
                                : "evaluate what is known at compile time, except QuantizeLinear and DequantizeLinear",
                            [=](mlir::func::FuncOp func) {
                              fold(func, limit_bytes, quantisation);
                              return mlir::success();
                            });
}

}  // namespace tessera::nn
