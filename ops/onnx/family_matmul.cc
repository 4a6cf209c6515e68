// SPDX-License-Identifier: Apache-2.0
// MatMul, Gemm, MatMulInteger and ONNX Runtime's FusedMatMul. All reduce to the one matrix product: sums over ascending
// k; fp16 and bfloat16 in fp32, rounded once at the result; integers wrap.
#include <algorithm>
#include <numeric>

#include "ops/kernels/product.h"
#include "ops/quantized/quantized_math.h"

namespace tessera::ops {

namespace {

const kernel::TypeSet kProductTypes =
    kernel::kFloats | kernel::set_of({DType::kInt32, DType::kUint32, DType::kInt64, DType::kUint64});
const kernel::TypeSet kBytes = kernel::set_of({DType::kUint8, DType::kInt8});

void infer_matmul(InferContext& c) {
  kernel::require_type(c.node, c.input(0).dtype, kProductTypes, "the first operand");
  kernel::require_same_type(c.node, c.input(0), c.input(1));
  c.outputs[0] = infer_product(c.node, c.input(0), c.input(1), c.input(0).dtype);
}

void evaluate_matmul(EvalContext& c, const std::vector<TypeInfo>& types) {
  c.outputs[0] =
      kernel::narrow(matrix_product(c.node, kernel::widen(c.input(0)), kernel::widen(c.input(1))), types[0].dtype);
}

void infer_gemm(InferContext& c) {
  kernel::require_type(c.node, c.input(0).dtype, kProductTypes, "A");
  c.outputs[0] = infer_general_product(c);
}

void evaluate_gemm(EvalContext& c, const std::vector<TypeInfo>& types) {
  Tensor added;
  if (c.has(2)) added = kernel::widen(c.input(2));
  c.outputs[0] = kernel::narrow(
      general_product(c.node, kernel::widen(c.input(0)), kernel::widen(c.input(1)), c.has(2) ? &added : nullptr),
      types[0].dtype);
}

// ---------------------------------------------------------------------------------------------------- MatMulInteger

/// Shape under which a zero point broadcasts against its operand: a 1-D zero point of A holds one value for each row.
Shape zero_shape(const Shape& zero, bool left) {
  if (left && zero.size() == 1 && zero[0] != 1) return {zero[0], 1};
  return zero;
}

void infer_matmul_integer(InferContext& c) {
  for (size_t i = 0; i < 2; ++i) {
    const TypeInfo& operand = c.input(i);
    kernel::require_type(c.node, operand.dtype, kBytes, i == 0 ? "A" : "B");
    if (!c.has(i + 2)) continue;
    const TypeInfo& zero = c.input(i + 2);
    kernel::require_same_type(c.node, operand, zero);
    if (!zero.ranked || !operand.ranked || kernel::product(zero.shape) == 1) continue;
    const Shape shape = zero_shape(zero.shape, i == 0);
    const size_t rank = operand.shape.size();
    // One value for each row of A (column of B), the same along k.
    bool fits = shape.size() <= rank && rank >= 2;
    for (size_t d = 0; fits && d < shape.size(); ++d) {
      const size_t axis = rank - shape.size() + d;
      const bool along_k = axis == (i == 0 ? rank - 1 : rank - 2);
      fits =
          shape[d] < 0 || shape[d] == 1 || (!along_k && (operand.shape[axis] < 0 || shape[d] == operand.shape[axis]));
    }
    if (!fits)
      c.node.fail(ErrorCode::kInvalidModel,
                  "zero point " + to_string(zero.shape) + " does not fit the operand " + to_string(operand.shape));
  }
  c.outputs[0] = infer_product(c.node, c.input(0), c.input(1), DType::kInt32);
}

Tensor without_zero(const EvalContext& c, size_t i) {
  if (!c.has(i + 2)) return quantized::without_zero(c.input(i), nullptr, {});
  return quantized::without_zero(c.input(i), &c.input(i + 2), zero_shape(c.input(i + 2).shape(), i == 0));
}

void evaluate_matmul_integer(EvalContext& c, const std::vector<TypeInfo>&) {
  c.outputs[0] = matrix_product(c.node, without_zero(c, 0), without_zero(c, 1));
}

// ------------------------------------------------------------------------------------------------------ FusedMatMul

/// Permutation that an operand of FusedMatMul undergoes: transBatch moves its first dimension behind the batch
/// dimensions, trans exchanges the last two. Operands of rank 1 stay.
std::vector<int64_t> fused_order(int64_t rank, bool trans, bool trans_batch) {
  std::vector<int64_t> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  if (rank < 2) return order;
  if (trans_batch) std::rotate(order.begin(), order.begin() + 1, order.end() - 1);
  if (trans) std::swap(order[order.size() - 1], order[order.size() - 2]);
  return order;
}

std::vector<int64_t> fused_order(const Node& node, size_t operand, int64_t rank) {
  const std::string suffix = operand == 0 ? "A" : "B";
  return fused_order(rank, node.get_int("trans" + suffix, 0) != 0, node.get_int("transBatch" + suffix, 0) != 0);
}

void infer_fused_matmul(InferContext& c) {
  kernel::require_type(c.node, c.input(0).dtype, kernel::kFloats, "the first operand");
  kernel::require_same_type(c.node, c.input(0), c.input(1));
  TypeInfo operands[2];
  for (size_t i = 0; i < 2; ++i) {
    operands[i] = kernel::without_constant(c.input(i));
    if (!operands[i].ranked) continue;
    const Shape shape = operands[i].shape;
    const std::vector<int64_t> order = fused_order(c.node, i, static_cast<int64_t>(shape.size()));
    for (size_t d = 0; d < shape.size(); ++d) operands[i].shape[d] = shape[static_cast<size_t>(order[d])];
  }
  c.outputs[0] = infer_product(c.node, operands[0], operands[1], c.input(0).dtype);
}

void evaluate_fused_matmul(EvalContext& c, const std::vector<TypeInfo>& types) {
  Tensor operands[2];
  for (size_t i = 0; i < 2; ++i) {
    const Tensor x = kernel::widen(c.input(i));
    const std::vector<int64_t> order = fused_order(c.node, i, x.rank());
    operands[i] = std::is_sorted(order.begin(), order.end()) ? x : permuted(x, order);
  }
  Tensor y = matrix_product(c.node, operands[0], operands[1]);
  const float alpha = c.node.get_float("alpha", 1.0f);
  if (alpha != 1.0f)
    kernel::visit_float(y.dtype(), [&]<typename T>(kernel::Tag<T>) {
      for (T& value : y.as_mutable<T>()) value *= static_cast<T>(alpha);
    });
  c.outputs[0] = kernel::narrow(y, types[0].dtype);
}

}  // namespace

void register_matmul(Registry& registry) {
  kernel::add(registry, "MatMul", 1, kernel::kTwo, infer_matmul, evaluate_matmul, {});
  const std::set<std::string> attributes = {"alpha", "beta", "transA", "transB"};
  kernel::add(registry, "Gemm", 7, {3, 3}, infer_gemm, evaluate_gemm, attributes);
  kernel::add(registry, "Gemm", 11, {2, 3}, infer_gemm, evaluate_gemm, attributes);
  kernel::add(registry, "MatMulInteger", 10, {2, 4}, infer_matmul_integer, evaluate_matmul_integer, {});
  for (const char* name : {"FusedMatMul", "TransposeMatMul"})
    kernel::add(registry, name, 1, kernel::kTwo, infer_fused_matmul, evaluate_fused_matmul,
                {"alpha", "transA", "transB", "transBatchA", "transBatchB"}, kernel::kOne, "com.microsoft");
}

}  // namespace tessera::ops
