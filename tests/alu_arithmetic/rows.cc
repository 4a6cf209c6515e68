// SPDX-License-Identifier: Apache-2.0
// Oracles and operand generators of the cells of rows (ROW_REDUCE, ROW_MAP). Where an operand or a result leaves what
// binary32 has (exponents of 255, which are ordinary here), the oracle computes in double: 53 bits are enough that a
// sum or a quotient of 24-bit numbers, rounded to 24 bits behind it, is rounded once.
#include "tests/alu_arithmetic/rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace tessera::alu_arithmetic {
namespace {

constexpr uint32_t kMagnitude = 0x7fffffffu, kFraction = 0x7fffffu, kLeading = 0x800000u;

uint32_t exponent_of(uint32_t word) { return word >> 23 & 0xff; }
bool is_binary32(uint32_t word) { return exponent_of(word) != 255; }
float as_float(uint32_t word) { return std::bit_cast<float>(word & kMagnitude); }

int32_t low_half(uint32_t word) { return static_cast<int16_t>(word & 0xffff); }
int32_t high_half(uint32_t word) { return static_cast<int16_t>(word >> 16); }
uint32_t halves(int32_t high, int32_t low) {
  return static_cast<uint32_t>(high) << 16 | (static_cast<uint32_t>(low) & 0xffff);
}

/// A number of a softmax over 2^16, so that exponents of 255 are double's.
double scaled(uint32_t word) {
  const uint32_t exponent = exponent_of(word), fraction = word & kFraction;
  return std::ldexp(exponent == 0 ? fraction : fraction | kLeading, static_cast<int>(std::max(exponent, 1u)) - 166);
}

uint32_t bounded(int64_t value, uint32_t bounds, uint32_t zero) {
  const int64_t clamped = std::clamp<int64_t>(value, low_half(bounds), high_half(bounds));
  return static_cast<uint32_t>(clamped + static_cast<int64_t>(zero)) & 0xff;
}

// ---- row_add: x, y, clear ----

uint32_t row_add_reference(const Operands& w) {
  const uint32_t x = w[2] & 1 ? 0 : w[0] & kMagnitude, y = w[1] & kMagnitude;
  const float sum = as_float(x) + as_float(y);
  if (is_binary32(x) && is_binary32(y) && std::isfinite(sum)) return std::bit_cast<uint32_t>(sum);
  // The exponent is 254 or more here: one of 2^16 less has the same significand.
  const auto rounded = std::bit_cast<uint32_t>(static_cast<float>(scaled(x) + scaled(y)));
  return (rounded + (16u << 23)) & kMagnitude;
}

uint32_t random_fraction(Random& random) {
  const uint32_t bits = random.bits();
  switch (random.below(8)) {
    case 0: return bits & kFraction & ~(kFraction >> random.below(24));
    case 1: return kFraction << random.below(23) & kFraction;
    case 2: return kFraction >> random.below(24);
    case 3: return ((bits & 1 ? 0u : kFraction) ^ (1u << random.below(23))) & kFraction;
    default: return bits & kFraction;
  }
}

uint32_t random_number(Random& random, int32_t exponent_low, int32_t exponent_high) {
  const int32_t exponent = std::clamp(random.between(exponent_low, exponent_high), 0, 255);
  return static_cast<uint32_t>(exponent) << 23 | random_fraction(random);
}

void random_row_add(Random& random, Operands& w) {
  switch (random.below(6)) {
    case 0: w[0] = random.bits(), w[1] = random.bits(); break;
    case 1: w[0] = random_number(random, 0, 3), w[1] = random_number(random, 0, 28); break;
    case 2: w[0] = random_number(random, 228, 255), w[1] = random_number(random, 252, 255); break;
    default: {
      w[0] = random_number(random, 0, 255);
      const auto exponent = static_cast<int32_t>(exponent_of(w[0]));
      w[1] = random_number(random, exponent - 34, exponent + 34);
      break;
    }
  }
  if (random.bits() & 1) std::swap(w[0], w[1]);
  w[2] = random.below(64) == 0;
}

void cross_row_add(const std::function<void(const Operands&)>& emit) {
  for (const uint32_t x : special_floats()) {
    for (const uint32_t y : special_floats()) {
      emit({x, y, 0});
      emit({x, y, 1});
    }
  }
}

// ---- row_softmax: a, b, reciprocal of b, bounds, zero, (mb - 1) >> 12 ----

uint32_t row_softmax_reference(const Operands& w) {
  const uint32_t a = w[0] & kMagnitude, b = w[1] & kMagnitude;
  int64_t result = 511;
  if (exponent_of(b) != 0) {
    float quotient = 0;
    if (exponent_of(a) != 0) {
      quotient = as_float(a) / as_float(b);
      if (!is_binary32(a) || !is_binary32(b)) quotient = static_cast<float>(scaled(a) / scaled(b));
    }
    result = quotient > 511 ? 511 : static_cast<int64_t>(std::nearbyintf(quotient));
  }
  return bounded(result, w[3], w[4]);
}

void set_softmax(Operands& w, uint32_t a, uint32_t b, uint32_t bounds, int32_t zero) {
  const uint32_t significand = (b & kFraction) | kLeading;
  w[0] = a;
  w[1] = b;
  w[2] = static_cast<uint32_t>(((uint64_t{1} << 35) - 1) / (significand | 0xfff));
  w[3] = bounds;
  w[4] = static_cast<uint32_t>(zero);
  w[5] = (significand - 1) >> 12;
}

void random_row_softmax(Random& random, Operands& w) {
  uint32_t a = random.bits() & kMagnitude, b = random_number(random, 60, 255);
  switch (random.below(8)) {
    case 0: b = random.bits(); break;
    case 1:
      a = random_number(random, static_cast<int32_t>(exponent_of(b)) - 3, static_cast<int32_t>(exponent_of(b)) + 12);
      break;
    default: {  // a / b next to k + 1/2, by some last places of a
      const double tie = random.below(random.below(3) ? 520 : 4) + 0.5;
      const auto near = static_cast<float>(tie * scaled(b));
      a = std::bit_cast<uint32_t>(near) + (16u << 23) + static_cast<uint32_t>(random.between(-4, 4));
      break;
    }
  }
  static constexpr std::array<std::array<int32_t, 3>, 5> kUsual = {
      {{0, 255, 0}, {0, 383, -128}, {0, 511, -256}, {0, 250, 5}, {-512, 511, 0}}};
  const auto& usual = kUsual[random.below(kUsual.size())];
  set_softmax(w, a, b, halves(usual[1], usual[0]), usual[2]);
}

/// Numerators at every tie and next to it, for some denominators.
void cross_row_softmax(const std::function<void(const Operands&)>& emit) {
  Operands w = {};
  for (const uint32_t b : special_floats()) {
    for (const uint32_t a : special_floats()) {
      set_softmax(w, a, b, halves(511, 0), 0);
      emit(w);
    }
  }
  for (const uint32_t fraction : {0u, 1u, 2u, 0x3fffffu, 0x400000u, 0x400001u, 0x7ffffeu, 0x7fffffu, 0x2aaaaau,
                                  0x555555u, 0x1fffffu, 0x200000u, 0x123456u, 0x000fffu, 0x001000u, 0x7ff000u}) {
    const uint32_t b = 150u << 23 | fraction;
    for (uint32_t twice = 1; twice < 1100; ++twice) {
      const auto near = std::bit_cast<uint32_t>(0.5f * static_cast<float>(twice) * as_float(b));
      for (int32_t beside = -3; beside <= 3; ++beside) {
        set_softmax(w, near + static_cast<uint32_t>(beside), b, halves(511, 0),
                    -256 + static_cast<int32_t>(twice & 256));
        emit(w);
      }
    }
  }
}

// ---- row_normalise: offset, factor and place, addend (two words), bounds, zero, gain, bias ----

int64_t low_bits(int64_t value, int bits) {
  return static_cast<int64_t>(static_cast<uint64_t>(value) << (64 - bits)) >> (64 - bits);
}

uint32_t row_normalise_reference(const Operands& w) {
  const int64_t offset = low_bits(w[0], 9), factor = w[1] & 0xffffffu, places = w[1] >> 24 & 1 ? 8 : 0;
  const int64_t addend = low_bits(static_cast<int64_t>(uint64_t{w[3]} << 32 | w[2]), 48);
  const int64_t value = low_bits((offset * (int64_t{1} << places) * factor + addend) >> 8, 25);
  const int64_t sum = value * low_bits(w[6], 18) + int64_t{static_cast<int32_t>(w[7])} * 256;
  // Below 2^53: the host's conversion is exact, and its rounding the one that is wanted.
  return bounded(static_cast<int64_t>(std::nearbyint(std::ldexp(static_cast<double>(sum), -28))), w[4], w[5]);
}

void random_row_normalise(Random& random, Operands& w) {
  static constexpr std::array<std::array<int32_t, 2>, 5> kUsual = {
      {{-128, 127}, {0, 255}, {-512, 511}, {5, 5}, {-100, -3}}};
  const auto& usual = kUsual[random.below(kUsual.size())];
  const auto any = [&](int bits) {
    return static_cast<int64_t>(random.bits64()) >> (63 - random.below(static_cast<uint32_t>(bits)));
  };
  w[0] = random.bits() & 0x1ff;
  w[1] = (random.bits() >> 8 >> random.below(8)) | (random.bits() & 1) << 24;
  const auto addend = any(48);
  w[2] = static_cast<uint32_t>(addend);
  w[3] = static_cast<uint32_t>(addend >> 32);
  w[4] = halves(usual[1], usual[0]);
  w[5] = static_cast<uint32_t>(random.between(-256, 255));
  w[6] = static_cast<uint32_t>(any(18));
  w[7] = static_cast<uint32_t>(any(32));
  if (random.below(2)) {  // a tie: k + 1/2 with a value of a few bits, and what lies beside it
    const int64_t value = random.between(-64, 64) * 2 + 1, gain = 1 << random.below(16);
    w[1] = 0;
    const int64_t wanted = value * 256;
    w[2] = static_cast<uint32_t>(wanted);
    w[3] = static_cast<uint32_t>(wanted >> 32);
    w[6] = static_cast<uint32_t>(gain);
    const int64_t tie = random.between(-520, 520) * (int64_t{1} << 28) + (int64_t{1} << 27) - value * gain;
    w[7] = static_cast<uint32_t>((tie >> 8) + random.between(-1, 1));
  }
}

void cross_row_normalise(const std::function<void(const Operands&)>& emit) {
  for (int32_t offset = -256; offset < 256; ++offset) {
    for (const uint32_t factor : {0u, 1u, 0x10000u, 0x800000u, 0xffffffu, 0x1000000u, 0x1800000u, 0x1ffffffu}) {
      for (const int32_t gain : {0, 1, -1, 131071, -131072, 4096}) {
        for (const int32_t bias : {0, 1 << 19, -(1 << 19), (1 << 19) + 1, (1 << 20) * 3, -2147483647 - 1, 2147483647}) {
          emit({static_cast<uint32_t>(offset) & 0x1ff, factor, 0xffffff00u, 0xffffffffu, halves(255, -256), 3,
                static_cast<uint32_t>(gain), static_cast<uint32_t>(bias)});
        }
      }
    }
  }
}

}  // namespace

void add_row_units(std::vector<Unit>& units) {
  units.push_back({"row_add", 9, 4, 3, false, row_add_reference, random_row_add, cross_row_add});
  units.push_back({"row_softmax", 10, 10, 1, false, row_softmax_reference, random_row_softmax, cross_row_softmax});
  units.push_back(
      {"row_normalise", 11, 10, 1, false, row_normalise_reference, random_row_normalise, cross_row_normalise});
}

}  // namespace tessera::alu_arithmetic
