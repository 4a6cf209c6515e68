// SPDX-License-Identifier: Apache-2.0
// LOAD and STORE. Enters: a checked instruction, its scratchpad and its DRAM range. Leaves: copied or filled bytes.
#pragma once

#include <cstdint>

#include "isa/generated/instructions.h"

namespace tessera::sim {

/// Runs a LOAD. `scratchpad` is byte 0 of the destination; `dram` is the host memory of device byte dram_offset, or
/// null when the instruction reads none. Ranges must have been checked.
void run_load(const isa::Load& load, uint8_t* scratchpad, const uint8_t* dram);

/// Runs a STORE. `dram` is the host memory of device byte dram_offset. Ranges must have been checked.
void run_store(const isa::Store& store, const uint8_t* scratchpad, uint8_t* dram);

}  // namespace tessera::sim
