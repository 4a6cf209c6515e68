// SPDX-License-Identifier: Apache-2.0
// What stays on the chip: random graphs whose every fetch that can be is kept there, on the functional simulator with
// races checked, against plain loops; and what small graphs still transfer.
#include "compiler/npu/forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "compiler/npu/stream_values.h"
#include "compiler/npu/tests/random_graph.h"
#include "compiler/npu/tests/reference.h"
#include "isa/config.h"

namespace tessera::npu {
namespace {

using test::Random;

Options always() {
  Options options;
  options.forward = Forward::kAlways;
  return options;
}

/// LOADs from the arena and STOREs to it.
std::pair<int64_t, int64_t> transfers(const Program& program) {
  int64_t loads = 0, stores = 0;
  for (const isa::Instruction& instruction : program.instructions) {
    if (const auto* load = std::get_if<isa::Load>(&instruction)) loads += !load->fill && load->base == kArenaBase;
    if (const auto* store = std::get_if<isa::Store>(&instruction)) stores += store->base == kArenaBase;
  }
  return {loads, stores};
}

TEST(Forward, RandomGraphs) {
  const char* factor = std::getenv("TESSERA_NPU_TESTS");
  const uint64_t count = 10 * (factor == nullptr ? 1 : std::strtoull(factor, nullptr, 10));
  int64_t gone = 0;
  for (const isa::MachineConfig& config :
       {isa::find_config("npu64"), isa::find_config("npu256"), isa::find_config("npu256t"),
        test::odd_machine("tight", 1, 16, 16, 48, 20, 24, 32, 16),
        test::odd_machine("8x32", 1, 8, 32, 300, 100, 200, 100, 20),
        test::odd_machine("batch2", 2, 16, 16, 512, 256, 512, 256, 32)}) {
    for (uint64_t seed = 15000; seed < 15000 + count; ++seed) {
      Random random(seed);
      const Graph graph = seed % 3 == 0   ? test::random_network(random)
                          : seed % 3 == 1 ? test::random_attention(random, 12)
                                          : test::random_strided(random, 40);
      Options options = always();
      options.chain = seed % 2 == 0;
      options.reuse_memory = seed % 5 != 0;
      Program program;
      ASSERT_EQ(test::compare(graph, config, seed, options, &program), "") << config.name << ", seed " << seed;
      options.forward = Forward::kNever;
      const auto [loads, stores] = transfers(program);
      const auto [all_loads, all_stores] = transfers(compile(graph, config, options));
      EXPECT_LE(loads, all_loads);
      EXPECT_LE(stores, all_stores);
      gone += all_loads + all_stores - loads - stores;
    }
  }
  EXPECT_GT(gone, 100);
}

/// Layers of one row: `channels` of them.
Graph rows_of(const std::vector<int64_t>& channels) {
  Graph graph;
  const auto tensor = [&](int64_t c) {
    Tensor t;
    t.c = c;
    return graph.add(t);
  };
  TensorId last = tensor(channels.front());
  graph.inputs = {last};
  for (size_t i = 1; i < channels.size(); ++i) {
    const int64_t k = channels[i - 1], n = channels[i];
    std::vector<int16_t> weights(static_cast<size_t>(k * n));
    for (size_t w = 0; w < weights.size(); ++w) weights[w] = static_cast<int16_t>(w * 37 % 255) - 127;
    Stage stage;
    stage.convert = true;
    stage.multiplier = {0.002f};
    stage.low = -128;
    stage.high = 127;
    Operation operation;
    operation.name = "layer" + std::to_string(i);
    const TensorId next = tensor(n);
    operation.what = make_matmul(last, next, 3, k, n, weights, {}, stage);
    graph.operations.push_back(std::move(operation));
    last = next;
  }
  graph.outputs = {last};
  return graph;
}

/// Only the input is fetched and only the result stored; the vector unit writes where GEMM reads, so nothing is copied.
TEST(Forward, RowsStayOnTheChip) {
  for (const std::vector<int64_t>& channels : {std::vector<int64_t>{64, 48, 80, 16}, {24, 40, 8, 72}}) {
    const Graph graph = rows_of(channels);
    Options options = always();
    options.chain = false;
    Program program;
    ASSERT_EQ(test::compare(graph, isa::find_config("npu256"), 1, options, &program), "");
    const auto [loads, stores] = transfers(program);
    EXPECT_EQ(loads, 1);
    EXPECT_EQ(stores, 1);
    const auto results = std::count_if(program.instructions.begin(), program.instructions.end(),
                                       [](const auto& i) { return std::holds_alternative<isa::Alu>(i); });
    EXPECT_EQ(results, 3);
  }
}

/// An output that is also read by the next layer is stored and not fetched again.
TEST(Forward, OutputsAreStored) {
  Graph graph = rows_of({64, 48, 80});
  graph.outputs.push_back(std::get<Convolution>(graph.operations[0].what).output);
  Options options = always();
  options.chain = false;
  Program program;
  ASSERT_EQ(test::compare(graph, isa::find_config("npu256"), 1, options, &program), "");
  EXPECT_EQ(transfers(program), std::pair(int64_t{1}, int64_t{2}));
}

/// Two rows of steps of one loop: an operand that lies in two places becomes two loops.
TEST(StreamValues, FindsPlaces) {
  const isa::MachineConfig config = isa::find_config("npu256");
  StreamValues values(config);
  const auto run = [&](const isa::Instruction& i) { values.run(i, emit::work_of(i, config)); };
  const auto store = [&](int64_t dram, int64_t entry) {
    isa::Store s;
    s.space = isa::Space::kOut;
    s.base = kArenaBase;
    s.dram_offset = static_cast<uint64_t>(dram);
    s.length = 32;
    s.sp_addr = static_cast<uint32_t>(entry * 16);
    run(s);
  };
  store(0, 100);
  store(32, 7);
  isa::Load load;
  load.base = kArenaBase;
  load.length = 64;
  run(load);
  const Walk walk{{1, 1, 1, 1, 1, 4}, {0, 0, 0, 0, 0, 1}, 0};
  const auto found = values.elsewhere(isa::Space::kInp, walk, {true, true});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->space, isa::Space::kOut);
  EXPECT_EQ(found->first, 100);
  ASSERT_EQ(found->parts[5].size(), 2u);
  EXPECT_EQ(found->parts[5][0].stride, -93);
  EXPECT_EQ(found->parts[5][1].stride, 1);
  // INP alone has it nowhere else, and what is overwritten in DRAM is another value.
  EXPECT_FALSE(values.elsewhere(isa::Space::kInp, walk, {true, false}));
  store(16, 50);
  run(load);
  EXPECT_FALSE(values.elsewhere(isa::Space::kInp, walk, {true, true}));
}

}  // namespace
}  // namespace tessera::npu
