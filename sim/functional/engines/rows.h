// SPDX-License-Identifier: Apache-2.0
// The vector unit's rows. Enters: a checked instruction and the scratchpads. Leaves: scalars of rows in ACC, or bytes.
#pragma once

#include "isa/config.h"
#include "isa/generated/instructions.h"
#include "sim/functional/scratchpads.h"

namespace tessera::sim {

/// Runs one instruction. check_operands and check_ranges must hold.
/// `limit`: base register 15, for instructions that are limited.
void run_row_reduce(const isa::RowReduce& i, const isa::MachineConfig& config, Scratchpads& scratchpads,
                    uint64_t limit);
void run_row_map(const isa::RowMap& i, const isa::MachineConfig& config, Scratchpads& scratchpads, uint64_t limit);

}  // namespace tessera::sim
