// SPDX-License-Identifier: Apache-2.0
// Random programs over the whole ISA: the simulator with each kernel set against the plain loops of the reference
// machine, for every shipped configuration and some that are not shipped. Compared are all scratchpads and DRAM, byte
// for byte.
#include <gtest/gtest.h>

#include "sim/functional/machine.h"
#include "sim/tests/configs.h"
#include "sim/tests/random_program.h"
#include "sim/tests/reference.h"

namespace tessera::sim {
namespace {

void compare(const isa::MachineConfig& config, uint64_t seed, testing::RandomLimits limits) {
  SCOPED_TRACE("config " + config.name + ", seed " + std::to_string(seed));
  const testing::RandomProgram program = testing::RandomProgramMaker(config, seed, limits).make();
  isa::check_program(program.instructions, config);
  reference::Memories expected(config);
  bool first = true;
  for (const Kernels kernels : {Kernels::kPortable, Kernels::kAvx2, Kernels::kAvx512}) {
    if (!supported(kernels)) continue;
    Machine machine(config, kernels);
    machine.poison(seed);
    machine.write_scratchpad(isa::Space::kParam, 0, program.param);
    if (first) {
      for (int s = 0; s < isa::kSpaces; ++s) {
        const auto bytes = machine.scratchpad(static_cast<isa::Space>(s));
        expected.bytes[s].assign(bytes.begin(), bytes.end());
      }
      expected.dram = program.dram;
      for (int b = 0; b < 16; ++b) expected.bases[b] = program.bases[b] - program.dram_address;
      expected.limit = program.bases[isa::kRowLimitBase] & isa::kRowLimitMask;
      reference::run(program.instructions, expected);
      first = false;
    }
    std::vector<uint8_t> dram = program.dram;
    const DramRegion region{program.dram_address, dram.data(), dram.size()};
    std::vector<uint8_t> words;
    for (const isa::Instruction& instruction : program.instructions) {
      const isa::Word word = isa::encode(instruction);
      words.insert(words.end(), word.begin(), word.end());
    }
    RunRequest request;
    request.program = words;
    request.bases = program.bases;
    request.dram = {&region, 1};
    request.check_races = true;
    const RunResult result = machine.run(request);
    ASSERT_TRUE(result.ok()) << to_string(result.fault.code) << " at " << result.fault.pc;
    EXPECT_TRUE(result.races.empty());
    for (int s = 0; s < isa::kSpaces; ++s) {
      const auto space = static_cast<isa::Space>(s);
      const auto actual = machine.scratchpad(space);
      const auto& wanted = expected[space];
      const auto at = std::mismatch(wanted.begin(), wanted.end(), actual.begin()).first - wanted.begin();
      ASSERT_EQ(static_cast<size_t>(at), wanted.size())
          << to_string(space) << " differs at byte " << at << " with kernels " << to_string(kernels);
    }
    ASSERT_EQ(dram, expected.dram) << to_string(kernels);
  }
}

TEST(RandomProgram, EqualsReferenceOnAllConfigurations) {
  for (const isa::MachineConfig& config : testing::all_configs()) {
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      compare(config, seed, {});
      if (HasFatalFailure() || HasNonfatalFailure()) return;
    }
  }
}

TEST(RandomProgram, LongNests) {
  testing::RandomLimits limits;
  limits.instructions = 12;
  limits.iterations = 3000;
  limits.transfer_bytes = 16384;
  for (const isa::MachineConfig& config : testing::all_configs()) {
    compare(config, 1000, limits);
    compare(config, 1001, limits);
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

}  // namespace
}  // namespace tessera::sim
