// SPDX-License-Identifier: Apache-2.0
#include "ops/litert/litert_root.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace tessera::ops::litert {

namespace {

constexpr int32_t kLeast = std::numeric_limits<int32_t>::min(), kMost = std::numeric_limits<int32_t>::max();

/// The doubled high half of a product, rounded; numbers have their point behind bit 31.
int32_t high_product(int32_t a, int32_t b) {
  if (a == b && a == kLeast) return kMost;
  const int64_t product = int64_t{a} * b, nudge = product >= 0 ? int64_t{1} << 30 : 1 - (int64_t{1} << 30);
  return static_cast<int32_t>((product + nudge) / (int64_t{1} << 31));
}

int32_t shifted_left(int32_t x, int bits) {
  return static_cast<int32_t>(std::clamp<int64_t>(int64_t{x} * (int64_t{1} << bits), kLeast, kMost));
}

}  // namespace

FixedPoint inverse_root(int32_t x) {
  if (x <= 1) return {kMost, 0};
  int shift = 11;
  for (; x >= 1 << 29; ++shift) x /= 4;
  const int pairs = (std::countl_zero(static_cast<uint32_t>(x)) - 1) / 2 - 1;
  shift -= pairs;
  x <<= 2 * pairs;
  // Three bits before the point; a product of two such has six, of three nine.
  const int32_t input = x >> 1, half = (input >> 1) + (input & 1), three_halves = (1 << 28) + (1 << 27);
  int32_t root = 1 << 28;
  for (int i = 0; i < 5; ++i) {
    const int32_t cube = shifted_left(high_product(high_product(root, root), root), 6);
    root = shifted_left(high_product(three_halves, root) - high_product(half, cube), 3);
  }
  root = high_product(root, 1518500250);  // the root of a half
  if (shift < 0) {
    root <<= -shift;
    shift = 0;
  }
  return {root, -shift};
}

}  // namespace tessera::ops::litert
