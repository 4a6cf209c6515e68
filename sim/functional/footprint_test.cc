// SPDX-License-Identifier: Apache-2.0
// Footprints against the bytes that the plain loops of the reference touch, for random instructions, and by hand.
#include "sim/functional/footprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "isa/assembler.h"
#include "sim/tests/configs.h"
#include "sim/tests/random_program.h"
#include "sim/tests/reference.h"

namespace tessera::sim {
namespace {

using Bytes = std::map<std::tuple<bool, int, bool>, std::set<uint64_t>>;  // (dram, space, write) -> bytes

/// Everything an instruction touches, one byte at a time, as the plain loops of the reference touch it.
Bytes touched_by_reference(const isa::Instruction& instruction, reference::Memories& memories) {
  Bytes bytes;
  memories.observe = [&](const reference::Memories::Access& access) {
    bytes[{access.dram, access.dram ? 0 : static_cast<int>(access.space), access.write}].insert(access.at);
  };
  reference::run({instruction}, memories);
  memories.observe = nullptr;
  return bytes;
}

/// Which word of a table is looked up depends on the data, and a PARAM entry with constants has words that mean
/// nothing: there the reference touches a part of the footprint.
bool depends_on_data(const Bytes::key_type& key) {
  const int space = std::get<1>(key);
  return !std::get<0>(key) &&
         (space == static_cast<int>(isa::Space::kTable) || space == static_cast<int>(isa::Space::kParam));
}

TEST(Footprint, EqualsWhatPlainLoopsTouch) {
  testing::RandomLimits limits;
  limits.iterations = 60;
  limits.transfer_bytes = 600;
  limits.dram_bytes = 4096;
  limits.instructions = 60;
  for (const isa::MachineConfig& config : testing::all_configs()) {
    const testing::RandomProgram program = testing::RandomProgramMaker(config, 78, limits).make();
    reference::Memories memories(config);
    memories.dram = program.dram;
    // The reference counts addresses from the first byte of DRAM.
    for (size_t b = 0; b < program.bases.size(); ++b) memories.bases[b] = program.bases[b] - program.dram_address;
    std::array<uint64_t, 16> bases{};
    std::copy(std::begin(memories.bases), std::end(memories.bases), bases.begin());
    for (const isa::Instruction& instruction : program.instructions) {
      Bytes found;
      for (const Touched& touched : footprint(instruction, config, bases)) {
        auto& to = found[{touched.dram, touched.dram ? 0 : static_cast<int>(touched.space), touched.write}];
        uint64_t last = 0;
        bool first = true;
        for (const Interval& i : touched.bytes) {
          ASSERT_LT(i.begin, i.end);
          ASSERT_TRUE(first || i.begin > last) << "not sorted and apart";
          first = false;
          last = i.end;
          for (uint64_t b = i.begin; b < i.end; ++b) to.insert(b);
        }
      }
      const Bytes expected = touched_by_reference(instruction, memories);
      ASSERT_EQ(found.size(), expected.size()) << config.name << " " << isa::disassemble(instruction);
      for (const auto& [key, bytes] : expected) {
        if (depends_on_data(key)) {
          ASSERT_TRUE(std::includes(found[key].begin(), found[key].end(), bytes.begin(), bytes.end()))
              << config.name << " " << isa::disassemble(instruction);
        } else {
          ASSERT_EQ(found[key], bytes) << config.name << " " << isa::disassemble(instruction);
        }
      }
    }
  }
}

TEST(Footprint, TablesAndConstants) {
  const isa::MachineConfig config = isa::find_config("npu256");
  isa::Alu alu;
  alu.dst = isa::AluSpace::kOut;
  alu.extent[4] = 3;
  alu.convert = alu.table_enable = alu.second_table_enable = true;
  alu.param_addr = 5;
  alu.param_loop = 4;
  alu.table = 2;
  alu.second_table = 7;
  alu.second_op = isa::SecondOp::kMax;
  alu.constant_addr = 9;
  std::map<int, std::vector<IntervalSet>> read;
  for (const Touched& touched : footprint(alu, config, {})) {
    if (!touched.write) read[static_cast<int>(touched.space)].push_back(touched.bytes);
  }
  using Sets = std::vector<IntervalSet>;
  EXPECT_EQ(read[static_cast<int>(isa::Space::kTable)], (Sets{{{512, 768}}, {{1792, 2048}}}));
  EXPECT_EQ(read[static_cast<int>(isa::Space::kParam)], (Sets{{{640, 1024}}, {{1152, 1184}}}));
}

TEST(StridedSet, JoinsAndKeepsHoles) {
  EXPECT_EQ(strided_set(100, 4, {}), (IntervalSet{{100, 104}}));
  EXPECT_EQ(strided_set(100, 4, {{3, 4}}), (IntervalSet{{100, 112}}));
  EXPECT_EQ(strided_set(100, 4, {{3, 5}}), (IntervalSet{{100, 104}, {105, 109}, {110, 114}}));
  EXPECT_EQ(strided_set(110, 4, {{3, -5}}), (IntervalSet{{100, 104}, {105, 109}, {110, 114}}));
  EXPECT_EQ(strided_set(0, 1, {{3, 10}, {2, 10}}), (IntervalSet{{0, 1}, {10, 11}, {20, 21}, {30, 31}}));  // windows
  EXPECT_EQ(strided_set(0, 2, {{2, 3}, {2, 4}}), (IntervalSet{{0, 2}, {3, 6}, {7, 9}}));                  // interleaved
  EXPECT_EQ(strided_set(0, 8, {{1000, 0}, {4, 8}, {5, 32}}), (IntervalSet{{0, 160}}));
}

TEST(StridedSet, DenseNestsStaySmall) {
  // A convolution window: 4000^3 iterations of pixels and taps collapse into rows.
  EXPECT_EQ(strided_set(0, 16, {{4000, 70000}, {4000, 16}, {3, 70000}, {3, 16}}).size(), 4002u);
}

}  // namespace
}  // namespace tessera::sim
