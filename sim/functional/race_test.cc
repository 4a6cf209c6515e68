// SPDX-License-Identifier: Apache-2.0
// The race check: what it must find, what it must not, by hand and by dropping waits from programs that are in order.
#include <gtest/gtest.h>

#include "sim/functional/machine.h"
#include "sim/tests/configs.h"
#include "sim/tests/random_program.h"

namespace tessera::sim {
namespace {

using isa::Engine;
using isa::Space;
using isa::Unit;

isa::Wait after(Engine engine, int count) { return {true, engine, static_cast<uint16_t>(count)}; }

template <typename Instruction>
Instruction with(Instruction instruction, std::initializer_list<isa::Wait> waits) {
  instruction.header.signal = true;
  size_t k = 0;
  for (const isa::Wait& wait : waits) instruction.header.waits[k++] = wait;
  return instruction;
}

isa::Load load(Space space, uint32_t at, uint16_t length) {
  isa::Load i;
  i.space = space;
  i.sp_addr = at;
  i.length = length;
  return i;
}

isa::Load fill(Space space, uint32_t at, uint16_t length) {
  isa::Load i = load(space, at, length);
  i.fill = true;
  return i;
}

isa::Store store(Space space, uint32_t at, uint16_t length, uint64_t to = 0) {
  isa::Store i;
  i.space = space;
  i.sp_addr = at;
  i.length = length;
  i.dram_offset = to;
  return i;
}

isa::Alu copy(isa::AluSpace src, int from, isa::AluSpace dst, int to) {
  isa::Alu i;
  i.src = src;
  i.dst = dst;
  i.src_addr = static_cast<uint16_t>(from);
  i.dst_addr = static_cast<uint16_t>(to);
  return i;
}

isa::Fence fence(Engine engine, std::initializer_list<isa::Wait> waits) {
  isa::Fence f;
  f.engine = engine;
  return with(f, waits);
}

class RaceTest : public ::testing::Test {
 protected:
  isa::MachineConfig config = isa::find_config("npu64");  // entries: INP 8, WGT 64, ACC 32, OUT 8, PARAM 64 bytes
  std::vector<uint8_t> dram = std::vector<uint8_t>(1 << 16);
  DramRegion region{0, dram.data(), dram.size()};

  std::vector<Race> races(std::vector<isa::Instruction> program) {
    program.push_back(isa::Finish{});
    Machine machine(config);
    RunRequest request;
    request.instructions = program;
    request.dram = {&region, 1};
    request.check_races = true;
    const RunResult result = machine.run(request);
    EXPECT_TRUE(result.ok()) << to_string(result.fault.code) << " at " << result.fault.pc;
    return result.races;
  }

  void expect_none(const std::vector<isa::Instruction>& program) { EXPECT_TRUE(races(program).empty()); }

  void expect_one(const std::vector<isa::Instruction>& program, const Race& race) {
    const auto found = races(program);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].first, race.first);
    EXPECT_EQ(found[0].second, race.second);
    EXPECT_EQ(found[0].dram, race.dram);
    EXPECT_EQ(found[0].space, race.space);
    EXPECT_EQ(found[0].begin, race.begin);
    EXPECT_EQ(found[0].end, race.end);
  }
};

TEST_F(RaceTest, ReadAfterWrite) {
  expect_one({load(Space::kOut, 8, 16), store(Space::kOut, 16, 16, 4096)},
             {{0, Unit::kLoad, true}, {1, Unit::kStore, false}, false, Space::kOut, 16, 24});
  expect_none({with(load(Space::kOut, 8, 16), {}), with(store(Space::kOut, 16, 16, 4096), {after(Engine::kLoad, 1)})});
  expect_none({load(Space::kOut, 8, 16), store(Space::kOut, 24, 16, 4096)});  // neighbours
  expect_none({load(Space::kOut, 8, 16), store(Space::kAcc, 16, 16, 4096)});  // another memory
}

