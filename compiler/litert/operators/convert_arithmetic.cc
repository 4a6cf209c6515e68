// SPDX-License-Identifier: Apache-2.0
// ADD, SUB, MUL. Quantised ones keep LiteRT's integer formulas, as operators of domain litert.
#include <cmath>

#include "compiler/litert/conversions.h"

namespace tessera::litert {
namespace {

/// Ratios of scales outside of which XNNPACK leaves an operator to LiteRT's own kernel.
bool xnnpack_takes(Op& op, const std::string& type) {
  const float a = op.input(0).quantisation.scale(), b = op.input(1).quantisation.scale(),
              y = op.output().quantisation.scale();
  const auto within = [](float ratio, int least, int beyond) {
    return ratio >= std::ldexp(1.0F, least) && ratio < std::ldexp(1.0F, beyond);
  };
  if (type == "Mul") return within(a * b / y, -16, 8);
  return within(a / y, -10, 8) && within(b / y, -10, 8);
}

void convert_quantised(Op& op, const std::string& type, Activation activation) {
  const TensorInfo &a = op.input(0), &b = op.input(1), &y = op.output();
  for (const TensorInfo* tensor : {&a, &b, &y})
    if (!tensor->is_quantised() || !tensor->quantisation.per_tensor() || tensor->type != y.type)
      op.refuse("operands and result must be quantised in one type, each with one scale");
  const IntegerLimits limits = limits_of(y, activation);
  const bool xnnpack = op.kernels() == Kernels::kXnnpack && y.type != TensorType::kInt16 && xnnpack_takes(op, type);
  Attributes attributes = {
      {"kernel", std::string(xnnpack ? "xnnpack" : "reference")}, {"low", limits.low}, {"high", limits.high}};
  const std::pair<const char*, const TensorInfo*> sides[] = {{"a", &a}, {"b", &b}, {"y", &y}};
  for (const auto& [name, tensor] : sides) {
    attributes[std::string(name) + "_scale"] = tensor->quantisation.scale();
    attributes[std::string(name) + "_zero_point"] = tensor->quantisation.zero();
  }
  op.give(0, op.node(type, {op.value(0), op.value(1)}, attributes, kDomain));
}

/// (a + bi) * (c + di)
void multiply_complex(Op& op) {
  const auto part = [&](const char* name, size_t operand) { return op.node(name, {op.value(operand)}, {}, kDomain); };
  const Value a = part("Real", 0), b = part("Imag", 0), c = part("Real", 1), d = part("Imag", 1);
  const auto times = [&](const Value& x, const Value& y) { return op.node("Mul", {x, y}); };
  const Value real = op.node("Sub", {times(a, c), times(b, d)}), imaginary = op.node("Add", {times(a, d), times(b, c)});
  op.give(0, op.node("Complex", {real, imaginary}, {}, kDomain));
}

template <typename Options>
Conversion arithmetic(const std::string& type) {
  return [type](Op& op) {
    const auto activation = static_cast<Activation>(op.option(Options::fused_activation_function));
    if (op.output().is_quantised() && op.output().type != TensorType::kInt32)
      return convert_quantised(op, type, activation);
    if (ops::is_floating(op.output_dtype()))
      return op.give_real(0, op.activate(op.node(type, {op.real(0), op.real(1)}), activation));
    if (activation != Activation::kNone) op.refuse("a fused activation of such a type is not supported");
    if (type == "Mul" && op.output_dtype() == ops::DType::kComplex64) return multiply_complex(op);
    op.give(0, op.node(type, {op.value(0), op.value(1)}));
  };
}

}  // namespace

void register_arithmetic(Conversions& conversions) {
  conversions.add(BuiltinOperator::kAdd, arithmetic<AddOptions>("Add"));
  conversions.add(BuiltinOperator::kSub, arithmetic<SubOptions>("Sub"));
  conversions.add(BuiltinOperator::kMul, arithmetic<MulOptions>("Mul"));
}

}  // namespace tessera::litert
