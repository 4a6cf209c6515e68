// SPDX-License-Identifier: Apache-2.0
// Loop nests of GEMM and ALU. Enters: extents and the strides of K operands. Leaves: one call for each iteration, in
// program order, with the entry offset of each operand. Always inlined, so that the loop takes the instruction set of
// its caller (functions compiled for AVX-512 call the same source).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "isa/generated/instructions.h"

#define TESSERA_ALWAYS_INLINE inline __attribute__((always_inline))

namespace tessera::sim {

/// Loops [first, first + count) of a six-loop nest for K operands, aligned to the innermost end: absent outer loops
/// have extent 1 and stride 0.
template <size_t K>
struct Nest {
  std::array<uint32_t, isa::kLoops> extent{1, 1, 1, 1, 1, 1};
  std::array<std::array<int32_t, isa::kLoops>, K> stride{};

  uint64_t iterations() const {
    uint64_t n = 1;
    for (const uint32_t e : extent) {
      if (__builtin_mul_overflow(n, uint64_t{e}, &n)) return UINT64_MAX;
    }
    return n;
  }
};

using Extents = std::array<uint16_t, isa::kLoops>;
using Strides = std::array<int16_t, isa::kLoops>;

template <typename... StrideArrays>
Nest<sizeof...(StrideArrays)> make_nest(int first, int count, const Extents& extent, const StrideArrays&... strides) {
  Nest<sizeof...(StrideArrays)> nest;
  for (int k = 0; k < count; ++k) {
    const auto to = static_cast<size_t>(isa::kLoops - count + k);
    const auto from = static_cast<size_t>(first + k);
    nest.extent[to] = extent[from];
    size_t operand = 0;
    ((nest.stride[operand++][to] = extent[from] > 1 ? strides[from] : 0), ...);
  }
  return nest;
}

/// Calls body(const std::array<int32_t, K>& offsets) for each iteration in order.
template <size_t K, typename Body>
TESSERA_ALWAYS_INLINE void for_each_iteration(const Nest<K>& nest, std::array<int32_t, K> offset, Body&& body) {
  const auto step = [&](std::array<int32_t, K>& o, size_t loop) __attribute__((always_inline)) {
    for (size_t k = 0; k < K; ++k) o[k] += nest.stride[k][loop];
  };
  auto o0 = offset;
  for (uint32_t i0 = 0; i0 < nest.extent[0]; ++i0, step(o0, 0)) {
    auto o1 = o0;
    for (uint32_t i1 = 0; i1 < nest.extent[1]; ++i1, step(o1, 1)) {
      auto o2 = o1;
      for (uint32_t i2 = 0; i2 < nest.extent[2]; ++i2, step(o2, 2)) {
        auto o3 = o2;
        for (uint32_t i3 = 0; i3 < nest.extent[3]; ++i3, step(o3, 3)) {
          auto o4 = o3;
          for (uint32_t i4 = 0; i4 < nest.extent[4]; ++i4, step(o4, 4)) {
            auto o5 = o4;
            for (uint32_t i5 = 0; i5 < nest.extent[5]; ++i5, step(o5, 5)) body(o5);
          }
        }
      }
    }
  }
}

}  // namespace tessera::sim
