// SPDX-License-Identifier: Apache-2.0
// Cycles that a finished program takes at least, whatever the engines do to each other on the bus and at the ports. The
// replay (predict.h) says what a program will take; this says what it cannot be below, so that a search may leave it
// out. Instructions with waits and signals enter, and their work; cycles leave. Method: each event as early as its
// engine, its conditions and the fetch of its word allow, each transfer alone on the bus; then all beats of the bus one
// after the other, each transfer from its earliest cycle on and with the least time behind it that the program needs
// from its last beat to the end (Jackson's bound of one machine with heads and tails).
#pragma once

#include <cstdint>
#include <span>

#include "compiler/emit/predict.h"
#include "compiler/emit/work.h"
#include "isa/config.h"
#include "isa/generated/instructions.h"

namespace tessera::emit {

int64_t least_cycles(std::span<const isa::Instruction> instructions, std::span<const Work* const> works,
                     const isa::MachineConfig& config, const Dram& dram = {});

}  // namespace tessera::emit
