// SPDX-License-Identifier: Apache-2.0
// Read leveling: when the bytes of a DDR3 arrive is known to no clock, so the PHY's slip of bits and its delay are
// found by reading what was written. Enters: a system whose DRAM has been started. Leaves: for each lane of eight bits
// the middle of the longest run of delays at which it reads.
#pragma once

#include <cstdint>
#include <string>

#include "driver/litex/description.h"
#include "driver/litex/window.h"

namespace tessera::driver::litex {

/// Overwrites the first bytes of DRAM. Errors: kIo naming the lane that reads at no setting; `name` is of the link.
void level_reads(Window& window, const Description& system, const std::string& name);

}  // namespace tessera::driver::litex
