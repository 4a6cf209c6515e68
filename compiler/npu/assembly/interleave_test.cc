// SPDX-License-Identifier: Apache-2.0
// Turns of the engines: what touches the same bytes keeps its order, transfers in front of one that waits for other
// cores stay there, and a walk over rows overtakes results that are not ready.
#include "compiler/npu/assembly/interleave.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "compiler/npu/graph/graph.h"

namespace tessera::npu {
namespace {

using emit::Touch;
using isa::Engine;

constexpr int16_t kInp = static_cast<int16_t>(isa::Space::kInp), kOut = static_cast<int16_t>(isa::Space::kOut),
                  kAcc = static_cast<int16_t>(isa::Space::kAcc);
constexpr int16_t kDram = static_cast<int16_t>(isa::kSpaces + kArenaBase);

emit::Work work(Engine engine, int64_t cycles, std::initializer_list<Touch> touches) {
  emit::Work made;
  made.engine = engine;
  made.idle = false;
  made.duration.engine = cycles;
  for (const Touch& touch : touches) made.touches.push_back(touch);
  return made;
}

emit::Works pointers(const std::vector<emit::Work>& works) {
  emit::Works result;
  for (const emit::Work& one : works) result.push_back(&one);
  return result;
}

TEST(Interleave, WalksOvertakeResultsThatAreNotReady) {
  const std::vector<emit::Work> works = {
      work(Engine::kLoad, 100, {{0, 64, kInp, true}}),
      work(Engine::kGemm, 5000, {{0, 64, kInp, false}, {0, 64, kAcc, true}}),
      work(Engine::kAlu, 100, {{0, 64, kAcc, false}, {0, 64, kOut, true}}),
      work(Engine::kAlu, 1000, {{64, 128, kInp, true}}),
      work(Engine::kGemm, 5000, {{64, 128, kInp, false}, {64, 128, kAcc, true}}),
  };
  const std::array<Choices, 2> choices = {{{1, 1, 1}, {2, 1, 1}}};
  const auto orders = interleaved(pointers(works), Awaits(works.size()), choices);
  const auto place = [&](size_t order, uint32_t i) {
    return std::ranges::find(orders[order], i) - orders[order].begin();
  };
  EXPECT_LT(place(0, 2), place(0, 3));
  EXPECT_LT(place(1, 3), place(1, 2));
}

/// Random instructions that touch a few bytes of everything, in an order that any dependence and any wait allows.
TEST(Interleave, DependencesAndWaitsStay) {
  std::mt19937 random(1);
  const auto number = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  const std::array<Choices, 4> choices = {{{4, 1, 1}, {16, 8, 1}, {16, 16, 16}, {48, 48, 48}}};
  for (int round = 0; round < 20; ++round) {
    std::vector<emit::Work> works;
    Awaits awaits;
    for (uint32_t i = 0; i < 400; ++i) {
      const auto engine = static_cast<Engine>(number(0, 3));
      const auto at = [&] { return int64_t{16} * number(0, 40); };
      const int64_t from = at(), to = at();
      const int16_t out = engine == Engine::kStore ? kDram : engine == Engine::kGemm ? kAcc : kInp;
      const int16_t in = engine == Engine::kLoad ? kDram : engine == Engine::kGemm ? kInp : kAcc;
      works.push_back(work(engine, number(1, 500), {{from, from + 32, in, false}, {to, to + 32, out, true}}));
      const bool waits = (engine == Engine::kLoad || engine == Engine::kStore) && number(0, 9) == 0;
      awaits.push_back(waits ? std::optional(i - std::min<uint32_t>(i, static_cast<uint32_t>(number(0, 9))))
                             : std::nullopt);
    }
    const auto transfer = [&](size_t i) {
      return works[i].engine == Engine::kLoad || works[i].engine == Engine::kStore;
    };
    for (const std::vector<uint32_t>& order : interleaved(pointers(works), awaits, choices)) {
      std::vector<size_t> place(works.size(), works.size());
      for (size_t k = 0; k < order.size(); ++k) place[order[k]] = k;
      ASSERT_EQ(std::ranges::count(place, works.size()), 0);
      for (size_t b = 0; b < works.size(); ++b) {
        for (size_t a = 0; a < b; ++a) {
          bool same = awaits[b] && transfer(a);
          for (const Touch& x : works[a].touches)
            for (const Touch& y : works[b].touches)
              same = same || (x.memory == y.memory && x.begin < y.end && y.begin < x.end && (x.write || y.write));
          if (same) {
            ASSERT_LT(place[a], place[b]) << "round " << round << ": " << a << " and " << b;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::npu
