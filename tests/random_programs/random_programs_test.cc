// SPDX-License-Identifier: Apache-2.0
// The proof's own tools: a machine with a planted defect is found, its program becomes small, survives a file, and the
// instruction where it goes wrong is named.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "base/error.h"
#include "isa/assembler.h"
#include "isa/raster.h"
#include "tests/random_programs/compare.h"
#include "tests/random_programs/coverage.h"
#include "tests/rtl_engines/gemm_timing.h"

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

/// Depthwise nests near the raster form, most fields of which are sometimes off by a little.
isa::Gemm near_raster(std::mt19937_64& random) {
  const auto pick = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<uint64_t>(high - low + 1));
  };
  isa::Gemm gemm;
  gemm.mode = isa::GemmMode::kDepthwise;
  gemm.reduce = static_cast<uint8_t>(pick(1, 2));
  const bool common = pick(0, 2) == 0;  // 3 x 3 taps side by side
  const int pixel = common ? 1 : pick(-2, 3), row = pick(-40, 40);
  const int x = 5 - gemm.reduce, y = 4 - gemm.reduce;
  for (auto& extent : gemm.extent) extent = static_cast<uint16_t>(pick(1, 3));
  gemm.inp_addr = static_cast<uint16_t>(pick(0, 1));
  gemm.extent[5] = static_cast<uint16_t>(common ? 3 : pick(1, 5));
  if (gemm.reduce == 2) gemm.extent[4] = static_cast<uint16_t>(common ? 3 : pick(1, 4));
  gemm.extent[static_cast<size_t>(x)] = static_cast<uint16_t>(pick(0, 3) == 0 ? pick(1, 4095) : pick(1, 20));
  gemm.extent[static_cast<size_t>(y)] = static_cast<uint16_t>(pick(0, 7) == 0 ? pick(1, 4095) : pick(1, 20));
  gemm.inp_stride[5] = static_cast<int16_t>(pixel);
  if (gemm.reduce == 2) gemm.inp_stride[4] = static_cast<int16_t>(row);
  const bool columns = pick(0, 3) != 0;
  gemm.inp_stride[static_cast<size_t>(x)] = static_cast<int16_t>(pick(1, 2) * (columns ? pixel : row));
  gemm.inp_stride[static_cast<size_t>(y)] = static_cast<int16_t>(pick(1, 2) * row);
  if (pick(0, 3) == 0) ++gemm.inp_stride[static_cast<size_t>(pick(0, 5))];
  if (pick(0, 3) == 0) gemm.wgt_stride[static_cast<size_t>(pick(0, 3))] = 1;
  return gemm;
}

TEST(Raster, EqualsTheBenchesRule) {
  std::mt19937_64 random(5);
  int found = 0, none = 0, two_rows = 0;
  for (int n = 0; n < 50000; ++n) {
    const isa::Gemm gemm = near_raster(random);
    const auto pairs = static_cast<int>(random() % 3);
    const auto ours = isa::raster_of(gemm, pairs);
    const auto oracle = testing::raster_form(gemm, pairs);
    ASSERT_EQ(ours.has_value(), oracle.has_value()) << isa::disassemble(gemm);
    int64_t steps = 1;
    for (int k = 0; k < (oracle ? oracle->kept : isa::kLoops); ++k) steps *= gemm.extent[static_cast<size_t>(k)];
    if (oracle && oracle->in_pairs) {
      const auto in_row = [&](bool early) {
        return static_cast<int64_t>(testing::newest_in_pairs(*oracle, early).size());
      };
      steps *= oracle->rows_in_pairs
                   ? (oracle->rows + 1) / 2 * in_row(false)
                   : (oracle->kernel_h - 1) * in_row(true) + (oracle->rows - oracle->kernel_h + 1) * in_row(false);
      two_rows += oracle->rows_in_pairs;
    } else if (oracle) {
      steps *= oracle->rows * oracle->cols;
    }
    ASSERT_EQ(isa::gemm_steps(gemm, pairs), steps) << isa::disassemble(gemm);
    ++(ours ? found : none);
    if (!ours) continue;
    ASSERT_EQ(ours->rows, oracle->rows) << isa::disassemble(gemm);
    ASSERT_EQ(ours->cols, oracle->cols);
    ASSERT_EQ(ours->stride_x, oracle->stride_x);
    ASSERT_EQ(ours->stride_y, oracle->stride_y);
    ASSERT_EQ(ours->tap_rows(), oracle->kernel_h);
    ASSERT_EQ(ours->tap_cols(), oracle->kernel_w);
    ASSERT_EQ(ours->outer_loops, oracle->kept);
  }
  EXPECT_GT(found, 5000);
  EXPECT_GT(none, 5000);
  EXPECT_GT(two_rows, 20);
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
