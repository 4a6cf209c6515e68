// SPDX-License-Identifier: Apache-2.0
// Cores that wait for each other: order, rest, faults of one core, and races between cores.
#include "sim/functional/chip.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tessera::sim {
namespace {

using isa::Engine;
using isa::Fault;
using isa::Space;
using isa::Unit;
using Program = std::vector<isa::Instruction>;

isa::Wait after(Engine engine, int count) { return {true, engine, static_cast<uint16_t>(count)}; }

template <typename Instruction>
Instruction with(Instruction instruction, std::initializer_list<isa::Wait> waits) {
  instruction.header.signal = true;
  size_t k = 0;
  for (const isa::Wait& wait : waits) instruction.header.waits[k++] = wait;
  return instruction;
}

isa::Fence publish(std::initializer_list<isa::Wait> waits = {}) {
  isa::Fence fence;
  fence.engine = Engine::kStore;
  fence.publish = true;
  return with(fence, waits);
}

isa::Fence await(Engine engine, int core, int count) {
  isa::Fence fence;
  fence.engine = engine;
  fence.await = true;
  fence.await_core = static_cast<uint8_t>(core);
  fence.await_count = static_cast<uint16_t>(count);
  return fence;
}

isa::Load fill(uint8_t value) {
  isa::Load i;
  i.space = Space::kOut;
  i.length = 64;
  i.fill = true;
  i.pad_value = value;
  return i;
}

isa::Load load(uint64_t from, uint16_t length = 64) {
  isa::Load i;
  i.space = Space::kOut;
  i.length = length;
  i.dram_offset = from;
  return i;
}

isa::Store store(uint64_t to) {
  isa::Store i;
  i.space = Space::kOut;
  i.length = 64;
  i.dram_offset = to;
  return i;
}

/// Writes 64 bytes of that value and publishes.
Program writer(uint8_t value, uint64_t to) {
  return {with(fill(value), {}), with(store(to), {after(Engine::kLoad, 1)}), publish(), isa::Finish{}};
}

/// Waits for that core, copies, publishes.
Program copier(int of, uint64_t from, uint64_t to) {
  return {await(Engine::kLoad, of, 1), with(load(from), {}), with(store(to), {after(Engine::kLoad, 1)}), publish(),
          isa::Finish{}};
}

class ChipTest : public ::testing::Test {
 protected:
  ChipTest() {
    config = isa::find_config("npu64");
    config.cores = 4;
  }

  ChipResult run(const std::vector<Program>& programs, bool check = true, std::vector<size_t> order = {}) {
    dram.assign(4096, 0);
    Chip chip(config);
    std::vector<RunRequest> cores(programs.size());
    for (size_t k = 0; k < programs.size(); ++k) {
      cores[k].instructions = programs[k];
      cores[k].dram = {&region, 1};
    }
    ChipRequest request;
    request.cores = cores;
    request.check_races = check;
    request.threads = !check;
    request.order = order;
    return chip.run(request);
  }

