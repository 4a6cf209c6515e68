// SPDX-License-Identifier: Apache-2.0
// exp and erf of floats, several at once, with the bits of the C library's scalar functions. A result must equal the
// library's, so the method, its constants and the order of its operations are the library's (glibc 2.27 and later: exp
// by a table of 2^(i/32) and a cubic polynomial in float64, after Arm's optimized routines; erf by the rational
// approximations of fdlibm in float32). Plain loops over a fixed number of lanes, which the compiler turns into vectors
// of the processor that the including file is compiled for. vector_math.cc decides at run time whether the C library
// is one that agrees.
#pragma once

#include <cstdint>

namespace tessera::runtime {
namespace {  // compiled several times for different processors

/// 2^(i/32) as bits, less i in the place of a shifted exponent.
struct PowersOfTwo {
  uint64_t bits[32];
};

inline constexpr PowersOfTwo kPowers = {
    {0x3ff0000000000000, 0x3fefd9b0d3158574, 0x3fefb5586cf9890f, 0x3fef9301d0125b51, 0x3fef72b83c7d517b,
     0x3fef54873168b9aa, 0x3fef387a6e756238, 0x3fef1e9df51fdee1, 0x3fef06fe0a31b715, 0x3feef1a7373aa9cb,
     0x3feedea64c123422, 0x3feece086061892d, 0x3feebfdad5362a27, 0x3feeb42b569d4f82, 0x3feeab07dd485429,
     0x3feea47eb03a5585, 0x3feea09e667f3bcd, 0x3fee9f75e8ec5f74, 0x3feea11473eb0187, 0x3feea589994cce13,
     0x3feeace5422aa0db, 0x3feeb737b0cdc5e5, 0x3feec49182a3f090, 0x3feed503b23e255d, 0x3feee89f995ad3ad,
     0x3feeff76f2fb5e47, 0x3fef199bdd85529c, 0x3fef3720dcef9069, 0x3fef5818dcfba487, 0x3fef7c97337b9b5f,
     0x3fefa4afa2a490da, 0x3fefd0765b6e4540}};

/// yes or no by masks: no branch, so that loops stay vectors.
inline float choose(bool condition, float yes, float no) {
  const uint32_t mask = 0U - static_cast<uint32_t>(condition);
  return __builtin_bit_cast(float,
                            (__builtin_bit_cast(uint32_t, yes) & mask) | (__builtin_bit_cast(uint32_t, no) & ~mask));
}

inline float exp_lane(float x) {
  const float bounded = x < -110.0F ? -110.0F : x > 100.0F ? 100.0F : x;  // 0 and infinity beyond
  const double d = bounded;
  constexpr double kPerOctave = 0x1.71547652b82fep+0 * 32, kShift = 0x1.8p+52;
  const double shifted = __builtin_fma(kPerOctave, d, kShift);
  const double whole = shifted - kShift;
  const double r = __builtin_fma(kPerOctave, d, -whole);
  const auto step = __builtin_bit_cast(uint64_t, shifted);
  const auto power = __builtin_bit_cast(double, kPowers.bits[step & 31] + (step << 47));
  constexpr double kN = 32;
  const double high = __builtin_fma(0x1.c6af84b912394p-5 / kN / kN / kN, r, 0x1.ebfce50fac4f3p-3 / kN / kN);
  const double low = __builtin_fma(0x1.62e42ff0c52d6p-1 / kN, r, 1.0);
  const auto y = static_cast<float>(__builtin_fma(high, r * r, low) * power);
  return choose(x != x, x + x, y);
}

/// The rational approximations of erf: coefficients of ascending degree, a column for each range of |x|: below 0.84375,
/// below 1.25, below 1 / 0.35, below 6. Zeros in front do not change a result.
enum ErfRange { kNearZero, kNearOne, kTail, kFarTail };
alignas(16) inline constexpr float kErfNumerator[8][4] = {
    {1.2837916613e-01F, -2.3621185683e-03F, -9.8649440333e-03F, -9.8649431020e-03F},
    {-3.2504209876e-01F, 4.1485610604e-01F, -6.9385856390e-01F, -7.9928326607e-01F},
    {-2.8481749818e-02F, -3.7220788002e-01F, -1.0558626175e+01F, -1.7757955551e+01F},
    {-5.7702702470e-03F, 3.1834661961e-01F, -6.2375331879e+01F, -1.6063638306e+02F},
    {-2.3763017452e-05F, -1.1089469492e-01F, -1.6239666748e+02F, -6.3756646729e+02F},
    {0.0F, 3.5478305072e-02F, -1.8460508728e+02F, -1.0250950928e+03F},
    {0.0F, -2.1663755178e-03F, -8.1287437439e+01F, -4.8351919556e+02F},
    {0.0F, 0.0F, -9.8143291473e+00F, 0.0F}};
alignas(16) inline constexpr float kErfDenominator[9][4] = {
    {1.0F, 1.0F, 1.0F, 1.0F},
    {3.9791721106e-01F, 1.0642088205e-01F, 1.9651271820e+01F, 3.0338060379e+01F},
    {6.5022252500e-02F, 5.4039794207e-01F, 1.3765776062e+02F, 3.2579251099e+02F},
    {5.0813062117e-03F, 7.1828655899e-02F, 4.3456588745e+02F, 1.5367296143e+03F},
    {1.3249473704e-04F, 1.2617121637e-01F, 6.4538726807e+02F, 3.1998581543e+03F},
    {-3.9602282413e-06F, 1.3637083583e-02F, 4.2900814819e+02F, 2.5530502930e+03F},
    {0.0F, 1.1984500103e-02F, 1.0863500214e+02F, 4.7452853394e+02F},
    {0.0F, 0.0F, 6.5702495575e+00F, -2.2440952301e+01F},
    {0.0F, 0.0F, -6.0424413532e-02F, 0.0F}};
inline constexpr float kErfOfOne = 8.4506291151e-01F;  // near 1 what is added to the quotient
inline constexpr float kErfSlope = 1.2837916613e-01F;  // erf(x) / x - 1 at 0
inline constexpr uint32_t kFarTailFrom = 0x4036DB6EU;  // bits of 1 / 0.35

/// c[kFrom][range] + x * (c[kFrom + 1][range] + x * ...), each step rounded twice.
template <int kRange, int kFrom = 0, int kCount>
inline float polynomial(const float (&c)[kCount][4], float x) {
  if constexpr (kFrom == kCount - 1) {
    return c[kFrom][kRange];
  } else {
    return c[kFrom][kRange] + x * polynomial<kRange, kFrom + 1>(c, x);
  }
}

inline float erf_near_zero(float x, float magnitude) {
  const float z = x * x;
  const float y = polynomial<kNearZero>(kErfNumerator, z) / polynomial<kNearZero>(kErfDenominator, z);
  const float tiny = choose(magnitude < 0x1p-119F, 0.0625F * (16.0F * x + (16.0F * kErfSlope) * x), x + kErfSlope * x);
  return choose(magnitude < 0x1p-28F, tiny, x + x * y);
}

inline float erf_near_one(float magnitude) {
  const float s = magnitude - 1.0F;
  return kErfOfOne + polynomial<kNearOne>(kErfNumerator, s) / polynomial<kNearOne>(kErfDenominator, s);
}

/// |x| in [1.25, 6).
inline float erf_tail(float magnitude) {
  const float s = 1.0F / (magnitude * magnitude);
  const bool near = __builtin_bit_cast(uint32_t, magnitude) < kFarTailFrom;
  const float ratio = choose(near, polynomial<kTail>(kErfNumerator, s), polynomial<kFarTail>(kErfNumerator, s)) /
                      choose(near, polynomial<kTail>(kErfDenominator, s), polynomial<kFarTail>(kErfDenominator, s));
  const auto z = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, magnitude) & 0xFFFFF000U);
  const float r = exp_lane(-z * z - 0.5625F) * exp_lane((z - magnitude) * (z + magnitude) + ratio);
  return 1.0F - r / magnitude;
}

inline float erf_lane(float x) {
  const float magnitude = __builtin_fabsf(x);
  const float tail = choose(magnitude < 6.0F, erf_tail(magnitude), 1.0F);
  const float far = choose(magnitude < 1.25F, erf_near_one(magnitude), tail);
  const float y = choose(magnitude < 0.84375F, erf_near_zero(x, magnitude), __builtin_copysignf(far, x));
  return choose(x != x, x + x, y);
}

}  // namespace
}  // namespace tessera::runtime