TEST_F(RaceTest, WriteAfterRead) {
  expect_one({store(Space::kOut, 0, 64, 4096), fill(Space::kOut, 63, 10)},
             {{0, Unit::kStore, false}, {1, Unit::kLoad, true}, false, Space::kOut, 63, 64});
  expect_none({with(store(Space::kOut, 0, 64, 4096), {}), with(fill(Space::kOut, 63, 10), {after(Engine::kStore, 1)})});
  expect_none({store(Space::kOut, 0, 64, 4096), store(Space::kOut, 0, 64, 8192)});  // two readers of one engine
}

TEST_F(RaceTest, TwoReadersDoNotRaceAndBothAreRemembered) {
  // ALU and STORE read OUT; a LOAD that waits for one of them only races with the other.
  const auto reader = copy(isa::AluSpace::kOut, 0, isa::AluSpace::kAcc, 0);
  expect_none({reader, store(Space::kOut, 0, 8, 4096)});
  expect_one({with(reader, {}), with(store(Space::kOut, 0, 8, 4096), {}),
              with(fill(Space::kOut, 0, 8), {after(Engine::kAlu, 1)})},
             {{1, Unit::kStore, false}, {2, Unit::kLoad, true}, false, Space::kOut, 0, 8});
  expect_one({with(reader, {}), with(store(Space::kOut, 0, 8, 4096), {}),
              with(fill(Space::kOut, 0, 8), {after(Engine::kStore, 1)})},
             {{0, Unit::kAlu, false}, {2, Unit::kLoad, true}, false, Space::kOut, 0, 8});
}

TEST_F(RaceTest, WriteAfterWrite) {
  expect_one({fill(Space::kAcc, 0, 32), isa::Gemm{}},
             {{0, Unit::kLoad, true}, {1, Unit::kGemm, true}, false, Space::kAcc, 0, 32});
}

TEST_F(RaceTest, ChainsOverSeveralEnginesOrder) {
  expect_none({with(load(Space::kOut, 0, 8), {}), fence(Engine::kGemm, {after(Engine::kLoad, 1)}),
               fence(Engine::kAlu, {after(Engine::kGemm, 1)}),
               with(store(Space::kOut, 0, 8, 4096), {after(Engine::kAlu, 1)})});
  // Program order of one engine is part of a chain.
  expect_none({with(load(Space::kOut, 0, 8), {}), fence(Engine::kGemm, {after(Engine::kLoad, 1)}),
               fence(Engine::kGemm, {}), with(store(Space::kOut, 0, 8, 4096), {after(Engine::kGemm, 2)})});
  // A chain that begins before the write does not order it.
  expect_one({fence(Engine::kGemm, {}), with(load(Space::kOut, 0, 8), {}),
              with(store(Space::kOut, 0, 8, 4096), {after(Engine::kGemm, 1)})},
             {{1, Unit::kLoad, true}, {2, Unit::kStore, false}, false, Space::kOut, 0, 8});
}

TEST_F(RaceTest, AConditionOrdersOnlyWhatItNames) {
  // The second load has run here when the store starts, but the store waits for the first alone.
  const std::vector<isa::Instruction> program{with(load(Space::kOut, 0, 8), {}), with(load(Space::kOut, 8, 8), {}),
                                              with(store(Space::kOut, 0, 16, 4096), {after(Engine::kLoad, 1)})};
  expect_one(program, {{1, Unit::kLoad, true}, {2, Unit::kStore, false}, false, Space::kOut, 8, 16});
  auto enough = program;
  isa::header_of(enough[2]).waits[0].count = 2;
  expect_none(enough);
  // Instructions without a signal are covered by the next one of their engine.
  auto silent = enough;
  isa::header_of(silent[0]).signal = false;
  isa::header_of(silent[2]).waits[0].count = 1;
  expect_none(silent);
}

TEST_F(RaceTest, CountsBeyond65536) {
  std::vector<isa::Instruction> program(65536, fence(Engine::kLoad, {}));
  program.push_back(with(load(Space::kOut, 0, 8), {}));
  program.push_back(with(store(Space::kOut, 0, 8, 4096), {after(Engine::kLoad, 1)}));
  expect_none(program);
  isa::header_of(program.back()).waits[0].count = 0;  // the signal before
  EXPECT_EQ(races(program).size(), 1u);
}

