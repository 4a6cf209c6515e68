// SPDX-License-Identifier: Apache-2.0
// Closing the tiles of a layer finds its best schedule. The oracle is plain enumeration of the whole space, each
// program measured by the timing model; where the space is too large for that, schedules of the closed tiles.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string_view>

#include "compiler/npu/graph/plan.h"
#include "compiler/npu/tests/bounded_layers.h"
#include "compiler/npu/workbench.h"
#include "isa/program/artifact.h"
#include "tessera/tuning/judges.h"

namespace tessera {
namespace {

namespace test = npu::test;
using schedule::InstructionStream;
using schedule::Schedule;
using test::Random;

/// A layer of so few pixels and channels that all its points can be looked at.
npu::Graph small_layer(Random& random) {
  npu::Graph graph;
  npu::Convolution op;
  npu::Tensor in, out;
  // One dimension is cut, and the window, or two channels' blocks.
  const int64_t kind = random.between(0, 3);
  op.groups = kind == 0 ? 16 : 1;
  in.c = kind == 2 ? 32 : 16;
  out.c = kind == 3 ? 32 : 16;
  in.h = out.h = kind < 2 ? random.between(3, 6) : 1;
  in.w = out.w = kind < 2 ? 1 : random.between(2, 4);
  op.kernel_h = kind < 2 ? random.one_of<int64_t>({1, 3}) : 1;
  op.kernel_w = 1;
  op.pads = {op.kernel_h / 2, 0, op.kernel_h / 2, 0};
  op.weights.assign(static_cast<size_t>(in.c / op.groups * out.c * op.kernel_h), 1);
  op.stage = test::random_stage(random, out, 100.0, random.chance(50));
  op.input = graph.add(in);
  op.output = graph.add(out);
  graph.inputs = {op.input};
  graph.outputs = {op.output};
  graph.operations.push_back({"layer", "QLinearConv", 0, op});
  return graph;
}

/// A judge that keeps the stream.
class Kept final : public schedule::CostModel {
 public:
  schedule::Cost cost(const schedule::Subject&, const Schedule&) override { return {}; }
  schedule::Cost cost(const schedule::Subject&, const schedule::ChainPlan&) override { return {}; }
  std::optional<schedule::Cost> cost(const InstructionStream& given) override {
    stream = given;
    return schedule::Cost{};
  }
  InstructionStream stream;
};

/// A single operation on a machine, and all programs of its space.
class Whole {
 public:
  Whole(const npu::Graph& graph, const isa::MachineConfig& config)
      : bench_(graph, config, options_), judge_(schedule::make_cost_model("sysc", bench_.machine())) {
    const auto tasks =
        npu::make_tasks(bench_.graph(), 0, npu::places_apart(bench_.graph(), options_), config, options_);
    for (const schedule::Nest& nest : tasks[0].alternatives) look(nest);
  }

  const npu::Workbench& bench() const { return bench_; }
  schedule::CostModel& judge() const { return *judge_; }
  int64_t best() const { return best_; }
  size_t points() const { return points_; }
  /// Programs by their digest, with their cycles.
  const std::map<npu::Digest, int64_t>& programs() const { return programs_; }

 private:
  void look(const schedule::Nest& nest) {
    const isa::MachineConfig& config = bench_.machine().config;
    const schedule::Space space(nest, config);
    Kept kept;
    std::set<std::string> seen;
    for (schedule::Index i = 0; i < space.size(); ++i) {
      const std::optional<Schedule> point = space.at(i);
      if (!point) continue;
      ++points_;
      bench_.together({{0, std::vector<Schedule>{*point}}}, kept);
      const InstructionStream& stream = kept.stream;
      const std::vector<uint8_t> bytes = program::instruction_bytes(stream.instructions);
      if (!seen.emplace(bytes.begin(), bytes.end()).second) continue;
      const int64_t cycles = judge_->cost(stream)->cycles;
      best_ = std::min(best_, cycles);
      // What differs in the places of slots alone takes the same time.
      const auto [known, fresh] = programs_.emplace(npu::digest_of(stream, config), cycles);
      EXPECT_EQ(known->second, cycles);
    }
  }

