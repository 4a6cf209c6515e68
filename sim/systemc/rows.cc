// SPDX-License-Identifier: Apache-2.0
#include "sim/systemc/rows.h"

#include <algorithm>
#include <array>
#include <cmath>
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
  at_ = from + 1;
  row_ = gathered_ = 0;
  stalls_ = 0;
}

/// Behind the last row of the group in hand.
size_t RowWalk::group_end() const {
  const auto group = static_cast<size_t>(work_.group);
  return std::min(work_.row_cycles.size(), (row_ / group + 1) * group);
}

void RowWalk::advance(Cycle limit, const AccUse& acc, double wait) {
  while (!done() && at_ < limit && step(limit, acc, wait)) {
  }
}

/// One read or write of ACC, and what lies between it and the next. False when it must wait beyond what is known.
bool RowWalk::step(Cycle limit, const AccUse& acc, double wait) {
  const Cycle from = at_;
  const bool gathers = !work_.map && gathered_ < group_end();
  if (work_.map || gathers) {
    while (work_.reads_scalars && at_ < limit && acc.reads(at_)) ++at_;
  } else {
    while (at_ < limit && acc.writes(at_)) ++at_;
  }
  stalls_ += at_ - from;
  if (at_ >= limit) return false;
  if (work_.map) {
    at_ += work_.row_cycles[row_] + static_cast<Cycle>(std::lround(wait * static_cast<double>(work_.entries)));
    if (++row_ == work_.row_cycles.size()) --at_;
    return true;
  }
  if (gathers) {
    at_ += isa::timing::row::kGather;
    if (++gathered_ < group_end()) return true;
    const auto rows = static_cast<int64_t>(gathered_ - row_);
    at_ += static_cast<Cycle>(isa::row_walk_cycles(*config_, rows, work_.entries)) +
           static_cast<Cycle>(std::lround(wait * static_cast<double>(rows))) + work_.row_cycles[row_] - 1;
    return true;
  }
  // A row's write.
  if (++row_ == work_.row_cycles.size()) return true;
  at_ += row_ == gathered_ ? 1 : work_.row_cycles[row_];
  return true;
}

}  // namespace tessera::sim::systemc
