// SPDX-License-Identifier: Apache-2.0
// Which bytes an instruction reads and writes, exactly: strided runs leave holes, and holes are not part of the set. It
// is the race checker's, an oracle of the compiler's synchronisation, and so it is written from isa/semantics.md and
// shares no code with isa/verify/effects.h, which the compiler uses.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "isa/config.h"
#include "isa/generated/instructions.h"

namespace tessera::sim {

/// Bytes [begin, end).
struct Interval {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool operator==(const Interval&) const = default;
};

/// Sorted, disjoint, not touching each other.
using IntervalSet = std::vector<Interval>;

struct StridedLoop {
  int64_t extent;
  int64_t stride;  // bytes
};

/// The union of [base + sum(i_k * stride_k), + length) over all iterations. Addresses must not wrap.
IntervalSet strided_set(uint64_t base, uint64_t length, std::vector<StridedLoop> loops);

/// One operand of an instruction.
struct Touched {
  bool dram = false;
  isa::Space space = isa::Space::kInp;  // when not in DRAM
  bool write = false;
  IntervalSet bytes;  // of the scratchpad, or device addresses
};

/// All operands. check_operands and check_ranges must hold.
std::vector<Touched> footprint(const isa::Instruction& instruction, const isa::MachineConfig& config,
                               const std::array<uint64_t, 16>& bases);

}  // namespace tessera::sim
