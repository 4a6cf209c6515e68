// SPDX-License-Identifier: Apache-2.0
// Writes xclbin files for the simulated board without vendor tools. Enters: a configuration of the machine and a number
// of compute units. Leaves: the bytes of an axlf container (magic xclbin2) with the sections that XRT reads:
// EMBEDDED_METADATA (the kernel's arguments), MEM_TOPOLOGY, IP_LAYOUT, CONNECTIVITY, clocks, build metadata, and in the
// place of a bitstream the text of the configuration, from which the board makes the machine. Kernel and arguments are
// those of isa/generated/kernel_arguments.h, which the packaging for real boards uses too. Own code for the layout, so
// that no XRT is needed to write one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isa/config.h"

namespace tessera::driver {

/// The container's bytes; the same arguments give the same bytes. Errors: kInvalidArgument for units outside 1 to 8.
std::vector<uint8_t> make_xclbin(const isa::MachineConfig& config, int units = 1);

/// Writes make_xclbin() to a file, by renaming a whole one into place. Errors: kIo.
void write_xclbin(const std::string& path, const isa::MachineConfig& config, int units = 1);

}  // namespace tessera::driver
