// SPDX-License-Identifier: Apache-2.0
// One frame at a time. An answer that is not whole is read again; if that does not help, the bridge is brought back in
// step and the frame is sent again under its number, which the window carries out only once.
#include "driver/litex/window.h"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "base/error.h"

namespace tessera::driver::litex {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr uint32_t kWrite = 1, kRead = 2, kChecksum = 3;
constexpr uint32_t kDone = 0x80000001, kBusError = 0x80000002;
constexpr size_t kHeader = 4;
constexpr size_t kChecked = 8192;  // words of one checksum: the bridge waits as long as the system makes it
constexpr int kAttempts = 40;
constexpr double kFirstPatience = 0.4;    // seconds, before anything is known of the link
constexpr double kLeastPatience = 0.004;  // beside eight times what such a frame has taken
constexpr double kMostPatience = 4.0;
constexpr auto kResetTime = 20ms;

constexpr std::array<uint32_t, 256> kTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t n = 0; n < 256; ++n) {
    uint32_t value = n;
    for (int bit = 0; bit < 8; ++bit) value = (value & 1) != 0 ? value >> 1 ^ 0xEDB88320 : value >> 1;
    table[n] = value;
  }
  return table;
}();

}  // namespace

uint32_t crc32(std::span<const uint32_t> words, uint32_t crc) {
  crc = ~crc;
  for (const uint32_t word : words) {
    for (const int shift : {0, 8, 16, 24}) crc = crc >> 8 ^ kTable[(crc ^ word >> shift) & 0xFF];
  }
  return ~crc;
}

Window::Window(std::unique_ptr<Bridge> bridge, std::string name) : bridge_(std::move(bridge)), name_(std::move(name)) {
  try {
    number_ = last_number(kAttempts / 4);
  } catch (const LinkFailure& failure) {
    give_up(failure.what +
            "; is the bitstream loaded, is this the port of the board, and does no other program use it?");
  }
}

void Window::give_up(const std::string& why) { throw Error(ErrorCode::kIo, "device litex: '" + name_ + "': " + why); }

/// The number of the last frame, read twice alike because a read has no checksum. Throws LinkFailure.
uint32_t Window::last_number(int tries) {
  std::string why;
  for (int n = 0; n < tries; ++n) {
    try {
      bridge_->recover(patience(2048));
      std::array<std::array<uint32_t, 2>, 2> registers{};
      for (auto& one : registers) bridge_->read(kWindowRegisters, one, patience(64));
      if (registers[0] == registers[1] && registers[0][0] == kWindowMagic) return registers[0][1];
      why = "what answers is no system of hw/litex";
    } catch (const LinkFailure& failure) {
      why = failure.what;
      impatience_ = std::min(impatience_ * 1.5, 64.0);
      std::this_thread::sleep_for(n * 10ms);
    }
  }
  throw LinkFailure{why};
}

Seconds Window::patience(size_t bytes) const {
  if (for_a_byte_ == 0) return Seconds(kFirstPatience);
  const double expected = for_a_byte_ * static_cast<double>(bytes + 256);
  return Seconds(std::min(kMostPatience, impatience_ * (kLeastPatience + 8 * expected)));
}

std::vector<uint32_t> Window::text_of(uint32_t operation, uint32_t address, size_t count,
                                      std::span<const uint32_t> out) {
  std::vector<uint32_t> text = {number_ + 1, operation, address, static_cast<uint32_t>(count)};
  text.insert(text.end(), out.begin(), out.end());
  text.push_back(crc32(text));
  return text;
}

/// Whether the buffer holds the whole answer to the present frame. Throws LinkFailure.
bool Window::answer(std::span<uint32_t> in, Seconds patience) {
  std::vector<uint32_t> words(kHeader + in.size());
  bridge_->read(kWindow, words, patience);
  const std::array<uint32_t, 2> head = {words[0], words[1]};
  const std::span<const uint32_t> data = std::span(words).subspan(kHeader);
  if (words[0] != number_ + 1 || words[2] != crc32(head, crc32(data))) return false;
  if (words[1] == kBusError) give_up("the bus of the system answered with an error");
  if (words[1] != kDone) return false;
  std::copy(data.begin(), data.end(), in.begin());
  return true;
}

