// SPDX-License-Identifier: Apache-2.0
// Algebraic simplification and strength reduction that keep every bit of the result (excepted the sign of a zero under
// x + 0, and squares): neutral elements, compositions of transposes, reshapes and casts, idempotent functions, division
// by powers of two, squares.
#include <cmath>
#include <limits>

#include "compiler/nn/passes/pass_util.h"
#include "compiler/nn/passes/passes.h"
#include "compiler/nn/reshape_target.h"

namespace tessera::nn {
namespace {

using ops::DType;

/// The one value that all elements of a constant have.
std::optional<double> uniform_value(mlir::Value value) {
  auto tensor = constant_value(value);
  if (!tensor || tensor->size() == 0 || tensor->dtype() == DType::kString) return std::nullopt;
  if (tensor->dtype() == DType::kComplex64 || tensor->dtype() == DType::kComplex128) return std::nullopt;
  double first = tensor->at_double(0);
  for (int64_t i = 1; i < tensor->size(); ++i) {
    if (tensor->at_double(i) != first) return std::nullopt;
  }
  // Integers beyond 2^53 are not told apart in double precision.
  if (std::abs(first) > 9.0e15) return std::nullopt;
  return first;
}

/// True if `op` gives a result of the shape of `operand`: the other operand is not broadcast up.
bool keeps_shape(NodeOp op, mlir::Value operand, mlir::Value other) {
  if (same_static_shape(operand, op->getResult(0))) return true;
  auto shape = shape_of(other), kept = shape_of(operand);
  if (!shape || !kept || shape->size() > kept->size()) return false;
  return std::all_of(shape->begin(), shape->end(), [](int64_t d) { return d == 1; });
}

bool remove_neutral_element(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.getDomain().empty() || op->getNumOperands() != 2) return false;
  llvm::StringRef type = op.getOpType();
  double neutral = 0;
  bool commutes = true;
  if (type == "Mul")
    neutral = 1;
  else if (type == "Div" || type == "Pow")
    neutral = 1, commutes = false;
  else if (type == "Sub")
    commutes = false;
  else if (type != "Add")
    return false;
  for (unsigned i = commutes ? 0 : 1; i < 2; ++i) {
    mlir::Value constant = op->getOperand(i), kept = op->getOperand(1 - i);
    if (dtype_of(kept) != dtype_of(op->getResult(0)) || !keeps_shape(op, kept, constant) ||
        uniform_value(constant) != neutral)
      continue;
    rewriter.replaceOp(op, kept);
    return true;
  }
  return false;
}

/// Pow(x, 2) = x * x, rounded once, as ONNX Runtime computes it; a library's pow may be one unit in the last place off.
bool expand_square(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.is("Pow") || uniform_value(op->getOperand(1)) != 2.0) return false;
  mlir::Value x = op->getOperand(0);
  if (!keeps_shape(op, x, op->getOperand(1)) || !ops::is_floating(dtype_of(x))) return false;
  replace_with(rewriter, op, "Mul", {x, x});
  return true;
}

/// Division by a power of two whose reciprocal is normal is a multiplication, exactly.
bool divide_by_power_of_two(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.is("Div") || dtype_of(op->getResult(0)) != DType::kFloat) return false;
  auto divisor = constant_value(op->getOperand(1));
  if (!divisor || divisor->size() == 0) return false;
  std::vector<float> reciprocals;
  for (float d : divisor->to_floats()) {
    int exponent = 0;
    if (d == 0 || !std::isfinite(d) || std::abs(std::frexp(d, &exponent)) != 0.5f || !std::isnormal(1.0f / d))
      return false;
    reciprocals.push_back(1.0f / d);
  }
  mlir::Value factor =
      create_constant(rewriter, op.getLoc(), ops::Tensor::of(DType::kFloat, divisor->shape(), reciprocals));
  replace_with(rewriter, op, "Mul", {op->getOperand(0), factor});
  return true;
}

bool compose_transposes(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.is("Transpose")) return false;
  NodeOp inner = defining_op(op->getOperand(0), "Transpose");
  if (!inner) return false;
  std::vector<int64_t> first = permutation_of(inner), second = permutation_of(op), both;
  if (first.empty() || first.size() != second.size()) return false;
  bool identity = true;
  for (size_t i = 0; i < second.size(); ++i) {
    both.push_back(first.at(static_cast<size_t>(second[i])));
    identity = identity && both.back() == static_cast<int64_t>(i);
  }
  if (identity) {
    rewriter.replaceOp(op, inner->getOperand(0));
  } else {
    replace_with(rewriter, op, "Transpose", {inner->getOperand(0)}, {{"perm", both}});
  }
  return true;
}

