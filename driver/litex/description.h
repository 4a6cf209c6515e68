// SPDX-License-Identifier: Apache-2.0
// What a system says about itself (hw/litex/describe.py): where things are, how its DRAM starts, what it was made of.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "driver/litex/window.h"

namespace tessera::driver::litex {

struct InitialWrite {
  uint32_t address = 0, value = 0, wait_cycles = 0;
};

/// The read leveling of a DDR3 PHY (LiteDRAM's ECP5DDRPHY): lanes of eight bits, values to try, registers.
struct Leveling {
  uint32_t lanes = 0, bitslips = 0, delays = 0;
  uint32_t select = 0, delay_reset = 0, delay_step = 0, bitslip_reset = 0, bitslip_step = 0;
  uint32_t burst_clear = 0, burst_seen = 0;  // whether a lane's strobes came in the window that is open for them
};

struct Description {
  uint32_t clock_hz = 0;
  uint32_t memory = 0, memory_bytes = 0;  // DRAM: first byte, bytes
  uint32_t machine = 0;                   // registers of the NPU
  uint32_t reset = 0;                     // register that resets the system when 1 is written; 0: none
  std::array<uint32_t, 8> identity{};     // SHA-256 of sources, configuration and tools
  std::vector<InitialWrite> initialisation;
  std::optional<Leveling> leveling;
  std::string board, config, memory_name, tools;

  /// The identity as 64 hexadecimal digits.
  std::string identity_text() const;
};

/// Reads and checks it. Errors: kUnsupported when what answers is no such system or of another version.
Description read_description(Window& window, const std::string& name);

}  // namespace tessera::driver::litex
