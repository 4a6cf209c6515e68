// SPDX-License-Identifier: Apache-2.0
// A simulated card that processes share. Enters: connections of processes that have loaded the shim (shim.cc) in the
// place of XRT's own, with what XRT asks of a card: program it, open a compute unit, allocate, access registers,
// execute a packet. Leaves: what a card with the NPU would answer, from the Verilated RTL, to the cycle. One process
// owns the machines and the card's memory and serves all others over a socket: what a process holds ends with its
// connection, so that one that is killed leaves the card usable. Single-threaded: machines run in slices between
// requests.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace tessera::driver {

/// The memory of the simulated card, at the address of the first bank of a common data-centre card.
inline constexpr uint64_t kBoardMemoryBase = uint64_t{0x40} << 32;
inline constexpr uint64_t kBoardMemoryBytes = uint64_t{4} << 30;

struct BoardOptions {
  std::string socket_path;
  /// latency, bandwidth, pressure, seed of the card's memory, as device rtl takes them.
  std::map<std::string, std::string> memory;
  bool verbose = false;  // says on standard error who comes and goes
};

class Board {
 public:
  /// Listens from here on. Errors: kIo when the socket cannot be made, kInvalidArgument for the options.
  explicit Board(BoardOptions options);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  /// Serves until `wake_fd` is readable.
  void serve(int wake_fd);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::driver
