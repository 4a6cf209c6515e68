// SPDX-License-Identifier: Apache-2.0
// The space of schedules: every number is a point, legal points are schedules that the rules accept, each of them has
// one number, samples are uniform, and mutation and crossover stay legal. The oracle of legality is obstacle().
#include "compiler/schedule/space.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "compiler/schedule/searcher.h"
#include "compiler/schedule/text/json.h"

namespace tessera::schedule {
namespace {

/// A convolution, as small as asked for.
Nest convolution(int64_t size, int64_t oc, int64_t ic, int64_t kernel) {
  Nest nest;
  nest.computation = Computation::kDense;
  nest.extent[Dim::kOh] = nest.extent[Dim::kOw] = size;
  nest.extent[Dim::kKh] = nest.extent[Dim::kKw] = kernel;
  nest.extent[Dim::kOc] = oc;
  nest.extent[Dim::kIc] = ic;
  nest.pad_top = nest.pad_left = kernel / 2;
  nest.in_channels = {16 * ic, 16 * ic, 16};
  nest.out_channels = {16 * oc, 16 * oc, 16};
  nest.convert = nest.per_channel = true;
  for (Access* a : {&nest.input, &nest.output}) {
    a->present = true;
    a->pitch_w = a == &nest.input ? 16 * ic : 16 * oc;
    a->pitch_h = size * a->pitch_w;
    a->pitch_n = size * a->pitch_h;
    a->segment_channels = a->pitch_w;
    a->row_end = a->col_end = size;
  }
  return nest;
}

isa::MachineConfig npu256() { return isa::find_config("npu256"); }

TEST(Dice, NumbersDependOnTheSeedAlone) {
  Dice dice(1);
  EXPECT_EQ(dice.next(), 0x910a2dec89025cc1u);  // splitmix64's published first number for this seed
  Dice again(1);
  EXPECT_EQ(again.next(), 0x910a2dec89025cc1u);
  std::map<uint64_t, int> seen;
  for (int i = 0; i < 3000; ++i) ++seen[dice.below(3)];
  EXPECT_EQ(seen.size(), 3u);
  for (const auto& [value, times] : seen) EXPECT_NEAR(times, 1000, 150) << value;
}

TEST(Space, EveryScheduleOfASmallSpaceHasOneNumber) {
  Nest nest = convolution(3, 1, 1, 1);
  nest.extent[Dim::kOw] = 1;
  const isa::MachineConfig config = npu256();
  const Space space(nest, config);
  ASSERT_LT(space.size(), Index{4000000});
  std::map<std::string, Index> numbers;
  for (Index i = 0; i < space.size(); ++i) {
    const auto schedule = space.at(i);
    if (!schedule) continue;
    ASSERT_EQ(obstacle(nest, *schedule, config), "");
    ASSERT_EQ(canonical(nest, config, *schedule), *schedule);
    const auto [known, fresh] = numbers.emplace(to_json(*schedule), i);
    ASSERT_TRUE(fresh) << to_json(*schedule);
  }
  EXPECT_GT(numbers.size(), 100u);
  EXPECT_TRUE(numbers.contains(to_json(generate(nest, {config}))));
  // Uniform: each legal schedule as often as another.
  Dice dice(7);
  std::map<int64_t, int> halves;
  const int samples = 2000;
  size_t position = 0;
  std::map<std::string, size_t> rank;
  for (const auto& [text, number] : numbers) rank[text] = position++;
  for (int i = 0; i < samples; ++i) {
    const auto schedule = space.sample(dice);
    ASSERT_TRUE(schedule);
    ++halves[static_cast<int64_t>(rank.at(to_json(*schedule)) * 10 / numbers.size())];
  }
  const int expected = samples / 10;
  for (const auto& [tenth, times] : halves) EXPECT_NEAR(times, expected, 60) << tenth;
}

TEST(Space, MutationAndCrossoverStayLegal) {
  for (const char* name : {"npu64", "npu256", "npu1024"}) {
    const isa::MachineConfig config = isa::find_config(name);
    for (const Nest& nest : {convolution(28, 8, 4, 3), convolution(7, 4, 32, 1), convolution(56, 2, 2, 5)}) {
      const Space space(nest, config);
      Dice dice(3);
      Schedule at = generate(nest, {config});
      std::set<std::string> met;
      for (int i = 0; i < 300; ++i) {
        const auto other = space.sample(dice);
        ASSERT_TRUE(other);
        ASSERT_EQ(obstacle(nest, *other, config), "");
        const Schedule child = space.cross(at, *other, dice);
        ASSERT_EQ(obstacle(nest, child, config), "") << to_json(child);
        at = space.mutate(i % 3 == 0 ? child : at, dice);
        ASSERT_EQ(obstacle(nest, at, config), "") << to_json(at);
        met.insert(to_json(at));
      }
      EXPECT_GT(met.size(), 250u);
    }
  }
}

TEST(ChainSpace, NumbersAreTiles) {
  const Nest head = convolution(14, 6, 2, 1), tail = convolution(14, 2, 6, 1);
  const ChainSpace space({&head, &tail});
  std::set<std::string> seen;
  for (Index i = 0; i < space.size(); ++i) {
    const ChainTile tile = space.at(i);
    EXPECT_GE(tile.oh, 1);
    EXPECT_LE(tile.oh, 14);
    EXPECT_LE(tile.blocks, 6);
    seen.insert(std::to_string(tile.oh) + " " + std::to_string(tile.ow) + " " + std::to_string(tile.blocks) + " " +
                std::to_string(tile.strips) + " " + std::to_string(tile.copies) + (tile.keeps_rows ? " keeps" : ""));
    EXPECT_FALSE(tile.whole_input);
  }
  EXPECT_EQ(Index{seen.size()}, space.size());
  // Windows of the last link share no rows; where they do each tile stands twice.
  Nest wide = tail;
  wide.extent[Dim::kKh] = 3;
  EXPECT_EQ(ChainSpace({&head, &wide}).size(), 2 * space.size());
  wide.stride_h = 3;
  EXPECT_EQ(ChainSpace({&head, &wide}).size(), space.size());
}

}  // namespace
}  // namespace tessera::schedule
