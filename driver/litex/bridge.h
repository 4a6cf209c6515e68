// SPDX-License-Identifier: Apache-2.0
// The bridges by which a host reaches the bus of a LiteX system: UARTBone over a serial line or a TCP port, and
// Etherbone over UDP. Enters: a name of the link. Leaves: reads and writes of 32-bit words, of which nothing is known
// but that they were sent: no bridge tells whether bytes arrived as they were. window.h makes sure.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tessera::driver::litex {

using Seconds = std::chrono::duration<double>;

/// What the link did not do: an answer did not come in time, or the link is gone and may come back.
struct LinkFailure {
  std::string what;
};

/// Where the window stands on the bridge's side (hw/litex/checked_window.py): a buffer and registers behind it.
inline constexpr uint32_t kWindow = 0xE0000000;
inline constexpr uint32_t kWindowRegisters = kWindow + 0x1000;
inline constexpr uint32_t kWindowMagic = 0x31574354;

class Bridge {
 public:
  virtual ~Bridge() = default;
  /// Byte addresses are multiples of 4. Throws LinkFailure.
  virtual void write(uint32_t address, std::span<const uint32_t> words) = 0;
  virtual void read(uint32_t address, std::span<uint32_t> words, Seconds patience) = 0;
  /// Brings both ends back in step after a failure, and opens the link again where it was closed. Throws LinkFailure.
  virtual void recover(Seconds patience) = 0;

 protected:
  Bridge() = default;
  Bridge(const Bridge&) = delete;
  Bridge& operator=(const Bridge&) = delete;
};

/// HOST:PORT (UARTBone over TCP), udp:HOST:PORT (Etherbone), or the path of a serial line, which runs at `baud`.
/// Errors: kInvalidArgument for a name that is none of these, kIo when the link cannot be opened.
std::unique_ptr<Bridge> open_bridge(const std::string& name, unsigned baud);

}  // namespace tessera::driver::litex
