// SPDX-License-Identifier: Apache-2.0
// Every cycle named here is a cycle of the bus; an engine sees a beat one cycle later.
#include "sim/systemc/memory.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "isa/generated/timing.h"
#include "sim/systemc/interconnect.h"
#include "sim/systemc/memory_figures.h"

namespace tessera::sim::systemc {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kLate = 0.5;  // cycles a beat by which LOAD is late, with which the bus still has turns

/// Cycles in which so many beats move at that rate.
Cycle cycles_of(double beats, double rate) {
  const double cycles = (rate == 1 ? beats : beats / rate) - kSmall;
  if (cycles <= 0) return 0;
  const auto whole = static_cast<Cycle>(cycles);
  return static_cast<double>(whole) < cycles ? whole + 1 : whole;
}

}  // namespace

Memory::Memory(sc_core::sc_module_name name, Context& context) : sc_module(name), socket("socket"), context_(context) {
  socket.register_nb_transport_fw(this, &Memory::nb_transport_fw);
  socket.register_transport_dbg(this, &Memory::transport_dbg);
}

void Memory::reset() {
  const DramOptions& timing = context_.request->timing;
  slot_ = timing.bandwidth_bytes > 0 ? static_cast<double>(context_.config.axi_bytes) / timing.bandwidth_bytes : 1;
  latency_ = static_cast<Cycle>(timing.latency_cycles);
  bus_free_ = 0;
  offers_ = {};
  reads_.clear();
  writes_.clear();
  read_ = {};
  write_ = {};
  read_slots_.assign(static_cast<size_t>(context_.config.reads_in_flight), 0);
  write_slots_.assign(static_cast<size_t>(context_.config.writes_in_flight), 0);
  next_read_grant_ = next_write_grant_ = 0;
  reads_idle_from_ = 0;
  last_response_ = 0;
  planned_ = 0;
  dram_.reset();
  if (timing.spec && context_.interconnect == nullptr) {
    dram_.emplace(*timing.spec, context_.request->memory_address, context_.config.axi_bytes);
    dram_->skip(kStarted);
  }
  clocked_ = 0;
  read_on_bus_ = write_on_bus_ = nullptr;
  beats_waiting_ = beats_taken_ = beats_given_ = 0;
  read_credit_ = beat_cycles_ = 1;
  asked_ = 0;
  groups_ahead_ = 0;
  last_read_ = 0;
  unanswered_.clear();
}

tlm::tlm_sync_enum Memory::nb_transport_fw(int id, tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                           sc_core::sc_time& delay) {
  TESSERA_INVARIANT(phase == tlm::BEGIN_REQ && offers_[static_cast<size_t>(id)] == nullptr, "one offer at a time");
  Burst& burst = burst_of(payload);
  offers_[static_cast<size_t>(id)] = &burst;
  if (!stepping_ && context_.interconnect == nullptr) wake_at(burst.offered + (dram_ ? 1 : 0));
  return tlm::TLM_ACCEPTED;
}

void Memory::respond(int id, Burst& burst, tlm::tlm_phase phase, Cycle at) {
  sc_core::sc_time delay = context_.agenda.delay(at);
  socket[id]->nb_transport_bw(*burst.payload, phase, delay);
}

bool Memory::refused(const Burst& burst) const {
  const uint64_t first = burst.address;
  const uint64_t size = uint64_t{burst.beats} * static_cast<uint64_t>(context_.config.axi_bytes);
  const TimedRequest& request = *context_.request;
  for (const Interval& failing : burst.write ? request.failing_writes : request.failing_reads) {
    if (failing.begin < first + size && first < failing.end) return true;
  }
  return find_dram(request.dram, first, size) == nullptr;
}

/// From when on less than half of the reads in flight are taken: a burst that will grow waits until then.
Cycle Memory::uncrowded() const {
  const auto free = static_cast<size_t>(context_.config.reads_in_flight + 1) / 2;
  return read_slots_.size() > free ? read_slots_[free] : kNever;
}

