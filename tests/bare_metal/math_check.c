/* SPDX-License-Identifier: Apache-2.0 */
/* Compares tessera_math.c with the C library of the host: arguments of one float are every argv[1]-th bit pattern,
 * those of several are random, near cancellation and among subnormal numbers. Prints the functions that differ. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tessera_math.h"

static float as_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
static uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}
static double as_double(uint64_t bits) {
  double x;
  memcpy(&x, &bits, 8);
  return x;
}
static uint64_t wide_bits_of(double x) {
  uint64_t bits;
  memcpy(&bits, &x, 8);
  return bits;
}

static uint64_t state = 88172645463325252u;
static uint64_t draw(void) {
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

static int failures;
static void same(const char* name, double own, double library) {
  if (own == library ? wide_bits_of(own) == wide_bits_of(library) : own != own && library != library) return;
  if (failures++ < 20) printf("%s: %a, the C library has %a\n", name, own, library);
}

static void check_single(uint32_t step) {
  static const struct {
    const char* name;
    float (*own)(float);
    float (*library)(float);
  } functions[] = {
      {"sqrtf", tessera_sqrtf, sqrtf},    {"roundevenf", tessera_roundevenf, rintf}, {"floorf", tessera_floorf, floorf},
      {"ceilf", tessera_ceilf, ceilf},    {"truncf", tessera_truncf, truncf},        {"roundf", tessera_roundf, roundf},
      {"expf", tessera_expf, expf},       {"expm1f", tessera_expm1f, expm1f},        {"logf", tessera_logf, logf},
      {"log1pf", tessera_log1pf, log1pf}, {"tanhf", tessera_tanhf, tanhf},           {"erff", tessera_erff, erff}};
  for (unsigned k = 0; k < sizeof functions / sizeof *functions; ++k)
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += step) {
      const float x = as_float((uint32_t)bits);
      same(functions[k].name, functions[k].own(x), functions[k].library(x));
    }
}

static void check_floats(int count) {
  for (int k = 0; k < count; ++k) {
    const uint64_t r = draw(), q = draw();
    float a = as_float((uint32_t)r), c = as_float((uint32_t)q);
    const float b = as_float((uint32_t)(r >> 32));
    if (k % 3 == 0) c = as_float(bits_of(-a * b) + (uint32_t)(q >> 40) % 5 - 2);
    if (k % 7 == 0) { /* of a magnitude near that of the product */
      int e = (int)(bits_of(a) >> 23 & 255) + (int)(bits_of(b) >> 23 & 255) - 127 + (int)(q >> 50) % 60 - 30;
      e = e < 0 ? 0 : e > 254 ? 254 : e;
      c = as_float((bits_of(c) & 0x807FFFFF) | (uint32_t)e << 23);
    }
    if (k % 11 == 0) a = as_float(bits_of(a) & 0x807FFFFF);
    same("fmaf", tessera_fmaf(a, b, c), fmaf(a, b, c));
    same("fmodf", tessera_fmodf(a, b), fmodf(a, b));
  }
}

static void check_doubles(int count) {
  for (int k = 0; k < count; ++k) {
    double a = as_double(draw()), c = as_double(draw());
    const double b = as_double(draw());
    const uint64_t q = draw();
    if (k % 3 == 0) c = as_double(wide_bits_of(-a * b) + q % 5 - 2);
    if (k % 7 == 0) {
      int e =
          (int)(wide_bits_of(a) >> 52 & 2047) + (int)(wide_bits_of(b) >> 52 & 2047) - 1023 + (int)(q >> 50) % 120 - 60;
      e = e < 0 ? 0 : e > 2046 ? 2046 : e;
      c = as_double((wide_bits_of(c) & 0x800FFFFFFFFFFFFF) | (uint64_t)e << 52);
    }
    if (k % 11 == 0) a = as_double(wide_bits_of(a) & 0x800FFFFFFFFFFFFF);
    same("fma", tessera_fma(a, b, c), fma(a, b, c));
    same("sqrt", tessera_sqrt(a), sqrt(a));
    const double near = as_double((wide_bits_of(a) & 0x800FFFFFFFFFFFFF) | (1018 + q % 60) << 52);
    same("roundeven", tessera_roundeven(near), rint(near));
    same("floor", tessera_floor(near), floor(near));
    same("ceil", tessera_ceil(near), ceil(near));
    same("trunc", tessera_trunc(near), trunc(near));
    same("round", tessera_round(near), round(near));
    same("exp", tessera_exp(near), exp(near));
    same("exp", tessera_exp(b), exp(b));
    same("exp", tessera_exp(-700 - (double)(q % 100000) / 1000), exp(-700 - (double)(q % 100000) / 1000));
  }
}

int main(int argc, char** argv) {
  check_single(argc > 1 ? (uint32_t)atoi(argv[1]) : 20011);
  check_floats(1000000);
  check_doubles(1000000);
  printf("%d differ\n", failures);
  return failures != 0;
}