TEST_F(RaceTest, InterleavedRunsAreDisjoint) {
  isa::Load even = fill(Space::kOut, 0, 3);
  even.extent[3] = 20;
  even.sp_stride[3] = 6;
  isa::Store odd = store(Space::kOut, 3, 3, 4096);
  odd.extent[3] = 20;
  odd.sp_stride[3] = 6;
  odd.dram_stride[3] = 3;
  expect_none({even, odd});
  odd.length = 4;
  odd.extent[3] = 19;
  odd.dram_stride[3] = 4;
  const auto found = races({even, odd});
  ASSERT_EQ(found.size(), 1u);  // many runs, one report
  EXPECT_EQ(found[0].begin, 6u);
  EXPECT_EQ(found[0].end, 115u);
}

TEST_F(RaceTest, GemmReadsAccOnlyToContinueASum) {
  isa::Gemm gemm;
  // ALU reads the entry that GEMM wrote before: no race when ALU waits, and none with a GEMM on another entry.
  isa::Gemm next;
  next.acc_addr = 1;
  expect_none(
      {with(gemm, {}), with(copy(isa::AluSpace::kAcc, 0, isa::AluSpace::kOut, 0), {after(Engine::kGemm, 1)}), next});
  // STORE reads an entry that accumulates: only the write of GEMM conflicts.
  gemm.accumulate = true;
  auto found = races({store(Space::kAcc, 0, 32, 4096), gemm});
  ASSERT_EQ(found.size(), 1u);
  // LOAD writes what accumulate reads.
  found = races({fill(Space::kAcc, 0, 32), gemm});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_FALSE(found[0].second.write);
  EXPECT_TRUE(found[1].second.write);
}

TEST_F(RaceTest, DepthwiseTouchesItsLanesAndTaps) {
  config = testing::odd_config(2, 4, 16, 40);  // 4 groups of 4 lanes in ACC
  isa::Gemm gemm;
  gemm.mode = isa::GemmMode::kDepthwise;
  gemm.reduce = 1;
  gemm.extent[5] = 3;
  gemm.lane = 1;
  // ACC entry: 2 rows of 16 lanes of 4 bytes. Lanes 4 to 7 are bytes 16..32 and 80..96.
  isa::Load others = fill(Space::kAcc, 0, 16);
  others.extent[3] = 2;
  others.sp_stride[3] = 64;
  expect_none({others, fill(Space::kAcc, 32, 48), fill(Space::kAcc, 96, 32), gemm});
  EXPECT_EQ(races({fill(Space::kAcc, 95, 1), gemm}).size(), 1u);
  // WGT rows 4 to 7 of 4 bytes, three taps: rows 4 and 6 leave byte 3 free, rows 5 and 7, which begin in their middle,
  // byte 1.
  isa::Load even = fill(Space::kWgt, 19, 1), odd = fill(Space::kWgt, 21, 1);
  even.extent[3] = odd.extent[3] = 2;
  even.sp_stride[3] = odd.sp_stride[3] = 8;
  expect_none({even, odd, fill(Space::kWgt, 0, 16), fill(Space::kWgt, 32, 32), gemm});
  EXPECT_EQ(races({fill(Space::kWgt, 20, 1), gemm}).size(), 1u);
  EXPECT_EQ(races({fill(Space::kWgt, 18, 1), gemm}).size(), 1u);
}

