// SPDX-License-Identifier: Apache-2.0
// The inverse square root of LiteRT's kernels, in fixed point.
#pragma once

#include "ops/litert/litert_math.h"

namespace tessera::ops::litert {

/// 1 / sqrt(x) for x >= 0, by five steps of Newton's iteration; the largest number for 0 and 1.
FixedPoint inverse_root(int32_t x);

}  // namespace tessera::ops::litert
