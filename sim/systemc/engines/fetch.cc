// SPDX-License-Identifier: Apache-2.0
#include "sim/systemc/engines/fetch.h"

#include <cstring>

#include "isa/verify/verify.h"
#include "sim/systemc/npu.h"

namespace tessera::sim::systemc {

Fetch::Fetch(sc_core::sc_module_name name, Context& context, Npu& npu)
    : sc_module(name), socket("socket"), context_(context), npu_(npu) {
  socket.register_nb_transport_bw(this, &Fetch::nb_transport_bw);
  for (int n = 0; n < kWordsAhead + 1; ++n) transactions_.push_back(std::make_unique<BurstTransaction>());
}

void Fetch::reset() {
  next_transaction_ = 0;
  offering_ = false;
  room_.assign(kWordsAhead, 0);
  words_.clear();
  requested_ = next_ = 0;
  held_ = stopped_ = false;
  free_from_ = 0;
  code_ = isa::Fault::kNone;
  empty_since_ = 0;
  waiting_on_ = -1;
  conditions_ = {};
}

void Fetch::start() {
  offer(0);
  wake_at(0);
}

bool Fetch::in_window(uint32_t word) const {
  const uint64_t first = address(word), last = first + 63;
  return first >= context_.request->window_first && last <= context_.request->window_last && first <= last;
}

void Fetch::offer(Cycle at) {
  if (offering_ || npu_.faulted() || room_.empty() || requested_ == context_.request->instruction_count ||
      !in_window(requested_)) {
    return;
  }
  at = std::max(at, room_.front());
  room_.pop_front();
  BurstTransaction& transaction = *transactions_[next_transaction_];
  next_transaction_ = (next_transaction_ + 1) % transactions_.size();
  Burst& burst = transaction.burst;
  burst.unit = isa::Unit::kFetch;
  burst.write = false;
  burst.address = address(requested_);
  burst.beats = static_cast<uint32_t>(isa::timing::fetch::word_beats(context_.config));
  burst.side = this;
  burst.offered = at;
  transaction.payload.set_command(tlm::TLM_READ_COMMAND);
  transaction.payload.set_address(burst.address);
  transaction.payload.set_data_length(64);
  offering_ = true;
  ++requested_;
  tlm::tlm_phase phase = tlm::BEGIN_REQ;
  sc_core::sc_time delay = context_.agenda.delay(at);
  socket->nb_transport_fw(transaction.payload, phase, delay);
}

tlm::tlm_sync_enum Fetch::nb_transport_bw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                          sc_core::sc_time& /*delay*/) {
  if (phase == tlm::END_REQ) {
    offering_ = false;
    offer(burst_of(payload).granted + 1);
    return tlm::TLM_ACCEPTED;
  }
  const Burst& burst = burst_of(payload);
  if (context_.request->trace != nullptr) {
    context_.request->trace->bursts.push_back(
        {isa::Unit::kFetch, false, burst.address, 64, burst.granted + 1, burst.first, burst.boundary - 1});
  }
  words_.push_back({burst.boundary, payload.is_response_error()});
  take_word(burst.boundary);
  return tlm::TLM_COMPLETED;
}

void Fetch::take_word(Cycle now) {
  if (held_ || stopped_ || npu_.faulted()) return;
  const TimedRequest& request = *context_.request;
  if (words_.empty()) {
    const bool end = next_ == request.instruction_count;
    if (!end && (next_ != requested_ || in_window(next_))) return;
    code_ = end ? isa::Fault::kMissingFinish : isa::Fault::kDramRange;
    held_from_ = std::max(now, free_from_) + isa::timing::fetch::kCheck;
  } else {
    const Word word = words_.front();
    words_.pop_front();
    const Cycle taken = std::max(word.arrived + isa::timing::fetch::kAssemble, free_from_);
    held_from_ = taken + isa::timing::fetch::kCheck;
    room_.push_back(taken + 1);
    offer(taken + 1);
    code_ = isa::Fault::kAxiError;
    const uint8_t* bytes = find_dram(request.dram, address(next_), isa::kInstructionBytes);
    if (!word.error && bytes != nullptr) {
      isa::Word bits;
      std::memcpy(bits.data(), bytes, bits.size());
      const isa::Decoded decoded = isa::decode(bits);
      code_ = decoded.fault;
      if (decoded.instruction) {
        instruction_ = *decoded.instruction;
        if (const auto violation = isa::check_operands(instruction_, context_.config)) code_ = violation->fault;
      }
    }
  }
  pc_ = next_;
  if (code_ != isa::Fault::kMissingFinish && code_ != isa::Fault::kDramRange) ++next_;
  held_ = true;
  context_.counters(isa::Unit::kFetch).stall_memory += held_from_ - empty_since_;
  wake_at(held_from_);
}

