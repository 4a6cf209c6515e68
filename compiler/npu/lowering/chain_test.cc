// SPDX-License-Identifier: Apache-2.0
// Chains from end to end: random sequences of products, depthwise products, pools and maps, given as one chain with a
// random tile, compiled for several machines and compared with plain loops on the functional simulator (races checked,
// memories poisoned); what a chain must not be; and that the generator finds chains by itself where they save traffic.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "compiler/npu/lowering/chain.h"
#include "compiler/npu/tests/random_graph.h"
#include "compiler/npu/tests/reference.h"
#include "compiler/schedule/text/json.h"
#include "isa/config.h"

namespace tessera::npu {
namespace {

using test::Random;

enum class Kind { kDense, kDepthwise, kPool, kMap, kRows, kProduct };

struct Window {
  int64_t kh = 1, kw = 1, sh = 1, sw = 1, dh = 1, dw = 1;
  Padding pads;
};

Window random_window(Random& random, Kind kind, int64_t h, int64_t w) {
  Window x;
  if (kind == Kind::kMap || kind == Kind::kRows || kind == Kind::kProduct) return x;
  do {
    x.kh = random.one_of<int64_t>({1, 2, 3, 3, 5});
    x.kw = random.one_of<int64_t>({1, 2, 3, 3, 5});
    x.sh = random.one_of<int64_t>({1, 1, 2, 3});
    x.sw = random.one_of<int64_t>({1, 1, 2, 3});
    x.dh = random.one_of<int64_t>({1, 1, 1, 2});
    x.dw = random.one_of<int64_t>({1, 1, 1, 2});
    x.pads = {random.between(0, x.kh - 1), random.between(0, x.kw - 1), random.between(0, x.kh - 1),
              random.between(0, x.kw - 1)};
  } while (h + x.pads.top + x.pads.bottom < x.dh * (x.kh - 1) + 1 ||
           w + x.pads.left + x.pads.right < x.dw * (x.kw - 1) + 1);
  return x;
}

template <typename Op>
void set_window(Op& op, const Window& x) {
  op.kernel_h = x.kh, op.kernel_w = x.kw, op.stride_h = x.sh, op.stride_w = x.sw, op.dilation_h = x.dh,
  op.dilation_w = x.dw, op.pads = x.pads;
}

/// Appends an operation that reads tensor `input`; returns its output.
TensorId append(Random& random, Graph& graph, TensorId input, Kind kind, const Window& x, int64_t channels, bool last) {
  const Tensor in = graph.tensors[static_cast<size_t>(input)];
  Tensor out;
  out.name = "t" + std::to_string(graph.tensors.size());
  out.n = in.n;
  out.h = (in.h + x.pads.top + x.pads.bottom - x.dh * (x.kh - 1) - 1) / x.sh + 1;
  out.w = (in.w + x.pads.left + x.pads.right - x.dw * (x.kw - 1) - 1) / x.sw + 1;
  out.c = kind == Kind::kDense || kind == Kind::kProduct ? channels : in.c;
  out.is_unsigned = random.chance(50);
  const auto byte = [&](bool is_unsigned) {
    return static_cast<int32_t>(is_unsigned ? random.between(0, 255) : random.between(-128, 127));
  };
  Operation operation;
  operation.name = "op" + std::to_string(graph.operations.size());
  operation.kind = "test";
  const double taps = static_cast<double>(x.kh * x.kw);
  if (kind == Kind::kDense || kind == Kind::kDepthwise) {
    Convolution op;
    set_window(op, x);
    op.groups = kind == Kind::kDepthwise ? in.c : 1;
    op.input_zero = byte(in.is_unsigned);
    const int64_t each = kind == Kind::kDepthwise ? 1 : in.c;
    op.weights.resize(static_cast<size_t>(out.c * each * x.kh * x.kw));
    for (int16_t& w : op.weights) w = static_cast<int16_t>(random.between(-128, 127));
    if (random.chance(20)) op.weight_zero = {static_cast<int32_t>(random.between(-128, 127))};
    op.stage =
        test::random_stage(random, out, 74.0 * 74.0 * std::sqrt(static_cast<double>(each) * taps), random.chance(70));
    operation.what = op;
  } else if (kind == Kind::kPool) {
    Pool op;
    set_window(op, x);
    op.kind = random.chance(60) ? Pool::Kind::kMax : Pool::Kind::kSum;
    op.pad_value = byte(in.is_unsigned);
    op.stage = test::random_stage(random, out, op.kind == Pool::Kind::kSum ? 100.0 * taps : 100.0, random.chance(40));
    operation.what = op;
  } else if (kind == Kind::kProduct) {
    Product op;
    op.transposed = random.chance(60);
    Tensor factor = in;
    factor.name = "factor" + std::to_string(graph.tensors.size());
    factor.n = random.chance(20) ? 1 : in.n;
    factor.h = random.chance(20) ? 1 : in.h;
    factor.w = op.transposed ? channels : in.c;
    factor.c = op.transposed ? in.c : channels;
    op.input_zero = byte(in.is_unsigned);
    op.factor_zero = byte(factor.is_unsigned);
    op.factor = graph.add(factor);
    graph.inputs.push_back(op.factor);
    op.stage = test::random_stage(random, out, 74.0 * 74.0 * std::sqrt(static_cast<double>(in.c)), false);
    operation.what = op;
  } else if (kind == Kind::kRows) {
    operation.what = test::random_row_form(random, in, out);
  } else {
    Elementwise op;
    op.stage = test::random_stage(random, out, 100.0, random.chance(50));
    operation.what = op;
  }
  const TensorId id = graph.add(out);
  std::visit([&](auto& op) { op.input = input, op.output = id; }, operation.what);
  if (last && kind != Kind::kRows && random.chance(50)) {
    std::visit([&](auto& op) { test::add_second(random, graph, op.stage, out); }, operation.what);
  }
  graph.operations.push_back(std::move(operation));
  return id;
}

Graph random_input(Random& random) {
  Graph graph;
  Tensor in;
  in.name = "in";
  in.n = random.one_of<int64_t>({1, 1, 2, 3});
  in.h = random.between(1, 17);
  in.w = random.between(1, 19);
  in.c = random.one_of<int64_t>({1, 3, 8, 16, 17, 40, 64});
  in.is_unsigned = random.chance(50);
  graph.inputs = {graph.add(in)};
  return graph;
}

/// Operations of these kinds behind the graph's input. `skips`: windows may lie further apart than they are wide.
void append_all(Random& random, Graph& graph, const std::vector<Kind>& kinds, bool skips) {
  TensorId at = graph.inputs[0];
  for (size_t i = 0; i < kinds.size(); ++i) {
    const Tensor& t = graph.tensors[static_cast<size_t>(at)];
    Window x = random_window(random, kinds[i], t.h, t.w);
    if (!skips) x.sh = std::min(x.sh, x.kh), x.sw = std::min(x.sw, x.kw);
    at = append(random, graph, at, kinds[i], x, random.one_of<int64_t>({1, 7, 16, 33, 48, 80}), i + 1 == kinds.size());
  }
  graph.outputs = {at};
}

/// A product perhaps, channel-wise operations, a product perhaps; at least two.
Graph random_chain(Random& random) {
  Graph graph = random_input(random);
  std::vector<Kind> kinds;
  if (random.chance(60)) kinds.push_back(Kind::kDense);
  for (int64_t middle = random.between(kinds.empty() ? 1 : 0, 2); middle > 0; --middle) {
    kinds.push_back(random.one_of({Kind::kDepthwise, Kind::kDepthwise, Kind::kPool, Kind::kMap}));
  }
  if (kinds.size() < 2 || (kinds.size() < kMostLinks && random.chance(60))) kinds.push_back(Kind::kDense);
  append_all(random, graph, kinds, true);
  return graph;
}

/// All operations of the graph as one chain, without a tile.
schedule::ChainSchedule chain_of(const Graph& graph) {
  schedule::ChainSchedule chain;
  for (const Operation& operation : graph.operations) chain.links.push_back(operation.name);
  return chain;
}

/// Blocks of all channels that the first operation makes.
int64_t blocks_between(const Graph& graph, const isa::MachineConfig& config) {
  const TensorId between = std::visit([](const auto& op) { return op.input; }, graph.operations[1].what);
  return (graph.tensors[static_cast<size_t>(between)].c + config.block_out - 1) / config.block_out;
}

isa::MachineConfig square(int batch, int block, int64_t inp, int64_t wgt, int64_t acc, int64_t out, int64_t params) {
  return test::odd_machine("square" + std::to_string(batch) + "x" + std::to_string(block), batch, block, block, inp,
                           wgt, acc, out, params);
}

TEST(Chain, RandomOnesEqualPlainLoops) {
  const std::vector<isa::MachineConfig> machines = {isa::find_config("npu64"), isa::find_config("npu256"),
                                                    isa::find_config("npu1024"), square(2, 16, 600, 300, 600, 400, 40),
                                                    square(1, 4, 400, 400, 300, 300, 60)};
  const char* factor = std::getenv("TESSERA_NPU_TESTS");
  const int count = 120 * (factor != nullptr ? std::atoi(factor) : 1);
  int chains = 0, whole = 0;
  for (int i = 0; i < count; ++i) {
    const uint64_t seed = 77000 + static_cast<uint64_t>(i);
    Random random(seed);
    const Graph graph = random_chain(random);
    const isa::MachineConfig& config =
        machines[static_cast<size_t>(random.between(0, static_cast<int64_t>(machines.size()) - 1))];
    const Tensor& out = graph.tensors[static_cast<size_t>(graph.outputs[0])];
    schedule::ChainSchedule given = chain_of(graph);
    given.tile.oh = random.between(1, out.h);
    given.tile.ow = random.between(1, out.w);
    given.tile.blocks = random.between(1, 3);
    const auto* first = std::get_if<Convolution>(&graph.operations[0].what);
    given.tile.whole_input = i % 4 != 1 && (first == nullptr || first->groups > 1);
    const std::string json = schedule::to_json(given);
    Options options;
    options.schedules = {given};
    try {
      ASSERT_EQ(test::compare(graph, config, seed, options), "")
          << "seed " << seed << " on " << config.name << ": " << json;
      ++chains;
      whole += given.tile.whole_input ? 1 : 0;
    } catch (const Error& error) {
      // A tile that is too large, or a link that skips positions: refused with a reason, and the generator's choice
      // runs.
      ASSERT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
      ASSERT_NE(std::string(error.what()).find("the given chain is illegal: "), std::string::npos) << error.what();
      Program program;
      ASSERT_EQ(test::compare(graph, config, seed, {}, &program), "")
          << "seed " << seed << " on " << config.name << [&] {
               std::string text;
               for (const LayerInfo& layer : program.layers) text += "\n  " + schedule::to_json(layer.schedule);
               return text;
             }();
    }
  }
  EXPECT_GT(chains, count / 4);
  EXPECT_GT(whole, count / 40);
}

/// A product between others, beside windows, pools and maps.
Graph with_product_between(Random& random) {
  Graph graph = random_input(random);
  const auto any = [&] {
    return random.one_of({Kind::kDense, Kind::kDense, Kind::kDepthwise, Kind::kPool, Kind::kMap});
  };
  std::vector<Kind> kinds = {any(), Kind::kDense, any()};
  if (random.chance(40)) kinds.insert(kinds.begin() + random.between(0, 3), any());
  append_all(random, graph, kinds, false);
  return graph;
}

TEST(Chain, ProductsBetweenOthersTakeAllChannels) {
  const std::vector<isa::MachineConfig> machines = {isa::find_config("npu64"), isa::find_config("npu256"),
                                                    isa::find_config("npu1024"), square(2, 16, 600, 300, 600, 400, 40),
                                                    square(1, 4, 600, 600, 400, 400, 80)};
  const char* factor = std::getenv("TESSERA_NPU_TESTS");
  const int count = 80 * (factor != nullptr ? std::atoi(factor) : 1);
  int chains = 0, kept = 0, cut = 0;
  for (int i = 0; i < count; ++i) {
    const uint64_t seed = 81000 + static_cast<uint64_t>(i);
    Random random(seed);
    const Graph graph = with_product_between(random);
    const isa::MachineConfig& config = machines[static_cast<size_t>(random.between(0, 4))];
    const Tensor& out = graph.tensors[static_cast<size_t>(graph.outputs[0])];
    schedule::ChainSchedule given = chain_of(graph);
    given.tile = {random.between(1, out.h), random.between(1, out.w),
                  random.chance(10) ? 1 : blocks_between(graph, config)};
    given.tile.keeps_rows = random.chance(40);
    Options options;
    options.schedules = {given};
    try {
      ASSERT_EQ(test::compare(graph, config, seed, options), "")
          << "seed " << seed << " on " << config.name << ": " << schedule::to_json(given);
      ++chains;
      kept += given.tile.keeps_rows ? 1 : 0;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
      cut += std::string(error.what()).find("needs all channels") != std::string::npos ? 1 : 0;
      ASSERT_EQ(test::compare(graph, config, seed), "") << "seed " << seed << " on " << config.name;
    }
  }
  EXPECT_GT(chains, count / 3);
  EXPECT_GT(kept, count / 20);
  EXPECT_GT(cut, 0);
}

TEST(Chain, KeptRowsAreComputedOnce) {
  const std::vector<isa::MachineConfig> machines = {isa::find_config("npu64"), isa::find_config("npu256"),
                                                    isa::find_config("npu1024"), square(2, 16, 600, 300, 600, 400, 40),
                                                    square(1, 4, 400, 400, 300, 300, 60)};
  const char* factor = std::getenv("TESSERA_NPU_TESTS");
  const int count = 300 * (factor != nullptr ? std::atoi(factor) : 1);
  int kept = 0, fewer = 0;
  for (int i = 0; i < count; ++i) {
    const uint64_t seed = 79000 + static_cast<uint64_t>(i);
    Random random(seed);
    const Graph graph = random_chain(random);
    const isa::MachineConfig& config =
        machines[static_cast<size_t>(random.between(0, static_cast<int64_t>(machines.size()) - 1))];
    const Tensor& out = graph.tensors[static_cast<size_t>(graph.outputs[0])];
    schedule::ChainSchedule given = chain_of(graph);
    given.tile = {random.between(1, std::max<int64_t>(1, out.h / 2)), random.between(1, out.w), random.between(1, 3)};
    given.tile.keeps_rows = true;
    const auto* first = std::get_if<Convolution>(&graph.operations[0].what);
    given.tile.whole_input = random.chance(20) && (first == nullptr || first->groups > 1);
    const auto work = [&](bool keeps) {
      given.tile.keeps_rows = keeps;
      Options options;
      options.schedules = {given};
      int64_t sum = 0;
      for (const LayerInfo& layer : compile(graph, config, options).layers) sum += layer.padded_macs;
      return sum;
    };
    Options options;
    options.schedules = {given};
    try {
      ASSERT_EQ(test::compare(graph, config, seed, options), "")
          << "seed " << seed << " on " << config.name << ": " << schedule::to_json(given);
      ++kept;
      const int64_t once = work(true), again = work(false);
      EXPECT_LE(once, again) << "seed " << seed;
      fewer += once < again ? 1 : 0;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();  // no rows are shared, or it does not fit
    }
  }
  EXPECT_GT(kept, count / 12);
  EXPECT_GT(fewer, count / 24);
}

TEST(Chain, WeightsHaveAnyNumberOfCopies) {
  // Results are the same; a number that is taken changes the program, one that would not is refused.
  const std::vector<isa::MachineConfig> machines = {isa::find_config("npu64"), isa::find_config("npu256"),
                                                    square(1, 4, 400, 400, 300, 300, 60)};
  const char* factor = std::getenv("TESSERA_NPU_TESTS");
  const int count = 100 * (factor != nullptr ? std::atoi(factor) : 1);
  int taken = 0, refused = 0;
  for (int i = 0; i < count; ++i) {
    const uint64_t seed = 83000 + static_cast<uint64_t>(i);
    Random random(seed);
    const Graph graph = random_chain(random);
    const isa::MachineConfig& config = machines[static_cast<size_t>(random.between(0, 2))];
    const Tensor& out = graph.tensors[static_cast<size_t>(graph.outputs[0])];
    schedule::ChainSchedule given = chain_of(graph);
    given.tile = {random.between(1, out.h), random.between(1, out.w), 1};
    const auto made = [&](int64_t copies, Program& program) {
      given.tile.copies = copies;
      Options options;
      options.schedules = {given};
      return test::compare(graph, config, seed, options, &program);
    };
    Program usual;
    try {
      ASSERT_EQ(made(schedule::kWeightCopies, usual), "") << "seed " << seed;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();  // no chain, or it does not fit
      continue;
    }
    for (const int64_t copies : {2, 3, 5, 6, 8, 100}) {
      Program other;
      try {
        ASSERT_EQ(made(copies, other), "") << "seed " << seed << " on " << config.name << ", " << copies << " copies";
        EXPECT_FALSE(other.instructions == usual.instructions)
            << "seed " << seed << " on " << config.name << ", " << copies << " copies";
        ++taken;
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
        const std::string why = error.what();  // an input has several layouts, of which the last one may not fit
        refused += why.find("copies of weights are the same as") != std::string::npos ? 1 : 0;
      }
    }
    EXPECT_THROW(made(1, usual), Error);
  }
  EXPECT_GT(taken, count / 8);
  EXPECT_GT(refused, count / 4);
}

TEST(Chain, ColumnsInOnePixelGoOnAlone) {
  // A first product of few channels, whose packed pixels may serve several columns; the next links see single ones.
  const std::vector<isa::MachineConfig> machines = {isa::find_config("npu64"), isa::find_config("npu256"),
                                                    square(1, 4, 400, 400, 300, 300, 60)};
  const char* factor = std::getenv("TESSERA_NPU_TESTS");
  const int count = 100 * (factor != nullptr ? std::atoi(factor) : 1);
  int chains = 0, joined = 0;
  for (int i = 0; i < count; ++i) {
    const uint64_t seed = 81000 + static_cast<uint64_t>(i);
    Random random(seed);
    const isa::MachineConfig& config = machines[static_cast<size_t>(random.between(0, 2))];
    Graph graph;
    Tensor in;
    in.name = "in";
    in.n = random.one_of<int64_t>({1, 1, 2});
    in.c = random.one_of<int64_t>({1, 1, 2, 3});
    in.is_unsigned = random.chance(50);
    Window window;
    window.kh = random.between(1, 3), window.kw = random.between(1, 4);
    window.sh = random.between(1, 2), window.sw = random.between(1, 3);
    window.pads = {random.between(0, window.kh - 1), random.between(0, window.kw - 1), random.between(0, window.kh - 1),
                   random.between(0, window.kw - 1)};
    const int64_t columns = random.one_of<int64_t>({2, 3, 4}) * random.between(1, 5);
    in.h = random.between(window.kh, 14);
    in.w = std::max((columns - 1) * window.sw + window.kw - window.pads.left - window.pads.right, int64_t{1});
    TensorId at = graph.add(in);
    graph.inputs = {at};
    at = append(random, graph, at, Kind::kDense, window, config.block_out * random.between(1, 3), false);
    const auto& first = std::get<Convolution>(graph.operations[0].what);
    const Padding& pads = window.pads;
    graph.tensors[static_cast<size_t>(first.input)].border = {pads.top, pads.left, pads.bottom, pads.right,
                                                              first.input_zero};
    for (int64_t more = random.between(1, 2); more > 0; --more) {
      const Kind kind = random.one_of({Kind::kDepthwise, Kind::kDepthwise, Kind::kPool, Kind::kMap});
      const Tensor& t = graph.tensors[static_cast<size_t>(at)];
      at = append(random, graph, at, kind, random_window(random, kind, t.h, t.w), 0, false);
    }
    if (random.chance(60)) {
      const Tensor& t = graph.tensors[static_cast<size_t>(at)];
      at = append(random, graph, at, Kind::kDense, random_window(random, Kind::kDense, t.h, t.w), 24, true);
    }
    graph.outputs = {at};
    const Tensor& out = graph.tensors[static_cast<size_t>(at)];
    schedule::ChainSchedule given = chain_of(graph);
    given.tile = {random.between(1, out.h), random.between(1, out.w), 1};
    given.tile.keeps_rows = random.chance(40);
    given.tile.strips = random.one_of<int64_t>({0, 32});
    Options options;
    options.schedules = {given};
    try {
      Program program;
      ASSERT_EQ(test::compare(graph, config, seed, options, &program), "")
          << "seed " << seed << " on " << config.name << ": " << schedule::to_json(given);
      ++chains;
      const bool wide = std::any_of(program.instructions.begin(), program.instructions.end(), [&](const auto& one) {
        const auto* load = std::get_if<isa::Load>(&one);
        return load != nullptr && load->space == isa::Space::kInp && load->length > window.kw * in.c;
      });
      joined += wide ? 1 : 0;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    }
  }
  EXPECT_GT(chains, count / 4);
  EXPECT_GT(joined, count / 20);
}

TEST(Chain, RowsAreLinks) {
  // Rows between products (of constants and of two activations), behind one, in front of one, beside maps; whole rows
  // in each step.
  std::vector<isa::MachineConfig> machines = {isa::find_config("npu64"), isa::find_config("npu256"),
                                              square(1, 4, 400, 400, 300, 300, 60), isa::find_config("npu1024")};
  machines[0].row_lanes = 2, machines[1].row_lanes = machines[3].row_lanes = 4, machines[2].row_lanes = 1;
  machines[2].table_count = 9;
  const char* factor = std::getenv("TESSERA_NPU_TESTS");
  const int count = 60 * (factor != nullptr ? std::atoi(factor) : 1);
  int chains = 0, cut = 0;
  for (int i = 0; i < count; ++i) {
    const uint64_t seed = 78000 + static_cast<uint64_t>(i);
    Random random(seed);
    Graph graph;
    Tensor in;
    in.name = "in";
    in.n = random.one_of<int64_t>({1, 1, 2});
    in.h = random.one_of<int64_t>({1, 1, 3});
    in.w = random.between(1, 40);
    in.c = random.one_of<int64_t>({1, 3, 8, 16, 17, 40, 64});
    in.is_unsigned = random.chance(50);
    TensorId at = graph.add(in);
    graph.inputs = {at};
    const auto kinds = random.one_of<std::vector<Kind>>({{Kind::kRows, Kind::kDense},
                                                         {Kind::kDense, Kind::kRows},
                                                         {Kind::kDense, Kind::kRows, Kind::kDense},
                                                         {Kind::kProduct, Kind::kRows},
                                                         {Kind::kProduct, Kind::kMap},
                                                         {Kind::kProduct, Kind::kRows, Kind::kDense},
                                                         {Kind::kRows, Kind::kProduct},
                                                         {Kind::kDense, Kind::kProduct},
                                                         {Kind::kProduct, Kind::kProduct},
                                                         {Kind::kProduct, Kind::kRows, Kind::kProduct},
                                                         {Kind::kMap, Kind::kRows, Kind::kDense},
                                                         {Kind::kRows, Kind::kDense, Kind::kDense},
                                                         {Kind::kProduct, Kind::kRows, Kind::kDense, Kind::kDense},
                                                         {Kind::kDense, Kind::kProduct, Kind::kRows},
                                                         {Kind::kRows, Kind::kMap}});
    for (const Kind kind : kinds)
      at = append(random, graph, at, kind, {}, random.one_of<int64_t>({1, 7, 16, 33, 48, 80}), kind == kinds.back());
    graph.outputs = {at};
    const isa::MachineConfig& config = machines[static_cast<size_t>(random.between(0, 3))];
    const Tensor& out = graph.tensors[static_cast<size_t>(graph.outputs[0])];
    schedule::ChainSchedule given = chain_of(graph);
    given.tile = {random.between(1, out.h), random.between(1, out.w), blocks_between(graph, config)};
    if (random.chance(20)) given.tile.blocks = random.between(1, given.tile.blocks);
    Options options;
    options.schedules = {given};
    try {
      ASSERT_EQ(test::compare(graph, config, seed, options), "")
          << "seed " << seed << " on " << config.name << ": " << schedule::to_json(given);
      ++chains;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
      cut += std::string(error.what()).find("needs all channels") != std::string::npos ? 1 : 0;
      ASSERT_EQ(test::compare(graph, config, seed), "") << "seed " << seed << " on " << config.name;
    }
  }
  EXPECT_GT(chains, count / 2);
  EXPECT_GT(cut, 0);
}

/// An inverted residual block: expand, depthwise, project and add.
Graph inverted_residual(int64_t size, int64_t channels, int64_t factor) {
  Random random(5);
  Graph graph;
  Tensor in;
  in.name = "in";
  in.h = in.w = size;
  in.c = channels;
  const TensorId x = graph.add(in);
  graph.inputs = {x};
  Window three;
  three.kh = three.kw = 3;
  three.pads = {1, 1, 1, 1};
  TensorId at = append(random, graph, x, Kind::kDense, {}, channels * factor, false);
  at = append(random, graph, at, Kind::kDepthwise, three, 0, false);
  at = append(random, graph, at, Kind::kDense, {}, channels, false);
  SecondOperation second;
  second.tensor = x;
  std::get<Convolution>(graph.operations.back().what).stage.second = second;
  graph.outputs = {at};
  return graph;
}

TEST(Chain, InvertedResidualStaysOnChip) {
  const isa::MachineConfig config = isa::find_config("npu256");
  const Graph graph = inverted_residual(28, 32, 6);
  Program chained, apart;
  ASSERT_EQ(test::compare(graph, config, 3, {}, &chained), "");
  ASSERT_EQ(test::compare(graph, config, 3, {.chain = false}, &apart), "");
  const auto traffic = [](const Program& program) {
    int64_t bytes = 0;
    for (const LayerInfo& layer : program.layers) bytes += layer.dram_read_bytes + layer.dram_write_bytes;
    return bytes;
  };
  const int64_t intermediate = 28 * 28 * 192;
  EXPECT_LT(traffic(chained), traffic(apart) - 3 * intermediate);  // two tensors, written and read, but for halos
  EXPECT_LT(chained.arena_bytes, static_cast<uint64_t>(intermediate));
  EXPECT_EQ(chained.layers[0].schedule, chained.layers[2].schedule);
  EXPECT_EQ(std::get<schedule::ChainSchedule>(chained.layers[0].schedule).links,
            (std::vector<std::string>{"op0", "op1", "op2"}));
  // The chosen schedules, given back, make the same program.
  Options options;
  for (const LayerInfo& layer : chained.layers) options.schedules.emplace_back(layer.schedule);
  EXPECT_EQ(compile(graph, config, options).instructions, chained.instructions);
}

TEST(Chain, StepsOfTheLinksAreInterleaved) {
  const Graph graph = inverted_residual(14, 32, 6);
  Options options;
  options.schedules = {schedule::ChainSchedule{{"op0", "op1", "op2"}, {14, 14, 1}}};
  const Program program = compile(graph, isa::find_config("npu256"), options);
  std::vector<uint32_t> products;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (std::holds_alternative<isa::Gemm>(program.instructions[i])) products.push_back(program.layer_of_instruction[i]);
  }
  // Twelve blocks: expand runs one block ahead of depthwise, and that one ahead of project.
  std::vector<uint32_t> expected = {0, 0, 1};
  for (int i = 0; i < 10; ++i) expected.insert(expected.end(), {0, 1, 2});
  expected.insert(expected.end(), {1, 2, 2});
  EXPECT_EQ(products, expected);
}

TEST(Prefetch, WeightsOfTheNextLayerComeBesideThisOne) {
  // A layer of many short steps, then one whose weights take longer to fetch than any of them.
  Random random(9);
  Graph graph;
  Tensor in;
  in.name = "in";
  in.h = in.w = 56;
  in.c = 128;
  TensorId at = graph.add(in);
  graph.inputs = {at};
  Window three;
  three.kh = three.kw = 3;
  three.pads = {1, 1, 1, 1};
  at = append(random, graph, at, Kind::kDense, {}, 128, false);
  at = append(random, graph, at, Kind::kDense, three, 64, false);
  graph.outputs = {at};
  const isa::MachineConfig config = isa::find_config("npu256");
  const schedule::LayerSchedule second = schedule::layer_schedule_from_json(
      R"({"intrinsic": "dense", "levels": [{"dim": "oh", "factor": 14, "kind": "temporal"}, {"dim": "ow", "factor": 4, "kind": "vthread", "threads": 2},
    {"dim": "oh", "factor": 4, "kind": "hwloop"}, {"dim": "ow", "factor": 14, "kind": "hwloop"}, {"dim": "oc", "factor": 4, "kind": "hwloop"},
    {"dim": "ic", "factor": 8, "kind": "hwloop"}, {"dim": "kh", "factor": 3, "kind": "hwloop"}, {"dim": "kw", "factor": 3, "kind": "hwloop"}],
    "operands": [{"operand": "input"}, {"operand": "weights"}, {"operand": "sums"}, {"operand": "output"}, {"operand": "params"}]})");
  const auto early = [&](bool prefetch) {
    Program program;
    EXPECT_EQ(
        test::compare(graph, config, 4,
                      {.chain = false, .prefetch_weights = prefetch, .schedules = {std::nullopt, second}}, &program),
        "");
    size_t last_of_first = 0;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      if (program.layer_of_instruction[i] == 0 && std::holds_alternative<isa::Gemm>(program.instructions[i]))
        last_of_first = i;
    }
    int64_t bytes = 0;
    for (size_t i = 0; i < last_of_first; ++i) {
      const auto* load = std::get_if<isa::Load>(&program.instructions[i]);
      if (load == nullptr || load->space != isa::Space::kWgt || program.layer_of_instruction[i] != 1) continue;
      int64_t size = load->length;
      for (const auto extent : load->extent) size *= extent;
      bytes += size;
    }
    return bytes;
  };
  EXPECT_EQ(early(false), 0);
  EXPECT_GT(early(true), 128 * 64 * 9 / 2);
}

