// SPDX-License-Identifier: Apache-2.0
// The search by the options: searchers, cost models and intrinsics from outside of the core, the log of candidates and
// its table, and memories that the predictions follow.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "compiler/npu/graph/graph.h"
#include "compiler/npu/input/graph_text.h"
#include "compiler/npu/planning/planner.h"
#include "compiler/npu/planning/replay_memo.h"
#include "compiler/npu/planning/search_log.h"
#include "compiler/npu/planning/search_memo.h"
#include "compiler/npu/tests/random_graph.h"
#include "compiler/npu/tests/reference.h"
#include "compiler/schedule/intrinsic.h"
#include "compiler/schedule/searcher.h"

namespace tessera::npu {
namespace {

using test::Random;

/// One row of the output at a time, counted.
class Rows : public schedule::Searcher {
 public:
  static inline int asked = 0;
  std::vector<schedule::Ranked<schedule::Schedule>> schedules(const schedule::Subject& subject,
                                                              const schedule::Machine& machine,
                                                              schedule::CostModel& model, const schedule::Goal& goal,
                                                              size_t) override {
    ++asked;
    const schedule::Nest& nest = *subject.nests.front();
    schedule::Extents tile = nest.extent;
    tile[schedule::Dim::kOh] = 1;
    schedule::Ranked<schedule::Schedule> only;
    only.plan = make_schedule(nest, machine.config, tile, {schedule::Dim::kOh}, goal.single);
    only.cost = model.cost(subject, only.plan);
    only.score = goal.score(only.cost, machine.config);
    return {only};
  }
  std::vector<schedule::Ranked<schedule::ChainPlan>> chains(const schedule::Subject&, const schedule::Machine&,
                                                            schedule::CostModel&, const schedule::Goal&,
                                                            size_t) override {
    return {};
  }
};

/// As many cycles as LOAD instructions.
class Loads : public schedule::CostModel {
 public:
  schedule::Cost cost(const schedule::Subject& subject, const schedule::Schedule& schedule) override {
    return count(subject.lowering->once_and_twice(schedule, wants())[0]);
  }
  schedule::Cost cost(const schedule::Subject& subject, const schedule::ChainPlan& plan) override {
    return count(subject.lowering->once_and_twice(plan, wants())[0]);
  }

 private:
  static schedule::Cost count(const schedule::InstructionStream& stream) {
    const auto loads = std::count_if(stream.instructions.begin(), stream.instructions.end(),
                                     [](const auto& i) { return std::holds_alternative<isa::Load>(i); });
    return {loads, stream.dram_bytes, stream.computed};
  }
};

/// The replay, which says of the second stream of all operations what the test wants.
class Whole : public schedule::CostModel {
 public:
  enum class Second { kReplayed, kWorse, kBetter };
  static inline Second second = Second::kReplayed;
  static inline size_t operations = 0;
  static inline std::vector<schedule::Cost> seen;  // of all operations

  explicit Whole(const schedule::Machine& machine) : replay_(schedule::make_cost_model("replay", machine)) {}
  schedule::Cost cost(const schedule::Subject& subject, const schedule::Schedule& schedule) override {
    return replay_->cost(subject, schedule);
  }
  schedule::Cost cost(const schedule::Subject& subject, const schedule::ChainPlan& plan) override {
    return replay_->cost(subject, plan);
  }
  std::optional<schedule::Cost> cost(const schedule::InstructionStream& stream) override {
    std::optional<schedule::Cost> cost = replay_->cost(stream);
    std::set<uint32_t> tags(stream.tags.begin(), stream.tags.end());
    if (static_cast<size_t>(std::distance(tags.begin(), tags.lower_bound(operations))) < operations) return cost;
    seen.push_back(*cost);
    if (seen.size() == 2 && second == Second::kWorse) cost->cycles *= 2;
    if (seen.size() == 2 && second == Second::kBetter) cost->cycles /= 2;
    return cost;
  }

