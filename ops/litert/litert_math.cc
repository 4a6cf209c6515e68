// SPDX-License-Identifier: Apache-2.0
#include "ops/litert/litert_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace tessera::ops::litert {

FixedPoint fixed_point(double factor) {
  if (factor == 0 || !std::isfinite(factor)) return {};
  FixedPoint result;
  const double mantissa = std::frexp(factor, &result.shift);
  auto fixed = static_cast<int64_t>(std::round(mantissa * static_cast<double>(int64_t{1} << 31)));
  if (fixed == int64_t{1} << 31) {
    fixed /= 2;
    ++result.shift;
  }
  if (result.shift < -31) return {};
  if (result.shift > 30) return {std::numeric_limits<int32_t>::max(), 30};
  result.multiplier = static_cast<int32_t>(fixed);
  return result;
}

/// (a * b + 2^30) / 2^31 toward zero, the nudge with the product's sign; saturates in the one case that overflows.
int32_t doubling_high_product(int32_t a, int32_t b) {
  if (a == b && a == std::numeric_limits<int32_t>::min()) return std::numeric_limits<int32_t>::max();
  const int64_t product = static_cast<int64_t>(a) * b;
  const int64_t nudge = product >= 0 ? int64_t{1} << 30 : 1 - (int64_t{1} << 30);
  return static_cast<int32_t>((product + nudge) / (int64_t{1} << 31));
}

int32_t divide_by_power(int32_t x, int exponent) {
  const auto mask = static_cast<int32_t>((int64_t{1} << exponent) - 1);
  const int32_t remainder = x & mask, threshold = (mask >> 1) + (x < 0 ? 1 : 0);
  return (x >> exponent) + (remainder > threshold ? 1 : 0);
}

int32_t multiply(int32_t x, FixedPoint factor) {
  const int left = std::max(factor.shift, 0), right = std::max(-factor.shift, 0);
  const auto shifted = static_cast<int32_t>(static_cast<uint32_t>(x) << left);
  return divide_by_power(doubling_high_product(shifted, factor.multiplier), right);
}

int32_t multiply_upwards(int32_t x, FixedPoint factor) {
  const int left = std::max(factor.shift, 0), right = std::max(-factor.shift, 0);
  const auto shifted = static_cast<int32_t>(static_cast<uint32_t>(x) << left);
  const int64_t product = doubling_high_product(shifted, factor.multiplier);
  return static_cast<int32_t>((product + (int64_t{1} << right) / 2) >> right);
}

FixedPoint mean_factor(float ratio, int64_t count) {
  FixedPoint factor = fixed_point(static_cast<double>(ratio));
  const int bits =
      std::min({static_cast<int>(std::bit_width(static_cast<uint64_t>(count))) - 1, 32, 31 + factor.shift});
  return {static_cast<int32_t>((static_cast<int64_t>(factor.multiplier) << bits) / count), factor.shift - bits};
}

FloatMean float_mean(float ratio, int64_t count, int32_t x_zero, int32_t y_zero) {
  return {ratio / static_cast<float>(count), static_cast<float>(y_zero) - static_cast<float>(x_zero) * ratio};
}

int32_t mean_in_float(int64_t sum, FloatMean mean, int32_t low, int32_t high) {
  const float value = static_cast<float>(sum) * mean.factor + mean.offset;
  return static_cast<int32_t>(std::nearbyint(std::clamp(value, static_cast<float>(low), static_cast<float>(high))));
}

int32_t multiply_short(int64_t x, FixedPoint factor) {
  const int64_t reduced = factor.multiplier < 0x7FFF0000 ? (factor.multiplier + (1 << 15)) >> 16 : 0x7FFF;
  const int shift = 15 - factor.shift;
  const int64_t half = shift > 0 ? int64_t{1} << (shift - 1) : 0;
  const int64_t value = shift < 63 ? (x * reduced + half) >> std::max(shift, 0) : 0;
  return static_cast<int32_t>(std::clamp<int64_t>(value, INT32_MIN, INT32_MAX));
}

}  // namespace tessera::ops::litert
