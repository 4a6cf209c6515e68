// SPDX-License-Identifier: Apache-2.0
// DRAM behind an AXI4 port, one cycle at a time; the one model of memory time that the SystemC model and the Verilated
// RTL share. Enters: what the machine drives in a cycle. Leaves: what the memory answers in the same cycle.
//
// With a `spec` the cycles are those of a real DRAM and its controller (dram_controller.h). A write is in the storage
// as soon as its beat and its burst are accepted.
//
// Rules without one, the ideal DRAM. One beat of beat_bytes, read or write, moves in a cycle; where both could, they
// alternate. With a bandwidth b below beat_bytes, a budget grows by b a cycle up to beat_bytes + b - 1, a beat is
// offered (a write taken) only when the budget holds beat_bytes, and takes them when it moves: n beats in a row take n
// * beat_bytes / b cycles, rounded up, and idle cycles are not saved for later. A read burst that is accepted in cycle
// c has its first beat in cycle c + latency or later; beats come in the order of the bursts. The response of a write
// burst comes latency cycles after its last beat or later. A write is visible to every beat that is read in a later
// cycle. What has been offered (r, b) stays until it is taken. With pressure_percent, each new offer and each readiness
// is refused with that probability, from `seed`. Outside the storage, and in the ranges of fail_reads() and
// fail_writes(), the answer is an error: reads give zeros, writes change nothing.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <vector>

#include "isa/dram.h"
#include "sim/memory/dram_controller.h"

namespace tessera::sim {

struct DramOptions {
  int beat_bytes = 8;  // a power of two, at most 64
  int latency_cycles = 100;
  int bandwidth_bytes = 0;   // a cycle, reads and writes together, 1 to beat_bytes; 0 is beat_bytes
  int reads_in_flight = 64;  // bursts the memory accepts before it answers
  int writes_in_flight = 64;
  int pressure_percent = 0;
  uint64_t seed = 0;
  std::optional<isa::DramSpec> spec = std::nullopt;  // a real DRAM; latency, bandwidth and bursts are then its own
};

/// What the machine drives in one cycle. Addresses of bursts are multiples of beat_bytes.
struct DramInputs {
  bool ar_valid = false;
  uint64_t ar_address = 0;
  int ar_beats = 1;
  bool r_ready = false;
  bool aw_valid = false;
  uint64_t aw_address = 0;
  int aw_beats = 1;
  bool w_valid = false;
  const uint8_t* w_data = nullptr;  // beat_bytes, with w_valid
  uint64_t w_strobe = 0;            // bit k: byte k is written
  bool b_ready = false;
};

/// What the memory drives in the same cycle.
struct DramOutputs {
  bool ar_ready = false;
  bool r_valid = false;
  bool r_error = false;
  bool r_last = false;
  std::array<uint8_t, 64> r_data{};
  bool aw_ready = false;
  bool w_ready = false;
  bool b_valid = false;
  bool b_error = false;
};

class DramModel {
 public:
  /// Device addresses [address, address + size_bytes) are data[0, size_bytes), which stays the caller's.
  /// Errors: kInvalidArgument for options out of range.
  DramModel(const DramOptions& options, uint64_t address, uint8_t* data, uint64_t size_bytes);

  /// One cycle: answers and moves everything that is both offered and taken.
  const DramOutputs& cycle(const DramInputs& inputs);

  /// Forgets the bursts in flight, as a reset of the bus does; storage keeps what has been written.
  void reset();

  /// A program begins: a real DRAM has all rows closed and a whole refresh interval before it, so that cycles do not
  /// depend on earlier programs.
  void restart();

  /// Reads (writes) that touch [first, last] are answered with an error.
  void fail_reads(uint64_t first, uint64_t last) { read_errors_.push_back({first, last}); }
  void fail_writes(uint64_t first, uint64_t last) { write_errors_.push_back({first, last}); }

  uint64_t now() const { return now_; }
  uint64_t read_beats() const { return read_beats_; }
  uint64_t write_beats() const { return write_beats_; }
  bool idle() const { return reads_.empty() && writes_.empty() && responses_.empty(); }
  /// Of a real DRAM: where its cycles went.
  const DramController::Counters* counters() const { return controller_ ? &controller_->counters() : nullptr; }

 private:
  struct Range {
    uint64_t first;
    uint64_t last;
  };
  struct Burst {
    uint64_t address;
    int beats;
    uint64_t ready_cycle;
    bool error;
  };
  bool refused() {
    return options_.pressure_percent > 0 && static_cast<int>(random_() % 100) < options_.pressure_percent;
  }
  const DramOutputs& controlled_cycle(const DramInputs& inputs);
  void offer_ideal(const DramInputs& inputs);
  void offer_read();
  void end_read();
  void end_response();
  void write_early_beats();
  void write_beat(Burst& burst, const uint8_t* data, uint64_t strobe);
  bool fails(const std::vector<Range>& errors, uint64_t address) const;
  uint8_t* host(uint64_t address) const;

  DramOptions options_;
  uint64_t address_;
  uint8_t* data_;
  uint64_t size_bytes_;
  std::mt19937_64 random_;
  std::vector<Range> read_errors_;
  std::vector<Range> write_errors_;
  std::deque<Burst> reads_;
  std::deque<Burst> writes_;     // bursts whose data have not all come
  std::deque<Burst> responses_;  // finished writes
  struct Beat {
    std::array<uint8_t, 64> data;
    uint64_t strobe;
  };
  std::optional<DramController> controller_;
  std::deque<Beat> early_;  // beats whose bursts the controller has not accepted
  DramOutputs outputs_;
  bool r_offered_ = false;
  bool b_offered_ = false;
  bool read_turn_ = true;
  int bandwidth_ = 0;  // bytes a cycle
  int budget_ = 0;     // bytes that may move now
  uint64_t now_ = 0;
  uint64_t read_beats_ = 0;
  uint64_t write_beats_ = 0;
};

}  // namespace tessera::sim
