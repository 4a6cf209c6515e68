// SPDX-License-Identifier: Apache-2.0
// The formulas of docs/numerics.md for one quantised element, written once in the words of scalar.h: quantized_math.cc
// computes them on numbers, compiler/cpu/expressions/quantized.cc makes loops of them. F holds float32, I int32; each
// fp32 operation is rounded once (half to even), fma only where written.
#pragma once

#include "ops/scalar.h"

namespace tessera::ops::quantized {

/// Representable integers of a quantised element type.
struct Range {
  int32_t low = 0;
  int32_t high = 0;
};

}  // namespace tessera::ops::quantized

namespace tessera::ops::scalar {

/// RNE(clamp(v, low - zero, high - zero)) + zero, as a vector unit clamps: max first, then min, and a NaN becomes low.
template <typename F, typename I>
I clamp_round(F v, I zero, quantized::Range range) {
  const F low = as_float(zero.same(range.low) - zero), high = as_float(zero.same(range.high) - zero);
  F clamped = select(v > low, v, low);
  clamped = select(clamped < high, clamped, high);
  return to_int32_unchecked(round_even(clamped)) + zero;
}
template <typename F, typename I>
I quantize(F x, F scale, I zero, quantized::Range range) {
  return clamp_round(x / scale, zero, range);
}
template <typename F, typename I>
I requantize(I sum, F multiplier, I zero, quantized::Range range) {
  return clamp_round(as_float(sum) * multiplier, zero, range);
}
template <typename F, typename I>
F dequantize(I x, F scale, I zero) {
  return scale * as_float(x - zero);
}

/// fp32 to int32, half to even; NaN and what does not fit give -2^31.
template <typename F>
auto round_to_int32(F v) {
  const auto fits = (v >= v.same(-2147483648.0)) & (v < v.same(2147483648.0));
  const auto rounded = to_int32_unchecked(select(fits, round_even(v), v.same(0)));
  return select(fits, rounded, rounded.same(-2147483648.0));
}

/// c[0] + c[1] s + c[2] s^2 and so on, the highest first, by fused multiply-add.
template <typename F, size_t n>
F polynomial(F s, const float (&c)[n]) {
  F p = fma(s, s.same(c[n - 1]), s.same(c[n - 2]));
  for (size_t i = n - 2; i-- > 0;) p = fma(p, s, s.same(c[i]));
  return p;
}

/// 1 / (1 + exp(-x)) as the oracle's vector kernel computes it: a rational approximation.
template <typename F>
F logistic(F x) {
  F v = select(x > x.same(-18), x, x.same(-18));
  v = select(v < v.same(18), v, v.same(18));
  const F s = v * v;
  const F p = polynomial(s, {2.48287947061529e-01f, 8.51377133304701e-03f, 6.08574864600143e-05f, 1.15627324459942e-07f,
                             4.37031012579801e-11f}) *
              v;
  const F q = polynomial(s, {9.93151921023180e-01f, 1.16817656904453e-01f, 1.70198817374094e-03f, 6.29106785017040e-06f,
                             5.76102136993427e-09f, 6.10247389755681e-13f});
  const F y = p / q + s.same(0.5);
  return smaller(larger(y, y.same(0)), y.same(1));
}

/// tanh(x) likewise.
template <typename F>
F hyperbolic_tangent(F x) {
  F v = select(x > x.same(-9), x, x.same(-9));
  v = select(v < v.same(9), v, v.same(9));
  const F s = v * v;
  const F p = polynomial(s, {4.89352455891786e-03f, 6.37261928875436e-04f, 1.48572235717979e-05f, 5.12229709037114e-08f,
                             -8.60467152213735e-11f, 2.00018790482477e-13f, -2.76076847742355e-16f}) *
              v;
  return p /
         polynomial(s, {4.89352518554385e-03f, 2.26843463243900e-03f, 1.18534705686654e-04f, 1.19825839466702e-06f});
}

}  // namespace tessera::ops::scalar
