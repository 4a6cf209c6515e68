// SPDX-License-Identifier: Apache-2.0
// Durations against closed forms worked out by hand, and predictions of small programs against isa/timing.md and the
// timing model's facts: what overlaps, what waits, what the bus shares.
#include <gtest/gtest.h>

#include "compiler/emit/duration.h"
#include "compiler/emit/predict.h"
#include "compiler/emit/predict_chip.h"
#include "isa/config.h"
#include "isa/generated/timing.h"
#include "isa/raster.h"

namespace tessera::emit {
namespace {

isa::Gemm gemm(std::array<uint16_t, isa::kLoops> extent, int reduce) {
  isa::Gemm g;
  for (size_t k = 0; k < extent.size(); ++k) g.extent[k] = extent[k];
  g.reduce = static_cast<uint8_t>(reduce);
  return g;
}

isa::Load load(uint32_t sp, uint64_t dram, uint16_t length, uint16_t runs, int32_t dram_stride, int32_t sp_stride) {
  isa::Load l;
  for (auto& e : l.extent) e = 1;
  l.extent[isa::kTransferLoops - 1] = runs;
  l.sp_addr = sp;
  l.dram_offset = dram;
  l.length = length;
  l.dram_stride[isa::kTransferLoops - 1] = dram_stride;
  l.sp_stride[isa::kTransferLoops - 1] = sp_stride;
  return l;
}

isa::Header waits(isa::Engine engine, uint16_t count, bool signal) {
  isa::Header header;
  header.waits[0] = {true, engine, count};
  header.signal = signal;
  return header;
}

TEST(Duration, PaddingOfALoad) {
  const isa::MachineConfig config = isa::find_config("npu256");
  isa::Load l = load(0, 0, 16, 1, 0, 0);  // entries of two groups
  l.extent = {9, 8, 1, 1};                // seven rows of six pixels
  l.pad_before = {1, 1};
  l.pad_after = {1, 1};
  l.dram_stride = {600, 96, 0, 0};
  l.sp_stride = {8 * 16, 16, 0, 0};
  const Duration d = duration(l, config);
  EXPECT_EQ(d.beats, 7 * 6 * 2);
  EXPECT_EQ(d.engine, 9 * 8 * 2);
  EXPECT_EQ(d.border.ahead, (8 + 1) * 2);
  EXPECT_EQ(d.border.ahead_steps, 8 + 1);
  EXPECT_EQ(d.border.behind, (8 + 1) * 2);
  EXPECT_EQ(d.border.between, 2 * 2);
  EXPECT_EQ(d.border.gaps, 6);
  EXPECT_EQ(d.border.row_steps, 8);
  EXPECT_EQ(d.border.row_groups, 8 * 2);
  l.fill = true;  // nothing but padding
  l.pad_before = l.pad_after = {0, 0};
  EXPECT_EQ(duration(l, config).border.ahead, 0);
  EXPECT_EQ(duration(l, config).waiting, 0);
}

TEST(Duration, DenseProductsAreOneCycleEach) {
  const isa::MachineConfig config = isa::find_config("npu256");
  const Duration d = duration(gemm({2, 3, 4, 5, 3, 3}, 3), config);
  EXPECT_EQ(d.engine, 2 * 3 * 4 * 5 * 3 * 3);
  EXPECT_EQ(d.outputs, 2 * 3 * 4);
}

TEST(Duration, DepthwiseRastersCountInputVectors) {
  isa::Gemm g = gemm({1, 2, 7, 9, 3, 3}, 2);  // two blocks, 7 rows, 9 columns, 3x3
  g.mode = isa::GemmMode::kDepthwise;
  g.inp_stride = {0, 1, 22, 2, 22, 2};  // rows of 11 pixels of two blocks
  g.wgt_stride = {0, 1, 0, 0, 0, 0};
  EXPECT_EQ(isa::gemm_steps(g, 0), 2 * 9 * 11);
  g.inp_stride = {0, 1, 76, 4, 38, 2};  // stride 2: 15 rows of 19
  EXPECT_EQ(isa::gemm_steps(g, 0), 2 * 15 * 19);
  g.inp_stride = {0, 1, 22, 6, 22, 2};  // stride 3 along a row: rows are no raster, taps are
  EXPECT_EQ(isa::gemm_steps(g, 0), 2 * 7 * 9 * 9);
  g.wgt_stride[3] = 1;  // the weight moves with the column
  EXPECT_EQ(isa::gemm_steps(g, 0), 2 * 7 * 9 * 9);
}

TEST(Duration, DepthwiseRastersTakeVectorsInPairs) {
  isa::Gemm g = gemm({1, 2, 7, 9, 3, 3}, 2);
  g.mode = isa::GemmMode::kDepthwise;
  g.inp_stride = {0, 99, 11, 1, 11, 1};  // each block in rows of 11 pixels
  g.wgt_stride = {0, 1, 0, 0, 0, 0};
  EXPECT_EQ(isa::gemm_steps(g, 1), 2 * (2 * 6 + 7 * 10));
  g.inp_stride = {0, 285, 38, 2, 19, 1};  // stride 2: 15 rows of 19
  EXPECT_EQ(isa::gemm_steps(g, 1), 2 * 15 * 10);
  g.inp_stride = {0, 1, 22, 2, 22, 2};  // two blocks in a pixel: neighbours do not stand side by side
  EXPECT_EQ(isa::gemm_steps(g, 1), 2 * 9 * 11);
}

TEST(Duration, DepthwiseRastersTakeTwoRowsAtOnce) {
  isa::Gemm g = gemm({1, 2, 7, 9, 3, 3}, 2);  // two blocks, 7 rows, 9 columns, 3x3, stride 2
  g.mode = isa::GemmMode::kDepthwise;
  g.inp_addr = 5;
  g.inp_stride = {0, 330, 44, 2, 22, 1};
  g.wgt_stride = {0, 1, 0, 0, 0, 0};
  EXPECT_EQ(isa::gemm_steps(g, 2), 2 * 8 * 10);
  EXPECT_EQ(isa::gemm_steps(g, 1), 2 * 15 * 10);
  isa::Gemm other = g;
  other.inp_addr = 4;
  EXPECT_EQ(isa::gemm_steps(other, 2), 2 * 15 * 10);
  other = g;
  other.inp_stride[1] = 331;  // the second block begins at an even entry
  EXPECT_EQ(isa::gemm_steps(other, 2), 2 * 15 * 10);
  other = g;
  other.inp_stride = {0, 330, 48, 2, 24, 1};  // rows stand in the same memories
  EXPECT_EQ(isa::gemm_steps(other, 2), 2 * 15 * 10);
}

TEST(Duration, RunsThatContinueEachOtherJoin) {
  const isa::MachineConfig config = isa::find_config("npu256");
  const Duration joined = duration(load(0, 0, 16, 64, 16, 16), config);
  EXPECT_EQ(joined.beats, 128);
  EXPECT_EQ(joined.bursts, 1);
  const Duration strided = duration(load(0, 0, 16, 64, 32, 16), config);
  EXPECT_EQ(strided.beats, 128);
  EXPECT_EQ(strided.bursts, 64);
  // 9 bytes from every sixth: two beats and two groups each. A run that begins in the last beat of the run before takes
  // it from there; of four runs one does not, and the realigner turns for it unless it begins with a beat.
  const Duration ragged = duration(load(0, 0, 9, 64, 6, 16), config);
  EXPECT_EQ(ragged.beats, 2 * 17 + 47);
  EXPECT_EQ(ragged.engine, 64 * 2 + 16);
}

TEST(Duration, PackedEntriesTakeTheirBeats) {
  isa::MachineConfig config = isa::find_config("npu256");
  config.packed_weights = 1;
  isa::Load l = load(512, 0, 8 + 128, 64, 8 + 128, 256);
  l.packed = true;
  l.space = isa::Space::kWgt;
  const Duration joined = duration(l, config);
  EXPECT_EQ(joined.beats, 64 * 17);
  EXPECT_EQ(joined.engine, 64 * 17 + 1);
  EXPECT_EQ(joined.bursts, 9);
  l.sp_stride[isa::kTransferLoops - 1] = 512;  // every second entry, requested together
  const Duration apart = duration(l, config);
  EXPECT_EQ(apart.beats, 64 * 17);
  EXPECT_EQ(apart.engine, 64 * 17);
  EXPECT_EQ(apart.runs, 64);
  EXPECT_EQ(apart.bursts, 5);
}

TEST(Predict, CoresAwaitPublications) {
  isa::MachineConfig config = isa::find_config("npu256");
  config.cores = 2;
  isa::Fence publish;
  publish.engine = isa::Engine::kStore;
  publish.publish = true;
  publish.header = waits(isa::Engine::kLoad, 1, false);
  isa::Load first = load(0, 0, 1024, 8, 1024, 1024);
  first.header.signal = true;
  const std::vector<isa::Instruction> makes = {first, publish, isa::Finish{}};
  isa::Fence await;
  await.engine = isa::Engine::kLoad;
  await.await = true;
  await.await_core = 0;
  await.await_count = 1;
  const std::vector<isa::Instruction> takes = {await, load(0, 0, 1024, 1, 0, 0), isa::Finish{}};
  const std::vector<uint32_t> tags = {0, 0, 0};
  WorkPool pool;
  const Works of_makes = pool.add(makes, config), of_takes = pool.add(takes, config);
  const auto both = [&](const std::vector<isa::Instruction>& other, const Works& works) {
    const std::vector<CoreStream> cores = {{makes, tags, of_makes}, {other, tags, works}};
    return predict(cores, 1, config, {}, config.memory_bytes());
  };
  const std::vector<Prediction> cores = both(takes, of_takes);
  // 1024 beats and the program's words before; then an address, a latency of 100 and 128 beats.
  EXPECT_NEAR(static_cast<double>(cores[1].cycles - cores[0].cycles), 110 + 128, 20);
  EXPECT_EQ(cores[1].layer_cycles[0], cores[1].cycles);
  const std::vector<isa::Instruction> free = {takes[1], isa::Finish{}};
  EXPECT_LT(both(free, pool.add(free, config))[1].cycles, cores[0].cycles + 128);
}

/// Cycles of four cores that each load so many runs at the same time.
int64_t four_at_once(int memory_bytes, int64_t run, int64_t stride, int64_t runs) {
  isa::MachineConfig config = isa::find_config("npu256");
  config.cores = 4;
  config.memory_axi_bytes = memory_bytes;
  const std::vector<isa::Instruction> program = {load(0, 0, run, runs, stride, 16), isa::Finish{}};
  const std::vector<uint32_t> tags = {0, 0};
  WorkPool pool;
  const Works works = pool.add(program, config);
  const std::vector<CoreStream> cores(4, {program, tags, works});
  return predict(cores, 1, config, {}, config.memory_bytes())[3].cycles;
}

TEST(Predict, CoresShareTheBus) {
  // 32768 bytes of each core on a bus that brings all of them at once, and on one of a quarter of that.
  const int64_t start = 108 + 10 + 110;
  const int64_t wide = four_at_once(32, 1024, 1024, 32), narrow = four_at_once(8, 1024, 1024, 32);
  EXPECT_NEAR(static_cast<double>(narrow), start + 4 * 4096, 800);
  EXPECT_LT(2 * wide, narrow);
  EXPECT_GE(wide, start + 4096);
  // Each pixel of eight bytes that is a burst takes a place of the 64 that memory answers in its latency.
  EXPECT_GT(four_at_once(32, 8, 64, 256), start + 4 * 256 * 100 / 64);
}

TEST(Predict, ALoneLoad) {
  const isa::MachineConfig config = isa::find_config("npu256");
  const std::vector<isa::Instruction> program = {load(0, 0, 1024, 1, 0, 0), isa::Finish{}};
  const std::vector<uint32_t> tags = {0, 0};
  const Prediction p = predict(program, tags, 1, config);
  // Fetched in 108, taken then, data 110 cycles later, 128 beats.
  EXPECT_NEAR(static_cast<double>(p.cycles), 108 + 10 + 110 + 128, 20);
  EXPECT_EQ(p.layer_cycles[0], p.cycles);
}

TEST(Predict, EnginesOverlapUnlessTheyWait) {
  const isa::MachineConfig config = isa::find_config("npu256");
  isa::Gemm product = gemm({1, 1, 1, 1, 1, 4000}, 1);
  isa::Alu stage;
  for (auto& e : stage.extent) e = 1;
  stage.extent[5] = 3000;
  const std::vector<uint32_t> tags = {0, 1, 1};
  const Prediction beside = predict(std::vector<isa::Instruction>{product, stage, isa::Finish{}}, tags, 2, config);
  EXPECT_NEAR(static_cast<double>(beside.cycles), 4000, 250);
  product.header.signal = true;
  stage.header = waits(isa::Engine::kGemm, 1, false);
  const Prediction behind = predict(std::vector<isa::Instruction>{product, stage, isa::Finish{}}, tags, 2, config);
  EXPECT_NEAR(static_cast<double>(behind.cycles), 7000, 250);
  EXPECT_NEAR(static_cast<double>(behind.layer_cycles[1]), 3000, 50);
  EXPECT_EQ(behind.layer_cycles[0] + behind.layer_cycles[1], behind.cycles);
}

isa::Store runs_of_out(int runs, int length, int dram_stride, int sp_stride) {
  isa::Store store;
  for (auto& e : store.extent) e = 1;
  constexpr size_t kInner = isa::kTransferLoops - 1;
  store.extent[kInner] = static_cast<uint16_t>(runs);
  store.length = static_cast<uint16_t>(length);
  store.dram_stride[kInner] = dram_stride;
  store.sp_stride[kInner] = sp_stride;
  store.space = isa::Space::kOut;
  return store;
}

// What FETCH reads takes places of LOAD's bursts: a place for 110 cycles each.
TEST(Predict, WordsOfTheProgramTakePlaces) {
  isa::MachineConfig config = isa::find_config("npu256");
  config.reads_in_flight = 4;
  const auto cycles = [&](int products) {
    std::vector<isa::Instruction> program(1, load(0, 1 << 16, 8, 40, 24, 0));
    for (int n = 0; n < 20; ++n) {
      for (int k = 0; k < products; ++k) program.emplace_back(gemm({1, 1, 1, 1, 1, 1}, 1));
      program.push_back(program.front());
    }
    program.emplace_back(isa::Finish{});
    return predict(program, std::vector<uint32_t>(program.size(), 0), 1, config).cycles;
  };
  EXPECT_NEAR(static_cast<double>(cycles(20) - cycles(0)), 20 * 20 * 110 / 4.0, 2000);
}

TEST(Predict, LoadAndStoreShareTheBus) {
  const isa::MachineConfig config = isa::find_config("npu256");
  const isa::Store store = runs_of_out(4, 8192, 8192, 8192);
  const isa::Load whole = load(0, 1 << 20, 8192, 4, 8192, 8192);
  const Prediction both =
      predict(std::vector<isa::Instruction>{whole, store, isa::Finish{}}, std::vector<uint32_t>{0, 0, 0}, 1, config);
  EXPECT_NEAR(static_cast<double>(both.cycles), 2 * 4096, 500);
}

// LOAD holds the bus while the vector unit writes INP in its place, and no answer to a run of STORE comes meanwhile.
TEST(Predict, ShortRunsOfStoreWaitWhereLoadHoldsTheBus) {
  const isa::MachineConfig config = isa::find_config("npu256");
  const isa::Store store = runs_of_out(200, 8, 64, 16);
  isa::Alu stage;
  for (auto& e : stage.extent) e = 1;
  stage.extent[5] = 1500;
  stage.dst_stride[5] = 1;
  stage.convert = true;
  const auto cycles = [&](isa::AluSpace written) {
    stage.dst = written;
    const std::vector<isa::Instruction> program = {stage, load(0, 1 << 20, 2048, 1, 0, 0), store, store, isa::Finish{}};
    return predict(program, std::vector<uint32_t>(5, 0), 1, config).cycles;
  };
  const int64_t beside = cycles(isa::AluSpace::kOut), held = cycles(isa::AluSpace::kInp);
  EXPECT_GT(held, beside + 300);
  EXPECT_LT(held, beside + 1500);
}

// The shares of a lone instruction that stages of the machine have.
TEST(Predict, DepthsAreThoseOfTheMachinesTable) {
  const isa::MachineConfig config = isa::find_config("npu64");
  const auto cycles = [&](const isa::Instruction& alone) {
    return predict(std::vector<isa::Instruction>{alone, isa::Finish{}}, std::vector<uint32_t>{0, 0}, 1, config).cycles;
  };
  namespace timing = isa::timing;
  isa::Alu raw;
  isa::Alu first = raw;
  first.dst = isa::AluSpace::kOut;
  first.convert = true;
  isa::Alu second = first;
  second.second_op = isa::SecondOp::kAdd;
  EXPECT_EQ(cycles(first) - cycles(raw), timing::alu::kFirst - timing::alu::kRaw);
  EXPECT_EQ(cycles(second) - cycles(first), timing::alu::second(config) - timing::alu::kFirst);
  // One step in the place of one issue.
  EXPECT_EQ(cycles(gemm({1, 1, 1, 1, 1, 1}, 0)) - cycles(raw),
            timing::gemm::kStart + timing::gemm::kWrite - timing::alu::kStart - timing::alu::kRaw);
}

}  // namespace
}  // namespace tessera::emit
