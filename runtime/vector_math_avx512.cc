// SPDX-License-Identifier: Apache-2.0
// exp and erf of vector_math_lanes.h in the instructions of AVX-512, sixteen lanes at once; this file is compiled for
// such processors, so nothing else may stand here. The table of exp lies in registers, where permutations read it. Of
// erf a permutation reads the coefficients of each lane's range, so that one quotient of polynomials serves all ranges.
// Each lane goes through the operations of the scalar form in their order.
#include <immintrin.h>

#include "runtime/vector_math.h"
#include "runtime/vector_math_lanes.h"

namespace tessera::runtime {

namespace {

/// 2^(i/32) for i = the lowest five bits of each lane of `step`, as bits.
inline __m512i power_bits(__m512i step) {
  const auto table = [](int from) { return _mm512_loadu_si512(kPowers.bits + from); };
  const __m512i low = _mm512_permutex2var_epi64(table(0), step, table(8));
  const __m512i high = _mm512_permutex2var_epi64(table(16), step, table(24));
  return _mm512_mask_mov_epi64(low, _mm512_test_epi64_mask(step, _mm512_set1_epi64(16)), high);
}

inline __m256 exp_half(__m256 x) {
  const __m512d d = _mm512_cvtps_pd(x);
  const __m512d per_octave = _mm512_set1_pd(0x1.71547652b82fep+0 * 32), shift = _mm512_set1_pd(0x1.8p+52);
  const __m512d shifted = _mm512_fmadd_pd(per_octave, d, shift);
  const __m512d whole = _mm512_sub_pd(shifted, shift);
  const __m512d r = _mm512_fmsub_pd(per_octave, d, whole);
  const __m512i step = _mm512_castpd_si512(shifted);
  const __m512d power = _mm512_castsi512_pd(_mm512_add_epi64(power_bits(step), _mm512_slli_epi64(step, 47)));
  constexpr double kN = 32;
  const __m512d high = _mm512_fmadd_pd(_mm512_set1_pd(0x1.c6af84b912394p-5 / kN / kN / kN), r,
                                       _mm512_set1_pd(0x1.ebfce50fac4f3p-3 / kN / kN));
  const __m512d low = _mm512_fmadd_pd(_mm512_set1_pd(0x1.62e42ff0c52d6p-1 / kN), r, _mm512_set1_pd(1.0));
  return _mm512_cvtpd_ps(_mm512_mul_pd(_mm512_fmadd_pd(high, _mm512_mul_pd(r, r), low), power));
}

/// A NaN stays one: of a NaN and a bound, min and max give their second operand.
inline __m512 exp_of(__m512 x) {
  const __m512 bounded = _mm512_min_ps(_mm512_set1_ps(100.0F), _mm512_max_ps(_mm512_set1_ps(-110.0F), x));
  const __m256 low = exp_half(_mm512_castps512_ps256(bounded));
  const __m256 high = exp_half(_mm512_extractf32x8_ps(bounded, 1));
  return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

template <int kCount>
inline __m512 polynomial(const float (&c)[kCount][4], __m512i range, __m512 x) {
  const auto coefficient = [&](int i) {
    return _mm512_permutevar_ps(_mm512_broadcast_f32x4(_mm_load_ps(c[i])), range);
  };
  __m512 sum = coefficient(kCount - 1);
  for (int i = kCount - 2; i >= 0; --i) sum = _mm512_add_ps(coefficient(i), _mm512_mul_ps(x, sum));
  return sum;
}

/// Lanes of |x| below 0.84375, of which y is the quotient.
inline __m512 near_zero(__m512 x, __m512 magnitude, __m512 y) {
  const __m512 usual = _mm512_add_ps(x, _mm512_mul_ps(x, y));
  const __mmask16 tiny = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(0x1p-28F), _CMP_LT_OQ);
  if (tiny == 0) return usual;
  const __m512 small = _mm512_add_ps(x, _mm512_mul_ps(_mm512_set1_ps(kErfSlope), x));
  const __m512 scaled = _mm512_mul_ps(
      _mm512_set1_ps(0.0625F),
      _mm512_add_ps(_mm512_mul_ps(_mm512_set1_ps(16.0F), x), _mm512_mul_ps(_mm512_set1_ps(16.0F * kErfSlope), x)));
  const __mmask16 tiniest = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(0x1p-119F), _CMP_LT_OQ);
  return _mm512_mask_mov_ps(usual, tiny, _mm512_mask_mov_ps(small, tiniest, scaled));
}

/// Lanes of |x| in [1.25, 6), of which `ratio` is the quotient.
inline __m512 tail(__m512 magnitude, __m512 ratio) {
  const __m512 z = _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(magnitude), _mm512_set1_epi32(~0xFFF)));
  const __m512 minus_z = _mm512_sub_ps(_mm512_setzero_ps(), z);
  const __m512 first = exp_of(_mm512_sub_ps(_mm512_mul_ps(minus_z, z), _mm512_set1_ps(0.5625F)));
  const __m512 second =
      exp_of(_mm512_add_ps(_mm512_mul_ps(_mm512_sub_ps(z, magnitude), _mm512_add_ps(z, magnitude)), ratio));
  return _mm512_sub_ps(_mm512_set1_ps(1.0F), _mm512_div_ps(_mm512_mul_ps(first, second), magnitude));
}

