// SPDX-License-Identifier: Apache-2.0
// Integer products whose results are float: MatMulIntegerToFloat, DynamicQuantizeMatMul and QGemm without parameters of
// its result. Each becomes MatMulInteger, the addition of an int32 bias, Cast, Mul by the product of the scales and the
// addition of a float bias, in the order of the operator's formula (docs/numerics.md), so that every bit is kept and
// the product may run on the NPU. Only 8-bit weights that are constant are worth that.
#include "compiler/nn/pass_util.h"
#include "compiler/nn/passes.h"

namespace tessera::nn {
namespace {

using ops::DType;

/// Makes operations in front of `op` that carry its name.
class Splitter {
 public:
  Splitter(NodeOp op, mlir::PatternRewriter& rewriter) : op_(op), rewriter_(rewriter) {}

  NodeOp make(llvm::StringRef type, int version, mlir::ValueRange operands,
              const std::map<std::string, ops::Attribute>& attributes = {}, unsigned results = 1) {
    llvm::SmallVector<mlir::Value> unnamed(results);
    return create_op(rewriter_, location_for(op_, unnamed), type, "", version, operands, attributes, results);
  }
  mlir::Value one(llvm::StringRef type, int version, mlir::ValueRange operands,
                  const std::map<std::string, ops::Attribute>& attributes = {}) {
    return make(type, version, operands, attributes)->getResult(0);
  }
  mlir::Value constant(const ops::Tensor& tensor) { return create_constant(rewriter_, op_.getLoc(), tensor); }

  /// Replaces the operation by float(sum) * scale + bias; null values are left out.
  void finish(mlir::Value sum, mlir::Value scale, mlir::Value bias) {
    const mlir::Value real = one("Cast", 13, {sum}, {{"to", static_cast<int64_t>(DType::kFloat)}});
    NodeOp last = bias ? named("Add", {one("Mul", 14, {real, scale}), bias}) : named("Mul", {real, scale});
    rewriter_.replaceOp(op_, last->getResults());
  }

 private:
  /// The operation that makes the result, under its name.
  NodeOp named(llvm::StringRef type, mlir::ValueRange operands) {
    return create_op(rewriter_, op_.getLoc(), type, "", 14, operands, {});
  }

  NodeOp op_;
  mlir::PatternRewriter& rewriter_;
};

bool is_byte(mlir::Value value) {
  const DType dtype = dtype_of(value);
  return dtype == DType::kUint8 || dtype == DType::kInt8;
}
bool is_known_float(mlir::Value value) {
  const auto shape = shape_of(value);
  return dtype_of(value) == DType::kFloat && shape && shape->size() <= 1;
}

/// Inputs: A, B, scale of A, of B, zero points of both, bias.
bool split_to_float(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.is("MatMulIntegerToFloat", kMicrosoftDomain)) return false;
  const mlir::Value a = op->getOperand(0), b = op->getOperand(1), a_scale = op->getOperand(2),
                    b_scale = op->getOperand(3);
  if (!is_byte(a) || !is_byte(b) || !constant_value(b) || !is_known_float(a_scale) || !is_known_float(b_scale))
    return false;
  Splitter split(op, rewriter);
  const mlir::Value sum = split.one("MatMulInteger", 10, {a, b, input_or_null(op, 4), input_or_null(op, 5)});
  split.finish(sum, split.one("Mul", 14, {a_scale, b_scale}), input_or_null(op, 6));
  return true;
}

/// Inputs: A, B, scale of B, zero point of B, bias; A's parameters are computed from its content.
bool split_dynamic(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.is("DynamicQuantizeMatMul", kMicrosoftDomain)) return false;
  const mlir::Value b = op->getOperand(1), b_scale = op->getOperand(2);
  if (!is_byte(b) || !constant_value(b) || !is_known_float(b_scale)) return false;
  Splitter split(op, rewriter);
  NodeOp quantised = split.make("DynamicQuantizeLinear", 11, {op->getOperand(0)}, {}, 3);
  const mlir::Value sum =
      split.one("MatMulInteger", 10, {quantised->getResult(0), b, quantised->getResult(2), input_or_null(op, 3)});
  split.finish(sum, split.one("Mul", 14, {quantised->getResult(1), b_scale}), input_or_null(op, 4));
  return true;
}

/// Inputs: A, scale, zero point, B, scale, zero point, int32 C, parameters of the result.
bool split_gemm(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.is("QGemm", kMicrosoftDomain) || input_or_null(op, 7)) return false;
  const ops::Node node = to_node(op);
  mlir::Value a = op->getOperand(0), b = op->getOperand(3);
  const mlir::Value a_scale = op->getOperand(1), b_scale = op->getOperand(4), c = input_or_null(op, 6);
  auto weights = constant_value(b);
  if (!is_byte(a) || !is_byte(b) || !weights || !is_known_float(a_scale) || !is_known_float(b_scale)) return false;
  const std::map<std::string, ops::Attribute> turn = {{"perm", std::vector<int64_t>{1, 0}}};
  Splitter split(op, rewriter);
  if (node.get_int("transB", 0) != 0) {
    const ops::Node transpose{"", "Transpose", 13, node.name, turn, 1};
    b = split.constant(copy_of(ops::evaluate(transpose, {ops::Value(*weights)})[0].tensor));
  }
  if (node.get_int("transA", 0) != 0) a = split.one("Transpose", 13, {a}, turn);
  mlir::Value sum = split.one("MatMulInteger", 10, {a, b, input_or_null(op, 2), input_or_null(op, 5)});
  if (c) sum = split.one("Add", 14, {sum, c});
  const mlir::Value alpha = split.constant(ops::Tensor::scalar_f32(node.get_float("alpha", 1.0f)));
  split.finish(sum, split.one("Mul", 14, {split.one("Mul", 14, {alpha, a_scale}), b_scale}), {});
  return true;
}

}  // namespace

std::unique_ptr<mlir::Pass> create_split_float_products_pass() {
  return make_function_pass(
      "nn-split-float-products", "integer products with float results become integer products and arithmetic",
      [](mlir::func::FuncOp func) { return apply_rewrites(func, {split_to_float, split_dynamic, split_gemm}); });
}

}  // namespace tessera::nn
