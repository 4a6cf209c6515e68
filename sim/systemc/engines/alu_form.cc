// SPDX-License-Identifier: Apache-2.0
#include "sim/systemc/engines/alu_form.h"

#include <algorithm>
#include <array>

#include "isa/verify/effects.h"

namespace tessera::sim::systemc {
namespace {

constexpr double kOwed = isa::timing::bus::kBeatsWaiting + 1;  // beats that LOAD can have waiting, and the one in hand

struct Span {
  int64_t low;
  int64_t high;
  bool meets(const Span& other) const { return low <= other.high && other.low <= high; }
};

Span span_of(const isa::Alu& alu, int64_t address, const std::array<int16_t, isa::kLoops>& stride, size_t loops) {
  Span span{address, address};
  for (size_t k = 0; k < loops; ++k) {
    const int64_t reach = int64_t{alu.extent[k] - 1} * stride[k];
    (reach < 0 ? span.low : span.high) += reach;
  }
  return span;
}

size_t outer_loops(const isa::Alu& alu) { return static_cast<size_t>(isa::kLoops - alu.reduce); }

/// The destinations of vectors one after another.
class Destinations {
 public:
  /// From the n-th vector on.
  Destinations(const isa::Alu& alu, uint64_t n) : alu_(alu), loops_(outer_loops(alu)), entry_(alu.dst_addr) {
    for (size_t k = loops_; k-- > 0;) {
      if (alu.extent[k] == 1) continue;
      index_[k] = static_cast<uint32_t>(n % alu.extent[k]);
      entry_ += static_cast<int32_t>(index_[k]) * alu.dst_stride[k];
      n /= alu.extent[k];
    }
  }
  int32_t next() {
    const int32_t entry = entry_;
    for (size_t k = loops_; k-- > 0;) {
      if (++index_[k] < alu_.extent[k]) {
        entry_ += alu_.dst_stride[k];
        break;
      }
      entry_ -= static_cast<int32_t>(alu_.extent[k] - 1) * alu_.dst_stride[k];
      index_[k] = 0;
    }
    return entry;
  }

