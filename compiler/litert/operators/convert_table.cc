// SPDX-License-Identifier: Apache-2.0
// Functions of one value. Of 8 bits they are tables, filled here with the formula of the kernel that LiteRT runs:
// XNNPACK's in 8 fraction bits, or the reference kernel's fixed point.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "compiler/litert/conversions.h"
#include "ops/litert/litert_math.h"

namespace tessera::litert {
namespace {

using ops::litert::fixed_point;
using ops::litert::FixedPoint;
using ops::litert::multiply;
using Function = std::function<int64_t(int64_t)>;

bool is_small(const TensorInfo& tensor) {
  return tensor.is_quantised() && tensor.quantisation.per_tensor() &&
         (tensor.type == TensorType::kInt8 || tensor.type == TensorType::kUint8 || tensor.type == TensorType::kInt16);
}

/// Whether operand and result are quantised in types of at most 16 bits.
bool is_table(Op& op) { return is_small(op.input(0)) && is_small(op.output()); }

bool xnnpack_takes(Op& op) {
  const float ratio = op.input(0).quantisation.scale() / op.output().quantisation.scale();
  return op.kernels() == Kernels::kXnnpack && op.input(0).type == op.output().type &&
         op.input(0).type != TensorType::kInt16 && ratio >= 0x1p-8F && ratio <= 0x1p7F;
}

int64_t zero_of(const TensorInfo& tensor) { return tensor.quantisation.zero(); }

double ratio_of(Op& op) {
  return static_cast<double>(op.input(0).quantisation.scale()) / static_cast<double>(op.output().quantisation.scale());
}

/// The ratio in float32, as most kernels divide the scales; that of QUANTIZE divides them in float64.
double short_ratio_of(Op& op) {
  return static_cast<double>(op.input(0).quantisation.scale() / op.output().quantisation.scale());
}

/// XNNPACK's conversions: factors with eight fraction bits for values from the zero point on and below it, halves
/// upwards.
Function in_256ths(Op& op, float above, float below) {
  const auto bits = [](float factor) { return static_cast<int64_t>(std::nearbyint(256.0F * factor)); };
  return [x = zero_of(op.input(0)), y = zero_of(op.output()), m = bits(above), n = bits(below)](int64_t integer) {
    const int64_t steps = integer - x;
    return y + ((steps * (steps >= 0 ? m : n) + 128) >> 8);
  };
}

Function rescaled(Op& op, double above, double below) {
  return [x = zero_of(op.input(0)), y = zero_of(op.output()), m = fixed_point(above),
          n = fixed_point(below)](int64_t integer) {
    const auto steps = static_cast<int32_t>(integer - x);
    return y + multiply(steps, steps >= 0 ? m : n);
  };
}

/// QUANTIZE of a quantised value.
Function requantised(Op& op) {
  const auto ratio = static_cast<float>(ratio_of(op));
  if (xnnpack_takes(op)) return in_256ths(op, ratio, ratio);
  const auto bits = [](const TensorInfo& tensor) { return ops::element_bytes(to_dtype(tensor.type, tensor.name)); };
  if (op.kernels() == Kernels::kReference || bits(op.input(0)) != 1 || bits(op.output()) != 1)
    return rescaled(op, ratio_of(op), ratio_of(op));
  return [x = zero_of(op.input(0)), y = zero_of(op.output()), m = fixed_point(ratio_of(op))](int64_t integer) {
    return y + ops::litert::multiply_upwards(static_cast<int32_t>(integer - x), m);
  };
}

void convert_quantize(Op& op) {
  if (is_table(op)) return op.give(0, op.lookup(op.value(0), requantised(op)));
  const TensorInfo& y = op.output();
  if (op.input(0).is_quantised() || !y.is_quantised()) return op.give_real(0, op.real(0));
  if (op.kernels() == Kernels::kReference) {
    return op.give(0, op.node("Quantize", {op.real(0)},
                              {{"scale", y.quantisation.scale()},
                               {"zero_point", zero_of(y)},
                               {"to", static_cast<int64_t>(op.output_dtype())}},
                              kDomain));
  }
  // XNNPACK multiplies by the reciprocal, as LiteRT's own kernel does where XNNPACK has none.
  const auto reciprocal = static_cast<double>(1.0F / y.quantisation.scale());
  const Value steps = op.node("Mul", {op.real(0), op.scalar(ops::DType::kFloat, reciprocal)});
  op.give(0, op.node("QuantizeLinear", {steps, op.scalar(ops::DType::kFloat, 1), op.zero_point(y)}));
}

void convert_dequantize(Op& op) { op.give_real(0, op.real(0)); }

/// RELU and its kin: the value rescaled, then limited.
Conversion rectifier(Activation activation) {
  return [activation](Op& op) {
    if (!is_table(op)) return op.give_real(0, op.activate(op.real(0), activation));
    const IntegerLimits limits = limits_of(op.output(), activation);
    const Function plain = rescaled(op, short_ratio_of(op), short_ratio_of(op));
    op.give(0, op.lookup(op.value(0),
                         [=](int64_t integer) { return std::clamp(plain(integer), limits.low, limits.high); }));
  };
}

void convert_leaky_relu(Op& op) {
  const float alpha = op.option(LeakyReluOptions::alpha);
  if (!is_table(op)) return op.give_real(0, op.node("LeakyRelu", {op.real(0)}, {{"alpha", alpha}}));
  const auto ratio = static_cast<float>(ratio_of(op));
  const float below = op.input(0).quantisation.scale() * alpha / op.output().quantisation.scale();
  op.give(0, op.lookup(op.value(0), xnnpack_takes(op) ? in_256ths(op, ratio, ratio * alpha)
                                                      : rescaled(op, short_ratio_of(op), static_cast<double>(below))));
}

// LOGISTIC and TANH of 16 bits: a table of the logistic function in steps of 1/24, between which is interpolated.

/// 2^16 / (1 + exp(-i / 24)).
int64_t logistic_entry(int64_t i) {
  return std::min<int64_t>(std::llround(65536.0 / (1.0 + std::exp(-static_cast<double>(i) / 24.0))), 65535);
}

/// An integer of the operand in steps of 1 / (3 * 4096), as the kernels scale it.
Function in_table_steps(Op& op) {
  int exponent = 0;
  const float scale = op.input(0).quantisation.scale();
  if (std::frexp(scale, &exponent) == 0.5F && exponent == -11) return [](int64_t integer) { return integer * 3; };
  double multiplier = static_cast<double>(scale) * 4096.0 * 3.0;
  int shift = 0;
  for (; multiplier <= 32767.0 / 2.0 && shift <= 30; ++shift) multiplier *= 2.0;
  const auto whole = static_cast<int64_t>(multiplier), half = shift > 0 ? int64_t{1} << (shift - 1) : 0;
  return [whole, half, shift](int64_t integer) { return (integer * whole + half) >> shift; };
}

/// The logistic function of `steps`, whose last `bits` bits lie between two entries, with 16 + bits fraction bits;
/// `top` beyond the table.
int64_t interpolated_logistic(int64_t steps, int bits, int64_t top) {
  const int64_t distance = std::abs(steps), index = distance >> bits;
  if (index >= 255) return top;
  const int64_t first = logistic_entry(index), second = logistic_entry(index + 1);
  return (first << bits) + (distance & ((int64_t{1} << bits) - 1)) * (second - first);
}

int64_t wide_logistic(int64_t steps) {
  const int64_t value = interpolated_logistic(steps, 9, int64_t{0x7FFF} << 10);
  return (steps >= 0 ? value + (1 << 9) : (1 << 25) - value + (1 << 9) - 1) >> 10;
}

/// 2 * logistic(2 x) - 1.
int64_t wide_tanh(int64_t steps) {
  const int64_t value = interpolated_logistic(steps, 8, int64_t{0xFFFF} << 8);
  return (steps >= 0 ? value - (1 << 23) + (1 << 7) : -value + (1 << 23) + (1 << 7) - 1) >> 8;
}

/// A function whose table LiteRT computes in float32: dequantise, apply, divide by the scale, round.
Conversion tabulated(const std::string& onnx, float (*function)(float), int64_t (*wide)(int64_t)) {
  return [onnx, function, wide](Op& op) {
    if (!is_table(op)) return op.give_real(0, op.node(onnx, {op.real(0)}));
    if (op.input(0).type == TensorType::kInt16) {
      const Function steps = in_table_steps(op);
      return op.give(0, op.lookup(op.value(0), [&](int64_t integer) { return wide(steps(integer)); }));
    }
    const TensorInfo &x = op.input(0), &y = op.output();
    const float from = x.quantisation.scale(), to = 1.0F / y.quantisation.scale();
    op.give(0, op.lookup(op.value(0), [&](int64_t integer) {
      const float value = function(from * static_cast<float>(integer - zero_of(x)));
      return static_cast<int64_t>(std::round(std::clamp(value * to, -1e6F, 1e6F))) + zero_of(y);
    }));
  };
}

// HARD_SWISH in 16 bits.

int32_t high_product_16(int32_t a, int32_t b, bool rounds) {
  if (a == -32768 && b == -32768) return 32767;
  const int32_t product = a * b, nudge = !rounds ? 0 : product >= 0 ? 1 << 14 : 1 - (1 << 14);
  return (product + nudge) / (1 << 15);
}

int32_t shifted_left_16(int32_t x, int bits) { return std::clamp(x * (1 << bits), -32768, 32767); }

int32_t divided(int32_t x, int bits) {
  const int32_t mask = (1 << bits) - 1;
  return (x >> bits) + ((x & mask) > (mask >> 1) + (x < 0 ? 1 : 0) ? 1 : 0);
}

struct Factor16 {
  int32_t multiplier;
  int exponent;
  explicit Factor16(double factor) {
    const FixedPoint wide = fixed_point(factor);
    multiplier = wide.multiplier >= INT32_MAX - (1 << 15) ? 32767 : (wide.multiplier + (1 << 15)) >> 16;
    exponent = wide.shift;
  }
};

void convert_hard_swish(Op& op) {
  if (!is_table(op) || op.input(0).type == TensorType::kInt16)
    return op.give_real(0, op.node("HardSwish", {op.real(0)}));
  const TensorInfo &x = op.input(0), &y = op.output();
  const float hires = (1.0F / 128.0F) * x.quantisation.scale();
  const Factor16 to(static_cast<double>(hires / y.quantisation.scale())),
      gate(static_cast<double>(hires / (3.0F / 32768.0F)));
  if (to.exponent > 0) op.refuse("the result's scale is too small for the operand's");
  op.give(0, op.lookup(op.value(0), [&](int64_t integer) {
    const auto value = static_cast<int32_t>(integer - zero_of(x)) * 128;
    int32_t opening = value;
    if (gate.exponent > 0) opening = shifted_left_16(opening, gate.exponent - 1);
    opening = high_product_16(opening, gate.multiplier, true);
    if (gate.exponent > 0) opening = shifted_left_16(opening, 1);
    if (gate.exponent < 0) opening = divided(opening, -gate.exponent);
    opening = (opening + (1 << 15)) >> 1;
    const int32_t product = high_product_16(opening, high_product_16(value, to.multiplier, true), false);
    return int64_t{divided(product, -to.exponent)} + zero_of(y);
  }));
}

}  // namespace

void register_table(Conversions& conversions) {
  conversions.add(BuiltinOperator::kQuantize, convert_quantize);
  conversions.add(BuiltinOperator::kDequantize, convert_dequantize);
  conversions.add(BuiltinOperator::kRelu, rectifier(Activation::kRelu));
  conversions.add(BuiltinOperator::kRelu6, rectifier(Activation::kRelu6));
  conversions.add(BuiltinOperator::kReluN1To1, rectifier(Activation::kReluN1To1));
  conversions.add(BuiltinOperator::kLeakyRelu, convert_leaky_relu);
  conversions.add(BuiltinOperator::kLogistic,
                  tabulated("Sigmoid", [](float x) { return 1.0F / (1.0F + std::exp(-x)); }, wide_logistic));
  conversions.add(BuiltinOperator::kTanh, tabulated("Tanh", [](float x) { return std::tanh(x); }, wide_tanh));
  conversions.add(BuiltinOperator::kHardSwish, convert_hard_swish);
}

}  // namespace tessera::litert
