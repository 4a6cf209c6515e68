// SPDX-License-Identifier: Apache-2.0
// Products of floats by weights in blocks, with --numerics close. Enters: MatMul, or a Gemm that turns nothing, whose
// second operand is DequantizeLinear of a constant of 4 or 8 bits in blocks along the sum. Leaves: the steps of a
// MatMulNBits of accuracy_level 4, which ONNX Runtime's optimiser makes of it: int8 for each block of the activations,
// sums of integers block by block, which run on the NPU (docs/numerics.md, "Weights in blocks").
#include <bit>

#include "compiler/nn/expand_operators.h"
#include "compiler/nn/passes/pass_util.h"
#include "compiler/nn/passes/passes.h"

namespace tessera::nn {
namespace {

using ops::DType;
using ops::Tensor;

constexpr int64_t kLeastBlock = 16, kMostBlock = 256;

/// Numbers [columns, rows] of `bits` for an operand [rows, columns], packed from the low bits on, each row of bytes
/// filled up: `added` makes them 0 and more.
Tensor packed(const Tensor& tensor, int64_t bits, int64_t added, int64_t bytes) {
  const int64_t rows = tensor.shape()[0], columns = tensor.shape()[1], per_byte = 8 / bits;
  std::vector<uint8_t> out(static_cast<size_t>(columns * bytes));
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < rows; ++r)
      out[static_cast<size_t>(c * bytes + r / per_byte)] |=
          static_cast<uint8_t>((tensor.at_int64(r * columns + c) + added) << (r % per_byte * bits));
  return Tensor::of<uint8_t>(DType::kUint8, {columns, bytes}, out);
}

/// Constant weights [depth, columns] of 4 or 8 bits in blocks along the depth, with scale and zero point of each.
struct BlockedWeights {
  Tensor numbers, scale;
  std::optional<Tensor> zero;
  int64_t block = 0;
  int64_t bits = 0;
  int64_t added = 0;  // makes them 0 and more
};

std::optional<BlockedWeights> blocked_weights_of(NodeOp dequantise) {
  const ops::Node by = to_node(dequantise);
  const auto weights = constant_value(dequantise->getOperand(0)), scale = constant_value(dequantise->getOperand(1));
  const mlir::Value given = input_or_null(dequantise, 2);
  const auto zero = given ? constant_value(given) : std::nullopt;
  const int64_t block = by.get_int("block_size", 0), axis = by.get_int("axis", 1);
  if (!weights || !scale || (given && !zero) || weights->rank() != 2 || (axis != 0 && axis != -2) ||
      block < kLeastBlock || block > kMostBlock || !std::has_single_bit(static_cast<uint64_t>(block)))
    return std::nullopt;
  const DType type = weights->dtype();
  const bool small = type == DType::kInt4 || type == DType::kUint4,
             is_signed = type == DType::kInt4 || type == DType::kInt8;
  if (!small && !is_byte(type)) return std::nullopt;
  const int64_t bits = small ? 4 : 8;
  return BlockedWeights{*weights, *scale, zero, block, bits, is_signed ? int64_t{1} << (bits - 1) : 0};
}

/// A MatMul, or a Gemm that is one but for its bias.
bool turns_nothing(NodeOp op) {
  if (op.is("MatMul")) return true;
  if (!op.is("Gemm")) return false;
  const ops::Node node = to_node(op);
  return node.get_int("transA", 0) == 0 && node.get_int("transB", 0) == 0 && node.get_float("alpha", 1) == 1 &&
         (!input_or_null(op, 2) || node.get_float("beta", 1) == 1);
}

bool name_product(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.is("MatMul") && !op.is("Gemm")) return false;
  const mlir::Value x = op->getOperand(0), bias = input_or_null(op, 2);
  NodeOp dequantise = defining_op(op->getOperand(1), "DequantizeLinear");
  const auto rank = shape_of(x);
  if (!dequantise || !rank || rank->size() < 2 || defining_op(x, "DequantizeLinear") || !turns_nothing(op))
    return false;
  const auto weights = blocked_weights_of(dequantise);
  if (!weights) return false;
  const int64_t depth = weights->numbers.shape()[0], columns = weights->numbers.shape()[1], block = weights->block,
                bits = weights->bits, added = weights->added, blocks = (depth + block - 1) / block;
  const mlir::Location location = op.getLoc();
  const auto constant = [&](const Tensor& tensor) { return create_constant(rewriter, location, copy_of(tensor)); };
  const Tensor zeros = weights->zero ? *weights->zero : Tensor(weights->numbers.dtype(), {blocks, columns});
  const ops::Node transpose{"", "Transpose", 13, "", {{"perm", std::vector<int64_t>{1, 0}}}, 1};
  const Tensor numbers = packed(weights->numbers, bits, added, blocks * block * bits / 8);
  const Tensor shape = Tensor::vector_i64({columns, blocks, block * bits / 8});
  const Tensor in_blocks =
      ops::evaluate({"", "Reshape", 13, "", {}, 1}, {ops::Value(numbers), ops::Value(shape)})[0].tensor;
  NodeOp made =
      create_op(rewriter, location, "MatMulNBits", kMicrosoftDomain, 1,
                {x, constant(in_blocks), constant(ops::evaluate(transpose, {ops::Value(weights->scale)})[0].tensor),
                 constant(packed(zeros, bits, added, (blocks * bits + 7) / 8)), mlir::Value(),
                 op.is("Gemm") ? bias : mlir::Value()},
                {{"K", depth}, {"N", columns}, {"bits", bits}, {"block_size", block}, {"accuracy_level", int64_t{4}}});
  rewriter.replaceOp(op, made->getResults());
  return true;
}

}  // namespace

std::unique_ptr<mlir::Pass> create_close_blocks_pass() {
  return make_function_pass("nn-close-blocks", "products by weights in blocks become sums of integers by block",
                            [](mlir::func::FuncOp func) {
                              if (failed(apply_rewrites(func, {name_product}))) return mlir::failure();
                              return guarded(func, [&] {
                                TypeInference inference;
                                inference.run(func);
                                if (expand_operators(func, inference)) TypeInference().run(func);
                              });
                            });
}

}  // namespace tessera::nn
