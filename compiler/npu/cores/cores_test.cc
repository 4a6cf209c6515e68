// SPDX-License-Identifier: Apache-2.0
// Graphs on chips of several cores: the plain loops of tests/reference are the oracle, and the race checker looks at
// every access of every core.
#include <cstdlib>

#include <gtest/gtest.h>

#include "compiler/npu/chip_bench.h"
#include "compiler/npu/cores/cores.h"
#include "compiler/npu/tests/random_graph.h"
#include "compiler/npu/tests/reference.h"

namespace tessera::npu {
namespace {

isa::MachineConfig chip(const char* core, int cores) {
  isa::MachineConfig config = isa::find_config(core);
  config.cores = cores;
  config.memory_axi_bytes = 4 * config.axi_bytes;
  return config;
}

uint64_t number(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// The options with what was chosen.
Options with_schedules_of(const Program& program, Options options = {}) {
  for (const LayerInfo& layer : program.layers) options.divided.push_back(layer.divided);
  return options;
}

/// Runs as many graphs of a kind as asked for, each fourth one also with what was chosen as given; at least a share of
/// a quarter must have become programs of several cores.
template <typename Make>
void repeat(uint64_t count, uint64_t first, Make&& make, int64_t room = 0) {
  count *= number("TESSERA_NPU_TESTS", 1);
  first += 100'000 * number("TESSERA_NPU_SEED", 0);
  uint64_t divided = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    test::Random random(seed);
    const isa::MachineConfig config =
        chip(random.one_of({"npu256t", "npu64", "npu256"}), static_cast<int>(random.between(2, 5)));
    const Graph graph = make(random);
    Options options;
    options.room = room;
    int64_t bytes = 0;
    for (const Tensor& tensor : graph.tensors) {
      if (tensor.cache < 0) continue;
      options.cache_offsets.push_back(bytes);
      bytes += (tensor.elements() + 63) / 64 * 64;
    }
    Program program;
    ASSERT_EQ(test::compare(graph, config, seed, options, &program), "")
        << "seed " << seed << ", " << config.cores << " x " << config.name;
    divided += program.others.empty() ? 0 : 1;
    if (program.others.empty() || seed % 4 != 0) continue;
    ASSERT_EQ(test::compare(graph, config, seed, with_schedules_of(program, options)), "")
        << "given, seed " << seed << ", " << config.cores << " x " << config.name;
  }
  EXPECT_GE(4 * divided, count);
}

TEST(Cores, RandomNetworks) {
  repeat(5, 1000, [](test::Random& random) { return test::random_network(random); });
}

TEST(Cores, RandomConvolutions) {
  repeat(10, 2000, [](test::Random& random) { return test::random_convolution(random, 80, 400); });
}

TEST(Cores, RandomPools) {
  repeat(6, 3000, [](test::Random& random) { return test::random_pool(random, 80, 400); });
}

TEST(Cores, RandomElementwise) {
  repeat(6, 4000, [](test::Random& random) { return test::random_elementwise(random, 80, 400); });
}

TEST(Cores, RandomAttention) {
  repeat(4, 5000, [](test::Random& random) { return test::random_attention(random, 40); });
}

TEST(Cores, WhatStaysFromRunToRun) {
  for (const int64_t room : {0, 1, 37})
    repeat(
        2, 9000 + static_cast<uint64_t>(room) * 10,
        [&](test::Random& random) { return test::random_attention(random, 20, room); }, room);
}

TEST(Cores, RandomProductsAndTranspositions) {
  repeat(4, 6000, [](test::Random& random) { return test::random_product(random, 60); });
  repeat(4, 7000, [](test::Random& random) { return test::random_transposition(random, 100); });
}

TEST(Cores, RandomStridedViews) {
  repeat(6, 8000, [](test::Random& random) { return test::random_strided(random, 40); });
}

/// The transposed second operand of a product, as attention's values: [heads, size, rows].
Graph transposed_values(int64_t heads, int64_t rows, int64_t size) {
  Graph graph;
  Tensor tensor;
  tensor.n = heads, tensor.w = rows, tensor.c = size;
  const TensorId values = graph.add(tensor);
  tensor.w = size, tensor.c = rows;
  const TensorId turned = graph.add(tensor);
  tensor.w = rows, tensor.c = rows;
  const TensorId scores = graph.add(tensor);
  tensor.c = size;
  const TensorId result = graph.add(tensor);
  graph.inputs = {values, scores};
  graph.outputs = {result};
  Transposition turn;
  turn.input = values;
  turn.output = turned;
  graph.operations.push_back({"turn", "Transpose", kNoMacs, turn});
  Product product;
  product.input = scores;
  product.factor = turned;
  product.transposed = true;
  product.stage.convert = true;
  product.stage.multiplier = {0.001f};
  product.output = result;
  graph.operations.push_back({"product", "MatMul", 0, product});
  return graph;
}

TEST(Cores, BlocksAreSharedSoThatTheLastCoreHasNoMore) {
  const Graph graph = transposed_values(3, 197, 64);
  for (const Division& division : divisions_of(graph, graph.operations[0], 4, 16)) {
    if (division.axis == kChannels) {
      EXPECT_EQ(division.ends, (std::vector<int64_t>{64, 112, 160, 197}));
    }
    if (division.axis == kColumns) {
      EXPECT_EQ(division.ends, (std::vector<int64_t>{16, 32, 48, 64}));
    }
  }
}

TEST(Cores, ColumnsOfTransposedFactorsBeginAtBeats) {
  const isa::MachineConfig config = chip("npu256t", 4);
  for (const int64_t rows : {37, 64, 197}) {
    const Graph graph = transposed_values(3, rows, 64);
    Program program;
    ASSERT_EQ(test::compare(graph, config, 1, {}, &program), "") << rows;
    EXPECT_FALSE(program.others.empty());
    EXPECT_EQ(program.placements[1].pixel_pitch % config.memory_bytes(), 0) << rows;
  }
}

/// Pairs of a depthwise convolution of 3 x 3 and a pointwise one, of so many channels each. Where the channels change
/// rows and columns are halved.
Graph separable(int64_t rows, int64_t columns, const std::vector<int64_t>& channels) {
  Graph graph;
  Tensor tensor;
  tensor.h = rows, tensor.w = columns, tensor.c = channels.front();
  TensorId last = graph.add(tensor);
  graph.inputs = {last};
  const auto convolve = [&](int64_t kernel, int64_t stride, int64_t groups) {
    Convolution op;
    op.input = last;
    op.kernel_h = op.kernel_w = kernel;
    op.stride_h = op.stride_w = stride;
    op.groups = groups;
    if (kernel == 3) op.pads = {1, 1, 1, 1};
    const int64_t each = graph.tensors[static_cast<size_t>(last)].c / groups;
    op.weights.assign(static_cast<size_t>(tensor.c * each * kernel * kernel), int16_t{3});
    op.stage.convert = true;
    op.stage.multiplier = {0.01f};
    last = op.output = graph.add(tensor);
    graph.operations.push_back({"conv" + std::to_string(graph.operations.size()), "QLinearConv", 0, op});
  };
  for (const int64_t next : channels) {
    const int64_t stride = next == tensor.c ? 1 : 2;
    tensor.h = (tensor.h + stride - 1) / stride, tensor.w = (tensor.w + stride - 1) / stride;
    convolve(3, stride, tensor.c);
    tensor.c = next;
    convolve(1, 1, 1);
  }
  graph.outputs = {last};
  return graph;
}

TEST(Cores, ShorterChainsAreCompared) {
  const isa::MachineConfig config = chip("npu256", 4);
  for (const Graph& graph : {separable(25, 5, {64, 64}), separable(12, 12, {64, 64})}) {
    const int64_t shorter = predicted_cycles(compile(graph, config, {.products_between = false}));
    EXPECT_LE(predicted_cycles(compile(graph, config, {})), shorter);
  }
}

/// One division for each of three prices of waiting is changed by neighbours together; those before that are more.
TEST(Cores, DivisionsOfSingleOperationsAreCompared) {
  const Graph graph = separable(24, 24, {16, 32, 32, 64, 64, 64, 128});
  EXPECT_GT(choose_shares(graph, chip("npu256", 4), {}, 1).size(), 3u);
}

TEST(Cores, WhatWasChosenCanBeGiven) {
  for (const int cores : {2, 4}) {
    const isa::MachineConfig config = chip("npu256", cores);
    const Graph graph = separable(24, 24, {16, 32, 32, 64});
    const Program chosen = compile(graph, config, {});
    const Options given = with_schedules_of(chosen);
    // The engines' turns may be better ones, since schedules that are given leave time to compare more of them.
    EXPECT_LE(predicted_cycles(compile(graph, config, given)), predicted_cycles(chosen)) << cores;
    EXPECT_EQ(test::compare(graph, config, 1, given), "") << cores;
  }
}

TEST(Cores, AnyDivisionThatIsGivenComputesTheSame) {
  const isa::MachineConfig config = chip("npu256", 4);
  const Graph graph = separable(12, 10, {32, 48});
  for (size_t i = 1; i < graph.operations.size(); ++i) {
    for (Division division : divisions_of(graph, graph.operations[i], 4, config.block_out)) {
      division.own = i % 2 == 0 ? std::optional<bool>(false) : std::nullopt;
      Options options;
      options.divided.resize(graph.operations.size());
      options.divided[i] = schedule::DividedSchedule{division, {}};
      Program program;
      ASSERT_EQ(test::compare(graph, config, 1, options, &program), "") << i;
      if (program.others.empty()) continue;
      const Division& taken = program.layers[i].divided->division;
      EXPECT_EQ(taken.axis, division.axis);
      EXPECT_EQ(taken.ends, division.ends);
    }
  }
}

TEST(Cores, DivisionsThatCannotBeAreRefused) {
  const isa::MachineConfig config = chip("npu256", 4);
  const Graph graph = separable(12, 10, {32, 48});
  const auto why = [&](const Division& division) { return obstacle(graph, graph.operations[1], division, 4, 16); };
  EXPECT_EQ(why({kRows, {1, 6, 6, 12}}), "");
  EXPECT_EQ(why({{}, {}, 3}), "");
  EXPECT_NE(why({{}, {}, 4}).find("there is no core 4 of 4"), std::string::npos);
  EXPECT_NE(why({kRows, {6, 12}}).find("2 entries for 4 cores"), std::string::npos);
  EXPECT_NE(why({kRows, {3, 2, 4, 12}}).find("must not fall"), std::string::npos);
  EXPECT_NE(why({kRows, {1, 2, 3, 4}}).find("the last of 'ends' must be 12, all rows"), std::string::npos);
  EXPECT_NE(why({kChannels, {8, 16, 32, 32}}).find("multiples of 16"), std::string::npos);
  Options options;
  options.divided.resize(graph.operations.size());
  options.divided.back() = schedule::DividedSchedule{{kRows, {2, 4, 6, 6}, 0, true}, {}};
  try {
    (void)compile(graph, config, options);
    ADD_FAILURE() << "what leaves the graph is no core's own";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("say \"own\": false"), std::string::npos);
  }
}

TEST(Cores, TheBenchCountsWhatIsCompiled) {
  const isa::MachineConfig config = chip("npu256", 4);
  const Graph graph = separable(24, 24, {16, 32, 32, 64});
  const Program program = compile(graph, config, {});
  const ChipBench bench(graph, config, {});
  EXPECT_LE(predicted_cycles(bench.program(bench.chosen())), predicted_cycles(program));
  for (size_t i = 0; i < graph.operations.size(); ++i) {
    for (const Division& way : bench.ways(i)) EXPECT_EQ(obstacle(graph, graph.operations[i], way, 4, 16), "");
  }
  std::vector<std::vector<Placed>> missing = bench.chosen();
  missing.back().pop_back();
  EXPECT_THROW((void)bench.program(missing), Error);
}

}  // namespace
}  // namespace tessera::npu
