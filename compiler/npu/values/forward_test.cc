// SPDX-License-Identifier: Apache-2.0
// What stays on the chip: random graphs whose every fetch that can be is kept there, on the functional simulator with
// races checked, against plain loops; and what small graphs still transfer.
#include "compiler/npu/values/forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "compiler/npu/graph/schedule_text.h"
#include "compiler/npu/tests/random_graph.h"
#include "compiler/npu/tests/reference.h"
#include "compiler/npu/values/stream_values.h"
#include "compiler/npu/values/walk.h"
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

int64_t copies_in(const Program& program) {
  return std::count_if(program.instructions.begin(), program.instructions.end(), [](const auto& instruction) {
    const auto* alu = std::get_if<isa::Alu>(&instruction);
    return alu != nullptr && copies(*alu);
  });
}

int64_t cycles_of(const Program& program) {
  int64_t cycles = 0;
  for (const LayerInfo& layer : program.layers) cycles += layer.estimated_cycles;
  return cycles;
}

/// What a program was made by, so that another one is cut alike.
std::vector<std::optional<schedule::LayerSchedule>> schedules_of(const Program& program) {
  std::vector<std::optional<schedule::LayerSchedule>> schedules(program.layers.size());
  for (size_t i = 0; i < schedules.size(); ++i) {
    const schedule::LayerSchedule& schedule = program.layers[i].schedule;
    const auto* chain = std::get_if<schedule::ChainSchedule>(&schedule);
    if (chain == nullptr || chain->links.front() == program.layers[i].name) schedules[i] = schedule;
  }
  return schedules;
}

TEST(Forward, StreamsThatLeaveAScratchpadStayAsTheyAre) {
  const isa::MachineConfig config = isa::find_config("npu256");
  isa::Alu past;
  past.src = isa::AluSpace::kInp;
  past.dst = isa::AluSpace::kOut;
  past.src_addr = static_cast<uint16_t>(config.inp_depth() - 1);
  past.extent[5] = 4;
  past.src_stride[5] = past.dst_stride[5] = 1;
  const auto only = [&] { return pointed({{past, emit::work_of(past, config), true}}, {}, config); };
  Pointed stream = only();
  EXPECT_FALSE(forward(stream, {}, config, {}).changed);
  EXPECT_TRUE(stream.stream[0].kept);
  past.src_addr = 0;
  stream = only();
  forward(stream, {}, config, {});
  EXPECT_FALSE(stream.stream[0].kept);  // nobody reads what it writes
}

