// SPDX-License-Identifier: Apache-2.0
#include "base/row_arithmetic.h"

#include <bit>
#include <cmath>

namespace tessera::rows {
namespace {

struct Number {
  int exponent;
  uint64_t significand;
};

Number number_of(uint32_t code) {
  const int exponent = static_cast<int>(code >> 23 & 255);
  const uint32_t fraction = code & 0x7fffff;
  return exponent > 0 ? Number{exponent, fraction | 0x800000} : Number{1, fraction};
}

/// The largest H with H * H * w <= 2^60; w is 2^24 to 2^26.
uint64_t reciprocal_root(uint64_t w) {
  constexpr uint64_t kLimit = uint64_t{1} << 60;
  const auto small = [&](uint64_t h) { return h * h <= kLimit / w; };
  auto h = static_cast<uint64_t>(std::ldexp(1 / std::sqrt(static_cast<double>(w)), 30));
  while (small(h + 1)) ++h;
  while (!small(h)) --h;
  return h;
}

}  // namespace

uint32_t add_row_numbers(uint32_t a, uint32_t b) {
  Number x = number_of(a), y = number_of(b);
  if (x.exponent < y.exponent) std::swap(x, y);
  constexpr int kSpare = 26;  // below that the smaller one is less than a quarter of the last bit
  const int apart = x.exponent - y.exponent;
  uint64_t sum = (x.significand << kSpare) + (apart <= kSpare ? y.significand << (kSpare - apart) : 0);
  int exponent = x.exponent, spare = kSpare;
  if (sum >> (24 + kSpare) != 0) ++exponent, ++spare;
  const auto rounded = static_cast<uint64_t>(round_half_even_shift(static_cast<int64_t>(sum), spare));
  return static_cast<uint32_t>((static_cast<uint64_t>(exponent - 1) << 23) + rounded) & 0x7fffffff;
}

int32_t divide_row_numbers(uint32_t a, uint32_t b) {
  constexpr int32_t kMost = 511;
  const Number x = number_of(a), y = number_of(b);
  if (y.significand < 0x800000) return kMost;
  if (x.significand < 0x800000) return 0;
  const int apart = x.exponent - y.exponent;
  if (apart >= 10) return kMost;  // at least 512
  if (apart < -2) return 0;       // below a quarter
  const float quotient = static_cast<float>(x.significand) / static_cast<float>(y.significand);
  return std::min(static_cast<int32_t>(std::nearbyint(std::ldexp(quotient, apart))), kMost);
}

namespace {

int64_t centre_sum(int64_t sum, const MomentsForm& form) { return form.centre ? low_signed(sum, 21) : 0; }

/// V of semantics.md, 48 bits.
uint64_t spread_of(int64_t sum, int64_t squares, const MomentsForm& form) {
  const int64_t s1 = centre_sum(sum, form), s2 = squares & ((int64_t{1} << 28) - 1);
  constexpr uint64_t kMask = (uint64_t{1} << 48) - 1;
  const auto spread = static_cast<uint64_t>(form.length * s2 - s1 * s1);
  const uint64_t v = ((spread << form.shift) + form.epsilon) & kMask;
  return v == 0 ? 1 : v;
}

}  // namespace

RowScalars moments(int64_t sum, int64_t squares, const MomentsForm& form) {
  const int64_t s1 = centre_sum(sum, form);
  const uint64_t v = spread_of(sum, squares, form);
  const int leading = (std::countl_zero(v) - 16) & ~1;
  const uint64_t w = v << leading >> 22;
  const uint64_t reciprocal = std::min<uint64_t>((reciprocal_root(w) + 1) >> 1, (1 << 17) - 1);
  const int shift = std::clamp(24 - leading / 2 + form.offset, 0, 31);
  return {static_cast<int32_t>(s1), static_cast<int32_t>(reciprocal), shift, form.length};
}

int64_t normalise(int32_t difference, const RowScalars& scalars, int32_t factor, int32_t addend) {
  const int64_t length = scalars[3] & 0x1fff, reciprocal = scalars[1] & 0x1ffff;
  const int shift = scalars[2] & 31;
  const int64_t each = length * reciprocal, middle = low_signed(scalars[0], 22) * reciprocal;
  const int small = each >> (shift + 10) != 0 ? 8 : 0;
  const int64_t a = (each << 14 >> (shift + small)) & 0xffffff, c = middle * (1 << 14) >> shift;
  const int64_t x = low_signed(((difference * (int64_t{1} << small) * a) - c) >> 8, 25);
  const int64_t sum = x * low_signed(factor, kNormaliseFactorBits) +
                      int64_t{addend} * (1 << (kNormaliseFraction - kNormaliseAddendFraction));
  return round_half_even_shift(sum, kNormaliseFraction);
}

}  // namespace tessera::rows
