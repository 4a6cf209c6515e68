// SPDX-License-Identifier: Apache-2.0
// Functions of one quantised value beside those of convert_table.cc, as tables that are filled here with the formulas
// of LiteRT's kernels: ABS, EXP, LOG, ELU, GELU, RSQRT, RELU_0_TO_1. Real values are computed as convert_element.cc
// says.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "compiler/litert/build.h"
#include "ops/litert_math.h"

namespace tessera::litert {
namespace {

using ops::litert::fixed_point;
using ops::litert::multiply;
using Function = std::function<int64_t(int64_t)>;
using Real = float (*)(float);

bool is_small(const TensorInfo& tensor) {
  return tensor.is_quantised() && tensor.quantisation.per_tensor() &&
         (tensor.type == TensorType::kInt8 || tensor.type == TensorType::kUint8 || tensor.type == TensorType::kInt16);
}

bool is_table(Op& op) { return is_small(op.input(0)) && is_small(op.output()) && op.input(0).type == op.output().type; }

int64_t saturated(float steps) { return static_cast<int64_t>(std::round(std::clamp(steps, -1e6F, 1e6F))); }

/// Of 8 bits: dequantised, computed, multiplied by the reciprocal of the scale, halves away from zero.
Function in_bytes(Op& op, Real function) {
  const Quantisation x = op.input(0).quantisation, y = op.output().quantisation;
  const float reciprocal = 1.0F / y.scale();
  return [=](int64_t integer) {
    const float value = function(x.scale() * static_cast<float>(integer - x.zero()));
    return saturated(value * reciprocal) + y.zero();
  };
}

/// Of 16 bits: 512 pieces of a line, whose ends are moved so that the error at a piece's middle is halved.
Function in_pieces(Op& op, Real function) {
  constexpr int kPieces = 512;
  const Quantisation x = op.input(0).quantisation, y = op.output().quantisation;
  const auto end = [](const Quantisation& q, int64_t integer) {
    return q.scale() * static_cast<float>(integer - q.zero());
  };
  const float first = end(x, -32768), step = (end(x, 32767) - first) / kPieces, half = step / 2,
              factor = 65536.0F / (end(y, 32767) - end(y, -32768));
  std::vector<int32_t> ends(kPieces + 1);
  const auto stored = [](float value) { return static_cast<int32_t>(std::clamp(value, -32768.0F, 32767.0F)); };
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
Conversion tabulated(Real function, const Conversion& otherwise) {
  return [function, otherwise](Op& op) {
    if (!is_table(op)) return otherwise(op);
    op.give(0, op.lookup(op.value(0),
                         op.input(0).type == TensorType::kInt16 ? in_pieces(op, function) : in_bytes(op, function)));
  };
}

double ratio_of(Op& op) {
  return static_cast<double>(op.input(0).quantisation.scale()) / static_cast<double>(op.output().quantisation.scale());
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

// RSQRT: Newton's iteration in fixed point.

/// The doubled high half of a product, rounded; numbers have their point behind bit 31.
int32_t high_product(int32_t a, int32_t b) {
  if (a == b && a == std::numeric_limits<int32_t>::min()) return std::numeric_limits<int32_t>::max();
  const int64_t product = int64_t{a} * b, nudge = product >= 0 ? int64_t{1} << 30 : 1 - (int64_t{1} << 30);
  return static_cast<int32_t>((product + nudge) / (int64_t{1} << 31));
}

int32_t shifted_left(int32_t x, int bits) {
  const int64_t wide = int64_t{x} * (int64_t{1} << bits);
  return static_cast<int32_t>(
      std::clamp<int64_t>(wide, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
}

int32_t halved(int32_t x) { return (x >> 1) + ((x & 1) > (x < 0 ? 1 : 0) ? 1 : 0); }

/// 1 / sqrt(x) as a multiplier and the left shift that belongs to it.
ops::litert::FixedPoint inverse_root(int32_t x) {
  if (x <= 1) return {std::numeric_limits<int32_t>::max(), 0};
  int shift = 11;
  for (; x >= 1 << 29; ++shift) x /= 4;
  const int pairs = (std::countl_zero(static_cast<uint32_t>(x)) - 1) / 2 - 1;
  shift -= pairs;
  x <<= 2 * pairs;
  // Three integer bits; a product of two such has six, of three nine.
  const int32_t half = halved(x >> 1), three_halves = (1 << 28) + (1 << 27);
  int32_t root = 1 << 28;
  for (int i = 0; i < 5; ++i) {
    const int32_t cube = shifted_left(high_product(high_product(root, root), root), 6);
    root = shifted_left(high_product(three_halves, root) - high_product(half, cube), 3);
  }
  root = high_product(root, 1518500250);  // the root of a half
  if (shift < 0) {
    root <<= -shift;
    shift = 0;
  }
  return {root, -shift};
}

void convert_rsqrt(Op& op) {
  constexpr int kShift = 20;
  const Quantisation x = op.input(0).quantisation, y = op.output().quantisation;
  const auto factor = fixed_point(1.0 / static_cast<double>(std::sqrt(x.scale()) * y.scale()));
  const int64_t most = op.input(0).type == TensorType::kInt16 ? 32767 : 127;
  op.give(0, op.lookup(op.value(0), [=](int64_t integer) {
    const auto value = static_cast<int32_t>(integer - x.zero());
    if (value <= 0) return most;
    const ops::litert::FixedPoint root = inverse_root(value);
    const int32_t data = multiply(1, {root.multiplier, root.shift + kShift});
    return multiply(data, {factor.multiplier, factor.shift - kShift}) + y.zero();
  }));
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

void add_tabulated(Conversions& conversions, BuiltinOperator code, Real function) {
  add_quantised(conversions, code, tabulated(function, nullptr));
}

}  // namespace

/// Stands behind `element` in the order of names, whose conversions it completes.
void register_function(Conversions& conversions) {
  using B = BuiltinOperator;
  add_tabulated(conversions, B::kExp, [](float x) { return std::exp(x); });
  add_tabulated(conversions, B::kLog, [](float x) { return std::log(x); });
  add_tabulated(conversions, B::kElu, [](float x) { return x < 0 ? std::expm1(x) : x; });
  add_quantised(conversions, B::kAbs, convert_abs);
  add_quantised(conversions, B::kRsqrt, convert_rsqrt);
  add_quantised(conversions, B::kRelu0To1, convert_relu_0_to_1);
  add_quantised(conversions, B::kGelu,
                [](Op& op) { tabulated(op.option(GeluOptions::approximate) ? approximate_gelu : gelu, nullptr)(op); });
}

}  // namespace tessera::litert
