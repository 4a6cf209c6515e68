// SPDX-License-Identifier: Apache-2.0
// Cuts of transfers into runs, against a walk in plain loops.
#include <gtest/gtest.h>

#include "sim/systemc/walk.h"

namespace tessera::sim::systemc {
namespace {

TEST(Walk, JoinsWhatContinues) {
  isa::Load load;
  load.length = 100;
  load.extent = {1, 1, 3, 20};
  load.dram_stride = {0, 0, 5000, 100};
  load.sp_stride = {0, 0, 2000, 100};
  Walk walk(load, 64, 1024);
  std::vector<uint32_t> bytes, steps;
  while (!walk.done()) {
    const auto run = walk.next();
    bytes.push_back(run.bytes);
    steps.push_back(run.steps);
    EXPECT_EQ(run.last, walk.done());
  }
  EXPECT_EQ(bytes, (std::vector<uint32_t>{1100, 900, 1100, 900, 1100, 900}));
  EXPECT_EQ(steps, (std::vector<uint32_t>{11, 9, 11, 9, 11, 9}));
}

}  // namespace
}  // namespace tessera::sim::systemc
