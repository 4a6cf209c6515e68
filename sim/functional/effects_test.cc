// SPDX-License-Identifier: Apache-2.0
// The effects that isa.toml declares against the footprints of the race checker, which finds the same bytes from the
// meaning of the instructions and shares no code with them: on random instructions that are legal, on several
// configurations, each operand's range must be the hull of the footprint's bytes of that memory and that access.
#include "isa/verify/effects.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "isa/assembler.h"
#include "isa/random_instruction.h"
#include "isa/verify/verify.h"
#include "sim/functional/footprint.h"
#include "sim/tests/configs.h"
#include "sim/tests/random_program.h"

namespace tessera::sim {
namespace {

struct Hull {
  uint64_t begin = UINT64_MAX, end = 0;
  void add(uint64_t first, uint64_t last) {
    begin = std::min(begin, first);
    end = std::max(end, last);
  }
  bool operator==(const Hull&) const = default;
};
using Hulls = std::map<std::tuple<bool, int, bool>, Hull>;  // (dram, space, write)

/// `whole`: bytes widened to entries, in which GEMM and ALU count; a depthwise product uses some lanes of them.
Hulls of_footprint(const isa::Instruction& instruction, const isa::MachineConfig& config,
                   const std::array<uint64_t, 16>& bases, bool whole) {
  Hulls hulls;
  for (const Touched& touched : footprint(instruction, config, bases)) {
    if (touched.bytes.empty()) continue;
    uint64_t begin = touched.bytes.front().begin, end = touched.bytes.back().end;
    if (whole && !touched.dram) {
      const auto entry = static_cast<uint64_t>(config.entry_bytes(touched.space));
      begin = begin / entry * entry;
      end = (end + entry - 1) / entry * entry;
    }
    hulls[{touched.dram, touched.dram ? 0 : static_cast<int>(touched.space), touched.write}].add(begin, end);
  }
  return hulls;
}

Hulls of_effects(const isa::Effects& effects, const isa::MachineConfig& config, const std::array<uint64_t, 16>& bases,
                 bool whole) {
  Hulls hulls;
  for (const isa::Operand& operand : effects.operands) {
    uint64_t begin = static_cast<uint64_t>(operand.begin), end = static_cast<uint64_t>(operand.end);
    if (operand.dram) {
      begin += bases[operand.base];
      end += bases[operand.base];
    } else if (whole) {
      const auto entry = static_cast<uint64_t>(config.entry_bytes(operand.space));
      EXPECT_EQ(begin % entry, 0u);
      end = (end + entry - 1) / entry * entry;
    }
    hulls[{operand.dram, operand.dram ? 0 : static_cast<int>(operand.space), operand.write}].add(begin, end);
  }
  return hulls;
}

/// Bytes of a footprint in DRAM, when no two runs overlap.
int64_t dram_bytes_of(const std::vector<Touched>& touched, bool write) {
  int64_t bytes = 0;
  for (const Touched& t : touched) {
    if (!t.dram || t.write != write) continue;
    for (const Interval& run : t.bytes) bytes += static_cast<int64_t>(run.end - run.begin);
  }
  return bytes;
}

void compare(const isa::Instruction& instruction, const isa::MachineConfig& config,
             const std::array<uint64_t, 16>& bases) {
  const isa::Effects effects = isa::effects(instruction, config);
  const auto* gemm = std::get_if<isa::Gemm>(&instruction);
  const bool depthwise = gemm != nullptr && gemm->mode == isa::GemmMode::kDepthwise;
  EXPECT_EQ(of_effects(effects, config, bases, depthwise), of_footprint(instruction, config, bases, depthwise))
      << isa::disassemble(instruction);
  const std::vector<Touched> touched = footprint(instruction, config, bases);
  EXPECT_GE(effects.dram_read_bytes, dram_bytes_of(touched, false)) << isa::disassemble(instruction);
  EXPECT_GE(effects.dram_write_bytes, dram_bytes_of(touched, true)) << isa::disassemble(instruction);
  EXPECT_EQ(isa::dram_bytes(instruction), effects.dram_read_bytes + effects.dram_write_bytes);
  for (const isa::Operand& operand : effects.operands) EXPECT_TRUE(operand.in_range()) << operand.name;
}

TEST(Effects, EqualTheRaceCheckersFootprints) {
  std::array<size_t, std::variant_size_v<isa::Instruction>> seen{};
  for (const isa::MachineConfig& config : testing::all_configs()) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const testing::RandomProgram program = testing::RandomProgramMaker(config, seed).make();
      for (const isa::Instruction& instruction : program.instructions) {
        compare(instruction, config, program.bases);
        ++seen[instruction.index()];
      }
    }
  }
  for (size_t k = 0; k < seen.size(); ++k) EXPECT_GT(seen[k], 100u) << isa::kInstructions[k].name;
}

