// SPDX-License-Identifier: Apache-2.0
// Integer convolutions of three dimensions as those of two, which the NPU has. Enters: QLinearConv or ConvInteger of
// known shapes, constant weights and zero points. Leaves the same operator over planes: those that a kernel's depth
// meets are channels, and depth is a batch. Integer sums do not depend on their order, so every bit is kept.
#include "compiler/nn/passes/convolution_form.h"
#include "compiler/nn/passes/pass_util.h"
#include "compiler/nn/passes/passes.h"
#include "compiler/nn/splitter.h"

namespace tessera::nn {
namespace {

/// Where an operator holds its weights, and the zero points of both operands.
struct Places {
  unsigned weights, zero, weight_zero;
};

bool flatten_convolution(NodeOp op, mlir::PatternRewriter& rewriter) {
  const bool quantised = op.is("QLinearConv");
  if (!quantised && !op.is("ConvInteger")) return false;
  const Places at = quantised ? Places{3, 2, 5} : Places{1, 2, 3};
  const mlir::Value x = op->getOperand(0);
  const auto shape = shape_of(x);
  if (!shape || shape->size() != 5 || !is_static(x) || !is_byte(x)) return false;
  const auto w = constant_value(op->getOperand(at.weights));
  if (!w || !is_byte(w->dtype())) return false;
  for (const unsigned place : {at.zero, at.weight_zero})
    if (const mlir::Value zero = input_or_null(op, place); zero && !constant_value(zero)) return false;
  const auto form = ConvolutionForm::of(to_node(op), *shape, w->shape());
  if (!form) return false;
  Splitter split(op, rewriter);
  std::vector<mlir::Value> operands(op->operand_begin(), op->operand_end());
  mlir::Value zero = input_or_null(op, at.zero);
  if (!zero) zero = split.constant(ops::Tensor(dtype_of(x), {}));
  operands[0] = form->operand(split, x, zero);
  operands[at.weights] = split.constant(form->weights(*w, {0}));
  const mlir::Value flat = split.one(op.getOpType(), static_cast<int>(op.getVersion()), operands, form->attributes());
  const mlir::Value result = form->result(split, flat);
  result.getDefiningOp()->setLoc(op.getLoc());  // it has the name of the result
  rewriter.replaceOp(op, result);
  return true;
}

}  // namespace

std::unique_ptr<mlir::Pass> create_flatten_convolutions_pass() {
  return make_function_pass("nn-flatten-convolutions", "integer convolutions of three dimensions become those of two",
                            [](mlir::func::FuncOp func) { return apply_rewrites(func, {flatten_convolution}); });
}

}  // namespace tessera::nn
