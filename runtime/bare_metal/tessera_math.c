/* SPDX-License-Identifier: Apache-2.0 */
/* fma, sqrt and the roundings are exact by construction, in integers. exp, log and erf repeat the method of glibc 2.27
 * and later operation by operation (exp and log in float64 with fused products, by tables; erf by rational functions),
 * expm1, log1p and tanh that of fdlibm. To be compiled without contraction of floating-point expressions. */
#include "tessera_math.h"

#include <stdint.h>

static uint32_t bits_of(float x) {
  union {
    float f;
    uint32_t u;
  } both = {x};
  return both.u;
}

static float float_of(uint32_t bits) {
  union {
    uint32_t u;
    float f;
  } both = {bits};
  return both.f;
}

static uint64_t wide_bits_of(double x) {
  union {
    double d;
    uint64_t u;
  } both = {x};
  return both.u;
}

static double double_of(uint64_t bits) {
  union {
    uint64_t u;
    double d;
  } both = {bits};
  return both.d;
}

#define SIGN32 UINT32_C(0x80000000)
#define SIGN64 UINT64_C(0x8000000000000000)
#define INFINITY32 UINT32_C(0x7F800000)
#define INFINITY64 UINT64_C(0x7FF0000000000000)

static int zeros_before(uint64_t m) {
  int count = 0;
  for (int step = 32; step > 0; step /= 2)
    if (m >> (64 - step) == 0) {
      m <<= step;
      count += step;
    }
  return count;
}

/* m >> count, with the lowest bit set when a bit was lost. */
static uint64_t shifted(uint64_t m, int count) {
  if (count <= 0) return m;
  if (count >= 64) return m != 0;
  return m >> count | (m << (64 - count) != 0);
}

/* m * 2^exponent, rounded once to the nearest float, ties to even; m is not 0 and its lowest bit may stand for more. */
static float rounded_float(uint32_t sign, int exponent, uint64_t m) {
  const int zeros = zeros_before(m);
  m <<= zeros;
  int biased = exponent - zeros + 63 + 127;
  if (biased >= 255) return float_of(sign | INFINITY32);
  if (biased <= 0) {
    m = shifted(m, 1 - biased);
    biased = 1;
  }
  const int normal = m >> 63 != 0;
  uint32_t bits = (uint32_t)(m >> 40);
  const uint64_t rest = m & 0xFFFFFFFFFF, half = UINT64_C(1) << 39;
  if (rest > half || (rest == half && (bits & 1) != 0)) ++bits;
  return float_of(sign | (bits + ((normal ? (uint32_t)biased - 1 : 0) << 23)));
}

static double rounded_double(uint64_t sign, int exponent, uint64_t m) {
  const int zeros = zeros_before(m);
  m <<= zeros;
  int biased = exponent - zeros + 63 + 1023;
  if (biased >= 2047) return double_of(sign | INFINITY64);
  if (biased <= 0) {
    m = shifted(m, 1 - biased);
    biased = 1;
  }
  const int normal = m >> 63 != 0;
  uint64_t bits = m >> 11;
  const uint64_t rest = m & 0x7FF, half = 1 << 10;
  if (rest > half || (rest == half && (bits & 1) != 0)) ++bits;
  return double_of(sign | (bits + ((normal ? (uint64_t)biased - 1 : 0) << 52)));
}

/* A finite float that is not 0 as m * 2^exponent with 2^23 <= m < 2^24. */
static uint32_t parts_of_float(uint32_t bits, int *exponent) {
  uint32_t m = bits & 0x7FFFFF;
  int biased = (int)(bits >> 23 & 0xFF);
  if (biased == 0) {
    const int zeros = zeros_before(m) - 40;
    m <<= zeros;
    biased = 1 - zeros;
  } else {
    m |= 0x800000;
  }
  *exponent = biased - 127 - 23;
  return m;
}

static uint64_t parts_of_double(uint64_t bits, int *exponent) {
  uint64_t m = bits & UINT64_C(0xFFFFFFFFFFFFF);
  int biased = (int)(bits >> 52 & 0x7FF);
  if (biased == 0) {
    const int zeros = zeros_before(m) - 11;
    m <<= zeros;
    biased = 1 - zeros;
  } else {
    m |= UINT64_C(1) << 52;
  }
  *exponent = biased - 1023 - 52;
  return m;
}