  const npu::Options options_;
  const npu::Workbench bench_;
  const std::unique_ptr<schedule::CostModel> judge_;
  size_t points_ = 0;
  int64_t best_ = std::numeric_limits<int64_t>::max();
  std::map<npu::Digest, int64_t> programs_;
};

/// Of a single operation.
schedule::Index points(const npu::Graph& graph) {
  return npu::Workbench(graph, isa::find_config("npu256"), npu::Options()).size(0);
}

TEST(Closing, FindsTheBestOfTheWholeSpace) {
  register_device_judges();
  int left = std::getenv("TESSERA_LONG") != nullptr ? 20 : 1;
  for (uint64_t seed = 1; left > 0; ++seed) {
    Random drawn(seed);
    if (points(small_layer(drawn)) > schedule::Index{6000000}) continue;
    --left;
    for (const isa::MachineConfig& config :
         {isa::find_config("npu256"), test::odd_machine("small", 1, 16, 16, 12, 40, 8, 8, 4)}) {
      SCOPED_TRACE(testing::Message() << config.name << ", seed " << seed);
      Random random(seed);
      // Tiles of the small machine take turns in the scratchpads.
      const Whole whole(small_layer(random), config);
      ASSERT_GT(whole.programs().size(), 4u);
      const int64_t known = 2 * whole.best();
      npu::Exhaustion* closing = whole.bench().exhaustion(0, whole.judge());
      ASSERT_NE(closing, nullptr);
      // In pieces: an interruption changes nothing.
      while (!closing->go_on(known, 1, 0.002)) continue;
      const npu::Exhaustion::Standing& standing = closing->standing();
      ASSERT_TRUE(standing.best);
      EXPECT_EQ(standing.cycles, whole.best());  // copies that follow from the threads are no better here
      EXPECT_FALSE(standing.broken);
      EXPECT_GE(standing.cut, whole.best());
      EXPECT_LE(standing.programs, static_cast<int64_t>(whole.programs().size()));
      EXPECT_EQ(whole.bench().together({{0, std::vector<Schedule>{*standing.best}}}, whole.judge()).cycles,
                standing.cycles);
      // With nothing left out it comes to the same programs.
      const int64_t all = std::numeric_limits<int64_t>::max() / 2;
      std::map<npu::Digest, int64_t> met;
      npu::Exhaustion plain = whole.bench().plain_exhaustion(0, [&](const InstructionStream& stream) {
        met.emplace(npu::digest_of(stream, config), 0);
        return all;
      });
      EXPECT_TRUE(plain.go_on(all, 1, 1e6));
      for (const auto& [digest, cycles] : whole.programs()) EXPECT_TRUE(met.contains(digest));
    }
  }
}

void repeat(int count, uint64_t first, const std::function<npu::Graph(Random&)>& make) {
  register_device_judges();
  ASSERT_EQ(
      test::broken_of(count, 20, first, [&](uint64_t seed) { return test::broken_closing("sysc", seed, 60, make); }),
      "");
}

TEST(Closing, OfDepthwiseLayers) { repeat(3, 1, test::random_depthwise); }
TEST(Closing, OfFirstLayers) { repeat(2, 7000, test::random_first_layer); }
TEST(Closing, OfConvolutions) {
  repeat(3, 1000, [](Random& random) { return test::random_convolution(random, 200, 400); });
}
TEST(Closing, OfProducts) {
  repeat(2, 2000, [](Random& random) { return test::random_product(random, 100); });
}
TEST(Closing, OfTheVectorUnit) {
  repeat(3, 3000, [](Random& random) {
    return random.chance(50) ? test::random_pool(random, 100, 400) : test::random_elementwise(random, 100, 400);
  });
}

}  // namespace
}  // namespace tessera