TEST_F(RaceTest, AluOperands) {
  isa::Alu alu = copy(isa::AluSpace::kAcc, 0, isa::AluSpace::kOut, 5);
  alu.convert = true;
  alu.extent[0] = 2;
  alu.param_loop = 0;
  alu.param_addr = 3;
  alu.table_enable = true;
  alu.table = 2;
  alu.second_op = isa::SecondOp::kAdd;
  alu.second_addr = 9;
  alu.constant_addr = 7;
  alu.second_table_enable = true;
  alu.second_table = 4;
  const auto touches = [&](const isa::Instruction& other) { return !races({other, alu}).empty(); };
  EXPECT_TRUE(touches(fill(Space::kParam, 4 * 64 + 63, 1)));  // the second PARAM entry
  EXPECT_FALSE(touches(fill(Space::kParam, 5 * 64, 1)));
  EXPECT_FALSE(touches(fill(Space::kParam, 2 * 64, 64)));
  EXPECT_TRUE(touches(fill(Space::kParam, 7 * 64 + 31, 1)));  // constants: 32 bytes
  EXPECT_FALSE(touches(fill(Space::kParam, 7 * 64 + 32, 1)));
  EXPECT_TRUE(touches(fill(Space::kTable, 2 * 256 + 255, 1)));
  EXPECT_TRUE(touches(fill(Space::kTable, 4 * 256, 1)));
  EXPECT_FALSE(touches(fill(Space::kTable, 3 * 256, 256)));
  EXPECT_TRUE(touches(fill(Space::kOut, 9 * 8, 1)));      // second operand
  EXPECT_TRUE(touches(fill(Space::kOut, 5 * 8 + 7, 1)));  // destination
  EXPECT_FALSE(touches(fill(Space::kOut, 6 * 8, 24)));
  EXPECT_TRUE(touches(fill(Space::kAcc, 31, 1)));  // source
  EXPECT_FALSE(touches(fill(Space::kAcc, 32, 1)));
}

TEST_F(RaceTest, RowOperands) {
  config = testing::row_config(8, 8, 64, 4);  // entries as those of npu64
  isa::RowReduce reduce;                      // two rows of three vectors
  reduce.operation = isa::Reduction::kSumExp;
  reduce.row = 1;
  reduce.extent[4] = 2;
  reduce.extent[5] = 3;
  reduce.src = isa::AluSpace::kOut;
  reduce.src_addr = 4;
  reduce.src_stride[4] = 3;
  reduce.src_stride[5] = 1;
  reduce.scalar_addr = 10;
  reduce.scalar_stride[4] = 1;
  reduce.tail = 5;
  reduce.table = 2;
  isa::RowMap map;
  map.operation = isa::Mapping::kSoftmax;
  map.row = 1;
  map.extent = reduce.extent;
  map.src = isa::AluSpace::kOut;
  map.src_addr = 4;
  map.src_stride = reduce.src_stride;
  map.dst = isa::AluSpace::kInp;
  map.dst_addr = 20;
  map.dst_stride = reduce.src_stride;
  map.scalar_addr = 10;
  map.scalar_stride = reduce.scalar_stride;
  map.low = -128;
  map.high = 127;
  map.table = 2;
  const auto both = [&](Space space, uint32_t at, uint16_t length, bool expected) {
    EXPECT_EQ(!races({fill(space, at, length), reduce}).empty(), expected) << "row_reduce " << at;
    EXPECT_EQ(!races({fill(space, at, length), map}).empty(), expected) << "row_map " << at;
  };
  both(Space::kOut, 4 * 8, 1, true);
  both(Space::kOut, 9 * 8 + 7, 1, true);  // of the last vector all, however much belongs to the row
  both(Space::kOut, 0, 4 * 8, false);
  both(Space::kOut, 10 * 8, 8, false);
  both(Space::kAcc, 11 * 32 + 31, 1, true);  // scalars, an entry a row
  both(Space::kAcc, 0, 10 * 32, false);
  both(Space::kAcc, 12 * 32, 32, false);
  both(Space::kTable, 2 * 256, 1, true);  // four tables
  both(Space::kTable, 5 * 256 + 255, 1, true);
  both(Space::kTable, 0, 2 * 256, false);
  both(Space::kTable, 6 * 256, 256, false);
  both(Space::kParam, 0, 64 * 64, false);

  // ROW_REDUCE writes its scalars, ROW_MAP only reads them and writes its destination.
  EXPECT_EQ(races({store(Space::kAcc, 10 * 32, 64, 4096), reduce}).size(), 1u);
  expect_none({store(Space::kAcc, 10 * 32, 64, 4096), map});
  EXPECT_EQ(races({fill(Space::kAcc, 10 * 32, 64), reduce}).size(), 2u);  // the maximum is read
  EXPECT_EQ(races({fill(Space::kInp, 25 * 8, 1), map}).size(), 1u);
  expect_none({fill(Space::kInp, 26 * 8, 8), map});
  expect_none({with(load(Space::kOut, 0, 128), {}), with(reduce, {after(Engine::kLoad, 1)}), with(map, {}),
               with(store(Space::kOut, 0, 128, 4096), {after(Engine::kAlu, 1)})});  // one engine, and two readers

  // With the sum eight tables, and nothing is written to ACC.
  map.operation = isa::Mapping::kSumSoftmax;
  map.tail = 5;
  map.sum_table = 12;
  config.table_count = 16;
  for (const int table : {2, 5, 12, 15}) {
    EXPECT_EQ(races({fill(Space::kTable, table * 256u, 256), map}).size(), 1u) << table;
  }
  expect_none({fill(Space::kTable, 0, 2 * 256), fill(Space::kTable, 6 * 256, 6 * 256), map});
  expect_none({store(Space::kAcc, 10 * 32, 64, 4096), map});
  map.tail = map.sum_table = 0;

  // Without a softmax's numbers no tables; channels of PARAM by their loop.
  reduce.operation = isa::Reduction::kMax;
  reduce.table = 0;
  expect_none({fill(Space::kTable, 0, 9 * 256), reduce});
  EXPECT_EQ(races({fill(Space::kAcc, 10 * 32, 64), reduce}).size(), 1u);
  map.operation = isa::Mapping::kNormalise;
  map.table = 0;
  map.param_addr = 3;
  map.param_loop = 5;
  expect_none({fill(Space::kTable, 0, 9 * 256), map});
  EXPECT_EQ(races({fill(Space::kParam, 5 * 64 + 63, 1), map}).size(), 1u);
  expect_none({fill(Space::kParam, 0, 3 * 64), fill(Space::kParam, 6 * 64, 64), map});
}