static int is_finite(uint32_t bits) { return (bits & INFINITY32) != INFINITY32; }
static int is_zero(uint32_t bits) { return bits << 1 == 0; }
static int is_nan(uint32_t bits) { return (bits & ~SIGN32) > INFINITY32; }

float tessera_fmaf(float a, float b, float c) {
  const uint32_t x = bits_of(a), y = bits_of(b), z = bits_of(c);
  if (!is_finite(x) || !is_finite(y) || is_zero(x) || is_zero(y)) return a * b + c;
  if (!is_finite(z)) return c + c;
  int ex, ey, ez;
  const uint32_t mx = parts_of_float(x, &ex), my = parts_of_float(y, &ey);
  const uint32_t sign = (x ^ y) & SIGN32;
  /* The product at most 2^62, with 14 bits below it for what is shifted out. */
  uint64_t p = ((uint64_t)mx * my) << 14;
  int e = ex + ey - 14;
  if (is_zero(z)) return rounded_float(sign, e, p);
  uint64_t q = (uint64_t)parts_of_float(z, &ez) << 38;
  ez -= 38;
  if (e >= ez) {
    q = shifted(q, e - ez);
  } else {
    p = shifted(p, ez - e);
    e = ez;
  }
  const uint32_t other = z & SIGN32;
  if (sign == other) return rounded_float(sign, e, p + q);
  if (p == q) return 0.0F;
  return p > q ? rounded_float(sign, e, p - q) : rounded_float(other, e, q - p);
}

/* Numbers of 128 bits. */
struct wide {
  uint64_t high, low;
};

static struct wide product(uint64_t a, uint64_t b) {
  const uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
  const uint64_t low = a0 * b0, middle = a1 * b0 + (low >> 32), other = a0 * b1 + (uint32_t)middle;
  const struct wide result = {a1 * b1 + (middle >> 32) + (other >> 32), other << 32 | (uint32_t)low};
  return result;
}

/* By 0 < count < 64. */
static struct wide left(struct wide a, int count) {
  const struct wide result = {a.high << count | a.low >> (64 - count), a.low << count};
  return result;
}

static struct wide right(struct wide a, int count) {
  struct wide result = a;
  if (count >= 128) {
    result.low = (a.high | a.low) != 0;
    result.high = 0;
  } else if (count >= 64) {
    result.low = shifted(a.high, count - 64) | (a.low != 0);
    result.high = 0;
  } else if (count > 0) {
    result.low = a.low >> count | a.high << (64 - count) | (a.low << (64 - count) != 0);
    result.high = a.high >> count;
  }
  return result;
}

static int less(struct wide a, struct wide b) { return a.high < b.high || (a.high == b.high && a.low < b.low); }

static struct wide sum(struct wide a, struct wide b) {
  const struct wide result = {a.high + b.high + (a.low + b.low < a.low), a.low + b.low};
  return result;
}

static struct wide difference(struct wide a, struct wide b) {
  const struct wide result = {a.high - b.high - (a.low < b.low), a.low - b.low};
  return result;
}

static double rounded_wide(uint64_t sign, int exponent, struct wide m) {
  if (m.high == 0) return rounded_double(sign, exponent, m.low);
  const int zeros = zeros_before(m.high);
  if (zeros > 0) m = left(m, zeros);
  return rounded_double(sign, exponent - zeros + 64, m.high | (m.low != 0));
}

double tessera_fma(double a, double b, double c) {
  const uint64_t x = wide_bits_of(a), y = wide_bits_of(b), z = wide_bits_of(c);
  if ((x & INFINITY64) == INFINITY64 || (y & INFINITY64) == INFINITY64 || x << 1 == 0 || y << 1 == 0) return a * b + c;
  if ((z & INFINITY64) == INFINITY64) return c + c;
  int ex, ey, ez;
  const uint64_t mx = parts_of_double(x, &ex), my = parts_of_double(y, &ey);
  const uint64_t sign = (x ^ y) & SIGN64;
  struct wide p = left(product(mx, my), 20);
  int e = ex + ey - 20;
  if (z << 1 == 0) return rounded_wide(sign, e, p);
  struct wide q = {parts_of_double(z, &ez) << 9, 0};
  ez -= 73;
  if (e >= ez) {
    q = right(q, e - ez);
  } else {
    p = right(p, ez - e);
    e = ez;
  }
  const uint64_t other = z & SIGN64;
  if (sign == other) return rounded_wide(sign, e, sum(p, q));
  if (less(q, p)) return rounded_wide(sign, e, difference(p, q));
  return less(p, q) ? rounded_wide(other, e, difference(q, p)) : 0.0;
}

