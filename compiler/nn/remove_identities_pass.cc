// SPDX-License-Identifier: Apache-2.0
// Removes operations whose result is, bit for bit, one of their operands (Identity, Dropout at inference, shape changes
// to the same shape, pads and slices of nothing, ...), operands of Concat without elements, operations whose results
// have no elements, and If with a known condition.
#include "compiler/nn/pass_util.h"
#include "compiler/nn/passes.h"

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

/// The operand that result 0 of `op` equals, or null.
mlir::Value identity_of(NodeOp op) {
  if (!op.getDomain().empty() || op->getNumOperands() == 0 || !only_first_result_used(op)) return {};
  mlir::Value input = op->getOperand(0), result = op->getResult(0);
  llvm::StringRef type = op.getOpType();
  if (is_none(input)) return {};
  bool same = input.getType() == result.getType() && same_static_shape(input, result);
  if (type == "Identity") return input;
  if (type == "Dropout") return is_inference_dropout(op) ? input : mlir::Value();
  if (type == "Cast" || type == "CastLike")
    return dtype_of(input) != ops::DType::kUndefined && dtype_of(input) == dtype_of(result) ? input : mlir::Value();
  if (type == "Transpose") return is_identity_permutation(op) ? input : mlir::Value();
  if (type == "Reshape" || type == "Flatten" || type == "Squeeze" || type == "Unsqueeze" || type == "Expand" ||
      type == "Tile") {
    return same ? input : mlir::Value();
  }
  if (type == "Pad") return all_equal(constant_ints(op, 1, "pads"), 0) ? input : mlir::Value();
  if (type == "Slice") {
    // Steps of one and the whole shape: it starts at the beginning.
    bool forward = !input_or_null(op, 4) || all_equal(constant_ints(op, 4, "steps"), 1);
    return same && forward ? input : mlir::Value();
  }
  if (type == "Split") return same && op->getNumResults() == 1 ? input : mlir::Value();
  if (type == "Resize" || type == "Upsample") {
    auto mode = op.getOnnxAttributes().getAs<mlir::StringAttr>("mode");
    auto transform = op.getOnnxAttributes().getAs<mlir::StringAttr>("coordinate_transformation_mode");
    bool nearest = !mode || mode.getValue() == "nearest";
    return same && nearest && !(transform && transform.getValue() == "tf_crop_and_resize") ? input : mlir::Value();
  }
  if (type == "Concat" || type == "Sum" || type == "Max" || type == "Min" || type == "Mean") {
    return op->getNumOperands() == 1 ? input : mlir::Value();
  }
  if (type == "Clip") {
    double infinity = std::numeric_limits<double>::infinity();
    bool open = ops::is_floating(dtype_of(input)) && is_open_bound(op, 1, "min", -infinity) &&
                is_open_bound(op, 2, "max", infinity);
    return open ? input : mlir::Value();
  }
  return {};
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