TEST(Prefetch, FactorsThatAreReadyComeBesideTheLayerBefore) {
  // Keys, queries, and their product: the keys can be fetched while the queries are made.
  Random random(11);
  Graph graph;
  Tensor in;
  in.name = "in";
  in.w = 64;
  in.c = 192;
  const TensorId x = graph.add(in);
  graph.inputs = {x};
  const TensorId keys = append(random, graph, x, Kind::kDense, {}, 192, false),
                 queries = append(random, graph, x, Kind::kDense, {}, 192, false),
                 scores = append(random, graph, queries, Kind::kDense, {}, 64, false);
  Product product;
  product.input = queries, product.factor = keys, product.output = scores;
  product.input_zero = product.factor_zero = 3;
  product.stage = test::random_stage(random, graph.tensors[static_cast<size_t>(scores)], 1e5, false);
  graph.operations.back().what = product;
  graph.outputs = {scores};
  const auto early = [&](bool prefetch) {
    Program program;
    const Options options{.chain = false, .prefetch_weights = prefetch, .forward = Forward::kNever};
    EXPECT_EQ(test::compare(graph, isa::find_config("npu256"), 3, options, &program), "");
    int64_t waiting = 0, found = 0;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const auto* load = std::get_if<isa::Load>(&program.instructions[i]);
      const bool factor = load != nullptr && load->space == isa::Space::kWgt && program.layer_of_instruction[i] == 2;
      waiting += factor ? 1 : 0;
      if (program.layer_of_instruction[i] == 1 && std::holds_alternative<isa::Gemm>(program.instructions[i]))
        found = waiting;
    }
    return found;
  };
  EXPECT_EQ(early(false), 0);
  EXPECT_GT(early(true), 0);
}

