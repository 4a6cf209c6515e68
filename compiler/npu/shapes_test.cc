// SPDX-License-Identifier: Apache-2.0
// Chosen shapes that sit on a limit: fields of instructions, sizes of scratchpads, windows and images of unequal size;
// folding, given schedules, memory planning, errors. Every program runs on the simulator beside the plain loops.
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "compiler/npu/graph/plan.h"
#include "compiler/npu/tasks/task.h"
#include "compiler/npu/tests/random_graph.h"
#include "compiler/npu/tests/reference.h"
#include "compiler/npu/workbench.h"
#include "compiler/schedule/searcher.h"
#include "isa/config.h"
#include "sim/functional/machine.h"

namespace tessera::npu {
namespace {

using test::Random;

/// The schedules of an operation's nests.
const std::vector<schedule::Schedule>& schedules_of(const LayerInfo& layer) {
  return std::get<std::vector<schedule::Schedule>>(layer.schedule);
}
schedule::InputLayout layout_of(const LayerInfo& layer) { return schedules_of(layer).front().input_layout; }

struct Shape {
  int64_t n = 1, h = 1, w = 1, ic = 1, oc = 1;
  int64_t kh = 1, kw = 1, sh = 1, sw = 1, dh = 1, dw = 1;
  Padding pads;
  int64_t groups = 1;
};

Graph convolution(const Shape& s, uint64_t seed = 1) {
  Random random(seed);
  Graph graph;
  Tensor in, out;
  in.name = "in";
  in.n = out.n = s.n;
  in.h = s.h;
  in.w = s.w;
  in.c = s.ic;
  in.is_unsigned = true;
  out.name = "out";
  out.c = s.oc;
  out.h = (s.h + s.pads.top + s.pads.bottom - s.dh * (s.kh - 1) - 1) / s.sh + 1;
  out.w = (s.w + s.pads.left + s.pads.right - s.dw * (s.kw - 1) - 1) / s.sw + 1;
  Convolution op;
  op.kernel_h = s.kh;
  op.kernel_w = s.kw;
  op.stride_h = s.sh;
  op.stride_w = s.sw;
  op.dilation_h = s.dh;
  op.dilation_w = s.dw;
  op.pads = s.pads;
  op.groups = s.groups;
  op.input_zero = 117;
  op.weights.resize(static_cast<size_t>(s.oc * (s.ic / s.groups) * s.kh * s.kw));
  for (int16_t& w : op.weights) w = static_cast<int16_t>(random.between(-128, 127));
  const int64_t products = s.ic / s.groups * s.kh * s.kw;
  op.stage = test::random_stage(random, out, 74.0 * 74.0 * std::sqrt(static_cast<double>(products)), true);
  op.input = graph.add(in);
  op.output = graph.add(out);
  graph.inputs = {op.input};
  graph.outputs = {op.output};
  graph.operations.push_back({"conv_node", "QLinearConv", 0, op});
  return graph;
}

isa::MachineConfig small_machine() {
  isa::MachineConfig config = isa::find_config("npu256");
  config.name = "small";
  config.inp_bytes = 64 * 16;
  config.wgt_bytes = 32 * 256;
  config.acc_bytes = 48 * 64;
  config.out_bytes = 32 * 16;
  config.param_bytes = 4 * 128;
  return config;
}

TEST(Shapes, KernelLargerThanInput) {
  EXPECT_EQ(test::compare(convolution({.h = 3, .w = 2, .ic = 20, .oc = 9, .kh = 7, .kw = 9, .pads = {3, 4, 3, 4}}),
                          isa::find_config("npu256"), 1),
            "");
  EXPECT_EQ(test::compare(convolution({.h = 1, .w = 1, .ic = 5, .oc = 3, .kh = 5, .kw = 5, .pads = {4, 2, 2, 4}}),
                          isa::find_config("npu64"), 2),
            "");
}

TEST(Shapes, StrideLargerThanKernel) {
  EXPECT_EQ(
      test::compare(
          convolution({.h = 23, .w = 29, .ic = 17, .oc = 31, .kh = 2, .kw = 1, .sh = 5, .sw = 7, .pads = {1, 3, 0, 2}}),
          isa::find_config("npu256"), 3),
      "");
}

TEST(Shapes, ImageLargerThanTheScratchpad) {
  EXPECT_EQ(
      test::compare(
          convolution({.h = 150, .w = 161, .ic = 3, .oc = 5, .kh = 7, .kw = 7, .sh = 2, .sw = 2, .pads = {3, 3, 2, 3}}),
          isa::find_config("npu256"), 4),
      "");
}

TEST(Shapes, RowLargerThanTheScratchpad) {
  EXPECT_EQ(test::compare(convolution({.h = 3, .w = 700, .ic = 40, .oc = 20, .kh = 3, .kw = 3, .pads = {1, 1, 1, 1}}),
                          small_machine(), 5),
            "");
}

TEST(Shapes, ReductionLargerThanTheWeightMemory) {
  EXPECT_EQ(test::compare(convolution({.h = 3, .w = 3, .ic = 700, .oc = 33, .kh = 3, .kw = 3, .pads = {1, 1, 1, 1}}),
                          small_machine(), 6),
            "");
  EXPECT_EQ(test::compare(convolution({.h = 2, .w = 2, .ic = 40, .oc = 17, .kh = 9, .kw = 11, .pads = {4, 5, 4, 5}}),
                          small_machine(), 7),
            "");
}

TEST(Shapes, ClassifierLargerThanTheWeightMemory) {
  EXPECT_EQ(test::compare(convolution({.ic = 1000, .oc = 1001}), isa::find_config("npu256"), 8), "");
}

TEST(Shapes, ExtentsBeyondALoop) {
  EXPECT_EQ(test::compare(convolution({.w = 9001, .ic = 3, .oc = 3}), isa::find_config("npu256"), 9), "");
  EXPECT_EQ(test::compare(convolution({.n = 4500, .ic = 7, .oc = 2}), isa::find_config("npu64"), 10), "");
}

TEST(Shapes, PaddingBeyondItsField) {
  EXPECT_EQ(test::compare(convolution({.h = 1, .w = 3, .ic = 4, .oc = 4, .kw = 2, .pads = {0, 5000, 0, 4800}}),
                          isa::find_config("npu256"), 11),
            "");
  EXPECT_EQ(test::compare(convolution({.h = 3, .w = 1, .ic = 4, .oc = 4, .kh = 3, .pads = {4200, 0, 4300, 0}}),
                          small_machine(), 12),
            "");
}

TEST(Shapes, LongOneDimensionalWindows) {
  EXPECT_EQ(test::compare(convolution({.w = 500, .ic = 6, .oc = 8, .kw = 64, .dw = 3, .pads = {0, 90, 0, 99}}),
                          isa::find_config("npu256"), 13),
            "");
  EXPECT_EQ(test::compare(convolution({.w = 500, .ic = 6, .oc = 6, .kw = 31, .pads = {0, 15, 0, 15}, .groups = 6}),
                          isa::find_config("npu256"), 14),
            "");
}

TEST(Shapes, DepthwiseWindows) {
  for (const int64_t kernel : {1, 2, 3, 4, 5, 7, 9}) {
    for (const int64_t stride : {1, 2}) {
      const Shape shape{.n = 2,
                        .h = 14,
                        .w = 13,
                        .ic = 40,
                        .oc = 40,
                        .kh = kernel,
                        .kw = kernel,
                        .sh = stride,
                        .sw = stride,
                        .pads = {kernel / 2, kernel / 2, kernel / 2, kernel / 2},
                        .groups = 40};
      EXPECT_EQ(test::compare(convolution(shape), isa::find_config("npu256"), 15), "") << kernel << " " << stride;
      EXPECT_EQ(test::compare(convolution(shape), isa::find_config("npu64"), 16), "") << kernel << " " << stride;
    }
  }
}

TEST(Shapes, ChannelMultiplierAndWideGroups) {
  EXPECT_EQ(test::compare(
                convolution({.h = 9, .w = 8, .ic = 18, .oc = 54, .kh = 3, .kw = 3, .pads = {1, 1, 1, 1}, .groups = 18}),
                isa::find_config("npu256"), 17),
            "");
  EXPECT_EQ(
      test::compare(
          convolution({.h = 7, .w = 7, .ic = 128, .oc = 128, .kh = 3, .kw = 3, .pads = {1, 1, 1, 1}, .groups = 32}),
          isa::find_config("npu256"), 18),
      "");
  EXPECT_EQ(test::compare(convolution({.h = 5, .w = 5, .ic = 60, .oc = 90, .kh = 3, .kw = 3, .groups = 3}),
                          isa::find_config("npu1024"), 19),
            "");
}

TEST(Shapes, GlobalPoolLargerThanTheScratchpad) {
  for (const Pool::Kind kind : {Pool::Kind::kSum, Pool::Kind::kMax}) {
    Random random(20);
    Graph graph;
    Tensor in, out;
    in.h = 41;
    in.w = 37;
    in.c = out.c = 50;
    Pool op;
    op.kind = kind;
    op.kernel_h = in.h;
    op.kernel_w = in.w;
    op.stage = test::random_stage(random, out, kind == Pool::Kind::kSum ? 128.0 * 41 * 37 : 128.0, true);
    op.input = graph.add(in);
    op.output = graph.add(out);
    graph.inputs = {op.input};
    graph.outputs = {op.output};
    graph.operations.push_back({"pool", "GlobalPool", 0, op});
    EXPECT_EQ(test::compare(graph, small_machine(), 20), "");
  }
}

TEST(Folding, FirstLayerPacksItsWindow) {
  const isa::MachineConfig config = isa::find_config("npu256");
  Graph graph =
      convolution({.h = 56, .w = 60, .ic = 3, .oc = 64, .kh = 7, .kw = 7, .sh = 2, .sw = 2, .pads = {3, 3, 3, 3}});
  Program plain;
  EXPECT_EQ(test::compare(graph, config, 21, {}, &plain), "");
  EXPECT_EQ(layout_of(plain.layers[0]), schedule::InputLayout{});
  Convolution& op = std::get<Convolution>(graph.operations[0].what);
  const Border border = folding_border(graph.tensors[static_cast<size_t>(op.input)], op, 64, config);
  EXPECT_EQ(border.top, 3);
  EXPECT_EQ(border.left, 3);
  EXPECT_EQ(border.bottom, 2);  // the last window ends one row before the padding does
  EXPECT_EQ(border.right, 2);
  EXPECT_EQ(border.value, 117);
  graph.tensors[static_cast<size_t>(op.input)].border = border;
  Program folded;
  EXPECT_EQ(test::compare(graph, config, 22, {}, &folded), "");
  EXPECT_EQ(to_string(layout_of(folded.layers[0])), "fold(kh,kw)");
  EXPECT_EQ(folded.layers[0].padded_macs, 28 * 30 * 160 * 64);  // 147 channels in 10 entries
  EXPECT_LT(folded.layers[0].padded_macs * 4, plain.layers[0].padded_macs);
}

TEST(Folding, AResidualAddWithItsTableStaysOut) {
  const isa::MachineConfig config = isa::find_config("npu256");
  Graph graph =
      convolution({.h = 56, .w = 60, .ic = 3, .oc = 64, .kh = 7, .kw = 7, .sh = 2, .sw = 2, .pads = {3, 3, 3, 3}});
  Convolution& op = std::get<Convolution>(graph.operations[0].what);
  const Tensor& input = graph.tensors[static_cast<size_t>(op.input)];
  const Border alone = folding_border(input, op, 64, config);
  op.stage.second = SecondOperation{};
  op.stage.second->tensor = op.output;
  op.stage.second_table = Table(256);
  const Border border = folding_border(input, op, 64, config);
  EXPECT_EQ(border.bottom, alone.bottom);
  EXPECT_EQ(border.right, alone.right);
}

TEST(Folding, ColumnsOfTheOutputShareARun) {
  // Every layout on several machines: channels that end inside an entry, and windows whose columns overlap or leave
  // gaps.
  std::set<std::string> seen;
  int with_second = 0;
  for (const Shape& shape :
       {Shape{.h = 17, .w = 24, .ic = 3, .oc = 8, .kh = 3, .kw = 3, .sh = 2, .sw = 2, .pads = {1, 1, 1, 1}},
        Shape{.h = 9, .w = 12, .ic = 1, .oc = 20, .kh = 5, .kw = 4, .pads = {2, 1, 2, 2}},
        Shape{.h = 33, .w = 10, .ic = 1, .oc = 20, .kh = 10, .kw = 4, .sh = 2, .sw = 2, .pads = {4, 1, 5, 1}},
        Shape{.n = 2, .h = 10, .w = 35, .ic = 2, .oc = 33, .kh = 2, .kw = 2, .sh = 2, .sw = 3}}) {
    Graph graph = convolution(shape);
    Convolution& op = std::get<Convolution>(graph.operations[0].what);
    Tensor& input = graph.tensors[static_cast<size_t>(op.input)];
    input.border = {shape.pads.top, shape.pads.left, shape.pads.bottom, shape.pads.right, op.input_zero};
    // Rows for the last part of a window that is cut; without any some layouts do not exist.
    if (shape.kh > 5) input.border.bottom += 2;
    for (int second = 0; second < 5; ++second) {
      if (second > 0) {
        Random random(static_cast<uint64_t>(second));
        graph.inputs.resize(1);
        test::add_second(random, graph, std::get<Convolution>(graph.operations[0].what).stage,
                         graph.tensors[static_cast<size_t>(graph.outputs[0])]);
      }
      for (const char* name : {"npu64", "npu256", "npu1024"}) {
        const isa::MachineConfig config = isa::find_config(name);
        Options options;
        const MemoryPlan plan = plan_memory(graph, options);
        const std::vector<Task> tasks = make_tasks(graph, 0, plan.placements, config, options);
        for (const schedule::Nest& nest : tasks[0].alternatives) {
          options.schedules = {std::vector{schedule::generate(nest, {config})}};
          Program program;
          EXPECT_EQ(test::compare(graph, config, 27, options, &program), "") << name << " " << to_string(nest.layout);
          EXPECT_EQ(layout_of(program.layers[0]), nest.layout);
          seen.insert(to_string(nest.layout));
          with_second += nest.layout.columns > 1 && nest.second.present ? 1 : 0;
        }
      }
    }
  }
  for (const char* layout : {"nhwc", "fold(kw)", "fold(kh,kw)", "fold(kw)*2", "fold(kw)*3", "fold(kw)*4",
                             "fold(kh,kw)*2", "fold(kh,kw)*3", "fold(kh,kw)*4", "fold(kh2,kw)", "fold(kh4,kw)"}) {
    EXPECT_TRUE(seen.contains(layout)) << layout;
  }
  EXPECT_GT(with_second, 0);
}

TEST(Folding, PatchesNeedNoBorder) {
  Program program;
  EXPECT_EQ(test::compare(convolution({.h = 32, .w = 48, .ic = 3, .oc = 24, .kh = 8, .kw = 8, .sh = 8, .sw = 8}),
                          isa::find_config("npu256"), 23, {}, &program),
            "");
  EXPECT_TRUE(layout_of(program.layers[0]).fold_kw);
}

TEST(GivenSchedules, AnyLegalOneGivesTheSameResult) {
  using schedule::Dim;
  using schedule::LevelKind;
  using schedule::Operand;
  const isa::MachineConfig config = isa::find_config("npu256");
  const Graph plain = convolution({.h = 13, .w = 11, .ic = 70, .oc = 50, .kh = 3, .kw = 3, .pads = {1, 1, 1, 1}});
  const Graph strided =
      convolution({.h = 27, .w = 11, .ic = 20, .oc = 50, .kh = 3, .kw = 3, .sh = 2, .dh = 2, .pads = {2, 1, 1, 1}});
  Random random(24);
  int legal = 0, kept = 0, turns = 0;
  for (int i = 0; i < 240; ++i) {
    // Tiles of random extents, outer levels in random order, threads, copies and attaches where a rule may allow them.
    schedule::Schedule s;
    s.intrinsic = &schedule::core_intrinsic(schedule::Computation::kDense);
    const Graph& graph = i % 2 == 0 ? plain : strided;
    const int64_t extents[] = {1, 1, 4, 13, 11, i % 2 == 0 ? 5 : 2, 3, 3};
    const bool keep = i % 4 >= 2;  // in half of them rows stay where the loops allow it
    std::vector<schedule::Level> outer, reduction, hardware;
    for (int d = 0; d < schedule::kDims; ++d) {
      const auto dim = static_cast<Dim>(d);
      const bool whole = keep && (dim == Dim::kOw || schedule::is_reduction(dim));
      const int64_t tile = whole ? extents[d] : random.between(1, extents[d]);
      int64_t trips = (extents[d] + tile - 1) / tile;
      if (tile > 1) hardware.push_back({dim, tile, LevelKind::kHwloop});
      if (trips == 1) continue;
      auto& list = schedule::is_reduction(dim) ? reduction : outer;
      if (trips > 2 && random.chance(40)) {  // two levels of one dimension
        list.push_back({dim, 2, LevelKind::kTemporal});
        trips = (trips + 1) / 2;
      }
      list.push_back({dim, trips, LevelKind::kTemporal});
      if (trips > 1 && random.chance(40))
        list.back() = {dim, trips, LevelKind::kVthread, random.between(2, std::min<int64_t>(trips, 4))};
    }
    std::shuffle(outer.begin(), outer.end(), random.engine());
    for (const auto& list : {outer, reduction, hardware}) s.levels.insert(s.levels.end(), list.begin(), list.end());
    for (const Operand operand :
         {Operand::kInput, Operand::kWeights, Operand::kSums, Operand::kOutput, Operand::kParams}) {
      schedule::OperandPlan plan;
      plan.operand = operand;
      if (random.chance(20)) plan.copies = static_cast<int>(random.between(1, 3));
      const bool fetched = operand != Operand::kSums && operand != Operand::kOutput;
      if (fetched && random.chance(20)) plan.attach = static_cast<int>(random.between(0, s.outer_levels()));
      if (keep && operand == Operand::kInput) plan.halo = schedule::Halo::kKeep;
      s.operands.push_back(plan);
    }
    Options options;
    options.fold = false;
    options.schedules = {std::vector{s}};
    try {
      Program program;
      EXPECT_EQ(test::compare(graph, config, 24, options, &program), "") << i << ": " << schedule::in_short(s);
      const schedule::Schedule& used = schedules_of(program.layers[0]).front();
      EXPECT_EQ(used.levels, s.levels);
      for (const auto& plan : used.operands) {
        const bool fetched = plan.operand != Operand::kSums && plan.operand != Operand::kOutput;
        EXPECT_EQ(plan.attach != schedule::kDerived, fetched);
      }
      options.schedules = {program.layers[0].schedule};  // in its canonical form it means the same
      EXPECT_EQ(compile(graph, config, options).instructions, program.instructions);
      ++legal;
      kept += keep ? 1 : 0;
      const auto threads = std::find_if(s.levels.begin(), s.levels.end(),
                                        [](const auto& level) { return level.kind == LevelKind::kVthread; });
      turns += threads != s.levels.end() && (threads + 1)->outer() ? 1 : 0;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("the given schedule is illegal: "), std::string::npos) << error.what();
    }
  }
  EXPECT_GT(legal, 100);
  EXPECT_GT(kept, 8);
  EXPECT_GT(turns, 20);
}

/// Every field of a schedule: changed alone it changes the program and not the results, or a rule refuses it.
class Fields : public testing::Test {
 protected:
  using Change = std::function<void(schedule::Schedule&)>;

