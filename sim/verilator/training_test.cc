// SPDX-License-Identifier: Apache-2.0
// The training program is legal on every machine, ends without a fault, and has work for all engines in all modes that
// the machine has room for.
#include "sim/verilator/training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "isa/verify/verify.h"
#include "sim/functional/machine.h"
#include "sim/tests/configs.h"

namespace tessera::sim {
namespace {

/// Every memory has one entry.
isa::MachineConfig smallest() {
  isa::MachineConfig config = testing::odd_config(1, 4, 4, 1);
  config.table_count = 1;
  config.axi_bytes = 4;
  return config;
}

RunResult run(const isa::MachineConfig& config, TrainingProgram& program) {
  std::vector<uint8_t> words;
  for (const isa::Instruction& instruction : program.instructions) {
    const isa::Word word = isa::encode(instruction);
    words.insert(words.end(), word.begin(), word.end());
  }
  const DramRegion region{uint64_t{1} << 32, program.dram.data(), program.dram.size()};
  RunRequest request;
  request.program = words;
  request.bases[0] = region.address;
  request.dram = {&region, 1};
  request.check_races = true;
  return Machine(config).run(request);
}

TEST(Training, LegalEverywhere) {
  std::vector<isa::MachineConfig> configs = testing::all_configs();
  configs.push_back(smallest());
  for (const isa::MachineConfig& config : configs) {
    SCOPED_TRACE(config.name);
    TrainingProgram program = training_program(config);
    EXPECT_NO_THROW(isa::check_program(program.instructions, config));
    EXPECT_EQ(run(config, program).fault.code, isa::Fault::kNone);
    EXPECT_EQ(training_program(config).instructions, program.instructions);
  }
}

TEST(Training, WorkForEveryEngine) {
  const isa::MachineConfig config = isa::find_config("npu256");
  TrainingProgram program = training_program(config);
  const RunResult result = run(config, program);
  EXPECT_TRUE(result.races.empty());
  for (const uint64_t executed : result.counters.instructions) EXPECT_GT(executed, 0U);
  std::set<isa::GemmMode> modes;
  std::set<std::pair<isa::AluSpace, isa::AluSpace>> moves;
  bool residual = false, table = false, reduction = false, padding = false;
  for (const isa::Instruction& instruction : program.instructions) {
    if (const auto* gemm = std::get_if<isa::Gemm>(&instruction)) modes.insert(gemm->mode);
    if (const auto* load = std::get_if<isa::Load>(&instruction)) padding = padding || load->pad_before[0] != 0;
    const auto* alu = std::get_if<isa::Alu>(&instruction);
    if (alu == nullptr) continue;
    moves.insert({alu->src, alu->dst});
    residual = residual || alu->second_op == isa::SecondOp::kAdd;
    table = table || alu->table_enable;
    reduction = reduction || alu->reduce > 0;
  }
  EXPECT_EQ(modes.size(), 2U);
  EXPECT_EQ(moves.size(), 4U);  // ACC to OUT and INP, inside OUT, inside INP
  EXPECT_TRUE(residual && table && reduction && padding);
}

}  // namespace
}  // namespace tessera::sim
