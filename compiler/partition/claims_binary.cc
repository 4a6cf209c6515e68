// SPDX-License-Identifier: Apache-2.0
// Elementwise operators with two run-time byte operands.
#include "compiler/partition/claims_util.h"
#include "compiler/partition/parameters.h"

namespace tessera::partition {

namespace {

/// True if `a` is the broadcast operand in the innermost run of elements in which the shapes do not agree on both
/// being 1.
bool is_innermost_scalar(const Shape& a, const Shape& b) {
  const size_t shared = std::min(a.size(), b.size());
  if (shared == 0) return a.empty() || a.back() <= 1;
  for (size_t k = 1; k <= shared; ++k) {
    const int64_t da = a[a.size() - k], db = b[b.size() - k];
    if (std::max(da, db) > 1 || k == shared) return da <= 1;
  }
  return false;
}

}  // namespace

/// com.microsoft QLinearAdd and QLinearMul: A, a_scale, a_zero, B, b_scale, b_zero, c_scale, c_zero.
std::optional<Claim> claim_binary(NodeOp op) {
  mlir::Value a = nn::input_or_null(op, 0), b = nn::input_or_null(op, 3);
  const auto qa = quantisation(op, 1, 2, DType::kUint8), qb = quantisation(op, 4, 5, DType::kUint8),
             qc = quantisation(op, 6, 7, DType::kUint8);
  if (!a || !b || !qa || !qb || !qc || !qa->scalar() || !qb->scalar() || !qc->scalar()) return std::nullopt;
  if (!is_byte(nn::dtype_of(a)) || nn::dtype_of(a) != nn::dtype_of(b)) return std::nullopt;
  const auto constant_scalar = [](mlir::Value v) {
    return ops::element_count(*nn::shape_of(v)) == 1 && nn::constant_value(v);
  };
  if (constant_scalar(a) || constant_scalar(b)) return std::nullopt;  // a table
  const Range range = range_of(qc->dtype);
  BinaryClaim binary;
  npu::SecondOperation& second = binary.second;
  second.low = range.low;
  second.high = range.high;
  if (op.getOpType() == "QLinearAdd") {
    // The operand that is constant along the innermost varying run is added first (docs/numerics.md): it becomes y.
    auto first = *qa, other = *qb;
    if (is_innermost_scalar(*nn::shape_of(a), *nn::shape_of(b))) {
      std::swap(a, b);
      std::swap(first, other);
    }
    const AddParameters p = add_parameters(first.s(), first.z(), other.s(), other.z(), qc->s(), qc->z());
    second.kind = npu::SecondOperation::Kind::kAdd;
    second.rx = p.rx, second.ry = p.ry, second.f = p.f;
  } else {
    second.kind = npu::SecondOperation::Kind::kMul;
    second.rx = mul_multiplier(qa->s(), qb->s(), qc->s());
    second.f = static_cast<float>(qc->z());
    second.zx = qa->z(), second.zy = qb->z();
  }
  Claim c = base_claim(op, {a, b});
  c.what = std::move(binary);
  return c;
}

}  // namespace tessera::partition