bool Fetch::finish_held() const {
  return held_ && !stopped_ && code_ == isa::Fault::kNone && held_from_ <= context_.agenda.now() &&
         std::holds_alternative<isa::Finish>(instruction_);
}

void Fetch::watch_finish(Cycle now) {
  if (waiting_on_ >= 0) {
    context_.counters(isa::Unit::kFetch).wait[static_cast<size_t>(waiting_on_)] += now - waiting_since_;
  }
  waiting_on_ = -1;
  waiting_since_ = now;
  if (!finish_held()) return;
  const isa::Wait* unmet = conditions_.unmet(finish_header(), npu_, now);
  if (unmet != nullptr) waiting_on_ = static_cast<int>(unmet->engine);
  if (conditions_.next() > now) wake_at(conditions_.next());
}

bool Fetch::finish_ready() {
  return finish_held() && conditions_.unmet(finish_header(), npu_, context_.agenda.now()) == nullptr;
}

void Fetch::timeline_counted(isa::Engine engine) {
  if (waiting_on_ == static_cast<int>(engine)) wake_at(0);
}

void Fetch::finish_taken() {
  const Cycle now = context_.agenda.now();
  watch_finish(now);
  stopped_ = true;
  if (context_.request->trace != nullptr) {
    InstructionTrace trace;
    trace.pc = pc_;
    trace.unit = isa::Unit::kFetch;
    trace.queued_cycle = trace.issued_cycle = trace.first_cycle = trace.last_cycle = trace.retired_cycle = now;
    context_.request->trace->instructions.push_back(trace);
  }
  UnitCounters& counters = context_.counters(isa::Unit::kFetch);
  ++counters.busy;
  ++counters.executed;
  ++context_.result->instructions;
  context_.result->bytes_read += isa::kInstructionBytes;
}

void Fetch::close(Cycle end) {
  watch_finish(end);
  if (!held_ && end > empty_since_) context_.counters(isa::Unit::kFetch).stall_memory += end - empty_since_;
}

void Fetch::step() {
  if (!npu_.running()) return;
  const Cycle now = context_.agenda.now();
  watch_finish(now);
  if (!held_) take_word(now);
  while (held_ && !stopped_ && held_from_ <= now) {
    if (npu_.faulted()) return;
    if (code_ != isa::Fault::kNone) {
      stopped_ = true;
      npu_.report({code_, isa::Unit::kFetch, pc_});
      return;
    }
    const auto target = isa::engine_of(instruction_);
    if (!target) {
      watch_finish(now);
      npu_.check_end();
      return;
    }
    Engine& engine = npu_.engine(*target);
    if (engine.full()) {
      // Woken when it has room. A head that has left in this cycle asked for the next one while this turn was still
      // due, which counted as asked for already.
      if (engine.has_room_next()) wake_at(now + 1);
      return;
    }
    engine.push(pc_, instruction_);
    ++context_.counters(isa::Unit::kFetch).busy;
    ++context_.result->instructions;
    context_.result->bytes_read += isa::kInstructionBytes;
    held_ = false;
    free_from_ = now;
    empty_since_ = now + 1;
    take_word(now);
  }
  if (held_ && !stopped_ && held_from_ > now) wake_at(held_from_);
}

}  // namespace tessera::sim::systemc
