// SPDX-License-Identifier: Apache-2.0
// LOAD and STORE. Enters: a checked instruction, its scratchpad and its DRAM range. Leaves: copied or filled bytes.
#pragma once

#include <cstdint>

#include "isa/config.h"
#include "isa/generated/instructions.h"

namespace tessera::sim {

/// Runs a LOAD that is not packed. `scratchpad` is byte 0 of the destination; `dram` is the host memory of device byte
/// dram_offset, or null when the instruction reads none. Ranges must have been checked.
void run_load(const isa::Load& load, uint8_t* scratchpad, const uint8_t* dram);

/// Runs a LOAD that is packed. `weights` is byte 0 of WGT, `dram` as above.
void run_packed_load(const isa::Load& load, const isa::MachineConfig& config, uint8_t* weights, const uint8_t* dram);

/// Runs a STORE. `dram` is the host memory of device byte dram_offset. Ranges must have been checked.
void run_store(const isa::Store& store, const uint8_t* scratchpad, uint8_t* dram);

}  // namespace tessera::sim