TEST(Effects, CountWhatLoopsDo) {
  isa::MachineConfig config = isa::find_config("npu64");
  config.batch = 3;
  isa::Load load;
  load.space = isa::Space::kWgt;
  load.length = 8;
  load.extent = {3, 4, 1, 5};
  load.sp_stride = {160, 40, 0, -8};
  load.sp_addr = 32;
  load.dram_stride = {100, 0, 0, 8};
  load.pad_before = {1, 0};
  load.pad_after = {0, 3};
  isa::Effects found = isa::effects(load, config);
  ASSERT_EQ(found.operands.size(), 2u);
  EXPECT_EQ(found.iterations, 60);
  EXPECT_EQ(found.operands[0].accesses, 60);
  EXPECT_EQ(found.operands[0].begin, 0);
  EXPECT_EQ(found.operands[0].end, 32 + 320 + 120 + 8);
  EXPECT_EQ(found.operands[1].accesses, 2 * 1 * 5);
  EXPECT_EQ(found.dram_read_bytes, 80);
  EXPECT_EQ(found.fill_bytes, 50 * 8);
  load.pad_before[0] = 3;  // nothing but padding
  EXPECT_EQ(isa::effects(load, config).dram(), nullptr);
  EXPECT_EQ(isa::effects(load, config).fill_bytes, 480);

  isa::Gemm gemm;
  gemm.extent = {2, 1, 3, 1, 1, 5};
  gemm.reduce = 1;
  found = isa::effects(gemm, config);
  EXPECT_EQ(found.macs, 30 * 3 * 8 * 8);
  EXPECT_EQ(found.results, 6);
  EXPECT_EQ(found.operands.size(), 3u);
  gemm.accumulate = true;
  gemm.mode = isa::GemmMode::kDepthwise;
  found = isa::effects(gemm, config);
  EXPECT_EQ(found.macs, 30 * 3 * 8);
  ASSERT_EQ(found.operands.size(), 4u);
  EXPECT_FALSE(found.operands[2].write);
  EXPECT_TRUE(found.operands[3].write);
  EXPECT_EQ(found.operands[3].accesses, 6);
  EXPECT_EQ(found.operands[3].bytes, 6 * 4 * 3 * 8);

  isa::Alu alu;
  alu.extent = {1, 1, 1, 1, 3, 9};
  alu.reduce = 1;
  alu.dst = isa::AluSpace::kOut;
  EXPECT_EQ(isa::effects(alu, config).operands.size(), 2u);
  EXPECT_EQ(isa::effects(alu, config).vectors, 27);
  alu.convert = true;
  alu.param_addr = 4;
  alu.param_loop = 4;
  alu.second_op = isa::SecondOp::kAdd;
  alu.constant_addr = 9;
  alu.table_enable = true;
  alu.table = 2;
  found = isa::effects(alu, config);
  ASSERT_EQ(found.operands.size(), 6u);
  EXPECT_EQ(found.operands[3].begin, 9 * 64);
  EXPECT_EQ(found.operands[3].end, 9 * 64 + 32);
  EXPECT_EQ(found.operands[4].lowest, 4);
  EXPECT_EQ(found.operands[4].highest, 6);
  EXPECT_EQ(found.operands[5].space, isa::Space::kTable);
  EXPECT_EQ(found.operands[5].begin, 512);
}

}  // namespace
}  // namespace tessera::sim