  static schedule::OperandPlan& plan(schedule::Schedule& s, schedule::Operand operand) {
    return *std::find_if(s.operands.begin(), s.operands.end(), [&](const auto& p) { return p.operand == operand; });
  }

  /// 28 x 8, 4 blocks of channels to 8: loops of oc (2) and oh (4), and of ic (2) inside if `sums`.
  void convolve(bool sums) {
    graph_ = convolution({.h = 28, .w = 8, .ic = 64, .oc = 128, .kh = 3, .kw = 3, .pads = {1, 1, 1, 1}});
    schedule::Schedule s;
    s.intrinsic = &schedule::core_intrinsic(schedule::Computation::kDense);
    s.levels = {{schedule::Dim::kOc, 2, schedule::LevelKind::kTemporal},
                {schedule::Dim::kOh, 4, schedule::LevelKind::kVthread, 2}};
    if (sums) s.levels.push_back({schedule::Dim::kIc, 2, schedule::LevelKind::kTemporal});
    for (const auto& [dim, factor] : {std::pair{schedule::Dim::kOc, 4}, std::pair{schedule::Dim::kOh, 7},
                                      std::pair{schedule::Dim::kOw, 8}, std::pair{schedule::Dim::kIc, sums ? 2 : 4},
                                      std::pair{schedule::Dim::kKh, 3}, std::pair{schedule::Dim::kKw, 3}})
      s.levels.push_back({dim, factor, schedule::LevelKind::kHwloop});
    for (const auto operand : {schedule::Operand::kInput, schedule::Operand::kWeights, schedule::Operand::kSums,
                               schedule::Operand::kOutput, schedule::Operand::kParams}) {
      schedule::OperandPlan plan;
      plan.operand = operand;
      s.operands.push_back(plan);
    }
    begin(s);
  }

