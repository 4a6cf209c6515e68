// SPDX-License-Identifier: Apache-2.0
// Every binary32 constant is an integer times a power of two. The common scale 2^-s makes integers of all three; the
// machine's sums are then the exact ones of the binary32 form, and its two roundings to 24 bits are those of binary32
// as long as nothing leaves 48 bits. Numbers below 2^-40 do not occur, so that no intermediate result is subnormal.
#include "isa/second_operation.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace tessera::isa {
namespace {

constexpr int64_t kMostSum = (int64_t{1} << (kSecondSumBits - 1)) - (int64_t{1} << 24);  // room for both roundings
constexpr int kMostShift = (1 << kSecondShiftBits) - 1;

struct Field {
  size_t word;  // of 64 bits
  int position;
  int width;
};
// As isa/semantics.md lists them.
constexpr Field kInnerFactor{0, 0, kSecondFactorBits}, kShift{0, 42, kSecondShiftBits}, kLow{0, 46, 10};
constexpr Field kInnerAddend{1, 0, kSecondSumBits}, kHigh{1, 48, 10};
constexpr Field kOuterFactor{2, 0, kSecondFactorBits}, kZero{2, 42, 9}, kMinimum{2, 51, 1};
constexpr Field kZx{3, 0, 9}, kZy{3, 9, 9};

using Words = std::array<uint64_t, kSecondConstantsBytes / 8>;

void put(Words& words, const Field& field, int64_t value) {
  words[field.word] |= (static_cast<uint64_t>(value) & ((uint64_t{1} << field.width) - 1)) << field.position;
}

uint64_t take(const Words& words, const Field& field) {
  return words[field.word] >> field.position & ((uint64_t{1} << field.width) - 1);
}

int64_t take_signed(const Words& words, const Field& field) {
  const int unused = 64 - field.width;
  return static_cast<int64_t>(take(words, field) << unused) >> unused;
}

/// integer * 2^exponent; the integer odd, or 0 with an exponent that never decides.
struct Dyadic {
  int64_t integer = 0;
  int exponent = 1000;
};

Dyadic dyadic(float value) {
  if (value == 0) return {};
  int exponent = 0;
  auto integer = static_cast<int64_t>(std::ldexp(std::frexp(value, &exponent), 24));
  exponent -= 24;
  while (integer % 2 == 0) {
    integer /= 2;
    ++exponent;
  }
  return {integer, exponent};
}

/// value * 2^scale when that is an integer of `bits` bits, the smallest one left out.
std::optional<int64_t> scaled(const Dyadic& value, int scale, int bits) {
  if (value.integer == 0) return 0;
  const int shift = value.exponent + scale;
  if (shift < 0 || shift >= bits) return std::nullopt;
  const int64_t limit = (int64_t{1} << (bits - 1)) - 1;
  if (std::abs(value.integer) > limit >> shift) return std::nullopt;
  return value.integer * (int64_t{1} << shift);
}

int64_t largest(IntegerRange range, int64_t minus) {
  return std::max(std::abs(range.low - minus), std::abs(range.high - minus));
}

bool fits(int64_t value, const Field& field) {
  return value >= -(int64_t{1} << (field.width - 1)) && value < int64_t{1} << (field.width - 1);
}

}  // namespace

std::array<uint8_t, kSecondConstantsBytes> encode_second(const SecondConstants& c) {
  Words words{};
  put(words, kInnerFactor, c.inner_factor);
  put(words, kShift, c.shift);
  put(words, kLow, c.low);
  put(words, kInnerAddend, c.inner_addend);
  put(words, kHigh, c.high);
  put(words, kOuterFactor, c.outer_factor);
  put(words, kZero, c.zero);
  put(words, kMinimum, c.minimum ? 1 : 0);
  put(words, kZx, c.zx);
  put(words, kZy, c.zy);
  std::array<uint8_t, kSecondConstantsBytes> bytes{};
  for (size_t k = 0; k < bytes.size(); ++k) bytes[k] = static_cast<uint8_t>(words[k / 8] >> (8 * (k % 8)));
  return bytes;
}

SecondConstants decode_second(const uint8_t* bytes) {
  Words words{};
  for (size_t k = 0; k < kSecondConstantsBytes; ++k) words[k / 8] |= uint64_t{bytes[k]} << (8 * (k % 8));
  SecondConstants c;
  c.inner_factor = take_signed(words, kInnerFactor);
  c.shift = static_cast<int32_t>(take(words, kShift));
  c.low = static_cast<int32_t>(take_signed(words, kLow));
  c.inner_addend = take_signed(words, kInnerAddend);
  c.high = static_cast<int32_t>(take_signed(words, kHigh));
  c.outer_factor = take_signed(words, kOuterFactor);
  c.zero = static_cast<int32_t>(take_signed(words, kZero));
  c.minimum = take(words, kMinimum) != 0;
  c.zx = static_cast<int32_t>(take_signed(words, kZx));
  c.zy = static_cast<int32_t>(take_signed(words, kZy));
  return c;
}

std::optional<SecondConstants> fixed_second(const FloatSecond& second, IntegerRange x, IntegerRange y) {
  if (!std::isfinite(second.rx) || !std::isfinite(second.ry) || !std::isfinite(second.f)) return std::nullopt;
  if (!fits(second.low, kLow) || !fits(second.high, kHigh) || second.low > second.high || !fits(second.zero, kZero) ||
      !fits(second.zx, kZx) || !fits(second.zy, kZy))
    return std::nullopt;
  SecondConstants c;
  c.low = second.low;
  c.high = second.high;
  c.zero = second.zero;
  c.zx = second.zx;
  c.zy = second.zy;
  c.minimum = second.minimum;
  Dyadic inner, addend, outer;
  int64_t most_inner = 0, most_outer = 0;
  switch (second.operation) {
    case SecondOp::kAdd:
      inner = dyadic(second.ry);
      addend = dyadic(second.f);
      outer = dyadic(second.rx);
      most_inner = largest(y, 0);
      most_outer = largest(x, 0);
      break;
    case SecondOp::kMul:
      inner = dyadic(second.rx);
      (second.fused ? addend : outer) = dyadic(second.f);
      if (!second.fused && outer.integer != 0) outer.exponent -= 9;  // kSecondMulOuter is 2^9
      most_inner = largest(x, second.zx) * largest(y, second.zy);
      most_outer = kSecondMulOuter;
      if (most_inner >= int64_t{1} << (kSecondPairBits - 1)) return std::nullopt;
      break;
    default:
      outer = {1, 0};
      most_outer = std::max(largest(x, 0), largest(y, 0));
      break;
  }
  const int scale = std::max({kSecondFractionBits, -inner.exponent, -addend.exponent, -outer.exponent});
  if (scale > kSecondFractionBits + kMostShift) return std::nullopt;
  const auto inner_factor = scaled(inner, scale, kSecondFactorBits),
             inner_addend = scaled(addend, scale, kSecondSumBits),
             outer_factor = scaled(outer, scale, kSecondFactorBits);
  if (!inner_factor || !inner_addend || !outer_factor) return std::nullopt;
  // Operands have at most 18 bits, so that a product has at most 59.
  const int64_t inner_sum = most_inner * std::abs(*inner_factor) + std::abs(*inner_addend);
  if (inner_sum > kMostSum || inner_sum + most_outer * std::abs(*outer_factor) > kMostSum) return std::nullopt;
  c.inner_factor = *inner_factor;
  c.inner_addend = *inner_addend;
  c.outer_factor = *outer_factor;
  c.shift = scale - kSecondFractionBits;
  return c;
}

}  // namespace tessera::isa
