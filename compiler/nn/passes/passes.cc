// SPDX-License-Identifier: Apache-2.0
// The nn pipeline and the registration of its passes. Before nn-fold-qdq stand only passes that change nothing about
// what ONNX Runtime would fuse: quantised results are its results to the bit. What rounds differently or needs
// dequantised weights comes where it can only meet float operators.
#include "compiler/nn/passes/passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

namespace tessera::nn {
namespace {

constexpr int64_t kFoldLimitBytes = int64_t{64} << 20;

}  // namespace

void build_nn_pipeline(mlir::OpPassManager& manager, const PipelineOptions& options) {
  mlir::OpPassManager& functions = manager.nest<mlir::func::FuncOp>();
  functions.addPass(create_fold_constants_pass(kFoldLimitBytes));
  // What ONNX Runtime does not run has no grouping to follow: normalisation goes out of the way of the groups.
  if (options.fold_qdq && options.fold_batch_norm) functions.addPass(create_fold_batch_norm_pass(/*quantised=*/true));
  // Before every pass that merges equal constants, as MLIR's greedy driver does: two Q of one value whose parameters
  // are equal constants are two consumers, and keep ONNX Runtime from fusing the producer.
  if (options.fold_qdq) functions.addPass(create_qdq_folding_pass());
  if (options.fold_qdq) functions.addPass(create_split_wide_products_pass(options.close));
  if (options.fold_qdq && options.close) functions.addPass(create_close_blocks_pass());
  // A branch that was taken may make further shapes known, and so further branches.
  for (int round = 0; round < 2; ++round) {
    functions.addPass(create_fold_constants_pass(kFoldLimitBytes));
    functions.addPass(create_remove_identities_pass());
  }
  functions.addPass(create_fuse_norms_pass());
  if (options.fold_batch_norm) functions.addPass(create_fold_batch_norm_pass());
  functions.addPass(create_fold_padding_pass());
  functions.addPass(mlir::createCSEPass());
  functions.addPass(create_fold_constants_pass(kFoldLimitBytes, /*quantisation=*/true));
  if (options.close) functions.addPass(create_close_rows_pass());
  functions.addPass(create_simplify_pass());
  functions.addPass(create_sink_transposes_pass());
  functions.addPass(create_remove_identities_pass());
  functions.addPass(create_simplify_pass());
  functions.addPass(create_fold_padding_pass());
  functions.addPass(create_fold_constants_pass(kFoldLimitBytes, /*quantisation=*/true));
  functions.addPass(create_prove_integer_pass());
  functions.addPass(create_split_float_products_pass());
  functions.addPass(create_fold_constants_pass(kFoldLimitBytes, /*quantisation=*/true));
  functions.addPass(create_split_zero_points_pass());
  functions.addPass(create_flatten_convolutions_pass());
  functions.addPass(create_simplify_pass());
  functions.addPass(mlir::createCSEPass());
  functions.addPass(mlir::createCanonicalizerPass());
  functions.addPass(create_infer_types_pass());
}

void register_nn_passes() {
  static const bool once = [] {
    mlir::registerPass([] { return create_infer_types_pass(); });
    mlir::registerPass([] { return create_fold_constants_pass(kFoldLimitBytes); });
    mlir::registerPass([] { return create_fold_constants_pass(kFoldLimitBytes, true); });
    mlir::registerPass([] { return create_remove_identities_pass(); });
    mlir::registerPass([] { return create_simplify_pass(); });
    mlir::registerPass([] { return create_fold_batch_norm_pass(); });
    mlir::registerPass([] { return create_fold_batch_norm_pass(true); });
    mlir::registerPass([] { return create_fold_padding_pass(); });
    mlir::registerPass([] { return create_sink_transposes_pass(); });
    mlir::registerPass([] { return create_prove_integer_pass(); });
    mlir::registerPass([] { return create_split_zero_points_pass(); });
    mlir::registerPass([] { return create_flatten_convolutions_pass(); });
    mlir::registerPass([] { return create_split_float_products_pass(); });
    mlir::registerPass([] { return create_split_wide_products_pass(); });
    mlir::registerPass([] { return create_split_wide_products_pass(true); });
    mlir::registerPass([] { return create_qdq_folding_pass(); });
    mlir::registerPass([] { return create_close_rows_pass(); });
    mlir::registerPass([] { return create_close_blocks_pass(); });
    mlir::registerPass([] { return create_fuse_norms_pass(); });
    mlir::PassPipelineRegistration<>("nn-pipeline", "the passes between import and partitioning",
                                     [](mlir::OpPassManager& manager) { build_nn_pipeline(manager); });
    return true;
  }();
  (void)once;
}

}  // namespace tessera::nn
