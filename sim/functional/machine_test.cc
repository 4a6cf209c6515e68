// SPDX-License-Identifier: Apache-2.0
// Queues, conditions and faults: which instructions run, in which order, and what the fault record says.
#include "sim/functional/machine.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "isa/verify/verify.h"
#include "sim/tests/configs.h"

namespace tessera::sim {
namespace {

using isa::Engine;
using isa::Fault;
using isa::Unit;

isa::Wait after(Engine engine, int count) { return {true, engine, static_cast<uint16_t>(count)}; }

template <typename Instruction>
Instruction with(Instruction instruction, std::initializer_list<isa::Wait> waits, bool signal = true) {
  instruction.header.signal = signal;
  size_t k = 0;
  for (const isa::Wait& wait : waits) instruction.header.waits[k++] = wait;
  return instruction;
}

isa::Fence fence(Engine engine, std::initializer_list<isa::Wait> waits = {}, bool signal = true) {
  isa::Fence f;
  f.engine = engine;
  return with(f, waits, signal);
}

isa::Load fill(isa::Space space, uint32_t at, uint16_t length, uint8_t value) {
  isa::Load load;
  load.space = space;
  load.fill = true;
  load.sp_addr = at;
  load.length = length;
  load.pad_value = value;
  return load;
}

struct Outcome {
  RunResult result;
  std::vector<uint32_t> order;  // pc of completed instructions
};

class MachineTest : public ::testing::Test {
 protected:
  isa::MachineConfig config = isa::find_config("npu64");
  Machine machine{config};
  std::vector<uint8_t> dram = std::vector<uint8_t>(4096);
  DramRegion region{0x10000, dram.data(), 4096};
  RunRequest request;

  Outcome run(const std::vector<isa::Instruction>& program) { return run(machine, program); }

  Outcome run(Machine& on, const std::vector<isa::Instruction>& program) {
    Outcome outcome;
    request.instructions = program;
    request.dram = {&region, 1};
    request.observer = [&](const Work& work) { outcome.order.push_back(work.pc); };
    outcome.result = on.run(request);
    return outcome;
  }

