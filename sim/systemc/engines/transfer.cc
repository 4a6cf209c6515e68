// SPDX-License-Identifier: Apache-2.0
#include "sim/systemc/engines/transfer.h"

#include <utility>

#include "base/error.h"
#include "isa/generated/timing.h"
#include "sim/systemc/npu.h"

namespace tessera::sim::systemc {

namespace pace = isa::timing::transfer;

Transfer::Transfer(sc_core::sc_module_name name, isa::Engine engine, Context& context, Npu& npu)
    : Engine(name, engine, context, npu), socket("socket") {
  socket.register_nb_transport_bw(this, &Transfer::nb_transport_bw);
}

void Transfer::reset() {
  Engine::reset();
  instructions_.clear();
  has_prepared_ = has_run_ = bursting_ = advancing_ = false;
  walk_from_ = walk_over_ = last_emit_ = bursts_free_ = free_from_ = 0;
  bursts_ = 0;
  walk_ = Walk();
  free_transactions_.clear();
  for (const auto& transaction : pool_) free_transactions_.push_back(transaction.get());
}

BurstTransaction& Transfer::fresh() {
  if (free_transactions_.empty()) {
    pool_.push_back(std::make_unique<BurstTransaction>());
    BurstTransaction& made = *pool_.back();
    made.burst.unit = static_cast<isa::Unit>(engine());
    made.burst.write = engine() == isa::Engine::kStore;
    made.burst.side = this;
    made.burst.tag = reinterpret_cast<uintptr_t>(&made);
    made.payload.set_command(made.burst.write ? tlm::TLM_WRITE_COMMAND : tlm::TLM_READ_COMMAND);
    free_transactions_.push_back(&made);
  }
  BurstTransaction& transaction = *free_transactions_.back();
  free_transactions_.pop_back();
  return transaction;
}

/// The length of a burst that begins the beats left.
void Transfer::cut(Burst& burst) {
  const auto width = static_cast<uint32_t>(context_.config.axi_bytes);
  constexpr uint64_t kPage = isa::timing::bus::kPageBytes;
  const auto to_page = static_cast<uint32_t>(kPage - burst.address % kPage) >> std::countr_zero(width);
  burst.beats = std::min({burst_beats_left_, to_page, uint32_t{isa::timing::bus::kBurstBeats}});
  burst.run_last = burst.beats == burst_beats_left_;
  burst.payload->set_data_length(burst.beats * width);
}

void Transfer::offer(uint64_t address, Cycle at) {
  BurstTransaction& transaction = fresh();
  Burst& burst = transaction.burst;
  burst.address = address;
  burst.run_first = burst_first_;
  burst.offered = at;
  burst.blocked = 0;
  burst_first_ = false;
  ++bursts_;
  offered_ = &burst;
  cut(burst);
  burst.grows = false;
  grow();
  transaction.payload.set_address(address);
  tlm::tlm_phase phase = tlm::BEGIN_REQ;
  sc_core::sc_time delay = context_.agenda.delay(at);
  socket->nb_transport_fw(transaction.payload, phase, delay);
}

/// Runs that continue the one in the burst unit and are ready before cycle `limit`, up to which its burst waits, join
/// it.
void Transfer::join_before(Cycle limit) {
  while (joins() && next_run() && run_.continues) {
    const Cycle at = join_from(std::max({run_ready_, last_emit_ + 1, offered_->offered}));
    if (at == kNever || at >= limit) {
      if (at != kNever && limit == context_.agenda.now()) wake_at(at + 1);
      break;
    }
    has_run_ = false;
    last_emit_ = at;
    burst_beats_left_ += run_.beats;
    context_.result->bytes_read += run_.bytes;
    joined(run_, at);
    more_ = run_.more;
    offered_->offered = std::max(offered_->offered, at + 1);
    if (walk_.done()) wake();
  }
}

/// Tells the arbiter whether the burst that waits will grow.
void Transfer::grow() {
  bool grows = joins() && more_ && burst_beats_left_ < isa::timing::load::kRequestBeats;
  if (grows) {
    const Cycle room = join_from(0);
    grows = room <= context_.agenda.now();
    if (!grows && room != kNever) wake_at(room);
  }
  if (offered_->grows && !grows) npu_.poke_memory();
  offered_->grows = grows;
}

tlm::tlm_sync_enum Transfer::nb_transport_bw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                             sc_core::sc_time& /*delay*/) {
  const Cycle now = context_.agenda.now();
  if (phase == tlm::END_REQ) {
    Burst& burst = burst_of(payload);
    const Cycle granted = burst.granted;
    join_before(granted);
    cut(burst);
    burst_beats_left_ -= burst.beats;
    if (burst_beats_left_ > 0) {
      offer(burst.address + payload.get_data_length(), granted + 1);
      wake();
    } else {
      bursting_ = false;
      bursts_free_ = granted;
      advance_and_wake(now);
    }
    return tlm::TLM_ACCEPTED;
  }
  Burst& burst = burst_of(payload);
  const Cycle at = burst.write ? burst.response : burst.boundary;
  if (context_.request->trace != nullptr) {
    context_.request->trace->bursts.push_back({burst.unit, burst.write, burst.address, payload.get_data_length(),
                                               burst.granted + 1, burst.first, burst.write ? at : burst.boundary - 1});
  }
  moved(burst, payload.is_response_error(), at);
  free_transactions_.push_back(reinterpret_cast<BurstTransaction*>(burst.tag));
  if (has_run_) advance_and_wake(now);
  return tlm::TLM_COMPLETED;
}

