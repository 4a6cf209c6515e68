// SPDX-License-Identifier: Apache-2.0
// The synchronisation pass on streams of known and of random instructions. The judge is brute force: happens-before as
// a closure over program order and conditions, and every pair of overlapping accesses looked up in it.
#include "compiler/emit/synchronise.h"

#include <gtest/gtest.h>

#include <random>

#include "isa/verify/effects.h"
#include "isa/verify/verify.h"

namespace tessera::emit {
namespace {

isa::Load load(isa::Space space, uint32_t at, uint16_t length, uint64_t dram = 0) {
  isa::Load i;
  i.space = space;
  i.base = 1;
  i.dram_offset = dram;
  i.sp_addr = at;
  i.length = length;
  return i;
}

isa::Store store(uint32_t at, uint16_t length, uint64_t dram = 0) {
  isa::Store i;
  i.space = isa::Space::kOut;
  i.base = 1;
  i.dram_offset = dram;
  i.sp_addr = at;
  i.length = length;
  return i;
}

isa::Gemm gemm(uint16_t inp, uint16_t wgt, uint16_t acc, uint16_t count) {
  isa::Gemm i;
  i.inp_addr = inp;
  i.wgt_addr = wgt;
  i.acc_addr = acc;
  i.extent[5] = count;
  i.inp_stride[5] = i.acc_stride[5] = 1;
  return i;
}

isa::Alu alu(uint16_t acc, uint16_t out, uint16_t count) {
  isa::Alu i;
  i.src_addr = acc;
  i.dst_addr = out;
  i.dst = isa::AluSpace::kOut;
  i.low = -128;
  i.high = 127;
  i.extent[5] = count;
  i.src_stride[5] = i.dst_stride[5] = 1;
  return i;
}

isa::Instruction random_instruction(std::mt19937& random) {
  const auto pick = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  switch (pick(0, 4)) {
    case 0:
      return load(isa::Space::kInp, static_cast<uint32_t>(16 * pick(0, 40)), static_cast<uint16_t>(pick(1, 300)),
                  static_cast<uint64_t>(pick(0, 2000)));
    case 1:
      return load(pick(0, 1) ? isa::Space::kWgt : isa::Space::kOut, static_cast<uint32_t>(pick(0, 600)),
                  static_cast<uint16_t>(pick(1, 400)), static_cast<uint64_t>(pick(0, 2000)));
    case 2:
      return gemm(static_cast<uint16_t>(pick(0, 30)), static_cast<uint16_t>(pick(0, 3)),
                  static_cast<uint16_t>(pick(0, 30)), static_cast<uint16_t>(pick(1, 20)));
    case 3:
      return alu(static_cast<uint16_t>(pick(0, 30)), static_cast<uint16_t>(pick(0, 30)),
                 static_cast<uint16_t>(pick(1, 20)));
    default:
      return store(static_cast<uint32_t>(pick(0, 500)), static_cast<uint16_t>(pick(1, 300)),
                   static_cast<uint64_t>(pick(0, 2000)));
  }
}

/// The number of conflicting pairs that program order and conditions leave unordered.
int unordered_pairs(const std::vector<isa::Instruction>& program, const isa::MachineConfig& config) {
  const size_t count = program.size();
  std::vector<std::vector<bool>> before(count, std::vector<bool>(count, false));
  const auto inherit = [&](size_t i, size_t j) {  // j is complete when i starts
    before[i][j] = true;
    for (size_t k = 0; k < j; ++k) {
      if (before[j][k]) before[i][k] = true;
    }
  };
  std::array<std::vector<size_t>, isa::kEngines> signallers;
  std::array<int64_t, isa::kEngines> last;
  last.fill(-1);
  for (size_t i = 0; i < count; ++i) {
    const auto engine = isa::engine_of(program[i]);
    if (!engine) continue;
    const auto self = static_cast<size_t>(*engine);
    if (last[self] >= 0) inherit(i, static_cast<size_t>(last[self]));
    for (const isa::Wait& wait : isa::header_of(program[i]).waits) {
      if (!wait.enable) continue;
      // The latest earlier signal whose count has these 16 bits: streams here are short.
      const auto& list = signallers[static_cast<size_t>(wait.engine)];
      EXPECT_GE(list.size(), wait.count);
      if (wait.count > 0) inherit(i, list[wait.count - 1u]);
    }
    if (isa::header_of(program[i]).signal) signallers[self].push_back(i);
    last[self] = static_cast<int64_t>(i);
  }
  int found = 0;
  std::vector<isa::Operands> operands(count);
  for (size_t i = 0; i < count; ++i) {
    operands[i] = isa::effects(program[i], config).operands;
    for (size_t j = 0; j < i; ++j) {
      for (const isa::Operand& a : operands[i]) {
        for (const isa::Operand& b : operands[j]) {
          const bool conflict = a.memory() == b.memory() && a.begin < b.end && b.begin < a.end && (a.write || b.write);
          if (conflict && !before[i][j]) ++found;
        }
      }
    }
  }
  return found;
}

TEST(Synchronise, OneTile) {
  const isa::MachineConfig config = isa::find_config("npu256");
  std::vector<isa::Instruction> program = {load(isa::Space::kInp, 0, 64), load(isa::Space::kWgt, 0, 256),
                                           gemm(0, 0, 0, 4), alu(0, 0, 4), store(0, 64, 4096)};
  std::vector<uint32_t> tags = {7, 7, 7, 8, 8};
  const SynchroniseSummary summary = synchronise(program, tags, config);
  ASSERT_EQ(program.size(), 6u);
  EXPECT_EQ(tags, (std::vector<uint32_t>{7, 7, 7, 8, 8, 8}));
  EXPECT_EQ(summary.waits, 3);
  EXPECT_EQ(summary.barriers, 0);
  // Only the second load signals: it implies the first.
  EXPECT_FALSE(isa::header_of(program[0]).signal);
  EXPECT_TRUE(isa::header_of(program[1]).signal);
  EXPECT_EQ(isa::header_of(program[2]).waits[0], (isa::Wait{true, isa::Engine::kLoad, 1}));
  EXPECT_FALSE(isa::header_of(program[2]).waits[1].enable);
  EXPECT_EQ(isa::header_of(program[3]).waits[0], (isa::Wait{true, isa::Engine::kGemm, 1}));
  EXPECT_EQ(isa::header_of(program[4]).waits[0], (isa::Wait{true, isa::Engine::kAlu, 1}));
  EXPECT_TRUE(std::holds_alternative<isa::Finish>(program[5]));
  isa::check_program(program, config);
}

TEST(Synchronise, WriteAfterReadAndThroughDram) {
  const isa::MachineConfig config = isa::find_config("npu256");
  // The second load overwrites what GEMM reads; the third reads what STORE wrote.
  std::vector<isa::Instruction> program = {load(isa::Space::kInp, 0, 64), gemm(0, 0, 0, 4),
                                           load(isa::Space::kInp, 48, 16), store(0, 64, 4096),
                                           load(isa::Space::kInp, 1024, 32, 4150)};
  std::vector<uint32_t> tags(program.size(), 0);
  synchronise(program, tags, config);
  EXPECT_EQ(isa::header_of(program[2]).waits[0], (isa::Wait{true, isa::Engine::kGemm, 1}));
  EXPECT_EQ(isa::header_of(program[4]).waits[0], (isa::Wait{true, isa::Engine::kStore, 1}));
  EXPECT_EQ(unordered_pairs(program, config), 0);
}

TEST(Synchronise, PaddingReadsNoDram) {
  const isa::MachineConfig config = isa::find_config("npu256");
  isa::Load padded = load(isa::Space::kInp, 0, 16, 5000);
  padded.extent = {4, 1, 1, 1};
  padded.dram_stride = {-1000, 0, 0, 0};
  padded.sp_stride = {16, 0, 0, 0};
  padded.pad_before = {1, 0};
  padded.pad_after = {2, 0};
  const isa::Operands operands = isa::effects(padded, config).operands;
  ASSERT_EQ(operands.size(), 2u);
  EXPECT_EQ(operands[0].begin, 0);
  EXPECT_EQ(operands[0].end, 64);
  EXPECT_EQ(operands[1].begin, 5000);
  EXPECT_EQ(operands[1].end, 5016);
}

TEST(Synchronise, RandomStreamsAreOrdered) {
  const isa::MachineConfig config = isa::find_config("npu256");
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    std::vector<isa::Instruction> program;
    for (int i = 0; i < 120; ++i) program.push_back(random_instruction(random));
    std::vector<uint32_t> tags(program.size(), 0);
    SynchroniseOptions options;
    if (seed % 3 == 0) options.signals_between_barriers = 1 + static_cast<int>(seed % 7);
    const SynchroniseSummary summary = synchronise(program, tags, config, options);
    EXPECT_EQ(summary.barriers > 0, seed % 3 == 0);
    EXPECT_EQ(unordered_pairs(program, config), 0) << "seed " << seed;
    isa::check_program(program, config);
  }
}

TEST(Synchronise, RemovingAnyWaitLeavesAPairUnordered) {
  const isa::MachineConfig config = isa::find_config("npu256");
  for (unsigned seed = 100; seed < 110; ++seed) {
    std::mt19937 random(seed);
    std::vector<isa::Instruction> program;
    for (int i = 0; i < 60; ++i) program.push_back(random_instruction(random));
    std::vector<uint32_t> tags(program.size(), 0);
    synchronise(program, tags, config);
    for (auto& instruction : program) {
      for (isa::Wait& wait : isa::header_of(instruction).waits) {
        if (!wait.enable) continue;
        wait.enable = false;
        EXPECT_GT(unordered_pairs(program, config), 0) << "seed " << seed;
        wait.enable = true;
      }
    }
  }
}

TEST(Synchronise, CountsWrapBehindBarriers) {
  const isa::MachineConfig config = isa::find_config("npu256");
  std::vector<isa::Instruction> program;
  for (int i = 0; i < 100000; ++i) {
    program.push_back(load(isa::Space::kInp, 0, 16));
    program.push_back(gemm(0, 0, 0, 1));
  }
  std::vector<uint32_t> tags(program.size(), 0);
  const SynchroniseSummary summary = synchronise(program, tags, config);
  EXPECT_EQ(summary.barriers, 200000 / 2 / 16384);
  EXPECT_EQ(tags.size(), program.size());
  isa::check_program(program, config);  // refuses conditions that could be overtaken by 2^15 signals
}

}  // namespace
}  // namespace tessera::emit