/* The root of m * 2^exponent, for a normal m of 64 bits: digit by digit, `digits` of them, and a bit for the rest. */
static uint64_t root(uint64_t m, int *exponent, int digits) {
  if ((*exponent & 1) != 0) {
    m >>= 1; /* below 2^63 there is a bit of room: m has its lowest bits free */
    ++*exponent;
  }
  uint64_t found = 0, rest = 0;
  for (int k = 0; k < digits; ++k) {
    rest = rest << 2 | m >> 62;
    m <<= 2;
    const uint64_t trial = found << 2 | 1;
    found <<= 1;
    if (rest >= trial) {
      rest -= trial;
      found |= 1;
    }
  }
  *exponent = (*exponent + 64 - 2 * digits) / 2 - 1;
  return found << 1 | (rest != 0 || m != 0);
}

float tessera_sqrtf(float x) {
  const uint32_t bits = bits_of(x);
  if (is_zero(bits) || bits == INFINITY32 || is_nan(bits)) return x + x * 0.0F;
  if ((bits & SIGN32) != 0) return float_of(INFINITY32 | 0x400000);
  int e;
  const uint64_t m = (uint64_t)parts_of_float(bits, &e) << 40;
  e -= 40;
  const uint64_t found = root(m, &e, 27);
  return rounded_float(0, e, found);
}

double tessera_sqrt(double x) {
  const uint64_t bits = wide_bits_of(x);
  if (bits << 1 == 0 || (bits & INFINITY64) == INFINITY64) {
    if (bits == (SIGN64 | INFINITY64)) return double_of(INFINITY64 | UINT64_C(0x8000000000000));
    return x + (bits == INFINITY64 ? 0.0 : x * 0.0);
  }
  if ((bits & SIGN64) != 0) return double_of(INFINITY64 | UINT64_C(0x8000000000000));
  int e;
  const uint64_t m = parts_of_double(bits, &e) << 11;
  e -= 11;
  const uint64_t found = root(m, &e, 56);
  return rounded_double(0, e, found);
}

enum rounding { kEven, kDown, kUp, kToZero, kAway };

/* Rounds to an integer: the bits below the point decide whether the magnitude grows. */
static uint64_t rounded(uint64_t bits, int mantissa, uint64_t sign, int bias, enum rounding how) {
  const uint64_t magnitude = bits & ~sign;
  const int exponent = (int)(magnitude >> mantissa) - bias;
  const int negative = (bits & sign) != 0;
  const uint64_t one = (uint64_t)bias << mantissa;
  if (exponent >= mantissa || magnitude == 0) return bits;
  if (exponent < 0) {
    const uint64_t half = one - (UINT64_C(1) << mantissa);
    const int grows = how == kEven    ? magnitude > half
                      : how == kAway  ? magnitude >= half
                      : how == kDown  ? negative
                      : how == kUp    ? !negative
                                      : 0;
    return (bits & sign) | (grows ? one : 0);
  }
  const uint64_t unit = UINT64_C(1) << (mantissa - exponent), rest = magnitude & (unit - 1), half = unit >> 1;
  const int odd = (magnitude & unit) != 0 || (exponent == 0 && unit == UINT64_C(1) << mantissa);
  const int grows = how == kEven    ? rest > half || (rest == half && odd)
                    : how == kAway  ? rest >= half
                    : how == kDown  ? negative && rest != 0
                    : how == kUp    ? !negative && rest != 0
                                    : 0;
  return (bits & sign) | (magnitude - rest + (grows ? unit : 0));
}

static float rounded32(float x, enum rounding how) {
  const uint32_t bits = bits_of(x);
  return is_finite(bits) ? float_of((uint32_t)rounded(bits, 23, SIGN32, 127, how)) : x + x;
}

static double rounded64(double x, enum rounding how) {
  const uint64_t bits = wide_bits_of(x);
  return (bits & INFINITY64) != INFINITY64 ? double_of(rounded(bits, 52, SIGN64, 1023, how)) : x + x;
}

