// SPDX-License-Identifier: Apache-2.0
// The one matrix product of the library, which convolution shares: two strided matrices enter, a row-major product
// leaves. Each element is a plain sum over ascending k of a product rounded and a sum rounded, so the result does not
// depend on tiling; tiles only keep several such sums in registers and columns of b in cache. Integers are multiplied
// as unsigned, which wraps.
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
inline constexpr int64_t kPanelBytes = 48;  // columns of a panel: three 16-byte vectors
template <typename T>
inline constexpr int64_t kTileColumns = kPanelBytes / static_cast<int64_t>(sizeof(T));

/// sums[kRows][kTileColumns] = a[0..kRows, 0..k] * panel[0..k, columns], k ascending.
template <typename T, int64_t kRows>
void tile(int64_t k, MatrixView<T> a, const T* panel, T* sums) {
  typedef T Vector __attribute__((vector_size(16), aligned(alignof(T)), may_alias));
  constexpr int64_t kLanes = 16 / static_cast<int64_t>(sizeof(T));
  Vector sum[kRows][3] = {};
  const T* rows[kRows];
  for (int64_t i = 0; i < kRows; ++i) rows[i] = a.data + i * a.row;
  for (int64_t p = 0; p < k; ++p) {
    const Vector b0 = *reinterpret_cast<const Vector*>(panel);
    const Vector b1 = *reinterpret_cast<const Vector*>(panel + kLanes);
    const Vector b2 = *reinterpret_cast<const Vector*>(panel + 2 * kLanes);
    for (int64_t i = 0; i < kRows; ++i) {
      const T x = rows[i][p * a.column];
      sum[i][0] = sum[i][0] + x * b0;
      sum[i][1] = sum[i][1] + x * b1;
      sum[i][2] = sum[i][2] + x * b2;
    }
    panel += kTileColumns<T>;
  }
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t v = 0; v < 3; ++v) *reinterpret_cast<Vector*>(sums + i * kTileColumns<T> + v * kLanes) = sum[i][v];
}

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
      switch (rows) {
        case 1: gemm::tile<T, 1>(k, part, panel.data(), sums); break;
        case 2: gemm::tile<T, 2>(k, part, panel.data(), sums); break;
        case 3: gemm::tile<T, 3>(k, part, panel.data(), sums); break;
        default: gemm::tile<T, 4>(k, part, panel.data(), sums); break;
      }
      for (int64_t r = 0; r < rows; ++r) std::copy_n(sums + r * kColumns, columns, c + (i + r) * c_row + j);
    }
  }
}

}  // namespace tessera::ops
