// SPDX-License-Identifier: Apache-2.0
// One call is one cycle: first what the memory offers, then the slot of the data bus, then the transfers.
#include "sim/memory/dram_model.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"

namespace tessera::sim {

DramModel::DramModel(const DramOptions& options, uint64_t address, uint8_t* data, uint64_t size_bytes)
    : options_(options), address_(address), data_(data), size_bytes_(size_bytes), random_(options.seed) {
  const int bytes = options.beat_bytes;
  if (bytes < 1 || bytes > 64 || (bytes & (bytes - 1)) != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "a beat of " + std::to_string(bytes) + " bytes is no power of two up to 64");
  }
  if (options.latency_cycles < 1 || options.reads_in_flight < 1 || options.writes_in_flight < 1 ||
      options.pressure_percent < 0 || options.pressure_percent > 99) {
    throw Error(ErrorCode::kInvalidArgument,
                "latency and bursts in flight are at least 1, pressure is 0 to 99 per cent");
  }
  if (options.bandwidth_bytes < 0 || options.bandwidth_bytes > bytes) {
    throw Error(ErrorCode::kInvalidArgument, "bandwidth is 1 to " + std::to_string(bytes) + " bytes a cycle, a beat");
  }
  bandwidth_ = options.bandwidth_bytes == 0 ? bytes : options.bandwidth_bytes;
  if (options.spec) controller_.emplace(*options.spec, address, bytes);
}

uint8_t* DramModel::host(uint64_t address) const {
  const uint64_t offset = address - address_;
  const auto bytes = static_cast<uint64_t>(options_.beat_bytes);
  return address >= address_ && size_bytes_ >= bytes && offset <= size_bytes_ - bytes ? data_ + offset : nullptr;
}

bool DramModel::fails(const std::vector<Range>& errors, uint64_t address) const {
  for (const Range& range : errors) {
    if (address <= range.last && address + static_cast<uint64_t>(options_.beat_bytes) - 1 >= range.first) return true;
  }
  return false;
}

void DramModel::reset() {
  reads_.clear();
  writes_.clear();
  responses_.clear();
  early_.clear();
  r_offered_ = false;
  b_offered_ = false;
  if (controller_) controller_->restart();
}

void DramModel::restart() {
  if (controller_ && idle()) controller_->restart();
}

/// The beat in front of the reads, as it will be offered.
void DramModel::offer_read() {
  const Burst& burst = reads_.front();
  const uint8_t* from = fails(read_errors_, burst.address) ? nullptr : host(burst.address);
  outputs_.r_error = from == nullptr;
  outputs_.r_last = burst.beats == 1;
  if (from != nullptr) {
    std::memcpy(outputs_.r_data.data(), from, static_cast<size_t>(options_.beat_bytes));
  } else {
    outputs_.r_data.fill(0);
  }
  r_offered_ = true;
}

void DramModel::write_beat(Burst& burst, const uint8_t* data, uint64_t strobe) {
  uint8_t* to = fails(write_errors_, burst.address) ? nullptr : host(burst.address);
  if (to == nullptr) {
    burst.error = true;
  } else {
    for (int n = 0; n < options_.beat_bytes; ++n) {
      if (strobe >> n & 1) to[n] = data[n];
    }
  }
  burst.address += static_cast<uint64_t>(options_.beat_bytes);
  --burst.beats;
  ++write_beats_;
}

/// The beat in front of the reads has been taken.
void DramModel::end_read() {
  Burst& burst = reads_.front();
  burst.address += static_cast<uint64_t>(options_.beat_bytes);
  ++read_beats_;
  r_offered_ = false;
  if (--burst.beats == 0) reads_.pop_front();
}

/// The response in front has been taken.
void DramModel::end_response() {
  responses_.pop_front();
  b_offered_ = false;
}

/// Beats that came before their burst was accepted go into the storage once it is.
void DramModel::write_early_beats() {
  while (!early_.empty() && !writes_.empty()) {
    Burst& burst = writes_.front();
    write_beat(burst, early_.front().data.data(), early_.front().strobe);
    early_.pop_front();
    if (burst.beats == 0) {
      responses_.push_back(burst);
      writes_.pop_front();
    }
  }
}

