// SPDX-License-Identifier: Apache-2.0
// AVX-512 VNNI and AVX2 kernels by function multiversioning: each function names its instruction set, the rest of the
// project is compiled for the baseline. Dense: a weight panel holds, for each step and group, one vector of lanes; a
// row's group of multiplicands is broadcast against it. VNNI multiplies 4 unsigned by 4 signed bytes a lane without
// saturation; AVX2 uses vpmaddwd on int16 pairs, exact for 9-bit values. Sums wrap modulo 2^32 as the machine's do.
#include "sim/functional/engines/gemm_kernels.h"

#include <cstring>

#include "sim/functional/engines/nest.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera::sim {
namespace {

#if defined(__x86_64__)

#define TESSERA_AVX512 __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#define TESSERA_AVX2 __attribute__((target("avx2,fma")))

TESSERA_ALWAYS_INLINE int32_t load_group(const uint8_t* p) {
  int32_t value;
  std::memcpy(&value, p, 4);
  return value;
}

/// How many partial sums a row keeps, so that short blocks are not bound by the latency of one chain.
constexpr int chains(int rows, int groups) {
  const int wanted = rows >= 4 ? 1 : (rows >= 2 ? 2 : 4);
  return groups == 0 ? 1 : (wanted < groups ? wanted : groups);
}

/// 16 lanes. Groups = 0: taken from the call.
template <int Rows, int Groups>
TESSERA_AVX512 void dense_zmm(const DenseCall& c) {
  constexpr int kChains = chains(Rows, Groups);
  __m512i sum[Rows][kChains];
  for (int r = 0; r < Rows; ++r) {
    for (int k = 0; k < kChains; ++k) sum[r][k] = _mm512_setzero_si512();
  }
  const uint8_t* row[Rows];
  for (int r = 0; r < Rows; ++r) row[r] = c.x + c.row_x[r];
  const int groups = Groups == 0 ? c.groups : Groups;
  for (size_t t = 0; t < c.steps; ++t) {
    const uint8_t* w = c.w + c.step_w[t];
    const size_t x = c.step_x[t];
    if constexpr (Groups != 0 && Groups <= 8) {
      __m512i weights[Groups];
#pragma GCC unroll 8
      for (int g = 0; g < Groups; ++g) weights[g] = _mm512_loadu_si512(w + 64 * g);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const uint8_t* p = row[r] + x;
#pragma GCC unroll 8
        for (int g = 0; g < Groups; ++g) {
          sum[r][g % kChains] =
              _mm512_dpbusd_epi32(sum[r][g % kChains], _mm512_set1_epi32(load_group(p + 4 * g)), weights[g]);
        }
      }
    } else {
      for (int g = 0; g < groups; ++g) {
        const __m512i weights = _mm512_loadu_si512(w + 64 * g);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
          sum[r][0] = _mm512_dpbusd_epi32(sum[r][0], _mm512_set1_epi32(load_group(row[r] + x + 4 * g)), weights);
        }
      }
    }
  }
  const __m512i lane_correction = _mm512_loadu_si512(c.lane_correction);
  for (int r = 0; r < Rows; ++r) {
    __m512i v = _mm512_add_epi32(lane_correction, _mm512_set1_epi32(c.row_correction[r]));
    for (int k = 0; k < kChains; ++k) v = _mm512_add_epi32(v, sum[r][k]);
    uint8_t* to = c.acc + c.row_acc[r];
    if (c.accumulate) v = _mm512_add_epi32(v, _mm512_loadu_si512(to));
    _mm512_storeu_si512(to, v);
  }
}

/// 8 lanes, of which `lanes` exist.
template <int Rows>
TESSERA_AVX512 void dense_vnni_ymm(const DenseCall& c) {
  constexpr int kChains = chains(Rows, 2);
  __m256i sum[Rows][kChains];
  for (int r = 0; r < Rows; ++r) {
    for (int k = 0; k < kChains; ++k) sum[r][k] = _mm256_setzero_si256();
  }
  const uint8_t* row[Rows];
  for (int r = 0; r < Rows; ++r) row[r] = c.x + c.row_x[r];
  for (size_t t = 0; t < c.steps; ++t) {
    const uint8_t* w = c.w + c.step_w[t];
    const size_t x = c.step_x[t];
    int g = 0;
    for (; g + 2 <= c.groups; g += 2) {
      const __m256i w0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 32 * g));
      const __m256i w1 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 32 * g + 32));
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const uint8_t* p = row[r] + x + 4 * g;
        sum[r][0] = _mm256_dpbusd_epi32(sum[r][0], _mm256_set1_epi32(load_group(p)), w0);
        sum[r][kChains - 1] = _mm256_dpbusd_epi32(sum[r][kChains - 1], _mm256_set1_epi32(load_group(p + 4)), w1);
      }
    }
    for (; g < c.groups; ++g) {
      const __m256i w0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 32 * g));
      for (int r = 0; r < Rows; ++r) {
        sum[r][0] = _mm256_dpbusd_epi32(sum[r][0], _mm256_set1_epi32(load_group(row[r] + x + 4 * g)), w0);
      }
    }
  }
  const auto mask = static_cast<__mmask8>((1u << c.lanes) - 1);
  const __m256i lane_correction = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(c.lane_correction));
  for (int r = 0; r < Rows; ++r) {
    __m256i v = _mm256_add_epi32(lane_correction, _mm256_set1_epi32(c.row_correction[r]));
    for (int k = 0; k < kChains; ++k) v = _mm256_add_epi32(v, sum[r][k]);
    uint8_t* to = c.acc + c.row_acc[r];
    if (c.accumulate) v = _mm256_add_epi32(v, _mm256_maskz_loadu_epi32(mask, to));
    _mm256_mask_storeu_epi32(to, mask, v);
  }
}

