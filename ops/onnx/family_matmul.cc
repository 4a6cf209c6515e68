// SPDX-License-Identifier: Apache-2.0
// MatMul, Gemm, MatMulInteger and ONNX Runtime's FusedMatMul. All reduce to the one matrix product: sums over ascending
// k; fp16 and bfloat16 in fp32, rounded once at the result; integers wrap.
#include <algorithm>
#include <numeric>

#include "ops/expansion.h"
#include "ops/kernels/product.h"
#include "ops/quantized/quantized_math.h"

namespace tessera::ops {

namespace {

const kernel::TypeSet kProductTypes =
    kernel::kFloats | kernel::set_of({DType::kInt32, DType::kUint32, DType::kInt64, DType::kUint64});
const kernel::TypeSet kProductBytes = kernel::set_of({DType::kUint8, DType::kInt8});

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
    kernel::require_type(c.node, operand.dtype, kProductBytes, i == 0 ? "A" : "B");
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

/// An operand of FusedMatMul as MatMul takes it: transBatch moves its first dimension behind the batch dimensions,
/// trans exchanges the last two. Operands of rank 1 stay. Nothing while a rank is needed and unknown.
std::optional<Expander::Operand> fused_operand(Expander& e, const Node& node, const TypeInfo& type, size_t i,
                                               const Expander::Operand& x) {
  const std::string suffix = i == 0 ? "A" : "B";
  const bool trans = node.get_int("trans" + suffix, 0) != 0, trans_batch = node.get_int("transBatch" + suffix, 0) != 0;
  if (!trans && !trans_batch) return x;
  if (!type.ranked) return std::nullopt;
  std::vector<int64_t> order(type.shape.size());
  if (order.size() < 2) return x;
  std::iota(order.begin(), order.end(), 0);
  if (trans_batch) std::rotate(order.begin(), order.begin() + 1, order.end() - 1);
  if (trans) std::swap(order[order.size() - 1], order[order.size() - 2]);
  return e.step("Transpose", {x}, {{"perm", order}});
}

/// alpha * A * B, rounded once behind the product and once behind the factor; narrow floats in float32.
std::optional<Expansion> expand_fused_matmul(const Node& node, const std::vector<TypeInfo>& inputs) {
  kernel::require_type(node, inputs[0].dtype, kernel::kFloats, "the first operand");
  kernel::require_same_type(node, inputs[0], inputs[1]);
  if (inputs[0].dtype == DType::kUndefined) return std::nullopt;
  const DType type = inputs[0].dtype == DType::kDouble ? DType::kDouble : DType::kFloat;
  const auto cast = [&](Expander& e, const Expander::Operand& x, DType to) {
    return inputs[0].dtype == type ? x : e.cast(x, to);
  };
  Expander e(node, inputs, 13);
  const auto a = fused_operand(e, node, inputs[0], 0, cast(e, e.input(0), type)),
             b = fused_operand(e, node, inputs[1], 1, cast(e, e.input(1), type));
  if (!a || !b) return std::nullopt;
  Expander::Operand y = e.step("MatMul", {*a, *b});
  const float alpha = node.get_float("alpha", 1.0f);
  if (alpha != 1.0f) y = e.step("Mul", {y, Expander::scalar(type, static_cast<double>(alpha))});
  return e.finish({cast(e, y, inputs[0].dtype)});
}

}  // namespace

void register_matmul(Registry& registry) {
  kernel::add(registry, "MatMul", 1, kernel::kTwo, infer_matmul, evaluate_matmul, {});
  const std::set<std::string> attributes = {"alpha", "beta", "transA", "transB"};
  kernel::add(registry, "Gemm", 7, {3, 3}, infer_gemm, evaluate_gemm, attributes);
  kernel::add(registry, "Gemm", 11, {2, 3}, infer_gemm, evaluate_gemm, attributes);
  kernel::add(registry, "MatMulInteger", 10, {2, 4}, infer_matmul_integer, evaluate_matmul_integer, {});
  for (const char* name : {"FusedMatMul", "TransposeMatMul"})
    add_expansion(registry, name, 1, kernel::kTwo, expand_fused_matmul,
                  {"alpha", "transA", "transB", "transBatchA", "transBatchB"}, kernel::kOne, "com.microsoft");
}

}  // namespace tessera::ops
