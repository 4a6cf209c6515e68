// SPDX-License-Identifier: Apache-2.0
// What a timed machine can tell about a run, in one format for the SystemC model and the RTL: when each instruction was
// queued, taken, busy and retired, what it waited for, and every burst on the memory bus. Cycles count from the start
// of the run (the cycle in which ap_start is seen is 0), as RunReport::cycles does.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "isa/config.h"
#include "isa/generated/instructions.h"

namespace tessera::sim {

/// One instruction of an engine, in the order of completion.
struct InstructionTrace {
  uint32_t pc = 0;
  isa::Unit unit = isa::Unit::kFetch;
  uint64_t queued_cycle = 0;   // FETCH put it into the queue
  uint64_t issued_cycle = 0;   // the engine took it from the queue
  uint64_t first_cycle = 0;    // first busy cycle (first tile, vector, beat); issued_cycle when it has none
  uint64_t last_cycle = 0;     // last busy cycle
  uint64_t retired_cycle = 0;  // completed: its writes are visible, its signal counts
  std::array<uint64_t, isa::kEngines> wait_cycles{};  // at the queue's head, by the engine waited for
  uint64_t stall_memory_cycles = 0;                   // while the oldest inside its engine
  uint64_t stall_port_cycles = 0;
};

/// One burst on the bus, in the order in which addresses were accepted.
struct BurstTrace {
  isa::Unit unit = isa::Unit::kFetch;  // FETCH, LOAD or STORE
  bool write = false;
  uint64_t address = 0;
  uint32_t bytes = 0;
  uint64_t address_cycle = 0;  // the address was accepted
  uint64_t first_cycle = 0;    // first beat
  uint64_t last_cycle = 0;     // last beat; of writes the response
};

struct Trace {
  std::vector<InstructionTrace> instructions;
  std::vector<BurstTrace> bursts;
};

}  // namespace tessera::sim
