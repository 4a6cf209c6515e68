// SPDX-License-Identifier: Apache-2.0
// Matrix products of two run-time tensors: QLinearMatMul, MatMulInteger and QGemm whose second operand is no constant.
// The formulas are those of the products with constant weights; the second operand needs one zero point, its scales may
// differ between columns.
#include "compiler/partition/claims_util.h"
#include "compiler/partition/parameters.h"

namespace tessera::partition {
namespace {

/// The operands of a product are bytes and not both constant; the second is no constant at all.
bool two_activations(mlir::Value a, mlir::Value b) {
  return a && b && is_byte(nn::dtype_of(a)) && is_byte(nn::dtype_of(b)) && has_elements(a) && has_elements(b) &&
         !nn::constant_value(b) && !nn::shape_of(a)->empty() && !nn::shape_of(b)->empty();
}

/// One zero point for all of a tensor; nothing where they differ.
std::optional<int32_t> one_zero(const std::vector<int32_t>& zeros) {
  if (zeros.empty() || std::any_of(zeros.begin(), zeros.end(), [&](int32_t z) { return z != zeros.front(); }))
    return std::nullopt;
  return zeros.front();
}

/// Columns of the product: the last axis of the second operand, 1 where it is a vector.
int64_t columns_of(const Shape& b, bool transposed) {
  return b.size() == 1 ? 1 : transposed ? b[b.size() - 2] : b.back();
}

Claim product_claim(NodeOp op, mlir::Value a, mlir::Value b, graph::Product what) {
  Claim c = base_claim(op, {a, b});
  c.op.what = std::move(what);
  return c;
}

}  // namespace

std::optional<Claim> claim_qlinear_product(NodeOp op) {
  mlir::Value a = nn::input_or_null(op, 0), b = nn::input_or_null(op, 3);
  const auto qa = operand_quantisation(op, 1, 2), qb = operand_quantisation(op, 4, 5),
             qy = result_quantisation(op, 6, 7);
  if (!two_activations(a, b) || !qa || !qb || !qy || !qa->scalar() || !qy->scalar()) return std::nullopt;
  const auto zero = one_zero(qb->zero);
  const auto columns = static_cast<size_t>(columns_of(*nn::shape_of(b), false));
  if (!zero || (qb->scale.size() != 1 && qb->scale.size() != columns)) return std::nullopt;
  return product_claim(
      op, a, b,
      {qa->z(), *zero, false, false, requantise(requantisation_multipliers(qa->s(), qb->scale, qy->s()), {}, *qy)});
}

std::optional<Claim> claim_integer_product(NodeOp op) {
  mlir::Value a = nn::input_or_null(op, 0), b = nn::input_or_null(op, 1);
  if (!two_activations(a, b)) return std::nullopt;
  graph::Product what;
  for (unsigned i = 0; i < 2; ++i) {
    mlir::Value z = nn::input_or_null(op, 2 + i);
    if (!z) continue;
    const auto tensor = nn::constant_value(z);
    if (!tensor) return std::nullopt;
    std::vector<int32_t> zeros;
    for (int64_t v : tensor->to_int64s()) zeros.push_back(static_cast<int32_t>(v));
    const auto zero = one_zero(zeros);
    if (!zero) return std::nullopt;
    (i == 0 ? what.left_zero : what.right_zero) = *zero;
  }
  what.stage.raw = true;
  return product_claim(op, a, b, std::move(what));
}

std::optional<Claim> claim_gemm_product(NodeOp op) {
  mlir::Value a = nn::input_or_null(op, 0), b = nn::input_or_null(op, 3);
  const auto qa = operand_quantisation(op, 1, 2), qb = operand_quantisation(op, 4, 5),
             qy = result_quantisation(op, 7, 8);
  if (!two_activations(a, b) || !qa || !qb || !qy || !qa->scalar() || !qy->scalar() || !nn::input_or_null(op, 8))
    return std::nullopt;
  const ops::Node node = nn::to_node(op);
  const Shape shape = *nn::shape_of(b);
  if (shape.size() != 2 || nn::shape_of(a)->size() != 2) return std::nullopt;
  const bool transposed[2] = {node.get_int("transA", 0) != 0, node.get_int("transB", 0) != 0};
  const int64_t columns = columns_of(shape, transposed[1]);
  const auto zero = one_zero(qb->zero);
  const auto bias = bias_values(op, 6, columns);
  if (!zero || !bias || (qb->scale.size() != 1 && static_cast<int64_t>(qb->scale.size()) != columns))
    return std::nullopt;
  auto multiplier = gemm_multipliers(node.get_float("alpha", 1.0f), qa->s(), qb->scale, qy->s());
  return product_claim(op, a, b,
                       {qa->z(), *zero, transposed[0], transposed[1], requantise(std::move(multiplier), *bias, *qy)});
}

}  // namespace tessera::partition