  void begin(const schedule::Schedule& s) {
    schedule_ = s;
    options_.chain = options_.fold = false;
    program_ = run(s);
  }

  Program run(const schedule::Schedule& s) {
    options_.schedules = {std::vector{s}};
    Program program;
    EXPECT_EQ(test::compare(graph_, config_, 31, options_, &program), "");
    return program;
  }

  Program changes(const Change& change) {
    schedule::Schedule s = schedule_;
    change(s);
    Program program = run(s);
    EXPECT_NE(program.instructions, program_.instructions);
    return program;
  }

  void refused(const Change& change, const std::string& rule) {
    schedule::Schedule s = schedule_;
    change(s);
    options_.schedules = {std::vector{s}};
    try {
      compile(graph_, config_, options_);
      FAIL() << "not refused: " << rule;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(rule), std::string::npos) << error.what();
    }
  }

  const isa::MachineConfig config_ = isa::find_config("npu256");
  Graph graph_;
  schedule::Schedule schedule_;
  Options options_;
  Program program_;
};

TEST_F(Fields, LevelsAndThreads) {
  convolve(false);
  const auto level = [](size_t i, auto&& change) { return [=](schedule::Schedule& s) { change(s.levels[i]); }; };
  changes([](schedule::Schedule& s) { std::swap(s.levels[0], s.levels[1]); });
  changes([](schedule::Schedule& s) { s.levels[1].factor = 7, s.levels[3].factor = 4; });
  changes(level(1, [](schedule::Level& l) { l.threads = 3; }));  // three slots of input, sums and output
  changes(level(1, [](schedule::Level& l) { l = {l.dim, l.factor, schedule::LevelKind::kTemporal}; }));
  refused(level(1, [](schedule::Level& l) { l.threads = 5; }), "runs from 2 to as many iterations at once, not 5");
  refused([](schedule::Schedule& s) { s.intrinsic = &schedule::find_intrinsic("depthwise"); },
          "the intrinsic of this operation is dense, not depthwise");
  refused([](schedule::Schedule& s) { s.input_layout = {true, true, 1}; }, "input_layout 'fold(kh,kw)'");
}

