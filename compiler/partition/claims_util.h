// SPDX-License-Identifier: Apache-2.0
// What the matchers share: reading of scales, zero points and windows, and the matchers of each file. Internal to
// compiler/partition.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "compiler/partition/claims.h"
#include "compiler/partition/operator_class.h"

namespace tessera::partition {

using nn::NodeOp;
using ops::DType;
using ops::Shape;

inline bool is_byte(DType dtype) { return dtype == DType::kUint8 || dtype == DType::kInt8; }

struct Range {
  int32_t low, high;
};
inline Range range_of(DType dtype) { return dtype == DType::kUint8 ? Range{0, 255} : Range{-128, 127}; }

/// Scale and zero point of a tensor; per channel where they have more than one element.
struct Quantisation {
  std::vector<float> scale;
  std::vector<int32_t> zero;
  DType dtype = DType::kUndefined;
  bool scalar() const { return scale.size() == 1 && zero.size() == 1; }
  float s() const { return scale[0]; }
  int32_t z() const { return zero[0]; }
};

/// Reads constant operands `scale_index` and `zero_index`: of the operand in front of its scale, and of the result. An
/// absent zero point is 0 of the type that the graph gives the tensor.
std::optional<Quantisation> operand_quantisation(NodeOp op, unsigned scale_index, unsigned zero_index);
std::optional<Quantisation> result_quantisation(NodeOp op, unsigned scale_index, unsigned zero_index);

/// A window; index 0 is rows.
struct Window {
  int64_t kernel[2] = {1, 1}, stride[2] = {1, 1}, dilation[2] = {1, 1}, before[2] = {0, 0}, after[2] = {0, 0};
};

/// Window attributes of a 1-D or 2-D convolution or pool; index 0 is rows. `spatial` holds input extents, `out` output
/// extents. The padding behind is what the output extents need, so that ceil_mode and auto_pad need no further case.
std::optional<Window> window(const ops::Node& node, const Shape& kernel, const Shape& spatial, const Shape& out);

/// The window's numbers into a Convolution or Pool.
void apply(const Window& w, auto& to) {
  to.kernel_h = w.kernel[0], to.kernel_w = w.kernel[1];
  to.stride_h = w.stride[0], to.stride_w = w.stride[1];
  to.dilation_h = w.dilation[0], to.dilation_w = w.dilation[1];
  to.pads = {w.before[0], w.before[1], w.after[0], w.after[1]};
}

/// The convert stage of a requantisation to `y` with one multiplier or one for each channel.
npu::Stage requantise(std::vector<float> multiplier, std::vector<int32_t> bias, const Quantisation& y);

/// A constant int32 bias with one element or one for each channel; empty when absent, nothing when it is something
/// else.
std::optional<std::vector<int32_t>> bias_values(NodeOp op, unsigned index, int64_t channels);

Claim base_claim(NodeOp op, std::vector<mlir::Value> operands);
/// Every shape of the operation is known.
bool all_static(NodeOp op);
bool has_elements(mlir::Value value);
bool is_power_of_two(float value);
/// A constant with one element.
bool is_scalar_constant(mlir::Value value);
/// Operators whose result element depends on the element of one operand alone when all other operands are scalars.
bool is_elementwise(NodeOp op);
/// The function of a byte that `order` computes from `source` to `result`, by the operator library over all 256 values.
/// Operators that only move elements pass them through.
std::optional<npu::Table> tabulate(mlir::Value source, const std::vector<NodeOp>& order, mlir::Value result);
/// The steps by which an operator moves its first operand's elements to each of its results; nothing for others.
std::optional<std::vector<graph::Steps>> moves_of(NodeOp op);

/// The window of a MaxPool of which `x` holds the bytes.
std::optional<graph::Pool> max_pool_window(NodeOp op, mlir::Value x);
std::optional<Claim> claim_max_pool(NodeOp op);
/// `value`, an activation of dequantised int32 sums or these, quantised by `op`: the conversion of the sums.
struct Requantised {
  graph::Requantise what;
  mlir::Value sums;
  std::vector<mlir::Operation*> covered;
};
std::optional<Requantised> requantised(NodeOp op, mlir::Value value);
/// QuantizeLinear of such a value.
std::optional<Claim> claim_requantise(NodeOp op);
/// ai.tessera Requantise: X, scale, bias. Behind a product or a sum that nothing else reads it is its stage.
std::optional<Claim> claim_requantise_sums(NodeOp op);
/// ConvInteger and MatMulInteger: int32 sums of products.
std::optional<Claim> claim_integer_sums(NodeOp product);
/// The stage of an operation that sums products.
npu::Stage& product_stage(graph::Operation& operation);
/// ai.tessera WindowSum and AxisSum: int32 sums of bytes.
std::optional<Claim> claim_byte_sums(NodeOp op);
/// ai.tessera Pairs, by proof.
std::optional<Claim> claim_pairs(NodeOp op);
std::optional<Claim> claim_transposed(NodeOp op);
std::optional<Claim> claim_qlinear_softmax(NodeOp op);
std::optional<Claim> claim_normalise_rows(NodeOp op);
/// Makes the rows of that QLinearSoftmax rows of a length that is known when they run.
void give_run_time_length(NodeOp op, npu::RowForm& form, int64_t shortest);
std::optional<Claim> claim_qlinear_product(NodeOp op);
std::optional<Claim> claim_integer_product(NodeOp op);
std::optional<Claim> claim_gemm_product(NodeOp op);
std::optional<Claim> claim_average_pool(NodeOp op);
std::optional<Claim> claim_reduce_max(NodeOp op);
std::optional<Claim> claim_reduce_mean(NodeOp op);
std::optional<Claim> claim_float_pool(NodeOp op);
std::optional<Claim> claim_global_average_pool(NodeOp op);
std::optional<Claim> claim_binary(NodeOp op);
std::optional<Claim> claim_float_binary(NodeOp op);
/// LiteRT's integer formulas (domain litert), by proof.
std::optional<Claim> claim_litert_binary(NodeOp op);
std::optional<Claim> claim_litert_average_pool(NodeOp op);
std::optional<Claim> claim_litert_mean(NodeOp op);
std::optional<Claim> claim_litert_transposed(NodeOp op);
std::optional<Claim> claim_table(NodeOp op);
std::optional<Claim> claim_moves(NodeOp op);
/// QuantizeLinear behind a chain of unary operators and movements that starts at a byte tensor.
std::optional<Claim> claim_moved_table(NodeOp op);
/// QuantizeLinear behind a Concat of such chains.
std::optional<Claim> claim_float_concat(NodeOp op);

}  // namespace tessera::partition