TEST(Chain, ResultsThatOthersReadAreStored) {
  Graph graph = inverted_residual(7, 32, 6);
  graph.outputs.push_back(std::get<Convolution>(graph.operations[0].what).output);
  EXPECT_EQ(feeds_next(graph), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(test::compare(graph, isa::find_config("npu256"), 3), "");
}

TEST(Chain, RefusalsNameTheRule) {
  const auto refusal = [](const Graph& graph, const isa::MachineConfig& config, const schedule::ChainSchedule& given) {
    try {
      Options options;
      options.schedules = {given};
      compile(graph, config, options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const isa::MachineConfig config = isa::find_config("npu256");
  const Graph graph = inverted_residual(28, 32, 6);
  const schedule::ChainTile tile{28, 28, 12};
  EXPECT_NE(refusal(graph, config, {{"op0", "op1", "op2"}, tile}).find("inp needs"), std::string::npos);
  EXPECT_NE(refusal(graph, config, {{"op0", "op1", "op2"}, {28, 7, 1, false, 0, true}}).find("no two tiles share rows"),
            std::string::npos);
  EXPECT_EQ(refusal(graph, config, {{"op0", "op1", "op2"}, {7, 28, 1, false, 0, true}}), "");
  EXPECT_NE(refusal(graph, config, {{"op0", "other"}, tile}).find("'other' does not stand at place 1"),
            std::string::npos);
  EXPECT_NE(refusal(graph, square(1, 8, 500, 500, 500, 500, 60), {{"op0"}, tile}).find("1 links"), std::string::npos);
}

}  // namespace
}  // namespace tessera::npu
