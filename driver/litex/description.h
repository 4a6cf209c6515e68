// SPDX-License-Identifier: Apache-2.0
// What a system says about itself (hw/litex/describe.py): where things are, how its DRAM starts, what it was made of.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "driver/litex/window.h"

namespace tessera::driver::litex {

struct InitialWrite {
  uint32_t address = 0, value = 0, wait_cycles = 0;
};

struct Description {
  uint32_t clock_hz = 0;
  uint32_t memory = 0, memory_bytes = 0;  // DRAM: first byte, bytes
  uint32_t machine = 0;                   // registers of the NPU
  uint32_t reset = 0;                     // register that resets the system when 1 is written; 0: none
  std::array<uint32_t, 8> identity{};     // SHA-256 of sources, configuration and tools
  std::vector<InitialWrite> initialisation;
  std::string board, config, memory_name, tools;

  /// The identity as 64 hexadecimal digits.
  std::string identity_text() const;
};

/// Reads and checks it. Errors: kUnsupported when what answers is no such system or of another version.
Description read_description(Window& window, const std::string& name);

}  // namespace tessera::driver::litex
