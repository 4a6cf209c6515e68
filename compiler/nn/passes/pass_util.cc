// SPDX-License-Identifier: Apache-2.0
// The function pass and the rewrite driver of pass_util.h, over MLIR's greedy driver.
#include "compiler/nn/passes/pass_util.h"

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace tessera::nn {
namespace {

class FunctionPass : public mlir::OperationPass<mlir::func::FuncOp> {
 public:
  using Body = std::function<mlir::LogicalResult(mlir::func::FuncOp)>;
  FunctionPass(llvm::StringRef argument, llvm::StringRef description, Body body)
      : OperationPass(mlir::TypeID::get<FunctionPass>()),
        argument_(argument),
        description_(description),
        body_(std::move(body)) {}
  FunctionPass(const FunctionPass&) = default;

  llvm::StringRef getName() const override { return argument_; }
  llvm::StringRef getArgument() const override { return argument_; }
  llvm::StringRef getDescription() const override { return description_; }
  void getDependentDialects(mlir::DialectRegistry& registry) const override { registry.insert<NNDialect>(); }
  void runOnOperation() override {
    mlir::func::FuncOp func = getOperation();
    if (func.isExternal()) return;
    mlir::LogicalResult result = mlir::failure();
    mlir::LogicalResult caught = guarded(func, [&] { result = body_(func); });
    if (mlir::failed(caught) || mlir::failed(result)) return signalPassFailure();
    // A value that replaced a result may be known more exactly.
    llvm::SmallVector<mlir::Type> results(func.front().getTerminator()->getOperandTypes());
    func.setType(mlir::FunctionType::get(&getContext(), func.front().getArgumentTypes(), results));
  }
  std::unique_ptr<mlir::Pass> clonePass() const override { return std::make_unique<FunctionPass>(*this); }

 private:
  llvm::StringRef argument_, description_;  // literals
  Body body_;
};

class RewritePattern : public mlir::OpRewritePattern<NodeOp> {
 public:
  RewritePattern(mlir::MLIRContext* context, const Rewrite& rewrite) : OpRewritePattern(context), rewrite_(rewrite) {}
  mlir::LogicalResult matchAndRewrite(NodeOp op, mlir::PatternRewriter& rewriter) const override {
    try {
      return mlir::success(rewrite_(op, rewriter));
    } catch (const Error&) {
      return mlir::failure();
    }
  }

 private:
  const Rewrite& rewrite_;
};

}  // namespace

std::unique_ptr<mlir::Pass> make_function_pass(llvm::StringRef argument, llvm::StringRef description,
                                               std::function<mlir::LogicalResult(mlir::func::FuncOp)> body) {
  return std::make_unique<FunctionPass>(argument, description, std::move(body));
}

mlir::LogicalResult apply_rewrites(mlir::func::FuncOp func, const std::vector<Rewrite>& rewrites) {
  mlir::RewritePatternSet patterns(func.getContext());
  for (const Rewrite& rewrite : rewrites) patterns.add<RewritePattern>(func.getContext(), rewrite);
  mlir::GreedyRewriteConfig config;
  config.useTopDownTraversal = true;
  config.maxIterations = mlir::GreedyRewriteConfig::kNoLimit;
  config.enableRegionSimplification = mlir::GreedySimplifyRegionLevel::Disabled;
  return mlir::applyPatternsAndFoldGreedily(func, std::move(patterns), config);
}

bool same_static_shape(mlir::Value a, mlir::Value b) {
  auto type_a = llvm::dyn_cast<mlir::RankedTensorType>(a.getType());
  auto type_b = llvm::dyn_cast<mlir::RankedTensorType>(b.getType());
  return type_a && type_b && type_a.hasStaticShape() && type_a.getShape() == type_b.getShape();
}

std::optional<std::vector<int64_t>> constant_ints(NodeOp op, unsigned input, const std::string& attribute) {
  if (auto array = op.getOnnxAttributes().getAs<mlir::DenseI64ArrayAttr>(attribute)) {
    return std::vector<int64_t>(array.asArrayRef().begin(), array.asArrayRef().end());
  }
  auto tensor = constant_value(input_or_null(op, input));
  if (!tensor) return std::nullopt;
  return tensor->to_int64s();
}

std::vector<int64_t> permutation_of(NodeOp transpose) {
  auto shape = shape_of(transpose->getOperand(0));
  if (!shape) return {};
  int64_t rank = static_cast<int64_t>(shape->size());
  std::vector<int64_t> result;
  if (auto perm = transpose.getOnnxAttributes().getAs<mlir::DenseI64ArrayAttr>("perm")) {
    for (int64_t p : perm.asArrayRef()) result.push_back(p < 0 ? p + rank : p);
  } else {
    for (int64_t i = rank; i-- > 0;) result.push_back(i);
  }
  std::vector<bool> seen(shape->size(), false);
  for (int64_t p : result) {
    if (p < 0 || p >= rank || seen[static_cast<size_t>(p)]) return {};
    seen[static_cast<size_t>(p)] = true;
  }
  return static_cast<int64_t>(result.size()) == rank ? result : std::vector<int64_t>();
}

bool only_first_result_used(NodeOp op) {
  return llvm::all_of(op->getResults().drop_front(), [](mlir::Value result) { return result.use_empty(); });
}

NodeOp replace_with(mlir::PatternRewriter& rewriter, NodeOp op, llvm::StringRef op_type, mlir::ValueRange operands,
                    const std::map<std::string, ops::Attribute>& attributes) {
  NodeOp replacement =
      create_op(rewriter, op.getLoc(), op_type, "", static_cast<int>(op.getVersion()), operands, attributes);
  rewriter.replaceOp(op, replacement->getResults());
  return replacement;
}

mlir::Value mean_of(mlir::Value value) {
  NodeOp mean = defining_op(value, "ReduceMean");
  if (!mean || to_node(mean).get_int("keepdims", 1) == 0) return {};
  const auto shape = shape_of(mean.getInputs()[0]);
  const auto axes = constant_ints(mean, 1, "axes");
  if (!shape || !axes || axes->size() != 1) return {};
  const auto rank = static_cast<int64_t>(shape->size());
  return (*axes)[0] == -1 || (*axes)[0] == rank - 1 ? mean.getInputs()[0] : mlir::Value{};
}

}  // namespace tessera::nn