 private:
  const isa::Alu& alu_;
  size_t loops_;
  std::array<uint32_t, isa::kLoops> index_{};
  int32_t entry_;
};

}  // namespace

AluWork work_of(const isa::Alu& alu, const isa::MachineConfig& config) {
  const isa::Effects effects = isa::effects_beside_scratchpads(alu, config);
  AluForm form;
  form.vectors = static_cast<uint64_t>(effects.results);
  form.issues = static_cast<uint64_t>(effects.steps + effects.pauses);
  form.pause = static_cast<uint64_t>(effects.pauses) / form.vectors;
  form.vector_issues = form.issues / form.vectors;
  form.latency = static_cast<Cycle>(effects.latency_cycles);
  form.second = alu.second_op != isa::SecondOp::kNone;
  form.split = form.second && alu.src == isa::AluSpace::kOut;
  return {alu, form};
}

void AluWalk::reset(const isa::MachineConfig& config, const AccUse& acc) {
  acc_ = &acc;
  written_[static_cast<size_t>(isa::AluSpace::kAcc)].assign(static_cast<size_t>(config.acc_depth()), 0);
  written_[static_cast<size_t>(isa::AluSpace::kOut)].assign(static_cast<size_t>(config.out_depth()), 0);
  written_[static_cast<size_t>(isa::AluSpace::kInp)].assign(static_cast<size_t>(config.inp_depth()), 0);
  writes_.clear();
  ends_.clear();
  out_reads_.clear();
  acc_reads_.clear();
  next_ = last_at_ = last_acc_write_ = last_inp_write_ = port_stalls_ = occupied_ = 0;
  owed_ = 0;
  window_ = static_cast<uint64_t>(isa::timing::alu::under_way(config)) + 1;
  turns_ = static_cast<Cycle>(isa::timing::alu::turns(config));
}

void AluWalk::start(const isa::Alu& alu, const AluForm& form, Cycle from) {
  // What is under way goes on while nothing is issued.
  for (; next_ < from && last_acc_write_ >= next_; ++next_) refused(next_);
  next_ = from;
  alu_ = alu;
  form_ = form;
  sources_ = form.vector_issues - form.pause - (form.split ? 1 : 0);
  // The first vector waits for no more than the second operation's last one needs.
  const Cycle free = occupied_ - std::min<Cycle>(occupied_, form.split ? 1 : 0);
  issued_ = form.pause - std::min<uint64_t>(form.pause, free > from ? free - from : 0);
  begun_ = false;
  placed_ = false;
  while (!writes_.empty() && writes_.front().at < from) writes_.pop_front();
  const size_t outer = outer_loops(alu);
  const Span src = span_of(alu, alu.src_addr, alu.src_stride, isa::kLoops);
  const Span dst = span_of(alu, alu.dst_addr, alu.dst_stride, outer);
  const Span second = span_of(alu, alu.second_addr, alu.second_stride, outer);
  careful_ = (alu.src == alu.dst && (src.meets(dst) || alu.src == isa::AluSpace::kInp)) ||
             (form.second && alu.dst == isa::AluSpace::kOut && second.meets(dst));
  bool meets = false;
  for (const Write& write : writes_) {
    meets = meets ||
            (write.space == alu.src && (src.meets({write.entry, write.entry}) || alu.src == isa::AluSpace::kInp)) ||
            (form.second && write.space == isa::AluSpace::kOut && second.meets({write.entry, write.entry}));
  }
  older_until_ = meets ? writes_.back().at : 0;
}

/// Finds the entries of issue number issued_.
void AluWalk::place() {
  placed_ = true;
  source_ = alu_.src_addr;
  target_ = alu_.dst_addr;
  other_ = alu_.second_addr;
  const uint64_t part = issued_ % form_.vector_issues;
  uint64_t position =
      issued_ / form_.vector_issues * sources_ + std::min(part - std::min(part, form_.pause), sources_ - 1);
  for (size_t k = isa::kLoops; k-- > 0;) {
    index_[k] = static_cast<uint32_t>(position % alu_.extent[k]);
    position /= alu_.extent[k];
    source_ += int64_t{index_[k]} * alu_.src_stride[k];
    target_ += int64_t{index_[k]} * alu_.dst_stride[k];
    other_ += int64_t{index_[k]} * alu_.second_stride[k];
  }
}

/// One step of the nest.
void AluWalk::move_on() {
  for (size_t k = isa::kLoops; k-- > 0;) {
    if (++index_[k] < alu_.extent[k]) {
      source_ += alu_.src_stride[k];
      target_ += alu_.dst_stride[k];
      other_ += alu_.second_stride[k];
      return;
    }
    source_ -= int64_t{alu_.extent[k] - 1} * alu_.src_stride[k];
    target_ -= int64_t{alu_.extent[k] - 1} * alu_.dst_stride[k];
    other_ -= int64_t{alu_.extent[k] - 1} * alu_.second_stride[k];
    index_[k] = 0;
  }
}

/// `count` cycles, the last one of them `last`, each `pace` behind the one before.
void AluWalk::add(std::vector<AluStretch>& stretches, Cycle last, uint64_t count, uint64_t pace) {
  const Cycle from = last + 1 - count * pace, to = last + 1;
  if (!stretches.empty() && stretches.back().to == from && stretches.back().share * static_cast<double>(pace) == 1) {
    stretches.back().to = to;
  } else {
    const Cycle first = stretches.empty() ? from : std::max(from, stretches.back().to);
    stretches.push_back({first, to, static_cast<double>(count) / static_cast<double>(to - first)});
  }
}

/// A source that is not OUT's is refused; a second operand is asked for together with it.
void AluWalk::refused_read(Cycle from, Cycle to) {
  if (to <= from) return;
  port_stalls_ += to - from;
  if (form_.second && (issued_ + 1) % form_.vector_issues == 0) add(out_reads_, to - 1, to - from, 1);
}

void AluWalk::write(int32_t entry, Cycle at) {
  while (!writes_.empty() && (writes_.front().at < next_ || writes_.size() > window_)) writes_.pop_front();
  writes_.push_back({alu_.dst, entry, at});
  written(alu_.dst, entry) = last_at_ = at;
  if (alu_.dst == isa::AluSpace::kAcc) last_acc_write_ = at;
  if (alu_.dst == isa::AluSpace::kInp) last_inp_write_ = at;
}

/// Whether a write is refused in this cycle; all that is under way is late by one more.
bool AluWalk::refused(Cycle at) {
  size_t due = 0;
  while (due < writes_.size() && writes_[due].at < at) ++due;
  if (due == writes_.size() || writes_[due].at != at || writes_[due].space != isa::AluSpace::kAcc ||
      !acc_->writes(at)) {
    return false;
  }
  for (; due < writes_.size(); ++due) {
    Write& write = writes_[due];
    ++write.at;
    written(write.space, write.entry) = write.at;
    if (write.space == isa::AluSpace::kAcc) last_acc_write_ = write.at;
    if (write.space == isa::AluSpace::kInp) last_inp_write_ = write.at;
  }
  last_at_ = writes_.back().at;
  if (older_until_ >= at) ++older_until_;
  if (occupied_ > at) ++occupied_;
  return true;
}

/// The first cycle, at most `limit`, in which the next issues may have to wait for something.
Cycle AluWalk::straight(Cycle limit, double load_share) const {
  if (careful_ || next_ <= older_until_) return next_;
  if (reads_inp() && (load_share > 0 || last_inp_write_ >= next_)) return next_;
  if (issued_ < form_.vector_issues && next_ + form_.vector_issues - issued_ - 1 + form_.latency <= last_at_) {
    return next_;
  }
  if (alu_.src == isa::AluSpace::kAcc) limit = std::min(limit, acc_->next_read(next_));
  if (writes_acc() || last_acc_write_ >= next_) limit = std::min(limit, acc_->next_write(next_));
  return limit;
}

/// Cycles up to `last`, from `from` on, of which reads of a memory take a share: pauses lie between them.
void AluWalk::reads(std::vector<AluStretch>& stretches, Cycle from, Cycle last, double share) {
  if (!stretches.empty()) {
    AluStretch& before = stretches.back();
    from = std::max(from, before.to);
    if (before.to == from && before.share == share) {
      before.to = std::max(before.to, last + 1);
      return;
    }
  }
  if (from <= last) stretches.push_back({from, last + 1, share});
}

/// The share of OUT's reads in a vector without a wait.
double AluWalk::out_share() const {
  const uint64_t reads = (alu_.src == isa::AluSpace::kOut ? sources_ : 0) + (form_.second ? 1 : 0);
  return static_cast<double>(reads) / static_cast<double>(form_.vector_issues);
}

/// The share of ACC's: a source that waits for something keeps STORE away too, and a pause does not.
double AluWalk::acc_share() const {
  return 1 - static_cast<double>(form_.pause) / static_cast<double>(form_.vector_issues);
}

/// The next `count` issues without a wait.
void AluWalk::skip(uint64_t count) {
  const uint64_t before = issued_ / form_.vector_issues, over = issued_ % form_.vector_issues;
  const Cycle begin = next_;
  if (!begun_ && over + count > form_.pause) {
    begun_ = true;
    first_ = next_ + form_.pause - std::min(form_.pause, over);
  }
  issued_ += count;
  next_ += count;
  last_ = next_ - 1;
  placed_ = false;
  if (alu_.src == isa::AluSpace::kOut) reads(out_reads_, begin, last_, out_share());
  const uint64_t vectors = issued_ / form_.vector_issues;
  if (vectors == before) return;
  const auto end = [&](uint64_t n) { return begin + (n + 1 - before) * form_.vector_issues - over - 1; };
  add(ends_, end(vectors - 1), vectors - before, form_.vector_issues);
  if (form_.second && !form_.split) add(out_reads_, end(vectors - 1), vectors - before, form_.vector_issues);
  // Those that are still under way.
  const uint64_t window = std::min(vectors - before, (form_.latency - 1) / form_.vector_issues + 1);
  if (form_.second) occupied_ = end(vectors - 1) + turns_;
  Destinations destinations(alu_, vectors - window);
  for (uint64_t n = vectors - window; n < vectors; ++n) write(destinations.next(), end(n) + form_.latency);
}

/// Whether a read of INP is refused in this cycle: the ALU's own writes come first, then what LOAD wants, also what it
/// has not got for them.
bool AluWalk::inp_refuses(Cycle at, double load_share) {
  owed_ = std::min(owed_ + load_share, kOwed);
  for (const Write& write : writes_)
    if (write.at == at && write.space == isa::AluSpace::kInp) return true;
  if (owed_ < 1) return false;
  owed_ -= 1;
  return true;
}

/// The cycle of the write that an issue's reads have to wait for; nothing where there is none.
std::optional<Cycle> AluWalk::awaited_write(Cycle at, bool reads_source, bool reads_second) {
  if (reads_source) {
    const Cycle written_at = written(alu_.src, static_cast<int32_t>(source_));
    if (written_at >= at) return written_at;
  }
  if (reads_second) {
    const Cycle written_at = written(isa::AluSpace::kOut, static_cast<int32_t>(other_));
    if (written_at >= at) return written_at;
  }
  return std::nullopt;
}

/// The issue of part `part` of a vector takes place in this cycle.
void AluWalk::issue(Cycle at, uint64_t part) {
  const bool end = part + 1 == form_.vector_issues;
  if (!begun_) first_ = at;
  begun_ = true;
  last_ = at;
  ++issued_;
  if (form_.pause == 0) {
    if (alu_.src == isa::AluSpace::kOut || (end && form_.second)) add(out_reads_, at, 1, 1);
  } else if (end) {
    const bool waited = !out_reads_.empty() && out_reads_.back().to >= at;
    reads(out_reads_, at + 1 - std::min<Cycle>(at, form_.vector_issues), at, waited ? 1 : out_share());
  }
  if (end) {
    add(ends_, at, 1, form_.vector_issues);
    write(static_cast<int32_t>(target_), at + form_.latency);
    if (form_.second) occupied_ = at + turns_;
  }
  if (!(form_.split && part + 2 == form_.vector_issues)) move_on();
}

/// One cycle, with or without an issue.
void AluWalk::cycle(double load_share) {
  const Cycle at = next_++;
  if (last_acc_write_ >= at && refused(at)) {
    ++port_stalls_;
    return;
  }
  const uint64_t part = issued_ % form_.vector_issues;
  if (part < form_.pause) {
    if (reads_inp()) owed_ = std::max(0.0, owed_ - (1 - load_share));  // LOAD has INP in the pause
    ++issued_;
    return;
  }
  if (!placed_) place();
  const bool end = part + 1 == form_.vector_issues;
  const bool second_alone = form_.split && end;
  const bool stepping = last_acc_write_ >= at;  // refusals have to be seen in each cycle
  const auto until = [&](Cycle cycle) {
    if (!stepping) next_ = std::max(next_, cycle);
  };
  if (const auto written_at = awaited_write(at, !second_alone, end && form_.second)) {
    until(*written_at + 1);
    // A read that waits for a write keeps STORE away from OUT, and so did the source in front of a second operand.
    if (alu_.src == isa::AluSpace::kOut || (end && form_.second)) {
      reads(out_reads_, at - (second_alone ? 1 : 0), next_ - 1, 1);
    }
    return;
  }
  if (end && at + form_.latency <= last_at_) {
    early_ = true;
    return until(last_at_ + 1 - form_.latency);
  }
  if (!second_alone && alu_.src == isa::AluSpace::kAcc && acc_->reads(at)) {
    until(acc_->after_reads(at));
    return refused_read(at, next_);
  }
  if (!second_alone && reads_inp() && inp_refuses(at, load_share)) {
    if (form_.pause == 0) return refused_read(at, next_);
    // STORE has groups waiting and does not notice OUT's port taken for a cycle where a pause is near.
    ++port_stalls_;
    return;
  }
  issue(at, part);
}

void AluWalk::advance(Cycle limit, double load_share) {
  if (done()) return;
  while (!done() && next_ < limit) {
    const Cycle to = straight(limit, load_share), from = next_;
    early_ = false;
    if (to > next_) {
      skip(std::min(form_.issues - issued_, to - next_));
    } else if (reads_inp() && load_share > 1 - 1e-6) {
      refused_read(next_, limit);
      next_ = limit;
    } else {
      cycle(load_share);
    }
    if (alu_.src == isa::AluSpace::kAcc && !early_) reads(acc_reads_, from, next_ - 1, acc_share());
  }
}

Cycle AluWalk::last_at_least(double load_share) const {
  const auto left = static_cast<double>(form_.issues - issued_ - 1);
  if (!reads_inp()) return next_ + form_.issues - issued_ - 1;
  return load_share > 1 - 1e-6 ? kNever : next_ + static_cast<Cycle>(left / (1 - load_share));
}

Cycle AluWalk::last_write() const {
  if (!writes_acc()) return last_at_;
  Cycle late = 0;
  for (const Write& write : writes_) {
    while (write.space == isa::AluSpace::kAcc && write.at > last_ && acc_->writes(write.at + late)) ++late;
  }
  return last_at_ + late;
}

}  // namespace tessera::sim::systemc
