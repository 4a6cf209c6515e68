// SPDX-License-Identifier: Apache-2.0
// Arithmetic of row_reduce and row_map (isa/semantics.md): integers alone, so that it is the same on every host. Read
// by the functional simulator and by the compiler, which proves with it what a model's operator becomes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace tessera::rows {

/// Lanes of an ACC entry in which the scalars of a row stand: its maximum or the sum of its elements; the sum of its
/// exponentials or the root's reciprocal; what the reciprocal's exponent makes of an element; the row's length.
inline constexpr int kRowScalars = 4;
using RowScalars = std::array<int32_t, kRowScalars>;

/// Byte tables that hold the four bytes of 256 numbers.
inline constexpr int kRowTables = 4;

/// The longest row that `moments` takes.
inline constexpr int kMostRowLength = 4096;

/// Fraction bits of a normalised result, of its addend, and of the reciprocal root of 1.
inline constexpr int kNormaliseFraction = 28, kNormaliseAddendFraction = 20, kReciprocalFraction = 16;
/// A normalised element has this less the row's third scalar as the exponent of its unit.
inline constexpr int kNormaliseShift = 6;
/// Width of a factor.
inline constexpr int kNormaliseFactorBits = 18;

/// The low `bits` bits as two's complement.
constexpr int64_t low_signed(int64_t value, int bits) {
  return static_cast<int64_t>(static_cast<uint64_t>(value) << (64 - bits)) >> (64 - bits);
}

/// value / 2^bits, a half to the even neighbour. bits 1..62.
constexpr int64_t round_half_even_shift(int64_t value, int bits) {
  const int64_t down = value >> bits, rest = value - down * (int64_t{1} << bits), half = int64_t{1} << (bits - 1);
  return down + (rest > half || (rest == half && down % 2 != 0) ? 1 : 0);
}

/// The sum of two numbers of a softmax, 31 bits each, rounded to 24 significant bits.
uint32_t add_row_numbers(uint32_t a, uint32_t b);

/// The nearest integer of the rounded quotient, at most 511.
int32_t divide_row_numbers(uint32_t a, uint32_t b);

/// What `moments` is told beside the row's elements.
struct MomentsForm {
  int32_t length = 1;
  int32_t shift = 0;
  int32_t offset = 0;
  uint64_t epsilon = 0;
  bool centre = true;
};

/// The scalars of a row of which the sum and the sum of squares are known.
RowScalars moments(int64_t sum, int64_t squares, const MomentsForm& form);

/// A normalised element before clamp and zero point. `difference`: the element less its zero point.
int64_t normalise(int32_t difference, const RowScalars& scalars, int32_t factor, int32_t addend);

}  // namespace tessera::rows
