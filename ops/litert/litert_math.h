// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic of LiteRT's kernels (TensorFlow Lite): fixed-point multipliers with their two roundings, and the
// integer formulas of XNNPACK, which an Interpreter uses for most bytes. docs/numerics.md states which operator has
// which.
#pragma once

#include <cstdint>

namespace tessera::ops::litert {

/// A real factor as multiplier * 2^(shift - 31), the multiplier in [2^30, 2^31).
struct FixedPoint {
  int32_t multiplier = 0;
  int shift = 0;
};
FixedPoint fixed_point(double factor);

/// a * b / 2^31, rounded to nearest; saturates in the one case that overflows.
int32_t doubling_high_product(int32_t a, int32_t b);
/// Division by 2^exponent, rounded to nearest, halves away from zero.
int32_t divide_by_power(int32_t x, int exponent);

/// x * factor: the doubled high half of the product rounded to nearest (halves away from zero), then the division by a
/// power of two likewise.
int32_t multiply(int32_t x, FixedPoint factor);
/// As the kernels have it that are tuned for a machine: the division rounds halves upwards.
int32_t multiply_upwards(int32_t x, FixedPoint factor);
/// Sums of 64 bits, as convolutions of int16 have them: one rounding, halves upwards, and a multiplier cut to 16 bits.
int32_t multiply_short(int64_t x, FixedPoint factor);

/// The factor of a mean of `count` elements in the reference kernel: the multiplier of the scales' ratio, with as many
/// more bits as fit, divided by the count.
FixedPoint mean_factor(float ratio, int64_t count);

/// XNNPACK's mean of stored integers: sum * factor + offset, where the offset holds both zero points, rounded to even
/// with them, so that a half goes to the even one of the stored integers.
struct FloatMean {
  float factor, offset;
};
FloatMean float_mean(float ratio, int64_t count, int32_t x_zero, int32_t y_zero);
int32_t mean_in_float(int64_t sum, FloatMean mean, int32_t low, int32_t high);

}  // namespace tessera::ops::litert
