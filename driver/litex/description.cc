// SPDX-License-Identifier: Apache-2.0
// The words in their order, behind a magic number, a length and a CRC-32.
#include "driver/litex/description.h"

#include <cstdio>

#include "base/error.h"

namespace tessera::driver::litex {
namespace {

constexpr uint32_t kAddress = 0x91000000, kWords = 512, kMagic = 0x31584C54;

class Words {
 public:
  explicit Words(std::span<const uint32_t> words) : words_(words) {}

  uint32_t word() {
    if (words_.empty()) throw Error(ErrorCode::kUnsupported, "device litex: the system's description ends too early");
    const uint32_t first = words_.front();
    words_ = words_.subspan(1);
    return first;
  }

  std::string text() {
    std::string found;
    const uint32_t bytes = word();
    for (uint32_t n = 0; n < bytes; n += 4) {
      const uint32_t four = word();
      for (uint32_t b = 0; b < 4 && n + b < bytes; ++b) found += static_cast<char>(four >> (8 * b));
    }
    return found;
  }

 private:
  std::span<const uint32_t> words_;
};

}  // namespace

std::string Description::identity_text() const {
  std::string text;
  for (const uint32_t word : identity) {
    for (const int shift : {0, 8, 16, 24}) {
      std::array<char, 3> digits{};
      std::snprintf(digits.data(), digits.size(), "%02x", word >> shift & 0xFF);
      text += digits.data();
    }
  }
  return text;
}

Description read_description(Window& window, const std::string& name) {
  std::vector<uint32_t> all(kWords);
  window.read(kAddress, all);
  const uint32_t count = all[1];
  if (all[0] != kMagic || count < 4 || count > kWords || crc32(std::span(all).first(count).subspan(3)) != all[2]) {
    throw Error(ErrorCode::kUnsupported, "device litex: '" + name +
                                             "': the system has no description that this version reads; load a "
                                             "bitstream of this version (./dev bitstream)");
  }
  Words words{std::span(all).first(count).subspan(3)};
  Description found;
  found.clock_hz = words.word();
  found.memory = words.word();
  found.memory_bytes = words.word();
  found.machine = words.word();
  found.reset = words.word();
  for (uint32_t& word : found.identity) word = words.word();
  found.initialisation.resize(words.word() % kWords);
  for (InitialWrite& write : found.initialisation) write = {words.word(), words.word(), words.word()};
  if (words.word() != 0) {
    Leveling& leveling = found.leveling.emplace();
    for (uint32_t* word : {&leveling.lanes, &leveling.bitslips, &leveling.delays, &leveling.select,
                           &leveling.delay_reset, &leveling.delay_step, &leveling.bitslip_reset, &leveling.bitslip_step,
                           &leveling.burst_clear, &leveling.burst_seen}) {
      *word = words.word();
    }
  }
  for (std::string* text : {&found.board, &found.config, &found.memory_name, &found.tools}) *text = words.text();
  return found;
}

}  // namespace tessera::driver::litex