/// The controller says when; data move here.
const DramOutputs& DramModel::controlled_cycle(const DramInputs& inputs) {
  DramOutputs& out = outputs_;
  const DramController::Outputs ready = controller_->outputs();
  const bool aw_refused = refused();
  out.ar_ready = ready.ar_ready && !refused();
  out.aw_ready = ready.aw_ready && !aw_refused;
  // A beat may come before its burst is accepted, but not before the controller has seen it.
  out.w_ready = ready.w_ready && !(aw_refused && writes_.empty()) && !refused();
  if (!r_offered_ && ready.r_valid && !refused()) offer_read();
  if (!b_offered_) b_offered_ = ready.b_valid && !refused();
  out.r_valid = r_offered_;
  out.b_valid = b_offered_;
  out.b_error = b_offered_ && responses_.front().error;

  DramController::Inputs in;
  in.ar_valid = inputs.ar_valid && out.ar_ready;
  in.ar_address = inputs.ar_address;
  in.ar_beats = inputs.ar_beats;
  in.r_ready = inputs.r_ready && out.r_valid;
  in.aw_valid = inputs.aw_valid && !aw_refused;
  in.aw_address = inputs.aw_address;
  in.aw_beats = inputs.aw_beats;
  in.w_valid = inputs.w_valid && out.w_ready;
  in.b_ready = inputs.b_ready && out.b_valid;
  controller_->clock(in);

  if (in.b_ready) end_response();
  if (in.r_ready) end_read();
  if (in.ar_valid) reads_.push_back({inputs.ar_address, inputs.ar_beats, 0, false});
  if (in.w_valid) {
    Beat& beat = early_.emplace_back();
    std::memcpy(beat.data.data(), inputs.w_data, static_cast<size_t>(options_.beat_bytes));
    beat.strobe = inputs.w_strobe;
  }
  if (inputs.aw_valid && out.aw_ready) writes_.push_back({inputs.aw_address, inputs.aw_beats, 0, false});
  write_early_beats();
  ++now_;
  return out;
}

/// What moves in a cycle of the ideal DRAM: at most one of a read and a write.
void DramModel::offer_ideal(const DramInputs& inputs) {
  DramOutputs& out = outputs_;
  out.ar_ready = reads_.size() < static_cast<size_t>(options_.reads_in_flight) && !refused();
  out.aw_ready = writes_.size() + responses_.size() < static_cast<size_t>(options_.writes_in_flight) && !refused();

  budget_ = std::min(budget_ + bandwidth_, options_.beat_bytes + bandwidth_ - 1);
  const bool may_move = budget_ >= options_.beat_bytes;
  const bool can_write = inputs.w_valid && !writes_.empty() && may_move && !refused();
  const bool can_read = r_offered_ || (!reads_.empty() && reads_.front().ready_cycle <= now_ && may_move && !refused());
  // A beat that was offered stays; else reads and writes take turns where both want the bus.
  const bool read = can_read && (r_offered_ || !can_write || read_turn_);
  const bool write = can_write && !read;
  if (read && !r_offered_) offer_read();
  out.r_valid = read;
  out.w_ready = write;
  if (!b_offered_) b_offered_ = !responses_.empty() && responses_.front().ready_cycle <= now_ && !refused();
  out.b_valid = b_offered_;
  out.b_error = b_offered_ && responses_.front().error;
}

const DramOutputs& DramModel::cycle(const DramInputs& inputs) {
  if (controller_) return controlled_cycle(inputs);
  DramOutputs& out = outputs_;
  offer_ideal(inputs);
  if (out.b_valid && inputs.b_ready) end_response();
  if (out.w_ready) {
    Burst& burst = writes_.front();
    write_beat(burst, inputs.w_data, inputs.w_strobe);
    budget_ -= options_.beat_bytes;
    read_turn_ = true;
    if (burst.beats == 0) {
      responses_.push_back({burst.address, 0, now_ + static_cast<uint64_t>(options_.latency_cycles), burst.error});
      writes_.pop_front();
    }
  }
  if (out.r_valid && inputs.r_ready) {
    budget_ -= options_.beat_bytes;
    read_turn_ = false;
    end_read();
  }
  const uint64_t ready = now_ + static_cast<uint64_t>(options_.latency_cycles);
  if (inputs.ar_valid && out.ar_ready) reads_.push_back({inputs.ar_address, inputs.ar_beats, ready, false});
  if (inputs.aw_valid && out.aw_ready) writes_.push_back({inputs.aw_address, inputs.aw_beats, ready, false});
  ++now_;
  return out;
}

}  // namespace tessera::sim
