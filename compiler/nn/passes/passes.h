// SPDX-License-Identifier: Apache-2.0
// Passes over functions of nn operations, and the pipeline that makes of an imported model what partitioning wants. All
// preserve the meaning of every operator; where floating-point results change in rounding (batch-norm folding) it says
// so.
#pragma once

#include <memory>

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"

namespace tessera::nn {

/// nn-infer-types: result types of every operation from the operator library.
std::unique_ptr<mlir::Pass> create_infer_types_pass();
/// nn-fold-constants: what is known at compile time becomes nn.constant, results of at most `limit_bytes`.
/// QuantizeLinear and DequantizeLinear of constants stay until `quantisation` is set (nn-fold-all-constants):
/// nn-fold-qdq needs to see them.
std::unique_ptr<mlir::Pass> create_fold_constants_pass(int64_t limit_bytes = int64_t{64} << 20,
                                                       bool quantisation = false);
/// nn-remove-identities: operations that return their input as it is.
std::unique_ptr<mlir::Pass> create_remove_identities_pass();
/// nn-simplify: algebraic simplification that keeps every bit (excepted: the sign of a zero under x + 0, squares
/// instead of pow).
std::unique_ptr<mlir::Pass> create_simplify_pass();
/// nn-fold-batch-norm: BatchNormalization and per-channel scale and shift into a preceding float Conv or Gemm. Rounding
/// changes.
std::unique_ptr<mlir::Pass> create_fold_batch_norm_pass(bool quantised = false);
/// nn-fold-padding: constant Pad into Conv, AveragePool and MaxPool where the result keeps every bit.
std::unique_ptr<mlir::Pass> create_fold_padding_pass();
/// nn-sink-transposes: transposes move down through element-wise operations until they meet and cancel; those that only
/// move unit dimensions become reshapes.
std::unique_ptr<mlir::Pass> create_sink_transposes_pass();
/// nn-fold-qdq: QuantizeLinear and DequantizeLinear around float operators become integer operators, as ONNX Runtime
/// fuses them.
std::unique_ptr<mlir::Pass> create_qdq_folding_pass();

/// nn-prove-integer: fp32 Conv, MatMul and Gemm of dequantised tensors with power-of-two scales become integer products
/// followed by DequantizeLinear, where every sum is proven to be exact in fp32.
std::unique_ptr<mlir::Pass> create_prove_integer_pass();
/// nn-flatten-convolutions: QLinearConv and ConvInteger of three dimensions become those of two. Keeps every bit.
std::unique_ptr<mlir::Pass> create_flatten_convolutions_pass();
/// nn-split-zero-points: MatMulInteger and ConvInteger with constant weights lose an input zero point that is known at
/// run time only (dynamic quantisation); what it contributed is subtracted from their int32 result. Keeps every bit.
std::unique_ptr<mlir::Pass> create_split_zero_points_pass();
/// MatMulIntegerToFloat, DynamicQuantizeMatMul and QGemm of float results become MatMulInteger and arithmetic;
/// DynamicQuantizeLSTM becomes such products in front of and inside a Scan. Keeps every bit.
std::unique_ptr<mlir::Pass> create_split_float_products_pass();
/// Conv, MatMul and Gemm between DequantizeLinear of 16 bits become integer products of bytes. close
/// (nn-split-close-products): those between bytes, too, whose result becomes bytes behind float operators.
std::unique_ptr<mlir::Pass> create_split_wide_products_pass(bool close = false);
/// How many products that pass has left which it would take apart with `close`.
int64_t count_close_products(mlir::func::FuncOp func);

/// nn-fuse-norms: normalisations that are spelled out become LayerNormalization and SimplifiedLayerNormalization, as
/// ONNX Runtime's optimiser makes them. Rounding changes, to ONNX Runtime's.
std::unique_ptr<mlir::Pass> create_fuse_norms_pass();
/// nn-close-rows: float normalisations of rows and float means between bytes become integer ones, which are close to
/// them and not equal (docs/numerics.md).
std::unique_ptr<mlir::Pass> create_close_rows_pass();
/// nn-close-blocks: float products by weights in blocks become sums of integers block by block, as ONNX Runtime's
/// optimiser makes them by default.
std::unique_ptr<mlir::Pass> create_close_blocks_pass();
/// How many nn-close-rows would make of a function behind the pipeline.
int64_t count_close_rows(mlir::func::FuncOp func);

struct PipelineOptions {
  bool fold_qdq = true;
  bool fold_batch_norm = true;
  bool close = false;  // operators whose results are close to ONNX Runtime's and not equal
};
void build_nn_pipeline(mlir::OpPassManager& manager, const PipelineOptions& options = {});

/// Registers the passes and the pipeline `nn-pipeline` for tessera-opt.
void register_nn_passes();

}  // namespace tessera::nn
