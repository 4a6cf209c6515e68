// SPDX-License-Identifier: Apache-2.0
// Sums of floats by fma. The instruction and the C library's function round alike, so that the choice between them is
// one of speed: each is given by its type of vectors, which the one tile is written over.
#include "ops/kernels/gemm_kernel.h"

#include <cmath>

#if defined(__x86_64__)
#include <immintrin.h>
#define TESSERA_FMA __attribute__((target("avx2,fma")))
#define TESSERA_INLINE inline __attribute__((always_inline))
#endif

namespace tessera::ops::gemm {

namespace {

template <typename T>
void tile_by_library(int64_t rows, int64_t k, MatrixView<T> a, const T* panel, T* sums) {
  for (int64_t i = 0; i < rows; ++i) {
    T sum[kTileColumns<T>] = {};
    const T* const row = a.data + i * a.row;
    for (int64_t p = 0; p < k; ++p)
      for (int64_t q = 0; q < kTileColumns<T>; ++q)
        sum[q] = std::fma(row[p * a.column], panel[p * kTileColumns<T> + q], sum[q]);
    std::copy_n(sum, kTileColumns<T>, sums + i * kTileColumns<T>);
  }
}

#if defined(__x86_64__)

struct Floats {
  using Element = float;
  using Vector = __m256;
  TESSERA_FMA static TESSERA_INLINE Vector zero() { return _mm256_setzero_ps(); }
  TESSERA_FMA static TESSERA_INLINE Vector load(const float* from) { return _mm256_loadu_ps(from); }
  TESSERA_FMA static TESSERA_INLINE void store(float* to, Vector v) { _mm256_storeu_ps(to, v); }
  TESSERA_FMA static TESSERA_INLINE Vector add(const float* x, Vector b, Vector sum) {
    return _mm256_fmadd_ps(_mm256_broadcast_ss(x), b, sum);
  }
};

struct Doubles {
  using Element = double;
  using Vector = __m256d;
  TESSERA_FMA static TESSERA_INLINE Vector zero() { return _mm256_setzero_pd(); }
  TESSERA_FMA static TESSERA_INLINE Vector load(const double* from) { return _mm256_loadu_pd(from); }
  TESSERA_FMA static TESSERA_INLINE void store(double* to, Vector v) { _mm256_storeu_pd(to, v); }
  TESSERA_FMA static TESSERA_INLINE Vector add(const double* x, Vector b, Vector sum) {
    return _mm256_fmadd_pd(_mm256_broadcast_sd(x), b, sum);
  }
};

/// Panels are two vectors wide.
template <typename Lanes, int64_t kRows>
TESSERA_FMA TESSERA_INLINE void rows_by_instruction(int64_t k, MatrixView<typename Lanes::Element> a,
                                                    const typename Lanes::Element* panel,
                                                    typename Lanes::Element* sums) {
  using T = typename Lanes::Element;
  constexpr int64_t kHalf = kTileColumns<T> / 2;
  typename Lanes::Vector sum[kRows][2];
  for (int64_t i = 0; i < kRows; ++i) sum[i][0] = sum[i][1] = Lanes::zero();
  for (int64_t p = 0; p < k; ++p, panel += kTileColumns<T>) {
    const typename Lanes::Vector left = Lanes::load(panel), right = Lanes::load(panel + kHalf);
    for (int64_t i = 0; i < kRows; ++i) {
      const T* const x = a.data + i * a.row + p * a.column;
      sum[i][0] = Lanes::add(x, left, sum[i][0]);
      sum[i][1] = Lanes::add(x, right, sum[i][1]);
    }
  }
  for (int64_t i = 0; i < kRows; ++i) {
    Lanes::store(sums + i * kTileColumns<T>, sum[i][0]);
    Lanes::store(sums + i * kTileColumns<T> + kHalf, sum[i][1]);
  }
}

template <typename Lanes>
TESSERA_FMA void tile_by_instruction(int64_t rows, int64_t k, MatrixView<typename Lanes::Element> a,
                                     const typename Lanes::Element* panel, typename Lanes::Element* sums) {
  switch (rows) {
    case 1: rows_by_instruction<Lanes, 1>(k, a, panel, sums); break;
    case 2: rows_by_instruction<Lanes, 2>(k, a, panel, sums); break;
    case 3: rows_by_instruction<Lanes, 3>(k, a, panel, sums); break;
    default: rows_by_instruction<Lanes, kTileRows>(k, a, panel, sums); break;
  }
}

bool has_instruction() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
}

#endif

}  // namespace

template <>
void tile(int64_t rows, int64_t k, MatrixView<float> a, const float* panel, float* sums) {
#if defined(__x86_64__)
  if (has_instruction()) return tile_by_instruction<Floats>(rows, k, a, panel, sums);
#endif
  tile_by_library(rows, k, a, panel, sums);
}

template <>
void tile(int64_t rows, int64_t k, MatrixView<double> a, const double* panel, double* sums) {
#if defined(__x86_64__)
  if (has_instruction()) return tile_by_instruction<Doubles>(rows, k, a, panel, sums);
#endif
  tile_by_library(rows, k, a, panel, sums);
}

}  // namespace tessera::ops::gemm
