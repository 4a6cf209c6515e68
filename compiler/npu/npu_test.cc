// SPDX-License-Identifier: Apache-2.0
// The generator from end to end: random operations and networks, compiled for shipped and odd machines, run on the
// functional simulator with races checked and memories poisoned, compared element by element with plain loops. A
// failure prints its seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "compiler/npu/tests/random_graph.h"
#include "compiler/npu/tests/reference.h"
#include "compiler/schedule/text/json.h"
#include "isa/config.h"

namespace tessera::isa {
/// Failures name the machine.
void PrintTo(const MachineConfig& config, std::ostream* out) { *out << config.name; }
}  // namespace tessera::isa

namespace tessera::npu {
namespace {

using test::Random;

std::vector<isa::MachineConfig> machines() {
  return {isa::find_config("npu64"),
          isa::find_config("npu256"),
          isa::find_config("npu1024"),
          test::odd_machine("batch2", 2, 16, 16, 512, 256, 512, 256, 32),
          test::odd_machine("8x32", 1, 8, 32, 300, 100, 200, 100, 20),
          test::odd_machine("4x32x8", 4, 32, 8, 256, 128, 256, 128, 64),
          test::odd_machine("tiny", 1, 16, 16, 40, 20, 24, 16, 4),
          test::odd_machine("tiny_batch3", 3, 8, 8, 24, 12, 12, 10, 3),
          test::odd_machine("one_entry", 1, 4, 4, 4, 3, 3, 4, 2)};
}

class OnMachine : public testing::TestWithParam<isa::MachineConfig> {
 protected:
  /// The first seed of this machine: each has cases of its own, so that all together have many.
  static uint64_t seed_here(uint64_t first) {
    const auto all = machines();
    const auto at = std::ranges::find(all, GetParam().name, &isa::MachineConfig::name) - all.begin();
    return first + 100 * static_cast<uint64_t>(at);
  }

