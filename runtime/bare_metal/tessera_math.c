/* SPDX-License-Identifier: Apache-2.0 */
/* fma, sqrt and the roundings are exact by construction, in integers. exp, log and erf repeat the method of glibc 2.27
 * and later operation by operation, with its constants (exp and log in float64 with fused products, by tables; erf by
 * rational functions), expm1, log1p and tanh that of fdlibm. To be compiled without contraction of floating-point
 * expressions. */
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
static uint32_t parts_of_float(uint32_t bits, int* exponent) {
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

static uint64_t parts_of_double(uint64_t bits, int* exponent) {
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
static uint64_t root(uint64_t m, int* exponent, int digits) {
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
    const int grows = how == kEven   ? magnitude > half
                      : how == kAway ? magnitude >= half
                      : how == kDown ? negative
                      : how == kUp   ? !negative
                                     : 0;
    return (bits & sign) | (grows ? one : 0);
  }
  const uint64_t unit = UINT64_C(1) << (mantissa - exponent), rest = magnitude & (unit - 1), half = unit >> 1;
  const int odd = (magnitude & unit) != 0 || (exponent == 0 && unit == UINT64_C(1) << mantissa);
  const int grows = how == kEven   ? rest > half || (rest == half && odd)
                    : how == kAway ? rest >= half
                    : how == kDown ? negative && rest != 0
                    : how == kUp   ? !negative && rest != 0
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

/* 2^(i/128): what is missing to it in parts of itself, and its bits less i in the place of a shifted exponent. */
static const uint64_t kPowers128[128][2] = {
    {0x0000000000000000, 0x3ff0000000000000}, {0x3c9b3b4f1a88bf6e, 0x3feff63da9fb3335},
    {0xbc7160139cd8dc5d, 0x3fefec9a3e778061}, {0xbc905e7a108766d1, 0x3fefe315e86e7f85},
    {0x3c8cd2523567f613, 0x3fefd9b0d3158574}, {0xbc8bce8023f98efa, 0x3fefd06b29ddf6de},
    {0x3c60f74e61e6c861, 0x3fefc74518759bc8}, {0x3c90a3e45b33d399, 0x3fefbe3ecac6f383},
    {0x3c979aa65d837b6d, 0x3fefb5586cf9890f}, {0x3c8eb51a92fdeffc, 0x3fefac922b7247f7},
    {0x3c3ebe3d702f9cd1, 0x3fefa3ec32d3d1a2}, {0xbc6a033489906e0b, 0x3fef9b66affed31b},
    {0xbc9556522a2fbd0e, 0x3fef9301d0125b51}, {0xbc5080ef8c4eea55, 0x3fef8abdc06c31cc},
    {0xbc91c923b9d5f416, 0x3fef829aaea92de0}, {0x3c80d3e3e95c55af, 0x3fef7a98c8a58e51},
    {0xbc801b15eaa59348, 0x3fef72b83c7d517b}, {0xbc8f1ff055de323d, 0x3fef6af9388c8dea},
    {0x3c8b898c3f1353bf, 0x3fef635beb6fcb75}, {0xbc96d99c7611eb26, 0x3fef5be084045cd4},
    {0x3c9aecf73e3a2f60, 0x3fef54873168b9aa}, {0xbc8fe782cb86389d, 0x3fef4d5022fcd91d},
    {0x3c8a6f4144a6c38d, 0x3fef463b88628cd6}, {0x3c807a05b0e4047d, 0x3fef3f49917ddc96},
    {0x3c968efde3a8a894, 0x3fef387a6e756238}, {0x3c875e18f274487d, 0x3fef31ce4fb2a63f},
    {0x3c80472b981fe7f2, 0x3fef2b4565e27cdd}, {0xbc96b87b3f71085e, 0x3fef24dfe1f56381},
    {0x3c82f7e16d09ab31, 0x3fef1e9df51fdee1}, {0xbc3d219b1a6fbffa, 0x3fef187fd0dad990},
    {0x3c8b3782720c0ab4, 0x3fef1285a6e4030b}, {0x3c6e149289cecb8f, 0x3fef0cafa93e2f56},
    {0x3c834d754db0abb6, 0x3fef06fe0a31b715}, {0x3c864201e2ac744c, 0x3fef0170fc4cd831},
    {0x3c8fdd395dd3f84a, 0x3feefc08b26416ff}, {0xbc86a3803b8e5b04, 0x3feef6c55f929ff1},
    {0xbc924aedcc4b5068, 0x3feef1a7373aa9cb}, {0xbc9907f81b512d8e, 0x3feeecae6d05d866},
    {0xbc71d1e83e9436d2, 0x3feee7db34e59ff7}, {0xbc991919b3ce1b15, 0x3feee32dc313a8e5},
    {0x3c859f48a72a4c6d, 0x3feedea64c123422}, {0xbc9312607a28698a, 0x3feeda4504ac801c},
    {0xbc58a78f4817895b, 0x3feed60a21f72e2a}, {0xbc7c2c9b67499a1b, 0x3feed1f5d950a897},
    {0x3c4363ed60c2ac11, 0x3feece086061892d}, {0x3c9666093b0664ef, 0x3feeca41ed1d0057},
    {0x3c6ecce1daa10379, 0x3feec6a2b5c13cd0}, {0x3c93ff8e3f0f1230, 0x3feec32af0d7d3de},
    {0x3c7690cebb7aafb0, 0x3feebfdad5362a27}, {0x3c931dbdeb54e077, 0x3feebcb299fddd0d},
    {0xbc8f94340071a38e, 0x3feeb9b2769d2ca7}, {0xbc87deccdc93a349, 0x3feeb6daa2cf6642},
    {0xbc78dec6bd0f385f, 0x3feeb42b569d4f82}, {0xbc861246ec7b5cf6, 0x3feeb1a4ca5d920f},
    {0x3c93350518fdd78e, 0x3feeaf4736b527da}, {0x3c7b98b72f8a9b05, 0x3feead12d497c7fd},
    {0x3c9063e1e21c5409, 0x3feeab07dd485429}, {0x3c34c7855019c6ea, 0x3feea9268a5946b7},
    {0x3c9432e62b64c035, 0x3feea76f15ad2148}, {0xbc8ce44a6199769f, 0x3feea5e1b976dc09},
    {0xbc8c33c53bef4da8, 0x3feea47eb03a5585}, {0xbc845378892be9ae, 0x3feea34634ccc320},
    {0xbc93cedd78565858, 0x3feea23882552225}, {0x3c5710aa807e1964, 0x3feea155d44ca973},
    {0xbc93b3efbf5e2228, 0x3feea09e667f3bcd}, {0xbc6a12ad8734b982, 0x3feea012750bdabf},
    {0xbc6367efb86da9ee, 0x3fee9fb23c651a2f}, {0xbc80dc3d54e08851, 0x3fee9f7df9519484},
    {0xbc781f647e5a3ecf, 0x3fee9f75e8ec5f74}, {0xbc86ee4ac08b7db0, 0x3fee9f9a48a58174},
    {0xbc8619321e55e68a, 0x3fee9feb564267c9}, {0x3c909ccb5e09d4d3, 0x3feea0694fde5d3f},
    {0xbc7b32dcb94da51d, 0x3feea11473eb0187}, {0x3c94ecfd5467c06b, 0x3feea1ed0130c132},
    {0x3c65ebe1abd66c55, 0x3feea2f336cf4e62}, {0xbc88a1c52fb3cf42, 0x3feea427543e1a12},
    {0xbc9369b6f13b3734, 0x3feea589994cce13}, {0xbc805e843a19ff1e, 0x3feea71a4623c7ad},
    {0xbc94d450d872576e, 0x3feea8d99b4492ed}, {0x3c90ad675b0e8a00, 0x3feeaac7d98a6699},
    {0x3c8db72fc1f0eab4, 0x3feeace5422aa0db}, {0xbc65b6609cc5e7ff, 0x3feeaf3216b5448c},
    {0x3c7bf68359f35f44, 0x3feeb1ae99157736}, {0xbc93091fa71e3d83, 0x3feeb45b0b91ffc6},
    {0xbc5da9b88b6c1e29, 0x3feeb737b0cdc5e5}, {0xbc6c23f97c90b959, 0x3feeba44cbc8520f},
    {0xbc92434322f4f9aa, 0x3feebd829fde4e50}, {0xbc85ca6cd7668e4b, 0x3feec0f170ca07ba},
    {0x3c71affc2b91ce27, 0x3feec49182a3f090}, {0x3c6dd235e10a73bb, 0x3feec86319e32323},
    {0xbc87c50422622263, 0x3feecc667b5de565}, {0x3c8b1c86e3e231d5, 0x3feed09bec4a2d33},
    {0xbc91bbd1d3bcbb15, 0x3feed503b23e255d}, {0x3c90cc319cee31d2, 0x3feed99e1330b358},
    {0x3c8469846e735ab3, 0x3feede6b5579fdbf}, {0xbc82dfcd978e9db4, 0x3feee36bbfd3f37a},
    {0x3c8c1a7792cb3387, 0x3feee89f995ad3ad}, {0xbc907b8f4ad1d9fa, 0x3feeee07298db666},
    {0xbc55c3d956dcaeba, 0x3feef3a2b84f15fb}, {0xbc90a40e3da6f640, 0x3feef9728de5593a},
    {0xbc68d6f438ad9334, 0x3feeff76f2fb5e47}, {0xbc91eee26b588a35, 0x3fef05b030a1064a},
    {0x3c74ffd70a5fddcd, 0x3fef0c1e904bc1d2}, {0xbc91bdfbfa9298ac, 0x3fef12c25bd71e09},
    {0x3c736eae30af0cb3, 0x3fef199bdd85529c}, {0x3c8ee3325c9ffd94, 0x3fef20ab5fffd07a},
    {0x3c84e08fd10959ac, 0x3fef27f12e57d14b}, {0x3c63cdaf384e1a67, 0x3fef2f6d9406e7b5},
    {0x3c676b2c6c921968, 0x3fef3720dcef9069}, {0xbc808a1883ccb5d2, 0x3fef3f0b555dc3fa},
    {0xbc8fad5d3ffffa6f, 0x3fef472d4a07897c}, {0xbc900dae3875a949, 0x3fef4f87080d89f2},
    {0x3c74a385a63d07a7, 0x3fef5818dcfba487}, {0xbc82919e2040220f, 0x3fef60e316c98398},
    {0x3c8e5a50d5c192ac, 0x3fef69e603db3285}, {0x3c843a59ac016b4b, 0x3fef7321f301b460},
    {0xbc82d52107b43e1f, 0x3fef7c97337b9b5f}, {0xbc892ab93b470dc9, 0x3fef864614f5a129},
    {0x3c74b604603a88d3, 0x3fef902ee78b3ff6}, {0x3c83c5ec519d7271, 0x3fef9a51fbc74c83},
    {0xbc8ff7128fd391f0, 0x3fefa4afa2a490da}, {0xbc8dae98e223747d, 0x3fefaf482d8e67f1},
    {0x3c8ec3bc41aa2008, 0x3fefba1bee615a27}, {0x3c842b94c3a9eb32, 0x3fefc52b376bba97},
    {0x3c8a64a931d185ee, 0x3fefd0765b6e4540}, {0xbc8e37bae43be3ed, 0x3fefdbfdad9cbe14},
    {0x3c77893b4d91cd9d, 0x3fefe7c1819e90d8}, {0x3c5305c14160cc89, 0x3feff3c22b8f71f1}};

/* scale * (1 + part) where the scale's exponent, of `step`, is beyond that of a double. Near subnormal results the
 * product is rounded before it is added, since two sums share it. */
static double exp_of_extremes(uint64_t bits, uint64_t step, double part) {
  if ((step & 0x80000000) == 0) {
    const double scale = double_of(bits - (UINT64_C(1009) << 52));
    return 0x1p1009 * tessera_fma(scale, part, scale);
  }
  const double scale = double_of(bits + (UINT64_C(1022) << 52));
  double y = scale + scale * part;
  if (y < 1.0) { /* a subnormal result: rounded once, by what its sum with 1 has lost */
    const double low = scale - y + scale * part, high = 1.0 + y;
    y = (high + ((1.0 - high) + y + low)) - 1.0;
    if (y == 0.0) y = 0.0;
  }
  return 0x1p-1022 * y;
}

double tessera_exp(double x) {
  const uint64_t bits = wide_bits_of(x), magnitude = bits & ~SIGN64;
  if (magnitude < (UINT64_C(0x3C9) << 52)) return 1.0 + x;
  if (magnitude >= (UINT64_C(0x409) << 52)) { /* from 1024 on */
    if (bits == (SIGN64 | INFINITY64)) return 0.0;
    if (magnitude >= INFINITY64) return 1.0 + x;
    return (bits & SIGN64) != 0 ? 0.0 : double_of(INFINITY64);
  }
  const double shift = 0x1.8p52;
  const double moved = tessera_fma(0x1.71547652b82fep0 * 128, x, shift), whole = moved - shift;
  const uint64_t step = wide_bits_of(moved);
  const double r = tessera_fma(whole, -0x1.cf79abc9e3b39p-47, tessera_fma(whole, -0x1.62e42fefa0000p-8, x));
  const uint64_t scale = kPowers128[step & 127][1] + (step << 45);
  const double square = r * r;
  const double low = tessera_fma(square, tessera_fma(r, 0x1.555555555543cp-3, 0x1.ffffffffffdbdp-2),
                                 double_of(kPowers128[step & 127][0]) + r);
  const double part = tessera_fma(square * square, tessera_fma(r, 0x1.1111167a4d017p-7, 0x1.55555cf172b91p-5), low);
  if (magnitude >= (UINT64_C(0x408) << 52)) return exp_of_extremes(scale, step, part); /* from 512 on */
  return tessera_fma(double_of(scale), part, double_of(scale));
}

/* 1/c and log(c) of 16 numbers c between 2^-0.5 and 2^0.5. */
static const double kLogarithms[16][2] = {
    {0x1.661ec79f8f3bep+0, -0x1.57bf7808caadep-2}, {0x1.571ed4aaf883dp+0, -0x1.2bef0a7c06ddbp-2},
    {0x1.49539f0f010b0p+0, -0x1.01eae7f513a67p-2}, {0x1.3c995b0b80385p+0, -0x1.b31d8a68224e9p-3},
    {0x1.30d190c8864a5p+0, -0x1.6574f0ac07758p-3}, {0x1.25e227b0b8ea0p+0, -0x1.1aa2bc79c8100p-3},
    {0x1.1bb4a4a1a343fp+0, -0x1.a4e76ce8c0e5ep-4}, {0x1.12358f08ae5bap+0, -0x1.1973c5a611cccp-4},
    {0x1.0953f419900a7p+0, -0x1.252f438e10c1ep-5}, {0x1p+0, 0x0p+0},
    {0x1.e608cfd9a47acp-1, 0x1.aa5aa5df25984p-5},  {0x1.ca4b31f026aa0p-1, 0x1.c5e53aa362eb4p-4},
    {0x1.b2036576afce6p-1, 0x1.526e57720db08p-3},  {0x1.9c2d163a1aa2dp-1, 0x1.bc2860d224770p-3},
    {0x1.886e6037841edp-1, 0x1.1058bc8a07ee1p-2},  {0x1.767dcf5534862p-1, 0x1.4043057b6ee09p-2}};

float tessera_logf(float x) {
  uint32_t bits = bits_of(x);
  if (bits == 0x3F800000) return 0.0F;
  if (is_zero(bits)) return -float_of(INFINITY32);
  if (bits == INFINITY32 || is_nan(bits)) return x + x;
  if ((bits & SIGN32) != 0) return float_of(INFINITY32 | 0x400000);
  if (bits < 0x800000) bits = bits_of(x * 0x1p23F) - (UINT32_C(23) << 23);
  const uint32_t moved = bits - 0x3F330000;
  const double* near = kLogarithms[moved >> 19 & 15];
  const double octaves = (int32_t)moved >> 23;
  const double r = tessera_fma((double)float_of(bits - (moved & UINT32_C(0xFF800000))), near[0], -1.0);
  const double high = tessera_fma(octaves, 0x1.62e42fefa39efp-1, near[1]), square = r * r;
  const double low =
      tessera_fma(-0x1.00ea348b88334p-2, square, tessera_fma(0x1.5575b0be00b6ap-2, r, -0x1.ffffef20a4123p-2));
  return (float)tessera_fma(low, square, high + r);
}

/* c[0] + x * (c[1] + x * ...), each step rounded twice. */
static float polynomial(const float* c, int count, float x) {
  float value = c[--count];
  while (count > 0) value = c[--count] + x * value;
  return value;
}

static float erf_near_zero(float x, float magnitude) {
  static const float p[] = {1.2837916613e-01F, -3.2504209876e-01F, -2.8481749818e-02F, -5.7702702470e-03F,
                            -2.3763017452e-05F};
  static const float q[] = {
      1.0F, 3.9791721106e-01F, 6.5022252500e-02F, 5.0813062117e-03F, 1.3249473704e-04F, -3.9602282413e-06F};
  const float slope = 1.2837916613e-01F;
  if (magnitude < 0x1p-119F) return 0.0625F * (16.0F * x + (16.0F * slope) * x);
  if (magnitude < 0x1p-28F) return x + slope * x;
  const float z = x * x;
  return x + x * (polynomial(p, 5, z) / polynomial(q, 6, z));
}

static float erf_near_one(float magnitude) {
  static const float p[] = {-2.3621185683e-03F, 4.1485610604e-01F, -3.7220788002e-01F, 3.1834661961e-01F,
                            -1.1089469492e-01F, 3.5478305072e-02F, -2.1663755178e-03F};
  static const float q[] = {1.0F,
                            1.0642088205e-01F,
                            5.4039794207e-01F,
                            7.1828655899e-02F,
                            1.2617121637e-01F,
                            1.3637083583e-02F,
                            1.1984500103e-02F};
  const float s = magnitude - 1.0F;
  return 8.4506291151e-01F + polynomial(p, 7, s) / polynomial(q, 7, s);
}

/* 1.25 <= |x| < 6. */
static float erf_tail(float magnitude) {
  static const float near_p[] = {-9.8649440333e-03F, -6.9385856390e-01F, -1.0558626175e+01F, -6.2375331879e+01F,
                                 -1.6239666748e+02F, -1.8460508728e+02F, -8.1287437439e+01F, -9.8143291473e+00F};
  static const float near_q[] = {1.0F,
                                 1.9651271820e+01F,
                                 1.3765776062e+02F,
                                 4.3456588745e+02F,
                                 6.4538726807e+02F,
                                 4.2900814819e+02F,
                                 1.0863500214e+02F,
                                 6.5702495575e+00F,
                                 -6.0424413532e-02F};
  static const float far_p[] = {-9.8649431020e-03F, -7.9928326607e-01F, -1.7757955551e+01F, -1.6063638306e+02F,
                                -6.3756646729e+02F, -1.0250950928e+03F, -4.8351919556e+02F};
  static const float far_q[] = {1.0F,
                                3.0338060379e+01F,
                                3.2579251099e+02F,
                                1.5367296143e+03F,
                                3.1998581543e+03F,
                                2.5530502930e+03F,
                                4.7452853394e+02F,
                                -2.2440952301e+01F};
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
  static const float q[] = {
      1.0F, -3.3333335072e-02F, 1.5873016091e-03F, -7.9365076090e-05F, 4.0082177293e-06F, -2.0109921195e-07F};
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
  static const float p[] = {0.0F,
                            6.6666668653e-01F,
                            4.0000000596e-01F,
                            2.8571429849e-01F,
                            2.2222198546e-01F,
                            1.8183572590e-01F,
                            1.5313838422e-01F,
                            1.4798198640e-01F};
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
