// SPDX-License-Identifier: Apache-2.0
#include "sim/systemc/engines/store.h"

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
  fences_.clear();
  offsets_free_ = beats_free_ = responded_ = answered_ = 0;
  blocked_ = 0;
  unanswered_ = done_ = 0;
  left_ = finished_ = responses_ = 0;
  error_ = false;
}

Cycle Store::emit_from(const Run& run, Cycle ready) {
  const Cycle bursts = bursts_free();
  if (bursts == kNever) return kNever;
  if (run.bytes == 0) {
    const Cycle place = npu_.memory().write_place();
    return place == kNever ? kNever : std::max({ready, bursts + 1, place});
  }
  if (pieces_.size() > kOffsets) return kNever;
  return std::max({ready, bursts, offsets_free_});
}

void Store::emitted(const Run& run, Cycle at, bool moves) {
  const uint64_t number = left_;
  left_ += run.last ? 1 : 0;
  if (!moves) {
    npu_.memory().take_write_place();
    fences_.push_back({at, number, bursts()});
    pass_fences();
    answer_fences();
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

/// FENCEs behind the instruction whose beats have all moved have none to wait for.
void Store::pass_fences() {
  for (const Fenced& fence : fences_) {
    if (fence.number == finished_ + done_) ++done_;
  }
}

/// Those in front of the next response, one a cycle.
void Store::answer_fences() {
  while (!fences_.empty() && fences_.front().bursts == responses_) {
    responded_ = std::max(fences_.front().emitted, responded_) + kFence;
    fences_.pop_front();
    npu_.memory().free_write_place(responded_ + 1);
    finish_instruction(false);
  }
}

/// The oldest instruction has had its last answer in responded_.
void Store::finish_instruction(bool error) {
  Item item = instructions_.front();
  instructions_.pop_front();
  ++finished_;
  --done_;
  if (error && item.fault == isa::Fault::kNone) item.fault = isa::Fault::kAxiError;
  complete(item, responded_ + kComplete);
}

BeatSide::Ready Store::ready(const Burst& burst) const {
  const Piece& piece = pieces_.front();
  return {burst.run_first ? std::max(piece.emitted + kFirstBeat, beats_free_) + piece.prime : 0, piece.port};
}

void Store::took(Cycle now) {
  if (answered_ > now + 1) wait_less(answered_ - now - 1);
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
  if (context_.bus_stepped()) wake();  // a run that had no place; elsewhere the response is told at once
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
  pass_fences();
}

void Store::moved(Burst& burst, bool error, Cycle at) {
  error_ = error_ || error;
  --unanswered_;
  ++responses_;
  responded_ = at;
  if (burst.ends) {
    if (pieces_.empty() && unanswered_ == 0 && sent()) {
      const Cycle answer = at + kComplete + 1 - burst.boundary;
      answered_ = at + kComplete;
      counters().stall_memory += answer;
      instructions_.front().trace.stall_memory_cycles += answer;
    }
    finish_instruction(error_);
    error_ = false;
  }
  answer_fences();
}

}  // namespace tessera::sim::systemc
