// SPDX-License-Identifier: Apache-2.0
// The arithmetic of rows against the processor's floating point and against exact integers: sums and quotients of a
// softmax's numbers, ties and subnormals among them; the reciprocal root by its definition; a row by hand.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "base/row_arithmetic.h"
#include "isa/verify/verify.h"
#include "sim/functional/machine.h"

namespace tessera::sim {
namespace {

/// A finite number that is not negative, exponents near `middle` more often than others.
float number(std::mt19937_64& random, int middle) {
  const auto exponent = static_cast<uint32_t>(
      random() % 4 == 0 ? random() % 255 : static_cast<uint64_t>(std::clamp(middle + int(random() % 30) - 15, 0, 254)));
  uint32_t fraction = static_cast<uint32_t>(random()) & 0x7fffff;
  if (random() % 3 == 0) fraction &= 0x7fffffu << (random() % 23);  // few bits: ties
  return std::bit_cast<float>(exponent << 23 | fraction);
}

TEST(RowArithmetic, SumsAreThoseOfTheProcessor) {
  std::mt19937_64 random(1);
  for (int n = 0; n < 1000000; ++n) {
    const int middle = static_cast<int>(random() % 255);
    const float a = number(random, middle), b = number(random, middle), sum = a + b;
    if (!std::isfinite(sum)) continue;
    ASSERT_EQ(rows::add_row_numbers(std::bit_cast<uint32_t>(a), std::bit_cast<uint32_t>(b)),
              std::bit_cast<uint32_t>(sum))
        << a << " + " << b;
  }
}

TEST(RowArithmetic, QuotientsAreThoseOfTheProcessor) {
  std::mt19937_64 random(2);
  for (int n = 0; n < 1000000; ++n) {
    const float b = number(random, 200);
    if (!std::isnormal(b)) continue;
    float a = number(random, 200);
    if (random() % 2 == 0) {  // near k + 1/2
      a = b * (static_cast<float>(random() % 512) + 0.5f);
      for (uint64_t k = random() % 3; k > 0; --k) a = std::nextafter(a, random() % 2 == 0 ? 0.0f : b);
    }
    if (!std::isnormal(a) || !std::isfinite(a / b)) continue;
    ASSERT_EQ(rows::divide_row_numbers(std::bit_cast<uint32_t>(a), std::bit_cast<uint32_t>(b)),
              static_cast<int32_t>(std::nearbyint(std::min(a / b, 511.0f))))
        << a << " / " << b;
  }
}

TEST(RowArithmetic, NothingDividesByNothing) {
  EXPECT_EQ(rows::divide_row_numbers(0, 0), 511);
  EXPECT_EQ(rows::divide_row_numbers(0, 0x3f800000), 0);
  EXPECT_EQ(rows::divide_row_numbers(0x007fffff, 0x3f800000), 0);  // a subnormal counts as 0
  EXPECT_EQ(rows::divide_row_numbers(0x3f800000, 0x007fffff), 511);
}

TEST(RowArithmetic, ReciprocalRootsAreWithinHalfAUnit) {
  std::mt19937_64 random(3);
  for (int n = 0; n < 100000; ++n) {
    const uint64_t v = std::max<uint64_t>(1, random() >> (16 + random() % 48));
    const rows::RowScalars scalars = rows::moments(0, 0, {.length = 1, .shift = 0, .offset = 0, .epsilon = v});
    const double k = scalars[2],
                 exact = std::ldexp(1.0, 16) / std::sqrt(std::ldexp(static_cast<double>(v), -2 * int(k)));
    ASSERT_GE(scalars[1], 1 << 16);
    ASSERT_LT(scalars[1], 1 << 17);
    ASSERT_NEAR(scalars[1], exact, 0.51 + (exact > 131071.5 ? 1 : 0)) << v;
  }
}

TEST(RowArithmetic, NormalisesAsRealNumbersDo) {
  // Ten bytes about their mean, G = 16 and B = 3 steps: exponents as the compiler chooses them.
  const int values[] = {3, 250, 17, 90, 91, 92, 128, 5, 200, 140};
  int64_t sum = 0, squares = 0;
  for (const int x : values) sum += x - 100, squares += (x - 100) * (x - 100);
  const int shift = 16, bits = 12;
  const rows::RowScalars scalars =
      rows::moments(sum, squares, {.length = 10, .shift = shift, .offset = bits - 6 - shift / 2, .epsilon = 0});
  const double mean = static_cast<double>(sum) / 10;
  const double deviation = std::sqrt(static_cast<double>(squares) / 10 - mean * mean);
  for (const int x : values) {
    const double wanted = (x - 100 - mean) / deviation * 16 + 3;
    EXPECT_NEAR(static_cast<double>(rows::normalise(x - 100, scalars, 16 << bits, 3 << 20)), wanted, 0.501) << x;
  }
}

TEST(Rows, AMachineWithoutLanesRefusesThem) {
  isa::RowReduce reduce;
  reduce.src = isa::AluSpace::kOut;
  reduce.tail = 1;
  isa::MachineConfig config = isa::find_config("npu256");
  ASSERT_EQ(config.row_lanes, 0);
  EXPECT_EQ(isa::check_operands(reduce, config)->fault, isa::Fault::kIllegalOpcode);
  config.row_lanes = 4;
  EXPECT_FALSE(isa::check_operands(reduce, config));
}

}  // namespace
}  // namespace tessera::sim
