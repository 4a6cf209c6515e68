// SPDX-License-Identifier: Apache-2.0
// Reductions over axes: of real numbers and integers as ONNX has them, of bytes where the kernel only compares.
#include <algorithm>
#include <numeric>

#include "compiler/litert/build.h"

namespace tessera::litert {
namespace {

using ops::DType;

/// The axes as int64, one vector of them in either form.
Value axes_of(Op& op) { return op.ints(normal_axes(op, 1, rank_of(op.input(0)))); }

Attributes kept(Op& op) { return {{"keepdims", int64_t{op.option(ReducerOptions::keep_dims)}}}; }

/// No axes: nothing is reduced, where ONNX would reduce all.
Value reduce(Op& op, const char* name, const Value& x) {
  Attributes attributes = kept(op);
  attributes["noop_with_empty_axes"] = int64_t{1};
  return op.node(name, {x, axes_of(op)}, attributes);
}

/// Halves away from zero.
Value rounded(Op& op, const Value& x) {
  const Value size = op.node("Abs", {x}), whole = op.node("Floor", {size});
  const Value half = op.scalar(DType::kFloat, 0.5), rest = op.node("Sub", {size, whole});
  const Value up = op.cast(op.node("GreaterOrEqual", {rest, half}), DType::kFloat);
  return op.node("Mul", {op.node("Sign", {x}), op.node("Add", {whole, up})});
}

/// Sums of quantised values: the integers are added, and the sum converted in float32 by the quotient of the scales.
/// The number of summands must be known where the zero point counts.
void convert_quantised_sum(Op& op) {
  const TensorInfo &x = op.input(0), &y = op.output();
  float count = 1;
  for (const int64_t axis : normal_axes(op, 1, rank_of(x))) {
    const int64_t extent = x.shape[static_cast<size_t>(axis)];
    if (extent < 0 && x.quantisation.zero() != 0) fixed_shape(op, 0);  // refuses
    count *= static_cast<float>(std::max<int64_t>(extent, 0));
  }
  const float ratio = x.quantisation.scale() / y.quantisation.scale(),
              offset = static_cast<float>(-x.quantisation.zero()) * ratio * count;
  const auto number = [&](double value) { return op.scalar(DType::kFloat, value); };
  const Value sum = op.cast(reduce(op, "ReduceSum", op.cast(op.value(0), DType::kInt32)), DType::kFloat);
  const Value scaled = op.node("Add", {op.node("Mul", {sum, number(ratio)}), number(offset)});
  const IntegerLimits limits = limits_of(y, Activation::kNone);
  const Value moved = op.node("Add", {rounded(op, scaled), number(static_cast<double>(y.quantisation.zero()))});
  const Value inside =
      op.node("Clip", {moved, number(static_cast<double>(limits.low)), number(static_cast<double>(limits.high))});
  op.give(0, op.cast(inside, op.output_dtype()));
}

Conversion arithmetic(const char* name) {
  return [name](Op& op) {
    if (op.input(0).is_quantised()) {
      if (op.code() == BuiltinOperator::kSum) return convert_quantised_sum(op);
      op.refuse("this reduction is not supported on integers of a scale");
    }
    const bool real = is_real(op.input(0));
    const Value y = reduce(op, name, real ? op.real(0) : op.value(0));
    real ? op.give_real(0, y) : op.give(0, y);
  };
}

/// Bytes of one quantisation are compared as they are.
Conversion extremum(const char* name) {
  return [name](Op& op) { op.give(0, reduce(op, name, op.value(0))); };
}

Conversion logical(const char* name) {
  return [name](Op& op) { op.give(0, op.cast(reduce(op, name, op.cast(op.value(0), DType::kInt32)), DType::kBool)); };
}

}  // namespace

void register_reduce(Conversions& conversions) {
  using B = BuiltinOperator;
  conversions.add(B::kSum, arithmetic("ReduceSum"));
  conversions.add(B::kReduceProd, arithmetic("ReduceProd"));
  conversions.add(B::kReduceMax, extremum("ReduceMax"));
  conversions.add(B::kReduceMin, extremum("ReduceMin"));
  conversions.add(B::kReduceAny, logical("ReduceMax"));
  conversions.add(B::kReduceAll, logical("ReduceMin"));
}

}  // namespace tessera::litert
