// SPDX-License-Identifier: Apache-2.0
// Constants of the ALU's second operation. The machine computes it in fixed point (isa/semantics.md, ALU); models state
// it in binary32. Enters: the binary32 form and the ranges of both operands. Leaves: the fixed-point constants with
// which the machine gives the very integers of the binary32 form, or nothing where 48 bits do not hold it; and the 32
// bytes of a PARAM entry that carry them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "isa/generated/instructions.h"

namespace tessera::isa {

/// Widths of the fixed-point second operation, in bits; signed but for the shift.
inline constexpr int kSecondFactorBits = 42, kSecondSumBits = 48, kSecondPairBits = 18, kSecondShiftBits = 4;
/// Fraction bits of the sum with shift 0.
inline constexpr int kSecondFractionBits = 25;
/// What `mul` has for the outer factor's operand.
inline constexpr int32_t kSecondMulOuter = 512;

/// The content of a PARAM entry that `constant_addr` names.
struct SecondConstants {
  int64_t inner_factor = 0;  // times y, or the product of differences
  int64_t inner_addend = 0;
  int64_t outer_factor = 0;  // times x, the larger one, or kSecondMulOuter
  int32_t shift = 0;
  int32_t low = 0;
  int32_t high = 0;
  int32_t zero = 0;
  int32_t zx = 0;
  int32_t zy = 0;
  bool minimum = false;
  bool operator==(const SecondConstants&) const = default;
};

inline constexpr size_t kSecondConstantsBytes = 32;
std::array<uint8_t, kSecondConstantsBytes> encode_second(const SecondConstants& constants);
SecondConstants decode_second(const uint8_t* bytes);

/// Integers from `low` to `high`.
struct IntegerRange {
  int64_t low = 0;
  int64_t high = 0;
};

/// The second operation in binary32:
///   add: g = fma(float(x), rx, fma(float(y), ry, f))
///   mul: p = float((x - zx) * (y - zy));  g = fused ? fma(p, rx, f) : p * rx + f, two roundings
///   max: g = float(max(x, y)), or min when `minimum`
///   result = RNE(clamp(g, low, high)) + zero
struct FloatSecond {
  SecondOp operation = SecondOp::kAdd;
  float rx = 1, ry = 1, f = 0;
  int32_t zx = 0, zy = 0;
  int32_t low = 0, high = 0, zero = 0;
  bool fused = false;
  bool minimum = false;
};

/// The constants with which the machine's result equals the binary32 one for all x and y of the ranges. Nothing where
/// the scales lie too far apart or a number is not finite or out of its field.
std::optional<SecondConstants> fixed_second(const FloatSecond& second, IntegerRange x, IntegerRange y);

}  // namespace tessera::isa
