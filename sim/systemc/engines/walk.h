// SPDX-License-Identifier: Apache-2.0
// The front of LOAD and STORE as data: the nest of a transfer cut into runs of contiguous bytes, neighbours that
// continue each other on both sides joined (isa/timing.md, "Runs"). Enters: one instruction. Leaves: its runs in order,
// each with the steps of the nest it took, one step a cycle. No time is kept here.
#pragma once

#include <array>
#include <cstdint>

#include "isa/generated/instructions.h"

namespace tessera::sim::systemc {

struct Run {
  uint64_t dram = 0;   // device address of the first byte
  uint32_t sp = 0;     // first byte in the scratchpad
  uint32_t bytes = 0;  // 0: nothing moves (FENCE)
  uint32_t steps = 1;
  bool pad = false;
  bool last = false;       // of its instruction
  bool continues = false;  // continues the run before in DRAM, where both begin and end with beats and groups
  bool more = false;       // the next run continues this one so
  bool over = false;       // the first byte lies further on in its beat than in its group
  bool shares = false;     // the first beat is the last one of the run before, and not requested again
  uint32_t beats = 0;      // that are requested
};

class Walk {
 public:
  Walk() = default;
  /// `base` is the content of the instruction's base register; a run of `join_bytes` or more is not joined further; a
  /// beat has `width` bytes, a power of two. A step of a packed LOAD writes a WGT entry of `entry_bytes`; its runs
  /// count the bytes of DRAM.
  Walk(const isa::Load& load, uint64_t base, uint32_t join_bytes, uint32_t width, uint32_t entry_bytes);
  Walk(const isa::Store& store, uint64_t base, uint32_t join_bytes, uint32_t width);
  /// A FENCE: one empty run.
  static Walk none();

  bool done() const { return done_; }
  /// Sets the next run. Needs !done().
  void next(Run& run);

 private:
  bool padding() const;
  bool aligned(uint64_t address) const { return (address & (width_ - 1)) == 0; }
  void advance();
  void look_ahead(Run& run, uint64_t dram_end, uint32_t sp_end);

  std::array<uint32_t, 4> extent_{1, 1, 1, 1};
  std::array<uint32_t, 4> index_{};
  std::array<int64_t, 4> dram_stride_{};
  std::array<int64_t, 4> sp_stride_{};
  std::array<uint64_t, 4> dram_{};  // where loop k's current iteration began
  std::array<int64_t, 4> sp_{};
  std::array<uint32_t, 2> before_{};
  std::array<uint32_t, 2> after_{};
  uint32_t length_ = 0;
  uint32_t sp_length_ = 0;  // of a step in the scratchpad
  uint32_t join_bytes_ = 0;
  bool fill_ = false;
  bool pads_ = false;  // some iterations
  bool done_ = true;
  uint32_t width_ = 1;
  bool may_share_ = false;
  bool continues_ = false, shares_ = false;  // the next run
};

}  // namespace tessera::sim::systemc
