// SPDX-License-Identifier: Apache-2.0
// No schedule takes fewer cycles than the bound of its own tile. The oracle is the timing model, which knows nothing of
// bounds; compiler/npu/planning/bound_test.cc has the replay as its oracle, and more layers.
#include <gtest/gtest.h>

#include "compiler/npu/tests/bounded_layers.h"
#include "tessera/tuning/judges.h"

namespace tessera {
namespace {

namespace test = npu::test;
using test::Random;

void repeat(int count, uint64_t first, const std::function<npu::Graph(Random&)>& make) {
  register_device_judges();
  ASSERT_EQ(
      test::broken_of(count, 20, first, [&](uint64_t seed) { return test::broken_bound("sysc", seed, 20, make); }), "");
}

TEST(Bounds, OfDepthwiseLayers) { repeat(8, 1, test::random_depthwise); }
TEST(Bounds, OfFirstLayers) { repeat(4, 7000, test::random_first_layer); }
TEST(Bounds, OfConvolutions) {
  repeat(8, 1000, [](Random& random) { return test::random_convolution(random, 200, 1000); });
}
TEST(Bounds, OfProducts) {
  repeat(6, 2000, [](Random& random) { return test::random_product(random, 100); });
}
npu::Graph random_vector_layer(Random& random) {
  return random.chance(50) ? test::random_pool(random, 100, 1000) : test::random_elementwise(random, 100, 1000);
}
TEST(Bounds, OfTheVectorUnit) { repeat(12, 3000, random_vector_layer); }

/// A cut window whose first tiles are padding, rows of pixels that are one run in memory, and packed pixels whose parts
/// are one.
TEST(Bounds, OfUnusualInputs) {
  register_device_judges();
  EXPECT_EQ(test::broken_bound("sysc", 3216, 20, random_vector_layer), "");
  for (const uint64_t seed : {1400126, 3400004}) {
    EXPECT_EQ(test::broken_bound("sysc", seed, 20,
                                 [](Random& random) { return test::random_convolution(random, 200, 1000); }),
              "")
        << seed;
  }
}

}  // namespace
}  // namespace tessera
