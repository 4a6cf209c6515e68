// SPDX-License-Identifier: Apache-2.0
// Normalisations that are spelled out become the operators that ONNX Runtime's optimiser makes of them, because these
// round otherwise: x / sqrt(mean(x^2) + epsilon) * scale is SimplifiedLayerNormalization, and with x - mean(x) in the
// place of x and a shift behind it, LayerNormalization.
#include "compiler/nn/passes/pass_util.h"
#include "compiler/nn/passes/passes.h"

namespace tessera::nn {
namespace {

/// The operation behind a value that nobody else reads.
NodeOp alone(mlir::Value value, llvm::StringRef type) {
  return value.hasOneUse() ? defining_op(value, type) : NodeOp{};
}

/// The constant operand of an Add or Mul that has one element for each of the last axis, or one alone.
std::optional<unsigned> constant_operand(NodeOp op, int64_t elements) {
  for (unsigned i = 0; i < 2; ++i) {
    const auto tensor = constant_value(op.getInputs()[i]);
    if (tensor && tensor->dtype() == ops::DType::kFloat && tensor->size() == elements) return i;
  }
  return std::nullopt;
}

/// The operations of sqrt(mean(a^2) + epsilon), and epsilon.
struct Deviation {
  float epsilon = 0;
  std::vector<mlir::Operation*> operations;
};
std::optional<Deviation> deviation_of(mlir::Value value, mlir::Value a) {
  NodeOp root = alone(value, "Sqrt");
  NodeOp sum = root ? alone(root.getInputs()[0], "Add") : NodeOp{};
  const auto at = sum ? constant_operand(sum, 1) : std::nullopt;
  if (!at) return std::nullopt;
  NodeOp mean = alone(sum.getInputs()[1 - *at], "ReduceMean");
  mlir::Value squares = mean ? mean_of(mean.getResult(0)) : mlir::Value{};
  NodeOp power = squares ? alone(squares, "Pow") : NodeOp{};
  const auto exponent = power ? constant_scalar(power.getInputs()[1]) : std::nullopt;
  if (exponent != 2.0 || power.getInputs()[0] != a) return std::nullopt;
  return Deviation{static_cast<float>(*constant_scalar(sum.getInputs()[*at])), {root, sum, mean, power}};
}

/// A constant with one axis.
mlir::Value as_row(mlir::PatternRewriter& rewriter, mlir::Value constant, mlir::Operation* at) {
  const ops::Tensor tensor = *constant_value(constant);
  if (tensor.rank() == 1) return constant;
  return create_constant(rewriter, at->getLoc(), tensor.reshaped({tensor.size()}));
}

bool fuse(NodeOp mul, mlir::PatternRewriter& rewriter) {
  if (!mul.is("Mul")) return false;
  const auto shape = shape_of(mul.getResult(0));
  if (!shape || shape->empty() || shape->back() < 1 || dtype_of(mul.getResult(0)) != ops::DType::kFloat) return false;
  const auto scale = constant_operand(mul, shape->back());
  NodeOp quotient = scale ? alone(mul.getInputs()[1 - *scale], "Div") : NodeOp{};
  if (!quotient) return false;
  mlir::Value x = quotient.getInputs()[0];
  auto found = deviation_of(quotient.getInputs()[1], x);
  if (!found || shape_of(x) != shape) return false;
  found->operations.push_back(quotient);
  NodeOp last = mul, centred = defining_op(x, "Sub");
  std::vector<mlir::Value> operands{x, mul.getInputs()[*scale]};
  std::string type = "SimplifiedLayerNormalization";
  if (centred && centred.getInputs()[1].hasOneUse() && mean_of(centred.getInputs()[1]) == centred.getInputs()[0]) {
    NodeOp add = mul.getResult(0).hasOneUse() ? mlir::dyn_cast<NodeOp>(*mul.getResult(0).user_begin()) : NodeOp{};
    const auto shift = add && add.is("Add") ? constant_operand(add, shape->back()) : std::nullopt;
    if (!shift || shape_of(add.getResult(0)) != shape) return false;
    found->operations.insert(found->operations.end(), {mul, centred, centred.getInputs()[1].getDefiningOp()});
    last = add;
    operands = {centred.getInputs()[0], operands[1], add.getInputs()[*shift]};
    type = "LayerNormalization";
  }
  for (size_t i = 1; i < operands.size(); ++i) operands[i] = as_row(rewriter, operands[i], last);
  NodeOp made = create_op(rewriter, fuse_locations(last, found->operations), type, "", operands.size() == 2 ? 1 : 17,
                          operands, {{"axis", int64_t{-1}}, {"epsilon", found->epsilon}});
  rewriter.replaceOp(last, made.getResult(0));
  return true;
}

}  // namespace

std::unique_ptr<mlir::Pass> create_fuse_norms_pass() {
  return make_function_pass("nn-fuse-norms", "make normalisations that are spelled out the operators of ONNX Runtime",
                            [](mlir::func::FuncOp func) { return apply_rewrites(func, {fuse}); });
}

}  // namespace tessera::nn
