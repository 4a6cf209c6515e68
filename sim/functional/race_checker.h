// SPDX-License-Identifier: Apache-2.0
// Finds accesses that no chain of signals orders. Enters: instructions in the order the simulator runs them. Leaves:
// pairs of accesses to the same bytes, one of them a write, that a machine with real concurrency could perform in
// either order. The verdict depends on waits and signals only, not on the order seen here, so that one run finds every
// missing wait between the last accesses to a byte. It is the oracle of the compiler's synchronisation: what an
// instruction touches it knows from its own footprint and not from isa/effects.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "isa/config.h"
#include "isa/generated/instructions.h"
#include "sim/functional/footprint.h"

namespace tessera::sim {

/// Two unordered accesses and the bytes they share.
struct Race {
  struct Access {
    uint32_t pc = 0;
    isa::Unit unit = isa::Unit::kFetch;
    bool write = false;
    bool operator==(const Access&) const = default;
  };
  Access first;  // run first here
  Access second;
  bool dram = false;
  isa::Space space = isa::Space::kInp;  // when not in DRAM
  uint64_t begin = 0;  // bytes [begin, end) of the scratchpad, or device addresses; the hull when they are several runs
  uint64_t end = 0;
  bool operator==(const Race&) const = default;
};

class RaceChecker {
 public:
  /// `program`: device addresses of the program's bytes, empty when it is not in DRAM.
  RaceChecker(const isa::MachineConfig& config, const std::array<uint64_t, 16>& bases, Interval program,
              size_t max_races);

  /// One instruction of an engine's queue runs. `timeline`: signals of each engine so far, modulo 65536, at its start.
  /// The instruction has been checked for operands and ranges.
  void instruction(uint32_t pc, const isa::Instruction& instruction,
                   const std::array<uint16_t, isa::kEngines>& timeline);

  std::vector<Race> take() { return std::move(races_); }

 private:
  /// Entry e: how many instructions of engine e are known to have completed.
  using Clock = std::array<uint32_t, isa::kEngines>;

  /// The last accesses to some bytes. Instructions are numbered from 1 on each engine; 0: none.
  struct Last {
    uint8_t writer = 0;  // engine
    uint32_t write = 0;
    std::array<uint32_t, isa::kEngines> read{};
    bool operator==(const Last&) const = default;
  };
  struct Cell {
    uint64_t end;
    Last last;
  };
  using Shadow = std::map<uint64_t, Cell>;  // by first byte; disjoint

  void acquire(Clock& clock, const isa::Wait& wait, const std::array<uint16_t, isa::kEngines>& timeline);
  void touch(Shadow& shadow, const Touched& touched, size_t engine, uint32_t pc);
  void check_cell(const Last& last, Interval bytes, const Touched& touched, size_t engine, uint32_t pc);
  void check_program(const Touched& touched, size_t engine, uint32_t pc);
  void report(const Race& race);
  static void split(Shadow& shadow, uint64_t at);

  const isa::MachineConfig& config_;
  const std::array<uint64_t, 16>& bases_;
  Interval program_;
  size_t max_races_;
  std::array<Clock, isa::kEngines> clock_{};
  std::array<uint32_t, isa::kEngines> count_{};
  std::array<std::vector<uint32_t>, isa::kEngines> pc_of_;  // by number - 1
  // Clocks at the signals of each engine that a 16-bit condition can still name; `dropped_` older ones are gone.
  std::array<std::deque<Clock>, isa::kEngines> released_;
  std::array<uint64_t, isa::kEngines> dropped_{};
  std::array<Shadow, isa::kSpaces + 1> shadow_;  // the last: DRAM
  std::vector<Race> races_;
  size_t instruction_races_ = 0;  // index of the first race of the running instruction
};

}  // namespace tessera::sim