TEST_F(RaceTest, Dram) {
  // STORE writes what a LOAD has read, and a later LOAD reads what it wrote.
  isa::Load first = load(Space::kInp, 0, 100);
  first.dram_offset = 1000;
  const isa::Store writer = store(Space::kOut, 0, 50, 1050);
  isa::Load second = load(Space::kInp, 200, 1);
  second.dram_offset = 1099;
  const auto found = races({first, writer, second});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0], (Race{{0, Unit::kLoad, false}, {1, Unit::kStore, true}, true, Space::kInp, 1050, 1100}));
  EXPECT_EQ(found[1], (Race{{1, Unit::kStore, true}, {2, Unit::kLoad, false}, true, Space::kInp, 1099, 1100}));
  expect_none({with(first, {}), with(writer, {after(Engine::kLoad, 1)}), with(second, {after(Engine::kStore, 1)})});
}

TEST_F(RaceTest, StoreOverTheProgram) {
  const std::vector<isa::Instruction> program{store(Space::kOut, 0, 8, 64), isa::Fence{}, isa::Finish{}};
  for (const uint64_t place : {uint64_t{0}, uint64_t{64}, uint64_t{128}, uint64_t{0x1000}}) {
    std::fill(dram.begin(), dram.end(), uint8_t{0});
    for (size_t k = 0; k < program.size(); ++k) {
      const isa::Word word = isa::encode(program[k]);
      std::copy(word.begin(), word.end(), dram.begin() + static_cast<std::ptrdiff_t>(place + 64 * k));
    }
    Machine machine(config);
    RunRequest request;
    request.dram = {&region, 1};
    request.program_address = place;
    request.instruction_count = 3;
    request.check_races = true;
    const RunResult result = machine.run(request);
    if (place == 0) {  // bytes 64 to 71 are instruction 1, which FETCH may hold already
      ASSERT_EQ(result.races.size(), 1u);
      EXPECT_EQ(result.races[0], (Race{{0, Unit::kStore, true}, {1, Unit::kFetch, false}, true, Space::kInp, 64, 72}));
    } else {
      EXPECT_TRUE(result.races.empty());
    }
  }
}

TEST_F(RaceTest, ReportsAreLimited) {
  std::vector<isa::Instruction> program;
  for (int n = 0; n < 20; ++n) {
    program.push_back(fill(Space::kOut, static_cast<uint32_t>(8 * n), 8));
    program.push_back(store(Space::kOut, static_cast<uint32_t>(8 * n), 8, 4096));
  }
  program.push_back(isa::Finish{});
  Machine machine(config);
  RunRequest request;
  request.instructions = program;
  request.dram = {&region, 1};
  request.check_races = true;
  EXPECT_EQ(machine.run(request).races.size(), 20u);
  request.max_races = 3;
  EXPECT_EQ(machine.run(request).races.size(), 3u);
  request.check_races = false;
  EXPECT_TRUE(machine.run(request).races.empty());
}

