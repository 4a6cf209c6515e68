// SPDX-License-Identifier: Apache-2.0
// How long instructions of rows take (isa/timing.md, "Rows"). Enters: an instruction and a configuration with row
// lanes; of data, the exponents of normalised rows. Leaves: cycles, ports taken not counted. Read by the
// timing model and by the compiler's prediction.
#pragma once

#include <algorithm>
#include <cstdint>

#include "isa/config.h"
#include "isa/generated/instructions.h"
#include "isa/generated/timing.h"

namespace tessera::isa {

/// Rows of an instruction, and vectors in each.
struct RowNest {
  int64_t rows = 1;
  int64_t entries = 1;
};

template <typename Rows>
RowNest row_nest(const Rows& i) {
  RowNest nest;
  for (int k = 0; k < kLoops; ++k) {
    (k < kLoops - i.row ? nest.rows : nest.entries) *= i.extent[static_cast<size_t>(k)];
  }
  return nest;
}

/// By how much later the vectors of a source come because they are rounded.
inline int64_t row_rounding_cycles(AluSpace source) { return source == AluSpace::kAcc ? timing::row::kRounding : 0; }

/// ROW_REDUCE's sums: from the cycle behind a group's last address to that in which its first result may be kept.
inline int64_t row_walk_cycles(const MachineConfig& config, int64_t rows, int64_t entries) {
  namespace row = timing::row;
  return (rows - 1) * row::turns(config) + row::kCorner + entries * row::walk(config) + row::kDrain;
}

/// ROW_REDUCE: the end of a row.
inline int64_t row_end_cycles(const RowReduce& i) {
  return i.operation == Reduction::kMoments ? timing::row::kMoments : timing::row::kReduce;
}

/// From a group's kept sums to the end of its first row, beside that: the first of two stages.
inline int64_t row_first_cycles(const RowReduce& i) {
  return i.operation == Reduction::kMoments ? timing::row::kMoments : 0;
}

/// ROW_MAP: from a row's scalars to its first read of a vector. `exponent`: their third one.
inline int64_t row_setup_cycles(const RowMap& i, int64_t exponent) {
  namespace row = timing::row;
  return row::kScalars +
         (i.operation == Mapping::kSoftmax ? row::kSoftmax : row::kNormalise + exponent / 4 + exponent % 4);
}

/// ROW_MAP: from a row's first read of a vector to the read of the next row's scalars.
inline int64_t row_next_cycles(const RowMap& i) {
  return i.operation == Mapping::kSoftmax ? timing::row::kNext : timing::row::kNextNormalised;
}

/// ROW_MAP: from the first read of the last row to the end.
inline int64_t row_map_cycles(const MachineConfig& config, int64_t entries) {
  return entries * timing::row::turns(config) + timing::row::kMap;
}

/// The whole instruction on these rows, where data are not known.
inline int64_t row_cycles(const RowReduce& i, const MachineConfig& config, const RowNest& nest) {
  namespace row = timing::row;
  const int64_t end = row_end_cycles(i), first = row_first_cycles(i);
  if (i.operation == Reduction::kMax) {
    return (nest.rows - 1) * std::max(nest.entries + row::kRow, end) + row::kRow + nest.entries + row::kMax;
  }
  // A group's results are finished while the next group is walked, and kept when those before are written.
  const int64_t group = row::group(config), capture = row::capture(config);
  int64_t kept = 0;  // by when results are kept, from the start on
  int64_t last = 0;  // rows of the group whose results they are
  const auto add = [&](int64_t groups, int64_t rows) {
    const int64_t walk = rows * row::kGather + row_walk_cycles(config, rows, nest.entries);
    if (groups == 0 || rows == 0) return;
    kept += std::max(walk, last > 0 ? first + last * end + row::kTurnover - 1 : 0) + capture;
    kept += (groups - 1) * (std::max(walk, first + rows * end + row::kTurnover - 1) + capture);
    last = rows;
  };
  add(nest.rows / group, group);
  add(1, nest.rows % group);
  return kept + first + last * end;
}
/// ROW_MAP's sum_softmax: from a group's sums to the end, when no other group follows.
inline int64_t row_rest_cycles(const MachineConfig& config, int64_t rows, int64_t entries) {
  namespace row = timing::row;
  return row::kRest + row::beside(config) + rows * entries * row::turns(config) + row::kMap - 1;
}

/// A group's sums while the results of the group before are made.
inline int64_t row_sum_cycles(const MachineConfig& config, int64_t rows, int64_t entries) {
  namespace row = timing::row;
  return rows * row::kGather + row_walk_cycles(config, rows, entries) + row::capture(config);
}

inline int64_t row_cycles(const RowMap& i, const MachineConfig& config, const RowNest& nest) {
  if (i.operation == Mapping::kSumSoftmax) {
    const int64_t group = timing::row::group(config), whole = nest.rows / group, left = nest.rows % group;
    return whole * row_sum_cycles(config, group, nest.entries) +
           (left > 0 ? row_sum_cycles(config, left, nest.entries) : 0) +
           row_rest_cycles(config, left > 0 ? left : std::min(nest.rows, group), nest.entries) +
           (whole + (left > 0 ? 1 : 0) + 1) * row_rounding_cycles(i.src);
  }
  constexpr int64_t kExponent = 10;
  const int64_t setup = row_setup_cycles(i, kExponent);
  return setup + (nest.rows - 1) * std::max(nest.entries * timing::row::turns(config), row_next_cycles(i) + setup) +
         row_map_cycles(config, nest.entries);
}

/// The whole instruction, where data are not known.
template <typename Rows>
int64_t row_cycles(const Rows& i, const MachineConfig& config) {
  return row_cycles(i, config, row_nest(i));
}

}  // namespace tessera::isa
