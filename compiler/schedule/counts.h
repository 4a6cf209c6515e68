// SPDX-License-Identifier: Apache-2.0
// What closed forms and bounds count alike.
#pragma once

#include <array>

#include "compiler/schedule/cost_model.h"

namespace tessera::schedule {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline bool dense(const Nest& nest) { return nest.computation == Computation::kDense; }
inline bool weighted(const Nest& nest) { return dense(nest) || nest.computation == Computation::kDepthwise; }

/// Cycles in which the bus moves so many bytes.
inline int64_t beats(int64_t bytes, const Machine& machine) { return ceil_div(bytes, machine.bytes_per_cycle()); }

/// What an extent is cut into: pieces of a size, and how many of them.
struct Cut {
  int64_t size = 1, count = 1;
};
inline std::array<Cut, 2> cuts(int64_t extent, int64_t size) { return {{{size, extent / size}, {extent % size, 1}}}; }

}  // namespace tessera::schedule