void Memory::grant(Cycle now) {
  for (;;) {
    const int fetch = 0, load = 1;
    if ((!offers_[fetch] && !offers_[load]) || read_slots_.empty()) break;
    const Cycle free = std::max(next_read_grant_, read_slots_.front());
    const Cycle fetch_at = offers_[fetch] ? std::max(free, offers_[fetch]->offered) : kNever;
    const Cycle load_at = !offers_[load]         ? kNever
                          : offers_[load]->grows ? std::max({free, offers_[load]->offered, uncrowded()})
                                                 : std::max(free, offers_[load]->offered);
    const int id = fetch_at <= load_at ? fetch : load;
    const Cycle at = std::min(fetch_at, load_at);
    if (at > now) {
      if (at != kNever) wake_at(at);
      break;
    }
    Burst& burst = *offers_[static_cast<size_t>(id)];
    offers_[static_cast<size_t>(id)] = nullptr;
    burst.granted = at;
    next_read_grant_ = at + 1;
    read_slots_.pop_front();
    reads_.push_back(&burst);
    respond(id, burst, tlm::END_REQ, at);
  }
  while (offers_[2] && !write_slots_.empty()) {
    Burst& burst = *offers_[2];
    const Cycle at = std::max({next_write_grant_, write_slots_.front(), burst.offered});
    if (at > now + kLookahead) {
      wake_at(at);
      break;
    }
    offers_[2] = nullptr;
    burst.granted = at;
    next_write_grant_ = at + 1;
    write_slots_.pop_front();
    writes_.push_back(&burst);
    respond(2, burst, tlm::END_REQ, at);
  }
}

/// Beats of the writes that STORE has offered, as far as its queue of groups can hold them.
double Memory::writes_waiting() const {
  double beats = write_.active ? write_.left : 0;
  for (size_t k = write_.active ? 1 : 0; k < writes_.size() && beats < kReadAhead; ++k) beats += writes_[k]->beats;
  return offers_[2] != nullptr ? beats + offers_[2]->beats : beats;
}

/// What STORE has read and the bus has not taken.
void Memory::read_ahead(Cycle now) {
  const double waiting = std::min(writes_waiting(), kReadAhead);
  Cycle from = write_.since;
  const Burst* first = writes_.empty() ? offers_[2] : writes_.front();
  if (!write_.active && first != nullptr) {
    from = std::max(from, std::max(first->side->ready(*first).first_beat, write_.free));
  }
  const double cycles = now > from ? static_cast<double>(now - from) : 0;
  const double leave = write_.active ? write_.rate : 0;
  write_.queued = std::clamp(write_.queued + cycles * (write_.fills - leave), 0.0, std::max(0.0, waiting));
}

void Memory::settle(Cycle now) {
  for (Server* server : {&read_, &write_}) {
    if (server->active) {
      const double cycles = static_cast<double>(now - server->since);
      Burst& burst = *(server == &read_ ? reads_ : writes_).front();
      server->left -= cycles * server->rate;
      if (server == &read_) {
        server->queued = std::clamp(server->queued + cycles * (server->rate - server->port), 0.0, double{kBuffered});
      }
      burst.blocked += cycles * (1 - std::min(1.0, server->port));
    }
    if (server == &write_) read_ahead(now);
    server->since = now;
  }
}

double Memory::cycles_per_beat(const Server& server, PortShares::Who who) const {
  const double left = context_.ports.left(server.through, who);
  if (left == 1) return 1;
  return left < kSmall ? kInfinite : 1 + server.moves * (1 / left - 1);
}

/// What an idle bus has saved for the next burst, in beats: of a limited bandwidth, less than one.
double Memory::idle_beats(Cycle now) const {
  return slot_ == 1 ? 0 : std::min(static_cast<double>(now - bus_free_), slot_ - 1) / slot_;
}

/// The owner has the last beat of a read: its place is free, and it hears so.
void Memory::answer_read(Burst& burst, Cycle at) {
  reads_idle_from_ = at + isa::timing::bus::kSeen + burst.side->kept(burst);
  read_slots_.push_back(reads_idle_from_);
  burst.payload->set_response_status(refused(burst) ? tlm::TLM_ADDRESS_ERROR_RESPONSE : tlm::TLM_OK_RESPONSE);
  respond(burst.unit == isa::Unit::kFetch ? 0 : 1, burst, tlm::BEGIN_RESP, at);
}

void Memory::finish_read(Cycle now) {
  Burst& burst = *reads_.front();
  reads_.pop_front();
  read_.active = false;
  read_.free = burst.boundary = now;
  burst.ahead = read_.port < 1 ? std::clamp(-read_.left, 0.0, 1 - kSmall) : 0;
  burst.first = std::min(burst.first, now - 1);
  bus_free_ = now;
  answer_read(burst, now);
}

