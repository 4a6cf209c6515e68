// SPDX-License-Identifier: Apache-2.0
// Figures of the bus, whether it moves in rates (memory.cc) or cycle by cycle (memory_clocked.cc).
#pragma once

#include "isa/generated/timing.h"
#include "sim/systemc/types.h"

namespace tessera::sim::systemc {

constexpr double kSmall = 1e-6;
constexpr Cycle kBuffered = isa::timing::bus::kBeatsWaiting;  // before the bus is held
constexpr double kReadAhead = isa::timing::store::kGroupsWaiting;

/// The most frequent quotient by far needs no division.
inline double inverse(double value) { return value == 1 ? 1 : 1 / value; }

}  // namespace tessera::sim::systemc
