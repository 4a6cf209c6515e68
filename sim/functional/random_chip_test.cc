// SPDX-License-Identifier: Apache-2.0
// Random programs of several cores: the functional simulator in several orders of the cores, and on threads, against
// plain loops that run the instructions one by one. Races and deadlocks that are planted are found.
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "sim/functional/chip.h"
#include "sim/tests/configs.h"
#include "sim/tests/random_chip.h"
#include "sim/tests/reference.h"

namespace tessera::sim {
namespace {

using testing::Planted;
using testing::RandomChip;

struct State {
  std::vector<isa::FaultRecord> faults;
  std::vector<std::vector<uint8_t>> bytes;  // DRAM, then the scratchpads by core
  size_t races = 0;
};

std::vector<std::vector<uint8_t>> initial(const isa::MachineConfig& config, const RandomChip& program, size_t core) {
  Machine machine(config, Kernels::kPortable);
  machine.poison(core);
  machine.write_scratchpad(isa::Space::kParam, 0, program.param);
  std::vector<std::vector<uint8_t>> bytes;
  for (int s = 0; s < isa::kSpaces; ++s) {
    const auto from = machine.scratchpad(static_cast<isa::Space>(s));
    bytes.emplace_back(from.begin(), from.end());
  }
  return bytes;
}

State run(const isa::MachineConfig& config, const RandomChip& program, bool threads, std::span<const size_t> order) {
  Chip chip(config);
  State state;
  state.bytes.push_back(program.dram);
  const DramRegion region{program.dram_address, state.bytes[0].data(), state.bytes[0].size()};
  std::vector<RunRequest> cores(program.programs.size());
  for (size_t k = 0; k < cores.size(); ++k) {
    const auto bytes = initial(config, program, k);
    for (int s = 0; s < isa::kSpaces; ++s) chip.core(k).write_scratchpad(static_cast<isa::Space>(s), 0, bytes[s]);
    cores[k].instructions = program.programs[k];
    cores[k].bases = program.bases;
    cores[k].dram = {&region, 1};
  }
  ChipRequest request;
  request.cores = cores;
  request.check_races = !threads;
  request.threads = threads;
  request.order = order;
  const ChipResult result = chip.run(request);
  state.races = result.races.size();
  for (size_t k = 0; k < cores.size(); ++k) {
    state.faults.push_back(result.cores[k].fault);
    for (int s = 0; s < isa::kSpaces; ++s) {
      const auto bytes = chip.core(k).scratchpad(static_cast<isa::Space>(s));
      state.bytes.emplace_back(bytes.begin(), bytes.end());
    }
  }
  return state;
}

/// One instruction after another, in the maker's order.
std::vector<std::vector<uint8_t>> reference(const isa::MachineConfig& config, const RandomChip& program) {
  std::vector<reference::Memories> cores(program.programs.size(), reference::Memories(config));
  for (size_t k = 0; k < cores.size(); ++k) {
    const auto bytes = initial(config, program, k);
    for (int s = 0; s < isa::kSpaces; ++s) cores[k].bytes[s] = bytes[s];
    for (int b = 0; b < 16; ++b) cores[k].bases[b] = program.bases[b] - program.dram_address;
    cores[k].limit = program.bases[isa::kRowLimitBase] & isa::kRowLimitMask;
  }
  std::vector<uint8_t> dram = program.dram;
  for (const auto& [core, number] : program.order) {
    cores[core].dram.swap(dram);
    reference::run({program.programs[core][number]}, cores[core]);
    cores[core].dram.swap(dram);
  }
  std::vector<std::vector<uint8_t>> all{dram};
  for (const reference::Memories& core : cores) all.insert(all.end(), std::begin(core.bytes), std::end(core.bytes));
  return all;
}

void check(const isa::MachineConfig& config, const RandomChip& program) {
  std::vector<std::span<const isa::Instruction>> spans(program.programs.begin(), program.programs.end());
  isa::check_programs(spans, config);
}

std::vector<std::vector<size_t>> orders(size_t cores, uint64_t seed) {
  std::vector<size_t> up(cores);
  std::iota(up.begin(), up.end(), size_t{0});
  std::vector<size_t> down(up.rbegin(), up.rend()), mixed = up;
  std::mt19937_64 random(seed);
  std::shuffle(mixed.begin(), mixed.end(), random);
  return {up, down, mixed};
}

std::vector<isa::MachineConfig> chips() {
  return {testing::chip_of(isa::find_config("npu64"), 2), testing::chip_of(testing::odd_config(1, 4, 4, 37), 3),
          testing::chip_of(testing::row_config(8, 8, 64, 4), 4),
          testing::chip_of(testing::odd_config(1, 4, 4, 37), 16)};
}

TEST(RandomChip, EveryOrderGivesTheSameBytes) {
  size_t awaits = 0;
  for (const isa::MachineConfig& config : chips()) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      SCOPED_TRACE(config.name + ", seed " + std::to_string(seed));
      const RandomChip program = testing::RandomChipMaker(config, seed, {{.instructions = 20}}).make();
      awaits += program.awaits;
      check(config, program);
      const auto wanted = reference(config, program);
      for (const auto& order : orders(program.programs.size(), seed)) {
        const State state = run(config, program, false, order);
        for (const isa::FaultRecord& fault : state.faults) ASSERT_EQ(fault.code, isa::Fault::kNone);
        ASSERT_EQ(state.races, 0u);
        ASSERT_EQ(state.bytes, wanted);
      }
      ASSERT_EQ(run(config, program, true, {}).bytes, wanted);
    }
  }
  EXPECT_GT(awaits, 1000u);
}

TEST(RandomChip, PlantedRacesAreFound) {
  for (const isa::MachineConfig& config : chips()) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      SCOPED_TRACE(config.name + ", seed " + std::to_string(seed));
      const RandomChip program = testing::RandomChipMaker(config, seed, {{.instructions = 12}}).make(Planted::kRace);
      check(config, program);
      for (const auto& order : orders(program.programs.size(), seed)) {
        EXPECT_GT(run(config, program, false, order).races, 0u);
      }
    }
  }
}

TEST(RandomChip, PlantedDeadlocksAreFound) {
  for (const isa::MachineConfig& config : chips()) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      SCOPED_TRACE(config.name + ", seed " + std::to_string(seed));
      const RandomChip program =
          testing::RandomChipMaker(config, seed, {{.instructions = 12}}).make(Planted::kDeadlock);
      EXPECT_THROW(check(config, program), Error);
      std::vector<isa::FaultRecord> wanted;
      for (const auto& order : orders(program.programs.size(), seed)) {
        const State state = run(config, program, false, order);
        if (wanted.empty()) wanted = state.faults;
        EXPECT_EQ(state.faults, wanted);
      }
      EXPECT_EQ(run(config, program, true, {}).faults, wanted);
      EXPECT_EQ(std::count_if(wanted.begin(), wanted.end(),
                              [](const auto& fault) { return fault.code == isa::Fault::kNoProgress; }),
                2);
    }
  }
}

}  // namespace
}  // namespace tessera::sim
