// SPDX-License-Identifier: Apache-2.0
// Cycles by layer and cause on runs small enough to count by hand.
#include "runtime/attribution.h"

#include <gtest/gtest.h>

namespace tessera::runtime {
namespace {

driver::InstructionProfile one(uint32_t pc, isa::Unit unit, uint64_t start, uint64_t first, uint64_t last,
                               uint64_t end) {
  driver::InstructionProfile p;
  p.pc = pc;
  p.unit = unit;
  p.steps = unit == isa::Unit::kGemm || unit == isa::Unit::kAlu ? 1 : 0;
  p.start_cycle = start;
  p.first_busy_cycle = first;
  p.last_busy_cycle = last;
  p.end_cycle = end;
  return p;
}

using Causes = std::array<uint64_t, kCauses>;

TEST(Attribution, EveryCycleHasOneCauseAndOneLayer) {
  // Layer 0: LOAD 10..29, GEMM busy 32..51. Layer 1: its LOAD 20..45 is hidden but for 30 and 31; ALU 50..59;
  // STORE 60..79.
  const std::vector<driver::InstructionProfile> profile = {
      one(0, isa::Unit::kLoad, 10, 12, 28, 29),  one(1, isa::Unit::kLoad, 20, 30, 44, 45),
      one(2, isa::Unit::kGemm, 31, 32, 51, 54),  one(3, isa::Unit::kAlu, 48, 50, 59, 61),
      one(4, isa::Unit::kStore, 60, 62, 70, 79), one(5, isa::Unit::kFetch, 82, 82, 82, 82)};
  const std::vector<uint32_t> layers = {0, 1, 0, 1, 1, 99};
  const auto result = attribute_cycles(profile, layers, 2, 84);
  ASSERT_EQ(result.size(), 2U);
  EXPECT_EQ(result[0].causes, (Causes{20, 0, 20, 0, 10}));  // cycles 0..9 wait for its LOAD
  EXPECT_EQ(result[0].cycles, 50U);
  EXPECT_EQ(result[1].causes, (Causes{0, 8, 2, 20, 4}));  // cycles 80..83: what follows the last work
  EXPECT_EQ(result[1].cycles, 34U);
  EXPECT_EQ(result[0].begin_cycle, 10U);
  EXPECT_EQ(result[0].end_cycle, 55U);
  EXPECT_EQ(result[0].gemm_cycles, 20U);
  EXPECT_EQ(result[1].begin_cycle, 20U);
  EXPECT_EQ(result[1].end_cycle, 80U);
  EXPECT_EQ(result[1].alu_cycles, 10U);  // two of them beside GEMM
}

TEST(Attribution, ALayerHasAtLeastTheCyclesOfItsProducts) {
  // Layer 1 completes before layer 0 does: the products of both count where they are.
  const std::vector<driver::InstructionProfile> profile = {one(0, isa::Unit::kGemm, 0, 0, 9, 12),
                                                           one(1, isa::Unit::kGemm, 5, 10, 29, 32),
                                                           one(2, isa::Unit::kGemm, 20, 30, 39, 42)};
  const std::vector<uint32_t> layers = {0, 1, 0};
  const auto result = attribute_cycles(profile, layers, 2, 45);
  EXPECT_EQ(result[0].causes, (Causes{20, 0, 0, 0, 5}));
  EXPECT_EQ(result[1].causes, (Causes{20, 0, 0, 0, 0}));
  for (const auto& layer : result) EXPECT_GE(layer.cycles, layer.gemm_cycles);
}

TEST(Attribution, WhatIsHiddenCostsNothing) {
  // Layer 1 loads beside layer 0's products; layer 2 comes after a gap that it pays for.
  const std::vector<driver::InstructionProfile> profile = {one(0, isa::Unit::kLoad, 0, 1, 8, 9),
                                                           one(1, isa::Unit::kGemm, 0, 0, 19, 22),
                                                           one(2, isa::Unit::kLoad, 25, 26, 39, 39)};
  const std::vector<uint32_t> layers = {1, 0, 2};
  const auto result = attribute_cycles(profile, layers, 3, 40);
  EXPECT_EQ(result[0].causes, (Causes{20, 0, 0, 0, 0}));
  EXPECT_EQ(result[1].cycles, 0U);
  EXPECT_EQ(result[2].causes, (Causes{0, 0, 15, 0, 5}));
}

TEST(Attribution, OverlappingLoadsBelongToTheOldest) {
  const std::vector<driver::InstructionProfile> profile = {one(0, isa::Unit::kLoad, 0, 1, 8, 9),
                                                           one(1, isa::Unit::kLoad, 4, 10, 19, 19),
                                                           one(2, isa::Unit::kStore, 15, 15, 29, 29)};
  const std::vector<uint32_t> layers = {0, 1, 2};
  const auto result = attribute_cycles(profile, layers, 3, 30);
  EXPECT_EQ(result[0].causes, (Causes{0, 0, 10, 0, 0}));
  EXPECT_EQ(result[1].causes, (Causes{0, 0, 10, 0, 0}));
  EXPECT_EQ(result[2].causes, (Causes{0, 0, 0, 10, 0}));
}

TEST(Attribution, Limits) {
  const auto layer = [](uint64_t compute, uint64_t load, uint64_t sync, uint64_t gemm, uint64_t alu) {
    LayerCycles l;
    l.causes = {compute, 0, load, 0, sync};
    l.cycles = compute + load + sync;
    l.gemm_cycles = gemm;
    l.alu_cycles = alu;
    return l;
  };
  EXPECT_EQ(limit_of(layer(95, 5, 0, 95, 20), 99), "compute");
  EXPECT_EQ(limit_of(layer(70, 30, 0, 70, 20), 95), "dram");
  EXPECT_EQ(limit_of(layer(70, 30, 0, 70, 20), 40), "compute");
  EXPECT_EQ(limit_of(layer(0, 30, 0, 0, 29), 10), "alu");
  EXPECT_EQ(limit_of(layer(60, 20, 20, 60, 20), 54), "sync");
  EXPECT_EQ(limit_of(layer(0, 0, 0, 50, 0), 10), "");
}

TEST(Attribution, NothingToAttribute) {
  EXPECT_TRUE(attribute_cycles({}, {}, 3, 10).empty());
  const std::vector<driver::InstructionProfile> profile = {one(0, isa::Unit::kLoad, 0, 1, 8, 9)};
  EXPECT_TRUE(attribute_cycles(profile, {}, 0, 10).empty());
}

}  // namespace
}  // namespace tessera::runtime
