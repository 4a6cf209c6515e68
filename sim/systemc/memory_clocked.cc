// SPDX-License-Identifier: Apache-2.0
// The memory with the controller of a DRAM: its bus is followed cycle by cycle, as its turns depend on rows and banks.
#include <algorithm>

#include "isa/generated/timing.h"
#include "sim/systemc/interconnect.h"
#include "sim/systemc/memory.h"
#include "sim/systemc/memory_figures.h"

namespace tessera::sim::systemc {

namespace {

constexpr Cycle kAskedCycles = 4;

}  // namespace

bool Memory::busy() const {
  return (dram_ && !dram_->quiet()) || !reads_.empty() || !writes_.empty() || !unanswered_.empty() ||
         beats_waiting_ > 0;
}

Cycle Memory::first_offer() const {
  Cycle first = kNever;
  for (const Burst* offer : offers_) {
    if (offer != nullptr) first = std::min(first, offer->offered);
  }
  return first;
}

/// The cycles before `now`. Where nothing is under way, those up to the next burst or refresh pass at once.
void Memory::follow(Cycle now) {
  while (clocked_ < now) {
    if (!busy()) {
      const Cycle until = std::min(now, first_offer());
      const Cycle idle = until > clocked_ ? std::min(until - clocked_, Cycle{dram_->quiet_cycles()}) : 0;
      if (idle > 0) {
        dram_->skip(idle);
        clocked_ += idle;
        continue;
      }
    }
    clock_bus(clocked_++);
  }
  if (busy()) {
    wake_at(now + 1);
    return;
  }
  rest();
  if (const Cycle first = first_offer(); first != kNever) {
    wake_at(std::max(now, first) + 1);
  }
}

/// Whether the owner of the oldest beat that waits takes it.
bool Memory::takes_beat(Cycle cycle) {
  if (beats_waiting_ == 0) return false;
  Burst& burst = *reads_.front();
  const auto [first, port, moves, turns, ahead] = burst.side->ready(burst);
  if (beats_taken_ == 0) {
    if (first == kNever || cycle < first + isa::timing::bus::kSeen) return false;
    read_.through = port;
    read_.moves = moves;
    read_credit_ = std::max(read_credit_, 0.0);
  }
  const double cycles = cycles_per_beat(read_, PortShares::kLoad);
  read_credit_ = std::min(1.0, read_credit_ + inverse(cycles));
  if (read_credit_ >= 1 - kSmall) {
    if (port == Port::kInpB) asked_ += moves;
    return true;
  }
  burst.blocked += 1;
  if (port == Port::kInpB) asked_ += moves;
  return false;
}

/// Whether STORE has a beat on the bus.
bool Memory::gives_beat(Cycle cycle) {
  if (writes_.empty()) return false;
  Burst& burst = *writes_.front();
  const auto [first, port, moves, turns, ahead] = burst.side->ready(burst);
  if (first == kNever || (beats_given_ == 0 && cycle < first)) return false;
  write_.through = port;
  write_.moves = moves;
  groups_ahead_ = std::min(groups_ahead_ + inverse(cycles_per_beat(write_, PortShares::kStore)), kReadAhead);
  if (groups_ahead_ < 1 - kSmall) burst.blocked += 1;
  return groups_ahead_ >= 1 - kSmall && cycle >= burst.granted + isa::timing::bus::kWriteData;
}

/// The arbiters' grants of a cycle, where the register behind them is free.
void Memory::grant_cycle(Cycle cycle, bool read_free, bool write_free) {
  const auto offered = [&](const Burst* offer) { return offer != nullptr && offer->offered <= cycle; };
  const auto granted = [&](int id, Ring<Burst*>& to, Ring<Cycle>& slots, Burst*& on_bus) {
    Burst& burst = *offers_[static_cast<size_t>(id)];
    offers_[static_cast<size_t>(id)] = nullptr;
    burst.granted = cycle;
    slots.pop_front();
    to.push_back(&burst);
    on_bus = &burst;
    respond(id, burst, tlm::END_REQ, cycle);
  };
  const auto free = [&](const Ring<Cycle>& slots) { return !slots.empty() && slots.front() <= cycle; };
  if (read_free && free(read_slots_)) {
    if (offered(offers_[0])) {
      granted(0, reads_, read_slots_, read_on_bus_);
    } else if (offered(offers_[1]) && (!offers_[1]->grows || uncrowded() <= cycle)) {
      granted(1, reads_, read_slots_, read_on_bus_);
    }
  }
  if (write_free && free(write_slots_) && offered(offers_[2])) granted(2, writes_, write_slots_, write_on_bus_);
}

/// What LOAD has asked of INP's second port in the last cycles is what it asks in the next.
void Memory::share_inp() {
  const double share = std::min(1.0, asked_ / kAskedCycles);
  asked_ = 0;
  if (share == context_.ports.get(Port::kInpB, PortShares::kLoad)) return;
  context_.ports.set(Port::kInpB, PortShares::kLoad, share);
  if (context_.alu_reads_inp && load_share_changed) load_share_changed();
}

void Memory::beat_taken(Cycle cycle) {
  Burst& burst = *reads_.front();
  read_credit_ -= 1;
  if (beats_taken_++ == 0) {
    burst.first = cycle - isa::timing::bus::kSeen;
    burst.side->begun(burst, burst.first, beat_cycles_);
  }
  if (beats_taken_ < burst.beats) return;
  beats_taken_ = 0;
  reads_.pop_front();
  burst.boundary = cycle;
  const Cycle since = std::max(last_read_, burst.first + isa::timing::bus::kSeen - 1);  // without the memory's latency
  beat_cycles_ = std::max(1.0, static_cast<double>(cycle - since) / burst.beats);
  last_read_ = cycle;
  answer_read(burst, cycle);
}

void Memory::beat_given(Cycle cycle) {
  Burst& burst = *writes_.front();
  groups_ahead_ -= 1;
  if (beats_given_++ == 0) burst.first = cycle;
  if (beats_given_ < burst.beats) return;
  beats_given_ = 0;
  writes_.pop_front();
  if (burst.run_last) groups_ahead_ = 0;
  burst.boundary = cycle + 1;
  unanswered_.push_back(&burst);
  burst.side->gone(burst);
}

DramController::Outputs Memory::bus_outputs() const {
  return dram_ ? dram_->outputs() : context_.interconnect->outputs(context_.core);
}

void Memory::drive_bus(const DramController::Inputs& in) {
  if (dram_) {
    dram_->clock(in);
  } else {
    context_.interconnect->drive(context_.core, in);
  }
}

void Memory::drain() { drive_bus({.r_ready = true, .b_ready = true}); }

void Memory::clock_bus(Cycle cycle) {
  const DramController::Outputs out = bus_outputs();
  DramController::Inputs in;
  const auto width = static_cast<uint64_t>(context_.config.axi_bytes);
  if (read_on_bus_ != nullptr) {
    in.ar_valid = true;
    in.ar_address = read_on_bus_->address & ~(width - 1);
    in.ar_beats = static_cast<int>(read_on_bus_->beats);
  }
  if (write_on_bus_ != nullptr) {
    in.aw_valid = true;
    in.aw_address = write_on_bus_->address & ~(width - 1);
    in.aw_beats = static_cast<int>(write_on_bus_->beats);
  }
  in.r_ready = beats_waiting_ < kBuffered;
  in.w_valid = gives_beat(cycle);
  in.b_ready = true;
  const bool takes = takes_beat(cycle);
  const bool answered = out.b_valid && !unanswered_.empty();
  drive_bus(in);
  if (cycle % kAskedCycles == 0) share_inp();

  if (in.ar_valid && out.ar_ready) read_on_bus_ = nullptr;
  if (in.aw_valid && out.aw_ready) write_on_bus_ = nullptr;
  grant_cycle(cycle, read_on_bus_ == nullptr, write_on_bus_ == nullptr);
  beats_waiting_ += out.r_valid && in.r_ready ? 1 : 0;
  if (takes) {
    --beats_waiting_;
    beat_taken(cycle);
  }
  if (in.w_valid && out.w_ready) beat_given(cycle);
  if (answered) {
    Burst& burst = *unanswered_.front();
    unanswered_.pop_front();
    burst.response = cycle;
    write_slots_.push_back(cycle + 1);
    burst.payload->set_response_status(refused(burst) ? tlm::TLM_ADDRESS_ERROR_RESPONSE : tlm::TLM_OK_RESPONSE);
    respond(2, burst, tlm::BEGIN_RESP, cycle);
  }
}

}  // namespace tessera::sim::systemc
