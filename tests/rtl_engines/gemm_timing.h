// SPDX-License-Identifier: Apache-2.0
// The section GEMM of isa/timing.md as a program. Enters: instructions in order, each with the cycle in which the
// engine took it. Leaves: the cycle in which each completes, and its steps. Steps are walked one by one, because stalls
// depend on ACC addresses. It is the oracle of the RTL and of the C++ models, so it shares no rule with either, not
// even that of the raster form (isa/raster.h). The numbers are those of isa/timing.toml, against which the RTL is
// measured.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "isa/generated/instructions.h"
#include "isa/generated/timing.h"

namespace tessera::testing {

/// A depthwise nest in raster form.
struct Raster {
  int kept = 0;  // outer loops
  int64_t kernel_h = 1, kernel_w = 1, stride_y = 1, stride_x = 1, rows = 1, cols = 1;
  int64_t acc_y = 0, acc_x = 0;  // ACC strides
  bool in_pairs = false;         // the machine takes its vectors so,
  bool rows_in_pairs = false;    // and those of two rows at once
};

/// `pairs`: the machine's `raster_pairs`.
inline std::optional<Raster> raster_form(const isa::Gemm& g, int pairs) {
  if (g.mode != isa::GemmMode::kDepthwise || (g.reduce != 1 && g.reduce != 2)) return std::nullopt;
  Raster r;
  r.kernel_w = g.extent[5];
  r.kernel_h = g.reduce == 2 ? g.extent[4] : 1;
  if (r.kernel_h > isa::timing::gemm::kWindowRows) return std::nullopt;
  const int x = 5 - g.reduce, y = 4 - g.reduce;
  const auto stride = [&](int loop, int64_t taps, int64_t step) -> int64_t {
    const int64_t s = g.inp_stride[loop];
    if (g.extent[loop] == 1) return 1;
    if (g.wgt_stride[loop] != 0) return 0;
    if (taps == 1 || s == step) return 1;
    return s == 2 * step ? 2 : 0;
  };
  const int64_t columns = stride(x, r.kernel_w, g.inp_stride[5]);
  const int64_t row_step = g.inp_stride[4];
  int64_t n_x = 1, n_y = 1;
  if (columns != 0) {
    n_x = g.extent[x];
    r.stride_x = columns;
    r.acc_x = g.acc_stride[x];
    r.kept = x;
    if (const int64_t rows = stride(y, r.kernel_h, row_step); rows != 0) {
      n_y = g.extent[y];
      r.stride_y = rows;
      r.acc_y = g.acc_stride[y];
      r.kept = y;
    }
  } else if (const int64_t rows = stride(x, r.kernel_h, row_step); rows != 0) {
    n_y = g.extent[x];
    r.stride_y = rows;
    r.acc_y = g.acc_stride[x];
    r.kept = x;
  } else {
    return std::nullopt;
  }
  r.cols = (n_x - 1) * r.stride_x + r.kernel_w;
  r.rows = (n_y - 1) * r.stride_y + r.kernel_h;
  r.in_pairs = pairs > 0 && r.kernel_w == 3 && g.inp_stride[5] == 1;
  r.rows_in_pairs = pairs > 1 && r.in_pairs && r.kernel_h == 3 && r.stride_x == 2 && r.stride_y == 2 &&
                    g.inp_addr % 2 == 1 && (g.inp_stride[0] | g.inp_stride[1]) % 2 == 0 && (row_step & 3) == 2;
  if (r.cols > 4095 || (r.rows_in_pairs ? n_y + 1 : r.rows) > 4095 ||
      (r.kernel_h > 1 && (r.cols < 2 || r.cols > isa::timing::gemm::kLineColumns)))
    return std::nullopt;
  return r;
}

/// The newest columns of a row's steps, with vectors in pairs: of the rows in front of the first results, where no step
/// makes one, or of the rows behind them.
inline std::vector<int64_t> newest_in_pairs(const Raster& r, bool early) {
  std::vector<int64_t> columns;
  if (r.stride_x == 2) {
    for (int64_t col = 0; col < r.cols; col += 2) columns.push_back(col);
  } else {
    for (int64_t col = 1; col < r.cols + (early ? 1 : 0); col += early ? 2 : 1) columns.push_back(col);
  }
  return columns;
}

class GemmTiming {
 public:
  explicit GemmTiming(int pairs = 0) : pairs_(pairs) {}
  /// The cycle in which an instruction completes that was taken in cycle `taken`. `faults`: its ranges do.
  int64_t complete(const isa::Instruction& instruction, bool faults, int64_t taken) {
    const auto* gemm = std::get_if<isa::Gemm>(&instruction);
    if (gemm == nullptr) return std::max(taken + 1, last_ + isa::timing::gemm::kDrain);
    if (faults) return std::max(taken + isa::timing::gemm::kPrepare, last_ + isa::timing::gemm::kDrain);
    next_ = std::max(taken + isa::timing::gemm::kStart, last_ + 1);
    steps_ = 0;
    walk(*gemm, 0, gemm->acc_addr);
    return last_ + isa::timing::gemm::kWrite;
  }
  /// Steps of the instruction just passed.
  int64_t steps() const { return steps_; }

 private:
  void walk(const isa::Gemm& g, int loop, int64_t acc) {
    const auto raster = raster_form(g, pairs_);
    const int outer = raster ? raster->kept : isa::kLoops - g.reduce;
    if (loop < outer) {
      for (int i = 0; i < g.extent[loop]; ++i) walk(g, loop + 1, acc + i * g.acc_stride[loop]);
      return;
    }
    if (raster) {
      const Raster& r = *raster;
      for (int64_t row = 0; row < r.rows; row += r.rows_in_pairs ? 2 : 1) {
        std::vector<int64_t> newest;
        for (int64_t col = 0; col < r.cols; ++col) newest.push_back(col);
        if (r.in_pairs) newest = newest_in_pairs(r, row + 1 < r.kernel_h);
        for (const int64_t col : newest) {
          const int64_t down = row - r.kernel_h + 1, right = col - r.kernel_w + 1;
          const bool result = down >= 0 && right >= 0 && down % r.stride_y == 0 && right % r.stride_x == 0;
          step(g, result, result, acc + down / r.stride_y * r.acc_y + right / r.stride_x * r.acc_x);
        }
      }
      return;
    }
    int64_t tiles = 1;
    for (int k = outer; k < isa::kLoops; ++k) tiles *= g.extent[k];
    for (int64_t k = 0; k < tiles; ++k) step(g, k == 0, k + 1 == tiles, acc);
  }

  void step(const isa::Gemm& g, bool starts, bool ends, int64_t entry) {
    last_ = next_;
    if (starts && g.accumulate) {
      const auto end = ends_.find(entry);
      if (end != ends_.end()) last_ += std::max<int64_t>(0, end->second + isa::timing::gemm::kApart - next_);
    }
    if (ends) ends_[entry] = last_;
    next_ = last_ + 1;
    ++steps_;
  }

  int pairs_ = 0;        // the machine's `raster_pairs`
  int64_t next_ = 0;     // cycle of the next step
  int64_t last_ = -100;  // of the last step, its stall included
  int64_t steps_ = 0;
  std::map<int64_t, int64_t> ends_;  // ACC entry: last end of a sum
};

}  // namespace tessera::testing
