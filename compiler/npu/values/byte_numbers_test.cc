// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/values/byte_numbers.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <random>
#include <vector>

namespace tessera::npu {
namespace {

using Number = ByteNumbers::Number;

/// Random intervals of numbers that follow each other, of some that do not and of unknown ones, in two memories beside
/// two arrays that hold each byte.
TEST(ByteNumbers, EqualArrays) {
  constexpr int64_t kLanes = 16, kBytes = 512;
  std::mt19937 random(7);
  const auto below = [&](int64_t limit) { return static_cast<int64_t>(random() % static_cast<uint32_t>(limit)); };
  std::array<ByteNumbers, 2> memories;
  std::array<std::vector<Number>, 2> wanted;
  for (size_t k = 0; k < memories.size(); ++k) {
    memories[k].reset(kBytes, kLanes);
    wanted[k].assign(kBytes, ByteNumbers::kUnknown);
  }
  for (int step = 0; step < 5000; ++step) {
    const auto which = static_cast<size_t>(below(2));
    const int64_t grain = below(2) == 0 ? kLanes : 1, count = 1 + below(below(4) == 0 ? 100 : 40);
    const int64_t begin = below((kBytes - count) / grain + 1) * grain;
    const auto first = wanted[which].begin() + begin;
    switch (below(4)) {
      case 0: {
        std::vector<Number> numbers(static_cast<size_t>(count));
        std::iota(numbers.begin(), numbers.end(), static_cast<Number>((1 + below(40)) * kLanes + below(2) * below(16)));
        if (below(3) == 0) numbers[static_cast<size_t>(below(count))] = ByteNumbers::kUnknown;
        memories[which].write(begin, count, numbers.data());
        std::copy(numbers.begin(), numbers.end(), first);
        break;
      }
      case 1:
        memories[which].forget(begin, count);
        std::fill(first, first + count, ByteNumbers::kUnknown);
        break;
      case 2: {
        const int64_t source = below((kBytes - count) / grain + 1) * grain;
        memories[which].copy(memories[1 - which], source, begin, count);
        std::copy_n(wanted[1 - which].begin() + source, count, first);
        break;
      }
      default: {
        std::vector<Number> found(static_cast<size_t>(count));
        memories[which].read(begin, count, found.data());
        ASSERT_EQ(found, std::vector<Number>(first, first + count)) << "step " << step;
        ASSERT_EQ(memories[which].at(begin), *first) << "step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::npu
