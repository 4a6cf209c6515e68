// SPDX-License-Identifier: Apache-2.0
#include "sim/systemc/engines/load.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "sim/systemc/npu.h"

namespace tessera::sim::systemc {
namespace {

using isa::timing::load::kComplete;
using isa::timing::load::kItem;
using isa::timing::load::kStart;

}  // namespace

Port load_port(isa::Space space) {
  switch (space) {
    case isa::Space::kInp: return Port::kInpB;
    case isa::Space::kAcc: return Port::kAccWrite;
    case isa::Space::kOut: return Port::kOutWrite;
    default: return Port::kNone;
  }
}

void Load::reset() {
  Transfer::reset();
  pieces_.clear();
  joined_.clear();
  moving_ = {};
  free_ = begun_ = 0;
  blocked_ = ahead_ = 0;
  error_ = draining_ = false;
  padding_ = {};
  context_.padding_share = 0;
  queue_places_ = static_cast<uint64_t>(isa::timing::load::runs_waiting(context_.config));
  left_queue_.assign(std::bit_ceil(queue_places_), 0);
  emitted_ = left_ = 0;
}

/// A place in the queue of runs is free from the cycle after one has been taken out of it.
Cycle Load::join_from(Cycle ready) {
  if (emitted_ >= queue_places_) {
    const uint64_t before = emitted_ - queue_places_;
    if (before >= left_) return kNever;
    ready = std::max(ready, left_queue_[before & (left_queue_.size() - 1)] + 1);
  }
  return ready;
}

Cycle Load::emit_from(const Run& run, Cycle ready) {
  ready = join_from(ready);
  if (ready == kNever) return kNever;
  if (!moves(run)) return ready;
  const Cycle bursts = bursts_free();
  return bursts == kNever ? kNever : std::max(ready, bursts);
}

void Load::emitted(const Run& run, Cycle at, bool moves) {
  const auto width = static_cast<uint32_t>(context_.config.axi_bytes);
  uint32_t groups = run.bytes == 0 ? 0 : groups_of(run.sp, run.bytes, width);
  counters().busy += groups;
  const bool keeps = run.shares && !run.over;
  if (keeps && moves) {  // the group that takes a beat of the run before
    push(run, at, 1);
    pieces_.back().last = false;
    --groups;
  }
  Piece& piece = push(run, at, groups);
  piece.keeps = keeps && !moves;
  piece.pad = !moves;
  piece.taken = piece.follows = keeps && moves;
  if (moves) {
    piece.keeps = false;
    piece.beats = run.beats;
    piece.prime = run.over && !run.shares ? 1 : 0;
    piece.tail = piece.prime + piece.groups + piece.refused - held(piece.beats) - piece.beats;
  }
  ++emitted_;
  drain(context_.agenda.now());
}

/// A piece of so many groups that needs no beats.
Load::Piece& Load::push(const Run& run, Cycle at, uint32_t groups) {
  Piece& piece = pieces_.push_back();
  piece = {};
  piece.emitted = at;
  piece.none = run.bytes == 0;
  piece.pad = true;
  piece.keeps = run.shares && !run.over;
  piece.last = run.last;
  piece.port = load_port(run_item_.space);
  piece.groups = groups;
  piece.refused = groups * refusals();
  return piece;
}

/// For each group the cycles in which TABLE refuses it: where the bus is wide it takes parts, one after another.
uint32_t Load::refusals() const {
  const auto parts = static_cast<uint32_t>(context_.config.axi_bytes / isa::timing::load::kTableBytes);
  return run_item_.space == isa::Space::kTable && parts > 1 ? parts - 1 : 0;
}

/// Of a run's refused cycles those in which a beat on the bus waits: the queue and LOAD's hand hold the others.
uint32_t Load::held(uint32_t beats) const {
  constexpr uint32_t kHeld = isa::timing::bus::kBeatsWaiting + 1;
  return context_.bus_stepped() || beats <= kHeld ? 0 : (beats - kHeld) * refusals();
}

/// It needs a cycle for each beat, like the run before it.
void Load::joined(const Run& run, Cycle at) {
  Piece& piece = pieces_.back();
  const uint32_t beats = run.beats;
  joined_.push_back({piece.beats, at});
  ++piece.joined;
  piece.tail += beats * refusals() + held(piece.beats) - held(piece.beats + beats);
  piece.beats += beats;
  piece.groups += beats;
  piece.refused += beats * refusals();
  piece.last = run.last;
  counters().busy += beats;
  ++emitted_;
  if (pieces_.size() == 1) joined_leave();
}

/// Runs that joined the piece at the front leave the queue with the last beat in front of theirs.
void Load::joined_leave() {
  Piece& piece = pieces_.front();
  while (piece.joined > 0) {
    const Joined& run = joined_.front();
    if (run.before > piece.moved + moving_.beats) return;
    const uint32_t ahead = run.before > piece.moved ? run.before - piece.moved - 1 : 0;
    const Cycle gone = moving_.seen + static_cast<Cycle>(ahead * moving_.beat_cycles);
    leave_queue(std::max(run.emitted + kItem, gone));
    joined_.pop_front();
    --piece.joined;
  }
}

void Load::finish_instruction(Cycle at, bool error) {
  Item item = instructions_.front();
  instructions_.pop_front();
  if (error && item.fault == isa::Fault::kNone) item.fault = isa::Fault::kAxiError;
  complete(item, at);
}

/// Groups from a cycle to a boundary belong to the oldest instruction inside.
void Load::written(Cycle from, Cycle boundary) {
  InstructionTrace& trace = instructions_.front().trace;
  if (trace.first_cycle == trace.issued_cycle) trace.first_cycle = from;
  trace.last_cycle = boundary - 1;
}

void Load::stalled(Cycle cycles) {
  counters().stall_port += cycles;
  instructions_.front().trace.stall_port_cycles += cycles;
}

void Load::share_inp(Port port, double share) {
  if (port != Port::kInpB || share == context_.padding_share) return;
  context_.padding_share = share;
  npu_.load_share_changed();
}

/// The boundary of the padding in hand, when nothing changes.
Cycle Load::padding_end() const {
  if (padding_.rate < 1e-6) return kNever;
  return padding_.since + static_cast<Cycle>(std::ceil(padding_.left / padding_.rate - 1e-6));
}

/// The padding at the front: whether it has ended, in free_. Writes that nobody can hold up any more are taken at once.
bool Load::pad(Cycle now) {
  const Piece& piece = pieces_.front();
  if (!padding_.active) {
    const Cycle first = std::max(piece.emitted + kStart, free_);
    const bool alone = overdue_ || piece.port == Port::kNone ||
                       (first + piece.groups <= npu_.port_free_until(piece.port) && !context_.alu_reads_inp);
    if (alone) {
      leave_queue(first - 1);
      ahead_ = 0;
      free_ = first + piece.groups + piece.refused;
      stalled(piece.refused);
      written(first, free_);
      return true;
    }
    if (first > now) {
      wake_at(first);
      return false;
    }
    leave_queue(first - 1);
    padding_ = {true, first, first, piece.groups - (first == free_ ? ahead_ : 0), 1};
    ahead_ = 0;
  }
  padding_.left -= static_cast<double>(now - padding_.since) * padding_.rate;
  padding_.since = now;
  if (padding_.left > 1e-6) {
    const double rate = context_.ports.left(piece.port, PortShares::kLoad);
    if (rate != padding_.rate) npu_.poke_memory();
    padding_.rate = rate;
    share_inp(piece.port, 1);  // also where it is refused
    if (padding_end() != kNever) wake_at(padding_end());
    return false;
  }
  stalled(std::max(now - padding_.from, Cycle{piece.groups}) - piece.groups);
  padding_.active = false;
  ahead_ = std::clamp(-padding_.left, 0.0, 1 - 1e-6);
  share_inp(piece.port, 0);
  free_ = now;
  written(padding_.from, now);
  return true;
}

void Load::drain_front(Cycle now) {
  if (draining_) return;
  draining_ = true;
  bool padded = false;
  while (!pieces_.empty() && pieces_.front().pad) {
    const Piece& piece = pieces_.front();
    Cycle done = 0;
    if (piece.none) {
      done = std::max(piece.emitted + kItem, free_) + kComplete;
      leave_queue(done - kComplete);
    } else {
      if (!pad(now)) break;
      padded = true;
      done = free_ - 1 + kComplete;
    }
    const bool last = piece.last;
    pieces_.pop_front();
    if (last) {
      finish_instruction(done, error_);
      error_ = false;
    }
  }
  if (!pieces_.empty() && !pieces_.front().pad && (!pieces_.front().taken || pieces_.front().follows)) {
    const bool leaves = !pieces_.front().taken;
    pieces_.front().taken = true;
    pieces_.front().follows = false;
    if (leaves) leave_queue(std::max(pieces_.front().emitted + kItem, free_ == 0 ? 0 : free_ - 1));
    if (padded) npu_.poke_memory();
    joined_leave();
  }
  draining_ = false;
}

/// The run of the bus's oldest burst is the first that is no padding; padding in front of it may not have been written
/// yet.
BeatSide::Ready Load::ready(const Burst& burst) const {
  Cycle free = free_;
  for (const Piece& piece : pieces_) {
    const Cycle first = std::max(piece.emitted + kStart, free);
    if (!piece.pad) {
      const double groups_a_beat = static_cast<double>(piece.groups) / piece.beats;
      return {!burst.run_first ? 0
              : free == kNever ? kNever
                               : first - isa::timing::bus::kSeen,
              piece.port, groups_a_beat, piece.groups == 0 ? 1 : 1 + Cycle{piece.refused / piece.groups},
              first == free_ ? ahead_ : 0};
    }
    if (piece.none || free == kNever) continue;
    free = first + piece.groups + piece.refused;
    if (padding_.active && &piece == &pieces_.front()) free = padding_end();
  }
  return {burst.run_first ? kNever : 0, Port::kNone};
}

/// Each run that is given the beat of the run before takes a group of it, and the last of them takes it away.
Cycle Load::kept(const Burst& burst) const {
  if (!burst.run_last) return 0;
  Cycle cycles = 0;
  bool found = false;  // the burst's run
  for (const Piece& piece : pieces_) {
    if (found) {
      if (!piece.keeps) break;
      cycles += 1 + refusals();
      if (!piece.pad) break;
    }
    found = found || !piece.pad;
  }
  return cycles;
}

void Load::begun(const Burst& burst, Cycle at, double beat_cycles) {
  moving_ = {at + isa::timing::bus::kSeen, burst.beats, beat_cycles};
  ahead_ = 0;
  if (pieces_.front().joined == 0) return;  // padding too
  joined_leave();
  wake();
}

void Load::moved(Burst& burst, bool error, Cycle at) {
  error_ = error_ || error;
  blocked_ += burst.blocked;
  if (burst.run_first) begun_ = burst.first + isa::timing::bus::kSeen;
  if (!burst.run_last) {
    pieces_.front().moved += burst.beats;
    moving_ = {at, 0, 1};
    return;
  }
  if (pieces_.front().pad) drain(at);
  if (pieces_.front().pad) {  // held up after the beats had been let through
    padding_.left = 0;
    overdue_ = true;
    drain(at);
    overdue_ = false;
  }
  const Piece piece = pieces_.front();
  moving_ = {};
  const Cycle from = std::max(piece.emitted + kStart, free_);
  free_ = at + isa::timing::bus::kSeen + piece.tail;
  ahead_ = burst.ahead;
  for (uint32_t k = piece.joined; k > 0; --k) {
    leave_queue(free_ - 1);
    joined_.pop_front();
  }
  const Cycle work = piece.beats + piece.tail;
  const Cycle blocked = blocked_ == 0 ? 0 : static_cast<Cycle>(std::lround(blocked_));
  blocked_ = 0;
  const Cycle starved = free_ > from + work + blocked ? free_ - from - work - blocked : 0;
  stalled(blocked + piece.refused);
  counters().stall_memory += starved;
  InstructionTrace& trace = instructions_.front().trace;
  trace.stall_memory_cycles += starved;
  written(begun_ + piece.prime, free_);
  pieces_.pop_front();
  if (piece.last) {
    finish_instruction(free_ - 1 + kComplete, error_);
    error_ = false;
  }
  drain(at);
}

void Load::work(Cycle now) {
  drain(now);
  Transfer::work(now);
}

}  // namespace tessera::sim::systemc
