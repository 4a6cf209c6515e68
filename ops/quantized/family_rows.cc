// SPDX-License-Identifier: Apache-2.0
// Tessera's own operator ai.tessera::NormaliseRows: a layer normalisation between bytes in the integers of the machine
// (base/row_arithmetic.h). The compiler makes it of float normalisations between DequantizeLinear and QuantizeLinear
// where numerics are `close`; docs/numerics.md has the formula. Rows are the elements of axis `axis` and those behind
// it. In: bytes. Out: bytes of the same shape.
#include <algorithm>

#include "base/row_arithmetic.h"
#include "ops/kernels/elementwise_kernel.h"
#include "ops/operator.h"

namespace tessera::ops {
namespace {

void infer_rows(InferContext& c) {
  const TypeInfo& x = c.input(0);
  if (x.dtype != DType::kUint8 && x.dtype != DType::kInt8) c.node.fail(ErrorCode::kInvalidModel, "X must be bytes");
  c.outputs[0] = kernel::without_constant(x);
  c.outputs[0].dtype = c.node.get_int("unsigned", 1) != 0 ? DType::kUint8 : DType::kInt8;
  if (x.ranked) axis_attribute(c.node, -1, x.shape);
}

void evaluate_rows(EvalContext& c) {
  const Node& node = c.node;
  const Tensor& x = c.input(0);
  const auto axis = axis_attribute(node, -1, x.shape());
  int64_t length = 1;
  for (size_t a = axis; a < x.shape().size(); ++a) length *= x.shape()[a];
  const std::vector<int64_t> factor = node.get_ints("factor"), addend = node.get_ints("addend");
  const auto fits = [&](const std::vector<int64_t>& v) { return v.size() == 1 || std::ssize(v) == length; };
  if (length < 1 || length > rows::kMostRowLength || !fits(factor) || !fits(addend))
    node.fail(ErrorCode::kInvalidModel, "rows of " + std::to_string(length) + " elements do not fit its constants");
  const auto zero = static_cast<int32_t>(node.get_int("zero", 0));
  const int64_t low = node.get_int("low", 0), high = node.get_int("high", 255), out_zero = node.get_int("out_zero", 0);
  const rows::MomentsForm form{static_cast<int32_t>(length), static_cast<int32_t>(node.get_int("shift", 0)),
                               static_cast<int32_t>(node.get_int("offset", 0)),
                               static_cast<uint64_t>(node.get_int("epsilon", 0)), node.get_int("centre", 1) != 0};
  Tensor y(node.get_int("unsigned", 1) != 0 ? DType::kUint8 : DType::kInt8, x.shape());
  const bool is_unsigned = x.dtype() == DType::kUint8;
  const auto* in = reinterpret_cast<const uint8_t*>(x.data());
  auto* out = y.as_mutable<uint8_t>().data();
  const auto difference = [&](int64_t i) {
    return (is_unsigned ? int32_t{in[i]} : int32_t{static_cast<int8_t>(in[i])}) - zero;
  };
  for (int64_t first = 0; first < x.size(); first += length) {
    int64_t sum = 0, squares = 0;
    for (int64_t k = 0; k < length; ++k) {
      const int64_t d = difference(first + k);
      sum += d;
      squares += d * d;
    }
    const rows::RowScalars scalars = rows::moments(sum, squares, form);
    for (int64_t k = 0; k < length; ++k) {
      const auto of = [&](const std::vector<int64_t>& v) {
        return static_cast<int32_t>(v[v.size() == 1 ? 0 : static_cast<size_t>(k)]);
      };
      const int64_t r = rows::normalise(difference(first + k), scalars, of(factor), of(addend));
      out[first + k] = static_cast<uint8_t>(std::clamp(r, low, high) + out_zero);
    }
  }
  c.outputs[0] = std::move(y);
}

}  // namespace

void register_rows(Registry& registry) {
  kernel::add_operator(registry, "ai.tessera", "NormaliseRows", 1, {1, 1}, infer_rows, evaluate_rows,
                       {"axis", "centre", "zero", "shift", "offset", "epsilon", "factor", "addend", "low", "high",
                        "out_zero", "unsigned"},
                       1);
}

}  // namespace tessera::ops