/// `bytes`: those that cross the link or the bus.
bool Window::attempt(std::span<const uint32_t> text, std::span<uint32_t> in, size_t bytes) {
  const auto begin = Clock::now();
  bridge_->write(kWindow, text);
  const uint32_t commit = 1;
  bridge_->write(kWindowRegisters, std::span(&commit, 1));
  if (answer(in, patience(bytes))) {
    const double took = Seconds(Clock::now() - begin).count() / static_cast<double>(bytes + 256);
    for_a_byte_ = for_a_byte_ == 0 ? took : 0.9 * for_a_byte_ + 0.1 * took;
    impatience_ = 1;
    return true;
  }
  return answer(in, patience(bytes));  // perhaps only the answer was broken
}

void Window::frame(uint32_t operation, uint32_t address, size_t count, std::span<const uint32_t> out,
                   std::span<uint32_t> in) {
  const std::vector<uint32_t> text = text_of(operation, address, count, out);
  std::string why;
  for (int n = 0; n < kAttempts; ++n) {
    if (n > 0) {
      ++repeated_;
      impatience_ = std::min(impatience_ * 1.5, 64.0);
      if (n > 8) std::this_thread::sleep_for(n * 5ms);
    }
    try {
      if (n > 0) bridge_->recover(patience(2048));
      if (attempt(text, in, text.size() * 4 + count * 4)) {
        ++number_;
        return;
      }
      why = "frames do not arrive whole";
      if (n % 8 != 2) continue;
      if (const uint32_t last = last_number(kAttempts / 8); last != number_ && last != number_ + 1) {
        give_up("the board was reset, or another program uses it, since the device was opened; open it again");
      }
    } catch (const LinkFailure& failure) {
      why = failure.what;
    }
  }
  give_up(why + ", after " + std::to_string(kAttempts) + " attempts; check the cable or the simulated system");
}

void Window::write(uint32_t address, std::span<const uint32_t> words) {
  for (size_t at = 0; at < words.size(); at += kMostWords) {
    const std::span<const uint32_t> part = words.subspan(at, std::min(kMostWords, words.size() - at));
    frame(kWrite, address + static_cast<uint32_t>(4 * at), part.size(), part, {});
  }
}

void Window::read(uint32_t address, std::span<uint32_t> words) {
  for (size_t at = 0; at < words.size(); at += kMostWords) {
    const std::span<uint32_t> part = words.subspan(at, std::min(kMostWords, words.size() - at));
    frame(kRead, address + static_cast<uint32_t>(4 * at), part.size(), {}, part);
  }
}

uint32_t Window::read(uint32_t address) {
  uint32_t word = 0;
  read(address, std::span(&word, 1));
  return word;
}

bool Window::holds(uint32_t address, std::span<const uint32_t> words) {
  for (size_t at = 0; at < words.size(); at += kChecked) {
    const std::span<const uint32_t> part = words.subspan(at, std::min(kChecked, words.size() - at));
    uint32_t found = 0;
    frame(kChecksum, address + static_cast<uint32_t>(4 * at), part.size(), {}, std::span(&found, 1));
    if (found != crc32(part)) return false;
  }
  return true;
}

void Window::reset(uint32_t address, uint32_t word) {
  for (int n = 0; n < kAttempts / 8; ++n) {
    try {
      const std::vector<uint32_t> text = text_of(kWrite, address, 1, std::span(&word, 1));
      bridge_->write(kWindow, text);
      const uint32_t commit = 1;
      bridge_->write(kWindowRegisters, std::span(&commit, 1));
      std::this_thread::sleep_for(kResetTime);
      number_ = last_number(kAttempts / 4);
      if (number_ == 0) return;
    } catch (const LinkFailure&) {  // the link may go down with the system
    }
  }
  give_up("the system does not take a reset");
}

}  // namespace tessera::driver::litex