TEST_F(Fields, ThreadsTakeTurnsInsideTheirLevel) {
  convolve(true);
  // Blocks of ACC in the order of products: both threads for one half of the channels, then for the other half.
  const auto order = [](const Program& program) {
    std::vector<std::pair<int, bool>> products;  // slot, whether the sum goes on
    std::map<int, int> slots;
    for (const isa::Instruction& instruction : program.instructions) {
      const auto* gemm = std::get_if<isa::Gemm>(&instruction);
      if (gemm == nullptr || products.size() == 8) continue;
      products.emplace_back(slots.emplace(gemm->acc_addr, static_cast<int>(slots.size())).first->second,
                            gemm->accumulate);
    }
    return products;
  };
  using Order = std::vector<std::pair<int, bool>>;
  EXPECT_EQ(order(program_),
            (Order{{0, false}, {1, false}, {0, true}, {1, true}, {0, false}, {1, false}, {0, true}, {1, true}}));
  // The threads on the reduction instead: one sum after the other, two halves of channels at once.
  const Program reduction = changes([](schedule::Schedule& s) {
    s.levels[1] = {s.levels[1].dim, 4, schedule::LevelKind::kTemporal};
    s.levels[2] = {s.levels[2].dim, 2, schedule::LevelKind::kVthread, 2};
  });
  EXPECT_EQ(order(reduction),
            (Order{{0, false}, {0, true}, {0, false}, {0, true}, {0, false}, {0, true}, {0, false}, {0, true}}));
  // Threads share the weights that they do not index: half the fetches.
  const auto weights = [](const Program& program) {
    return program.layers[0].stream_bytes[static_cast<size_t>(Stream::kWeights)];
  };
  EXPECT_EQ(2 * weights(program_), weights(reduction));
}

