// SPDX-License-Identifier: Apache-2.0
#include "sim/systemc/engines/rows.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "base/row_arithmetic.h"
#include "sim/functional/engines/nest.h"

namespace tessera::sim::systemc {
namespace {

/// The third scalar of a row.
int32_t exponent_at(const Machine& machine, int32_t entry) {
  int32_t exponent = 0;
  std::memcpy(
      &exponent,
      machine.scratchpad(isa::Space::kAcc).data() + entry * machine.config().acc_entry_bytes() + 2 * sizeof exponent,
      sizeof exponent);
  return exponent;
}

}  // namespace

RowWork row_work(const isa::RowReduce& i, const Machine& machine) {
  RowWork work;
  work.maxima = i.operation == isa::Reduction::kMax;
  work.reads_scalars = i.operation == isa::Reduction::kSumExp;
  work.group = isa::timing::row::group(machine.config());
  work.entries = isa::row_nest(i).entries;
  work.source = i.src;
  work.first = static_cast<Cycle>(isa::row_first_cycles(i));
  work.row_cycles.assign(static_cast<size_t>(isa::row_nest(i).rows), static_cast<uint32_t>(isa::row_end_cycles(i)));
  return work;
}

RowWork row_work(const isa::RowMap& i, const Machine& machine) {
  RowWork work;
  work.entries = isa::row_nest(i).entries;
  work.source = i.src;
  work.destination = i.dst;
  if (i.operation == isa::Mapping::kSumSoftmax) {
    work.results = true;
    work.group = isa::timing::row::group(machine.config());
    work.row_cycles.resize(static_cast<size_t>(isa::row_nest(i).rows));
    return work;
  }
  work.map = true;
  work.next = static_cast<Cycle>(isa::row_next_cycles(i));
  const auto inner = make_nest(isa::kLoops - i.row, i.row, i.extent, i.src_stride, i.dst_stride);
  const bool own = i.src == i.dst;
  if (own) {
    for_each_iteration(inner, {0, 0}, [&](const std::array<int32_t, 2>& at) { work.vectors.push_back(at); });
  }
  const auto nest = make_nest(0, isa::kLoops - i.row, i.extent, i.src_stride, i.dst_stride, i.scalar_stride);
  const std::array<int32_t, 3> start{i.src_addr, i.dst_addr, i.scalar_addr};
  for_each_iteration(nest, start, [&](const std::array<int32_t, 3>& at) {
    if (own) work.places.push_back({at[0], at[1]});
    work.row_cycles.push_back(static_cast<uint32_t>(isa::row_setup_cycles(i, exponent_at(machine, at[2]) & 31)));
  });
  return work;
}

void RowWalk::start(RowWork work, const isa::MachineConfig& config, Cycle from) {
  work_ = std::move(work);
  config_ = &config;
  at_ = step_at_ = from + 1;
  row_ = gathered_ = first_ = kept_ = 0;
  write_at_ = walked_ = kNever;
  written_ = 0;
  maxima_.clear();
  begins_.assign(work_.maxima ? static_cast<size_t>(work_.group) : 0, from + 1);
  stalls_ = 0;
  reads_ = before_ = 0;
  asked_ = 0;
  ask_at_ = from + 1;
  read_at_ = ready_ = kNever;
  free_ = 0;
  under_way_.clear();
  source_reads_.clear();
  source_at_ = kNever;
}

void RowWalk::advance(Cycle limit, const AccUse& acc) {
  if (work_.map) {
    advance_map(limit, acc);
  } else if (work_.maxima) {
    advance_maxima(limit, acc);
  } else {
    advance_sums(limit, acc);
  }
}

/// A group's results are written while the next group is walked.
void RowWalk::advance_sums(Cycle limit, const AccUse& acc) {
  while (!done()) {
    at_ = std::min({step_at_, write_at_, source_at_});
    if (at_ >= limit) return;
    if (source_at_ == at_) {
      if (!source_refused(limit, acc)) next_source();
    } else if (write_at_ <= step_at_) {
      if (wait_to_write(limit, acc)) write();
    } else if (!refused(limit, acc)) {
      scalars();
    }
  }
}

/// Rows are read one behind another. Each begins when its result has a place.
void RowWalk::advance_maxima(Cycle limit, const AccUse& acc) {
  while (!done()) {
    begin_maximum();
    at_ = std::min(read_at_, write_at_);
    if (at_ >= limit) return;
    if (read_at_ <= write_at_) {
      read_for_maximum();
    } else if (wait_to_write(limit, acc)) {
      written_ = at_ = write_at_;
      begins_.push_back(at_ + 1);
      maxima_.pop_front();
      write_at_ = maxima_.empty() ? kNever : std::max(maxima_.front(), at_ + isa::timing::row::kReduce);
      ++row_;
    }
  }
}

/// When the next row's vectors are read.
void RowWalk::begin_maximum() {
  if (read_at_ != kNever || gathered_ == work_.row_cycles.size() || begins_.empty()) return;
  read_at_ = std::max(free_, begins_.front()) + isa::timing::row::kRow;
  begins_.pop_front();
  ++gathered_;
}

void RowWalk::read_for_maximum() {
  free_ = read_at_ + static_cast<Cycle>(work_.entries);
  source_reads_.push_back({read_at_, free_, 1});
  maxima_.push_back(free_ - 1 + isa::timing::row::kMax);
  if (maxima_.size() == 1) {
    write_at_ = std::max(maxima_.front(), written_ == 0 ? 0 : written_ + isa::timing::row::kReduce);
  }
  read_at_ = kNever;
}

/// Waits for GEMM's reads; whether it does so beyond what is known.
bool RowWalk::refused(Cycle limit, const AccUse& acc) {
  const Cycle from = step_at_;
  while (work_.reads_scalars && step_at_ < limit && acc.reads(step_at_)) ++step_at_;
  stalls_ += step_at_ - from;
  return step_at_ >= limit;
}

/// Waits for GEMM's writes; whether the result is written in what is known.
bool RowWalk::wait_to_write(Cycle limit, const AccUse& acc) {
  const Cycle from = write_at_;
  while (write_at_ < limit && acc.writes(write_at_)) ++write_at_;
  stalls_ += write_at_ - from;
  return write_at_ < limit;
}

/// A row's address, and its maximum; behind those of a group its walk.
void RowWalk::scalars() {
  step_at_ += isa::timing::row::kGather;
  if (++gathered_ < std::min(work_.row_cycles.size(), first_ + static_cast<size_t>(work_.group))) return;
  const auto rows = static_cast<int64_t>(gathered_ - first_);
  const auto walk = static_cast<Cycle>(isa::row_walk_cycles(*config_, rows, work_.entries));
  const auto turns = static_cast<Cycle>(isa::timing::row::turns(*config_));
  const Cycle reading = std::min(walk, static_cast<Cycle>(std::max(rows, before_) * work_.entries) * turns);
  const double share = static_cast<double>(rows + before_) / static_cast<double>(std::max(rows, before_));
  source_reads_.push_back({step_at_, step_at_ + reading, share / static_cast<double>(turns)});
  if (reads_acc()) return read_sources(step_at_, rows, step_at_ + walk + isa::timing::row::kRounding);
  walked(step_at_ + walk);
}

/// Vectors of ACC are read slot by slot, from this cycle on; a read that GEMM refuses moves all that follow.
void RowWalk::read_sources(Cycle first, int64_t rows, Cycle behind) {
  step_at_ = kNever;
  slot_rows_ = rows;
  behind_ = behind;
  slot_ = -1;
  second_half_ = true;
  source_at_ = first - static_cast<Cycle>(isa::timing::row::turns(*config_) - isa::timing::row::beside(*config_));
  next_source();
}

/// The next read that its group has; behind the last one the lanes' work.
void RowWalk::next_source() {
  const int64_t most = std::max(slot_rows_, before_), beside = isa::timing::row::beside(*config_);
  for (;;) {
    second_half_ = !second_half_;
    if (!second_half_ && ++slot_ == most * work_.entries) break;
    source_at_ += static_cast<Cycle>(second_half_ ? beside : isa::timing::row::turns(*config_) - beside);
    if (slot_ % most < (second_half_ ? before_ : slot_rows_)) return;
  }
  source_at_ = kNever;
  if (slot_rows_ > 0) return walked(behind_);
  row_ = work_.row_cycles.size();
  at_ = behind_;
}

/// Waits for GEMM's reads; whether it does so beyond what is known.
bool RowWalk::source_refused(Cycle limit, const AccUse& acc) {
  const Cycle from = source_at_;
  while (source_at_ < limit && acc.reads(source_at_)) ++source_at_;
  stalls_ += source_at_ - from;
  behind_ += source_at_ - from;
  return source_at_ >= limit;
}

Cycle RowWalk::first_results() const {
  const auto rows = std::min(work_.group, static_cast<int64_t>(work_.row_cycles.size()));
  return static_cast<Cycle>(isa::row_sum_cycles(*config_, rows, work_.entries) +
                            isa::row_rounding_cycles(work_.source));
}

double RowWalk::results_share() const {
  const auto rows = static_cast<int64_t>(work_.row_cycles.size());
  const int64_t later = (rows - 1) / work_.group * isa::row_sum_cycles(*config_, work_.group, work_.entries) +
                        isa::row_rest_cycles(*config_, std::min(rows, work_.group), work_.entries);
  return std::min(1.0, static_cast<double>(rows * work_.entries) / static_cast<double>(later));
}

/// The results of the last group.
void RowWalk::rest(Cycle from) {
  const auto turns = static_cast<Cycle>(isa::timing::row::turns(*config_));
  const Cycle slots = from + isa::timing::row::kRest;
  const Cycle first = slots + static_cast<Cycle>(isa::timing::row::beside(*config_));
  const auto vectors = static_cast<Cycle>(before_ * work_.entries);
  source_reads_.push_back({first, first + vectors * turns, 1 / static_cast<double>(turns)});
  const Cycle end = from + static_cast<Cycle>(isa::row_rest_cycles(*config_, before_, work_.entries));
  if (reads_acc()) return read_sources(slots, 0, end + isa::timing::row::kRounding);
  row_ = work_.row_cycles.size();
  at_ = end;
}

/// A group's results stand at the lanes from this cycle on.
void RowWalk::walked(Cycle at) {
  walked_ = at;
  step_at_ = kNever;
  if (write_at_ == kNever) keep();
}

/// They are kept; the next group is gathered.
void RowWalk::keep() {
  const Cycle from = written_ == 0 ? walked_ : std::max(walked_, written_ + isa::timing::row::kTurnover);
  const Cycle end = from + static_cast<Cycle>(isa::timing::row::capture(*config_));
  before_ = work_.results ? static_cast<int64_t>(gathered_ - first_) : 0;
  first_ = kept_ = gathered_;
  walked_ = kNever;
  if (work_.results) {
    step_at_ = end;
    if (gathered_ == work_.row_cycles.size()) rest(end);
    return;
  }
  write_at_ = end + work_.first + work_.row_cycles[row_] - 1;
  if (gathered_ < work_.row_cycles.size()) step_at_ = end;
}

/// ROW_MAP: while a row's vectors are read, the next row's scalars are asked for.
void RowWalk::advance_map(Cycle limit, const AccUse& acc) {
  while (!done()) {
    at_ = ask_at_;
    while (ask_at_ < limit && acc.reads(ask_at_)) ++ask_at_;
    stalls_ += ask_at_ - at_;
    at_ = ask_at_;
    if (at_ >= limit) return;
    answer();
  }
}

/// A row's scalars are read: its vectors may be when its factor is made.
void RowWalk::answer() {
  ready_ = ask_at_ + work_.row_cycles[asked_++];
  ask_at_ = kNever;
  begin_row();
}

/// The reads of the next row, if its factor has a time and those of the row before are over.
void RowWalk::begin_row() {
  if (ready_ == kNever || read_at_ != kNever) return;
  read_at_ = std::max(ready_, free_);
  ready_ = kNever;
  for (int64_t k = 0; k < work_.entries; ++k) read_vector(own_free(read_at_));
}

/// When the next vector may be read, from this cycle on: behind the writing of its source, and where its own results
/// leave the port of INP.
Cycle RowWalk::own_free(Cycle at) {
  if (work_.vectors.empty()) return at;
  const Cycle written = static_cast<Cycle>(isa::timing::row::turns(*config_)) + isa::timing::row::kMap - 1;
  const int32_t source = work_.places[row_][0] + work_.vectors[static_cast<size_t>(reads_)][0];
  for (const auto& [entry, from] : under_way_) {
    if (entry == source) at = std::max(at, from + written);
  }
  for (const auto& [entry, from] : under_way_) {
    if (!reads_inp() || from + written - 1 != at) continue;
    ++at;
    ++stalls_;
  }
  return at;
}

/// A vector's read is granted.
void RowWalk::read_vector(Cycle at) {
  const auto turns = static_cast<Cycle>(isa::timing::row::turns(*config_));
  if (!work_.vectors.empty()) {
    if (under_way_.size() > 1 + isa::timing::row::kMap / turns) under_way_.pop_front();
    under_way_.push_back({work_.places[row_][1] + work_.vectors[static_cast<size_t>(reads_)][1], at});
  }
  if (reads_ == 0 && asked_ < work_.row_cycles.size()) ask_at_ = at + work_.next;
  free_ = read_at_ = at + turns;
  if (++reads_ < work_.entries) return;
  reads_ = 0;
  read_at_ = kNever;
  if (++row_ == work_.row_cycles.size())
    at_ = free_ + isa::timing::row::kMap - 1;
  else
    begin_row();
}

/// A row's result.
void RowWalk::write() {
  written_ = at_ = write_at_;
  if (++row_ == work_.row_cycles.size()) return;
  if (row_ < kept_) {
    write_at_ += work_.row_cycles[row_];
    return;
  }
  write_at_ = kNever;
  if (walked_ != kNever) keep();
}

}  // namespace tessera::sim::systemc