TEST(Forward, RandomGraphs) {
  const char* factor = std::getenv("TESSERA_NPU_TESTS");
  const uint64_t count = 5 * (factor == nullptr ? 1 : std::strtoull(factor, nullptr, 10));
  int64_t gone = 0, copied = 0, copied_without = 0, not_worse = 0, graphs = 0;
  uint64_t next = 15000;
  for (const isa::MachineConfig& config :
       {isa::find_config("npu64"), isa::find_config("npu256"), isa::find_config("npu256t"),
        test::odd_machine("tight", 1, 16, 16, 48, 20, 24, 32, 16),
        test::odd_machine("8x32", 1, 8, 32, 300, 100, 200, 100, 20),
        test::odd_machine("batch2", 2, 16, 16, 512, 256, 512, 256, 32)}) {
    for (uint64_t seed = next; seed < next + count; ++seed) {
      Random random(seed);
      const Graph graph = seed % 3 == 0   ? test::random_network(random)
                          : seed % 3 == 1 ? test::random_attention(random, 12)
                                          : test::random_strided(random, 40);
      Options options = always();
      options.chain = seed % 2 == 0;
      options.reuse_memory = seed % 5 != 0;
      options.forward = Forward::kNever;
      const Program never = compile(graph, config, options);
      const auto [all_loads, all_stores] = transfers(never);
      options.schedules = schedules_of(never);
      options.forward = Forward::kAlways;
      Program program;
      ASSERT_EQ(test::compare(graph, config, seed, options, &program), "") << config.name << ", seed " << seed;
      const auto [loads, stores] = transfers(program);
      options.forward = Forward::kWithoutCopies;
      Program without;
      ASSERT_EQ(test::compare(graph, config, seed, options, &without), "") << config.name << ", seed " << seed;
      copied += copies_in(program);
      copied_without += copies_in(without);
      options.forward = Forward::kIfFaster;
      const Program fastest = compile(graph, config, options);
      EXPECT_LE(cycles_of(fastest), cycles_of(never)) << config.name << ", seed " << seed;
      not_worse += cycles_of(fastest) <= std::min(cycles_of(program), cycles_of(without));
      ++graphs;
      EXPECT_LE(loads, all_loads);
      EXPECT_LE(stores, all_stores);
      gone += all_loads + all_stores - loads - stores;
    }
    next += count;
  }
  EXPECT_GT(gone, 100);
  EXPECT_LT(copied_without, copied);
  EXPECT_GT(not_worse, graphs * 9 / 10);  // of the others so few instructions go that nobody asks
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

/// Attention's products and the projection of their heads, in whole blocks of channels.
Graph heads_of(int64_t heads, int64_t tokens, int64_t width) {
  Graph graph;
  const int64_t channels = heads * width;
  const auto tensor = [&](int64_t h, int64_t w, int64_t c) {
    Tensor t;
    t.h = h, t.w = w, t.c = c;
    return graph.add(t);
  };
  const auto in_heads = [&](TensorId whole) {
    Tensor view;
    view.h = heads, view.w = tokens, view.c = width;
    view.view_of = whole;
    view.strided = true;
    view.step_h = width, view.step_w = channels;
    return graph.add(view);
  };
  Stage stage;
  stage.convert = true;
  stage.multiplier = {0.002f};
  stage.low = -128;
  stage.high = 127;
  const TensorId shares = tensor(heads, tokens, tokens), values = tensor(heads, width, tokens),
                 context = tensor(1, tokens, channels), result = tensor(1, tokens, channels);
  Product product;
  product.input = shares;
  product.factor = values;
  product.output = in_heads(context);
  product.stage = stage;
  std::vector<int16_t> weights(static_cast<size_t>(channels * channels));
  for (size_t w = 0; w < weights.size(); ++w) weights[w] = static_cast<int16_t>(w * 37 % 255) - 127;
  graph.operations.push_back({"context", "context", 0, product});
  graph.operations.push_back(
      {"projection", "projection", 0, make_matmul(context, result, 3, channels, channels, weights, {}, stage)});
  graph.inputs = {shares, values};
  graph.outputs = {result};
  return graph;
}

/// A head after the other; rows of all heads.
std::string schedules_of(int64_t heads, int64_t width) {
  const std::string copies = std::to_string(heads), blocks = std::to_string(width / 16),
                    all = std::to_string(heads * width / 16);
  return "npu.schedules @npu0 {\n  layer \"context\"\n  schedule dense {\n    temporal oh " + copies +
         "\n    vthread ic 2 x2\n    tile oc=" + blocks +
         " ow=64 ic=2\n    input attach=1 copies=4\n    weights attach=1 copies=4\n    sums copies=" + copies +
         "\n    output copies=" + copies + "\n    params attach=0\n  }\n  layer \"projection\"\n  schedule dense {\n" +
         "    temporal oc " + copies + "\n    vthread ow 4 x2\n    tile oc=" + blocks + " ow=16 ic=" + all +
         "\n    input attach=0\n    weights attach=0\n    sums copies=4\n    output copies=4\n    params attach=0\n  "
         "}\n}\n";
}

/// Heads are results of their own; the vector unit writes each where rows of all heads are read, so that nothing is
/// stored, fetched or copied between the products and the projection.
TEST(Forward, HeadsStayOnTheChip) {
  for (const auto& [heads, width] : {std::pair<int64_t, int64_t>{3, 64}, {2, 48}}) {
    const Graph graph = heads_of(heads, 64, width);
    Options options = always();
    options.chain = false;
    options.schedules = schedules_from_text(schedules_of(heads, width), graph, "test");
    Program program;
    ASSERT_EQ(test::compare(graph, isa::find_config("npu256"), 1, options, &program), "");
    EXPECT_EQ(program.layers[0].dram_write_bytes, 0) << heads;
    EXPECT_EQ(program.layers[1].stream_bytes[static_cast<size_t>(Stream::kInput)], 0) << heads;
    for (const isa::Instruction& instruction : program.instructions) {
      const auto* alu = std::get_if<isa::Alu>(&instruction);
      EXPECT_FALSE(alu != nullptr && copies(*alu)) << heads;
    }
  }
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
  ASSERT_EQ(found->parts[5].size(), 2U);
  EXPECT_EQ(found->parts[5][0].stride, -93);
  EXPECT_EQ(found->parts[5][1].stride, 1);
  // INP alone has it nowhere else, and what is overwritten in DRAM is another value.
  EXPECT_FALSE(values.elsewhere(isa::Space::kInp, walk, {true, false}));
  store(16, 50);
  run(load);
  EXPECT_FALSE(values.elsewhere(isa::Space::kInp, walk, {true, true}));
}

TEST(EvenParts, Loops) {
  const auto parts = [](const std::vector<int64_t>& offsets) {
    std::vector<std::pair<int64_t, int64_t>> result;
    const auto found = even_parts(static_cast<int64_t>(offsets.size()),
                                  [&](int64_t i) { return std::optional(offsets[static_cast<size_t>(i)]); });
    if (found) {
      for (const LoopPart& part : *found) result.emplace_back(part.extent, part.stride);
    }
    return result;
  };
  using Pairs = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(parts({0, 1, 2, 3}), (Pairs{{4, 1}}));
  EXPECT_EQ(parts({0, 1, 8, 9}), (Pairs{{2, 8}, {2, 1}}));
  EXPECT_EQ(parts({0, 1, 8, 9, 4, 5, 12, 13}), (Pairs{{2, 4}, {2, 8}, {2, 1}}));
  EXPECT_EQ(parts({0, 1, 8, 9, 10}), Pairs{});  // a loop of two does not fit in five
  EXPECT_FALSE(even_parts(3, [](int64_t i) { return i < 2 ? std::optional(i) : std::nullopt; }));
}

/// A result goes to three rows of steps: its loop becomes three, for all operands of the instruction.
TEST(SetLoops, SplitsALoop) {
  isa::Alu alu;
  alu.extent = {1, 1, 1, 1, 1, 12};
  alu.src_stride = {0, 0, 0, 0, 0, 1};
  alu.dst_stride = {0, 0, 0, 0, 0, 1};
  NestParts parts;
  parts[5] = {{2, 40}, {3, 4}, {2, 1}};
  ASSERT_TRUE(set_loops(loops_of(alu, alu.dst_stride), parts));
  EXPECT_EQ(alu.extent, (std::array<uint16_t, 6>{1, 1, 1, 2, 3, 2}));
  EXPECT_EQ(alu.dst_stride, (Strides{0, 0, 0, 40, 4, 1}));
  EXPECT_EQ(alu.src_stride, (Strides{0, 0, 0, 6, 2, 1}));
  // No loop of one iteration is left to make room.
  alu.extent = {2, 2, 2, 2, 2, 12};
  EXPECT_FALSE(set_loops(loops_of(alu, alu.dst_stride), parts));
}

}  // namespace
}  // namespace tessera::npu
