// SPDX-License-Identifier: Apache-2.0
// Spans, footprints, legality and its reasons, the JSON form, and the generator over many nests and machines.
#include "compiler/schedule/schedule.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"

namespace tessera::schedule {
namespace {

isa::MachineConfig npu256() { return isa::find_config("npu256"); }

/// 64 -> 128 channels, 3x3, stride 1, pad 1, on 28x28.
Nest convolution() {
  Nest nest;
  nest.intrinsic = Intrinsic::kDense;
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
  nest.intrinsic = Intrinsic::kDense;
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
  EXPECT_EQ(footprint(nest, tile, npu256()).weights, 3 * 7 * 5);
  EXPECT_EQ(factor_traffic(nest, tile).bytes, 3 * 100 * 72);
  EXPECT_EQ(factor_traffic(nest, tile).runs, 3 * 100 * 5);
  nest.factor.pitch_k = 100, nest.factor.pitch_column = 1;
  EXPECT_EQ(factor_traffic(nest, tile).runs, 3 * 100 * 72);
  nest.factor.pitch_h = 0;  // one matrix for all
  EXPECT_FALSE(indexes(nest, Operand::kWeights, Dim::kOh));
  EXPECT_EQ(footprint(nest, tile, npu256()).weights, 7 * 5);
  EXPECT_EQ(factor_traffic(nest, tile).bytes, 100 * 72);
}

TEST(Product, SchedulesAreGeneratedJudgedAndWritten) {
  const Nest nest = product();
  for (const char* name : {"npu64", "npu256", "npu1024"}) {
    const isa::MachineConfig config = isa::find_config(name);
    Nest own = nest;
    own.in_channels.lanes = config.block_in, own.out_channels.lanes = config.block_out;
    own.extent[Dim::kIc] = own.in_channels.blocks(), own.extent[Dim::kOc] = own.out_channels.blocks();
    const Schedule schedule = generate(own, config);
    EXPECT_EQ(from_json(to_json(schedule)), schedule);
    const Evaluation evaluation = evaluate(own, schedule, config);
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
  EXPECT_TRUE(evaluate(nest, schedule, npu256()).legal);
  for (OperandPlan& plan : schedule.operands) {
    if (plan.operand == Operand::kWeights) plan.copies = 3;
  }
  EXPECT_NE(evaluate(nest, schedule, npu256()).reason.find("wgt needs 1260 entries of 1024"), std::string::npos);
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

TEST(Footprint, OfATile) {
  const Nest nest = convolution();
  Extents tile;
  tile[Dim::kOh] = 4;
  tile[Dim::kOw] = 28;
  tile[Dim::kOc] = 2;
  tile[Dim::kIc] = 4;
  tile[Dim::kKh] = tile[Dim::kKw] = 3;
  const Footprint f = footprint(nest, tile, npu256());
  EXPECT_EQ(f.input, 6 * 30 * 4);
  EXPECT_EQ(f.weights, 2 * 9 * 4);
  EXPECT_EQ(f.sums, 4 * 28 * 2);
  EXPECT_EQ(f.output, 4 * 28 * 2);
  EXPECT_EQ(f.params, 2);
  EXPECT_EQ(f.second, 0);
}

TEST(Schedule, JsonRoundTrip) {
  const Nest nest = convolution();
  const Schedule schedule = generate(nest, npu256());
  const Schedule again = from_json(to_json(schedule));
  EXPECT_EQ(again, schedule);
  EXPECT_TRUE(evaluate(nest, again, npu256()).legal);
}

TEST(Schedule, JsonErrorsNameTheKey) {
  const auto message = [](const std::string& text) -> std::string {
    try {
      from_json(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message("{").find("no JSON"), std::string::npos);
  EXPECT_NE(message("[]").find("not an object"), std::string::npos);
  EXPECT_NE(message("{}").find("'levels' is missing"), std::string::npos);
  EXPECT_NE(message(R"({"levels":[{"dim":"x","factor":1,"kind":"temporal"}],"operands":[]})").find("known: n, g, oc"),
            std::string::npos);
  EXPECT_NE(message(R"({"levels":[{"dim":"n","factor":0,"kind":"temporal"}],"operands":[]})").find("'factor'"),
            std::string::npos);
}

TEST(Schedule, IllegalOnesHaveAReason) {
  const Nest nest = convolution();
  const isa::MachineConfig config = npu256();
  const Schedule good = generate(nest, config);
  const auto reason = [&](const Schedule& schedule) {
    const Evaluation evaluation = evaluate(nest, schedule, config);
    EXPECT_FALSE(evaluation.legal);
    return evaluation.reason;
  };
  Schedule bad = good;
  for (OperandPlan& plan : bad.operands) {
    if (plan.operand == Operand::kInput) plan.copies = 1000;
  }
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
  bad.levels.insert(bad.levels.begin(), {Dim::kOh, 7, LevelKind::kVthread});
  for (OperandPlan& plan : bad.operands) {
    if (plan.operand == Operand::kOutput) plan.copies = 1;
  }
  EXPECT_NE(reason(bad).find("a vthread level of 7 needs as many copies"), std::string::npos);
}

TEST(Schedule, WhatFollowsFromLevelsMayBeLeftOut) {
  const Nest nest = convolution();
  const isa::MachineConfig config = npu256();
  const Schedule good = generate(nest, config);
  Schedule open = good;
  std::erase_if(open.levels, [](const Level& level) { return level.kind == LevelKind::kLane; });
  for (OperandPlan& plan : open.operands) {
    plan.attach = kDerived;
    plan.layout.clear();
  }
  EXPECT_EQ(complete(nest, config, open), "");
  EXPECT_EQ(open, good);
  const auto reason = [&](Schedule schedule) { return complete(nest, config, schedule); };
  Schedule bad = good;
  bad.levels.back().factor = 8;
  EXPECT_EQ(reason(bad), "lane levels follow from the machine: they are oc 16 ic 16");
  bad = good;
  bad.operands[0].attach += 1;
  EXPECT_NE(reason(bad).find("input is fetched inside"), std::string::npos);
  bad = good;
  bad.operands[0].scope = isa::Space::kWgt;
  EXPECT_EQ(reason(bad), "the scope of input is inp");
  bad = good;
  bad.operands[0].layout = "n,c,h,w";
  EXPECT_EQ(reason(bad), "the layout of input is n,h,w,g,ic");
  bad = good;
  bad.operands.push_back(bad.operands[0]);
  EXPECT_EQ(reason(bad), "operand input is given twice");
  bad = good;
  bad.operands.push_back({Operand::kSecond, isa::Space::kOut, 0, 1, Halo::kReload, ""});
  EXPECT_EQ(reason(bad), "this operation has no operand second");
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
  EXPECT_EQ(reload.operands[0].attach, 1);
  EXPECT_EQ(from_json(to_json(keep)), keep);
  Schedule copy = keep;
  EXPECT_EQ(complete(nest, config, copy), "");
  const Evaluation kept = evaluate(nest, keep, config), again = evaluate(nest, reload, config);
  ASSERT_TRUE(kept.legal) << kept.reason;
  ASSERT_TRUE(again.legal) << again.reason;
  EXPECT_EQ(kept.footprint.input, 30 * 30 * 2);
  EXPECT_EQ(again.footprint.input, 9 * 30 * 2);
  // Six rows of 28 pixels with 64 channels are not fetched twice.
  EXPECT_EQ(again.read_bytes - kept.read_bytes, 6 * 28 * 64);
  const auto reason = [&](const Schedule& schedule) { return evaluate(nest, schedule, config).reason; };
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
    for (OperandPlan& plan : schedule.operands) {
      if (plan.operand == Operand::kWeights) plan.copies = copies;
    }
    const Evaluation evaluation = evaluate(nest, schedule, config);
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
  const Schedule single = generate(nest, npu256(), {.single = true}), usual = generate(nest, npu256());
  for (const OperandPlan& plan : single.operands) EXPECT_EQ(plan.copies, 1);
  const Evaluation slow = evaluate(nest, single, npu256()), fast = evaluate(nest, usual, npu256());
  EXPECT_TRUE(slow.legal);
  EXPECT_GT(slow.cycles, fast.cycles);
}

TEST(Schedule, ListsOfSchedules) {
  const std::string one = to_json(generate(convolution(), npu256()));
  EXPECT_EQ(join_json({one}), one);
  EXPECT_EQ(split_json(one), std::vector<std::string>{one});
  const std::vector<std::string> parts = split_json(join_json({one, one}));
  ASSERT_EQ(parts.size(), 2U);
  for (const std::string& part : parts) EXPECT_EQ(from_json(part), from_json(one));
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
      const Schedule schedule = generate(nest, config);
      const Evaluation evaluation = evaluate(nest, schedule, config);
      EXPECT_TRUE(evaluation.legal) << evaluation.reason;
      EXPECT_EQ(generate(nest, config), schedule);
      const int64_t macs = nest.extent[Dim::kOh] * nest.extent[Dim::kOw] * nest.extent[Dim::kKh] *
                           nest.extent[Dim::kKw] * nest.extent[Dim::kOc] * nest.extent[Dim::kIc];
      EXPECT_GE(evaluation.cycles, macs);  // one block product a cycle
    }
  }
}

TEST(Schedule, WellKnownConvolutionIsComputeBound) {
  const Nest nest = convolution();
  const Evaluation evaluation = evaluate(nest, generate(nest, npu256()), npu256());
  EXPECT_LT(evaluation.cycles, 28 * 28 * 9 * 4 * 8 * 12 / 10);
}

TEST(Schedule, DoesNotFitSaysWhat) {
  isa::MachineConfig config = npu256();
  config.param_bytes = config.param_entry_bytes();
  Nest nest = convolution();
  nest.second = nest.output;  // needs an entry of constants beside the parameters
  try {
    generate(nest, config);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit);
    EXPECT_NE(std::string(error.what()).find("param needs 2 entries of 1"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tessera::schedule
