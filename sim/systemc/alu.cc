// SPDX-License-Identifier: Apache-2.0
#include "sim/systemc/alu.h"

#include <cmath>
#include <utility>

#include "sim/systemc/npu.h"

namespace tessera::sim::systemc {
namespace {

constexpr Cycle kPrepare = 7;    // from taking to the end of the range check
constexpr Cycle kConstants = 2;  // the constants of the second operation
constexpr Cycle kRawLatency = 3;
constexpr Cycle kLatency = 13;
constexpr Cycle kSecondLatency = 31;
constexpr bool kDrains = true;

Port port_of(isa::AluSpace space, bool write) {
  switch (space) {
    case isa::AluSpace::kAcc: return write ? Port::kAccWrite : Port::kAccRead;
    case isa::AluSpace::kOut: return write ? Port::kOutWrite : Port::kOutRead;
    case isa::AluSpace::kInp: return Port::kInpB;
  }
  return Port::kNone;
}

}  // namespace

void Alu::reset() {
  Engine::reset();
  prepared_.reset();
  active_.reset();
  next_take_ = active_from_ = 0;
  issue_free_ = write_free_ = 0;
  uses_.clear();
  writing_ = 0;
}

Alu::Job Alu::describe(const Item& item, Cycle now) const {
  Job job;
  job.item = item;
  const auto* alu = std::get_if<isa::Alu>(&item.instruction);
  job.moves = alu != nullptr && item.fault == isa::Fault::kNone;
  job.prepared = now + (alu == nullptr ? 1 : kPrepare);
  if (!job.moves) return job;
  uint64_t sources = 1, outputs = 1;
  for (int k = 0; k < isa::kLoops; ++k) {
    sources *= alu->extent[static_cast<size_t>(k)];
    if (k < isa::kLoops - alu->reduce) outputs *= alu->extent[static_cast<size_t>(k)];
  }
  const bool second = alu->second_op != isa::SecondOp::kNone;
  const bool split = second && alu->src == isa::AluSpace::kOut;
  job.issues = static_cast<double>(sources + (split ? outputs : 0));
  job.outputs = static_cast<double>(outputs);
  job.fill = 1 + (second ? kConstants : 0);
  const bool raw = !alu->convert && alu->dst == isa::AluSpace::kAcc;
  job.latency = raw ? kRawLatency : second ? kSecondLatency : kLatency;
  job.source = port_of(alu->src, false);
  job.destination = port_of(alu->dst, true);
  if (alu->src == isa::AluSpace::kOut) {
    job.out_reads = 1;
  } else if (second) {
    job.out_reads = job.outputs / job.issues;
  }
  return job;
}

double Alu::rate() const {
  double rate = 1;
  if (active_->source == Port::kAccRead) rate = std::min(rate, context_.ports.left(Port::kAccRead, PortShares::kAlu));
  if (active_->destination == Port::kAccWrite) {
    const double left = context_.ports.left(Port::kAccWrite, PortShares::kAlu);
    rate = std::min(rate, left * active_->issues / active_->outputs);
  }
  return rate;
}

void Alu::settle(Cycle now) {
  if (!active_ || !begun_ || now <= since_) return;
  const double cycles = static_cast<double>(now - since_);
  left_ -= cycles * rate_;
  counters().stall_port += static_cast<uint64_t>(std::lround(cycles * (1 - rate_)));
  since_ = now;
}

void Alu::ports_changed() {
  if (active_) wake();
}

void Alu::begin(Cycle now) {
  Job& job = *active_;
  begun_ = true;
  left_ = job.issues;
  since_ = now;
  job.item.trace.first_cycle = now;
  counters().busy += static_cast<uint64_t>(job.issues);
  if (job.source != Port::kNone && job.source != Port::kOutRead) context_.ports.set(job.source, PortShares::kAlu, 1);
  if (job.out_reads > 0) context_.ports.set(Port::kOutRead, PortShares::kAlu, job.out_reads);
  npu_.ports_changed();
}

/// The last issue is in this cycle.
void Alu::end(Cycle now) {
  Job& job = *active_;
  issue_free_ = now + 1;
  const Cycle written = now + job.latency;
  uses_.push_back({active_from_ + job.latency, written + 1, job.destination, job.outputs / job.issues});
  write_free_ = written + 1;
  job.item.trace.last_cycle = now;
  complete(std::move(job.item), written);
  if (job.source != Port::kNone && job.source != Port::kOutRead) context_.ports.set(job.source, PortShares::kAlu, 0);
  if (job.out_reads > 0) context_.ports.set(Port::kOutRead, PortShares::kAlu, 0);
  active_.reset();
  npu_.ports_changed();
}

void Alu::use_ports(Cycle now) {
  bool changed = false;
  while (!uses_.empty() && uses_.front().to <= now) {
    if (writing_ > 0) {
      context_.ports.set(uses_.front().port, PortShares::kAlu, 0);
      changed = true;
    }
    writing_ = 0;
    uses_.pop_front();
  }
  if (!uses_.empty() && uses_.front().from <= now && writing_ == 0) {
    writing_ = 1;
    context_.ports.set(uses_.front().port, PortShares::kAlu, uses_.front().share);
    changed = true;
  }
  if (changed) npu_.ports_changed();
  if (!uses_.empty()) wake_at(writing_ > 0 ? uses_.front().to : uses_.front().from);
}

void Alu::work(Cycle now) {
  for (;;) {
    use_ports(now);
    settle(now);
    if (active_ && now >= active_from_) {
      if (!begun_) begin(now);
      rate_ = rate();
      if (left_ - rate_ <= 1e-6 && rate_ > 0) {
        end(now);
        continue;
      }
      if (rate_ > 0) {
        const double cycles = std::max(1.0, std::ceil(left_ / rate_ - 1e-6) - 1);
        wake_at(now + static_cast<Cycle>(cycles));
      }
    } else if (active_) {
      wake_at(active_from_);
    }
    if (prepared_ && !active_) {
      const Cycle free = issue_free_ == 0 ? 0 : kDrains || !prepared_->moves ? write_free_ - 1 : issue_free_ - 1;
      const Cycle from = std::max(prepared_->prepared, prepared_->moves ? free : write_free_);
      if (from > now) {
        wake_at(from);
        return;
      }
      if (!prepared_->moves) {
        complete(std::move(prepared_->item), from);
        prepared_.reset();
        next_take_ = from + 1;
      } else {
        active_from_ = from + prepared_->fill;
        begun_ = false;
        active_ = std::move(prepared_);
        prepared_.reset();
        next_take_ = from;
        continue;
      }
    }
    if (prepared_) return;
    if (now < next_take_) {
      wake_at(next_take_);
      return;
    }
    Item* item = take(now);
    if (item == nullptr) return;
    prepared_ = describe(*item, now);
  }
}

}  // namespace tessera::sim::systemc