inline __m512 erf_of(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x), no_sign = _mm512_set1_epi32(0x7FFFFFFF);
  const __m512 magnitude = _mm512_castsi512_ps(_mm512_and_si512(bits, no_sign));
  const __m512i size = _mm512_castps_si512(magnitude);
  const auto from = [&](float bound) {
    return _mm512_cmp_epi32_mask(size, _mm512_castps_si512(_mm512_set1_ps(bound)), _MM_CMPINT_NLT);
  };
  const __mmask16 from_one = from(0.84375F), in_tail = from(1.25F), beyond = from(6.0F);
  const __mmask16 far = _mm512_cmp_epi32_mask(size, _mm512_set1_epi32(kFarTailFrom), _MM_CMPINT_NLT);
  __m512i range = _mm512_maskz_set1_epi32(from_one, kNearOne);
  range = _mm512_mask_mov_epi32(range, in_tail, _mm512_set1_epi32(kTail));
  range = _mm512_mask_mov_epi32(range, far, _mm512_set1_epi32(kFarTail));
  const __m512 one = _mm512_set1_ps(1.0F), square = _mm512_mul_ps(magnitude, magnitude);
  __m512 argument = _mm512_mask_sub_ps(square, from_one, magnitude, one);
  if (in_tail != 0) argument = _mm512_mask_div_ps(argument, in_tail, one, square);
  const __m512 quotient =
      _mm512_div_ps(polynomial(kErfNumerator, range, argument), polynomial(kErfDenominator, range, argument));
  const __m512 zero = near_zero(x, magnitude, quotient);
  if (from_one == 0) return zero;
  __m512 y = _mm512_add_ps(_mm512_set1_ps(kErfOfOne), quotient);
  if (in_tail != 0) y = _mm512_mask_mov_ps(y, in_tail, tail(magnitude, quotient));
  y = _mm512_mask_mov_ps(y, beyond, one);
  const __m512i sign = _mm512_andnot_si512(no_sign, bits);
  y = _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(y), sign));
  y = _mm512_mask_mov_ps(zero, from_one, y);
  return _mm512_mask_add_ps(y, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), x, x);
}

template <__m512 (*function)(__m512), int64_t kLanes>
void apply(float* lanes) {
  if constexpr (kLanes == 16) {
    _mm512_storeu_ps(lanes, function(_mm512_loadu_ps(lanes)));
  } else {
    constexpr auto kActive = static_cast<__mmask16>((1U << kLanes) - 1);
    _mm512_mask_storeu_ps(lanes, kActive, function(_mm512_maskz_loadu_ps(kActive, lanes)));
  }
}

}  // namespace

VectorKernels avx512_kernels() {
  return {{apply<exp_of, 4>, apply<exp_of, 8>, apply<exp_of, 16>},
          {apply<erf_of, 4>, apply<erf_of, 8>, apply<erf_of, 16>}};
}

}  // namespace tessera::runtime
