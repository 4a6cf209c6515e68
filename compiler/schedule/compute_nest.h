// SPDX-License-Identifier: Apache-2.0
// The loops of a computation over entries of the scratchpads, up to sixteen of them in a band and of any extent. An
// intrinsic makes them; compiler/npu/legalise cuts them into what instructions hold.
#pragma once

#include <array>
#include <cstdint>

#include "isa/fixed_vector.h"

namespace tessera::schedule {

/// The loops of one nest; they stand in place.
template <typename Loop>
using LoopList = isa::FixedVector<Loop, 16>;

/// One loop of a compute nest: strides in entries of up to four operands.
/// GEMM: input, weights, sums. ALU: source, destination, second, PARAM.
struct NestLoop {
  int64_t extent = 1;
  std::array<int64_t, 4> stride{};
};

struct ComputeNest {
  std::array<int64_t, 4> address{};
  LoopList<NestLoop> outer;      // outermost first
  LoopList<NestLoop> reduction;  // innermost last
};

}  // namespace tessera::schedule
