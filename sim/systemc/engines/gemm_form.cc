// SPDX-License-Identifier: Apache-2.0
#include "sim/systemc/engines/gemm_form.h"

#include <array>

#include "isa/count.h"
#include "isa/generated/timing.h"

namespace tessera::sim::systemc {
namespace {

constexpr uint64_t kSumDistance = isa::timing::gemm::kApart;
static_assert(kSumDistance == 3, "two sums before are looked at, here and in gemm.cc");

/// Cycles that a sum waits which starts so many steps behind the end of another on its entry.
uint64_t stall_at(uint64_t distance) { return distance < kSumDistance ? kSumDistance - distance : 0; }

}  // namespace

GemmForm form_of(const isa::Gemm& gemm, int pairs) {
  GemmForm form;
  const auto outer = static_cast<size_t>(isa::kLoops - gemm.reduce);
  uint64_t sum_steps = 1;
  for (size_t k = 0; k < isa::kLoops; ++k) {
    uint64_t& count = k < outer ? form.sums : sum_steps;
    count = static_cast<uint64_t>(isa::times(static_cast<int64_t>(count), gemm.extent[k]));
  }
  form.steps = static_cast<uint64_t>(isa::times(static_cast<int64_t>(form.sums), static_cast<int64_t>(sum_steps)));
  form.first_end = sum_steps - 1;
  form.raster = isa::raster_of(gemm, pairs);
  const std::optional<isa::Raster>& raster = form.raster;
  if (raster) {
    form.steps = static_cast<uint64_t>(isa::gemm_steps(gemm, pairs));
    form.first_end = uint64_t{raster->early_rows()} * raster->early_steps() + raster->steps_before();
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
  const bool neighbours = form.single && !raster;
  int64_t address = gemm.acc_addr;
  if (neighbours) {
    for (uint64_t sum = 0; sum < form.sums; ++sum) {
      form.last_stall = 0;
      if (address == before[0]) {
        form.last_stall = stall_at(1);
      } else if (address == before[1]) {
        form.last_stall = stall_at(2);
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
          distance = raster->steps_apart();
        } else if (static_cast<int>(k) == raster->y_loop) {
          distance = raster->rows_apart() * raster->row_steps() - (raster->results_x - 1) * raster->steps_apart();
        } else {
          distance = form.first_end + 1;
        }
      }
      form.stalls += stall_at(distance) * around * (gemm.extent[k] - 1);
    }
    around *= gemm.extent[k];
  }
  return form;
}

}  // namespace tessera::sim::systemc
