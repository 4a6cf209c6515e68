// SPDX-License-Identifier: Apache-2.0
// Transfers as instructions: which loop of a padded LOAD is the inner one.
#include "compiler/npu/lowering/legalise.h"

#include <gtest/gtest.h>

namespace tessera::npu {
namespace {

/// Rows of pixels of eight bytes, each in an entry of sixteen, with a column of padding in front.
isa::Load rows_of_pixels(bool together) {
  Transfer rows;
  rows.length = 8;
  rows.loops.push_back({.extent = 5, .dram_stride = 384, .sp_stride = 224});
  rows.loops.push_back({.extent = 14, .dram_stride = 8, .sp_stride = 16, .pad_before = 1});
  rows.together = together;
  std::vector<isa::Instruction> made;
  append_transfer(rows, made);
  EXPECT_EQ(made.size(), 1);
  return std::get<isa::Load>(made[0]);
}

TEST(Legalise, PaddedLoopsGoOutside) {
  const isa::Load load = rows_of_pixels(false);
  EXPECT_EQ(load.extent[0], 14);
  EXPECT_EQ(load.pad_before[0], 1);
  EXPECT_EQ(load.extent[isa::kTransferLoops - 1], 5);
}

TEST(Legalise, PixelsThatAreRequestedTogetherGoInside) {
  const isa::Load load = rows_of_pixels(true);
  EXPECT_EQ(load.extent[0], 5);
  EXPECT_EQ(load.pad_before[0], 0);
  EXPECT_EQ(load.extent[1], 14);
  EXPECT_EQ(load.pad_before[1], 1);
  EXPECT_EQ(load.dram_stride[1], 8);
}

}  // namespace
}  // namespace tessera::npu