 private:
  std::unique_ptr<schedule::CostModel> replay_;
};

const schedule::RegisterSearcher kRows("test-rows", "rows", [] { return std::make_unique<Rows>(); });
const schedule::RegisterCostModel kLoads("test-loads", "LOAD instructions",
                                         [](const schedule::Machine&) { return std::make_unique<Loads>(); });
const schedule::RegisterCostModel kWhole("test-whole", "the replay, or what a test says",
                                         [](const auto& machine) { return std::make_unique<Whole>(machine); });

Graph network(uint64_t seed = 3) {
  Random random(seed);
  return test::random_network(random);
}

/// A convolution of odd kernel that keeps the extents; its result.
TensorId append_convolution(Random& random, Graph& graph, TensorId input, int64_t kernel, int64_t channels,
                            std::string name) {
  const Tensor in = graph.tensors[static_cast<size_t>(input)];
  Tensor out = in;
  out.c = channels;
  Convolution op;
  op.kernel_h = op.kernel_w = kernel;
  op.pads = {kernel / 2, kernel / 2, kernel / 2, kernel / 2};
  op.weights.resize(static_cast<size_t>(in.c * out.c * kernel * kernel));
  for (int16_t& w : op.weights) w = static_cast<int16_t>(random.between(-128, 127));
  op.stage = test::random_stage(random, out, 60000, false);
  op.input = input;
  op.output = graph.add(out);
  graph.operations.push_back({std::move(name), "QLinearConv", 0, op});
  return op.output;
}

/// Two convolutions, 3x3 and 1x1, of 20 x 20 pixels and 32 channels.
Graph two_convolutions() {
  Random random(11);
  Graph graph;
  Tensor image;
  image.h = image.w = 20;
  image.c = 32;
  TensorId at = graph.add(image);
  graph.inputs = {at};
  for (const int64_t kernel : {3, 1}) {
    at = append_convolution(random, graph, at, kernel, 32, "conv" + std::to_string(kernel));
  }
  graph.outputs = {at};
  return graph;
}

TEST(Search, PartsFromOutsideAreChosenByName) {
  const isa::MachineConfig config = isa::find_config("npu256");
  const Graph graph = two_convolutions();
  Options options;
  options.search = "test-rows";
  Program program;
  EXPECT_EQ(test::compare(graph, config, 1, options, &program), "");
  EXPECT_EQ(Rows::asked, 2);
  for (const LayerInfo& layer : program.layers) {
    const auto& schedule = std::get<std::vector<schedule::Schedule>>(layer.schedule).front();
    EXPECT_EQ(schedule.tile()[schedule::Dim::kOh], 1);
  }
  const Program usual = compile(graph, config, {.chain = false});
  EXPECT_NE(usual.instructions, program.instructions);
  options.search = "exhaustive";
  options.chain = false;
  for (const char* model : {"test-loads", "replay"}) {
    options.cost_model = model;
    SearchLog log;
    options.search_log = &log;
    EXPECT_EQ(test::compare(graph, config, 1, options, &program), "") << model;
    ASSERT_FALSE(log.pieces.empty());
    for (const SearchLog::Candidate& c : log.pieces[0].candidates) {
      ASSERT_GT(c.estimated.instructions, 0);
      if (model == std::string("replay") && c.replayed) EXPECT_EQ(c.estimated.cycles, c.replayed->cycles);
    }
  }
  const auto refused = [&](auto change, const std::string& words) {
    Options wrong;
    change(wrong);
    try {
      compile(graph, config, wrong);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  refused([](Options& o) { o.search = "luck"; }, "there is no searcher 'luck'; known: 'exhaustive', 'test-rows'");
  refused([](Options& o) { o.cost_model = "guess"; },
          "there is no cost model 'guess'; known: 'closed-form', 'replay', 'test-loads', 'test-whole'");
}

/// GEMM tap by tap, the weights of a tap together and in another order than the core's.
class TapsFirst : public schedule::Intrinsic {
 public:
  using Dim = schedule::Dim;
  static inline bool wanted = false;
  TapsFirst() : Intrinsic(schedule::Computation::kDense) {}
  std::string nest_obstacle(const schedule::Nest& nest) const override {
    if (!wanted) return "no test wants it";
    return nest.factor.present ? "weights come at run time" : "";
  }
  std::array<Dim, 5> weight_order() const override { return {Dim::kKw, Dim::kKh, Dim::kIc, Dim::kG, Dim::kOc}; }
  schedule::Demand demand(const schedule::Nest& nest, const schedule::Extents& tile) const override {
    return core().demand(nest, tile);
  }
  schedule::Work work(const schedule::Nest& nest, const schedule::Tiling& tiling) const override {
    schedule::Work work = core().work(nest, tiling);
    work.gemm_instructions *= tiling.tile[Dim::kKh] * tiling.tile[Dim::kKw];
    return work;
  }
  void accumulate(const schedule::TileView& tile, schedule::TileCode& code) const override {
    const schedule::Extents& c = tile.count;
    const schedule::Extents weight = weight_strides(weight_order(), c);
    const int64_t row = tile.cols.count * tile.input_blocks, results = c[Dim::kG] * c[Dim::kOc];
    const int64_t plane = results * c[Dim::kKh] * c[Dim::kKw] * c[Dim::kIc];
    bool accumulate = tile.accumulate;
    int64_t weights = tile.weights;
    for (isa::Gemm gemm : tile.planes) {
      for (int64_t kh = 0; kh < c[Dim::kKh]; ++kh) {
        for (int64_t kw = 0; kw < c[Dim::kKw]; ++kw) {
          schedule::ComputeNest nest;
          nest.address = {tile.input + kh * tile.rows.dilation * row + kw * tile.cols.dilation * tile.input_blocks,
                          weights + kh * weight[Dim::kKh] + kw * weight[Dim::kKw], tile.sums, 0};
          nest.outer = {{c[Dim::kN], {tile.rows.count * row, 0, c[Dim::kOh] * c[Dim::kOw] * results, 0}},
                        {c[Dim::kOh], {tile.rows.stride * row, 0, c[Dim::kOw] * results, 0}},
                        {c[Dim::kOw], {tile.cols.stride * tile.input_blocks, 0, results, 0}},
                        {c[Dim::kG], {c[Dim::kIc], weight[Dim::kG], c[Dim::kOc], 0}},
                        {c[Dim::kOc], {0, weight[Dim::kOc], 1, 0}}};
          nest.reduction = {{c[Dim::kIc], {1, weight[Dim::kIc], 0, 0}}};
          gemm.accumulate = accumulate;
          code.gemm(gemm, nest);
          accumulate = true;
        }
      }
      weights += plane;
    }
  }

 private:
  static const schedule::Intrinsic& core() { return schedule::core_intrinsic(schedule::Computation::kDense); }
};
const schedule::RegisterIntrinsic kTapsFirst("test_taps_first", "GEMM tap by tap", std::make_unique<TapsFirst>());

/// The schedules of a program with another intrinsic in those of dense nests.
std::vector<std::optional<schedule::LayerSchedule>> with_intrinsic(const Program& program, const char* name) {
  std::vector<std::optional<schedule::LayerSchedule>> given;
  for (const LayerInfo& layer : program.layers) {
    auto parts = std::get<std::vector<schedule::Schedule>>(layer.schedule);
    for (schedule::Schedule& part : parts) {
      if (part.intrinsic->name() == "dense") part.intrinsic = &schedule::find_intrinsic(name);
    }
    given.emplace_back(std::move(parts));
  }
  return given;
}

TEST(Search, AnIntrinsicFromOutsideComputesTheSame) {
  Random random(31);
  int64_t more = 0;
  for (int i = 0; i < 10; ++i) {
    const isa::MachineConfig config = isa::find_config(i % 2 == 0 ? "npu256" : "npu64");
    const Graph graph = test::random_network(random);
    Options options;
    options.chain = false;
    TapsFirst::wanted = false;
    const Program usual = compile(graph, config, options);
    TapsFirst::wanted = true;
    options.schedules = with_intrinsic(usual, "test_taps_first");
    Program program;
    EXPECT_EQ(test::compare(graph, config, 7, options, &program), "") << "network " << i;
    more += static_cast<int64_t>(program.instructions.size()) - static_cast<int64_t>(usual.instructions.size());
    // Among the candidates it does not win where it only costs instructions.
    options.schedules.clear();
    EXPECT_EQ(test::compare(graph, config, 7, options, &program), "") << "network " << i;
  }
  EXPECT_GT(more, 0);
  TapsFirst::wanted = false;
  const Graph graph = two_convolutions();
  const isa::MachineConfig config = isa::find_config("npu256");
  Options options;
  options.schedules = with_intrinsic(compile(graph, config, {.chain = false}), "test_taps_first");
  try {
    compile(graph, config, options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(
        std::string(error.what()).find("intrinsic test_taps_first cannot compute this operation: no test wants it"),
        std::string::npos)
        << error.what();
  }
  EXPECT_THROW(schedule::find_intrinsic("none"), Error);
  schedule::RegisterIntrinsic("two words", "", std::make_unique<TapsFirst>());
  EXPECT_NE(schedule::take_registration_errors().find("not 'two words'"), std::string::npos);
}

TEST(Search, RememberedReplaysMakeTheSameProgram) {
  const auto replays = std::make_shared<ReplayMemo>();
  for (const uint64_t seed : {3u, 21u}) {
    const Graph graph = network(seed);
    for (const int64_t scale : {1, 2, 4}) {  // scratchpads of several sizes, one of them with two memories
      isa::MachineConfig config = isa::find_config("npu64");
      config.inp_bytes = config.inp_bytes * scale / 2;
      config.wgt_bytes = config.wgt_bytes / scale;
      for (const int64_t latency : {40, 100}) {
        if (scale != 2 && latency == (scale == 1 ? 40 : 100)) continue;
        Options options;
        options.dram_latency_cycles = latency;
        const Program usual = compile(graph, config, options);
        options.replays = replays;
        const Program remembered = compile(graph, config, options);
        EXPECT_EQ(remembered.instructions, usual.instructions) << seed << " " << scale << " " << latency;
        const int64_t missed = replays->missed();
        EXPECT_EQ(compile(graph, config, options).instructions, usual.instructions) << seed;
        EXPECT_EQ(replays->missed(), missed) << "nothing is replayed twice";
      }
    }
  }
  EXPECT_GT(replays->found(), replays->missed());
}

TEST(Search, SlotsMoveWithTheSizeOfAScratchpad) {
  const isa::MachineConfig config = isa::find_config("npu64");
  const int64_t depth = config.inp_depth();
  Slots slots;
  EXPECT_EQ(slots.reserve(isa::Space::kInp, depth, depth / 2, 0), 0);
  slots.set_in_use(isa::Space::kInp, 0, depth / 2);
  EXPECT_EQ(slots.reserve(isa::Space::kInp, depth, depth / 2 - 1, 0), depth / 2);
  EXPECT_TRUE(same_slots(slots.log(), config));
  isa::MachineConfig other = config;
  other.inp_bytes *= 2;
  EXPECT_TRUE(same_slots(slots.log(), other));  // what fits behind the other stays there
  other.inp_bytes = config.inp_bytes / 4 * 3;
  EXPECT_FALSE(same_slots(slots.log(), other));
  other.inp_bytes = config.inp_bytes / 4;
  EXPECT_FALSE(same_slots(slots.log(), other));
}

TEST(Search, PlacesWrittenIntoTheGraphMakeTheSameProgram) {
  const isa::MachineConfig config = isa::find_config("npu256");
  for (const uint64_t seed : {3u, 21u}) {
    const Graph graph = network(seed);
    const Program usual = compile(graph, config);
    SearchLog log;
    Options options;
    options.search_log = &log;
    options.memo = std::make_shared<SearchMemo>();
    Graph placed = graph;
    placed.name = "g";
    place_chains(placed, config, options);
    const size_t pieces = log.pieces.size(), found = options.memo->tasks.size();
    const Program program = compile(placed, config, options);
    EXPECT_EQ(program.instructions, usual.instructions) << seed;
    EXPECT_EQ(program.constants, usual.constants) << seed;
    EXPECT_EQ(log.pieces.size(), pieces) << seed;  // nothing is noted or searched twice
    EXPECT_EQ(options.memo->tasks.size(), found) << seed;
    // Without chains every tensor has a place; the text keeps what stands in it.
    for (Tensor& tensor : placed.tensors) {
      if (tensor.scope == Scope::kChip) tensor.scope = Scope::kDram;
    }
    EXPECT_EQ(graph_from_text(to_text(placed)), placed);
    EXPECT_EQ(compile(placed, config).instructions, compile(graph, config, {.chain = false}).instructions) << seed;
  }
  // A memo serves one machine and one set of options.
  SearchMemo memo;
  EXPECT_TRUE(memo.serves(config, {}));
  EXPECT_FALSE(memo.serves(config, {.dram_latency_cycles = 50}));
  EXPECT_FALSE(memo.serves(isa::find_config("npu64"), {}));
  EXPECT_TRUE(memo.serves(config, {}));
}

TEST(Search, TheLogSaysWhatWasChosenAndWhy) {
  const isa::MachineConfig config = isa::find_config("npu256");
  for (uint64_t seed = 3; seed < 6; ++seed) {
    const Graph graph = network(seed);
    SearchLog log;
    Options options;
    options.search_log = &log;
    const Program program = compile(graph, config, options);
    EXPECT_EQ(program.instructions, compile(graph, config).instructions);  // looking on changes nothing
    std::map<std::string, int> chosen;
    for (const SearchLog::Piece& piece : log.pieces) {
      EXPECT_FALSE(piece.reason.empty());
      ASSERT_FALSE(piece.candidates.empty());
      const auto winner = std::find_if(piece.candidates.begin(), piece.candidates.end(),
                                       [](const auto& candidate) { return candidate.chosen; });
      ASSERT_NE(winner, piece.candidates.end());
      EXPECT_EQ(1, std::count_if(piece.candidates.begin(), piece.candidates.end(),
                                 [](const auto& candidate) { return candidate.chosen; }));
      ASSERT_TRUE(winner->replayed.has_value());
      if (!piece.chosen) continue;
      for (const std::string& name : piece.operations) chosen[name] += piece.nest == 0 ? 1 : 0;
      // Among those that were tried between the neighbours the winner has the least score, else that of the replay.
      for (const SearchLog::Candidate& c : piece.candidates) {
        if (winner->score_in_place && c.score_in_place) EXPECT_LE(*winner->score_in_place, *c.score_in_place);
        if (!winner->score_in_place && c.replayed) EXPECT_LE(winner->score, c.score);
      }
      if (piece.operations.size() > 1) continue;
      for (const LayerInfo& layer : program.layers) {
        const auto* parts = std::get_if<std::vector<schedule::Schedule>>(&layer.schedule);
        if (layer.name == piece.operations[0] && parts != nullptr && piece.nests == 1)
          EXPECT_EQ(winner->schedule, schedule::in_short(parts->front()));
      }
    }
    for (const Operation& operation : graph.operations) EXPECT_EQ(chosen[operation.name], 1) << operation.name;
    const std::string table = to_text(log, 3);
    for (const Operation& operation : graph.operations)
      EXPECT_NE(table.find("'" + operation.name + "'"), std::string::npos);
    EXPECT_NE(table.find("search 'exhaustive' by 'closed-form'"), std::string::npos);
  }
}

/// Convolutions of many shapes behind each other.
Graph many_convolutions(uint64_t seed) {
  Random random(seed);
  Graph graph;
  Tensor image;
  image.h = image.w = random.between(12, 30);
  image.c = 16 * random.between(1, 4);
  TensorId at = graph.add(image);
  graph.inputs = {at};
  for (int i = 0; i < 18; ++i) {
    const auto kernel = random.one_of<int64_t>({1, 3, 3});
    at = append_convolution(random, graph, at, kernel, 16 * random.between(1, 6), "conv" + std::to_string(i));
  }
  graph.outputs = {at};
  return graph;
}

TEST(Search, ASecondLookIsKeptWhereTheWholeStreamDoesBetter) {
  const isa::MachineConfig config = isa::find_config("npu256");
  int looked = 0, kept = 0;
  for (const uint64_t seed : {1u, 3u}) {
    const Graph graph = many_convolutions(seed);
    const auto program = [&](Whole::Second second) {
      Whole::second = second;
      Whole::operations = graph.operations.size();
      Whole::seen.clear();
      Options options;
      options.judge = "test-whole";
      options.products_between = false;  // cuts that leave a second look
      return compile(graph, config, options).instructions;
    };
    const auto first = program(Whole::Second::kWorse), again = program(Whole::Second::kBetter),
               usual = program(Whole::Second::kReplayed);
    ASSERT_GE(Whole::seen.size(), 2U);  // the last unit that the bus bounds is judged by the whole stream afterwards
    ++looked;
    const schedule::Goal goal;
    const auto score = [&](size_t which) { return goal.score(Whole::seen[which], config); };
    const bool better = Whole::seen[1].cycles <= Whole::seen[0].cycles && score(1) < score(0);
    EXPECT_EQ(usual, better ? again : first) << seed;
    EXPECT_EQ(usual, compile(graph, config, {.products_between = false}).instructions)
        << "a judge that sees no instructions, " << seed;
    kept += better ? 1 : 0;
  }
  EXPECT_GT(looked, kept);
  EXPECT_GT(kept, 0);
}

TEST(Search, GivenSchedulesAreSaidToBe) {
  const isa::MachineConfig config = isa::find_config("npu256");
  const Graph graph = two_convolutions();
  const Program first = compile(graph, config, {.chain = false});
  SearchLog log;
  Options options;
  options.chain = false;
  options.search_log = &log;
  options.schedules = {first.layers[0].schedule};
  compile(graph, config, options);
  ASSERT_EQ(log.pieces.size(), 2U);
  EXPECT_EQ(log.pieces[0].reason, "given");
  EXPECT_EQ(log.pieces[0].candidates.size(), 1U);
  EXPECT_GT(log.pieces[1].candidates.size(), 1U);
}

TEST(Search, PredictionsFollowTheMemory) {
  const isa::MachineConfig config = isa::find_config("npu256");
  const Graph graph = two_convolutions();
  const auto cycles = [&](int64_t latency, int64_t bandwidth) {
    Options options;
    options.dram_latency_cycles = latency;
    options.dram_bandwidth_bytes = bandwidth;
    int64_t sum = 0;
    Program program;
    EXPECT_EQ(test::compare(graph, config, 1, options, &program), "");
    for (const LayerInfo& layer : program.layers) sum += layer.estimated_cycles;
    return sum;
  };
  const int64_t usual = cycles(100, 0);
  EXPECT_EQ(cycles(100, config.axi_bytes), usual);
  EXPECT_LT(cycles(20, 0), usual);
  EXPECT_GT(cycles(500, 0), usual + 400);
  EXPECT_GT(cycles(100, 1), usual + 20 * 20 * 32);  // a byte a cycle
}

}  // namespace
}  // namespace tessera::npu