TEST_F(Fields, Operands) {
  convolve(false);
  using schedule::Operand;
  const auto with = [](Operand operand, auto&& change) {
    return [=](schedule::Schedule& s) { change(plan(s, operand)); };
  };
  for (const Operand operand : {Operand::kInput, Operand::kWeights, Operand::kSums, Operand::kOutput}) {
    changes(with(operand, [](schedule::OperandPlan& p) { p.copies = 3; }));
    refused(with(operand, [](schedule::OperandPlan& p) { p.copies = 100000; }), "entries of");
  }
  const auto bytes = [](const Program& program, Stream stream) {
    return program.layers[0].stream_bytes[static_cast<size_t>(stream)];
  };
  // Four tiles of input that stay for the second half of the output channels, and weights fetched for every two tiles.
  const Program kept = changes(with(Operand::kInput, [](schedule::OperandPlan& p) { p.attach = 0; }));
  EXPECT_EQ(2 * bytes(kept, Stream::kInput), bytes(program_, Stream::kInput));
  const Program again = changes(with(Operand::kWeights, [](schedule::OperandPlan& p) { p.attach = 2; }));
  EXPECT_EQ(bytes(again, Stream::kWeights), 2 * bytes(program_, Stream::kWeights));
  const Program rows = changes(with(Operand::kInput, [](schedule::OperandPlan& p) { p.halo = schedule::Halo::kKeep; }));
  // The window is the whole image, which then also stays for the second half.
  EXPECT_EQ(bytes(program_, Stream::kInput) - bytes(rows, Stream::kInput), (2 * (28 + 6) - 28) * 8 * 64);
  refused(with(Operand::kWeights, [](schedule::OperandPlan& p) { p.halo = schedule::Halo::kKeep; }),
          "only the input can keep rows");
  refused(with(Operand::kOutput, [](schedule::OperandPlan& p) { p.attach = 1; }), "output is not fetched");
  refused(with(Operand::kInput, [](schedule::OperandPlan& p) { p.scope = isa::Space::kOut; }),
          "input has no choice of scope");
}