float tessera_roundevenf(float x) { return rounded32(x, kEven); }
float tessera_floorf(float x) { return rounded32(x, kDown); }
float tessera_ceilf(float x) { return rounded32(x, kUp); }
float tessera_truncf(float x) { return rounded32(x, kToZero); }
float tessera_roundf(float x) { return rounded32(x, kAway); }
double tessera_roundeven(double x) { return rounded64(x, kEven); }
double tessera_floor(double x) { return rounded64(x, kDown); }
double tessera_ceil(double x) { return rounded64(x, kUp); }
double tessera_trunc(double x) { return rounded64(x, kToZero); }
double tessera_round(double x) { return rounded64(x, kAway); }

/* 2^(i/32) as bits, less i in the place of a shifted exponent. */
static const uint64_t kPowersOfTwo[32] = {
    0x3ff0000000000000, 0x3fefd9b0d3158574, 0x3fefb5586cf9890f, 0x3fef9301d0125b51, 0x3fef72b83c7d517b,
    0x3fef54873168b9aa, 0x3fef387a6e756238, 0x3fef1e9df51fdee1, 0x3fef06fe0a31b715, 0x3feef1a7373aa9cb,
    0x3feedea64c123422, 0x3feece086061892d, 0x3feebfdad5362a27, 0x3feeb42b569d4f82, 0x3feeab07dd485429,
    0x3feea47eb03a5585, 0x3feea09e667f3bcd, 0x3fee9f75e8ec5f74, 0x3feea11473eb0187, 0x3feea589994cce13,
    0x3feeace5422aa0db, 0x3feeb737b0cdc5e5, 0x3feec49182a3f090, 0x3feed503b23e255d, 0x3feee89f995ad3ad,
    0x3feeff76f2fb5e47, 0x3fef199bdd85529c, 0x3fef3720dcef9069, 0x3fef5818dcfba487, 0x3fef7c97337b9b5f,
    0x3fefa4afa2a490da, 0x3fefd0765b6e4540};

float tessera_expf(float x) {
  if (is_nan(bits_of(x))) return x + x;
  const double d = x < -110.0F ? -110.0F : x > 100.0F ? 100.0F : x; /* 0 and infinity beyond */
  const double per_octave = 0x1.71547652b82fep+0 * 32, shift = 0x1.8p+52;
  const double moved = tessera_fma(per_octave, d, shift);
  const double whole = moved - shift;
  const double r = tessera_fma(per_octave, d, -whole);
  const uint64_t step = wide_bits_of(moved);
  const double power = double_of(kPowersOfTwo[step & 31] + (step << 47));
  const double high = tessera_fma(0x1.c6af84b912394p-5 / 32 / 32 / 32, r, 0x1.ebfce50fac4f3p-3 / 32 / 32);
  const double low = tessera_fma(0x1.62e42ff0c52d6p-1 / 32, r, 1.0);
  return (float)(tessera_fma(high, r * r, low) * power);
}

/* c[0] + x * (c[1] + x * ...), each step rounded twice. */
static float polynomial(const float *c, int count, float x) {
  float value = c[--count];
  while (count > 0) value = c[--count] + x * value;
  return value;
}

static float erf_near_zero(float x, float magnitude) {
  static const float p[] = {1.2837916613e-01F, -3.2504209876e-01F, -2.8481749818e-02F, -5.7702702470e-03F,
                            -2.3763017452e-05F};
  static const float q[] = {1.0F, 3.9791721106e-01F, 6.5022252500e-02F, 5.0813062117e-03F, 1.3249473704e-04F,
                            -3.9602282413e-06F};
  const float slope = 1.2837916613e-01F;
  if (magnitude < 0x1p-119F) return 0.0625F * (16.0F * x + (16.0F * slope) * x);
  if (magnitude < 0x1p-28F) return x + slope * x;
  const float z = x * x;
  return x + x * (polynomial(p, 5, z) / polynomial(q, 6, z));
}

static float erf_near_one(float magnitude) {
  static const float p[] = {-2.3621185683e-03F, 4.1485610604e-01F, -3.7220788002e-01F, 3.1834661961e-01F,
                            -1.1089469492e-01F, 3.5478305072e-02F, -2.1663755178e-03F};
  static const float q[] = {1.0F, 1.0642088205e-01F, 5.4039794207e-01F, 7.1828655899e-02F, 1.2617121637e-01F,
                            1.3637083583e-02F, 1.1984500103e-02F};
  const float s = magnitude - 1.0F;
  return 8.4506291151e-01F + polynomial(p, 7, s) / polynomial(q, 7, s);
}

