// SPDX-License-Identifier: Apache-2.0
// Runs passes over textual IR: tessera-opt file.mlir --nn-canonicalize. Registers the project's dialects and passes and
// the upstream ones that its pipelines use, and nothing else.
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"

#include "compiler/nn/nn_dialect.h"
#include "compiler/nn/passes.h"

int main(int argc, char** argv) {
  mlir::DialectRegistry registry;
  registry.insert<mlir::func::FuncDialect, tessera::nn::NNDialect>();
  mlir::registerTransformsPasses();
  tessera::nn::register_nn_passes();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "Tessera's pass driver\n", registry));
}