TEST_F(Fields, ScopeOfAnAluInput) {
  // One row for all rows of the output: results must not stand where the input is still read.
  Random random(8);
  Tensor in, out;
  in.w = out.w = 9;
  in.c = out.c = 40;
  out.h = 12;
  Elementwise map;
  map.stage = test::random_stage(random, out, 100, true);
  map.input = graph_.add(in);
  map.output = graph_.add(out);
  graph_.inputs = {map.input};
  graph_.outputs = {map.output};
  graph_.operations.emplace_back();
  graph_.operations.back().name = "map";
  graph_.operations.back().what = map;
  options_.chain = false;
  const Program first = compile(graph_, config_, options_);
  begin(schedules_of(first.layers[0]).front());
  ASSERT_EQ(plan(schedule_, schedule::Operand::kInput).scope, isa::Space::kInp);
  const Program moved =
      changes([](schedule::Schedule& s) { plan(s, schedule::Operand::kInput).scope = isa::Space::kOut; });
  for (const isa::Instruction& instruction : moved.instructions) {
    if (const auto* alu = std::get_if<isa::Alu>(&instruction)) {
      EXPECT_EQ(alu->src, isa::AluSpace::kOut);
    }
  }
  refused([](schedule::Schedule& s) { plan(s, schedule::Operand::kInput).scope = isa::Space::kAcc; },
          "the scope of input is inp or out, not acc");
}

