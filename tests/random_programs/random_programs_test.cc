// SPDX-License-Identifier: Apache-2.0
// The proof's own tools: a machine with a planted defect is found, its program becomes small, survives a file, and the
// instruction where it goes wrong is named.
#include <gtest/gtest.h>

#include <cstdio>

#include "base/error.h"
#include "tests/random_programs/compare.h"
#include "tests/random_programs/coverage.h"

namespace tessera::proof {
namespace {

/// The functional simulator, but depthwise GEMMs that accumulate and have more than one iteration spoil a byte.
class Defective final : public Machine {
 public:
  explicit Defective(const isa::MachineConfig& config)
      : Machine("defective", config), inner_(make_machine("functional", config)) {}
  Outcome run(const Case& test) override {
    Outcome outcome = inner_->run(test);
    for (const isa::Instruction& instruction : test.instructions()) {
      const auto* gemm = std::get_if<isa::Gemm>(&instruction);
      if (gemm == nullptr || gemm->mode != isa::GemmMode::kDepthwise || !gemm->accumulate) continue;
      if (gemm->extent[5] > 1) outcome.scratchpads[static_cast<size_t>(isa::Space::kAcc)][5] ^= 64;
    }
    return outcome;
  }

 private:
  std::unique_ptr<Machine> inner_;
};

TEST(RandomPrograms, FindsShrinksAndReplays) {
  const isa::MachineConfig config = isa::find_config("npu64");
  Machines machines;
  machines.push_back(make_machine("functional", config));
  machines.push_back(std::make_unique<Defective>(config));
  const auto fails = [&](const Case& test) { return difference(test, machines).has_value(); };
  uint64_t seed = 1;
  while (!fails(make_case(config, seed, 30))) ASSERT_LT(++seed, 100u);
  const Case small = shrink(make_case(config, seed, 30), fails);
  ASSERT_EQ(small.words.size(), 2u);  // it and FINISH
  const auto gemm = std::get<isa::Gemm>(small.instructions()[0]);
  EXPECT_TRUE(gemm.accumulate);
  EXPECT_EQ(gemm.extent[5], 2);
  EXPECT_EQ(first_divergence(small, machines), 1u);

  const std::string path = ::testing::TempDir() + "/shrunk.s";
  save(small, path);
  const Case again = load(path);
  EXPECT_EQ(again.words, small.words);
  EXPECT_EQ(again.config, small.config);
  EXPECT_EQ(again.dram, small.dram);
  EXPECT_TRUE(fails(again));
  std::remove(path.c_str());
}

TEST(RandomPrograms, FaultyCasesSurviveAFile) {
  const isa::MachineConfig config = isa::find_config("npu256");
  const auto machine = make_machine("functional", config);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Case test = make_faulty_case(config, seed, 20);
    const isa::FaultRecord fault = machine->run(test).fault;
    EXPECT_NE(fault.code, isa::Fault::kNone) << seed << ": " << test.injected;
    const std::string path = ::testing::TempDir() + "/faulty.s";
    save(test, path);
    const Case again = load(path);
    EXPECT_EQ(again.words, test.words) << seed;
    EXPECT_EQ(machine->run(again).fault, fault) << seed;
    std::remove(path.c_str());
  }
}

TEST(RandomPrograms, CoverageKnowsWhatIsMissing) {
  const isa::MachineConfig config = isa::find_config("npu64");
  Coverage coverage(config);
  const size_t all = coverage.missing().size();
  coverage.add({isa::Fence{}, isa::Finish{}});
  EXPECT_EQ(coverage.missing().size(), all - 4);  // opcodes fence and finish, no wait, no signal
}

TEST(RandomPrograms, BadFilesAreOneError) {
  EXPECT_THROW(load("/nonexistent/file.s"), Error);
  const std::string path = ::testing::TempDir() + "/bad.s";
  std::FILE* file = std::fopen(path.c_str(), "w");
  std::fputs("#! seed 1\n.word 12\n", file);
  std::fclose(file);
  EXPECT_THROW(load(path), Error);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace tessera::proof
