// SPDX-License-Identifier: Apache-2.0
// Rows of a matrix that become columns of blocks: LOADs whose runs continue each other in DRAM and not in INP, so that
// they are requested together. Enters: a random state and a configuration. Leaves: one legal LOAD of at most 32 KB.
#pragma once

#include <algorithm>
#include <random>

#include "isa/config.h"
#include "isa/generated/instructions.h"

namespace tessera::sim::testing {

inline isa::Load transposing_load(std::mt19937_64& random, const isa::MachineConfig& config) {
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  const auto one_of = [&](std::initializer_list<int64_t> values) {
    return *(values.begin() + pick(0, static_cast<int64_t>(values.size()) - 1));
  };
  const int64_t width = config.axi_bytes, bytes = std::min<int64_t>(config.space_bytes(isa::Space::kInp), 16384);
  isa::Load i;
  i.space = isa::Space::kInp;
  const int64_t beats = std::min(one_of({1, 2, 1, 3, 4, 7, 9, 1}), bytes / (4 * width));
  i.length = static_cast<uint16_t>(beats * width - (pick(0, 7) == 0 ? 1 : 0));  // mostly whole beats
  const int64_t pitch = (beats + pick(0, 2)) * width;
  i.extent[3] = static_cast<uint16_t>(std::clamp<int64_t>(bytes / (2 * pitch), 1, pick(1, 40)));
  i.extent[2] = static_cast<uint16_t>(pick(1, std::max<int64_t>(1, std::min<int64_t>(6, bytes / (4 * i.length)))));
  i.dram_stride[3] = i.length;
  i.dram_stride[2] = static_cast<int32_t>(i.length * i.extent[3] + one_of({0, 0, 8, 13, 4096}));
  i.sp_stride[3] = static_cast<int32_t>(pitch);
  i.sp_stride[2] = static_cast<int32_t>(one_of({i.length, width, 5}));
  i.sp_addr = static_cast<uint32_t>(one_of({0, 0, 0, 3}));
  i.dram_offset = static_cast<uint64_t>(one_of({0, 8, 64, 4000, 4088, 8, 16, 5}));
  i.header.signal = true;
  return i;
}

}  // namespace tessera::sim::testing
