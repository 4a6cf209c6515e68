// SPDX-License-Identifier: Apache-2.0
// The vector unit. Enters: a checked instruction and the scratchpads. Leaves: its destination entries.
#pragma once

#include "isa/config.h"
#include "isa/generated/instructions.h"
#include "sim/functional/engines/work.h"
#include "sim/functional/scratchpads.h"

namespace tessera::sim {

/// Runs one instruction. check_operands and check_ranges must hold.
void run_alu(const isa::Alu& alu, const isa::MachineConfig& config, Scratchpads& scratchpads, Kernels kernels);

}  // namespace tessera::sim
