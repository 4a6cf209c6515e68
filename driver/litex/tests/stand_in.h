// SPDX-License-Identifier: Apache-2.0
// A system of hw/litex for tests without LiteX: the bridge (UARTBone), the checked window, a description, the machine's
// registers with the functional simulator behind them, and DRAM, as the Python sources define them, behind a TCP port
// of a thread. The link breaks bytes where a test asks for it. The real one is run by tests/litex.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "isa/config.h"

namespace tessera::driver::test {

struct StandInOptions {
  isa::MachineConfig config;
  uint64_t break_one_in = 0;  // bytes for each broken one, in both directions; 0: none
  uint64_t seed = 1;
  bool etherbone = false;      // UDP instead of UARTBone over TCP
  uint32_t stuck_address = 0;  // word of DRAM with a bit that does not change; 0: none
  bool hangs = false;          // the machine never ends
  uint32_t isa_version = 0;    // 0: the right one
  bool levels = false;         // a DDR3 that reads right at one slip and some delays of each lane
  uint32_t worst_delay = 3;    // delays from here to 5 are right; 6: none
  bool describes = true;       // whether there is a description
};

class StandIn {
 public:
  explicit StandIn(StandInOptions options);
  ~StandIn();
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  /// The device's name.
  std::string device() const;
  uint64_t broken() const { return broken_; }
  uint64_t starts() const { return starts_; }

  void reset() { wants_reset_ = true; }      // as a button of the board would
  void hang_up() { wants_hang_up_ = true; }  // the link goes down once and may be opened again
  void set_breaking(uint64_t one_in) { break_one_in_ = one_in; }

 private:
  static constexpr uint32_t kMemory = 0x40000000, kMemoryBytes = 1 << 20;

  void serve();
  void serve_datagram(std::vector<uint8_t> packet);
  void pass(uint8_t byte, std::vector<uint8_t>& to);
  void take(uint8_t byte);
  void answer(uint32_t word);
  void bridge_write(uint32_t address, uint32_t word);
  uint32_t bridge_read(uint32_t address);
  void commit();
  uint32_t bus_read(uint32_t address);
  void bus_write(uint32_t address, uint32_t word);
  void start();
  uint32_t leveled(uint32_t word) const;
  void level(uint32_t address, uint32_t word);
  void clear();
  std::vector<uint32_t> description() const;

  StandInOptions options_;
  std::atomic<uint64_t> break_one_in_, broken_ = 0, starts_ = 0;
  std::atomic<bool> stopped_ = false, wants_reset_ = false, wants_hang_up_ = false;
  std::mt19937_64 random_;
  int server_ = -1, client_ = -1;
  uint16_t port_ = 0;
  std::vector<uint8_t> out_;
  // UARTBone: bytes of the command that has begun, and where it stands.
  std::vector<uint8_t> command_;
  uint32_t address_ = 0, left_ = 0;
  std::array<uint32_t, 1024> buffer_{};
  uint32_t last_ = 0;
  std::vector<uint32_t> description_;
  std::map<uint32_t, uint32_t> registers_;
  std::vector<uint32_t> memory_;
  bool memory_started_ = false;
  struct Lane {
    uint32_t bitslip = 0, delay = 0;
  };
  std::array<Lane, 2> lanes_{};
  uint32_t selected_ = 0;
  std::thread thread_;
};

}  // namespace tessera::driver::test
