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
  uint32_t rows = 1, cols = 1;            // of the raster, in vectors
  uint32_t results_x = 1, results_y = 1;  // results in a row, and rows with results
  uint32_t stride_x = 1, stride_y = 1;    // vectors from one result to the next: 1 or 2
  int outer_loops = 0;                    // loops around the raster
  int x_loop = -1, y_loop = -1;           // which loop walks columns, rows; -1: none

  bool pairs = false;      // two vectors of a row enter at once wherever that saves a step
  bool row_pairs = false;  // and with them those of the row above, behind the first row

  uint32_t tap_rows() const { return rows - (results_y - 1) * stride_y; }
  uint32_t tap_cols() const { return cols - (results_x - 1) * stride_x; }
  /// Rows that are walked in front of the first results, and from one row of results to the next.
  uint32_t early_rows() const { return row_pairs ? 1 : tap_rows() - 1; }
  uint32_t rows_apart() const { return row_pairs ? 1 : stride_y; }
  /// Steps of each of the first early_rows(), in which nothing is complete, and of each row behind them.
  uint32_t early_steps() const { return pairs && stride_x == 1 ? (cols + 1) / 2 : row_steps(); }
  uint32_t row_steps() const { return pairs ? results_x + 1 : cols; }
  uint64_t steps() const {
    const uint32_t late_rows = (results_y - 1) * rows_apart() + 1;
    return uint64_t{early_rows()} * early_steps() + uint64_t{late_rows} * row_steps();
  }
  /// Steps of a row in front of its first result, and from one of its results to the next.
  uint32_t steps_before() const { return pairs ? 1 : tap_cols() - 1; }
  uint32_t steps_apart() const { return pairs ? 1 : stride_x; }
  /// Whether the step, counted from 0 over all of the instruction, makes a result.
  bool result_in(uint64_t step) const {
    const uint64_t early = uint64_t{early_rows()} * early_steps();
    step %= steps();
    if (step < early) return false;
    const auto row = static_cast<uint32_t>((step - early) / row_steps());
    const auto column = static_cast<uint32_t>((step - early) % row_steps());
    return column >= steps_before() && row % rows_apart() == 0 && (column - steps_before()) % steps_apart() == 0;
  }
};

/// Nothing when the nest is dense or has no raster form. `pairs`: the machine's `raster_pairs`.
std::optional<Raster> raster_of(const Gemm& gemm, int pairs);

/// Cycles in which the engine works on the instruction when nothing holds it up: steps of the raster, else one for each
/// iteration.
int64_t gemm_steps(const Gemm& gemm, int pairs);

}  // namespace tessera::isa