void Memory::finish_write(Cycle now) {
  Burst& burst = *writes_.front();
  writes_.pop_front();
  write_.active = false;
  write_.free = burst.boundary = now;
  burst.first = std::min(burst.first, now - 1);
  bus_free_ = now;
  burst.response = std::max(now - 1 + latency_, last_response_ + 1);
  last_response_ = burst.response;
  write_slots_.push_back(burst.response + 1);
  burst.payload->set_response_status(refused(burst) ? tlm::TLM_ADDRESS_ERROR_RESPONSE : tlm::TLM_OK_RESPONSE);
  burst.side->gone(burst);
  respond(2, burst, tlm::BEGIN_RESP, burst.response);
}

/// Whether the queue of beats has room for all that have come: then the bus is free though nobody takes them. `next` is
/// made the cycle in which more of them come.
bool Memory::queued_whole(Cycle now, Cycle& next) const {
  Cycle beats = 0;
  for (const Burst* burst : reads_) {
    const Cycle comes = burst->granted + isa::timing::bus::kAddress + latency_;
    if (comes > now) {
      next = std::min(next, comes);
      break;
    }
    beats += burst->beats;
    if (beats > kBuffered) return false;
  }
  return true;
}

/// The read in front begins, when it may now; else when. What begins while the other side moves without a gap has the
/// first slot. False while it holds the bus until its engine is ready.
bool Memory::begin_read(Cycle now, Cycle& next) {
  Burst& burst = *reads_.front();
  const Cycle comes = burst.granted + isa::timing::bus::kAddress + latency_, start = std::max(comes, read_.free);
  if (start > now) {
    next = std::min(next, start);
    return true;
  }
  const auto [taken, port, moves, turns, ahead] = burst.side->ready(burst);
  if (taken > now + kBuffered) {
    if (taken != kNever) next = std::min(next, taken - kBuffered);
    return queued_whole(now, next);
  }
  const bool follows = read_.free == now;
  read_.begin(burst.beats + (follows ? read_.left : -ahead), now, port, moves);
  if (!follows) read_.queued = 0;
  if (!write_.active) read_.left -= idle_beats(now);
  if (taken > now) {
    read_.taken = taken;
    read_.delay = static_cast<double>(taken - now) / burst.beats;
  }
  read_.early = burst.beats <= kBuffered && start + 2 * burst.beats <= std::max(now, taken);
  if (turns > 1) {  // behind the queue's beats and the one in hand
    const Cycle late = burst.run_first ? std::min<Cycle>(burst.beats, kBuffered + 1) : 0;
    read_.delay += static_cast<double>((turns - 1) * (burst.beats - late)) / burst.beats;
  }
  burst.first = std::max(now, taken);
  burst.side->begun(burst, burst.first, slot_);
  if (write_.active && !follows && read_.delay == 0 && takes_turns(write_)) {
    read_.left -= 0.5;
    write_.left += 0.5;
  }
  return true;
}

void Memory::begin_write(Cycle now, Cycle& next) {
  Burst& burst = *writes_.front();
  const auto [given, port, moves, turns, ahead] = burst.side->ready(burst);
  const Cycle start = std::max({burst.granted + isa::timing::bus::kWriteData, write_.free, given});
  if (start > now) {
    next = std::min(next, start);
    return;
  }
  const bool follows = write_.free == now;
  write_.begin(burst.beats + (follows ? write_.left : 0), now, port, moves);
  burst.first = now;
  if (!read_.active) write_.left -= idle_beats(now);
  if (read_.active && !follows && read_.delay < kLate && takes_turns(read_)) {
    write_.left -= 0.5;
    read_.left += 0.5;
  }
}

/// The share of its port that the read side asks for. Where it is refused its rate is less, but it goes on asking.
double Memory::read_demand(Cycle now) const {
  if (now < read_.taken) return 0;
  double rate = read_.rate;
  if (read_.port < 1 || read_.delay > 0)
    rate = std::max(rate, inverse(write_.active && !read_.early ? 2 * slot_ : slot_));
  return std::min(1.0, rate * read_.moves);
}