/// Whether anything but the dropped condition orders the two instructions, decided by exhaustive search over edges.
bool ordered(const std::vector<isa::Instruction>& program, size_t from, size_t to) {
  // reach[n]: instruction n happens after `from`.
  std::vector<bool> reach(program.size(), false);
  std::array<std::vector<size_t>, isa::kEngines> signals;
  std::array<bool, isa::kEngines> engine_reached{};
  for (size_t n = 0; n <= to; ++n) {
    const auto engine = isa::engine_of(program[n]);
    if (!engine) return true;
    const auto e = static_cast<size_t>(*engine);
    bool after_from = n == from || engine_reached[e];
    for (const isa::Wait& wait : isa::header_of(program[n]).waits) {
      if (!wait.enable || wait.count == 0) continue;
      const auto& of = signals[static_cast<size_t>(wait.engine)];
      if (wait.count <= of.size() && reach[of[wait.count - 1]]) after_from = true;
    }
    reach[n] = after_from;
    engine_reached[e] = after_from;
    if (isa::header_of(program[n]).signal) signals[e].push_back(n);
  }
  return reach[to];
}

TEST(RaceMutation, EveryDroppedWaitThatMattersIsFound) {
  // Random programs wait only where footprint hulls conflict. Drop one condition: the check must report exactly when
  // bytes that the hulls' owners really share are no longer ordered. The oracle looks at pairs and paths, not at
  // clocks.
  int found = 0;
  int harmless = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const isa::MachineConfig config = seed % 2 == 0 ? isa::find_config("npu64") : testing::odd_config(2, 8, 32, 40);
    testing::RandomLimits limits;
    limits.instructions = 25;
    limits.iterations = 60;
    limits.transfer_bytes = 700;
    limits.dram_bytes = 8192;
    const testing::RandomProgram random = testing::RandomProgramMaker(config, seed, limits).make();
    std::vector<std::vector<Touched>> footprints;
    for (const auto& instruction : random.instructions)
      footprints.push_back(footprint(instruction, config, random.bases));
    const auto conflict = [&](size_t a, size_t b) {
      for (const Touched& x : footprints[a]) {
        for (const Touched& y : footprints[b]) {
          if (!(x.write || y.write) || x.dram != y.dram || (!x.dram && x.space != y.space)) continue;
          for (const Interval& i : x.bytes) {
            for (const Interval& j : y.bytes) {
              if (i.begin < j.end && j.begin < i.end) return true;
            }
          }
        }
      }
      return false;
    };
    for (size_t n = 0; n < random.instructions.size(); ++n) {
      for (int k = 0; k < isa::kWaits; ++k) {
        auto mutant = random.instructions;
        isa::Wait& wait = isa::header_of(mutant[n]).waits[k];
        if (!wait.enable) continue;
        wait = {};
        bool expected = false;
        for (size_t b = 0; b < mutant.size() && !expected; ++b) {
          for (size_t a = 0; a < b && !expected; ++a) {
            expected =
                isa::engine_of(mutant[a]) != isa::engine_of(mutant[b]) && conflict(a, b) && !ordered(mutant, a, b);
          }
        }
        std::vector<uint8_t> dram = random.dram;
        const DramRegion region{random.dram_address, dram.data(), dram.size()};
        Machine machine(config);
        RunRequest request;
        request.instructions = mutant;
        request.bases = random.bases;
        request.dram = {&region, 1};
        request.check_races = true;
        const RunResult result = machine.run(request);
        ASSERT_TRUE(result.ok());
        EXPECT_EQ(!result.races.empty(), expected) << "seed " << seed << ", instruction " << n << ", condition " << k;
        ++(expected ? found : harmless);
      }
    }
  }
  EXPECT_GT(found, 100);
  EXPECT_GT(harmless, 20);
}

}  // namespace
}  // namespace tessera::sim