/* 1.25 <= |x| < 6. */
static float erf_tail(float magnitude) {
  static const float near_p[] = {-9.8649440333e-03F, -6.9385856390e-01F, -1.0558626175e+01F, -6.2375331879e+01F,
                                 -1.6239666748e+02F, -1.8460508728e+02F, -8.1287437439e+01F, -9.8143291473e+00F};
  static const float near_q[] = {1.0F, 1.9651271820e+01F, 1.3765776062e+02F, 4.3456588745e+02F, 6.4538726807e+02F,
                                 4.2900814819e+02F, 1.0863500214e+02F, 6.5702495575e+00F, -6.0424413532e-02F};
  static const float far_p[] = {-9.8649431020e-03F, -7.9928326607e-01F, -1.7757955551e+01F, -1.6063638306e+02F,
                                -6.3756646729e+02F, -1.0250950928e+03F, -4.8351919556e+02F};
  static const float far_q[] = {1.0F, 3.0338060379e+01F, 3.2579251099e+02F, 1.5367296143e+03F, 3.1998581543e+03F,
                                2.5530502930e+03F, 4.7452853394e+02F, -2.2440952301e+01F};
  const float s = 1.0F / (magnitude * magnitude);
  const float ratio = bits_of(magnitude) < UINT32_C(0x4036DB6E) ? polynomial(near_p, 8, s) / polynomial(near_q, 9, s)
                                                                : polynomial(far_p, 7, s) / polynomial(far_q, 8, s);
  const float z = float_of(bits_of(magnitude) & UINT32_C(0xFFFFF000));
  const float r = tessera_expf(-z * z - 0.5625F) * tessera_expf((z - magnitude) * (z + magnitude) + ratio);
  return 1.0F - r / magnitude;
}

float tessera_erff(float x) {
  const uint32_t bits = bits_of(x);
  if (is_nan(bits)) return x + x;
  const float magnitude = float_of(bits & ~SIGN32);
  if (magnitude < 0.84375F) return erf_near_zero(x, magnitude);
  const float y = magnitude < 1.25F ? erf_near_one(magnitude) : magnitude < 6.0F ? erf_tail(magnitude) : 1.0F;
  return (bits & SIGN32) != 0 ? -y : y;
}

/* y * 2^k by the exponent alone. */
static float scaled(float y, int k) { return float_of(bits_of(y) + ((uint32_t)k << 23)); }

float tessera_expm1f(float x) {
  static const float q[] = {1.0F, -3.3333335072e-02F, 1.5873016091e-03F, -7.9365076090e-05F, 4.0082177293e-06F,
                            -2.0109921195e-07F};
  const float ln2_high = 6.9313812256e-01F, ln2_low = 9.0580006145e-06F;
  const uint32_t bits = bits_of(x), magnitude = bits & ~SIGN32;
  const int negative = (bits & SIGN32) != 0;
  if (magnitude >= 0x4195b844) {
    if (magnitude > INFINITY32) return x + x;
    if (negative) return -1.0F;
    if (magnitude == INFINITY32 || x > 8.8721679688e+01F) return float_of(INFINITY32);
  }
  int k = 0;
  float c = 0.0F;
  if (magnitude > 0x3eb17218) {
    float high, low;
    if (magnitude < 0x3F851592) {
      high = negative ? x + ln2_high : x - ln2_high;
      low = negative ? -ln2_low : ln2_low;
      k = negative ? -1 : 1;
    } else {
      k = (int)(1.4426950216e+00F * x + (negative ? -0.5F : 0.5F));
      const float t = (float)k;
      high = x - t * ln2_high;
      low = t * ln2_low;
    }
    x = high - low;
    c = (high - x) - low;
  } else if (magnitude < 0x33000000) {
    return x;
  }
  const float half = 0.5F * x, square = x * half;
  const float r = polynomial(q, 6, square);
  float t = 3.0F - r * half;
  float e = square * ((r - t) / (6.0F - x * t));
  if (k == 0) return x - (x * e - square);
  e = x * (e - c) - c;
  e -= square;
  if (k == -1) return 0.5F * (x - e) - 0.5F;
  if (k == 1) return x < -0.25F ? -2.0F * (e - (x + 0.5F)) : 1.0F + 2.0F * (x - e);
  if (k <= -2 || k > 56) return scaled(1.0F - (e - x), k) - 1.0F;
  if (k < 23) return scaled(float_of(0x3f800000 - (UINT32_C(0x1000000) >> k)) - (e - x), k);
  t = float_of((uint32_t)(0x7f - k) << 23);
  return scaled((x - (e + t)) + 1.0F, k);
}

