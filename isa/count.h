// SPDX-License-Identifier: Apache-2.0
// Products of extents. Six loops of twelve bits count to 2^72: a product that wrapped could be 0, and an instruction
// that does nothing reaches nothing. So counts stop at a number that no machine gets through.
#pragma once

#include <cstdint>

namespace tessera::isa {

/// Where counts stop. Times the bytes or products of one entry they stay within 64 bits.
inline constexpr int64_t kMostCount = int64_t{1} << 40;

/// a * b, at most kMostCount; neither is negative.
inline int64_t times(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) || product > kMostCount ? kMostCount : product;
}

}  // namespace tessera::isa
