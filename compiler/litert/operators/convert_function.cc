// SPDX-License-Identifier: Apache-2.0
// Functions of one quantised value beside those of convert_table.cc, as tables that are filled here with the formulas
// of LiteRT's kernels: ABS, NEG, EXP, LOG, ELU, GELU, RSQRT, RELU_0_TO_1. Real values are computed as
// convert_element.cc says.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "compiler/litert/build.h"
#include "ops/litert/litert_root.h"

namespace tessera::litert {
namespace {

using ops::litert::fixed_point;
using ops::litert::multiply;
using Function = std::function<int64_t(int64_t)>;
using Real = std::function<float(float)>;

bool is_small(const TensorInfo& tensor) {
  return tensor.is_quantised() && tensor.quantisation.per_tensor() &&
         (tensor.type == TensorType::kInt8 || tensor.type == TensorType::kUint8 || tensor.type == TensorType::kInt16);
}

bool is_table(Op& op) { return is_small(op.input(0)) && is_small(op.output()) && op.input(0).type == op.output().type; }

int64_t saturated(float steps) { return static_cast<int64_t>(std::round(std::clamp(steps, -1e6F, 1e6F))); }

/// Of 8 bits: dequantised, computed, multiplied by the reciprocal of the scale, halves away from zero.
Function in_bytes(Op& op, const Real& function) {
  const Quantisation x = op.input(0).quantisation, y = op.output().quantisation;
  const float reciprocal = 1.0F / y.scale();
  return [=](int64_t integer) {
    const float value = function(x.scale() * static_cast<float>(integer - x.zero()));
    return saturated(value * reciprocal) + y.zero();
  };
}

/// Of 16 bits: 512 pieces of a line, whose ends are moved so that the error at a piece's middle is halved.
Function in_pieces(Op& op, const Real& function) {
  constexpr int kPieces = 512;
  const Quantisation x = op.input(0).quantisation, y = op.output().quantisation;
  const auto end = [](const Quantisation& q, int64_t integer) {
    return q.scale() * static_cast<float>(integer - q.zero());
  };
  const float first = end(x, -32768), step = (end(x, 32767) - first) / kPieces, half = step / 2,
              factor = 65536.0F / (end(y, 32767) - end(y, -32768));
  std::vector<int32_t> ends(kPieces + 1);
  // What is no number, as at a pole, is stored as the largest.
  const auto stored = [](float value) {
    return std::isnan(value) ? 32767 : static_cast<int32_t>(std::clamp(value, -32768.0F, 32767.0F));
  };
  for (int i = 0; i < kPieces; ++i) {
    const float at = first + static_cast<float>(i) * step;
    const float value = std::round(function(at) * factor), middle = std::round(function(at + half) * factor);
    const float line = std::round((function(first + static_cast<float>(i + 1) * step) * factor + value) / 2);
    ends[static_cast<size_t>(i)] = stored(value - std::round((line - middle) / 2));
  }
  ends[kPieces] = stored(std::round(function(end(x, 32767)) * factor));
  return [ends](int64_t integer) -> int64_t {
    const auto piece = static_cast<size_t>(256 + (integer >> 7));
    const int32_t slope = ends[piece + 1] - ends[piece], place = static_cast<int32_t>(integer & 0x7f);
    return ends[piece] + ((slope * place + 64) >> 7);
  };
}

/// `otherwise`: of real numbers.
Conversion tabulated(const Real& function, const Conversion& otherwise) {
  return [function, otherwise](Op& op) {
    if (!is_table(op)) return otherwise(op);
    op.give(0, op.lookup(op.value(0),
                         op.input(0).type == TensorType::kInt16 ? in_pieces(op, function) : in_bytes(op, function)));
  };
}

/// The kernels divide the scales in float32.
double ratio_of(Op& op) {
  return static_cast<double>(op.input(0).quantisation.scale() / op.output().quantisation.scale());
}

/// The stored integers are negated, whatever the scales and zero points; the smallest stays itself.
void convert_neg(Op& op) {
  const TensorType type = op.output().type;
  if (type == TensorType::kUint8) op.refuse("this operator is not supported on uint8");
  const int64_t least = type == TensorType::kInt8 ? -128 : -32768;
  op.give(0, op.lookup(op.value(0), [least](int64_t integer) { return integer == least ? least : -integer; }));
}

/// What has no logarithm becomes the smallest number of the result.
void convert_log(Op& op) {
  const IntegerLimits limits = limits_of(op.output(), Activation::kNone);
  const Quantisation y = op.output().quantisation;
  const float least = y.scale() * static_cast<float>(limits.low - y.zero());
  tabulated([least](float x) { return x <= 0 ? least : std::log(x); }, nullptr)(op);
}

void convert_abs(Op& op) {
  const int64_t x = op.input(0).quantisation.zero(), y = op.output().quantisation.zero();
  const bool same = op.input(0).quantisation.scale() == op.output().quantisation.scale();
  const auto factor = fixed_point(ratio_of(op));
  op.give(0, op.lookup(op.value(0), [=](int64_t integer) {
    const auto steps = static_cast<int32_t>(std::abs(integer - x));
    return y + (same ? steps : multiply(steps, factor));
  }));
}

void convert_relu_0_to_1(Op& op) {
  const int64_t x = op.input(0).quantisation.zero(), y = op.output().quantisation.zero();
  const float scale = op.output().quantisation.scale();
  const auto factor = fixed_point(ratio_of(op));
  const int64_t one = y + saturated(1.0F / scale);
  op.give(0, op.lookup(op.value(0), [=](int64_t integer) {
    return std::clamp(y + multiply(static_cast<int32_t>(integer - x), factor), y, one);
  }));
}

void convert_rsqrt(Op& op) {
  if (op.input(0).type == TensorType::kInt16)
    return op.give(0, op.lookup(op.value(0), in_pieces(op, [](float x) { return 1.0F / std::sqrt(x); })));
  constexpr int kShift = 20;
  const Quantisation x = op.input(0).quantisation, y = op.output().quantisation;
  const auto factor = fixed_point(1.0 / static_cast<double>(std::sqrt(x.scale()) * y.scale()));
  op.give(0, op.lookup(op.value(0), [=](int64_t integer) -> int64_t {
    const auto value = static_cast<int32_t>(integer - x.zero());
    if (value <= 0) return 127;
    const ops::litert::FixedPoint root = ops::litert::inverse_root(value);
    const int32_t data = multiply(1, {root.multiplier, root.shift + kShift});
    return multiply(data, {factor.multiplier, factor.shift - kShift}) + y.zero();
  }));
}

bool is_byte(const TensorInfo& tensor) { return is_small(tensor) && tensor.type != TensorType::kInt16; }

void convert_log_softmax(Op& op) {
  if (!is_byte(op.input(0)) || !is_byte(op.output()))
    return op.give_real(0, op.node("LogSoftmax", {op.real(0)}, {{"axis", int64_t{-1}}}));
  const Quantisation &x = op.input(0).quantisation, &y = op.output().quantisation;
  op.give(0, op.node("LogSoftmax", {op.value(0)},
                     {{"x_scale", x.scale()}, {"y_scale", y.scale()}, {"y_zero_point", y.zero()}}, kDomain));
}

/// The result's scale is 1/128, whatever the file says.
void convert_l2_normalization(Op& op) {
  op.give(0, op.node("L2Normalization", {op.value(0)}, {{"x_zero_point", op.input(0).quantisation.zero()}}, kDomain));
}

void convert_squared_difference(Op& op) {
  const Quantisation &a = op.input(0).quantisation, &b = op.input(1).quantisation, &y = op.output().quantisation;
  if (!is_byte(op.input(1))) op.refuse("operands must be quantised in one type", ErrorCode::kInvalidModel);
  op.give(0, op.node("SquaredDifference", {op.value(0), op.value(1)},
                     {{"a_scale", a.scale()},
                      {"a_zero_point", a.zero()},
                      {"b_scale", b.scale()},
                      {"b_zero_point", b.zero()},
                      {"y_scale", y.scale()},
                      {"y_zero_point", y.zero()}},
                     kDomain));
}

float gelu(float x) { return 0.5F * x * (1.0F + std::erf(x * std::numbers::sqrt2_v<float> / 2)); }

float approximate_gelu(float x) {
  return 0.5F * x * (1.0F + std::tanh(std::sqrt(2.0F / std::numbers::pi_v<float>) * (x + 0.044715F * x * x * x)));
}

/// `quantised` where operand and result are, else what stands in the table already.
void add_quantised(Conversions& conversions, BuiltinOperator code, const Conversion& quantised) {
  OperatorInfo info;
  info.code = code;
  const Conversion otherwise = *conversions.find(info);
  conversions.add(code, [quantised, otherwise](Op& op) { is_table(op) ? quantised(op) : otherwise(op); });
}

void add_tabulated(Conversions& conversions, BuiltinOperator code, const Real& function) {
  add_quantised(conversions, code, tabulated(function, nullptr));
}

}  // namespace

/// Stands behind `element` in the order of names, whose conversions it completes.
void register_function(Conversions& conversions) {
  using B = BuiltinOperator;
  add_tabulated(conversions, B::kExp, [](float x) { return std::exp(x); });
  add_tabulated(conversions, B::kElu, [](float x) { return x < 0 ? std::expm1(x) : x; });
  add_quantised(conversions, B::kAbs, convert_abs);
  add_quantised(conversions, B::kNeg, convert_neg);
  add_quantised(conversions, B::kLog, convert_log);
  add_quantised(conversions, B::kRsqrt, convert_rsqrt);
  add_quantised(conversions, B::kRelu0To1, convert_relu_0_to_1);
  add_quantised(conversions, B::kL2Normalization, convert_l2_normalization);
  add_quantised(conversions, B::kSquaredDifference, convert_squared_difference);
  conversions.add(B::kLogSoftmax, convert_log_softmax);
  add_quantised(conversions, B::kGelu,
                [](Op& op) { tabulated(op.option(GeluOptions::approximate) ? approximate_gelu : gelu, nullptr)(op); });
}

}  // namespace tessera::litert
