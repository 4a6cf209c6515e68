// SPDX-License-Identifier: Apache-2.0
// What the generated source of each verilated configuration gives to the table of configurations.
#pragma once

#include <memory>
#include <string_view>

#include "isa/config.h"
#include "sim/verilator/machine.h"

namespace tessera::sim {

struct RtlEntry {
  std::string_view toml;
  std::unique_ptr<RtlMachine> (*make)(const isa::MachineConfig&);
};

}  // namespace tessera::sim
