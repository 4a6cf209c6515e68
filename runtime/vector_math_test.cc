// SPDX-License-Identifier: Apache-2.0
#include "runtime/vector_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace tessera::runtime {
namespace {

float reference(const std::string& name, float x) { return name.find("exp") == std::string::npos ? erff(x) : expf(x); }

void expect_same(const VectorFunction& function, const float* arguments, int count) {
  float lanes[16];
  std::copy_n(arguments, count, lanes);
  function.call(lanes);
  for (int i = 0; i < count; ++i) {
    const float want = reference(function.name, arguments[i]);
    if (std::isnan(want) && std::isnan(lanes[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(lanes[i]), std::bit_cast<uint32_t>(want))
        << function.name << " of " << arguments[i];
  }
}

int lanes_of(const VectorFunction& function) { return std::stoi(function.name.substr(function.name.rfind('_') + 1)); }

TEST(VectorMath, GivesTheBitsOfTheLibraryForArgumentsOfAllMagnitudes) {
  for (const VectorFunction& function : vector_functions()) {
    const int count = lanes_of(function);
    float arguments[16];
    for (uint64_t bits = 0; bits < uint64_t{1} << 32;) {
      for (int i = 0; i < count; ++i, bits += 1999) arguments[i] = std::bit_cast<float>(static_cast<uint32_t>(bits));
      expect_same(function, arguments, count);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(VectorMath, GivesTheBitsOfTheLibraryAroundItsBounds) {
  const float bounds[] = {0.0F,
                          0x1p-149F,
                          0x1p-126F,
                          0x1p-119F,
                          0x1p-28F,
                          0.84375F,
                          1.25F,
                          2.857F,
                          6.0F,
                          88.0F,
                          88.7228F,
                          -103.278929F,
                          -103.972F,
                          -87.33F,
                          std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()};
  for (const VectorFunction& function : vector_functions())
    for (const float bound : bounds)
      for (int32_t distance = -64; distance < 64; distance += lanes_of(function)) {
        float arguments[16];
        for (int i = 0; i < lanes_of(function); ++i)
          arguments[i] =
              (i % 2 ? -1.0F : 1.0F) * std::bit_cast<float>(std::bit_cast<uint32_t>(bound) + uint32_t(distance + i));
        expect_same(function, arguments, lanes_of(function));
        if (HasFatalFailure()) return;
      }
}

}  // namespace
}  // namespace tessera::runtime