  isa::MachineConfig config;
  std::vector<uint8_t> dram = std::vector<uint8_t>(4096);
  DramRegion region{0, dram.data(), dram.size()};
};

const std::vector<std::vector<size_t>> kOrders = {{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}};

TEST_F(ChipTest, APublishCarriesBytesFromCoreToCore) {
  // Core 3 writes, 1 copies from it, 0 from that; core 2 has no program.
  const std::vector<Program> programs = {copier(1, 512, 1024), copier(3, 0, 512), {}, writer(7, 0)};
  for (const bool check : {true, false}) {
    for (const auto& order : kOrders) {
      const ChipResult result = run(programs, check, order);
      for (const RunResult& core : result.cores) EXPECT_TRUE(core.ok());
      EXPECT_TRUE(result.races.empty());
      EXPECT_EQ(dram[1024], 7);
      EXPECT_EQ(result.cores[2].counters.fetch_bytes, 0u);
      EXPECT_EQ(result.cores[1].counters.fetch_bytes, 5u * isa::kInstructionBytes);
    }
  }
}

TEST_F(ChipTest, RecordsDoNotDependOnTheOrder) {
  // Core 0 waits for core 1, which has a fault before it publishes; cores 2 and 3 wait for each other.
  Program faulty = writer(1, 0);
  faulty.insert(faulty.begin() + 1, isa::Store{});  // no extent
  const std::vector<Program> programs = {copier(1, 0, 512), faulty, copier(3, 0, 640), copier(2, 0, 768)};
  for (const bool check : {true, false}) {
    for (const auto& order : kOrders) {
      const ChipResult result = run(programs, check, order);
      EXPECT_EQ(result.cores[0].fault, (isa::FaultRecord{Fault::kNoProgress, Unit::kLoad, 0}));
      EXPECT_EQ(result.cores[1].fault.code, Fault::kIllegalOperand);
      EXPECT_EQ(result.cores[2].fault, (isa::FaultRecord{Fault::kNoProgress, Unit::kLoad, 0}));
      EXPECT_EQ(result.cores[3].fault, (isa::FaultRecord{Fault::kNoProgress, Unit::kLoad, 0}));
    }
  }
}

TEST_F(ChipTest, AFaultWaitsForOlderInstructions) {
  // The record is the earliest in program order: what LOAD does behind the await comes before the fault of FETCH.
  Program program = {await(Engine::kLoad, 1, 1), with(load(1 << 20), {}), isa::Store{}, isa::Finish{}};
  for (const auto& order : kOrders) {
    EXPECT_EQ(run({program, writer(1, 0)}, true, order).cores[0].fault,
              (isa::FaultRecord{Fault::kDramRange, Unit::kLoad, 1}));
    EXPECT_EQ(run({program, {isa::Finish{}}}, true, order).cores[0].fault,
              (isa::FaultRecord{Fault::kNoProgress, Unit::kLoad, 0}));
    program[1] = with(load(0), {});
    EXPECT_EQ(run({program, writer(1, 0)}, true, order).cores[0].fault,
              (isa::FaultRecord{Fault::kIllegalOperand, Unit::kFetch, 2}));
    program[1] = with(load(1 << 20), {});
  }
}

TEST_F(ChipTest, RacesBetweenCoresAreFound) {
  Program early = copier(1, 0, 512);
  early.erase(early.begin());  // does not wait
  for (const auto& order : kOrders) {
    const ChipResult result = run({early, writer(7, 0)}, true, order);
    ASSERT_EQ(result.races.size(), 1u);
    EXPECT_EQ(result.races[0].first, (Race::Access{0, Unit::kLoad, false, 0}));
    EXPECT_EQ(result.races[0].second, (Race::Access{1, Unit::kStore, true, 1}));
    EXPECT_TRUE(result.races[0].dram);
    EXPECT_EQ(result.races[0].end, 64u);
    EXPECT_EQ(run({writer(7, 0), writer(8, 32)}, true, order).races.size(), 1u);
    EXPECT_TRUE(run({writer(7, 0), writer(8, 64)}, true, order).races.empty());
  }
  // An await of an older publish than the one behind the write, though the later one may have come.
  Program twice = writer(7, 0);
  twice.insert(twice.begin(), publish());
  EXPECT_EQ(run({copier(1, 0, 512), twice}).races.size(), 1u);
  EXPECT_EQ(run({copier(1, 0, 512), twice}, true, {1, 0, 2, 3}).races.size(), 1u);
}

TEST_F(ChipTest, AWriteWaitsForTheReadsOfOtherCores) {
  // Core 0 reads what core 1 then overwrites: the publish waits for the LOAD.
  const Program reader = {with(load(0), {}), publish({after(Engine::kLoad, 1)}), isa::Finish{}};
  const Program careless = {with(load(0), {}), publish(), isa::Finish{}};
  const Program overwriter = {await(Engine::kStore, 0, 1), with(fill(3), {}), with(store(0), {after(Engine::kLoad, 1)}),
                              isa::Finish{}};
  EXPECT_TRUE(run({reader, overwriter}).races.empty());
  ASSERT_EQ(run({careless, overwriter}).races.size(), 1u);
}

TEST_F(ChipTest, AStoreOverAnotherCoresProgramIsARace) {
  Chip chip(config);
  std::vector<RunRequest> cores(2);
  const isa::Word finish = isa::encode(isa::Finish{});
  std::copy(finish.begin(), finish.end(), dram.begin() + 1024);
  const Program program = writer(0, 1024);
  cores[0].program_address = 1024;
  cores[0].instruction_count = 1;
  cores[1].instructions = program;
  for (RunRequest& core : cores) core.dram = {&region, 1};
  ChipRequest request;
  request.cores = cores;
  request.check_races = true;
  const ChipResult result = chip.run(request);
  ASSERT_EQ(result.races.size(), 1u);
  EXPECT_EQ(result.races[0].first, (Race::Access{0, Unit::kFetch, false, 0}));
}

TEST_F(ChipTest, TooManyProgramsAreRefused) {
  EXPECT_THROW(run(std::vector<Program>(5, Program{isa::Finish{}})), Error);
}

}  // namespace
}  // namespace tessera::sim
