// SPDX-License-Identifier: Apache-2.0
// The registers of isa/registers.toml, read from a machine that is not in this process: which machine it is, and what
// it has counted. Enters: a function that reads a register. Leaves: a configuration, a report.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "driver/device.h"
#include "isa/config.h"

namespace tessera::driver {

/// Reads the 32-bit register at a byte offset.
using ReadRegister = std::function<uint32_t(uint32_t)>;

/// What the register of a parameter reads: a machine of one core reads 0 for `cores`.
uint32_t reported(const isa::ConfigKey& key, const isa::MachineConfig& config);

/// What the capability registers say; the name is that of a shipped configuration, if it is one. Errors: kUnsupported
/// when `who` is no machine of this instruction set; `remedy` ends the message.
isa::MachineConfig read_capabilities(const std::string& who, const ReadRegister& read, const std::string& remedy);

/// Names the parameters that differ: two machines of one size may differ in a memory. Errors: kUnsupported when there
/// are any; `device` begins the message, `place` says where the machine is, `remedy` ends it.
void check_machine(const std::string& device, const std::string& place, const isa::MachineConfig& wanted,
                   const isa::MachineConfig& found, const std::string& remedy);

/// Fault record, cycles and counters of the last run, but for multiply-accumulates.
RunReport read_records(const ReadRegister& read);

}  // namespace tessera::driver
