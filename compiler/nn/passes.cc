// SPDX-License-Identifier: Apache-2.0
// The nn pipeline and the registration of its passes.
#include "compiler/nn/passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

namespace tessera::nn {

void build_nn_pipeline(mlir::OpPassManager& manager, const PipelineOptions& options) {
  mlir::OpPassManager& functions = manager.nest<mlir::func::FuncOp>();
  functions.addPass(create_fold_constants_pass());
  functions.addPass(mlir::createCSEPass());
  functions.addPass(mlir::createCanonicalizerPass());
  functions.addPass(create_infer_types_pass());
}

void register_nn_passes() {
  static const bool once = [] {
    mlir::registerPass([] { return create_infer_types_pass(); });
    mlir::registerPass([] { return create_fold_constants_pass(); });
    mlir::registerPass([] { return create_fold_constants_pass(int64_t{64} << 20, true); });
    mlir::PassPipelineRegistration<>("nn-pipeline", "the passes between import and partitioning",
                                     [](mlir::OpPassManager& manager) { build_nn_pipeline(manager); });
    return true;
  }();
  (void)once;
}

}  // namespace tessera::nn
