// SPDX-License-Identifier: Apache-2.0
// Frames at the pins of ethernet_system. Arguments: the system clock's period in picoseconds (Ethernet's is 8,000).
// Standard input, a command a line, and after each of them what the system sent meanwhile:
//
//   send GAP STILL HEX...   frames, with all that is on the wire from the preamble on, GAP idle bytes behind each, and
//                           on until the system has sent nothing for STILL bytes
//
// Standard output: "frame HEX" for each frame from the preamble to its last byte; "cut HEX" where bytes of a frame did
// not follow each other; then "still CRC PREAMBLE", the counts of errors.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "Vethernet_system.h"
#include "verilated.h"

namespace {

constexpr uint64_t kEthernetPeriod = 8000;  // ps

class Bench {
 public:
  explicit Bench(uint64_t period) : period_(period), system_next_(period / 3) {
    top_.rst = 1;
    run(200);
    top_.rst = 0;
    run(200);
    sent_.clear();
  }

  void send(const std::vector<uint8_t>& frame, int gap) {
    for (size_t n = 0; n < frame.size(); ++n) {
      top_.rx_valid = 1;
      top_.rx_data = frame[n];
      top_.rx_last = n + 1 == frame.size();
      run(1);
    }
    top_.rx_valid = 0;
    top_.rx_last = 0;
    run(gap);
  }

  void settle(int still) {
    still_ = 0;
    while (still_ < still) run(1);
    for (const std::string& line : sent_) std::cout << line << "\n";
    sent_.clear();
    std::cout << "still " << top_.crc_errors << " " << top_.preamble_errors << std::endl;
  }

 private:
  /// So many cycles of Ethernet; inputs change behind its rising edge.
  void run(int cycles) {
    for (int n = 0; n < cycles; ++n) {
      take();
      const uint64_t rise = ethernet_next_, fall = rise + kEthernetPeriod / 2;
      ethernet_next_ += kEthernetPeriod;
      system_until(rise);
      top_.eth_clk = 1;
      top_.eval();
      system_until(fall);
      top_.eth_clk = 0;
      top_.eval();
    }
  }

  void system_until(uint64_t time) {
    while (system_next_ < time) {
      top_.sys_clk = !top_.sys_clk;
      top_.eval();
      system_next_ += period_ / 2;
    }
    top_.eval();
  }

  /// What the system sends in this cycle of Ethernet.
  void take() {
    ++still_;
    if (top_.tx_valid) {
      still_ = 0;
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(top_.tx_data));
      frame_ += digits;
    }
    if (!frame_.empty() && (!top_.tx_valid || top_.tx_last)) {
      sent_.push_back((top_.tx_valid ? "frame " : "cut ") + frame_);
      frame_.clear();
    }
  }

  Vethernet_system top_;
  uint64_t period_, system_next_, ethernet_next_ = kEthernetPeriod;
  int still_ = 0;
  std::string frame_;
  std::vector<std::string> sent_;
};

std::vector<uint8_t> bytes_of(const std::string& hex) {
  std::vector<uint8_t> bytes;
  for (size_t n = 0; n + 1 < hex.size(); n += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoul(hex.substr(n, 2), nullptr, 16)));
  }
  return bytes;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 1;
  Bench bench(std::strtoull(arguments[1], nullptr, 10));
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command, frame;
    int gap = 0, still = 0;
    words >> command >> gap >> still;
    while (words >> frame) bench.send(bytes_of(frame), gap);
    bench.settle(still);
  }
  return 0;
}
