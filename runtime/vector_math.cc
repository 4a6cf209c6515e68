// SPDX-License-Identifier: Apache-2.0
// The choice among kernels. A C library that computes by another method differs from them in many of the sampled
// arguments; then each lane is a call of it.
#include "runtime/vector_math.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace tessera::runtime {

namespace {

using Kernel = VectorKernels::Function;
using Scalar = float (*)(float);

float library_exp(float x) { return std::exp(x); }
float library_erf(float x) { return std::erf(x); }

template <Scalar function, int64_t kLanes>
void one_by_one(float* lanes) {
  for (int64_t i = 0; i < kLanes; ++i) lanes[i] = function(lanes[i]);
}

bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

/// Whether kernel and library agree on arguments of all magnitudes.
template <int64_t kLanes>
bool agrees(Kernel kernel, Scalar function) {
  constexpr uint32_t kStep = 65521;  // of the bit patterns: about 65000 arguments
  float values[kLanes], arguments[kLanes];
  for (uint64_t bits = 0; bits < uint64_t{1} << 32;) {
    for (float& argument : arguments) {
      argument = std::bit_cast<float>(static_cast<uint32_t>(bits));
      bits += kStep;
    }
    std::memcpy(values, arguments, sizeof values);
    kernel(values);
    for (int64_t i = 0; i < kLanes; ++i)
      if (!same(values[i], function(arguments[i]))) return false;
  }
  return true;
}

VectorKernels host_kernels() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return avx512_kernels();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2_kernels();
#endif
  return {};
}

/// The kernels of one function, or calls of the library in their place.
template <Scalar function>
void add(const std::string& name, const Kernel (&kernels)[3], std::vector<VectorFunction>& to) {
  const Kernel library[] = {one_by_one<function, 4>, one_by_one<function, 8>, one_by_one<function, 16>};
  const bool serve = kernels[2] != nullptr && agrees<16>(kernels[2], function);
  for (size_t i = 0; i < 3; ++i)
    to.push_back({"tessera_" + name + "_" + std::to_string(kVectorLanes[i]), serve ? kernels[i] : library[i]});
}

}  // namespace

const std::vector<VectorFunction>& vector_functions() {
  static const std::vector<VectorFunction> functions = [] {
    const VectorKernels host = host_kernels();
    std::vector<VectorFunction> all;
    add<library_exp>("expf", host.exp, all);
    add<library_erf>("erff", host.erf, all);
    return all;
  }();
  return functions;
}

}  // namespace tessera::runtime