float tessera_tanhf(float x) {
  const uint32_t bits = bits_of(x), magnitude = bits & ~SIGN32;
  const int negative = (bits & SIGN32) != 0;
  if (magnitude > INFINITY32) return x + x;
  if (magnitude == 0) return x;
  if (magnitude < 0x24000000) return x * (1.0F + x);
  float z = 1.0F;
  if (magnitude < 0x41b00000) {
    if (magnitude >= 0x3f800000) {
      z = 1.0F - 2.0F / (tessera_expm1f(2.0F * float_of(magnitude)) + 2.0F);
    } else {
      const float t = tessera_expm1f(-2.0F * float_of(magnitude));
      z = -t / (t + 2.0F);
    }
  }
  return negative ? -z : z;
}

float tessera_log1pf(float x) {
  static const float p[] = {0.0F, 6.6666668653e-01F, 4.0000000596e-01F, 2.8571429849e-01F, 2.2222198546e-01F,
                            1.8183572590e-01F, 1.5313838422e-01F, 1.4798198640e-01F};
  const float ln2_high = 6.9313812256e-01F, ln2_low = 9.0580006145e-06F;
  const uint32_t bits = bits_of(x), magnitude = bits & ~SIGN32;
  if (is_nan(bits) || bits == INFINITY32) return x + x;
  int k = 1;
  float f = 0.0F, c = 0.0F;
  int32_t u_bits = 1;
  if ((int32_t)bits < 0x3ed413d7) {
    if (magnitude >= 0x3f800000) return x == -1.0F ? -float_of(INFINITY32) : float_of(INFINITY32 | 0x400000);
    if (magnitude < 0x31000000) return magnitude < 0x24800000 ? x : x - x * x * 0.5F;
    if ((int32_t)bits > 0 || (int32_t)bits <= (int32_t)0xbe95f61f) {
      k = 0;
      f = x;
    }
  }
  if (k != 0) {
    float u;
    if (bits < 0x5a000000 || (bits & SIGN32) != 0) {
      u = 1.0F + x;
      u_bits = (int32_t)bits_of(u);
      k = (u_bits >> 23) - 127;
      c = (k > 0 ? 1.0F - (u - x) : x - (u - 1.0F)) / u;
    } else {
      u = x;
      u_bits = (int32_t)bits_of(u);
      k = (u_bits >> 23) - 127;
    }
    u_bits &= 0x007fffff;
    if (u_bits < 0x3504f7) {
      u = float_of((uint32_t)u_bits | 0x3f800000);
    } else {
      ++k;
      u = float_of((uint32_t)u_bits | 0x3f000000);
      u_bits = (0x00800000 - u_bits) >> 2;
    }
    f = u - 1.0F;
  }
  const float square = 0.5F * f * f, steps = (float)k;
  if (u_bits == 0) {
    if (f == 0.0F) return k == 0 ? 0.0F : steps * ln2_high + (c + steps * ln2_low);
    const float r = square * (1.0F - 0.66666666666666666F * f);
    return k == 0 ? f - r : steps * ln2_high - ((r - (steps * ln2_low + c)) - f);
  }
  const float s = f / (2.0F + f), z = s * s;
  const float r = z * polynomial(p + 1, 7, z);
  if (k == 0) return f - (square - s * (square + r));
  return steps * ln2_high - ((square - (s * (square + r) + (steps * ln2_low + c))) - f);
}

float tessera_fmodf(float x, float y) {
  const uint32_t a = bits_of(x), b = bits_of(y) & ~SIGN32, sign = a & SIGN32;
  if (b == 0 || b > INFINITY32 || !is_finite(a)) return float_of(INFINITY32 | 0x400000);
  if (is_zero(a) || (a & ~SIGN32) < b) return x;
  if (b == INFINITY32) return x;
  int ea, eb;
  uint32_t m = parts_of_float(a & ~SIGN32, &ea);
  const uint32_t n = parts_of_float(b, &eb);
  for (; ea > eb; --ea) {
    m = m >= n ? m - n : m;
    m <<= 1;
  }
  if (m >= n) m -= n;
  return m == 0 ? float_of(sign) : rounded_float(sign, eb, m);
}
