// SPDX-License-Identifier: Apache-2.0
// The choice among kernels. A C library that computes by another method differs from them in many of the sampled
// arguments; then each lane is a call of it.
#include "runtime/vector_math.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace tessera::runtime {

namespace {

using Kernel = void (*)(float*, int64_t);
using Scalar = float (*)(float);

float library_exp(float x) { return std::exp(x); }
float library_erf(float x) { return std::erf(x); }

template <Scalar function>
void one_by_one(float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = function(values[i]);
}

bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

/// Whether kernel and library agree on arguments of all magnitudes.
bool agrees(Kernel kernel, Scalar function) {
  constexpr uint32_t kStep = 65521;  // of the bit patterns: about 65000 arguments
  constexpr int64_t kLanes = 64;
  float values[kLanes], arguments[kLanes];
  for (uint64_t bits = 0; bits < uint64_t{1} << 32;) {
    for (float& argument : arguments) {
      argument = std::bit_cast<float>(static_cast<uint32_t>(bits));
      bits += kStep;
    }
    std::memcpy(values, arguments, sizeof values);
    kernel(values, kLanes);
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

Kernel exp_kernel() {
  static const Kernel kernel = [] {
    const Kernel host = host_kernels().exp;
    return host && agrees(host, library_exp) ? host : one_by_one<library_exp>;
  }();
  return kernel;
}

Kernel erf_kernel() {
  static const Kernel kernel = [] {
    const Kernel host = host_kernels().erf;
    return host && agrees(host, library_erf) ? host : one_by_one<library_erf>;
  }();
  return kernel;
}

template <int64_t kLanes>
void exp_lanes(float* lanes) {
  exp_kernel()(lanes, kLanes);
}
template <int64_t kLanes>
void erf_lanes(float* lanes) {
  erf_kernel()(lanes, kLanes);
}

}  // namespace

const std::vector<VectorFunction>& vector_functions() {
  static const std::vector<VectorFunction> functions = {
      {"tessera_expf_4", exp_lanes<4>}, {"tessera_expf_8", exp_lanes<8>}, {"tessera_expf_16", exp_lanes<16>},
      {"tessera_erff_4", erf_lanes<4>}, {"tessera_erff_8", erf_lanes<8>}, {"tessera_erff_16", erf_lanes<16>}};
  return functions;
}

}  // namespace tessera::runtime
