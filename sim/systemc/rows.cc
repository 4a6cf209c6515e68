// SPDX-License-Identifier: Apache-2.0
#include "sim/systemc/rows.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/row_arithmetic.h"
#include "sim/functional/nest.h"

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

/// By how many places V of a row's moments has been moved, where its scalars do not tell.
int64_t places_of(const isa::RowReduce& i, const Machine& machine, int32_t first) {
  const auto lanes = static_cast<size_t>(machine.config().block_out);
  const uint8_t* src = machine.scratchpad(i.src == isa::AluSpace::kInp ? isa::Space::kInp : isa::Space::kOut).data();
  const auto inner = make_nest(isa::kLoops - i.row, i.row, i.extent, i.src_stride);
  int64_t sum = 0, squares = 0;
  uint64_t left = inner.iterations();
  for_each_iteration(inner, {first}, [&](const std::array<int32_t, 1>& at) {
    const uint8_t* bytes = src + static_cast<size_t>(at[0]) * lanes;
    for (size_t o = 0, count = --left == 0 ? i.tail : lanes; o < count; ++o) {
      const int64_t x = (i.src_unsigned ? bytes[o] : static_cast<int8_t>(bytes[o])) - i.zero;
      sum += x;
      squares += x * x;
    }
  });
  return rows::moment_places(sum, squares, {i.length, i.shift, i.offset, i.epsilon, i.centre});
}

/// Cycles that reads of a row wait for results of its own which are still to be written: `steps` has source and
/// destination of each vector.
int64_t own_waits(const std::vector<std::array<int32_t, 2>>& steps, int64_t from, int64_t to, int64_t turns) {
  const int64_t written = turns + isa::timing::row::kMap - 1;  // from the take of a vector to that of its result
  std::vector<int64_t> taken(steps.size());
  const auto under_way = static_cast<size_t>(written / turns) + 1;
  for (size_t k = 1; k < steps.size(); ++k) {
    taken[k] = taken[k - 1] + turns;
    for (size_t j = k > under_way ? k - under_way : 0; j < k; ++j) {
      if (to + steps[j][1] == from + steps[k][0]) taken[k] = std::max(taken[k], taken[j] + written);
    }
  }
  return taken.back() - turns * static_cast<int64_t>(steps.size() - 1);
}

}  // namespace

RowWork row_work(const isa::RowReduce& i, const Machine& machine) {
  RowWork work;
  work.reads_scalars = i.operation == isa::Reduction::kSumExp;
  work.group = isa::timing::row::group(machine.config());
  work.entries = isa::row_nest(i).entries;
  work.source = i.src;
  const auto nest = make_nest(0, isa::kLoops - i.row, i.extent, i.src_stride, i.scalar_stride);
  for_each_iteration(nest, {i.src_addr, i.scalar_addr}, [&](const std::array<int32_t, 2>& at) {
    int64_t places = 0;
    if (i.operation == isa::Reduction::kMoments) {
      const int32_t exponent = exponent_at(machine, at[1]);  // 24 - places / 2 + offset, clamped
      places = exponent > 0 && exponent < 31 ? 2 * (24 - (int64_t{exponent} - i.offset)) : places_of(i, machine, at[0]);
    }
    work.row_cycles.push_back(static_cast<uint32_t>(isa::row_end_cycles(i, places)));
  });
  return work;
}

RowWork row_work(const isa::RowMap& i, const Machine& machine) {
  RowWork work;
  work.map = true;
  work.entries = isa::row_nest(i).entries;
  work.source = i.src;
  work.destination = i.dst;
  const int64_t walk = isa::row_map_cycles(machine.config(), work.entries);
  const int64_t turns = isa::timing::row::turns(machine.config());
  std::vector<std::array<int32_t, 2>> steps;
  if (i.src == i.dst) {
    const auto inner = make_nest(isa::kLoops - i.row, i.row, i.extent, i.src_stride, i.dst_stride);
    for_each_iteration(inner, {0, 0}, [&](const std::array<int32_t, 2>& at) { steps.push_back(at); });
  }
  const auto nest = make_nest(0, isa::kLoops - i.row, i.extent, i.src_stride, i.dst_stride, i.scalar_stride);
  const std::array<int32_t, 3> start{i.src_addr, i.dst_addr, i.scalar_addr};
  int32_t apart = 0;
  int64_t waits = -1;  // of rows whose source and destination are so far apart
  for_each_iteration(nest, start, [&](const std::array<int32_t, 3>& at) {
    if (!steps.empty() && (waits < 0 || at[1] - at[0] != apart)) waits = own_waits(steps, at[0], at[1], turns);
    apart = at[1] - at[0];
    const int64_t setup = isa::row_setup_cycles(i, exponent_at(machine, at[2]) & 31);
    work.row_cycles.push_back(static_cast<uint32_t>(setup + walk + std::max<int64_t>(waits, 0)));
  });
  return work;
}

