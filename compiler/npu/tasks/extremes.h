// SPDX-License-Identifier: Apache-2.0
// The smallest and the largest weight of many. Weights enter; two values leave. Networks hold millions of weights, and
// checks and tasks look at all of them again and again: the loop is alone in its source, which is compiled for vectors.
#pragma once

#include <cstdint>
#include <span>

namespace tessera::npu {

struct Extremes {
  int16_t low = 0, high = 0;  // both 0 where there are no values
};

Extremes extremes_of(std::span<const int16_t> values);

}  // namespace tessera::npu
