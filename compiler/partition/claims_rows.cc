// SPDX-License-Identifier: Apache-2.0
// Operators whose result needs a whole row: QLinearSoftmax, and what nn-close-rows makes.
#include <cmath>

#include "compiler/npu/graph/row_tables.h"
#include "compiler/partition/claims_util.h"
#include "ops/operator.h"

namespace tessera::partition {
namespace {

constexpr float kMostSteps = 1 << 30;  // of the output in 1, that still fit an integer

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
  rows.axis = ops::normalise_axis(node, node.get_int("axis", -1), rank);
  if (rows.axis < 0 || rows.axis >= rank) return std::nullopt;
  int64_t length = 1;
  for (int64_t a = rows.axis; a < (rows.flattened ? rank : rows.axis + 1); ++a) length *= shape[static_cast<size_t>(a)];
  if (!(std::floor(1.0f / qy->s()) < kMostSteps)) return std::nullopt;
  const npu::SoftmaxNumbers numbers = npu::softmax_numbers(qx->s(), qy->s(), length);
  if (!std::isnormal(numbers.exponentials[0])) return std::nullopt;
  rows.form.kind = npu::RowForm::Kind::kSoftmax;
  rows.form.fixed_shift = node.domain == nn::kTesseraDomain;
  rows.form.sum_tables = npu::byte_planes(numbers.exponentials);
  rows.form.map_tables = npu::byte_planes(numbers.scaled);
  rows.stage.low = 0;
  rows.stage.high = (qy->dtype == ops::DType::kInt8 ? 127 : 255) - qy->z();
  rows.stage.out_zero = qy->z();
  Claim c = base_claim(op, {x});
  c.op.what = std::move(rows);
  return c;
}

void give_run_time_length(NodeOp op, npu::RowForm& form, int64_t shortest) {
  form.shortest = shortest;
  form.input_scale = operand_quantisation(op, 1, 2)->s();
  form.output_scale = result_quantisation(op, 3, 4)->s();
  form.sum_tables.clear();
  form.map_tables.clear();
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
