// SPDX-License-Identifier: Apache-2.0
// The opening function of each backend, for the registry only. A backend exists when its machine was built: CMake then
// defines TESSERA_BACKEND_<NAME> and links it.
#pragma once

#include <memory>
#include <string>

#include "driver/registry.h"

namespace tessera::driver {

std::unique_ptr<Device> open_fsim(const isa::MachineConfig& config, const DeviceOptions& options);
std::unique_ptr<Device> open_rtl(const isa::MachineConfig& config, const DeviceOptions& options);
std::unique_ptr<Device> open_sysc(const isa::MachineConfig& config, const DeviceOptions& options);
/// `address` is HOST:PORT (driver/remote/client.cc).
std::unique_ptr<Device> open_remote(const isa::MachineConfig& config, const DeviceOptions& options,
                                    const std::string& address);
/// `link` is HOST:PORT, udp:HOST:PORT or the path of a serial line (driver/litex/device.cc).
std::unique_ptr<Device> open_litex(const isa::MachineConfig& config, const DeviceOptions& options,
                                   const std::string& link);
std::unique_ptr<Device> open_xrt(const isa::MachineConfig& config, const DeviceOptions& options);

RtlInstallation inspect_rtl();

}  // namespace tessera::driver
