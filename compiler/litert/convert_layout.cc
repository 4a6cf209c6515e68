// SPDX-License-Identifier: Apache-2.0
// Operators that only move elements.
#include "compiler/litert/conversions.h"

namespace tessera::litert {
namespace {

void convert_reshape(Op& op) {
  std::vector<int64_t> shape = op.option(ReshapeOptions::new_shape).to<std::vector<int64_t>>();
  if (op.has(1) && op.input(1).is_constant) shape = op.integers(1, "the shape");
  if (op.has(1) && !op.input(1).is_constant && op.input(1).shape != ops::Shape{0})
    return op.give(
        0, op.node("Reshape", {op.value(0), op.cast(op.value(1), ops::DType::kInt64)}, {{"allowzero", int64_t{1}}}));
  op.give(0, op.reshape(op.value(0), shape));
}

}  // namespace

void register_layout(Conversions& conversions) { conversions.add(BuiltinOperator::kReshape, convert_reshape); }

}  // namespace tessera::litert
