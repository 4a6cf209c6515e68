// SPDX-License-Identifier: Apache-2.0
// How many cycles a GEMM instruction takes by itself (isa/timing.md, "GEMM"). Enters: a legal instruction. Leaves: its
// steps, its sums, and the stalls among its own sums.
#pragma once

#include <cstdint>
#include <optional>

#include "isa/generated/instructions.h"
#include "isa/raster.h"

namespace tessera::sim::systemc {

struct GemmForm {
  uint64_t steps = 1;
  uint64_t sums = 1;
  uint64_t stalls = 0;      // among the instruction's own sums, without the first
  uint64_t last_stall = 0;  // of the last step, when that starts a sum
  uint32_t first_acc = 0;   // entries of the first and the last two sums
  uint32_t last_acc = 0;
  uint32_t before_last_acc = 0;
  uint64_t first_end = 0;  // steps before the first sum's own end
  bool single = false;     // a sum starts and ends in one step
  std::optional<isa::Raster> raster;
};

/// `pairs`: the machine's `raster_pairs`.
GemmForm form_of(const isa::Gemm& gemm, int pairs);

}  // namespace tessera::sim::systemc
