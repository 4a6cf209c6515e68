// SPDX-License-Identifier: Apache-2.0
// Fetches of constants where LOAD rests: what all streams take together decides, and nothing overtakes who uses the
// same bytes.
#include "compiler/npu/cores/cores_fetch.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/npu/tests/core_code.h"

namespace tessera::npu {
namespace {

using isa::Engine;

constexpr auto kWgt = static_cast<int16_t>(isa::Space::kWgt), kInp = static_cast<int16_t>(isa::Space::kInp),
               kConstants = static_cast<int16_t>(isa::kSpaces + kConstantBase),
               kArena = static_cast<int16_t>(isa::kSpaces + kArenaBase);

emit::Work work(Engine engine, int64_t bytes, std::initializer_list<emit::Touch> touches) {
  emit::Work made = test::work(engine, touches);
  made.dram_bytes = bytes;
  return made;
}

/// Two layers: weights, input and products of each. The second one's weights stand at byte `at` of WGT.
CoreCode two_layers(int64_t at) {
  return test::core_code({
      work(Engine::kLoad, 64, {{0, 64, kConstants, false}, {0, 64, kWgt, true}}),
      work(Engine::kLoad, 64, {{0, 64, kArena, false}, {0, 64, kInp, true}}),
      work(Engine::kGemm, 0, {{0, 64, kInp, false}, {0, 64, kWgt, false}}),
      work(Engine::kLoad, 64, {{64, 128, kConstants, false}, {at, at + 64, kWgt, true}}),
      work(Engine::kLoad, 64, {{64, 128, kArena, false}, {64, 128, kInp, true}}),
      work(Engine::kGemm, 0, {{64, 128, kInp, false}, {at, at + 64, kWgt, false}}),
  });
}

/// In front of which instruction the second layer's weights are fetched.
uint32_t fetched_before(const CoreCode& code) { return *(std::ranges::find(code.tags, 3u) + 1); }

class FetchAhead : public testing::Test {
 protected:
  /// Streams of two cores of which LOAD rests so long in front of each transfer, if each stream whose weights come
  /// ahead takes so many cycles less.
  static std::vector<CoreCode> after(int64_t rest, int64_t gain, int64_t at = 64) {
    std::vector<CoreCode> codes = {two_layers(at), two_layers(at)};
    fetch_ahead(codes, 8, [&](const std::vector<CoreCode>& all) -> std::optional<Replayed> {
      const auto ahead = std::ranges::count_if(all, [](const CoreCode& code) { return fetched_before(code) != 4; });
      return Replayed{10'000 - gain * ahead, {all.size(), std::vector<int64_t>(4, rest)}};
    });
    for (const CoreCode& code : codes) {
      EXPECT_TRUE(std::ranges::is_permutation(code.tags, std::vector<uint32_t>{0, 1, 2, 3, 4, 5}));
      EXPECT_EQ(code.layers, code.tags);
    }
    return codes;
  }
};

TEST_F(FetchAhead, WeightsComeWhereLoadRests) {
  for (const CoreCode& code : after(100, 100)) EXPECT_EQ(fetched_before(code), 1u);
}

TEST_F(FetchAhead, ShortRestsHaveNoRoom) {
  for (const CoreCode& code : after(8, 100)) EXPECT_EQ(fetched_before(code), 4u);
}

TEST_F(FetchAhead, WhatCostsCyclesOrSavesFewIsLeft) {
  for (const int64_t gain : {-100, 10})
    for (const CoreCode& code : after(100, gain)) EXPECT_EQ(fetched_before(code), 4u);
}

TEST_F(FetchAhead, WeightsOvertakeNoProductThatReadsTheirPlace) {
  for (const CoreCode& code : after(100, 100, 0)) EXPECT_EQ(fetched_before(code), 4u);
}

TEST_F(FetchAhead, StreamsThatBlockEachOtherAreNotTaken) {
  std::vector<CoreCode> codes = {two_layers(64)};
  bool first = true;
  fetch_ahead(codes, 8, [&](const std::vector<CoreCode>&) -> std::optional<Replayed> {
    if (!std::exchange(first, false)) return std::nullopt;
    return Replayed{1000, {{100, 100, 100, 100}}};
  });
  EXPECT_EQ(fetched_before(codes[0]), 4u);
}

}  // namespace
}  // namespace tessera::npu