  void expect_fault(const std::vector<isa::Instruction>& program, Fault code, Unit unit, uint32_t pc) {
    EXPECT_EQ(run(program).result.fault, (isa::FaultRecord{code, unit, pc}));
  }
};

using Order = std::vector<uint32_t>;

TEST_F(MachineTest, LegalProgramsRunInStreamOrder) {
  const auto outcome =
      run({fence(Engine::kLoad), fence(Engine::kStore), fence(Engine::kGemm, {after(Engine::kLoad, 1)}),
           fence(Engine::kAlu, {after(Engine::kGemm, 1), after(Engine::kStore, 1)}),
           with(isa::Finish{}, {after(Engine::kAlu, 1)}, false)});
  EXPECT_TRUE(outcome.result.ok());
  EXPECT_EQ(outcome.order, (Order{0, 1, 2, 3, 4}));
  EXPECT_EQ(outcome.result.counters.instructions, (std::array<uint64_t, 5>{1, 1, 1, 1, 1}));
  EXPECT_EQ(outcome.result.counters.fetch_bytes, 5u * 64);
}

TEST_F(MachineTest, AWaitingHeadBlocksItsOwnQueueOnly) {
  // Instruction 0 waits for instruction 2; 1 stands behind it; GEMM goes on.
  const auto outcome = run({fence(Engine::kLoad, {after(Engine::kGemm, 1)}), fence(Engine::kLoad), fence(Engine::kGemm),
                            fence(Engine::kGemm), isa::Finish{}});
  EXPECT_TRUE(outcome.result.ok());
  EXPECT_EQ(outcome.order, (Order{2, 0, 1, 3, 4}));
}

TEST_F(MachineTest, QueueDepthLimitsHowFarFetchLooksAhead) {
  config.load_queue = 2;
  Machine small(config);
  std::vector<isa::Instruction> program{fence(Engine::kLoad, {after(Engine::kGemm, 1)}), fence(Engine::kLoad),
                                        fence(Engine::kGemm), isa::Finish{}};
  EXPECT_TRUE(run(small, program).result.ok());
  program.insert(program.begin() + 1, fence(Engine::kLoad));  // now GEMM stands behind a full queue
  EXPECT_EQ(run(small, program).result.fault, (isa::FaultRecord{Fault::kNoProgress, Unit::kLoad, 0}));
  EXPECT_TRUE(run(machine, program).result.ok());
}

TEST_F(MachineTest, ConditionsCompareModulo65536) {
  // Timelines start at 0: a count of 32769 up to 65535 lies behind it, 1 up to 32768 ahead.
  EXPECT_TRUE(run({fence(Engine::kAlu, {after(Engine::kLoad, 65535)}), isa::Finish{}}).result.ok());
  EXPECT_TRUE(run({fence(Engine::kAlu, {after(Engine::kLoad, 32769)}), isa::Finish{}}).result.ok());
  EXPECT_FALSE(run({fence(Engine::kAlu, {after(Engine::kLoad, 32768)}), isa::Finish{}}).result.ok());
  // A condition that is not enabled always holds.
  isa::Fence off = fence(Engine::kAlu);
  off.header.waits[1] = {false, Engine::kLoad, 5};
  EXPECT_TRUE(run({off, isa::Finish{}}).result.ok());
  // Beyond 65536 signals counts go on from 0.
  std::vector<isa::Instruction> program(65536 + 10, fence(Engine::kLoad));
  program.push_back(fence(Engine::kAlu, {after(Engine::kLoad, 10)}));
  program.push_back(isa::Finish{});
  EXPECT_TRUE(run(program).result.ok());
  program[program.size() - 2] = fence(Engine::kAlu, {after(Engine::kLoad, 11)});
  expect_fault(program, Fault::kNoProgress, Unit::kAlu, 65546);
}

TEST_F(MachineTest, OnlyTheSignalBitCounts) {
  expect_fault({fence(Engine::kLoad, {}, false), fence(Engine::kAlu, {after(Engine::kLoad, 1)}), isa::Finish{}},
               Fault::kNoProgress, Unit::kAlu, 1);
}

TEST_F(MachineTest, FinishWaitsForIdleEnginesAndItsConditions) {
  expect_fault({with(isa::Finish{}, {after(Engine::kAlu, 1)}, false)}, Fault::kNoProgress, Unit::kFetch, 0);
  expect_fault({fence(Engine::kGemm, {after(Engine::kAlu, 1)}), isa::Finish{}}, Fault::kNoProgress, Unit::kGemm, 0);
  // Words behind FINISH are not looked at.
  isa::Load bad;
  EXPECT_TRUE(run({isa::Finish{}, bad}).result.ok());
}

TEST_F(MachineTest, MissingFinish) {
  expect_fault({}, Fault::kMissingFinish, Unit::kFetch, 0);
  expect_fault({fence(Engine::kLoad), fence(Engine::kLoad)}, Fault::kMissingFinish, Unit::kFetch, 2);
}

TEST_F(MachineTest, OldestOfSeveralThatWait) {
  expect_fault(
      {fence(Engine::kStore), fence(Engine::kAlu, {after(Engine::kLoad, 7)}),
       fence(Engine::kGemm, {after(Engine::kAlu, 1)}), fence(Engine::kLoad, {after(Engine::kGemm, 1)}), isa::Finish{}},
      Fault::kNoProgress, Unit::kAlu, 1);
}

TEST_F(MachineTest, IllegalWords) {
  std::vector<uint8_t> words(3 * 64, 0);
  const auto put = [&](size_t at, const isa::Instruction& instruction) {
    const isa::Word word = isa::encode(instruction);
    std::copy(word.begin(), word.end(), words.begin() + static_cast<std::ptrdiff_t>(at * 64));
  };
  put(0, fence(Engine::kLoad));
  put(2, isa::Finish{});
  RunRequest bytes;
  bytes.program = words;
  EXPECT_EQ(machine.run(bytes).fault, (isa::FaultRecord{Fault::kIllegalOpcode, Unit::kFetch, 1}));  // zeroed memory
  put(1, fence(Engine::kGemm));
  EXPECT_TRUE(machine.run(bytes).ok());
  words[2 * 64 - 1] = 0x80;  // a reserved bit
  EXPECT_EQ(machine.run(bytes).fault, (isa::FaultRecord{Fault::kIllegalOperand, Unit::kFetch, 1}));
  words[64] = 63;
  EXPECT_EQ(machine.run(bytes).fault, (isa::FaultRecord{Fault::kIllegalOpcode, Unit::kFetch, 1}));
  bytes.program = std::span<const uint8_t>(words).first(100);
  EXPECT_THROW(machine.run(bytes), Error);
}

TEST_F(MachineTest, IllegalOperandsOfEachInstruction) {
  const auto illegal = [&](const isa::Instruction& instruction) {
    expect_fault({fence(Engine::kAlu), instruction, isa::Finish{}}, Fault::kIllegalOperand, Unit::kFetch, 1);
  };
  illegal(with(isa::Finish{}, {}, true));
  illegal(fill(isa::Space::kInp, 0, 0, 1));
  isa::Load load = fill(isa::Space::kInp, 0, 1, 1);
  load.base = 1;
  illegal(load);
  load = fill(isa::Space::kInp, 0, 1, 1);
  load.fill = false;
  load.pad_before = {1, 0};
  load.pad_after = {1, 0};
  illegal(load);
  isa::Store store;
  store.length = 1;
  store.space = isa::Space::kInp;
  illegal(store);
  isa::Gemm gemm;
  gemm.reduce = 7;
  illegal(gemm);
  gemm.reduce = 1;
  gemm.acc_stride[5] = 1;
  illegal(gemm);
  gemm = {};
  gemm.mode = isa::GemmMode::kDepthwise;
  illegal(gemm);
  gemm.reduce = 1;
  gemm.extent[5] = 9;  // BLOCK_IN = 8 taps
  illegal(gemm);
  gemm.extent[5] = 8;
  gemm.lane = 1;
  illegal(gemm);
  isa::Alu alu;
  alu.low = 1;
  alu.dst = isa::AluSpace::kOut;
  illegal(alu);
  alu = {};
  alu.second_op = isa::SecondOp::kAdd;  // with dst acc
  illegal(alu);
  alu = {};
  alu.param_loop = 6;
  alu.convert = true;
  illegal(alu);
  alu = {};
  alu.extent[3] = 0;
  illegal(alu);
}

TEST_F(MachineTest, ScratchpadRanges) {
  const auto range = [&](const isa::Instruction& instruction, Unit unit) {
    const std::vector<uint8_t> before(machine.scratchpad(isa::Space::kAcc).begin(),
                                      machine.scratchpad(isa::Space::kAcc).end());
    expect_fault({fence(Engine::kLoad), instruction, isa::Finish{}}, Fault::kScratchpadRange, unit, 1);
    const auto now = machine.scratchpad(isa::Space::kAcc);
    EXPECT_TRUE(std::equal(now.begin(), now.end(), before.begin())) << "a faulting instruction writes nothing";
  };
  isa::Load load = fill(isa::Space::kAcc, 65535, 2, 1);
  range(load, Unit::kLoad);
  load = fill(isa::Space::kAcc, 0, 1, 1);
  load.extent[2] = 2;
  load.sp_stride[2] = -1;
  range(load, Unit::kLoad);
  isa::Store store;
  store.space = isa::Space::kOut;
  store.length = 2;
  store.sp_addr = 16383;
  range(store, Unit::kStore);
  isa::Gemm gemm;
  gemm.extent = {1, 1, 2, 1, 1, 1};
  gemm.acc_addr = 2047;  // 2048 entries
  gemm.acc_stride[2] = 1;
  range(gemm, Unit::kGemm);
  gemm.acc_stride[2] = -1;
  gemm.wgt_stride[2] = -1;
  range(gemm, Unit::kGemm);
  isa::Alu alu;
  alu.convert = true;
  alu.param_addr = 127;  // 128 entries
  alu.extent[0] = 2;
  alu.param_loop = 0;
  range(alu, Unit::kAlu);
  // The last entries are in range.
  gemm.wgt_addr = 1;
  EXPECT_TRUE(run({gemm, isa::Finish{}}).result.ok());
}

TEST_F(MachineTest, TableNumbersAreRanges) {
  config.table_count = 3;
  Machine small(config);
  isa::Alu alu;
  alu.dst = isa::AluSpace::kOut;
  alu.table_enable = true;
  alu.table = 3;
  EXPECT_EQ(run(small, {alu, isa::Finish{}}).result.fault, (isa::FaultRecord{Fault::kScratchpadRange, Unit::kAlu, 0}));
  alu.table = 2;
  EXPECT_TRUE(run(small, {alu, isa::Finish{}}).result.ok());
}

TEST_F(MachineTest, DramRanges) {
  isa::Load load;
  load.space = isa::Space::kInp;
  load.length = 16;
  load.base = 2;
  request.bases[2] = 0x10000;
  load.dram_offset = 4096 - 16;
  EXPECT_TRUE(run({load, isa::Finish{}}).result.ok());
  ++load.dram_offset;
  expect_fault({load, isa::Finish{}}, Fault::kDramRange, Unit::kLoad, 0);
  load.dram_offset = 0;
  load.extent[1] = 2;
  load.dram_stride[1] = -1;
  expect_fault({load, isa::Finish{}}, Fault::kDramRange, Unit::kLoad, 0);
  // Padding reads nothing: only the iterations that read are checked.
  load.pad_before[1] = 1;
  EXPECT_TRUE(run({load, isa::Finish{}}).result.ok());
  load.pad_before[1] = 2;
  request.bases[2] = 0;
  EXPECT_TRUE(run({load, isa::Finish{}}).result.ok());
  isa::Store store;
  store.space = isa::Space::kOut;
  store.length = 1;
  store.base = 2;
  expect_fault({fence(Engine::kGemm), store, isa::Finish{}}, Fault::kDramRange, Unit::kStore, 1);
  // Addresses are modulo 2^64.
  request.bases[2] = 0x10000 - uint64_t{1000};
  store.dram_offset = 1000;
  EXPECT_TRUE(run({store, isa::Finish{}}).result.ok());
  request.bases[2] = UINT64_MAX;
  store.dram_offset = 0x10001;
  EXPECT_TRUE(run({store, isa::Finish{}}).result.ok());
}

TEST_F(MachineTest, AnAccessLiesInOneRegion) {
  std::vector<uint8_t> more(4096);
  const DramRegion regions[] = {region, {0x20000, more.data(), 4096}};
  isa::Load load;
  load.space = isa::Space::kInp;
  load.length = 8;
  load.extent[0] = 2;
  load.dram_stride[0] = 0x10000;
  RunRequest two;
  const std::vector<isa::Instruction> program{load, isa::Finish{}};
  two.instructions = program;
  two.dram = regions;
  two.bases[0] = 0x10000;
  EXPECT_EQ(machine.run(two).fault, (isa::FaultRecord{Fault::kDramRange, Unit::kLoad, 0}));
}

TEST_F(MachineTest, TheEarliestFaultWins) {
  isa::Load out_of_dram;
  out_of_dram.space = isa::Space::kInp;
  out_of_dram.length = 1;
  isa::Store illegal;
  illegal.length = 0;
  // FETCH meets the illegal word while LOAD's fault stands before it.
  expect_fault({fence(Engine::kAlu), out_of_dram, illegal, isa::Finish{}}, Fault::kDramRange, Unit::kLoad, 1);
  // An instruction that waits for ever stands before both.
  expect_fault({fence(Engine::kAlu, {after(Engine::kGemm, 1)}), out_of_dram, illegal, isa::Finish{}},
               Fault::kNoProgress, Unit::kAlu, 0);
  expect_fault({fence(Engine::kAlu, {after(Engine::kGemm, 1)}), illegal, isa::Finish{}}, Fault::kNoProgress, Unit::kAlu,
               0);
  // One that would have run later does not.
  expect_fault({out_of_dram, fence(Engine::kAlu, {after(Engine::kGemm, 1)}), isa::Finish{}}, Fault::kDramRange,
               Unit::kLoad, 0);
}

TEST_F(MachineTest, ProgramInDram) {
  const std::vector<isa::Instruction> program{fence(Engine::kLoad), isa::Finish{}};
  for (size_t k = 0; k < program.size(); ++k) {
    const isa::Word word = isa::encode(program[k]);
    std::copy(word.begin(), word.end(), dram.end() - 128 + static_cast<std::ptrdiff_t>(64 * k));
  }
  RunRequest in_dram;
  in_dram.dram = {&region, 1};
  in_dram.program_address = 0x10000 + 4096 - 128;
  in_dram.instruction_count = 2;
  EXPECT_TRUE(machine.run(in_dram).ok());
  in_dram.program_address += 64;
  EXPECT_TRUE(machine.run(in_dram).ok());
  in_dram.program_address -= 128;  // zeroed memory before it
  EXPECT_EQ(machine.run(in_dram).fault, (isa::FaultRecord{Fault::kIllegalOpcode, Unit::kFetch, 0}));
  std::fill(dram.end() - 64, dram.end(), uint8_t{0});
  const isa::Word word = isa::encode(program[0]);
  std::copy(word.begin(), word.end(), dram.end() - 64);
  in_dram.program_address += 128;
  EXPECT_EQ(machine.run(in_dram).fault, (isa::FaultRecord{Fault::kDramRange, Unit::kFetch, 1}));  // the memory ends
}

TEST_F(MachineTest, ScratchpadsKeepTheirContentsAndCanBePoisoned) {
  EXPECT_TRUE(run({fill(isa::Space::kOut, 10, 3, 77), isa::Finish{}}).result.ok());
  EXPECT_TRUE(run({isa::Finish{}}).result.ok());
  EXPECT_EQ(machine.scratchpad(isa::Space::kOut)[9], 0);
  EXPECT_EQ(machine.scratchpad(isa::Space::kOut)[10], 77);
  EXPECT_EQ(machine.scratchpad(isa::Space::kOut)[12], 77);
  Machine other(config);
  machine.poison(1);
  other.poison(1);
  for (int s = 0; s < isa::kSpaces; ++s) {
    const auto a = machine.scratchpad(static_cast<isa::Space>(s));
    const auto b = other.scratchpad(static_cast<isa::Space>(s));
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
    EXPECT_LT(std::count(a.begin(), a.end(), uint8_t{0}), static_cast<std::ptrdiff_t>(a.size() / 64));
  }
  other.poison(2);
  const auto a = machine.scratchpad(isa::Space::kInp);
  const auto b = other.scratchpad(isa::Space::kInp);
  EXPECT_FALSE(std::equal(a.begin(), a.end(), b.begin()));
  EXPECT_THROW(machine.write_scratchpad(isa::Space::kTable, 4095, std::vector<uint8_t>(2)), Error);
}

TEST_F(MachineTest, WorkIsCounted) {
  isa::Load load;
  load.space = isa::Space::kInp;
  load.length = 8;
  load.extent = {4, 3, 1, 1};
  load.sp_stride = {24, 8, 0, 0};
  load.dram_stride = {16, 8, 0, 0};
  load.pad_before = {1, 1};
  load.pad_after = {1, 0};
  request.bases[0] = 0x10000;
  isa::Gemm gemm;
  gemm.extent = {1, 1, 2, 3, 4, 5};
  gemm.reduce = 2;
  isa::Gemm depthwise;
  depthwise.mode = isa::GemmMode::kDepthwise;
  depthwise.extent = {1, 1, 1, 7, 2, 2};
  depthwise.reduce = 2;
  isa::Alu alu;
  alu.extent = {1, 1, 1, 1, 3, 9};
  alu.reduce = 1;
  isa::Store store;
  store.space = isa::Space::kAcc;
  store.length = 10;
  store.extent[2] = 5;
  std::vector<Work> all;
  const std::vector<isa::Instruction> program{load, gemm, depthwise, alu, store, isa::Finish{}};
  request.instructions = program;
  request.dram = {&region, 1};
  request.observer = [&](const Work& work) { all.push_back(work); };
  const RunResult result = machine.run(request);
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[0].dram_read_bytes, 2u * 2 * 8);
  EXPECT_EQ(all[0].fill_bytes, (12u - 4) * 8);
  EXPECT_EQ(all[1].tiles, 120u);
  EXPECT_EQ(all[1].macs, 120u * 64);
  EXPECT_EQ(all[2].macs, 28u * 8);
  EXPECT_EQ(all[3].vectors, 27u);
  EXPECT_EQ(all[4].dram_write_bytes, 50u);
  EXPECT_EQ(result.counters.macs, 120u * 64 + 28 * 8);
  EXPECT_EQ(result.counters.dram_read_bytes, 32u);
  EXPECT_EQ(result.counters.fetch_bytes, 6u * 64);
}

TEST(MachineSetup, RefusesBrokenConfigurationsAndKernels) {
  isa::MachineConfig config = isa::find_config("npu64");
  config.batch = 0;
  EXPECT_THROW(Machine{config}, Error);
  EXPECT_THROW(parse_kernels("sse9"), Error);
  EXPECT_EQ(parse_kernels("portable"), Kernels::kPortable);
}

}  // namespace
}  // namespace tessera::sim
