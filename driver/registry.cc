// SPDX-License-Identifier: Apache-2.0
// The table of backends. An explicit table, not self-registration: a static library would drop objects nobody names.
#include "driver/registry.h"

#include <cstdlib>

#include "base/error.h"
#include "driver/backends.h"

namespace tessera::driver {
namespace {

struct Backend {
  const char* name;
  const char* description;
  std::unique_ptr<Device> (*open)(const isa::MachineConfig&, const DeviceOptions&);
  bool chips = false;  // runs machines of several cores
};

std::unique_ptr<Device> refuse_remote(const isa::MachineConfig& /*config*/, const DeviceOptions& /*options*/) {
  throw Error(ErrorCode::kInvalidArgument,
              "device remote is named with its server: remote:HOST:PORT, for example remote:127.0.0.1:9190");
}

/// The link that `tessera litex --simulate -- COMMAND` names, where the device's name has none.
std::unique_ptr<Device> open_named_litex(const isa::MachineConfig& config, const DeviceOptions& options) {
  const char* link = std::getenv("TESSERA_LITEX");
  if (link != nullptr) return open_litex(config, options, link);
  throw Error(ErrorCode::kInvalidArgument,
              "device litex is named with its link: litex:HOST:PORT, litex:udp:HOST:PORT or litex:/dev/ttyUSB0; "
              "`tessera litex --board ulx3s --simulate` starts a simulated one");
}

constexpr Backend kBackends[] = {
    {"fsim", "functional simulator: exact results and race check, no time", open_fsim, true},
    {"litex", "a board with a LiteX system, or the simulated one: litex:HOST:PORT, litex:/dev/ttyUSB0",
     open_named_litex},
    {"remote", "a device that `tessera serve` serves elsewhere: remote:HOST:PORT", refuse_remote, true},
#ifdef TESSERA_BACKEND_RTL
    {"rtl", "Verilated RTL: exact results, exact cycles", open_rtl, true},
#endif
#ifdef TESSERA_BACKEND_SYSC
    {"sysc", "SystemC model: exact results, cycles within one per cent", open_sysc, true},
#endif
    {"xrt", "a card through XRT, or the simulated board; xrt:INDEX or xrt:BDF chooses a card", open_xrt},
};

void check_cores(std::string_view name, const isa::MachineConfig& config) {
  if (config.cores == 1) return;
  std::string chips;
  for (const Backend& backend : kBackends) {
    if (name == backend.name && backend.chips) return;
    if (backend.chips) chips += (chips.empty() ? "" : ", ") + std::string(backend.name);
  }
  throw Error(ErrorCode::kUnsupported, "device " + std::string(name) + " runs machines of one core, and '" +
                                           config.name + "' has " + std::to_string(config.cores) +
                                           "; devices that run it: " + chips);
}

}  // namespace

std::vector<BackendInfo> backends() {
  std::vector<BackendInfo> all;
  for (const Backend& backend : kBackends) all.push_back({backend.name, backend.description});
  return all;
}

std::optional<RtlInstallation> rtl_installation() {
#ifdef TESSERA_BACKEND_RTL
  return inspect_rtl();
#else
  return std::nullopt;
#endif
}

std::unique_ptr<Device> open_device(std::string_view name, const isa::MachineConfig& config,
                                    const DeviceOptions& options) {
  check_cores(name.substr(0, name.find(':')), config);
  // "xrt:1", "xrt:0000:65:00.1": which card.
  if (name.starts_with("xrt:")) {
    DeviceOptions chosen = options;
    chosen.backend["device"] = std::string(name.substr(4));
    return open_xrt(config, chosen);
  }
  if (name.starts_with("remote:")) return open_remote(config, options, std::string(name.substr(7)));
  if (name.starts_with("litex:")) return open_litex(config, options, std::string(name.substr(6)));
  std::string known;
  for (const Backend& backend : kBackends) {
    if (name == backend.name) return backend.open(config, options);
    if (!known.empty()) known += ", ";
    known += backend.name;
  }
  throw Error(ErrorCode::kInvalidArgument, "unknown device '" + std::string(name) + "'; known: " + known);
}

}  // namespace tessera::driver
