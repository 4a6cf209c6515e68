// SPDX-License-Identifier: Apache-2.0
// Footprints against the sets of bytes that plain enumeration finds, for random instructions and by hand.
#include "sim/functional/footprint.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "sim/tests/configs.h"
#include "sim/tests/random_program.h"

namespace tessera::sim {
namespace {

using Bytes = std::map<std::tuple<bool, int, bool>, std::set<uint64_t>>;  // (dram, space, write) -> bytes

void add_nest(std::set<uint64_t>& to, int64_t base, std::vector<std::pair<int64_t, int64_t>> loops, size_t k = 0) {
  if (k == loops.size()) {
    to.insert(static_cast<uint64_t>(base));
    return;
  }
  for (int64_t i = 0; i < loops[k].first; ++i) add_nest(to, base + i * loops[k].second, loops, k + 1);
}

/// Everything an instruction touches, one byte at a time.
Bytes enumerate(const isa::Instruction& instruction, const isa::MachineConfig& c,
                const std::array<uint64_t, 16>& bases) {
  Bytes bytes;
  const auto at = [&](isa::Space space, bool write) -> std::set<uint64_t>& {
    return bytes[{false, static_cast<int>(space), write}];
  };
  if (const auto* i = std::get_if<isa::Load>(&instruction)) {
    for (int64_t i0 = 0; i0 < i->extent[0]; ++i0)
      for (int64_t i1 = 0; i1 < i->extent[1]; ++i1)
        for (int64_t i2 = 0; i2 < i->extent[2]; ++i2)
          for (int64_t i3 = 0; i3 < i->extent[3]; ++i3)
            for (int64_t n = 0; n < i->length; ++n) {
              at(i->space, true)
                  .insert(static_cast<uint64_t>(i->sp_addr + i0 * i->sp_stride[0] + i1 * i->sp_stride[1] +
                                                i2 * i->sp_stride[2] + i3 * i->sp_stride[3] + n));
              if (i->fill || i0 < i->pad_before[0] || i0 >= i->extent[0] - i->pad_after[0] || i1 < i->pad_before[1] ||
                  i1 >= i->extent[1] - i->pad_after[1]) {
                continue;
              }
              bytes[{true, 0, false}].insert(bases[i->base] + i->dram_offset +
                                             static_cast<uint64_t>((i0 - i->pad_before[0]) * i->dram_stride[0] +
                                                                   (i1 - i->pad_before[1]) * i->dram_stride[1] +
                                                                   i2 * i->dram_stride[2] + i3 * i->dram_stride[3] +
                                                                   n));
            }
  } else if (const auto* i = std::get_if<isa::Store>(&instruction)) {
    std::vector<std::pair<int64_t, int64_t>> sp, dram;
    for (int k = 0; k < 4; ++k) {
      sp.push_back({i->extent[k], i->sp_stride[k]});
      dram.push_back({i->extent[k], i->dram_stride[k]});
    }
    sp.push_back({i->length, 1});
    dram.push_back({i->length, 1});
    add_nest(at(i->space, false), i->sp_addr, sp);
    add_nest(bytes[{true, 0, true}], static_cast<int64_t>(bases[i->base] + i->dram_offset), dram);
  } else if (const auto* i = std::get_if<isa::Gemm>(&instruction)) {
    const auto nest = [&](std::set<uint64_t>& to, int addr, const auto& stride, int loops, int64_t entry, int64_t first,
                          int64_t rows, int64_t pitch, int64_t length) {
      std::vector<std::pair<int64_t, int64_t>> all;
      for (int k = 0; k < loops; ++k) all.push_back({i->extent[k], stride[k] * entry});
      all.push_back({rows, pitch});
      all.push_back({length, 1});
      add_nest(to, addr * entry + first, all);
    };
    const int64_t B = c.batch, I = c.block_in, O = c.block_out, L = c.lanes();
    const bool dw = i->mode == isa::GemmMode::kDepthwise;
    const int64_t lo = dw && O > I ? i->lane * L : 0, li = dw && I > O ? i->lane * L : 0;
    nest(at(isa::Space::kInp, false), i->inp_addr, i->inp_stride, 6, B * I, li, B, I, dw ? L : I);
    const int64_t taps = i->extent[5] * (i->reduce >= 2 ? i->extent[4] : 1);
    nest(at(isa::Space::kWgt, false), i->wgt_addr, i->wgt_stride, 6, O * I, lo * I, dw ? L : O, I, dw ? taps : I);
    for (const bool write : {false, true}) {
      if (!write && !i->accumulate) continue;
      nest(at(isa::Space::kAcc, write), i->acc_addr, i->acc_stride, 6 - i->reduce, 4 * B * O, 4 * lo, B, 4 * O,
           4 * (dw ? L : O));
    }
  } else if (const auto* i = std::get_if<isa::Alu>(&instruction)) {
    const auto nest = [&](isa::Space space, bool write, int addr, const auto& stride, int loops) {
      std::vector<std::pair<int64_t, int64_t>> all;
      for (int k = 0; k < loops; ++k) all.push_back({i->extent[k], stride[k] * c.entry_bytes(space)});
      all.push_back({c.entry_bytes(space), 1});
      add_nest(at(space, write), int64_t{addr} * c.entry_bytes(space), all);
    };
    const isa::Space spaces[] = {isa::Space::kAcc, isa::Space::kOut, isa::Space::kInp};
    nest(spaces[static_cast<int>(i->src)], false, i->src_addr, i->src_stride, 6);
    nest(spaces[static_cast<int>(i->dst)], true, i->dst_addr, i->dst_stride, 6 - i->reduce);
    std::set<uint64_t> param;
    if (i->convert) {
      const int64_t entries = i->param_loop == 7 ? 1 : i->extent[i->param_loop];
      add_nest(param, int64_t{i->param_addr} * 8 * c.block_out, {{entries * 8 * c.block_out, 1}});
    }
    if (i->second_op != isa::SecondOp::kNone) {
      nest(isa::Space::kOut, false, i->second_addr, i->second_stride, 6 - i->reduce);
      add_nest(param, int64_t{i->constant_addr} * 8 * c.block_out, {{32, 1}});
    }
    if (!param.empty()) at(isa::Space::kParam, false) = param;
    if (i->table_enable) add_nest(at(isa::Space::kTable, false), i->table * 256, {{256, 1}});
    if (i->second_table_enable) add_nest(at(isa::Space::kTable, false), i->second_table * 256, {{256, 1}});
  }
  return bytes;
}

TEST(Footprint, EqualsEnumeration) {
  testing::RandomLimits limits;
  limits.iterations = 60;
  limits.transfer_bytes = 600;
  limits.dram_bytes = 4096;
  for (const isa::MachineConfig& config : testing::all_configs()) {
    limits.instructions = 60;
    const testing::RandomProgram program = testing::RandomProgramMaker(config, 78, limits).make();
    for (const isa::Instruction& instruction : program.instructions) {
      Bytes found;
      for (const Touched& touched : footprint(instruction, config, program.bases)) {
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
      ASSERT_EQ(found, enumerate(instruction, config, program.bases))
          << config.name << " " << isa::info_of(instruction).name;
    }
  }
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
