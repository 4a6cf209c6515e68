// SPDX-License-Identifier: Apache-2.0
// RESHAPE and CONCATENATION; convert_move.cc has the other operators that move elements.
#include <algorithm>

#include "compiler/litert/conversions.h"

namespace tessera::litert {
namespace {

void convert_reshape(Op& op) {
  if (op.has(1) && !op.input(1).is_constant && op.input(1).shape != ops::Shape{0}) {
    const Value shape = op.cast(op.value(1), ops::DType::kInt64);
    return op.give(0, op.node("Reshape", {op.value(0), shape}, {{"allowzero", int64_t{1}}}));
  }
  const bool given = op.has(1) && op.input(1).is_constant;
  op.give(0, op.reshape(op.value(0), given ? op.integers(1, "the shape")
                                           : op.option(ReshapeOptions::new_shape).to<std::vector<int64_t>>()));
}

void convert_concatenation(Op& op) {
  const auto activation = static_cast<Activation>(op.option(ConcatenationOptions::fused_activation_function));
  const Attributes axis = {{"axis", int64_t{op.option(ConcatenationOptions::axis)}}};
  const TensorInfo& y = op.output();
  Values parts;
  bool alike = true;
  for (size_t i = 0; i < op.input_count(); ++i) {
    const TensorInfo& x = op.input(i);
    alike = alike && x.type == y.type &&
            (!y.is_quantised() || (x.is_quantised() && x.quantisation.scales == y.quantisation.scales &&
                                   x.quantisation.zero_points == y.quantisation.zero_points));
    parts.push_back(op.value(i));
  }
  if (alike) {
    const Value whole = op.node("Concat", parts, axis);
    return op.give(0, y.is_quantised() ? op.limited(whole, activation) : op.activate(whole, activation));
  }
  for (size_t i = 0; i < op.input_count(); ++i) parts[i] = op.real(i);
  op.give_real(0, op.activate(op.node("Concat", parts, axis), activation));
}

}  // namespace

void register_layout(Conversions& conversions) {
  conversions.add(BuiltinOperator::kReshape, convert_reshape);
  conversions.add(BuiltinOperator::kConcatenation, convert_concatenation);
}

}  // namespace tessera::litert
