// SPDX-License-Identifier: Apache-2.0
// The loops of a computation over entries of the scratchpads, any number of them and of any extent. An intrinsic makes
// them; compiler/npu/legalise cuts them into what instructions hold.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace tessera::schedule {

/// One loop of a compute nest: strides in entries of up to four operands.
/// GEMM: input, weights, sums. ALU: source, destination, second, PARAM.
struct NestLoop {
  int64_t extent = 1;
  std::array<int64_t, 4> stride{};
};

struct ComputeNest {
  std::array<int64_t, 4> address{};
  std::vector<NestLoop> outer;      // outermost first
  std::vector<NestLoop> reduction;  // innermost last
};

}  // namespace tessera::schedule
