// SPDX-License-Identifier: Apache-2.0
// The lanes of vector_math_lanes.h for processors with AVX2; this file is compiled for them, so nothing else may stand
// here.
#include "runtime/vector_math.h"
#include "runtime/vector_math_lanes.h"

namespace tessera::runtime {

namespace {

template <float (*lane)(float), int64_t kLanes>
void apply(float* lanes) {
  for (int64_t i = 0; i < kLanes; ++i) lanes[i] = lane(lanes[i]);
}

}  // namespace

VectorKernels avx2_kernels() {
  return {{apply<exp_lane, 4>, apply<exp_lane, 8>, apply<exp_lane, 16>},
          {apply<erf_lane, 4>, apply<erf_lane, 8>, apply<erf_lane, 16>}};
}

}  // namespace tessera::runtime
