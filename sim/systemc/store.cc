// SPDX-License-Identifier: Apache-2.0
#include "sim/systemc/store.h"

#include <cmath>
#include <utility>

#include "sim/systemc/npu.h"

namespace tessera::sim::systemc {
namespace {

using isa::timing::bus::kWrite;
using isa::timing::store::kComplete;
using isa::timing::store::kFence;
using isa::timing::store::kFirstBeat;

}  // namespace

void Store::reset() {
  Transfer::reset();
  pieces_.clear();
  offsets_free_ = beats_free_ = responded_ = answered_ = 0;
  blocked_ = 0;
  unanswered_ = done_ = 0;
  error_ = false;
}

Cycle Store::emit_from(const Run& run, Cycle ready) {
  const Cycle bursts = bursts_free();
  if (bursts == kNever) return kNever;
  if (run.bytes == 0) return pieces_.empty() && unanswered_ == 0 ? std::max(ready, bursts + 1) : kNever;
  if (pieces_.size() > kOffsets) return kNever;
  return std::max({ready, bursts, offsets_free_});
}

void Store::emitted(const Run& run, Cycle at, bool moves) {
  if (!moves) {
    Item item = instructions_.front();
    instructions_.pop_front();
    responded_ = std::max(at, responded_) + kFence;
    complete(item, responded_ + kComplete);
    return;
  }
  const auto width = static_cast<uint32_t>(context_.config.axi_bytes);
  const uint32_t from = run.sp & (width - 1);
  const auto to = static_cast<uint32_t>(run.dram & (width - 1));
  Piece& piece = pieces_.push_back();
  piece.beats = groups_of(run.dram, run.bytes, width);
  piece.prime = from > to ? 1 : 0;
  piece.emitted = at;
  piece.port = run_item_.space == isa::Space::kAcc ? Port::kAccRead : Port::kOutRead;
  piece.last = run.last;
  counters().busy += piece.beats;
}

BeatSide::Ready Store::ready(const Burst& burst) const {
  const Piece& piece = pieces_.front();
  return {burst.run_first ? std::max(piece.emitted + kFirstBeat, beats_free_) + piece.prime : 0, piece.port};
}

void Store::took(Cycle now) {
  if (answered_ > now + 1) counters().stall_memory -= answered_ - now - 1;
  answered_ = 0;
}

void Store::gone(Burst& burst) {
  ++unanswered_;
  blocked_ += burst.blocked;
  // Beats leave the realigner a cycle before they are on the bus.
  InstructionTrace& trace = instructions_[done_].trace;
  if (trace.first_cycle == trace.issued_cycle) trace.first_cycle = burst.first - kWrite;
  burst.ends = false;
  if (!burst.run_last) return;
  const Piece piece = pieces_.front();
  pieces_.pop_front();
  if (pieces_.size() == kOffsets) offsets_free_ = burst.boundary - kWrite;
  const Cycle blocked = blocked_ == 0 ? 0 : static_cast<Cycle>(std::lround(blocked_));
  blocked_ = 0;
  counters().stall_port += blocked;
  const Cycle from = std::max(piece.emitted + kFirstBeat, beats_free_) + piece.prime;
  const Cycle waited =
      burst.boundary > from + piece.beats + blocked ? burst.boundary - from - piece.beats - blocked : 0;
  counters().stall_memory += waited;
  beats_free_ = burst.boundary;
  trace.last_cycle = burst.boundary - 1 - kWrite;
  trace.stall_port_cycles += blocked;
  trace.stall_memory_cycles += waited;
  burst.ends = piece.last;
  done_ += piece.last ? 1 : 0;
}

void Store::moved(Burst& burst, bool error, Cycle at) {
  error_ = error_ || error;
  --unanswered_;
  responded_ = at;
  if (!burst.ends) return;
  --done_;
  if (pieces_.empty() && unanswered_ == 0 && sent()) {
    const Cycle answer = at + kComplete + 1 - burst.boundary;
    answered_ = at + kComplete;
    counters().stall_memory += answer;
    instructions_.front().trace.stall_memory_cycles += answer;
  }
  Item item = instructions_.front();
  instructions_.pop_front();
  if (error_ && item.fault == isa::Fault::kNone) item.fault = isa::Fault::kAxiError;
  error_ = false;
  complete(item, at + kComplete);
}

}  // namespace tessera::sim::systemc