  /// TESSERA_NPU_TESTS multiplies the number of random cases, TESSERA_NPU_SEED replaces the first seed.
  void repeat(int count, uint64_t first, const std::function<Graph(Random&)>& make) {
    const char* factor = std::getenv("TESSERA_NPU_TESTS");
    const char* start = std::getenv("TESSERA_NPU_SEED");
    if (factor != nullptr) count *= std::atoi(factor);
    first = start != nullptr ? std::strtoull(start, nullptr, 10) : seed_here(first);
    for (int i = 0; i < count; ++i) {
      const uint64_t seed = first + static_cast<uint64_t>(i);
      Random random(seed);
      const Graph graph = make(random);
      try {
        Program program;
        ASSERT_EQ(test::compare(graph, GetParam(), seed, {}, &program), "")
            << GetParam().name << ", TESSERA_NPU_SEED=" << seed;
        if (std::getenv("TESSERA_NPU_VERBOSE") != nullptr) {
          for (const LayerInfo& layer : program.layers) {
            std::printf("%lu %s %s: %ld macs, %ld padded, %ld tiles, %zu instructions, %s\n", seed, layer.name.c_str(),
                        layer.kind.c_str(), layer.macs, layer.padded_macs, layer.tiles, program.instructions.size(),
                        schedule::to_json(layer.schedule).c_str());
          }
        }
      } catch (const Error& error) {
        FAIL() << error.what() << " on " << GetParam().name << ", TESSERA_NPU_SEED=" << seed;
      }
    }
  }
};

TEST_P(OnMachine, RandomConvolutions) {
  const bool small = GetParam().inp_depth() < 64;
  repeat(small ? 15 : 25, 10000,
         [&](Random& random) { return test::random_convolution(random, small ? 70 : 257, small ? 120 : 2000); });
}

TEST_P(OnMachine, RandomPools) {
  const bool small = GetParam().inp_depth() < 64;
  repeat(20, 20000, [&](Random& random) { return test::random_pool(random, small ? 40 : 257, small ? 200 : 2000); });
}

TEST_P(OnMachine, RandomElementwise) {
  const bool small = GetParam().inp_depth() < 64;
  repeat(15, 30000,
         [&](Random& random) { return test::random_elementwise(random, small ? 40 : 257, small ? 300 : 3000); });
}

TEST_P(OnMachine, RandomStridedViews) {
  const bool small = GetParam().inp_depth() < 64;
  repeat(8, 50000, [&](Random& random) { return test::random_strided(random, small ? 20 : 70); });
}

TEST(StridedViews, AreChecked) {
  Graph graph;
  Tensor whole;
  whole.name = "whole";
  whole.h = 4, whole.w = 6, whole.c = 3;
  const TensorId from = graph.add(whole), to = graph.add(whole);
  Tensor view = whole;
  view.h = 2, view.w = 3, view.c = 3;
  view.view_of = to;
  view.strided = true;
  view.step_h = 36, view.step_w = 6;
  const TensorId part = graph.add(view);
  Tensor read = view;
  read.view_of = from;
  read.step_w = 0;  // the same pixel again: only to read
  Elementwise e;
  e.input = graph.add(read);
  e.output = part;
  graph.inputs = {from};
  graph.operations.push_back({"copy", "Copy", kNoMacs, e});
  EXPECT_EQ(compile(graph, isa::find_config("npu64")).layers[0].macs, 0);
  const auto broken = [&](auto change) {
    Graph wrong = graph;
    change(wrong.tensors[static_cast<size_t>(part)]);
    EXPECT_THROW(compile(wrong, isa::find_config("npu64")), Error);
  };
  broken([](Tensor& t) { t.view_start = 25; });  // 25 + 36 + 12 + 3 elements of 72
  broken([](Tensor& t) { t.step_w = 2; });       // pixels overlap
  broken([](Tensor& t) { t.step_h = -36; });
  broken([](Tensor& t) { t.view_of = kNoTensor; });
}

TEST_P(OnMachine, RandomProducts) {
  const bool small = GetParam().inp_depth() < 64;
  repeat(25, 60000, [&](Random& random) { return test::random_product(random, small ? 40 : 257); });
}

TEST(Rows, RandomRows) {
  isa::MachineConfig narrow = test::odd_machine("rows8x32", 1, 8, 32, 300, 100, 200, 100, 20),
                     square = isa::find_config("npu256"),
                     tight = test::odd_machine("rows_tight", 1, 16, 16, 48, 20, 24, 32, 16);
  narrow.table_count = tight.table_count = 8;
  narrow.row_lanes = 8;
  square.row_lanes = 4;
  tight.row_lanes = 1;
  for (const isa::MachineConfig& config : {narrow, square, tight}) {
    for (uint64_t seed = 12000; seed < 12030; ++seed) {
      Random random(seed);
      const Graph graph = test::random_rows(random, config.name == "rows_tight" ? 120 : 300);
      ASSERT_EQ(test::compare(graph, config, seed), "") << config.name << ", seed " << seed;
    }
  }
}

TEST_P(OnMachine, RandomTranspositions) {
  const bool small = GetParam().inp_depth() < 64;
  repeat(20, 70000, [&](Random& random) { return test::random_transposition(random, small ? 40 : 257); });
}

TEST_P(OnMachine, RandomAttention) {
  const bool small = GetParam().inp_depth() < 64;
  repeat(3, 80000, [&](Random& random) {
    return test::random_attention(random, GetParam().inp_depth() < 8 ? 6 : small ? 20 : 70);
  });
}

TEST_P(OnMachine, ProductsUnderEveryOption) {
  for (uint64_t seed = seed_here(90000), end = seed + 2; seed < end; ++seed) {
    Random random(seed);
    const Graph graph = seed % 2 == 0 ? test::random_attention(random, GetParam().inp_depth() < 8 ? 4 : 12)
                                      : test::random_product(random, 20);
    for (const Options& options : {Options{.collapse_pixels = false}, Options{.prefetch_weights = false},
                                   Options{.virtual_threads = false}, Options{.reuse_memory = false}}) {
      EXPECT_EQ(test::compare(graph, GetParam(), seed, options), "") << GetParam().name << ", seed " << seed;
    }
    // Its own schedules give the same program.
    Options given;
    const Program program = compile(graph, GetParam());
    for (const LayerInfo& layer : program.layers) given.schedules.push_back(layer.schedule);
    const Program again = compile(graph, GetParam(), given);
    EXPECT_EQ(again.instructions.size(), program.instructions.size());
    EXPECT_TRUE(again.instructions == program.instructions) << "seed " << seed;
  }
}

/// Every wait counts: between a factor's producer and its fetch, between the fetch and the product, between the product
/// and the next fetch. In graphs whose strided ranges do not interleave in DRAM: operands are intervals, and waits
/// between interleaved ones are more than enough.
TEST(Products, EveryDroppedWaitIsARace) {
  const isa::MachineConfig config = test::odd_machine("small", 1, 8, 8, 64, 24, 96, 96, 16);
  int dropped = 0, fetches = 0;
  // Waits go by the boxes around what transfers touch. Where two boxes overlap and their rows do not, a wait is spare;
  // these seeds have no such place.
  for (uint64_t seed = 8101; seed < 8105; ++seed) {
    Random random(seed);
    const Graph graph = test::random_attention(random, 14);
    Program program;
    ASSERT_EQ(test::compare(graph, config, seed, {}, &program), "");
    Program broken = program;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const auto* load = std::get_if<isa::Load>(&program.instructions[i]);
      if (std::holds_alternative<isa::Finish>(program.instructions[i])) continue;  // it waits for idle engines anyway
      for (size_t w = 0; w < 3; ++w) {
        if (!isa::header_of(program.instructions[i]).waits[w].enable) continue;
        std::visit([&](auto& x) { x.header.waits[w].enable = false; }, broken.instructions[i]);
        const std::string problem = test::compare(graph, config, seed, {}, broken);
        EXPECT_NE(problem.find("races"), std::string::npos)
            << "seed " << seed << ", instruction " << i << ", condition " << w << ": " << problem;
        broken.instructions[i] = program.instructions[i];
        ++dropped;
        fetches += load != nullptr && load->space == isa::Space::kWgt && load->base == kArenaBase && !load->fill;
      }
    }
  }
  EXPECT_GT(dropped, 60);
  EXPECT_GT(fetches, 5);
}

TEST(Products, AreChecked) {
  Graph graph;
  Tensor left, right, out;
  left.name = "left", right.name = "right", out.name = "out";
  left.h = right.h = out.h = 3;
  left.w = out.w = 5, left.c = right.c = 7, right.w = out.c = 4;
  Product op;
  op.input = graph.add(left);
  op.factor = graph.add(right);
  op.output = graph.add(out);
  op.stage.convert = true;
  op.stage.multiplier = {0.01f};
  graph.inputs = {op.input, op.factor};
  graph.outputs = {op.output};
  graph.operations.push_back({"product", "QLinearMatMul", 0, op});
  const Program program = compile(graph, isa::find_config("npu64"));
  EXPECT_EQ(program.layers[0].macs, 3 * 5 * 7 * 4);
  EXPECT_EQ(program.layers[0].stream_bytes[static_cast<size_t>(Stream::kWeights)], 3 * 7 * 4);
  EXPECT_EQ(program.layers[0].stream_bytes[static_cast<size_t>(Stream::kInput)], 3 * 7 * 5);
  const auto broken = [&](auto change) {
    Graph wrong = graph;
    change(wrong, std::get<Product>(wrong.operations[0].what));
    EXPECT_THROW(compile(wrong, isa::find_config("npu64")), Error);
  };
  broken([](Graph& g, Product& p) { g.tensors[static_cast<size_t>(p.factor)].h = 2; });
  broken([](Graph& g, Product& p) { g.tensors[static_cast<size_t>(p.factor)].c = 8; });
  broken([](Graph& g, Product& p) { g.tensors[static_cast<size_t>(p.output)].c = 5; });
  broken([](Graph&, Product& p) { p.transposed = false; });
  broken([](Graph&, Product& p) { p.factor_zero = 200; });           // of an int8 tensor
  broken([](Graph& g, Product& p) { p.factor = g.add(Tensor{}); });  // nobody has written it
  // One matrix for all: no more bytes than it has, and the batch becomes rows.
  graph.tensors[static_cast<size_t>(op.factor)].h = 1;
  EXPECT_EQ(compile(graph, isa::find_config("npu64")).layers[0].stream_bytes[static_cast<size_t>(Stream::kWeights)],
            7 * 4);
}

TEST(Products, FactorsOfFewBytesAreFetchedByteByByte) {
  const isa::MachineConfig config = isa::find_config("npu256");
  Tensor left, factor, out;
  left.w = out.w = 1;
  left.c = factor.w = 2, factor.c = out.c = 3;
  EXPECT_FALSE(pays_to_transpose(left, factor, out, config));
  left.c = factor.w = 64, factor.c = out.c = 64;
  EXPECT_TRUE(pays_to_transpose(left, factor, out, config));
}

TEST_P(OnMachine, RandomNetworks) {
  repeat(2, 40000, [&](Random& random) { return test::random_network(random); });
}

INSTANTIATE_TEST_SUITE_P(Machines, OnMachine, testing::ValuesIn(machines()), [](const auto& info) {
  std::string name = info.param.name;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
});

}  // namespace
}  // namespace tessera::npu
