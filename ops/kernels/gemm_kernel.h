// SPDX-License-Identifier: Apache-2.0
// The one matrix product of the library, which convolution shares: two strided matrices enter, a row-major product
// leaves. Each element is a plain sum over ascending k, so the result does not depend on tiling; tiles only keep
// several such sums in registers and columns of b in cache. On floats a step of a sum is fma: product and sum are
// rounded once, on every processor. Integers are multiplied as unsigned, which wraps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace tessera::ops {

/// Integers that wrap are computed in the unsigned type of their width; floats in themselves.
template <typename T, bool = std::is_integral_v<T>>
struct WrappingType {
  using type = T;
};
template <typename T>
struct WrappingType<T, true> {
  using type = std::make_unsigned_t<T>;
};
template <typename T>
using Wrapping = typename WrappingType<T>::type;

/// A matrix in memory: element (i, j) is data[i * row + j * column].
template <typename T>
struct MatrixView {
  const T* data;
  int64_t row;
  int64_t column;
};

namespace gemm {

inline constexpr int64_t kTileRows = 4;
inline constexpr int64_t kPanelBytes = 64;  // columns of a panel
template <typename T>
inline constexpr int64_t kTileColumns = kPanelBytes / static_cast<int64_t>(sizeof(T));

/// sums[rows][kTileColumns] = a[0..rows, 0..k] * panel[0..k, columns], k ascending; rows <= kTileRows.
template <typename T>
void tile(int64_t rows, int64_t k, MatrixView<T> a, const T* panel, T* sums) {
  using Wide = std::conditional_t<sizeof(T) < sizeof(uint32_t), uint32_t, T>;  // no promotion to a signed type
  for (int64_t i = 0; i < rows; ++i) {
    T sum[kTileColumns<T>] = {};
    const T* const row = a.data + i * a.row;
    for (int64_t p = 0; p < k; ++p)
      for (int64_t q = 0; q < kTileColumns<T>; ++q)
        sum[q] = static_cast<T>(sum[q] + Wide{row[p * a.column]} * panel[p * kTileColumns<T> + q]);
    std::copy_n(sum, kTileColumns<T>, sums + i * kTileColumns<T>);
  }
}
// With instructions of the processor where it has fma, else through the C library (gemm_kernel.cc).
template <>
void tile(int64_t rows, int64_t k, MatrixView<float> a, const float* panel, float* sums);
template <>
void tile(int64_t rows, int64_t k, MatrixView<double> a, const double* panel, double* sums);

}  // namespace gemm

/// c = a * b with a [m, k], b [k, n], c [m, n] whose rows are `c_row` elements apart. T: a float type or an unsigned
/// integer of 32 or 64 bits.
template <typename T>
void multiply(int64_t m, int64_t n, int64_t k, MatrixView<T> a, MatrixView<T> b, T* c, int64_t c_row) {
  constexpr int64_t kColumns = gemm::kTileColumns<T>;
  std::vector<T> panel(static_cast<size_t>(std::max<int64_t>(k, 1) * kColumns));
  T sums[gemm::kTileRows * kColumns];
  for (int64_t j = 0; j < n; j += kColumns) {
    const int64_t columns = std::min(kColumns, n - j);
    for (int64_t p = 0; p < k; ++p) {
      const T* source = b.data + p * b.row + j * b.column;
      T* target = panel.data() + p * kColumns;
      for (int64_t q = 0; q < columns; ++q) target[q] = source[q * b.column];
    }
    for (int64_t i = 0; i < m; i += gemm::kTileRows) {
      const int64_t rows = std::min(gemm::kTileRows, m - i);
      const MatrixView<T> part{a.data + i * a.row, a.row, a.column};
      gemm::tile<T>(rows, k, part, panel.data(), sums);
      for (int64_t r = 0; r < rows; ++r) std::copy_n(sums + r * kColumns, columns, c + (i + r) * c_row + j);
    }
  }
}

}  // namespace tessera::ops
