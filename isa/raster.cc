// SPDX-License-Identifier: Apache-2.0
// The rule, loop by loop, in the words of hw/rtl/tsr_window_form.sv.
#include "isa/raster.h"

#include <cstdlib>

#include "isa/count.h"
#include "isa/generated/timing.h"

namespace tessera::isa {
namespace {

constexpr uint32_t kMostTapRows = timing::gemm::kWindowRows;
constexpr uint32_t kLineDepth = timing::gemm::kLineColumns;  // vectors of a row
constexpr uint32_t kMostVectors = 4095;                      // rows or columns that the engine's counters hold
constexpr uint32_t kPairTaps = timing::gemm::kPairColumns;   // columns of a window whose vectors enter in pairs

/// The stride, 1 or 2, with which a loop walks along taps of that number and distance; 0: it does not.
uint32_t walk(const Gemm& gemm, int loop, uint32_t taps, int distance) {
  const auto k = static_cast<size_t>(loop);
  if (gemm.extent[k] == 1) return 1;
  if (gemm.wgt_stride[k] != 0) return 0;
  if (taps == 1 || gemm.inp_stride[k] == distance) return 1;
  return gemm.inp_stride[k] == 2 * distance ? 2 : 0;
}

/// Whether the vectors of two rows stand in four memories, wherever the raster's windows need them.
bool rows_apart(const Gemm& gemm) {
  return gemm.inp_addr % 2 == 1 && gemm.inp_stride[0] % 2 == 0 && gemm.inp_stride[1] % 2 == 0 &&
         std::abs(gemm.inp_stride[4] % 4) == 2;
}

}  // namespace

std::optional<Raster> raster_of(const Gemm& gemm, int pairs) {
  if (gemm.mode != GemmMode::kDepthwise || gemm.reduce < 1 || gemm.reduce > 2) return {};
  const uint32_t tap_cols = gemm.extent[5], tap_rows = gemm.reduce == 2 ? gemm.extent[4] : 1;
  const int column = gemm.inp_stride[5], row = gemm.reduce == 2 ? gemm.inp_stride[4] : 0;
  if (tap_rows > kMostTapRows) return {};
  const int x = kLoops - 1 - gemm.reduce, y = x - 1;  // the innermost loops outside the taps
  const auto extent = [&](int loop) { return uint32_t{gemm.extent[static_cast<size_t>(loop)]}; };
  Raster raster;
  const uint32_t x_columns = walk(gemm, x, tap_cols, column);
  if (x_columns != 0) {
    raster.results_x = extent(x);
    raster.stride_x = x_columns;
    raster.outer_loops = raster.x_loop = x;
    if (const uint32_t y_rows = walk(gemm, y, tap_rows, row); y_rows != 0) {
      raster.results_y = extent(y);
      raster.stride_y = y_rows;
      raster.outer_loops = raster.y_loop = y;
    }
  } else if (const uint32_t x_rows = walk(gemm, x, tap_rows, row); x_rows != 0) {
    raster.results_y = extent(x);
    raster.stride_y = x_rows;
    raster.outer_loops = raster.y_loop = x;
  } else {
    return {};
  }
  raster.cols = (raster.results_x - 1) * raster.stride_x + tap_cols;
  raster.rows = (raster.results_y - 1) * raster.stride_y + tap_rows;
  raster.pairs = pairs != 0 && tap_cols == kPairTaps && column == 1;
  raster.row_pairs = pairs == 2 && raster.pairs && tap_rows == kMostTapRows && raster.stride_x == 2 &&
                     raster.stride_y == 2 && rows_apart(gemm);
  const uint32_t walked = raster.row_pairs ? raster.results_y + 1 : raster.rows;
  if (raster.cols > kMostVectors || walked > kMostVectors) return {};
  if (tap_rows > 1 && (raster.cols < 2 || raster.cols > kLineDepth)) return {};
  return raster;
}

int64_t gemm_steps(const Gemm& gemm, int pairs) {
  const std::optional<Raster> raster = raster_of(gemm, pairs);
  int64_t steps = raster ? static_cast<int64_t>(raster->steps()) : 1;
  const int loops = raster ? raster->outer_loops : kLoops;
  for (int k = 0; k < loops; ++k) steps = times(steps, gemm.extent[static_cast<size_t>(k)]);
  return steps;
}

}  // namespace tessera::isa