/// As advance(); when that ends the walk, the next instruction may begin.
void Transfer::advance_and_wake(Cycle now) {
  if (has_run_ && bursting_ && moves(run_) && !joins()) return;  // behind the bursts of the run before
  const bool walking = !walk_.done();
  advance(now);
  if (walking && walk_.done()) wake();
}

void Transfer::advance(Cycle now) {
  if (advancing_) return;
  advancing_ = true;
  while (next_run()) {
    if (bursting_ && moves(run_)) {  // behind the bursts of the run before
      join_before(now);
      grow();
      if (!has_run_) continue;
      break;
    }
    const Cycle at = emit_from(run_, std::max(run_ready_, last_emit_ + 1));
    if (at == kNever) break;
    if (at > now + kLookahead) {
      wake_at(at);
      break;
    }
    has_run_ = false;
    last_emit_ = at;
    const bool bursts = moves(run_);
    emitted(run_, at, bursts);
    if (!run_.pad)
      (engine() == isa::Engine::kStore ? context_.result->bytes_written : context_.result->bytes_read) += run_.bytes;
    if (bursts) {
      more_ = run_.more;
      const auto width = static_cast<uint32_t>(context_.config.axi_bytes);
      bursting_ = burst_first_ = true;
      burst_beats_left_ = run_.beats;
      offer((run_.dram & ~uint64_t{width - 1}) + (run_.shares ? width : 0), at + pace::kOffer);
    }
  }
  advancing_ = false;
}

/// Whether there is a run, the walk's next one if need be.
bool Transfer::next_run() {
  if (has_run_) return true;
  if (walk_.done()) return false;
  walk_.next(run_);
  run_item_ = walk_item_;
  has_run_ = true;
  run_ready_ = std::max(last_emit_, walk_from_) + run_.steps - 1 + pace::kJoin;
  if (run_.last) walk_over_ = run_ready_ - pace::kJoin;
  return true;
}

void Transfer::work(Cycle now) {
  advance(now);
  for (;;) {
    if (has_prepared_ && walk_.done()) {
      const Cycle from = std::max(prepared_.done, walk_over_);
      if (from > now) {
        wake_at(from);
        return;
      }
      walk_ = std::move(prepared_.walk);
      walk_item_ = prepared_.item;
      walk_from_ = from + pace::kStep;
      has_prepared_ = false;
      free_from_ = from + pace::kFree;
      advance(now);
      continue;
    }
    if (has_prepared_) return;
    if (free_from_ > now) {
      wake_at(free_from_);
      return;
    }
    const Queued* taken = take(now);
    if (taken == nullptr) return;
    const Item& item = taken->item;
    took(now);
    const auto join = static_cast<uint32_t>(pace::kJoinBeats * context_.config.axi_bytes);
    const TimedRequest& request = *context_.request;
    prepared_.item = {isa::Space::kOut, item.fault};
    prepared_.done = now + pace::kPrepare;
    const auto width = static_cast<uint32_t>(context_.config.axi_bytes);
    const auto entry = static_cast<uint32_t>(context_.config.wgt_entry_bytes());
    const auto move = [&](const auto& transfer, auto... more) {
      prepared_.walk = Walk(transfer, request.bases[transfer.base], join, width, more...);
      prepared_.item.space = transfer.space;
    };
    if (item.fault != isa::Fault::kNone) {
      prepared_.walk = Walk::none();
    } else {
      std::visit(isa::Overloaded{
          [&](const isa::Load& load) { move(load, entry); }, [&](const isa::Store& store) { move(store); },
          [&](const isa::Fence&) {
            prepared_.walk = Walk::none();
            prepared_.done = now + pace::kFence;
          },
          []<typename T>(const T&)
            requires isa::ForeignTo<T, isa::Engine::kLoad> && isa::ForeignTo<T, isa::Engine::kStore>
          { TESSERA_INVARIANT(false, "another engine's instruction in a transfer's queue"); }},
          taken->instruction);
    }
    if (prepared_.item.space == isa::Space::kAcc && !context_.acc_moves) npu_.acc_moves();
    has_prepared_ = true;
    instructions_.push_back(item);
  }
}

}  // namespace tessera::sim::systemc
