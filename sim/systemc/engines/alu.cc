// SPDX-License-Identifier: Apache-2.0
#include "sim/systemc/engines/alu.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "sim/systemc/npu.h"

namespace tessera::sim::systemc {
namespace {

constexpr Cycle kSingle = isa::timing::bus::kBeatsWaiting;  // beats that wait for LOAD
constexpr Cycle kApart = 2 * kSingle;                       // in which they come at half the bus's rate

Port write_port(isa::AluSpace space) {
  switch (space) {
    case isa::AluSpace::kAcc: return Port::kAccWrite;
    case isa::AluSpace::kOut: return Port::kOutWrite;
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
  writes_ = {};
  out_reads_ = {};
  acc_reads_ = {};
  walk_.reset(context_.config, context_.gemm_acc);
  context_.alu_reads_inp = false;
}

void Alu::Job::set(const Queued& taken, Cycle now, const isa::Alu& alu, const isa::MachineConfig& config) {
  prepared = now + isa::timing::alu::kPrepare;
  moves = taken.item.fault == isa::Fault::kNone;
  if (!moves) return;
  work = work_of(alu, config);
  destination = write_port(work.alu.dst);
  reads_out_always = work.alu.src == isa::AluSpace::kOut;
  reads_out = reads_out_always || work.form.second;
}

/// What the functional executor has left in ACC tells how long rows take.
template <typename Rows>
void Alu::Job::set(const Queued& taken, Cycle now, const Rows& instruction, const Machine& machine) {
  prepared = now + isa::timing::alu::kPrepare;
  moves = taken.item.fault == isa::Fault::kNone;
  if (moves) rows = row_work(instruction, machine);
}

Alu::Job Alu::describe(const Queued& taken, Cycle now) const {
  Job job;
  job.item = taken.item;
  std::visit(isa::Overloaded{[&](const isa::Fence&) {
                               job.prepared = now + 1;
                               job.moves = false;
                             },
                             [&](const isa::Alu& alu) { job.set(taken, now, alu, context_.config); },
                             [&](const isa::RowReduce& reduce) { job.set(taken, now, reduce, *context_.functional); },
                             [&](const isa::RowMap& map) { job.set(taken, now, map, *context_.functional); },
                             [](const isa::ForeignTo<isa::Engine::kAlu> auto&) {
                               TESSERA_INVARIANT(false, "another engine's instruction in the ALU's queue");
                             }},
             taken.instruction);
  return job;
}

/// LOAD writes a beat in the cycle after it was on the bus, padding at once.
double Alu::load_share(Cycle now) {
  const double share = context_.ports.get(Port::kInpB, PortShares::kLoad);
  if (share != bus_share_) {
    if (bus_since_ < now) bus_before_ = bus_share_;
    bus_share_ = share;
    bus_since_ = now;
  }
  if (bus_since_ == now && bus_before_ != bus_share_) wake_at(now + 1);
  return (bus_since_ == now ? bus_before_ : bus_share_) + context_.padding_share;
}

void Alu::load_share_changed() {
  if (active_ && !active_->rows && begun_ && walk_.reads_inp()) wake();
}

Cycle Alu::writes_from(Port port) const {
  const bool rows = port == Port::kInpB && context_.config.row_lanes > 0;  // they read it soon after their start
  Cycle from = context_.agenda.now() + (rows ? isa::timing::row::kRow + 1 : isa::timing::alu::kLeast);
  for (const Uses* uses : {&writes_, &out_reads_}) {
    for (const Use& use : uses->uses) {
      if (use.port == port) from = std::min(from, use.from);
    }
  }
  return from;
}

void Alu::gemm_taken() {
  if (active_ && !active_->rows && begun_ && walk_.meets_gemm()) wake();
}

void Alu::stalled(Job& job, Cycle cycles) {
  counters().stall_port += cycles;
  job.item.trace.stall_port_cycles += cycles;
}

/// Issues as far as they are known in this cycle, and the use of ports that follows from them.
void Alu::advance(Cycle now) {
  Cycle limit = kNever;
  if (walk_.reads_inp()) {
    walk_.advance(now, inp_share_);  // as it was until now
    inp_share_ = load_share(now);
    limit = now + 1;
  }
  if (walk_.meets_gemm()) limit = std::min(limit, context_.gemm_acc.known(now));
  walk_.advance(limit, inp_share_);
  Job& job = *active_;
  stalled(job, walk_.take_port_stalls());
  for (Uses* uses : {&writes_, &out_reads_, &acc_reads_}) {
    if (!uses->uses.empty() && uses->uses.back().supposed) uses->uses.pop_back();
  }
  for (const AluStretch& ends : walk_.ends()) {
    add_write({ends.from + job.work.form.latency, ends.to + job.work.form.latency, job.destination, ends.share, false});
  }
  for (const AluStretch& reads : walk_.out_reads()) {
    out_reads_.uses.push_back(reads_of(reads, Port::kOutRead));
  }
  for (const AluStretch& reads : walk_.acc_reads()) {
    acc_reads_.uses.push_back(reads_of(reads, Port::kAccRead));
  }
  walk_.forget_stretches();
  if (walk_.done()) return;
  const auto period = static_cast<double>(job.work.form.vector_issues);
  const double share = 1 / period, busy = 1 - static_cast<double>(job.work.form.pause) / period;
  suppose(writes_, walk_.next() + job.work.form.latency, job.destination, share);
  if (job.work.alu.src == isa::AluSpace::kAcc) suppose(acc_reads_, walk_.next() + kReadToBeat, Port::kAccRead, busy);
  if (job.reads_out)
    suppose(out_reads_, walk_.next() + kReadToBeat, Port::kOutRead, job.reads_out_always ? busy : share);
}

/// Single writes a few cycles apart are one stretch of a smaller share: LOAD's queue of beats evens them out.
void Alu::add_write(const Use& use) {
  if (!writes_.uses.empty()) {
    Use& before = writes_.uses.back();
    const bool single = use.to - use.from <= kSingle && (before.to - before.from <= kSingle || before.share < 1);
    if (single && before.port == use.port && use.from - before.to <= kApart) {
      const double writes = before.share * static_cast<double>(before.to - before.from) +
                            use.share * static_cast<double>(use.to - use.from);
      before.to = use.to;
      before.share = writes / static_cast<double>(before.to - before.from);
      return;
    }
  }
  writes_.uses.push_back(use);
}

void Alu::suppose(Uses& uses, Cycle from, Port port, double share) {
  if (!uses.uses.empty()) from = std::max(from, uses.uses.back().to);
  uses.uses.push_back({from, kNever, port, share, true});
}

void Alu::begin(Cycle now) {
  Job& job = *active_;
  begun_ = true;
  walk_.start(job.work.alu, job.work.form, now);
  counters().busy += job.work.form.issues - job.work.form.pause * job.work.form.vectors;
  context_.alu_reads_inp = walk_.reads_inp();
  bus_share_ = bus_before_ = context_.ports.get(Port::kInpB, PortShares::kLoad);
  bus_since_ = now;
  inp_share_ = load_share(now);
}

/// The last issue is in this cycle.
void Alu::end() {
  Job& job = *active_;
  issue_free_ = walk_.last() + 1;
  const Cycle written = walk_.last_write();
  write_free_ = written + 1;
  job.item.trace.first_cycle = walk_.first();
  job.item.trace.last_cycle = walk_.last();
  complete(job.item, written);
  context_.alu_reads_inp = false;
  active_.reset();
}

void Alu::use_ports(Cycle now) {
  for (Uses* uses : {&writes_, &out_reads_, &acc_reads_}) {
    Ring<Use>& ahead = uses->uses;
    while (!ahead.empty() && ahead.front().to <= now) ahead.pop_front();
    const bool used = !ahead.empty() && ahead.front().from <= now;
    const Port port = used ? ahead.front().port : Port::kNone;
    const double share = used ? ahead.front().share : 0;
    if (port != uses->port || share != uses->share) {
      const Port before = uses->port;
      if (before != Port::kNone) context_.ports.set(before, PortShares::kAlu, 0);
      if (port != Port::kNone) context_.ports.set(port, PortShares::kAlu, share);
      uses->port = port;
      uses->share = share;
      if (before != port) npu_.port_changed(before);
      npu_.port_changed(port);
    }
    if (ahead.empty()) continue;
    const Cycle next = used ? ahead.front().to : ahead.front().from;
    if (next != kNever && (uses != &acc_reads_ || context_.acc_moves)) wake_at(next);
  }
}

/// LOAD waits for a read of INP in its cycle, STORE for one of OUT with the beat.
Alu::Use Alu::read_by_rows(const AluStretch& reads) const {
  if (!rows_.reads_inp()) return reads_of(reads, Port::kOutRead);
  return {reads.from, reads.to, Port::kInpB, reads.share, false};
}

/// Ports are in use in an even share of the cycles until the instruction ends.
void Alu::begin_rows(Cycle from) {
  Job& job = *active_;
  rows_.start(std::move(*job.rows), context_.config, from);
  counters().busy += rows_.vectors();
  const RowWork& work = rows_.work();
  const double share = 1 / static_cast<double>(isa::timing::row::turns(context_.config));
  const bool own = work.map && work.source == isa::AluSpace::kInp && work.destination == work.source;
  if (work.map) suppose(writes_, from, write_port(work.destination), own ? 2 * share : share);
  if (work.results) suppose(writes_, from + rows_.first_results(), write_port(work.destination), rows_.results_share());
  if (work.map && !own) {
    const Use use = read_by_rows({from, kNever, share});
    suppose(out_reads_, use.from, use.port, share);
  }
  job.item.trace.first_cycle = from + 1;
}

/// Whether the instruction of rows has ended.
bool Alu::end_rows(Cycle now) {
  Job& job = *active_;
  rows_.advance(context_.gemm_acc.known(now), context_.gemm_acc);
  for (const AluStretch& reads : rows_.source_reads()) {
    if (rows_.reads_acc()) {
      acc_reads_.uses.push_back(reads_of(reads, Port::kAccRead));
    } else {
      out_reads_.uses.push_back(read_by_rows(reads));
    }
  }
  rows_.forget_stretches();
  if (!rows_.done() || rows_.at() > now) {
    wake_at(std::max(rows_.at(), now + 1));
    return false;
  }
  stalled(job, rows_.stalls());
  write_free_ = now + 1;
  issue_free_ = now + 1;
  next_take_ = now + 1;
  job.item.trace.last_cycle = now - 1;
  complete(job.item, now);
  for (Uses* uses : {&writes_, &out_reads_, &acc_reads_}) {
    if (!uses->uses.empty() && uses->uses.back().supposed) uses->uses.pop_back();
  }
  active_.reset();
  return true;
}

void Alu::work(Cycle now) {
  for (;;) {
    if (active_ && active_->rows) {
      const bool ended = end_rows(now);
      use_ports(now);
      if (!ended) return;
    } else if (active_ && now >= active_from_) {
      if (!begun_) begin(now);
      advance(now);
      use_ports(now);
      if (walk_.done() && walk_.last() <= now) {
        end();
        continue;
      }
      const Cycle last = walk_.done() ? walk_.last() : walk_.last_at_least(inp_share_);
      if (last != kNever) wake_at(std::max(last, now + 1));
    } else {
      use_ports(now);
      if (active_) wake_at(active_from_);
    }
    if (prepared_ && !active_) {
      const bool behind_issues = prepared_->moves && !prepared_->rows;  // else behind all writes
      const Cycle free = behind_issues ? (issue_free_ == 0 ? 0 : issue_free_ - 1) : write_free_;
      const Cycle from = std::max(prepared_->prepared, free);
      if (from > now) {
        wake_at(from);
        return;
      }
      if (!prepared_->moves) {
        complete(prepared_->item, from);
        prepared_.reset();
        next_take_ = from;
      } else if (prepared_->rows) {
        active_ = std::move(prepared_);
        prepared_.reset();
        next_take_ = kNever;
        begin_rows(from);
        continue;
      } else {
        active_from_ = from + (isa::timing::alu::kStart - isa::timing::alu::kPrepare);
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
    const Queued* taken = take(now);
    if (taken == nullptr) return;
    prepared_ = describe(*taken, now);
  }
}

}  // namespace tessera::sim::systemc
