// SPDX-License-Identifier: Apache-2.0
// Removes operations whose result is, bit for bit, one of their operands (Identity, Dropout at inference, shape changes
// to the same shape, pads and slices of nothing, ...), operands of Concat without elements, operations whose results
// have no elements, and If with a known condition.
#include "compiler/nn/passes/pass_util.h"
#include "compiler/nn/passes/passes.h"

namespace tessera::nn {
namespace {

bool all_equal(const std::optional<std::vector<int64_t>>& values, int64_t wanted) {
  return values && std::all_of(values->begin(), values->end(), [&](int64_t v) { return v == wanted; });
}

bool is_identity_permutation(NodeOp op) {
  auto shape = shape_of(op->getOperand(0));
  std::vector<int64_t> perm = permutation_of(op);
  if (!shape || perm.size() != shape->size()) return false;
  return std::is_sorted(perm.begin(), perm.end());
}

bool is_inference_dropout(NodeOp op) {
  if (op.getVersion() < 12) return true;
  mlir::Value mode = input_or_null(op, 2);
  return !mode || constant_scalar(mode) == 0.0;
}

/// A bound of Clip that limits nothing.
bool is_open_bound(NodeOp op, unsigned input, const char* attribute, double infinity) {
  mlir::Value value = input_or_null(op, input);
  if (value) return constant_scalar(value) == infinity;
  auto bound = op.getOnnxAttributes().getAs<mlir::FloatAttr>(attribute);
  if (!bound) return true;
  double limit = infinity < 0 ? -3.4028234663852886e38 : 3.4028234663852886e38;
  return bound.getValueAsDouble() == infinity ||
         (dtype_of(op->getOperand(0)) == ops::DType::kFloat16 && bound.getValueAsDouble() == limit);
}

/// A Clip of floats between bounds that limit nothing.
bool is_open_clip(NodeOp op) {
  double infinity = std::numeric_limits<double>::infinity();
  return ops::is_floating(dtype_of(op->getOperand(0))) && is_open_bound(op, 1, "min", -infinity) &&
         is_open_bound(op, 2, "max", infinity);
}

/// A Resize or Upsample that copies elements of the image, none from outside it.
bool takes_nearest(NodeOp op) {
  auto mode = op.getOnnxAttributes().getAs<mlir::StringAttr>("mode");
  auto transform = op.getOnnxAttributes().getAs<mlir::StringAttr>("coordinate_transformation_mode");
  bool nearest = !mode || mode.getValue() == "nearest";
  return nearest && !(transform && transform.getValue() == "tf_crop_and_resize");
}

/// Operators of ai.onnx that change nothing, whatever the shape of the operand.
bool changes_nothing(NodeOp op) {
  mlir::Value input = op->getOperand(0), result = op->getResult(0);
  if (op.is("Identity")) return true;
  if (op.is("Dropout")) return is_inference_dropout(op);
  if (is_onnx(op, {"Cast", "CastLike"}))
    return dtype_of(input) != ops::DType::kUndefined && dtype_of(input) == dtype_of(result);
  if (op.is("Transpose")) return is_identity_permutation(op);
  if (op.is("Pad")) return all_equal(constant_ints(op, 1, "pads"), 0);
  if (is_onnx(op, {"Concat", "Sum", "Max", "Min", "Mean"})) return op->getNumOperands() == 1;
  return op.is("Clip") && is_open_clip(op);
}

/// Operators of ai.onnx that change nothing if the result has the type and the shape of the operand.
bool changes_only_shape(NodeOp op) {
  if (is_onnx(op, {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile"})) return true;
  // Steps of one and the whole shape: it starts at the beginning.
  if (op.is("Slice")) return !input_or_null(op, 4) || all_equal(constant_ints(op, 4, "steps"), 1);
  if (op.is("Split")) return op->getNumResults() == 1;
  return is_onnx(op, {"Resize", "Upsample"}) && takes_nearest(op);
}

/// The operand that result 0 of `op` equals, or null.
mlir::Value identity_of(NodeOp op) {
  if (!op.getDomain().empty() || op->getNumOperands() == 0 || !only_first_result_used(op)) return {};
  mlir::Value input = op->getOperand(0), result = op->getResult(0);
  if (is_none(input)) return {};
  bool same = input.getType() == result.getType() && same_static_shape(input, result);
  return changes_nothing(op) || (same && changes_only_shape(op)) ? input : mlir::Value();
}

bool remove_identity(NodeOp op, mlir::PatternRewriter& rewriter) {
  mlir::Value value = identity_of(op);
  if (!value) return false;
  llvm::SmallVector<mlir::Value> results(op->getNumResults(), value);  // the others have no uses
  rewriter.replaceOp(op, results);
  return true;
}

bool is_empty(mlir::Value value) {
  auto type = llvm::dyn_cast<mlir::RankedTensorType>(value.getType());
  return type && type.hasStaticShape() && type.getNumElements() == 0;
}

bool remove_empty(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (op->getNumResults() == 0 || !op.is_deterministic()) return false;
  for (mlir::Value result : op->getResults()) {
    if (!is_empty(result) && !result.use_empty()) return false;
  }
  if (!is_empty(op->getResult(0)) || !only_first_result_used(op)) return false;
  ops::TypeInfo info = to_type_info(op->getResult(0).getType());
  mlir::Value constant = create_constant(rewriter, op.getLoc(), ops::Tensor(info.dtype, info.shape));
  rewriter.replaceOp(op, llvm::SmallVector<mlir::Value>(op->getNumResults(), constant));
  return true;
}

bool remove_empty_concat_operands(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.is("Concat")) return false;
  llvm::SmallVector<mlir::Value> kept;
  for (mlir::Value operand : op->getOperands()) {
    if (!is_empty(operand)) kept.push_back(operand);
  }
  if (kept.size() == op->getNumOperands() || kept.empty()) return false;
  rewriter.modifyOpInPlace(op, [&] { op->setOperands(kept); });
  return true;
}

/// If with a known condition: the branch takes its place.
bool inline_branch(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.is("If")) return false;
  auto condition = constant_scalar(op->getOperand(0));
  if (!condition) return false;
  mlir::Region* region = op.body(*condition != 0 ? "then_branch" : "else_branch");
  if (!region || region->getNumArguments() != 0) return false;
  mlir::Block& block = region->front();
  mlir::Operation* terminator = block.getTerminator();
  llvm::SmallVector<mlir::Value> results(terminator->getOperands());
  if (results.size() != op->getNumResults()) return false;
  rewriter.eraseOp(terminator);
  rewriter.inlineBlockBefore(&block, op);
  rewriter.replaceOp(op, results);
  return true;
}

}  // namespace

std::unique_ptr<mlir::Pass> create_remove_identities_pass() {
  return make_function_pass(
      "nn-remove-identities", "remove operations that return an operand as it is or nothing at all",
      [](mlir::func::FuncOp func) {
        return apply_rewrites(func, {remove_identity, remove_empty, remove_empty_concat_operands, inline_branch});
      });
}

}  // namespace tessera::nn