bool is_reshaping(NodeOp op) {
  return op && (op.is("Reshape") || op.is("Flatten") || op.is("Squeeze") || op.is("Unsqueeze"));
}

/// Two changes of shape in a row are one, when the final shape is known.
bool compose_reshapes(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!is_reshaping(op)) return false;
  NodeOp inner = defining_op(op->getOperand(0));
  auto shape = shape_of(op->getResult(0));
  if (!is_reshaping(inner) || !shape || !is_static(op->getResult(0))) return false;
  if (std::find(shape->begin(), shape->end(), 0) != shape->end()) return false;  // 0 means "copy" to Reshape
  const auto extents = reshape_target(op, shape_of(inner->getOperand(0)).value_or(ops::Shape{}), *shape);
  if (!extents) return false;
  mlir::Value target = create_constant(rewriter, op.getLoc(), ops::Tensor::vector_i64(*extents));
  replace_with(rewriter, op, "Reshape", {inner->getOperand(0), target});
  return true;
}

/// True if every value of `from` is a value of `to`.
bool holds(DType to, DType from) {
  auto integer_bits = [](DType t) { return static_cast<int>(ops::element_bytes(t)) * 8; };
  if (from == DType::kBool) return ops::is_integer(to) || ops::is_floating(to);
  if (ops::is_integer(from) && ops::packed_bits(from) >= 8) {
    if (ops::is_integer(to) && ops::packed_bits(to) >= 8) {
      if (ops::is_signed_integer(from) == ops::is_signed_integer(to)) return integer_bits(to) >= integer_bits(from);
      return ops::is_signed_integer(to) && integer_bits(to) > integer_bits(from);
    }
    if (to == DType::kFloat) return integer_bits(from) <= 16;
    if (to == DType::kDouble) return integer_bits(from) <= 32;
    return false;
  }
  if (from == DType::kFloat16 || from == DType::kBfloat16) return to == DType::kFloat || to == DType::kDouble;
  return from == DType::kFloat && to == DType::kDouble;
}

/// A cast of a cast needs no detour through a type that holds every value of the source.
bool compose_casts(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.is("Cast")) return false;
  NodeOp inner = defining_op(op->getOperand(0), "Cast");
  if (!inner) return false;
  mlir::Value source = inner->getOperand(0);
  DType from = dtype_of(source), detour = dtype_of(inner->getResult(0)), to = dtype_of(op->getResult(0));
  // Values out of the range of an integer are undefined from floats and wrap from integers: do not exchange the two.
  bool wraps = ops::is_integer(to) && ops::is_integer(from) != ops::is_integer(detour) && !holds(to, from);
  if (!holds(detour, from) || wraps) return false;
  if (to == from) {
    rewriter.replaceOp(op, source);
  } else {
    rewriter.modifyOpInPlace(op, [&] { op->setOperand(0, source); });
  }
  return true;
}

/// f(f(x)) = f(x) and g(g(x)) = x.
bool remove_repetition(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.getDomain().empty() || op->getNumOperands() != 1) return false;
  NodeOp inner = defining_op(op->getOperand(0), op.getOpType());
  if (!inner || inner.getOnnxAttributes() != op.getOnnxAttributes()) return false;
  llvm::StringRef type = op.getOpType();
  if (type == "Relu" || type == "Abs" || type == "Ceil" || type == "Floor" || type == "Round" || type == "Sign") {
    rewriter.replaceOp(op, inner->getResult(0));
    return true;
  }
  if (type == "Neg" || type == "Not" || type == "BitwiseNot") {
    rewriter.replaceOp(op, inner->getOperand(0));
    return true;
  }
  return false;
}

bool choose_where(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.is("Where")) return false;
  auto condition = uniform_value(op->getOperand(0));
  if (!condition) return false;
  mlir::Value chosen = op->getOperand(*condition != 0 ? 1 : 2);
  if (!same_static_shape(chosen, op->getResult(0))) return false;
  rewriter.replaceOp(op, chosen);
  return true;
}

/// Sum of two values is Add, which more of the machine knows; of one value it is that value (nn-remove-identities).
bool sum_to_add(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.is("Sum") || op->getNumOperands() != 2) return false;
  replace_with(rewriter, op, "Add", op->getOperands());
  return true;
}

}  // namespace

std::unique_ptr<mlir::Pass> create_simplify_pass() {
  return make_function_pass(
      "nn-simplify", "algebraic simplification that keeps every bit", [](mlir::func::FuncOp func) {
        return apply_rewrites(func, {remove_neutral_element, expand_square, divide_by_power_of_two, compose_transposes,
                                     compose_reshapes, compose_casts, remove_repetition, choose_where, sum_to_add});
      });
}

}  // namespace tessera::nn
