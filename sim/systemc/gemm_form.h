// SPDX-License-Identifier: Apache-2.0
// How many cycles a GEMM instruction takes by itself (isa/timing.md, "GEMM"). Enters: a legal instruction. Leaves: its
// steps, its sums, and the stalls among its own sums.
#pragma once

#include <cstdint>
#include <optional>

#include "isa/generated/instructions.h"

namespace tessera::sim::systemc {

/// A depthwise nest that goes through the line buffers.
struct Raster {
  uint32_t rows, cols;  // of the raster
  uint32_t n_x, n_y;    // results in a row, and rows with results
  uint32_t s_x, s_y;
  int kept;    // outer loops around it
  int x_loop;  // which loop walks columns, rows; -1: none
  int y_loop;

  /// Whether the step, counted from 0 over all of the instruction, makes a result.
  bool result_in(uint64_t step) const {
    const auto row = static_cast<uint32_t>(step / cols % rows);
    const auto column = static_cast<uint32_t>(step % cols);
    const uint32_t row_taps = rows - (n_y - 1) * s_y, column_taps = cols - (n_x - 1) * s_x;
    return row + 1 >= row_taps && column + 1 >= column_taps && (row + 1 - row_taps) % s_y == 0 &&
           (column + 1 - column_taps) % s_x == 0;
  }
};

/// Nothing when the nest takes one tap a step.
std::optional<Raster> raster_of(const isa::Gemm& gemm);

struct GemmForm {
  uint64_t steps = 1;
  uint64_t sums = 1;
  uint64_t stalls = 0;      // among the instruction's own sums, without the first
  uint64_t last_stall = 0;  // of the last step, when that starts a sum
  uint32_t first_acc = 0;   // entries of the first and the last two sums
  uint32_t last_acc = 0;
  uint32_t before_last_acc = 0;
  uint64_t first_end = 0;  // steps before the first sum's own end
  bool single = false;     // a sum starts and ends in one step
  std::optional<Raster> raster;
};

GemmForm form_of(const isa::Gemm& gemm);

}  // namespace tessera::sim::systemc
