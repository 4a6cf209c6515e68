// SPDX-License-Identifier: Apache-2.0
// What the race check reports.
#pragma once

#include <cstdint>

#include "isa/generated/instructions.h"

namespace tessera::sim {

/// Where two accesses overlap: a scratchpad, or DRAM.
struct Race {
  struct Access {
    uint32_t pc = 0;
    isa::Unit unit = isa::Unit::kFetch;
    bool write = false;
    bool operator==(const Access&) const = default;
  };
  Access first;   // earlier in the stream
  Access second;
  bool dram = false;
  isa::Space space = isa::Space::kInp;  // when not in DRAM
  uint64_t begin = 0;  // bytes [begin, end) of the scratchpad, or device addresses
  uint64_t end = 0;
  bool operator==(const Race&) const = default;
};

}  // namespace tessera::sim
