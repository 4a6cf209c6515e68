// SPDX-License-Identifier: Apache-2.0
// The bus of a LiteX system through its checked window (hw/litex/checked_window.py). Enters: addresses and words.
// Leaves: what the bus did, once for each call, whatever the link does to the bytes: a frame is numbered and has a
// CRC-32, and so has its answer. What fails is sent again until it is certain what happened.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "driver/litex/bridge.h"

namespace tessera::driver::litex {

class Window {
 public:
  static constexpr size_t kMostWords = 1024 - 5;  // of one frame

  /// `name`: of the link, for errors. Finds out the number of the last frame. Errors: kIo when no window answers.
  Window(std::unique_ptr<Bridge> bridge, std::string name);

  /// Any number of words from a byte address that is a multiple of 4. Errors: kIo when the link fails for good, when
  /// the system was reset or another program uses it, or when the bus answers with an error.
  void write(uint32_t address, std::span<const uint32_t> words);
  void read(uint32_t address, std::span<uint32_t> words);
  uint32_t read(uint32_t address);
  void write(uint32_t address, uint32_t word) { write(address, std::span(&word, 1)); }

  /// Whether the system's memory holds these words. Checksums alone cross the link.
  bool holds(uint32_t address, std::span<const uint32_t> words);

  /// Writes to a register that resets the system, and waits until it answers again. Errors: as above.
  void reset(uint32_t address, uint32_t word);

  /// Frames that had to be sent again.
  uint64_t repeated() const { return repeated_; }

 private:
  void frame(uint32_t operation, uint32_t address, size_t count, std::span<const uint32_t> out, std::span<uint32_t> in);
  std::vector<uint32_t> text_of(uint32_t operation, uint32_t address, size_t count, std::span<const uint32_t> out);
  bool attempt(std::span<const uint32_t> text, std::span<uint32_t> in, size_t bytes);
  bool answer(std::span<uint32_t> in, Seconds patience);
  uint32_t last_number(int tries);
  Seconds patience(size_t bytes) const;
  [[noreturn]] void give_up(const std::string& why);

  std::unique_ptr<Bridge> bridge_;
  std::string name_;
  uint32_t number_ = 0;    // of the last frame that was carried out
  double for_a_byte_ = 0;  // seconds, as frames took them
  double impatience_ = 1;  // a factor that grows while answers fail
  uint64_t repeated_ = 0;
};

/// CRC-32 of IEEE 802.3 over words in little-endian order; `crc` continues one.
uint32_t crc32(std::span<const uint32_t> words, uint32_t crc = 0);

}  // namespace tessera::driver::litex
