// SPDX-License-Identifier: Apache-2.0
// Turns of the engines of several cores: what all streams take together decides, whatever each takes alone.
#include "compiler/npu/cores/cores_refine.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/npu/tests/core_code.h"

namespace tessera::npu {
namespace {

using isa::Engine;

constexpr int16_t kInp = static_cast<int16_t>(isa::Space::kInp), kOut = static_cast<int16_t>(isa::Space::kOut),
                  kAcc = static_cast<int16_t>(isa::Space::kAcc);

emit::Work work(Engine engine, int64_t cycles, std::initializer_list<emit::Touch> touches) {
  emit::Work made = test::work(engine, touches);
  made.duration.engine = cycles;
  return made;
}

/// A core whose walk over rows could overtake the results of a product.
CoreCode walk_behind_results() {
  return test::core_code({
      work(Engine::kGemm, 5000, {{0, 64, kInp, false}, {0, 64, kAcc, true}}),
      work(Engine::kAlu, 100, {{0, 64, kAcc, false}, {0, 64, kOut, true}}),
      work(Engine::kAlu, 1000, {{64, 128, kInp, true}}),
      work(Engine::kGemm, 5000, {{64, 128, kInp, false}, {64, 128, kAcc, true}}),
  });
}

bool overtaken(const CoreCode& code) { return std::ranges::find(code.tags, 2u) < std::ranges::find(code.tags, 1u); }

class Refine : public testing::Test {
 protected:
  /// Cores whose walks overtake, where `together` says what streams with so many of them take.
  int64_t overtaking(const std::function<std::optional<int64_t>(int64_t)>& together) {
    std::vector<CoreCode> codes = {walk_behind_results(), walk_behind_results()};
    refine(
        codes, [](const CoreCode& code) { return Awaits(code.works.size()); },
        [](const CoreCode& code) { return overtaken(code) ? 1000 : 5000; },
        [&](const std::vector<CoreCode>& all) { return together(std::ranges::count_if(all, overtaken)); });
    for (const CoreCode& code : codes) {
      EXPECT_TRUE(std::ranges::is_permutation(code.tags, std::vector<uint32_t>{0, 1, 2, 3}));
      EXPECT_EQ(code.layers, code.tags);
    }
    return std::ranges::count_if(codes, overtaken);
  }
};

TEST_F(Refine, TheBestForAllIsTaken) {
  EXPECT_EQ(overtaking([](int64_t walks) { return 9000 - 1000 * walks; }), 2);
}

TEST_F(Refine, WhatIsBestForEachAloneMayCostAll) {
  EXPECT_EQ(overtaking([](int64_t walks) { return 9000 + 1000 * walks; }), 0);
}

TEST_F(Refine, SmallGainsAreNone) {
  EXPECT_EQ(overtaking([](int64_t walks) { return 9000 - walks; }), 0);
}

TEST_F(Refine, OneCoreMayTakeOtherTurns) {
  EXPECT_EQ(overtaking([](int64_t walks) { return walks == 1 ? 5000 : 9000 + 1000 * walks; }), 1);
}

TEST_F(Refine, StreamsThatBlockEachOtherAreNotTaken) {
  EXPECT_EQ(overtaking([](int64_t walks) { return walks == 0 ? std::optional<int64_t>(9000) : std::nullopt; }), 0);
}

}  // namespace
}  // namespace tessera::npu
