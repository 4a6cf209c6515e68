// SPDX-License-Identifier: Apache-2.0
// What the modules of the timing model share: cycles, one burst on the bus as a TLM-2.0 extension, counters. Cycle 0 is
// the first cycle in which a program runs. "Boundary" b means: whatever ends there was last active in cycle b - 1.
#pragma once

#include <array>
#include <cstdint>

#include "isa/generated/instructions.h"

namespace tessera::sim::systemc {

using Cycle = uint64_t;
inline constexpr Cycle kNever = UINT64_MAX;
inline constexpr Cycle kQuantum = 10000;  // that cores run ahead of SystemC
inline constexpr Cycle kStarted = 2;      // from the start of a program to FETCH's first request

struct UnitCounters {
  uint64_t busy = 0;
  std::array<uint64_t, isa::kEngines> wait{};
  uint64_t stall_memory = 0;
  uint64_t stall_port = 0;
  uint64_t executed = 0;
};

/// The scratchpad ports for which engines compete (isa/ports.md). A share is the fraction of cycles an engine asks.
enum class Port { kInpB, kAccRead, kAccWrite, kOutRead, kOutWrite, kNone };
inline constexpr int kPorts = 5;

}  // namespace tessera::sim::systemc
