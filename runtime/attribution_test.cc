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
  p.macs = unit == isa::Unit::kGemm ? 1 : 0;
  p.vectors = unit == isa::Unit::kAlu ? 1 : 0;
  p.start_cycle = start;
  p.first_busy_cycle = first;
  p.last_busy_cycle = last;
  p.end_cycle = end;
  return p;
}

using Causes = std::array<uint64_t, kCauses>;

TEST(Attribution, EveryCycleHasOneCause) {
  // Layer 0: LOAD 10..29, GEMM busy 32..51. Layer 1: its LOAD 20..45 is hidden but for 30 and 31; ALU 50..59;
  // STORE 60..79.
  const std::vector<driver::InstructionProfile> profile = {
      one(0, isa::Unit::kLoad, 10, 12, 28, 29),  one(1, isa::Unit::kLoad, 20, 30, 44, 45),
      one(2, isa::Unit::kGemm, 31, 32, 51, 54),  one(3, isa::Unit::kAlu, 48, 50, 59, 61),
      one(4, isa::Unit::kStore, 60, 62, 70, 79), one(5, isa::Unit::kFetch, 82, 82, 82, 82)};
  const std::vector<uint32_t> layers = {0, 1, 0, 1, 1, 99};
  const auto result = attribute_cycles(profile, layers, 2, 84);
  ASSERT_EQ(result.size(), 2U);
  EXPECT_EQ(result[0].cycles, 55U);  // to the end of GEMM
  EXPECT_EQ(result[0].causes, (Causes{20, 3, 22, 0, 10}));
  EXPECT_EQ(result[1].cycles, 29U);  // and from there to the end of all
  EXPECT_EQ(result[1].causes, (Causes{0, 5, 0, 20, 4}));
}

TEST(Attribution, WhatEndsEarlyCostsNothing) {
  // Layer 1 completes before layer 0 does; layer 2 takes what is left.
  const std::vector<driver::InstructionProfile> profile = {one(0, isa::Unit::kLoad, 0, 1, 8, 9),
                                                           one(1, isa::Unit::kGemm, 0, 0, 19, 22),
                                                           one(2, isa::Unit::kLoad, 25, 26, 39, 39)};
  const std::vector<uint32_t> layers = {1, 0, 2};
  const auto result = attribute_cycles(profile, layers, 3, 40);
  EXPECT_EQ(result[0].causes, (Causes{20, 0, 0, 0, 3}));
  EXPECT_EQ(result[1].cycles, 0U);
  EXPECT_EQ(result[2].causes, (Causes{0, 0, 15, 0, 2}));
}

TEST(Attribution, NothingToAttribute) {
  EXPECT_TRUE(attribute_cycles({}, {}, 3, 10).empty());
  const std::vector<driver::InstructionProfile> profile = {one(0, isa::Unit::kLoad, 0, 1, 8, 9)};
  EXPECT_TRUE(attribute_cycles(profile, {}, 0, 10).empty());
}

}  // namespace
}  // namespace tessera::runtime
