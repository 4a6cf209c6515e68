// SPDX-License-Identifier: Apache-2.0
// Devices by name. Enters: a backend's name, a machine configuration, options. Leaves: an open Device.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driver/device.h"
#include "isa/config.h"

namespace tessera::driver {

struct DeviceOptions {
  /// First address of device memory, a multiple of 64, and its size; backends with real memory may refuse other values.
  uint64_t heap_base = uint64_t{1} << 32;
  uint64_t heap_bytes = uint64_t{1} << 32;
  /// Simulators fill every new allocation with pseudo-random bytes from this seed.
  std::optional<uint64_t> poison_allocations;
  /// Settings of one backend, by name; a backend throws Error kInvalidArgument for those it does not know.
  std::map<std::string, std::string> backend;
};

/// An environment variable; empty where it is not set.
inline std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct BackendInfo {
  std::string name;
  std::string description;
};

/// The backends of this build, in alphabetical order.
std::vector<BackendInfo> backends();

/// What device rtl can run here. Nothing is opened or made.
struct RtlInstallation {
  std::vector<std::string> machines;  // shipped configurations whose verilated machine is part of the installation
  std::string tools;                  // that make the machine of another configuration; empty when one is missing,
  std::string missing;                // and then this says which
  std::string cache;                  // folder of the machines that were made
};

/// None in a build without device rtl.
std::optional<RtlInstallation> rtl_installation();

/// Where the library is that device remote loads. Errors: kUnsupported when this installation has none, saying what to
/// do.
std::string remote_library();

/// Opens a device. Errors: kInvalidArgument for an unknown name (the message lists the known ones), a configuration
/// that is not valid, or a wrong option; kDoesNotFit when the host cannot provide the memory.
std::unique_ptr<Device> open_device(std::string_view name, const isa::MachineConfig& config,
                                    const DeviceOptions& options = {});

}  // namespace tessera::driver
