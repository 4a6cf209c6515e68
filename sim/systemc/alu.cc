// SPDX-License-Identifier: Apache-2.0
#include "sim/systemc/alu.h"

#include <cmath>
#include <utility>

#include "sim/systemc/npu.h"

namespace tessera::sim::systemc {
namespace {

constexpr Cycle kPrepare = 7;  // from taking to the end of the range check

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
  writing_ = false;
  history_.reset();
  context_.alu_reads_inp = false;
}

Alu::Job Alu::describe(const Item& item, Cycle now) const {
  Job job;
  job.item = item;
  const auto* alu = std::get_if<isa::Alu>(&item.instruction);
  job.moves = alu != nullptr && item.fault == isa::Fault::kNone;
  job.prepared = now + (alu == nullptr ? 1 : kPrepare);
  if (!job.moves) return job;
  job.form = form_of(*alu);
  job.source = port_of(alu->src, false);
  job.destination = port_of(alu->dst, true);
  job.writes = 1.0 / static_cast<double>(job.form.vector_issues);
  job.out_reads = alu->src == isa::AluSpace::kOut ? 1 : job.form.second ? job.writes : 0;
  return job;
}

double Alu::rate() const {
  double rate = 1;
  const PortShares& ports = context_.ports;
  if (active_->source == Port::kAccRead) rate = std::min(rate, ports.left(Port::kAccRead, PortShares::kAlu));
  if (active_->source == Port::kInpB) rate = std::min(rate, 1 - ports.get(Port::kInpB, PortShares::kLoad));
  if (active_->destination == Port::kAccWrite) {
    rate = std::min(rate, ports.left(Port::kAccWrite, PortShares::kAlu) / active_->writes);
  }
  return std::max(0.0, rate);
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
  const auto& alu = std::get<isa::Alu>(job.item.instruction);
  left_ = static_cast<double>(history_.last_issue(alu, job.form, now) + 1 - now);
  counters().stall_port += history_.port_stalls();
  since_ = now;
  job.item.trace.first_cycle = now;
  counters().busy += job.form.issues;
  if (job.source == Port::kAccRead) context_.ports.set(Port::kAccRead, PortShares::kAlu, 1);
  uses_.push_back({std::max(now + job.form.latency, write_free_), kNever, job.destination, job.writes});
  context_.alu_reads_inp = job.source == Port::kInpB;
  if (job.out_reads > 0) context_.ports.set(Port::kOutRead, PortShares::kAlu, job.out_reads);
  npu_.ports_changed();
}

/// The last issue is in this cycle.
void Alu::end(Cycle now) {
  Job& job = *active_;
  issue_free_ = now + 1;
  const Cycle written = now + job.form.latency;
  uses_.back().to = written + 1;
  write_free_ = written + 1;
  history_.issued(std::get<isa::Alu>(job.item.instruction), job.form, now);
  job.item.trace.last_cycle = now;
  complete(std::move(job.item), written);
  if (job.source == Port::kAccRead) context_.ports.set(Port::kAccRead, PortShares::kAlu, 0);
  context_.alu_reads_inp = false;
  if (job.out_reads > 0) context_.ports.set(Port::kOutRead, PortShares::kAlu, 0);
  active_.reset();
  npu_.ports_changed();
}

void Alu::use_ports(Cycle now) {
  bool changed = false;
  while (!uses_.empty() && uses_.front().to <= now) {
    if (writing_) {
      context_.ports.set(uses_.front().port, PortShares::kAlu, 0);
      changed = true;
    }
    writing_ = false;
    uses_.pop_front();
  }
  if (!uses_.empty() && uses_.front().from <= now && !writing_) {
    writing_ = true;
    context_.ports.set(uses_.front().port, PortShares::kAlu, uses_.front().share);
    changed = true;
  }
  if (changed) npu_.ports_changed();
  if (uses_.empty()) return;
  const Cycle next = writing_ ? uses_.front().to : uses_.front().from;
  if (next != kNever) wake_at(next);
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
      const Cycle free = prepared_->moves ? (issue_free_ == 0 ? 0 : issue_free_ - 1) : write_free_;
      const Cycle from = std::max(prepared_->prepared, free);
      if (from > now) {
        wake_at(from);
        return;
      }
      if (!prepared_->moves) {
        complete(std::move(prepared_->item), from);
        prepared_.reset();
        next_take_ = from;
      } else {
        active_from_ = from + 1;
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
