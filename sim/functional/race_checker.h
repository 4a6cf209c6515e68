// SPDX-License-Identifier: Apache-2.0
// Finds accesses that no chain of signals orders. Enters: instructions in the order the simulator runs them. Leaves:
// pairs of accesses to the same bytes, one of them a write, that a machine with real concurrency could perform in
// either order. The verdict depends on waits and signals only, not on the order seen here, so that one run finds every
// missing wait between the last accesses to a byte. It is the oracle of the compiler's synchronisation: what an
// instruction touches it knows from its own footprint and not from isa/verify/effects.h. The cores of a chip share one
// checker: scratchpads are each core's own, DRAM is everybody's, and a publish orders what an await of it follows.
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
#include "sim/functional/public_counters.h"

namespace tessera::sim {

/// Two unordered accesses and the bytes they share.
struct Race {
  struct Access {
    uint32_t pc = 0;
    isa::Unit unit = isa::Unit::kFetch;
    bool write = false;
    uint32_t core = 0;
    bool operator==(const Access&) const = default;
  };
  Access first;  // run first here; of two cores, that of the lower one
  Access second;
  bool dram = false;
  isa::Space space = isa::Space::kInp;  // when not in DRAM
  uint64_t begin = 0;  // bytes [begin, end) of the scratchpad, or device addresses; the hull when they are several runs
  uint64_t end = 0;
  bool operator==(const Race&) const = default;
};

class RaceChecker {
 public:
  RaceChecker(const isa::MachineConfig& config, size_t max_races);

  /// Before a core's first instruction, and before that of any core. `bases` stay the caller's. `program`: device
  /// addresses of the program's bytes, empty when it is not in DRAM.
  void begin(size_t core, const std::array<uint64_t, 16>& bases, Interval program);

  /// One instruction of an engine's queue runs. `timeline`: signals of each engine of its core so far, modulo 65536, at
  /// its start; `publics` likewise of each core. The instruction has been checked for operands and ranges.
  void instruction(size_t core, uint32_t pc, const isa::Instruction& instruction,
                   const std::array<uint16_t, isa::kEngines>& timeline, const PublicCounters& publics);

  std::vector<Race> take() { return std::move(races_); }

 private:
  /// Entry kEngines * core + e: how many instructions of that core's engine e are known to have completed.
  using Clock = std::vector<uint32_t>;

  /// The clocks at the counts of a counter that a 16-bit condition can still name; `dropped` older ones are gone.
  struct Released {
    std::deque<Clock> clocks;
    uint64_t dropped = 0;
    void add(const Clock& clock);
    /// Merges that of the very count that `wanted` names, `reached` being the counter's value.
    void acquire(Clock& clock, uint16_t reached, uint16_t wanted) const;
  };

  /// The last accesses to some bytes. Instructions are numbered from 1 on each engine; 0: none. A scratchpad has the
  /// engines of its core as readers, DRAM each core's LOAD.
  template <size_t readers>
  struct Last {
    uint16_t writer = 0;  // engine, or core of the STORE
    uint32_t write = 0;
    std::array<uint32_t, readers> read{};
    bool operator==(const Last&) const = default;
  };
  template <size_t readers>
  struct Cell {
    uint64_t end;
    Last<readers> last;
  };
  template <size_t readers>
  using Shadow = std::map<uint64_t, Cell<readers>>;  // by first byte; disjoint

  struct Core {
    const std::array<uint64_t, 16>* bases = nullptr;
    Interval program;
    std::array<Clock, isa::kEngines> clock;
    std::array<uint32_t, isa::kEngines> count{};
    std::array<std::vector<uint32_t>, isa::kEngines> pc_of;  // by number - 1
    std::array<Released, isa::kEngines> signals;
    Released publishes;
    std::array<Shadow<isa::kEngines>, isa::kSpaces> shadow;
  };
  /// An instruction that runs.
  struct Runs {
    size_t core, engine;
    uint32_t pc;
  };

  template <size_t readers>
  void touch(Shadow<readers>& shadow, const Touched& touched, const Runs& runs);
  template <size_t readers>
  void check_cell(const Last<readers>& last, Interval bytes, const Touched& touched, const Runs& runs);
  void check_programs(const Touched& touched, const Runs& runs);
  void report(Race race);
  template <size_t readers>
  static void split(Shadow<readers>& shadow, uint64_t at);

  const isa::MachineConfig& config_;
  size_t max_races_;
  std::vector<Core> cores_;
  Shadow<isa::kMostCores> dram_;
  std::vector<Race> races_;
  size_t instruction_races_ = 0;  // index of the first race of the running instruction
};

}  // namespace tessera::sim
