// SPDX-License-Identifier: Apache-2.0
// From probes to a trace. Enters: what happens inside the machine in each cycle. Leaves: sim::Trace. Whose busy cycles
// are whose follows from order: an engine works on its instructions one after another, so that a tile belongs to the
// oldest instruction that still needs some. How many a dense GEMM or an ALU instruction needs stands in its word;
// others have what came before they completed, less the length of the engine's pipeline (isa/timing.md). STORE's beats
// follow its bursts, whose instruction is known.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>

#include "isa/config.h"
#include "isa/generated/instructions.h"
#include "sim/trace.h"
#include "sim/verilator/model_api.h"

namespace tessera::sim {

class Tracer {
 public:
  /// `program` is numbered from 0; it may end before the first word that cannot be decoded. It must outlive the tracer.
  Tracer(const isa::MachineConfig& config, std::span<const isa::Instruction> program);

  /// One cycle. `before` holds what the machine drove in it, `after` how memory answered.
  void cycle(const TesseraRtlProbe& probe, const TesseraRtlPins& before, const TesseraRtlPins& after);

  Trace take();

 private:
  struct Engine {
    std::deque<InstructionTrace> queued;
    std::deque<InstructionTrace> inside;
    std::deque<uint64_t> busy;  // cycles that no completed instruction has claimed
    uint64_t pipeline = 1;      // from the last busy cycle to completion, for instructions with unknown needs
  };
  void complete(size_t e, uint32_t pc);
  uint64_t needs(uint32_t pc) const;  // 0: unknown
  void bus(const TesseraRtlProbe& probe, const TesseraRtlPins& before, const TesseraRtlPins& after);

  uint32_t beat_bytes_;
  std::span<const isa::Instruction> program_;
  std::array<Engine, isa::kEngines> engines_;
  struct StoreBurst {
    uint32_t pc;
    int beats;
  };
  std::deque<StoreBurst> store_bursts_;  // whose beats have not all gone out of STORE
  std::deque<bool> read_owners_;         // FETCH or LOAD, of bursts not yet on the bus
  std::deque<size_t> reads_;             // in Trace::bursts
  std::deque<size_t> writes_;            // data to come
  std::deque<size_t> responses_;
  std::deque<int> read_beats_, write_beats_;  // left
  uint64_t now_ = 0;
  Trace trace_;
};

}  // namespace tessera::sim