/// 8 lanes, of which `lanes` exist; int16 pairs.
template <int Rows>
TESSERA_AVX2 void dense_avx2_ymm(const DenseCall& c) {
  __m256i sum[Rows];
  for (int r = 0; r < Rows; ++r) sum[r] = _mm256_setzero_si256();
  const uint8_t* row[Rows];
  for (int r = 0; r < Rows; ++r) row[r] = c.x + c.row_x[r];
  for (size_t t = 0; t < c.steps; ++t) {
    const uint8_t* w = c.w + c.step_w[t];
    const size_t x = c.step_x[t];
    for (int g = 0; g < c.groups; g += 2) {  // BLOCK_IN is a multiple of 4, so groups of 2 come in pairs
      const __m256i w0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 32 * g));
      const __m256i w1 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 32 * g + 32));
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const uint8_t* p = row[r] + x + 4 * g;
        const __m256i p0 = _mm256_madd_epi16(_mm256_set1_epi32(load_group(p)), w0);
        const __m256i p1 = _mm256_madd_epi16(_mm256_set1_epi32(load_group(p + 4)), w1);
        sum[r] = _mm256_add_epi32(sum[r], _mm256_add_epi32(p0, p1));
      }
    }
  }
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(c.lanes), lane);
  const __m256i lane_correction = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(c.lane_correction));
  for (int r = 0; r < Rows; ++r) {
    const __m256i correction = _mm256_add_epi32(lane_correction, _mm256_set1_epi32(c.row_correction[r]));
    __m256i v = _mm256_add_epi32(sum[r], correction);
    auto* to = reinterpret_cast<int*>(c.acc + c.row_acc[r]);
    if (c.accumulate) v = _mm256_add_epi32(v, _mm256_maskload_epi32(to, mask));
    _mm256_maskstore_epi32(to, mask, v);
  }
}

/// Calls Kernel::run<rows>(call).
template <typename Kernel>
void run_rows(const DenseCall& call, int rows) {
  switch (rows) {
    case 1: Kernel::template run<1>(call); break;
    case 2: Kernel::template run<2>(call); break;
    case 3: Kernel::template run<3>(call); break;
    case 4: Kernel::template run<4>(call); break;
    case 5: Kernel::template run<5>(call); break;
    case 6: Kernel::template run<6>(call); break;
    case 7: Kernel::template run<7>(call); break;
    default: Kernel::template run<8>(call); break;
  }
}

template <int Groups>
struct Zmm {
  template <int Rows>
  static void run(const DenseCall& call) {
    dense_zmm<Rows, Groups>(call);
  }
};
struct VnniYmm {
  template <int Rows>
  static void run(const DenseCall& call) {
    dense_vnni_ymm<Rows>(call);
  }
};
struct Avx2Ymm {
  template <int Rows>
  static void run(const DenseCall& call) {
    dense_avx2_ymm<Rows>(call);
  }
};

#endif  // __x86_64__

void depthwise_baseline(const DepthwiseCall& c) {
  for (size_t r = 0; r < c.rows; ++r) {
    for (size_t l = 0; l < c.lanes; ++l) {
      uint32_t sum = 0;
      uint8_t* to = c.acc + c.row_acc[r] + 4 * l;
      if (c.accumulate) std::memcpy(&sum, to, 4);
      const uint32_t* x = c.x + c.row_x[r] + l;
      for (size_t t = 0; t < c.steps; ++t) {
        const uint32_t x_pair = x[c.step_x[t]];
        const uint32_t w_pair = c.w[t * c.lanes + l];
        sum += static_cast<uint32_t>(int32_t{static_cast<int16_t>(x_pair)} * static_cast<int16_t>(w_pair) +
                                     int32_t{static_cast<int16_t>(x_pair >> 16)} * static_cast<int16_t>(w_pair >> 16));
      }
      std::memcpy(to, &sum, 4);
    }
  }
}

