// SPDX-License-Identifier: Apache-2.0
// No schedule takes fewer cycles than the bound of its own tile. The oracle is the timing model, which knows nothing of
// bounds; compiler/npu/bound_test.cc has the replay as its oracle, and more layers.
#include <gtest/gtest.h>

#include <cstdlib>

#include "compiler/npu/tests/bounded_layers.h"
#include "tessera/judges.h"

namespace tessera {
namespace {

namespace test = npu::test;
using test::Random;

/// TESSERA_LONG multiplies the number of layers.
void repeat(int count, uint64_t first, const std::function<npu::Graph(Random&)>& make) {
  register_device_judges();
  if (std::getenv("TESSERA_LONG") != nullptr) count *= 20;
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(count); ++seed)
    ASSERT_EQ(test::broken_bound("sysc", seed, 20, make), "") << seed;
}

TEST(Bounds, OfDepthwiseLayers) { repeat(8, 1, test::random_depthwise); }
TEST(Bounds, OfConvolutions) {
  repeat(8, 1000, [](Random& random) { return test::random_convolution(random, 200, 1000); });
}
TEST(Bounds, OfProducts) {
  repeat(6, 2000, [](Random& random) { return test::random_product(random, 100); });
}
TEST(Bounds, OfTheVectorUnit) {
  repeat(12, 3000, [](Random& random) {
    return random.chance(50) ? test::random_pool(random, 100, 1000) : test::random_elementwise(random, 100, 1000);
  });
}

}  // namespace
}  // namespace tessera
