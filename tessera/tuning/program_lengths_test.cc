// SPDX-License-Identifier: Apache-2.0
// Each length that a run may need has a program that is long enough, and none is much longer.
#include "tessera/tuning/program_lengths.h"

#include <gtest/gtest.h>

#include <set>

namespace tessera {
namespace {

TEST(ProgramLengths, AreLongEnoughAndFew) {
  for (const int64_t longest : {3, 24, 32, 33, 100, 256, 2048, 4095, 1 << 20}) {
    for (const int64_t steps : {1, 2, 3, 4, 64}) {
      std::set<int64_t> lengths;
      int64_t before = 0;
      for (int64_t needed = 1; needed <= std::min<int64_t>(longest, 5000); ++needed) {
        const int64_t length = program_length(needed, longest, steps);
        EXPECT_GE(length, needed);
        EXPECT_LE(length, longest);
        EXPECT_GE(length, before);  // as a sequence grows, so do its programs
        if (needed > kShortestProgram)
          EXPECT_LT(length - needed, (needed + steps - 1) / steps) << needed << " " << steps;
        EXPECT_EQ(program_length(length, longest, steps), length);
        before = length;
        lengths.insert(length);
      }
      EXPECT_LE(static_cast<int64_t>(lengths.size()), 1 + 8 * steps);
    }
  }
}

TEST(ProgramLengths, DoubleInSteps) {
  EXPECT_EQ(program_length(1, 2048, 2), 32);
  EXPECT_EQ(program_length(33, 2048, 2), 48);
  EXPECT_EQ(program_length(49, 2048, 2), 64);
  EXPECT_EQ(program_length(65, 2048, 1), 128);
  EXPECT_EQ(program_length(65, 2048, 4), 80);
  EXPECT_EQ(next_program_length(64, 2048, 2), 96);
  EXPECT_EQ(next_program_length(1536, 2000, 2), 2000);
  EXPECT_EQ(next_program_length(2000, 2000, 2), 2000);
}

}  // namespace
}  // namespace tessera
