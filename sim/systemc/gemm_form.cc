// SPDX-License-Identifier: Apache-2.0
#include "sim/systemc/gemm_form.h"

#include <array>

namespace tessera::sim::systemc {

std::optional<Raster> raster_of(const isa::Gemm& gemm) {
  if (gemm.mode != isa::GemmMode::kDepthwise || gemm.reduce < 1 || gemm.reduce > 2) return {};
  const uint32_t kw = gemm.extent[5];
  const int pixel = gemm.inp_stride[5];
  const uint32_t kh = gemm.reduce == 2 ? gemm.extent[4] : 1;
  const int row = gemm.reduce == 2 ? gemm.inp_stride[4] : 0;
  if (kh > 3) return {};
  // The stride, 1 or 2, with which a loop walks along taps of that number and distance; 0: it does not.
  const auto walks = [&](int loop, uint32_t taps, int distance) -> uint32_t {
    if (loop < 0) return 0;
    const auto k = static_cast<size_t>(loop);
    if (gemm.extent[k] != 1 && gemm.wgt_stride[k] != 0) return 0;
    if (gemm.extent[k] == 1 || taps == 1 || gemm.inp_stride[k] == distance) return 1;
    return gemm.inp_stride[k] == 2 * distance ? 2 : 0;
  };
  const int x = 5 - gemm.reduce, y = 4 - gemm.reduce;
  Raster raster{1, 1, 1, 1, 1, 1, 0, -1, -1};
  const uint32_t x_columns = walks(x, kw, pixel), x_rows = walks(x, kh, row), y_rows = walks(y, kh, row);
  const auto extent = [&](int loop) { return uint32_t{gemm.extent[static_cast<size_t>(loop)]}; };
  if (x_columns != 0 && y_rows != 0) {
    raster.n_x = extent(x), raster.s_x = x_columns;
    raster.n_y = extent(y), raster.s_y = y_rows;
    raster.kept = raster.y_loop = y;
    raster.x_loop = x;
  } else if (x_columns != 0) {
    raster.n_x = extent(x), raster.s_x = x_columns;
    raster.kept = raster.x_loop = x;
  } else if (x_rows != 0) {
    raster.n_y = extent(x), raster.s_y = x_rows;
    raster.kept = raster.y_loop = x;
  } else {
    return {};
  }
  raster.cols = (raster.n_x - 1) * raster.s_x + kw;
  raster.rows = (raster.n_y - 1) * raster.s_y + kh;
  if (raster.cols > 4095 || raster.rows > 4095) return {};
  if (kh > 1 && (raster.cols < 2 || raster.cols > 512)) return {};
  return raster;
}

GemmForm form_of(const isa::Gemm& gemm) {
  GemmForm form;
  const auto outer = static_cast<size_t>(isa::kLoops - gemm.reduce);
  uint64_t sum_steps = 1;
  for (size_t k = 0; k < isa::kLoops; ++k) (k < outer ? form.sums : sum_steps) *= gemm.extent[k];
  form.steps = form.sums * sum_steps;
  form.first_end = sum_steps - 1;
  form.raster = raster_of(gemm);
  const std::optional<Raster>& raster = form.raster;
  if (raster) {
    form.steps = uint64_t{raster->rows} * raster->cols;
    for (int k = 0; k < raster->kept; ++k) form.steps *= gemm.extent[static_cast<size_t>(k)];
    const uint32_t kh = raster->rows - (raster->n_y - 1) * raster->s_y;
    const uint32_t kw = raster->cols - (raster->n_x - 1) * raster->s_x;
    form.first_end = uint64_t{kh - 1} * raster->cols + kw - 1;
    form.single = true;
  } else {
    form.single = sum_steps == 1;
  }
  int64_t last = gemm.acc_addr;
  for (size_t k = 0; k < outer; ++k) last += int64_t{gemm.extent[k] - 1} * gemm.acc_stride[k];
  form.first_acc = gemm.acc_addr;
  form.last_acc = form.before_last_acc = static_cast<uint32_t>(last);
  if (!gemm.accumulate) return form;

  // Stalls: neighbouring sums of one entry 2 cycles, next but one 1 cycle (only where sums take one step).
  std::array<uint32_t, isa::kLoops> index{};
  std::array<int64_t, 2> before{-1, -1};
  const bool pairs = form.single && !raster;
  int64_t address = gemm.acc_addr;
  if (pairs) {
    for (uint64_t sum = 0; sum < form.sums; ++sum) {
      form.last_stall = 0;
      if (address == before[0]) {
        form.last_stall = 2;
      } else if (address == before[1]) {
        form.last_stall = 1;
      }
      form.stalls += form.last_stall;
      form.before_last_acc = before[0] < 0 ? form.first_acc : static_cast<uint32_t>(before[0]);
      // What stalled has let the one before it be written.
      before[1] = form.last_stall > 0 ? -1 : before[0];
      before[0] = address;
      for (size_t k = outer; k-- > 0;) {
        if (++index[k] < gemm.extent[k]) {
          address += gemm.acc_stride[k];
          break;
        }
        address -= int64_t{gemm.extent[k] - 1} * gemm.acc_stride[k];
        index[k] = 0;
      }
    }
    return form;
  }
  // A step of loop k changes the address by its stride less what the deeper loops return.
  uint64_t around = 1;
  int64_t deeper = 0;
  for (size_t k = 0; k < outer; ++k) deeper += int64_t{gemm.extent[k] - 1} * gemm.acc_stride[k];
  for (size_t k = 0; k < outer; ++k) {
    deeper -= int64_t{gemm.extent[k] - 1} * gemm.acc_stride[k];
    if (gemm.acc_stride[k] == deeper && gemm.extent[k] > 1) {
      // Steps from the end of a sum to the start of the next one.
      uint64_t distance = 1;
      if (raster) {
        if (static_cast<int>(k) == raster->x_loop) {
          distance = raster->s_x;
        } else if (static_cast<int>(k) == raster->y_loop) {
          distance = raster->s_y * raster->cols - (raster->n_x - 1) * raster->s_x;
        } else {
          distance = form.first_end + 1;
        }
      }
      form.stalls += (distance == 1 ? 2 : distance == 2 ? 1 : 0) * around * (gemm.extent[k] - 1);
    }
    around *= gemm.extent[k];
  }
  return form;
}

}  // namespace tessera::sim::systemc