TESSERA_ALWAYS_INLINE void pairs_body(const PairCall& c) {
  if (c.is_unsigned) {
    for (size_t k = 0; k < c.count; ++k) c.pairs[k] = make_pair(c.first[k] - c.zero, c.second[k] - c.zero);
  } else {
    const auto* first = reinterpret_cast<const int8_t*>(c.first);
    const auto* second = reinterpret_cast<const int8_t*>(c.second);
    for (size_t k = 0; k < c.count; ++k) c.pairs[k] = make_pair(first[k] - c.zero, second[k] - c.zero);
  }
}

void pairs_baseline(const PairCall& c) { pairs_body(c); }

#if defined(__x86_64__)

TESSERA_AVX2 void pairs_avx2(const PairCall& c) { pairs_body(c); }

TESSERA_AVX512 void depthwise_avx512(const DepthwiseCall& c) {
  for (size_t first = 0; first < c.lanes; first += 16) {
    const size_t lanes = c.lanes - first < 16 ? c.lanes - first : 16;
    const auto mask = static_cast<__mmask16>((1u << lanes) - 1);
    const uint32_t* w = c.w + first;
    // Two rows at a time: their chains hide each other's latency and share the weights. A row may read what the one
    // before it wrote when both have the same ACC entry, so that ACC is read and written row by row.
    size_t r = 0;
    const auto finish = [&](size_t row, __m512i sum) TESSERA_AVX512 __attribute__((always_inline)) {
      uint8_t* to = c.acc + c.row_acc[row] + 4 * first;
      if (c.accumulate) sum = _mm512_add_epi32(sum, _mm512_maskz_loadu_epi32(mask, to));
      _mm512_mask_storeu_epi32(to, mask, sum);
    };
    for (; r + 2 <= c.rows; r += 2) {
      const uint32_t* x0 = c.x + c.row_x[r] + first;
      const uint32_t* x1 = c.x + c.row_x[r + 1] + first;
      __m512i sum0 = _mm512_setzero_si512();
      __m512i sum1 = _mm512_setzero_si512();
      for (size_t t = 0; t < c.steps; ++t) {
        const __m512i weights = _mm512_loadu_si512(w + t * c.lanes);
        sum0 = _mm512_dpwssd_epi32(sum0, _mm512_loadu_si512(x0 + c.step_x[t]), weights);
        sum1 = _mm512_dpwssd_epi32(sum1, _mm512_loadu_si512(x1 + c.step_x[t]), weights);
      }
      finish(r, sum0);
      finish(r + 1, sum1);
    }
    for (; r < c.rows; ++r) {
      const uint32_t* x0 = c.x + c.row_x[r] + first;
      __m512i sum = _mm512_setzero_si512();
      for (size_t t = 0; t < c.steps; ++t) {
        sum = _mm512_dpwssd_epi32(sum, _mm512_loadu_si512(x0 + c.step_x[t]), _mm512_loadu_si512(w + t * c.lanes));
      }
      finish(r, sum);
    }
  }
}

TESSERA_AVX2 void depthwise_avx2(const DepthwiseCall& c) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (size_t first = 0; first < c.lanes; first += 8) {
    const size_t lanes = c.lanes - first < 8 ? c.lanes - first : 8;
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(lanes)), lane);
    const uint32_t* w = c.w + first;
    for (size_t r = 0; r < c.rows; ++r) {
      const uint32_t* x = c.x + c.row_x[r] + first;
      __m256i sum = _mm256_setzero_si256();
      for (size_t t = 0; t < c.steps; ++t) {
        const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + c.step_x[t]));
        const __m256i weights = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + t * c.lanes));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, weights));
      }
      auto* to = reinterpret_cast<int*>(c.acc + c.row_acc[r] + 4 * first);
      if (c.accumulate) sum = _mm256_add_epi32(sum, _mm256_maskload_epi32(to, mask));
      _mm256_maskstore_epi32(to, mask, sum);
    }
  }
}

#endif

}  // namespace

DenseKernels dense_kernels(Kernels kernels, int block_in, int block_out) {
#if defined(__x86_64__)
  switch (kernels) {
    case Kernels::kPortable: return {};
    case Kernels::kAvx2: return {run_rows<Avx2Ymm>, 8, false};
    case Kernels::kAvx512:
      if (block_out < 16) return {run_rows<VnniYmm>, 8, true};
      switch (block_in) {
        case 8: return {run_rows<Zmm<2>>, 16, true};
        case 16: return {run_rows<Zmm<4>>, 16, true};
        case 32: return {run_rows<Zmm<8>>, 16, true};
        default: return {run_rows<Zmm<0>>, 16, true};
      }
  }
#endif
  return {};
}

DepthwiseKernel depthwise_kernel(Kernels kernels) {
#if defined(__x86_64__)
  if (kernels == Kernels::kAvx512) return depthwise_avx512;
  if (kernels == Kernels::kAvx2) return depthwise_avx2;
#endif
  return depthwise_baseline;
}

void make_pairs(Kernels kernels, const PairCall& call) {
#if defined(__x86_64__)
  if (kernels != Kernels::kPortable) return pairs_avx2(call);
#endif
  pairs_baseline(call);
}

}  // namespace tessera::sim
