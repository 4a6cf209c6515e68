// SPDX-License-Identifier: Apache-2.0
// The lanes of vector_math_lanes.h for processors with AVX2; this file is compiled for them, so nothing else may stand
// here.
#include "runtime/vector_math.h"
#include "runtime/vector_math_lanes.h"

namespace tessera::runtime {

VectorKernels avx2_kernels() {
  return {[](float* values, int64_t count) { each_lane(values, count, [](float x) { return exp_lane(x); }); },
          [](float* values, int64_t count) { each_lane(values, count, [](float x) { return erf_lane(x); }); }};
}

}  // namespace tessera::runtime
