// SPDX-License-Identifier: Apache-2.0
// No schedule takes fewer cycles than the bound of its own tile. The oracle is the replay of its instructions, which
// knows nothing of bounds: of the searcher's best schedules, of schedules drawn from the space, and of changes that
// make them faster, on layers of any shape.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "base/error.h"
#include "compiler/npu/planning/bound.h"
#include "compiler/npu/tests/bounded_layers.h"

namespace tessera::npu {
namespace {

using test::Random;

void repeat(int count, uint64_t first, const std::function<Graph(Random&)>& make) {
  ASSERT_EQ(
      test::broken_of(count, 10, first, [&](uint64_t seed) { return test::broken_bound("replay", seed, 24, make); }),
      "");
}

TEST(Bounds, OfDepthwiseLayers) { repeat(20, 1, test::random_depthwise); }
TEST(Bounds, OfFirstLayers) { repeat(15, 7000, test::random_first_layer); }
TEST(Bounds, OfConvolutions) {
  repeat(20, 1000, [](Random& random) { return test::random_convolution(random, 257, 2000); });
}
/// A window of three columns, three columns apart: each column of results is walked in pairs of vectors.
TEST(Bounds, OfPairsFarApart) {
  const auto make = [](Random& random) { return test::random_convolution(random, 257, 2000); };
  EXPECT_EQ(test::broken_bound("replay", 1171, 24, make), "");
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
  for (uint64_t seed = 3000; seed < 3015; ++seed) ASSERT_EQ(test::broken_bound("replay", seed, 24, make), "") << seed;
}
TEST(Bounds, OfLayersOfNetworks) {
  for (const uint64_t seed : {4000, 4001})
    ASSERT_EQ(test::broken_bound("replay", seed, 24, test::random_network), "") << seed;
}

void expect_bounded(const Graph& graph, const isa::MachineConfig& config, const Options& options, uint64_t seed) {
  const GraphBound bound = graph_bound(graph, config, options);
  GraphBound taken;
  for (const LayerInfo& layer : compile(graph, config, options).layers) {
    taken.cycles += layer.estimated_cycles;
    taken.bytes += layer.dram_read_bytes + layer.dram_write_bytes;
    taken.macs += layer.padded_macs;
  }
  EXPECT_LE(bound.cycles, taken.cycles) << config.name << ", seed " << seed;
  EXPECT_LE(bound.bytes, taken.bytes) << config.name << ", seed " << seed;
  EXPECT_LE(bound.macs, taken.macs) << config.name << ", seed " << seed;
}

/// Whole graphs, each on one of the machines, however they are compiled. The oracle is the compilation.
TEST(Bounds, OfGraphs) {
  const std::vector<isa::MachineConfig> machines = {isa::find_config("npu64"), isa::find_config("npu256"),
                                                    isa::find_config("npu1024"),
                                                    test::odd_machine("8x32", 1, 8, 32, 300, 100, 200, 100, 20),
                                                    test::odd_machine("32x8", 1, 32, 8, 300, 100, 200, 100, 20)};
  const uint64_t factor = std::getenv("TESSERA_LONG") != nullptr ? 10 : 1;
  for (uint64_t seed = 5000; seed < 5000 + 25 * factor; ++seed) {
    Random random(seed);
    const Graph graph = test::random_network(random);
    Options options;
    options.chain = random.chance(70);
    options.dram_latency_cycles = random.one_of<int64_t>({100, 5, 200});
    options.dram_bandwidth_bytes = random.one_of<int64_t>({0, 0, 2});
    if (random.chance(30)) options.judge = "closed-form";
    expect_bounded(graph, machines[seed % machines.size()], options, seed);
  }
}

/// Operations whose windows leave results of those before them out: strides that are longer than windows, and images
/// that end beside the last window.
Graph skipping_network(Random& random) {
  Graph graph;
  Tensor in;
  in.h = random.between(5, 40);
  in.w = random.between(5, 40);
  in.c = random.one_of<int64_t>({3, 8, 16, 40});
  TensorId at = graph.add(in);
  graph.inputs = {at};
  for (int64_t left = random.between(2, 5); left > 0; --left) {
    const Tensor from = graph.tensors[static_cast<size_t>(at)];
    Tensor to = from;
    const int64_t kernel = std::min<int64_t>({random.between(1, 3), from.h, from.w});
    const int64_t stride = random.one_of<int64_t>({1, 1, 2, 3, 5});
    const Padding pads{random.between(0, 1), 0, 0, random.between(0, 1)};
    to.h = (from.h + pads.top - kernel) / stride + 1;
    to.w = (from.w + pads.right - kernel) / stride + 1;
    const int64_t kind = random.between(0, 3);
    if (kind <= 1) {
      Convolution op;
      op.groups = kind == 0 ? 1 : from.c;
      to.c = kind == 0 ? random.one_of<int64_t>({8, 16, 40}) : from.c;
      op.input = at;
      op.kernel_h = op.kernel_w = kernel;
      op.stride_h = op.stride_w = stride;
      op.pads = pads;
      op.weights.assign(static_cast<size_t>(to.c * from.c / op.groups * kernel * kernel), 1);
      at = op.output = graph.add(to);
      graph.operations.push_back({"conv", "QLinearConv", 0, op});
    } else if (kind == 2) {
      Pool op;
      op.input = at;
      op.kernel_h = op.kernel_w = kernel;
      op.stride_h = op.stride_w = stride;
      op.pads = pads;
      op.pad_value = -128;
      at = op.output = graph.add(to);
      graph.operations.push_back({"pool", "MaxPool", 0, op});
    } else {
      Elementwise op;
      op.input = at;
      op.stage.table = test::random_table(random);
      at = op.output = graph.add(from);
      graph.operations.push_back({"table", "QLinearLeakyRelu", 0, op});
    }
  }
  graph.outputs = {at};
  return graph;
}

TEST(Bounds, OfGraphsWithResultsThatNobodyReads) {
  const std::vector<isa::MachineConfig> machines = {isa::find_config("npu64"), isa::find_config("npu256"),
                                                    test::odd_machine("tight", 1, 16, 16, 48, 20, 24, 32, 16),
                                                    test::odd_machine("batch2", 2, 16, 16, 512, 256, 512, 256, 32)};
  const uint64_t factor = std::getenv("TESSERA_LONG") != nullptr ? 10 : 1;
  for (uint64_t seed = 6000; seed < 6000 + 60 * factor; ++seed) {
    Random random(seed);
    const Graph graph = skipping_network(random);
    Options options;
    options.chain = random.chance(60);
    options.forward = random.one_of({Forward::kNever, Forward::kIfFaster, Forward::kAlways, Forward::kWithoutCopies});
    options.dram_bandwidth_bytes = random.one_of<int64_t>({0, 1});
    expect_bounded(graph, machines[seed % machines.size()], options, seed);
  }
}

}  // namespace
}  // namespace tessera::npu
