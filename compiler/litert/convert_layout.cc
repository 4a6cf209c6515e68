// SPDX-License-Identifier: Apache-2.0
// Operators that move elements and compute none: RESHAPE, CONCATENATION, PAD, MIRROR_PAD, TRANSPOSE.
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

/// The list [axis][before, behind] as ONNX has it: all before, then all behind.
Value pads_of(Op& op) {
  const TensorInfo& list = op.input(1);
  const std::vector<int64_t> pairs = op.integers(1, "the list of pads");
  if (list.shape.size() != 2 || list.shape[1] != 2) op.refuse("the pads have a wrong shape", ErrorCode::kInvalidModel);
  std::vector<int64_t> pads;
  for (const size_t side : {size_t{0}, size_t{1}})
    for (size_t i = side; i < pairs.size(); i += 2) pads.push_back(pairs[i]);
  return op.ints(pads);
}

void convert_pad(Op& op) {
  const TensorInfo& x = op.input(0);
  Values operands = {op.value(0), pads_of(op)};
  if (op.has(2)) {
    operands.push_back(op.reshape(op.value(2), {}));
  } else if (x.is_quantised()) {
    operands.push_back(op.zero_point(op.output()));
  }
  op.give(0, op.node("Pad", operands, {{"mode", std::string("constant")}}));
}

void convert_mirror_pad(Op& op) {
  const auto mode = static_cast<MirrorPadMode>(op.option(MirrorPadOptions::mode));
  if (mode == MirrorPadMode::kReflect)
    return op.give(0, op.node("Pad", {op.value(0), pads_of(op)}, {{"mode", std::string("reflect")}}));
  // Symmetric: the border is repeated. For each axis the mirrored parts are cut out and joined.
  const std::vector<int64_t> pairs = op.integers(1, "the list of pads");
  const ops::Shape& shape = op.input(0).shape;
  Value value = op.value(0);
  for (size_t axis = 0; axis < shape.size() && 2 * axis + 1 < pairs.size(); ++axis) {
    if (pairs[2 * axis] == 0 && pairs[2 * axis + 1] == 0) continue;
    std::vector<int64_t> order;
    for (int64_t i = pairs[2 * axis] - 1; i >= 0; --i) order.push_back(i);
    for (int64_t i = 0; i < shape[axis]; ++i) order.push_back(i);
    for (int64_t i = 0; i < pairs[2 * axis + 1]; ++i) order.push_back(shape[axis] - 1 - i);
    value = op.node("Gather", {value, op.ints(order)}, {{"axis", static_cast<int64_t>(axis)}});
  }
  op.give(0, value);
}

void convert_transpose(Op& op) { op.give(0, op.transpose(op.value(0), op.integers(1, "the permutation"))); }

}  // namespace

void register_layout(Conversions& conversions) {
  conversions.add(BuiltinOperator::kReshape, convert_reshape);
  conversions.add(BuiltinOperator::kConcatenation, convert_concatenation);
  conversions.add(BuiltinOperator::kPad, convert_pad);
  conversions.add(BuiltinOperator::kPadv2, convert_pad);
  conversions.add(BuiltinOperator::kMirrorPad, convert_mirror_pad);
  conversions.add(BuiltinOperator::kTranspose, convert_transpose);
}

}  // namespace tessera::litert
