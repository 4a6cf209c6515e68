// SPDX-License-Identifier: Apache-2.0
// Operators whose result needs a whole row: QLinearSoftmax, and the normalisations of nn-close-rows.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "compiler/partition/claims_util.h"
#include "compiler/partition/parameters.h"
#include "ops/operator.h"

namespace tessera::partition {
namespace {

/// The bytes of 256 numbers, plane by plane.
npu::Table byte_planes(const std::array<float, 256>& numbers) {
  npu::Table planes(4 * numbers.size());
  for (size_t d = 0; d < numbers.size(); ++d) {
    uint32_t bits = 0;
    std::memcpy(&bits, &numbers[d], sizeof bits);
    for (size_t p = 0; p < 4; ++p) planes[p * numbers.size() + d] = static_cast<uint8_t>(bits >> (8 * p));
  }
  return planes;
}

}  // namespace

std::optional<Claim> claim_qlinear_softmax(NodeOp op) {
  mlir::Value x = nn::input_or_null(op, 0);
  if (!x || !is_byte(nn::dtype_of(x)) || nn::constant_value(x)) return std::nullopt;
  const auto qx = operand_quantisation(op, 1, 2), qy = result_quantisation(op, 3, 4);
  if (!qx || !qy || !qx->scalar() || !qy->scalar() || qy->dtype != nn::dtype_of(x)) return std::nullopt;
  const ops::Node node = nn::to_node(op);
  const Shape shape = *nn::shape_of(x);
  graph::Rows rows;
  rows.flattened = node.get_int("opset", 13) < 13;
  const auto rank = static_cast<int64_t>(shape.size());
  rows.axis = ops::normalise_axis(node, node.get_int("axis", rows.flattened ? 1 : -1), rank);
  if (rows.axis < 0 || rows.axis >= rank) return std::nullopt;
  int64_t length = 1;
  for (int64_t a = rows.axis; a < (rows.flattened ? rank : rows.axis + 1); ++a) length *= shape[static_cast<size_t>(a)];
  const auto parameters = softmax_parameters(qx->s(), qy->s(), length);
  if (!parameters) return std::nullopt;
  rows.form.kind = npu::RowForm::Kind::kSoftmax;
  rows.form.sum_tables = byte_planes(parameters->exponentials);
  rows.form.map_tables = byte_planes(parameters->scaled);
  rows.stage.low = 0;
  rows.stage.high = 255 - qy->z();  // for int8 too, of which the low byte is kept
  rows.stage.out_zero = qy->z();
  Claim c = base_claim(op, {x});
  c.op.what = std::move(rows);
  return c;
}

std::optional<Claim> claim_normalise_rows(NodeOp op) {
  mlir::Value x = nn::input_or_null(op, 0);
  const ops::Node node = nn::to_node(op);
  const auto rank = static_cast<int64_t>(nn::shape_of(x)->size());
  graph::Rows rows;
  rows.axis = ops::normalise_axis(node, node.get_int("axis", -1), rank);
  rows.flattened = rows.axis < rank - 1;
  npu::RowForm& form = rows.form;
  form.kind = npu::RowForm::Kind::kNormalise;
  form.zero = static_cast<int32_t>(node.get_int("zero", 0));
  form.centre = node.get_int("centre", 1) != 0;
  form.shift = node.get_int("shift", 0);
  form.offset = node.get_int("offset", 0);
  form.epsilon = node.get_int("epsilon", 0);
  for (const int64_t v : node.get_ints("factor")) form.factor.push_back(static_cast<int32_t>(v));
  for (const int64_t v : node.get_ints("addend")) form.addend.push_back(static_cast<int32_t>(v));
  rows.stage.convert = true;
  rows.stage.low = static_cast<int32_t>(node.get_int("low", 0));
  rows.stage.high = static_cast<int32_t>(node.get_int("high", 255));
  rows.stage.out_zero = static_cast<int32_t>(node.get_int("out_zero", 0));
  Claim c = base_claim(op, {x});
  c.op.what = std::move(rows);
  return c;
}

}  // namespace tessera::partition