/// The rates of the sides that move.
void Memory::share_bus(bool held) {
  double read_cycles = kInfinite, write_cycles = kInfinite;
  if (read_.active) {
    const double port = cycles_per_beat(read_, PortShares::kLoad);
    read_.port = inverse(port);
    filling_ = port > 1 && write_.active && read_.queued < kBuffered - kSmall && read_.left > kBuffered + 1;
    read_cycles = std::max(slot_, read_.delay + (filling_ ? 1 : port));
  }
  if (write_.active) {
    const double all = cycles_per_beat(write_, PortShares::kStore);
    const double port = write_.queued > kSmall ? 1 : all;
    write_.port = inverse(port);
    write_.fills = inverse(all);
    write_cycles = std::max(slot_, port);
  }
  if (read_.active && write_.active) {
    if (read_.early) {  // the bus has moved them between other beats
      write_cycles = read_cycles <= slot_ ? kInfinite : std::max(write_cycles, slot_ / (1 - slot_ / read_cycles));
    } else if (read_cycles <= 2 * slot_ && write_cycles <= 2 * slot_) {
      read_cycles = write_cycles = 2 * slot_;
    } else if (read_cycles > 2 * slot_) {  // a beat that waits for LOAD holds the bus
      write_cycles = std::max(write_cycles, read_cycles);
    } else {
      read_cycles = std::max(read_cycles, slot_ / (1 - slot_ / write_cycles));
    }
  }
  if (read_.active) read_.rate = inverse(read_cycles);
  if (write_.active) write_.rate = held ? 0 : inverse(write_cycles);
}

void Memory::plan(Cycle now) {
  Cycle next = kNever;
  const bool held = !read_.active && !reads_.empty() && !begin_read(now, next);
  if (!write_.active && !writes_.empty()) begin_write(now, next);
  if (!write_.active) write_.fills = inverse(cycles_per_beat(write_, PortShares::kStore));
  share_bus(held);
  const double share = read_.active && read_.through == Port::kInpB ? read_demand(now) : 0;
  if (share != context_.ports.get(Port::kInpB, PortShares::kLoad)) {
    context_.ports.set(Port::kInpB, PortShares::kLoad, share);
    if (context_.alu_reads_inp && load_share_changed) load_share_changed();
  }
  for (const Server* server : {&read_, &write_}) {
    if (server->active && server->rate != 0) next = std::min(next, now + cycles_of(server->left, server->rate));
  }
  if (read_.active && filling_ && read_.rate > read_.port) {
    next = std::min(next, now + std::max(Cycle{1}, cycles_of(kBuffered - read_.queued, read_.rate - read_.port)));
  }
  if (write_.active && write_.queued > kSmall && write_.rate > write_.fills) {
    next = std::min(next, now + std::max(Cycle{1}, cycles_of(write_.queued, write_.rate - write_.fills)));
  }
  if (read_.active && read_.through == Port::kInpB && read_.taken > now) next = std::min(next, read_.taken);
  planned_ = held ? 0 : next;
  planned_read_ = !reads_.empty();
  planned_write_ = !writes_.empty();
  wake_at(next);
}

/// Nothing has begun, ended or come to the front since the last plan.
bool Memory::plan_holds(Cycle now) const {
  return now < planned_ && (planned_read_ || reads_.empty()) && (planned_write_ || writes_.empty());
}

void Memory::step() {
  const Cycle now = context_.agenda.now();
  stepping_ = true;
  if (dram_) {
    follow(now);
    stepping_ = false;
    return;
  }
  settle(now);
  // A burst may end and the next begin in the same cycle; beats of length 0 do not exist, so this ends.
  for (bool again = true; again;) {
    again = false;
    if (read_.active && read_.left <= kSmall) {
      finish_read(now);
      again = true;
    }
    if (write_.active && write_.left <= kSmall) {
      finish_write(now);
      again = true;
    }
    grant(now);
    if (again || !plan_holds(now)) {
      plan(now);
    } else {
      wake_at(planned_);
    }
    again = again && ((read_.active && read_.left <= kSmall) || (write_.active && write_.left <= kSmall));
  }
  stepping_ = false;
}

void Memory::port_changed(Port port) {
  if (context_.bus_stepped()) return;
  const auto moves = [&](const Server& server) {
    return (server.active || (&server == &write_ && !writes_.empty())) && server.through == port;
  };
  if (stepping_ || (!moves(read_) && !moves(write_))) return;  // engines poke() when they can go on
  const Cycle now = context_.agenda.now();
  stepping_ = true;
  settle(now);
  plan(now);
  stepping_ = false;
}

}  // namespace tessera::sim::systemc
