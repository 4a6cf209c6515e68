// SPDX-License-Identifier: Apache-2.0
// Every assertion named in mutate.py notices its mistake: random programs under a memory that answers at random moments
// run on the mutated machine until the assertion speaks. Without a mistake none speaks. Each mistake has a process of
// its own, because what a broken machine asks of the memory may end it in other ways.
#include <gtest/gtest.h>

#include <cstdio>

#include "base/error.h"
#include "sim/tests/random_program.h"
#include "sim/verilator/machine.h"
#include "tests/rtl_assert/report.h"

namespace tessera::testing {
namespace {

const std::vector<Mutant> kMutants = {
#include "mutants.inc"
};

constexpr uint64_t kProgramOffset = 1 << 16;
constexpr uint64_t kSeeds = 60;

void run_program(const isa::MachineConfig& config, uint64_t seed) {
  sim::testing::RandomLimits limits;
  limits.instructions = 30;
  sim::testing::RandomProgramMaker maker(config, seed, limits);
  const sim::testing::RandomProgram program = maker.make();
  std::vector<uint8_t> dram = program.dram;
  dram.resize(kProgramOffset);
  for (const isa::Instruction& instruction : program.instructions) {
    const isa::Word word = isa::encode(instruction);
    dram.insert(dram.end(), word.begin(), word.end());
  }
  sim::DramModel model({.beat_bytes = config.axi_bytes,
                        .latency_cycles = seed % 2 == 0 ? 2 : 200,
                        .pressure_percent = seed % 2 == 0 ? 50 : 0,
                        .seed = seed},
                       program.dram_address, dram.data(), dram.size());
  sim::RtlRequest request;
  request.program_address = program.dram_address + kProgramOffset;
  request.instruction_count = static_cast<uint32_t>(program.instructions.size());
  request.bases = program.bases;
  request.window_first = program.dram_address;
  request.window_last = program.dram_address + dram.size() - 1;
  request.max_cycles = 100000;
  const auto machine = sim::make_rtl(config, {});
  machine->write_scratchpad(isa::Space::kParam, 0, program.param);
  machine->set_register_delay(static_cast<int>(seed % 3));
  machine->run(request, model);
}

/// Runs programs until an assertion speaks and writes what it says to standard error; returns 0 then, else 1.
int hunt(const std::string& wanted) {
  const isa::MachineConfig config = sim::rtl_configs().front();
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    try {
      run_program(config, seed);
    } catch (const Error& error) {
      const std::string text = error.what();
      if (text.find(wanted) == std::string::npos) continue;  // another one, or a machine that hangs
      std::fprintf(stderr, "seed %d: %s\n", static_cast<int>(seed), text.c_str());
      return 0;
    }
  }
  return 1;
}

class AssertionMutation : public ::testing::TestWithParam<size_t> {};

TEST_P(AssertionMutation, IsNoticed) {
  const Mutant& mutant = kMutants[GetParam()];
  ::testing::FLAGS_gtest_death_test_style = "fast";
  EXPECT_EXIT(
      {
        rtl_mutant = static_cast<int>(GetParam()) + 1;
        std::exit(hunt(mutant.assertion));
      },
      ::testing::ExitedWithCode(0), mutant.assertion)
      << mutant.module << ": " << mutant.line;
}

INSTANTIATE_TEST_SUITE_P(All, AssertionMutation, ::testing::Range(size_t{0}, kMutants.size()), [](const auto& info) {
  return std::to_string(info.param + 1) + "_" + kMutants[info.param].module;
});

TEST(AssertionMutation, NothingWithoutMistake) {
  for (uint64_t seed = 1; seed <= 10; ++seed) run_program(sim::rtl_configs().front(), seed);
}

}  // namespace
}  // namespace tessera::testing
