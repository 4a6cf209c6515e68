// SPDX-License-Identifier: Apache-2.0
// Spans, footprints, legality and its reasons, what follows from a schedule, the JSON form, the registries of cost
// models and searchers, and the exhaustive search over many nests and machines.
#include "compiler/schedule/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "base/error.h"
#include "compiler/schedule/searcher.h"
#include "compiler/schedule/text/json.h"
#include "compiler/schedule/text/nest_text.h"

namespace tessera::schedule {
namespace {

isa::MachineConfig npu256() { return isa::find_config("npu256"); }

OperandPlan& plan_of(Schedule& schedule, Operand operand) {
  for (OperandPlan& plan : schedule.operands) {
    if (plan.operand == operand) return plan;
  }
  ADD_FAILURE() << "no such operand";
  return schedule.operands.front();
}

/// 64 -> 128 channels, 3x3, stride 1, pad 1, on 28x28.
Nest convolution() {
  Nest nest;
  nest.computation = Computation::kDense;
  nest.extent[Dim::kOh] = nest.extent[Dim::kOw] = 28;
  nest.extent[Dim::kKh] = nest.extent[Dim::kKw] = 3;
  nest.extent[Dim::kOc] = 8;
  nest.extent[Dim::kIc] = 4;
  nest.pad_top = nest.pad_left = 1;
  nest.in_channels = {64, 64, 16};
  nest.out_channels = {128, 128, 16};
  nest.convert = nest.per_channel = true;
  for (Access* a : {&nest.input, &nest.output}) {
    a->present = true;
    a->pitch_w = a == &nest.input ? 64 : 128;
    a->pitch_h = 28 * a->pitch_w;
    a->pitch_n = 28 * a->pitch_h;
    a->segment_channels = a->pitch_w;
    a->row_end = a->col_end = 28;
  }
  return nest;
}

/// Twelve matrices, 200 rows of k = 72 by 100 columns.
Nest product() {
  Nest nest;
  nest.computation = Computation::kDense;
  nest.extent[Dim::kOh] = 12;
  nest.extent[Dim::kOw] = 200;
  nest.extent[Dim::kOc] = 7;
  nest.extent[Dim::kIc] = 5;
  nest.in_channels = {72, 72, 16};
  nest.out_channels = {100, 100, 16};
  nest.convert = true;
  for (Access* a : {&nest.input, &nest.output}) {
    a->present = true;
    a->pitch_w = a == &nest.input ? 72 : 100;
    a->pitch_h = a->pitch_n = 200 * a->pitch_w;
    a->segment_channels = a->pitch_w;
    a->row_end = 12;
    a->col_end = 200;
  }
  nest.factor.present = true;
  nest.factor.pitch_h = 100 * 72;
  nest.factor.pitch_column = 72;
  return nest;
}

TEST(Product, FactorOfATile) {
  Nest nest = product();
  EXPECT_TRUE(indexes(nest, Operand::kWeights, Dim::kOh));
  EXPECT_FALSE(indexes(nest, Operand::kWeights, Dim::kOw));
  Extents tile;
  tile[Dim::kOh] = 3;
  tile[Dim::kOw] = 50;
  tile[Dim::kOc] = 7;
  tile[Dim::kIc] = 5;
  EXPECT_EQ(footprint(nest, core_intrinsic(nest.computation), tile).weights, 3 * 7 * 5);
  EXPECT_EQ(factor_traffic(nest, tile).bytes, 3 * 100 * 72);
  EXPECT_EQ(factor_traffic(nest, tile).runs, 3 * 100 * 5);
  nest.factor.pitch_k = 100, nest.factor.pitch_column = 1;
  EXPECT_EQ(factor_traffic(nest, tile).runs, 3 * 100 * 72);
  nest.factor.pitch_h = 0;  // one matrix for all
  EXPECT_FALSE(indexes(nest, Operand::kWeights, Dim::kOh));
  EXPECT_EQ(footprint(nest, core_intrinsic(nest.computation), tile).weights, 7 * 5);
  EXPECT_EQ(factor_traffic(nest, tile).bytes, 100 * 72);
}

TEST(Product, SchedulesAreGeneratedJudgedAndWritten) {
  const Nest nest = product();
  for (const char* name : {"npu64", "npu256", "npu1024"}) {
    const isa::MachineConfig config = isa::find_config(name);
    Nest own = nest;
    own.in_channels.lanes = config.block_in, own.out_channels.lanes = config.block_out;
    own.extent[Dim::kIc] = own.in_channels.blocks(), own.extent[Dim::kOc] = own.out_channels.blocks();
    const Schedule schedule = generate(own, {config});
    EXPECT_EQ(schedule_from_json(to_json(schedule)), schedule);
    const Evaluation evaluation = evaluate(own, schedule, {config});
    ASSERT_TRUE(evaluation.legal) << evaluation.reason;
    // Every matrix once; the last columns count as a whole tile.
    const int64_t once = 12 * (200 * 72 + 100 * 72) + config.param_entry_bytes();
    EXPECT_GE(evaluation.read_bytes, once) << name;
    EXPECT_LE(evaluation.read_bytes, once + 12 * (schedule.tile()[Dim::kOc] * config.block_out - 1) * 72) << name;
    EXPECT_EQ(evaluation.write_bytes, 12 * 200 * 100);
    EXPECT_GE(evaluation.cycles, evaluation.gemm_cycles);
  }
  // All matrices at once: 420 entries of WGT, and a copy more than there is room for.
  Schedule schedule = make_schedule(nest, npu256(),
                                    [] {
                                      Extents tile;
                                      tile[Dim::kOh] = 12, tile[Dim::kOc] = 7, tile[Dim::kIc] = 5, tile[Dim::kOw] = 2;
                                      return tile;
                                    }(),
                                    {Dim::kOw});
  EXPECT_TRUE(evaluate(nest, schedule, {npu256()}).legal);
  plan_of(schedule, Operand::kWeights).copies = 3;
  EXPECT_NE(evaluate(nest, schedule, {npu256()}).reason.find("wgt needs 1260 entries of 1024"), std::string::npos);
}

TEST(Span, ThinsToTheCommonStep) {
  // Outputs 2..5, all of a 3-tap window, stride 1, pad 1: positions 1..6.
  Span span = input_span(2, 4, 0, 3, 1, 1, 1);
  EXPECT_EQ(span.begin, 1);
  EXPECT_EQ(span.count, 6);
  EXPECT_EQ(span.step, 1);
  // One tap at stride 2: every second position.
  span = input_span(0, 5, 0, 1, 2, 1, 0);
  EXPECT_EQ(span.step, 2);
  EXPECT_EQ(span.count, 5);
  EXPECT_EQ(span.stride, 1);
  // One output, dilation 3: every third.
  span = input_span(4, 1, 1, 3, 1, 3, 2);
  EXPECT_EQ(span.begin, 5);
  EXPECT_EQ(span.step, 3);
  EXPECT_EQ(span.count, 3);
  EXPECT_EQ(span.dilation, 1);
  // Stride 4 and dilation 6 meet at step 2.
  span = input_span(0, 3, 0, 2, 4, 6, 0);
  EXPECT_EQ(span.step, 2);
  EXPECT_EQ(span.count, 2 * 2 + 1 * 3 + 1);
}

/// What tiles of `out` rows and `taps` taps fetch, position by position.
Positions counted(const Nest& nest, int64_t out, int64_t taps) {
  Positions total;
  bool first = true;
  for (int64_t k = 0; k < nest.extent[Dim::kKh]; k += taps) {
    for (int64_t o = 0; o < nest.extent[Dim::kOh]; o += out) {
      std::set<int64_t> touched;
      for (int64_t y = o; y < std::min(o + out, nest.extent[Dim::kOh]); ++y) {
        for (int64_t t = k; t < std::min(k + taps, nest.extent[Dim::kKh]); ++t)
          touched.insert(y * nest.stride_h - nest.pad_top + t * nest.dilation_h);
      }
      int64_t step = 0;
      for (const int64_t at : touched) step = std::gcd(step, at - *touched.begin());
      int64_t all = 0, read = 0;
      for (int64_t at = *touched.begin(); at <= *touched.rbegin(); at += std::max<int64_t>(step, 1)) {
        ++all;
        if (at >= nest.input.row_begin && at < nest.input.row_end) ++read;
      }
      total.all += all;
      total.read += read;
      total.least_all = first ? all : std::min(total.least_all, all);
      total.least_read = first ? read : std::min(total.least_read, read);
      first = false;
    }
  }
  return total;
}

TEST(Positions, AreThoseOfPlainLoops) {
  std::mt19937 rng(5);
  const auto draw = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(rng); };
  for (int i = 0; i < 3000; ++i) {
    Nest nest;
    nest.extent[Dim::kOh] = draw(1, 40);
    nest.extent[Dim::kKh] = draw(1, 5);
    nest.stride_h = draw(1, 4);
    nest.dilation_h = draw(1, 3);
    nest.pad_top = draw(0, 6);
    nest.input.row_begin = draw(0, 2) == 0 ? -draw(1, 3) : 0;
    nest.input.row_end = draw(1, 120);
    const int64_t out = draw(1, nest.extent[Dim::kOh]), taps = draw(1, nest.extent[Dim::kKh]);
    const Positions found = positions(nest, out, taps, true), want = counted(nest, out, taps);
    EXPECT_EQ(found.all, want.all) << i;
    EXPECT_EQ(found.read, want.read) << i;
    EXPECT_EQ(found.least_all, want.least_all) << i;
    EXPECT_EQ(found.least_read, want.least_read) << i;
  }
}

TEST(Footprint, OfATile) {
  const Nest nest = convolution();
  Extents tile;
  tile[Dim::kOh] = 4;
  tile[Dim::kOw] = 28;
  tile[Dim::kOc] = 2;
  tile[Dim::kIc] = 4;
  tile[Dim::kKh] = tile[Dim::kKw] = 3;
  const Footprint f = footprint(nest, core_intrinsic(nest.computation), tile);
  EXPECT_EQ(f.input, 6 * 30 * 4);
  EXPECT_EQ(f.weights, 2 * 9 * 4);
  EXPECT_EQ(f.sums, 4 * 28 * 2);
  EXPECT_EQ(f.output, 4 * 28 * 2);
  EXPECT_EQ(f.params, 2);
  EXPECT_EQ(f.second, 0);
}

TEST(Schedule, JsonRoundTrip) {
  const Nest nest = convolution();
  const Schedule schedule = generate(nest, {npu256()});
  const Schedule again = schedule_from_json(to_json(schedule));
  EXPECT_EQ(again, schedule);
  EXPECT_TRUE(evaluate(nest, again, {npu256()}).legal);
}

TEST(Json, LayoutsAreReadAsTheyAreWritten) {
  for (const char* text : {"nhwc", "fold(kw)", "fold(kh,kw)", "fold(kh2,kw)", "fold(kh12,kw)*3", "fold(kw)*4"}) {
    const auto layout = parse_input_layout(text);
    ASSERT_TRUE(layout) << text;
    EXPECT_EQ(to_string(*layout), text);
  }
  for (const char* text : {"", "fold", "fold(kh", "fold(kh0,kw)", "fold(kh1,kw)", "fold(kh02,kw)", "fold(kh-2,kw)",
                           "fold(kh99999999999999999999,kw)", "fold(kh2,kw)*5", "fold(kw)*1"}) {
    EXPECT_FALSE(parse_input_layout(text)) << text;
  }
}

TEST(Schedule, JsonErrorsNameTheKey) {
  const auto message = [](const std::string& text) -> std::string {
    try {
      layer_schedule_from_json(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "";
  };
  const auto with = [](const std::string& levels, const std::string& operands) {
    return R"({"intrinsic":"dense","levels":[)" + levels + R"(],"operands":[)" + operands + "]}";
  };
  EXPECT_NE(message("{").find("no JSON"), std::string::npos);
  EXPECT_NE(message("1").find("not an object"), std::string::npos);
  EXPECT_NE(message("{}").find("'intrinsic' is missing"), std::string::npos);
  EXPECT_NE(
      message(R"({"intrinsic":"gemm"})")
          .find("there is no intrinsic 'gemm'; known: 'dense', 'depthwise', 'map', 'reduce', 'rows'; where a plugin "
                "brings it, load "
                "that plugin with --plugin FILE.so"),
      std::string::npos);
  EXPECT_NE(message(R"({"intrinsic":"dense"})").find("'levels' is missing"), std::string::npos);
  EXPECT_NE(message(R"({"intrinsic":"dense","levels":[],"operands":[],"tile":1})").find("a schedule has no 'tile'"),
            std::string::npos);
  EXPECT_NE(message(R"({"intrinsic":"dense","input_layout":"nchw"})").find("known: nhwc, fold(kw), fold(kh,kw)"),
            std::string::npos);
  EXPECT_NE(message(with(R"({"dim":"x","factor":1,"kind":"temporal"})", "")).find("known: n, g, oc"),
            std::string::npos);
  EXPECT_NE(message(with(R"({"dim":"n","factor":0,"kind":"temporal"})", "")).find("'factor'"), std::string::npos);
  EXPECT_NE(message(with(R"({"dim":"oc","factor":16,"kind":"lane"})", "")).find("known: temporal, vthread, hwloop"),
            std::string::npos);
  EXPECT_NE(message(with(R"({"dim":"n","factor":4,"kind":"temporal","threads":2})", "")).find("kind vthread"),
            std::string::npos);
  EXPECT_NE(message(with("", R"({"operand":"input","layout":"n,h,w"})")).find("an operand has no 'layout'"),
            std::string::npos);
  EXPECT_NE(message(R"({"chain": ["a", "b"]})").find("\"tile\" with oh, ow and blocks"), std::string::npos);
}

TEST(Schedule, JsonOfLists) {
  const Schedule one = generate(convolution(), {npu256()});
  const LayerSchedule two = std::vector<Schedule>{one, one}, alone = std::vector<Schedule>{one},
                      chain = ChainSchedule{{"a", "b"}, {14, 7, 2}},
                      whole = ChainSchedule{{"a", "b"}, {14, 7, 2, true}},
                      folded = ChainSchedule{{"a", "b"}, {14, 7, 2}, InputLayout{true, true, 3}};
  EXPECT_EQ(to_json(alone), to_json(one));
  for (const LayerSchedule& schedule : {two, alone, chain, whole, folded})
    EXPECT_EQ(layer_schedule_from_json(to_json(schedule)), schedule);
  // All iterations of a vthread level run at once where it does not say how many.
  const Schedule open = schedule_from_json(
      R"({"intrinsic":"map","levels":[{"dim":"oh","factor":3,"kind":"vthread"}],"operands":[{"operand":"input"}]})");
  EXPECT_EQ(open.levels[0].threads, 3);
  EXPECT_EQ(open.operands[0].copies, kDerived);
}

TEST(Schedule, IllegalOnesHaveAReason) {
  const Nest nest = convolution();
  const isa::MachineConfig config = npu256();
  const Schedule good = generate(nest, {config});
  const auto reason = [&](const Schedule& schedule) {
    const Evaluation evaluation = evaluate(nest, schedule, {config});
    EXPECT_FALSE(evaluation.legal);
    EXPECT_EQ(evaluation.reason, obstacle(nest, schedule, config));
    return evaluation.reason;
  };
  Schedule bad = good;
  plan_of(bad, Operand::kInput).copies = 1000;
  EXPECT_NE(reason(bad).find("inp needs"), std::string::npos);
  bad = good;
  std::erase_if(bad.operands, [](const OperandPlan& plan) { return plan.operand == Operand::kWeights; });
  EXPECT_EQ(reason(bad), "operand weights is missing");
  bad = good;
  bad.levels.clear();
  EXPECT_NE(reason(bad).find("cover"), std::string::npos);
  bad = good;
  bad.levels.insert(bad.levels.begin(), {Dim::kIc, 2, LevelKind::kTemporal});
  bad.levels.insert(bad.levels.begin() + 1, {Dim::kOh, 2, LevelKind::kTemporal});
  EXPECT_EQ(reason(bad), "temporal reduction levels must be the innermost ones");
  bad = good;
  bad.intrinsic = &find_intrinsic("map");
  EXPECT_EQ(reason(bad), "the intrinsic of this operation is dense, not map");
  bad = good;
  bad.input_layout = {true, true, 2};
  EXPECT_EQ(reason(bad), "input_layout 'fold(kh,kw)*2' is not 'nhwc'");
  bad = good;
  plan_of(bad, Operand::kInput).attach = 17;
  EXPECT_NE(reason(bad).find("input is fetched inside 17 levels, and there are "), std::string::npos);
  bad = good;
  plan_of(bad, Operand::kSums).attach = 0;
  EXPECT_EQ(reason(bad), "sums is not fetched: it has no attach");
  for (const Operand operand : {Operand::kInput, Operand::kWeights, Operand::kOutput}) {
    bad = good;
    plan_of(bad, operand).scope = isa::Space::kAcc;
    EXPECT_EQ(reason(bad),
              std::string(kOperandNames[static_cast<size_t>(operand)]) + " has no choice of scope: leave it out");
  }
  bad = good;
  bad.operands.push_back(bad.operands[0]);
  EXPECT_EQ(reason(bad), "operand input is given twice");
  bad = good;
  bad.operands.push_back({Operand::kSecond, std::nullopt, kDerived, kDerived, Halo::kReload});
  EXPECT_EQ(reason(bad), "this operation has no operand second");
}

/// The convolution in tiles of seven rows of one output block: loops of oc and oh.
Schedule strips(const Nest& nest, bool single = false) {
  Extents tile = nest.extent;
  tile[Dim::kOh] = 7;
  tile[Dim::kOc] = 1;
  return make_schedule(nest, npu256(), tile, {Dim::kOc, Dim::kOh}, single);
}

TEST(Schedule, CopiesFollowFromVirtualThreads) {
  const Nest nest = convolution();
  Schedule schedule = strips(nest);
  for (OperandPlan& plan : schedule.operands) plan.copies = kDerived;
  const auto copies = [&](Operand operand) { return copies_of(nest, schedule, operand); };
  ASSERT_EQ(schedule.levels[1].kind, LevelKind::kVthread);
  schedule.levels[1].threads = 4;
  EXPECT_EQ(copies(Operand::kInput), 4);
  EXPECT_EQ(copies(Operand::kSums), 4);
  EXPECT_EQ(copies(Operand::kOutput), 4);
  EXPECT_EQ(copies(Operand::kWeights), 1);
  schedule.levels[0].kind = LevelKind::kVthread;
  schedule.levels[0].threads = 3;
  EXPECT_EQ(copies(Operand::kWeights), 3);
  EXPECT_EQ(copies(Operand::kSums), 12);
  // Without threads there is one of each.
  schedule.levels[0] = {Dim::kOc, 8, LevelKind::kTemporal};
  schedule.levels[1] = {Dim::kOh, 4, LevelKind::kTemporal};
  for (const OperandPlan& plan : schedule.operands) EXPECT_EQ(copies(plan.operand), 1);
  EXPECT_EQ(obstacle(nest, schedule, npu256()), "");
  plan_of(schedule, Operand::kOutput).copies = 2;
  EXPECT_EQ(obstacle(nest, schedule, npu256()), "output has 2 copies and no level is a vthread: there are 1 then");
  schedule.levels[1].threads = 9;
  schedule.levels[1].kind = LevelKind::kVthread;
  EXPECT_EQ(obstacle(nest, schedule, npu256()),
            "a vthread level of factor 4 runs from 2 to as many iterations at once, not 9");
}

TEST(Schedule, SumsOfThreadsThatTakeTurnsHaveSlotsOfTheirOwn) {
  const Nest nest = convolution();
  Extents tile = nest.extent;
  tile[Dim::kOh] = 7;
  tile[Dim::kIc] = 1;
  Schedule schedule = make_schedule(nest, npu256(), tile, {Dim::kOh, Dim::kIc});
  schedule.levels[0] = {Dim::kOh, 4, LevelKind::kVthread, 2};
  schedule.levels[1] = {Dim::kIc, 4, LevelKind::kTemporal};
  for (OperandPlan& plan : schedule.operands) plan.copies = kDerived;
  for (OperandPlan& plan : schedule.operands) plan.attach = kDerived;
  EXPECT_EQ(copies_of(nest, schedule, Operand::kSums), 2);
  plan_of(schedule, Operand::kSums).copies = 1;
  EXPECT_EQ(obstacle(nest, schedule, npu256()), "sums needs 2 copies: so many threads sum at once");
}

TEST(Schedule, WhatIsFetchedFurtherOutStays) {
  // Loops of oc (8) and oh (4), of eight columns: input tiles come again for each oc.
  Nest nest = convolution();
  nest.extent[Dim::kOw] = nest.input.col_end = 8;
  Schedule schedule = strips(nest);
  OperandPlan& input = plan_of(schedule, Operand::kInput);
  input.copies = kDerived;
  input.attach = 0;
  EXPECT_EQ(kept_tiles(nest, schedule, Operand::kInput, 0), 4);
  EXPECT_EQ(copies_of(nest, schedule, Operand::kInput), 4);
  const int64_t once = evaluate(nest, schedule, {npu256()}).read_bytes;
  input.attach = 2;
  EXPECT_EQ(copies_of(nest, schedule, Operand::kInput), 2);  // two threads
  const int64_t again = evaluate(nest, schedule, {npu256()}).read_bytes;
  EXPECT_EQ(again - once, 7 * (28 + 3 * 2) * 8 * 64);
  input.attach = 0;
  input.copies = 3;
  EXPECT_EQ(obstacle(nest, schedule, npu256()), "input stays inside 0 levels in 4 tiles and has 3 copies");
  // As far out as the copies allow where it is left open.
  input.attach = kDerived;
  EXPECT_EQ(attach_of(nest, schedule, Operand::kInput), 2);
  input.copies = 4;
  EXPECT_EQ(attach_of(nest, schedule, Operand::kInput), 0);
}

TEST(Schedule, InputsOfTheVectorUnitStandInInpOrOut) {
  Nest nest = convolution();
  nest.computation = Computation::kMap;
  nest.extent[Dim::kKh] = nest.extent[Dim::kKw] = nest.extent[Dim::kOc] = nest.extent[Dim::kIc] = 1;
  nest.extent[Dim::kG] = 4;
  nest.in_channels = nest.out_channels = {64, 16, 16};
  nest.pad_top = nest.pad_left = 0;
  nest.convert = false;
  EXPECT_EQ(input_scopes(nest, npu256()), (std::vector<isa::Space>{isa::Space::kInp, isa::Space::kOut}));
  Schedule schedule = generate(nest, {npu256()});
  EXPECT_EQ(schedule.plan(Operand::kInput)->scope, isa::Space::kInp);
  plan_of(schedule, Operand::kInput).scope = isa::Space::kOut;
  plan_of(schedule, Operand::kInput).copies = 10000;
  EXPECT_NE(obstacle(nest, schedule, npu256()).find("out needs"), std::string::npos);
  plan_of(schedule, Operand::kInput).scope = isa::Space::kWgt;
  EXPECT_EQ(obstacle(nest, schedule, npu256()), "the scope of input is inp or out, not wgt");
  isa::MachineConfig narrow = npu256();
  narrow.block_in = 8;
  EXPECT_EQ(input_scopes(nest, narrow).size(), 1U);
}

TEST(Schedule, CanonicalFormIsOne) {
  const Nest nest = convolution();
  const isa::MachineConfig config = npu256();
  const Schedule good = generate(nest, {config});
  Schedule open = good;
  for (OperandPlan& plan : open.operands) {
    plan.copies = static_cast<int>(copies_of(nest, good, plan.operand));
    plan.attach = kDerived;
  }
  EXPECT_NE(open, good);
  EXPECT_EQ(canonical(nest, config, open), good);
  EXPECT_EQ(canonical(nest, config, good), good);
}

TEST(Schedule, InputsKeepRows) {
  // Four tiles of seven rows; all 30 rows of input, border included, in one window.
  Nest nest = convolution();
  const isa::MachineConfig config = isa::find_config("npu1024");
  nest.in_channels = {64, 64, 32};
  nest.out_channels = {128, 128, 32};
  nest.extent[Dim::kIc] = 2;
  nest.extent[Dim::kOc] = 4;
  Extents tile = nest.extent;
  tile[Dim::kOh] = 7;
  const Schedule keep = make_schedule(nest, config, tile, {Dim::kOh}, false, 4),
                 reload = make_schedule(nest, config, tile, {Dim::kOh});
  EXPECT_TRUE(keep.keeps_rows());
  EXPECT_EQ(keep.window_rows(), 28);
  EXPECT_EQ(reload.window_rows(), 7);
  EXPECT_EQ(keep.operands[0].attach, 0);
  EXPECT_EQ(reload.operands[0].attach, copies_of(nest, reload, Operand::kInput) < 4 ? 1 : 0);
  EXPECT_EQ(schedule_from_json(to_json(keep)), keep);
  const Evaluation kept = evaluate(nest, keep, {config}), again = evaluate(nest, reload, {config});
  ASSERT_TRUE(kept.legal) << kept.reason;
  ASSERT_TRUE(again.legal) << again.reason;
  EXPECT_EQ(kept.footprint.input, 30 * 30 * 2);
  EXPECT_EQ(again.footprint.input, 9 * 30 * 2);
  // Six rows of 28 pixels with 64 channels are not fetched twice.
  EXPECT_EQ(again.read_bytes - kept.read_bytes, 6 * 28 * 64);
  const auto reason = [&](const Schedule& schedule) { return evaluate(nest, schedule, {config}).reason; };
  Schedule bad = keep;
  bad.operands[1].halo = Halo::kKeep;
  EXPECT_EQ(reason(bad), "only the input can keep rows");
  tile[Dim::kOw] = 14;
  bad = make_schedule(nest, config, tile, {Dim::kOh, Dim::kOw});
  bad.operands[0].halo = Halo::kKeep;
  EXPECT_EQ(reason(bad), "the input keeps rows where oh is the innermost temporal level that it has");
}

TEST(Schedule, LoopsThatComeBackToTilesOnChipFetchThemOnce) {
  // Two tiles of pixels inside each of two tiles of output channels; four tiles of weights for each pass over the
  // pixels.
  const Nest nest = convolution();
  const isa::MachineConfig config = npu256();
  Extents tile = nest.extent;
  tile[Dim::kOh] = 14;
  tile[Dim::kOw] = 14;
  tile[Dim::kOc] = 4;
  tile[Dim::kIc] = 1;
  Schedule schedule = make_schedule(nest, config, tile, {Dim::kOc, Dim::kOh, Dim::kOw, Dim::kIc});
  const auto bytes = [&](int copies) {
    plan_of(schedule, Operand::kWeights).copies = copies;
    plan_of(schedule, Operand::kWeights).attach = kDerived;
    const Evaluation evaluation = evaluate(nest, schedule, {config});
    EXPECT_TRUE(evaluation.legal) << evaluation.reason;
    return evaluation.read_bytes;
  };
  const int64_t weights = 8 * 4 * 9 * 256;
  EXPECT_EQ(bytes(1) - bytes(4), 3 * weights);
  EXPECT_EQ(bytes(3), bytes(1));
  EXPECT_EQ(bytes(8), bytes(4));
}

TEST(Schedule, OneCopyOfEachOperandOnRequest) {
  const Nest nest = convolution();
  const Schedule single = generate(nest, {npu256()}, {.single = true}), usual = generate(nest, {npu256()});
  EXPECT_FALSE(single.threaded());
  EXPECT_TRUE(usual.threaded());
  for (const OperandPlan& plan : single.operands) EXPECT_EQ(copies_of(nest, single, plan.operand), 1);
  const Evaluation slow = evaluate(nest, single, {npu256()}), fast = evaluate(nest, usual, {npu256()});
  EXPECT_TRUE(slow.legal);
  EXPECT_GT(slow.cycles, fast.cycles);
}

template <typename Read>
std::string text_error(const std::string& text, Read&& read) {
  text::Reader reader(text, "f");
  try {
    read(reader);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(Text, NestsPrintAndParse) {
  Nest folded = convolution();
  folded.layout = {true, true, 2};
  folded.second = folded.output;
  folded.second.broadcast_c = true;
  folded.second.is_unsigned = true;
  folded.pad_value = 200;
  for (const Nest& nest : {convolution(), product(), folded}) {
    const std::string text = to_text(nest);
    text::Reader reader(text);
    EXPECT_EQ(read_nest(reader), nest) << text;
    EXPECT_TRUE(reader.at_end());
  }
  EXPECT_EQ(to_text(convolution()).substr(0, 67),
            "nest dense extent={oc=8 oh=28 ow=28 ic=4 kh=3 kw=3} in={total=64 ch");
  const auto error = [](const Nest& nest) {
    return text_error(to_text(nest), [](text::Reader& reader) { read_nest(reader); });
  };
  Nest bad = convolution();
  bad.extent[Dim::kOc] = 7;
  EXPECT_EQ(error(bad), "f:1:1: oc is not the blocks of a chunk of output channels");
  bad = convolution();
  bad.computation = Computation::kMap;
  EXPECT_EQ(error(bad), "f:1:1: ic is of dense nests");
  EXPECT_EQ(text_error("nest dens", [](text::Reader& reader) { read_nest(reader); }),
            "f:1:6: unknown computation 'dens'; known: dense, depthwise, reduce, map, rows");
}

TEST(Text, SchedulesPrintAndParse) {
  const Nest nest = convolution();
  Schedule odd = generate(nest, {npu256()});
  odd.input_layout = {true, true, 3};
  odd.operands[0].scope = isa::Space::kOut;
  odd.operands[0].halo = Halo::kKeep;
  odd.operands[1].copies = 5;
  odd.operands[1].attach = kDerived;
  const LayerSchedule both = std::vector<Schedule>{odd, generate(product(), {npu256()})},
                      chain = ChainSchedule{{"a \"b\"", "c"}, {14, 7, 2}},
                      whole = ChainSchedule{{"a", "c"}, {14, 7, 2, true}},
                      folded = ChainSchedule{{"a", "c"}, {14, 7, 2}, InputLayout{true, true, 3}};
  for (const LayerSchedule& schedule : {both, chain, whole, folded}) {
    const std::string text = to_text(schedule);
    text::Reader reader(text);
    EXPECT_EQ(read_layer_schedule(reader), schedule) << text;
    EXPECT_TRUE(reader.at_end());
  }
  Schedule small;
  small.intrinsic = &core_intrinsic(Computation::kDense);
  small.levels = {{Dim::kOc, 2, LevelKind::kTemporal},
                  {Dim::kOh, 14, LevelKind::kVthread, 2},
                  {Dim::kOh, 4, LevelKind::kHwloop},
                  {Dim::kOw, 56, LevelKind::kHwloop}};
  small.operands = {{Operand::kInput, std::nullopt, 1, 3, Halo::kKeep},
                    {Operand::kSums, std::nullopt, kDerived, kDerived, Halo::kReload}};
  const std::string text =
      "schedule dense {\n  temporal oc 2\n  vthread oh 14 x2\n  tile oh=4 ow=56\n  input attach=1 copies=3 "
      "halo=keep\n  sums\n}\n";
  EXPECT_EQ(to_text(small), text);
  const auto error = [](const std::string& body) {
    return text_error("schedule dense {" + body + "}", [](text::Reader& reader) { read_schedule(reader); });
  };
  EXPECT_EQ(error("vthread oh 4 x5"), "f:1:30: a vthread level of factor 4 runs from 2 to as many iterations at once");
  EXPECT_EQ(error("vthread oh 4 5"), "f:1:30: expected a word, found '5'");
  EXPECT_EQ(error("tile oh=4 temporal oh 2"), "f:1:27: a level around the tile stands before it");
  EXPECT_EQ(
      error("lane oc 16"),
      "f:1:17: unknown line 'lane'; known: temporal, vthread, tile, input, weights, sums, second, output, params");
  EXPECT_EQ(error("input layout=3"), "f:1:23: unknown field 'layout'");
  EXPECT_EQ(error("input input"), "f:1:23: operand input is given twice");
}

/// Judges by DRAM bytes alone.
class BytesOnly : public CostModel {
 public:
  explicit BytesOnly(const Machine& machine) : closed_form_(make_cost_model("closed-form", machine)) {}
  Cost cost(const Subject& subject, const Schedule& schedule) override {
    return {closed_form_->cost(subject, schedule).bytes, 0, 0};
  }
  Cost cost(const Subject& subject, const ChainPlan& plan) override {
    return {closed_form_->cost(subject, plan).bytes, 0, 0};
  }

 private:
  std::unique_ptr<CostModel> closed_form_;
};

/// Looks at single pixels alone.
class Pixels : public Searcher {
 public:
  std::vector<Ranked<Schedule>> schedules(const Subject& subject, const Machine& machine, CostModel& model,
                                          const Goal& goal, size_t) override {
    const Nest& nest = *subject.nests.front();
    Extents tile = nest.extent;
    tile[Dim::kOh] = tile[Dim::kOw] = 1;
    Ranked<Schedule> only;
    only.plan = make_schedule(nest, machine.config, tile, {Dim::kOh, Dim::kOw}, goal.single);
    only.cost = model.cost(subject, only.plan);
    only.score = goal.score(only.cost, machine.config);
    return {only};
  }
  std::vector<Ranked<ChainPlan>> chains(const Subject&, const Machine&, CostModel&, const Goal&, size_t) override {
    return {};
  }
};

const RegisterCostModel kBytesOnly("test-bytes", "DRAM bytes",
                                   [](const Machine& machine) { return std::make_unique<BytesOnly>(machine); });
const RegisterSearcher kPixels("test-pixels", "one pixel", [] { return std::make_unique<Pixels>(); });

TEST(Registry, ModelsAndSearchersComeByName) {
  const Nest nest = convolution();
  const Machine machine{npu256()};
  const Subject subject{{&nest}, nullptr};
  const auto bytes = make_cost_model("test-bytes", machine), usual = make_cost_model("closed-form", machine);
  const auto exhaustive = make_searcher("exhaustive");
  const auto least = exhaustive->schedules(subject, machine, *bytes, {}, 5),
             fastest = exhaustive->schedules(subject, machine, *usual, {}, 5);
  EXPECT_EQ(least.front().cost.cycles, usual->cost(subject, least.front().plan).bytes);
  EXPECT_LE(least.front().cost.cycles, fastest.front().cost.bytes);
  EXPECT_LE(fastest.front().score, Goal().score(usual->cost(subject, least.front().plan), machine.config));
  for (size_t i = 1; i < fastest.size(); ++i) EXPECT_LE(fastest[i - 1].score, fastest[i].score);
  const auto pixel = make_searcher("test-pixels")->schedules(subject, machine, *usual, {}, 5);
  ASSERT_EQ(pixel.size(), 1U);
  EXPECT_EQ(pixel.front().plan.tile()[Dim::kOw], 1);
  const auto message = [](const auto& make) -> std::string {
    try {
      make();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message([&] { make_cost_model("guess", machine); }),
            "there is no cost model 'guess'; known: 'closed-form', 'test-bytes'");
  EXPECT_EQ(message([] { make_searcher("luck"); }), "there is no searcher 'luck'; known: 'exhaustive', 'test-pixels'");
  EXPECT_EQ(message([] { searchers().add("exhaustive", "", nullptr); }),
            "a searcher 'exhaustive' is registered already");
}

TEST(ClosedForm, KnowsTheMemory) {
  const Nest nest = convolution();
  const Schedule schedule = generate(nest, {npu256()});
  const Evaluation usual = evaluate(nest, schedule, {npu256()}), far = evaluate(nest, schedule, {npu256(), 500}),
                   narrow = evaluate(nest, schedule, {npu256(), 100, 1});
  EXPECT_EQ(far.cycles - usual.cycles, 2 * 400);
  EXPECT_EQ(far.read_bytes, usual.read_bytes);
  EXPECT_GT(narrow.cycles, usual.read_bytes + usual.write_bytes);  // a byte a cycle
}

TEST(Schedule, GeneratorIsLegalAndDeterministic) {
  std::mt19937 random(5);
  const auto pick = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  isa::MachineConfig tiny = npu256();
  tiny.inp_bytes = 64 * 16;
  tiny.wgt_bytes = 16 * 256;
  tiny.acc_bytes = 16 * 64;
  tiny.out_bytes = 16 * 16;
  for (int i = 0; i < 60; ++i) {
    Nest nest = convolution();
    nest.extent[Dim::kOh] = pick(1, 60);
    nest.extent[Dim::kOw] = pick(1, 200);
    nest.extent[Dim::kKh] = pick(1, 7);
    nest.extent[Dim::kKw] = pick(1, 7);
    nest.stride_h = pick(1, 3);
    nest.stride_w = pick(1, 3);
    nest.extent[Dim::kOc] = pick(1, 40);
    nest.extent[Dim::kIc] = pick(1, 140);
    nest.in_channels.total = nest.in_channels.chunk = 16 * nest.extent[Dim::kIc];
    nest.out_channels.total = nest.out_channels.chunk = 16 * nest.extent[Dim::kOc];
    for (const isa::MachineConfig& config : {npu256(), tiny}) {
      const Schedule schedule = generate(nest, {config});
      const Evaluation evaluation = evaluate(nest, schedule, {config});
      EXPECT_TRUE(evaluation.legal) << evaluation.reason;
      EXPECT_EQ(generate(nest, {config}), schedule);
      const int64_t macs = nest.extent[Dim::kOh] * nest.extent[Dim::kOw] * nest.extent[Dim::kKh] *
                           nest.extent[Dim::kKw] * nest.extent[Dim::kOc] * nest.extent[Dim::kIc];
      EXPECT_GE(evaluation.cycles, macs);  // one block product a cycle
    }
  }
}

TEST(Schedule, WellKnownConvolutionIsComputeBound) {
  const Nest nest = convolution();
  const Evaluation evaluation = evaluate(nest, generate(nest, {npu256()}), {npu256()});
  EXPECT_LT(evaluation.cycles, 28 * 28 * 9 * 4 * 8 * 12 / 10);
}

TEST(Schedule, DoesNotFitSaysWhat) {
  isa::MachineConfig config = npu256();
  config.param_bytes = config.param_entry_bytes();
  Nest nest = convolution();
  nest.second = nest.output;  // needs an entry of constants beside the parameters
  try {
    generate(nest, {config});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit);
    EXPECT_NE(std::string(error.what()).find("param needs 2 entries of 1"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("--no-npu"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tessera::schedule
