// SPDX-License-Identifier: Apache-2.0
// Writes xclbin files for the simulated board without vendor tools. Enters: a configuration of the machine and a number
// of compute units. Leaves: the bytes of an axlf container (magic xclbin2) with the sections that XRT reads:
// EMBEDDED_METADATA (the kernel's arguments), MEM_TOPOLOGY, IP_LAYOUT, CONNECTIVITY, clocks, build metadata, and in the
// place of a bitstream the text of the configuration, from which the board makes the machine. The arguments are the
// writable registers of isa/registers.toml from 0x10 on, in the order of their offsets. Own code for the layout, so that
// no XRT is needed to write one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "isa/config.h"

namespace tessera::driver {

inline constexpr std::string_view kKernelName = "tsr_top";

/// One argument of the kernel: a register, or one of an array of registers.
struct KernelArgument {
  std::string name;     // "base3"
  uint32_t offset = 0;  // in the register map
  int bytes = 4;
  bool pointer = false;  // an address of device memory
};

/// The arguments in the order of their ids.
std::vector<KernelArgument> kernel_arguments();

/// The container's bytes; the same arguments give the same bytes. Errors: kInvalidArgument for units outside 1 to 8.
std::vector<uint8_t> make_xclbin(const isa::MachineConfig& config, int units = 1);

/// Writes make_xclbin() to a file, by renaming a whole one into place. Errors: kIo.
void write_xclbin(const std::string& path, const isa::MachineConfig& config, int units = 1);

}  // namespace tessera::driver