TEST_F(Fields, LayoutOfTheInput) {
  graph_ = convolution({.h = 32, .w = 48, .ic = 3, .oc = 24, .kh = 8, .kw = 8, .sh = 8, .sw = 8});
  const MemoryPlan plan = plan_memory(graph_, options_);
  const std::vector<Task> tasks = make_tasks(graph_, 0, plan.placements, config_, options_);
  ASSERT_GT(tasks[0].alternatives.size(), 1U);
  for (const schedule::Nest& nest : tasks[0].alternatives) {
    const Program program = run(schedule::generate(nest, {config_}));
    EXPECT_NE(program.instructions, program_.instructions) << to_string(nest.layout);
    program_ = program;
  }
}

/// input (16 channels, 5 x 3) enlarged twice in both directions, plus a tensor of that size.
Graph enlargement() {
  Random random(26);
  Graph graph;
  Tensor in, out;
  in.name = "in";
  in.h = 5;
  in.w = 3;
  in.c = out.c = 16;
  in.is_unsigned = true;
  out.name = "out";
  out.h = 10;
  out.w = 6;
  Elementwise op;
  op.repeat_h = op.repeat_w = 2;
  op.stage = test::random_stage(random, out, 255, false);
  op.input = graph.add(in);
  op.output = graph.add(out);
  graph.inputs = {op.input};
  graph.outputs = {op.output};
  test::add_second(random, graph, op.stage, out);
  graph.operations.push_back({"up", "Resize", 0, op});
  return graph;
}

TEST(GivenSchedules, OneForEachNestOfAnOperation) {
  const isa::MachineConfig config = isa::find_config("npu256");
  const Graph graph = enlargement();
  Program program;
  EXPECT_EQ(test::compare(graph, config, 26, {}, &program), "");
  std::vector<schedule::Schedule> parts = schedules_of(program.layers[0]);
  ASSERT_EQ(parts.size(), 4U);
  Options options;
  options.schedules = {program.layers[0].schedule};
  Program again;
  EXPECT_EQ(test::compare(graph, config, 26, options, &again), "");
  EXPECT_EQ(again.instructions, program.instructions);
  parts.pop_back();
  options.schedules = {parts};
  try {
    compile(graph, config, options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what())
                  .find("node 'up' (Resize) on npu256: 3 schedules are given for an operation of 4 nests"),
              std::string::npos);
  }
}

TEST(Streams, SumToTheTraffic) {
  for (const Graph& graph :
       {convolution({.h = 13, .w = 11, .ic = 70, .oc = 50, .kh = 3, .kw = 3, .pads = {1, 1, 1, 1}}), enlargement()}) {
    const Program program = compile(graph, isa::find_config("npu256"));
    const LayerInfo& layer = program.layers[0];
    const auto of = [&](Stream stream) { return layer.stream_bytes[static_cast<size_t>(stream)]; };
    EXPECT_EQ(of(Stream::kInput) + of(Stream::kWeights) + of(Stream::kParams) + of(Stream::kSecond),
              layer.dram_read_bytes);
    EXPECT_EQ(of(Stream::kOutput), layer.dram_write_bytes);
    EXPECT_EQ(of(Stream::kInstructions), static_cast<int64_t>(program.instructions.size()) * isa::kInstructionBytes);
    EXPECT_EQ(of(Stream::kSecond) > 0, graph.operations[0].name == "up");
  }
}

TEST(Memory, TensorsShareDramWhenTheirLivesDoNotOverlap) {
  Random random(25);
  Graph graph;
  Tensor t;
  t.h = t.w = 8;
  t.c = 16;
  TensorId x = graph.add(t);
  graph.inputs = {x};
  for (int i = 0; i < 6; ++i) {
    Elementwise op;
    op.input = x;
    op.output = x = graph.add(t);
    op.stage.table = test::random_table(random);
    graph.operations.push_back({"map" + std::to_string(i), "Relu", 0, op});
  }
  graph.outputs = {x};
  Program program;
  EXPECT_EQ(test::compare(graph, isa::find_config("npu256"), 25, {.chain = false}, &program), "");
  EXPECT_EQ(program.unshared_bytes, 7u * 1024);
  EXPECT_EQ(program.arena_bytes, 4u * 1024);  // input, output, and two in turn
  EXPECT_EQ(test::compare(graph, isa::find_config("npu256"), 25, {}, &program), "");
  EXPECT_EQ(program.arena_bytes, 3u * 1024);  // input, output, and one between two chains
  EXPECT_EQ(test::compare(graph, isa::find_config("npu256"), 25, {.chain = false, .reuse_memory = false}, &program),
            "");
  EXPECT_EQ(program.arena_bytes, 7u * 1024);
}

