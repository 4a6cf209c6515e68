// SPDX-License-Identifier: Apache-2.0
// The raster form of a depthwise nest, in which the GEMM engine reads every input vector once and makes up to one
// result a cycle (isa/timing.md, "GEMM"). Enters: a legal GEMM. Leaves: the raster that the engine walks, or nothing
// when the nest takes one tap a step. The rule stands here for everything in C++ and in hw/rtl/tsr_window_form.sv for
// the machine; tests/rtl_engines/gemm_timing.h states it a third time, as the oracle of both.
#pragma once

#include <cstdint>
#include <optional>

#include "isa/generated/instructions.h"

namespace tessera::isa {

struct Raster {
  uint32_t rows = 1, cols = 1;            // of the raster
  uint32_t results_x = 1, results_y = 1;  // results in a row, and rows with results
  uint32_t stride_x = 1, stride_y = 1;    // vectors from one result to the next: 1 or 2
  int outer_loops = 0;                    // loops around the raster
  int x_loop = -1, y_loop = -1;           // which loop walks columns, rows; -1: none

  uint32_t tap_rows() const { return rows - (results_y - 1) * stride_y; }
  uint32_t tap_cols() const { return cols - (results_x - 1) * stride_x; }
  /// Whether the step, counted from 0 over all of the instruction, makes a result.
  bool result_in(uint64_t step) const {
    const auto row = static_cast<uint32_t>(step / cols % rows);
    const auto column = static_cast<uint32_t>(step % cols);
    return row + 1 >= tap_rows() && column + 1 >= tap_cols() && (row + 1 - tap_rows()) % stride_y == 0 &&
           (column + 1 - tap_cols()) % stride_x == 0;
  }
};

/// Nothing when the nest is dense or has no raster form.
std::optional<Raster> raster_of(const Gemm& gemm);

/// Cycles in which the engine works on the instruction when nothing holds it up: vectors of the raster, else one for
/// each iteration.
int64_t gemm_steps(const Gemm& gemm);

}  // namespace tessera::isa