void RowWalk::start(RowWork work, const isa::MachineConfig& config, Cycle from) {
  work_ = std::move(work);
  config_ = &config;
  phase_ = Phase::kScalars;
  at_ = from + 1;
  row_ = gathered_ = 0;
  stalls_ = 0;
  reads_ = 0;
  owed_ = 0;
}

/// Behind the last row of the group in hand.
size_t RowWalk::group_end() const {
  const auto group = static_cast<size_t>(work_.group);
  return std::min(work_.row_cycles.size(), (row_ / group + 1) * group);
}

void RowWalk::advance(Cycle limit, const AccUse& acc, double load_share) {
  while (!done() && at_ < limit && !refused(limit, acc, load_share)) {
    switch (phase_) {
      case Phase::kScalars: scalars(); break;
      case Phase::kReads: read(); break;
      case Phase::kWrites: write(); break;
    }
  }
}

/// Waits for the port of the next step; whether it does so beyond what is known.
bool RowWalk::refused(Cycle limit, const AccUse& acc, double load_share) {
  const Cycle from = at_;
  switch (phase_) {
    case Phase::kScalars:
      while (work_.reads_scalars && at_ < limit && acc.reads(at_)) ++at_;
      break;
    case Phase::kReads:
      for (; at_ < limit; ++at_) {
        owed_ += load_share;
        if (owed_ < 1) break;
        owed_ -= 1;
      }
      break;
    case Phase::kWrites:
      while (at_ < limit && acc.writes(at_)) ++at_;
      break;
  }
  stalls_ += at_ - from;
  return at_ >= limit;
}

/// A row's address or scalars.
void RowWalk::scalars() {
  if (work_.map) {
    if (reads_inp()) {
      at_ += work_.row_cycles[row_] - static_cast<Cycle>(isa::row_map_cycles(*config_, work_.entries));
      phase_ = Phase::kReads;
      return;
    }
    at_ += work_.row_cycles[row_];
    if (++row_ == work_.row_cycles.size()) --at_;
    return;
  }
  at_ += isa::timing::row::kGather;
  if (++gathered_ < group_end()) return;
  if (reads_inp()) {
    walk_from_ = at_;
    phase_ = Phase::kReads;
    return;
  }
  at_ += static_cast<Cycle>(isa::row_walk_cycles(*config_, static_cast<int64_t>(gathered_ - row_), work_.entries));
  at_ += work_.row_cycles[row_] - 1;
  phase_ = Phase::kWrites;
}

/// A vector's read is granted.
void RowWalk::read() {
  const auto turns = static_cast<Cycle>(isa::timing::row::turns(*config_));
  const Cycle taken = at_ + 1;
  ++reads_;
  at_ = taken + turns - 1;
  if (work_.map) {
    if (reads_ < work_.entries) return;
    reads_ = 0;
    phase_ = Phase::kScalars;
    at_ = taken + turns + isa::timing::row::kMap - 1;
    if (++row_ == work_.row_cycles.size()) --at_;
    return;
  }
  const auto rows = static_cast<int64_t>(gathered_ - row_);
  if (reads_ % rows != 0) return;
  const int64_t entry = reads_ / rows - 1;
  // The lanes begin with an entry in every fourth cycle, or right behind the one before.
  const Cycle full = taken + turns + 1, free = entry == 0 ? 0 : ends_[0];
  Cycle begin = free;
  if (entry == 0 || full >= free) {
    const Cycle least = std::max(full, free) + 1;
    begin = walk_from_ + (least - walk_from_ + 3) / 4 * 4;
  }
  ends_[1] = free;
  ends_[0] = begin + static_cast<Cycle>(isa::timing::row::walk(*config_));
  if (entry + 1 < work_.entries) {
    at_ = std::max(at_, ends_[1]);  // its place is that of the entry before the last
    return;
  }
  reads_ = 0;
  phase_ = Phase::kWrites;
  at_ = ends_[0] + static_cast<Cycle>(isa::timing::row::kDrain + isa::timing::row::capture(*config_)) +
        work_.row_cycles[row_] - 1;
}

/// A row's result.
void RowWalk::write() {
  if (++row_ == work_.row_cycles.size()) return;
  at_ += row_ == gathered_ ? 1 : work_.row_cycles[row_];
  if (row_ == gathered_) phase_ = Phase::kScalars;
}

}  // namespace tessera::sim::systemc