TEST(Waits, EveryOneIsNeeded) {
  const isa::MachineConfig config = small_machine();
  Random random(26);
  const Graph graph = test::random_network(random);
  const Program program = compile(graph, config);
  sim::Machine machine(config);
  std::vector<uint8_t> constants = program.constants, arena(program.arena_bytes);
  const auto races = [&](const std::vector<isa::Instruction>& instructions) {
    sim::RunRequest request;
    request.instructions = instructions;
    request.bases[kConstantBase] = 0x10000000;
    const sim::DramRegion regions[] = {{0x10000000, constants.data(), constants.size()},
                                       {0, arena.data(), arena.size()}};
    request.dram = regions;
    request.check_races = true;
    request.max_races = 1;
    const sim::RunResult result = machine.run(request);
    return result.races.size();
  };
  EXPECT_EQ(races(program.instructions), 0u);
  int tried = 0, found = 0;
  std::vector<isa::Instruction> mutant = program.instructions;
  for (size_t i = 0; i < mutant.size(); ++i) {
    for (isa::Wait& wait : isa::header_of(mutant[i]).waits) {
      if (!wait.enable || ++tried % 7 != 0) continue;
      wait.enable = false;
      found += races(mutant) > 0;
      wait.enable = true;
    }
  }
  // Intervals are wider than what strided transfers touch: a few conditions guard bytes nobody shares.
  EXPECT_GE(found * 100, tried / 7 * 95) << found << " of " << tried / 7;
}

std::string error_of(const Graph& graph, const isa::MachineConfig& config, ErrorCode code) {
  try {
    compile(graph, config);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(Errors, NameTheNodeAndTheCause) {
  const isa::MachineConfig config = isa::find_config("npu256");
  const auto broken = [&](auto&& change) {
    Graph graph = convolution({.h = 4, .w = 4, .ic = 8, .oc = 8, .kh = 3, .kw = 3});
    change(graph, std::get<Convolution>(graph.operations[0].what));
    const std::string message = error_of(graph, config, ErrorCode::kInvalidArgument);
    EXPECT_NE(message.find("conv_node"), std::string::npos) << message;
    return message;
  };
  EXPECT_NE(broken([](Graph&, Convolution& op) { op.weights.pop_back(); }).find("575 weights, the shape needs 576"),
            std::string::npos);
  EXPECT_NE(broken([](Graph&, Convolution& op) { op.groups = 3; }).find("groups"), std::string::npos);
  EXPECT_NE(broken([](Graph&, Convolution& op) { op.input_zero = 256; }).find("input zero point 256"),
            std::string::npos);
  EXPECT_NE(broken([](Graph&, Convolution& op) { op.stride_h = 0; }).find("positive"), std::string::npos);
  EXPECT_NE(broken([](Graph&, Convolution& op) { op.pads.top = 1; }).find("the window gives 3x2"), std::string::npos);
  EXPECT_NE(broken([](Graph&, Convolution& op) { op.input = 9; }).find("no tensor"), std::string::npos);
  EXPECT_NE(broken([](Graph& graph, Convolution&) { graph.inputs.clear(); }).find("before it is written"),
            std::string::npos);
  EXPECT_NE(broken([](Graph&, Convolution& op) { op.stage.multiplier.resize(3); }).find("one for each channel"),
            std::string::npos);
  EXPECT_NE(broken([](Graph&, Convolution& op) { op.stage.table = Table(5); }).find("256 bytes"), std::string::npos);
  EXPECT_NE(broken([](Graph&, Convolution& op) { op.weights[0] = 300; }).find("is 300"), std::string::npos);
}

TEST(Errors, DoesNotFitNamesNodeAndMemory) {
  isa::MachineConfig config = isa::find_config("npu256");
  config.table_count = 1;
  Graph graph = convolution({.h = 4, .w = 4, .ic = 8, .oc = 8});
  Random random(1);
  Stage& stage = std::get<Convolution>(graph.operations[0].what).stage;
  stage.table = test::random_table(random);
  SecondOperation second;
  second.kind = SecondOperation::Kind::kMax;
  second.tensor = graph.add(graph.tensors[static_cast<size_t>(std::get<Convolution>(graph.operations[0].what).output)]);
  graph.inputs.push_back(second.tensor);
  stage.second = second;
  stage.second_table = test::random_table(random);
  const std::string message = error_of(graph, config, ErrorCode::kDoesNotFit);
  EXPECT_NE(message.find("conv_node"), std::string::npos) << message;
  EXPECT_NE(message.find("2 tables at once"), std::string::npos) << message;
}

}  // namespace
}  // namespace tessera::npu
