// SPDX-License-Identifier: Apache-2.0
// The interconnect of a chip and the DRAM behind it, one cycle at a time and without data (isa/timing.md, "The
// interconnect"; hw/rtl/tsr_share_read.sv, tsr_share_write.sv). Enters: what each core's bus drives in a cycle. Leaves:
// what the interconnect answers in the same cycle, which depends on state only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "isa/config.h"
#include "isa/generated/timing.h"
#include "sim/memory/dram_controller.h"
#include "sim/memory/dram_model.h"
#include "sim/systemc/ring.h"
#include "sim/systemc/types.h"

namespace tessera::sim::systemc {

/// The DRAM of a chip: the rule of sim/memory/dram_model.h without data, for a master that always takes answers.
class SharedDram {
 public:
  using Outputs = DramController::Outputs;
  SharedDram(const DramOptions& options, uint64_t address);

  /// One cycle: the answers to `in`, which move what they allow.
  Outputs cycle(const DramController::Inputs& in);
  bool quiet() const;
  uint64_t quiet_cycles() const { return controller_ ? controller_->quiet_cycles() : UINT64_MAX; }
  void skip(uint64_t cycles);
  DramController::Counters counters() const {
    return controller_ ? controller_->counters() : DramController::Counters{};
  }

 private:
  struct Burst {
    Cycle ready = 0;
    int beats = 0;
  };
  DramOptions options_;
  std::optional<DramController> controller_;
  Ring<Burst> reads_, writes_;
  Ring<Cycle> responses_;
  bool read_turn_ = true;
  int bandwidth_ = 0, budget_ = 0;
  Cycle now_ = 0;
};

class Interconnect {
 public:
  using Inputs = DramController::Inputs;
  using Outputs = DramController::Outputs;

  Interconnect(const isa::MachineConfig& config, const DramOptions& options, uint64_t memory_address);

  Outputs outputs(size_t core) const;
  /// What a core drives in this cycle; until it drives something else it takes answers and offers nothing.
  void drive(size_t core, const Inputs& in) { cores_[core].in = in; }
  /// Ends the cycle.
  void clock();

  /// Whether nothing of a core is under way.
  bool quiet(size_t core) const;
  /// Whether nothing is under way; then up to quiet_cycles() cycles may be skipped.
  bool quiet() const;
  uint64_t quiet_cycles() const { return dram_.quiet_cycles(); }
  void skip(uint64_t cycles) { dram_.skip(cycles); }
  DramController::Counters dram_counters() const { return dram_.counters(); }
  /// Cycles so far in which the shared bus moved a beat, and in which a burst of a core waited for its turn: the
  /// registers `moved` and `waited` of isa/registers.toml, but for what is counted before the cores' first request.
  uint64_t moved() const { return moved_; }
  uint64_t waited(size_t core) const { return cores_[core].waited; }

 private:
  struct Request {
    uint64_t address = 0;
    uint32_t words = 0;  // beats of the shared bus
  };
  /// A burst as the core has it: the place of its first beat in its word, and its beats.
  struct Shape {
    uint32_t from = 0, beats = 0;
  };
  /// A block RAM of words with an output register.
  struct Words {
    uint32_t stored = 0;
    bool out = false;
    void clock(bool push, bool pop) {
      const bool fetch = stored > 0 && (!out || pop);
      stored += (push ? 1 : 0) - (fetch ? 1 : 0);
      out = fetch || (out && !pop);
    }
  };
  struct Core {
    Inputs in;
    Ring<Request> reads, writes;  // not granted
    Ring<Shape> read_shapes;      // whose beats the core has not all taken
    Ring<Shape> write_shapes;     // whose beats have not all come
    Words read_words, write_words;
    uint32_t read_room = isa::timing::interconnect::kWords;
    uint32_t write_used = 0;
    uint32_t read_beat = 0, write_beat = 0;
    uint32_t whole = 0;  // writes that have come and are not granted
    uint32_t responses = 0;
    uint64_t waited = 0;
    bool refused = false;  // a read of it, in this cycle
    bool reads_wait() const { return !reads.empty() && read_room >= reads.front().words; }
  };
  /// A burst that memory answers.
  struct Owner {
    size_t core = 0;
    uint32_t beats = 0;
  };
  /// An address on the shared bus.
  struct Address {
    bool valid = false;
    Request request;
  };

  static constexpr size_t kNobody = SIZE_MAX;
  /// Whose turn it is behind the one that had the last.
  template <typename Wants>
  size_t turn(size_t last, const Wants& wants) const {
    for (size_t k = 1; k <= cores_.size(); ++k) {
      const size_t core = (last + k) % cores_.size();
      if (wants(cores_[core])) return core;
    }
    return kNobody;
  }
  Request request(uint64_t address, int beats) const;
  Shape shape(uint64_t address, int beats) const;
  void clock_reads(const Outputs& memory);
  void clock_writes(const Outputs& memory);

  uint32_t width_, ratio_;  // of a core's beat in bytes; beats of a word
  SharedDram dram_;
  std::vector<Core> cores_;
  Address read_address_, write_address_;
  Ring<Owner> read_owners_, write_owners_;
  size_t last_reader_, last_writer_;  // that had a turn
  size_t sender_ = kNobody;           // whose write is on its way
  uint32_t sends_ = 0;                // words of it that have not left
  bool write_valid_ = false;          // a word on the shared bus
  uint64_t moved_ = 0;
};

}  // namespace tessera::sim::systemc
