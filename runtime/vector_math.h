// SPDX-License-Identifier: Apache-2.0
// Vector forms of C library functions for compiled code: void name(float* lanes), in place, with the bits that the C
// library of this process gives each lane (two NaNs may differ).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::runtime {

struct VectorFunction {
  std::string name;  // "tessera_expf_16": function of the C library, number of lanes
  void (*call)(float* lanes);
};

/// exp and erf for 4, 8 and 16 lanes: in vector instructions where the processor has them and the C library is one
/// whose bits they give, else lane by lane through the C library.
const std::vector<VectorFunction>& vector_functions();

inline constexpr int64_t kVectorLanes[] = {4, 8, 16};
/// Functions for each of these numbers of lanes, for one kind of processor; null where it is not compiled in.
struct VectorKernels {
  using Function = void (*)(float* lanes);
  Function exp[3] = {}, erf[3] = {};
};
VectorKernels avx2_kernels();
VectorKernels avx512_kernels();

}  // namespace tessera::runtime
