// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/values/byte_set.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace tessera::npu {
namespace {

/// Random intervals around the borders of pages, beside a set that holds each byte.
TEST(ByteSet, EqualsASetOfNumbers) {
  std::mt19937 random(5);
  const auto below = [&](int64_t limit) { return static_cast<int64_t>(random() % static_cast<uint32_t>(limit)); };
  ByteSet bytes;
  std::set<int64_t> wanted;
  for (int step = 0; step < 3000; ++step) {
    const int64_t begin = below(4) * 4096 + below(300) + (below(2) == 0 ? 0 : 3900);
    const int64_t end = begin + below(below(8) == 0 ? 9000 : 200);
    switch (below(3)) {
      case 0:
        bytes.add(begin, end);
        for (int64_t at = begin; at < end; ++at) wanted.insert(at);
        break;
      case 1:
        bytes.remove(begin, end);
        wanted.erase(wanted.lower_bound(begin), wanted.lower_bound(end));
        break;
      default: {
        const auto first = wanted.lower_bound(begin);
        ASSERT_EQ(bytes.any(begin, end), first != wanted.end() && *first < end) << "step " << step;
      }
    }
  }
}

TEST(ByteSet, AnEmptyIntervalHasNothing) {
  ByteSet bytes;
  bytes.add(10, 10);
  EXPECT_FALSE(bytes.any(0, 100));
  bytes.add(0, 100);
  EXPECT_FALSE(bytes.any(50, 50));
}

}  // namespace
}  // namespace tessera::npu
