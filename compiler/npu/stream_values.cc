// SPDX-License-Identifier: Apache-2.0
// Numbers by lane for the scratchpads, by run for the arena.
#include "compiler/npu/stream_values.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "isa/effects.h"

namespace tessera::npu {

using isa::Space;

namespace {

constexpr int64_t kMostBytes = 16384;  // of a transfer or a walk that is looked at

template <typename T>
std::optional<Runs> transfer_runs(const T& transfer) {
  if ((transfer.space != Space::kInp && transfer.space != Space::kOut)) return {};
  Runs runs;
  runs.space = transfer.space;
  runs.length = transfer.length;
  runs.base = transfer.base;
  for (size_t k = 0; k < transfer.extent.size(); ++k) {
    runs.dram.extent[k + 2] = runs.scratchpad.extent[k + 2] = transfer.extent[k];
    if (transfer.extent[k] == 1) continue;
    runs.dram.stride[k + 2] = transfer.dram_stride[k];
    runs.scratchpad.stride[k + 2] = transfer.sp_stride[k];
  }
  runs.dram.first = static_cast<int64_t>(transfer.dram_offset);
  runs.scratchpad.first = transfer.sp_addr;
  if (runs.dram.size() * runs.length > kMostBytes) return {};
  return runs;
}

/// Whether the results of a nest go to entries without a gap, each once: in order of their strides each loop steps over
/// what those before it have written.
template <typename Extent, typename Stride>
bool dense(const Extent& extent, const Stride& stride, size_t outer) {
  std::vector<std::pair<int64_t, int64_t>> steps;
  for (size_t k = 0; k < outer; ++k) {
    if (extent[k] > 1) steps.emplace_back(std::abs(stride[k]), extent[k]);
  }
  std::sort(steps.begin(), steps.end());
  int64_t covered = 1;
  for (const auto& [step, count] : steps) {
    if (step != covered) return false;
    covered *= count;
  }
  return true;
}

std::vector<int64_t> addresses_of(const Walk& walk) {
  std::vector<int64_t> all;
  walk.each([&](int64_t at) { all.push_back(at); });
  return all;
}

}  // namespace

std::optional<Runs> runs_of(const isa::Instruction& instruction) {
  if (const auto* store = std::get_if<isa::Store>(&instruction)) return transfer_runs(*store);
  const auto* load = std::get_if<isa::Load>(&instruction);
  if (load == nullptr || load->fill) return {};
  for (const auto& pads : {load->pad_before, load->pad_after}) {
    if (pads[0] != 0 || pads[1] != 0) return {};
  }
  return transfer_runs(*load);
}

std::optional<Runs> arena_runs(const isa::Instruction& instruction) {
  auto runs = runs_of(instruction);
  return runs && runs->base == kArenaBase ? runs : std::nullopt;
}

std::vector<emit::Touch> written_by(const isa::Instruction& instruction, const emit::Work& work,
                                    const isa::MachineConfig& config) {
  std::vector<emit::Touch> all;
  if (const auto* alu = std::get_if<isa::Alu>(&instruction)) {
    if (!dense(alu->extent, alu->dst_stride, alu->extent.size() - alu->reduce)) return all;
  } else if (const auto* map = std::get_if<isa::RowMap>(&instruction)) {
    if (!dense(map->extent, map->dst_stride, map->extent.size())) return all;
  } else if (std::holds_alternative<isa::Load>(instruction) || std::holds_alternative<isa::Store>(instruction)) {
    // The runs of a transfer are distinct.
    for (const isa::Operand& operand : isa::effects(instruction, config).operands) {
      if (operand.write && operand.bytes != operand.end - operand.begin) return all;
    }
  } else {
    return all;
  }
  for (const emit::Touch& touch : work.touches) {
    if (touch.write) all.push_back(touch);
  }
  return all;
}

bool copies(const isa::Alu& alu) {
  return alu.src != isa::AluSpace::kAcc && alu.dst != isa::AluSpace::kAcc && alu.reduce == 0 && !alu.convert &&
         !alu.table_enable && alu.second_op == isa::SecondOp::kNone && alu.out_zero == 0 &&
         alu.low <= (alu.src_unsigned ? 0 : -128) && alu.high >= (alu.src_unsigned ? 255 : 127);
}

StreamValues::StreamValues(const isa::MachineConfig& config)
    : config_(config),
      lanes_(config.entry_bytes(Space::kInp)),
      inp_(static_cast<size_t>(config.depth(Space::kInp))),
      out_(static_cast<size_t>(config.depth(Space::kOut))) {
  for (auto* all : {&inp_, &out_}) {
    for (Entry& entry : *all) entry.lanes.assign(static_cast<size_t>(lanes_), kUnknown);
  }
}

void StreamValues::run(const isa::Instruction& instruction, const emit::Work& work) {
  const auto runs = arena_runs(instruction);
  if (std::holds_alternative<isa::Load>(instruction)) {
    if (runs) return load(*runs);
    return forget(work, true, true);
  }
  if (runs) return store(*runs);
  const auto* alu = std::get_if<isa::Alu>(&instruction);
  const bool all = !written_by(instruction, work, config_).empty();
  if (alu == nullptr || !copies(*alu) || !all) return forget(work, false, all);
  copy(*alu);
}

void StreamValues::note(Space space, int64_t entry) {
  const Number number = entry_at(space, entry).lanes.front();
  if (number != kUnknown && number % lanes_ == 0) places_[number].push_back({space, entry});
}

void StreamValues::name(Space space, int64_t at) {
  Entry& entry = entry_at(space, at);
  const auto unknown = [](Number number) { return number == kUnknown; };
  if (entry.mixed || !std::all_of(entry.lanes.begin(), entry.lanes.end(), unknown)) return;
  std::iota(entry.lanes.begin(), entry.lanes.end(), fresh());
  note(space, at);
}

const std::vector<StreamValues::Place>& StreamValues::places(Number number) {
  std::vector<Place>& all = places_[number / static_cast<Number>(lanes_) * static_cast<Number>(lanes_)];
  std::erase_if(all, [&](const Place& place) {
    const std::vector<Number>& lanes = entry_at(place.space, place.entry).lanes;
    return lanes.front() / lanes_ != number / lanes_ || lanes.front() % lanes_ != 0;
  });
  return all;
}

void StreamValues::numbers_in_dram(int64_t begin, int64_t count, Number* numbers) const {
  std::fill_n(numbers, count, kUnknown);
  const int64_t end = begin + count;
  auto run = dram_.upper_bound(begin);
  if (run != dram_.begin() && std::prev(run)->second.end > begin) --run;
  for (; run != dram_.end() && run->first < end; ++run) {
    const int64_t from = std::max(begin, run->first), to = std::min(end, run->second.end);
    std::iota(numbers + (from - begin), numbers + (to - begin),
              run->second.first + static_cast<Number>(from - run->first));
  }
}

void StreamValues::forget_dram(int64_t begin, int64_t end) {
  auto run = dram_.lower_bound(begin);
  if (run != dram_.begin() && std::prev(run)->second.end > begin) --run;
  while (run != dram_.end() && run->first < end) {
    const auto [from, old] = *run;
    run = dram_.erase(run);
    if (from < begin) dram_[from] = {begin, old.first};
    if (old.end > end) dram_[end] = {old.end, old.first + static_cast<Number>(end - from)};
  }
}

void StreamValues::forget(const emit::Work& work, bool transfer, bool all) {
  for (const emit::Touch& touch : work.touches) {
    if (!touch.write) continue;
    if (touch.memory == kArenaMemory) forget_dram(touch.begin, touch.end);
    const auto space = static_cast<Space>(touch.memory);
    if (touch.memory >= isa::kSpaces || (space != Space::kInp && space != Space::kOut)) continue;
    for (int64_t at = touch.begin / lanes_; at * lanes_ < touch.end; ++at) {
      Entry& entry = entry_at(space, at);
      std::fill(entry.lanes.begin(), entry.lanes.end(), kUnknown);
      entry.mixed = transfer || (entry.mixed && !all);
    }
  }
}

void StreamValues::load(const Runs& runs) {
  const std::vector<int64_t> from = addresses_of(runs.dram), to = addresses_of(runs.scratchpad);
  for (size_t i = 0; i < from.size(); ++i) {
    for (int64_t done = 0; done < runs.length;) {
      const int64_t at = to[i] + done, lane = at % lanes_, count = std::min(lanes_ - lane, runs.length - done);
      Entry& entry = entry_at(runs.space, at / lanes_);
      if (count == lanes_) entry.mixed = false;
      if (lane != 0) entry.mixed = true;
      if (lane == 0 && !entry.mixed) std::fill(entry.lanes.begin(), entry.lanes.end(), kUnknown);
      const auto lanes = entry.lanes.begin() + lane;
      numbers_in_dram(from[i] + done, count, &*lanes);
      for (int64_t k = 0, end = 0; k < count; k = end) {
        end = k + 1;
        if (lanes[k] != kUnknown) continue;
        while (end < count && lanes[end] == kUnknown) ++end;
        const Number number = fresh() + static_cast<Number>(lane + k);
        std::iota(lanes + k, lanes + end, number);
        dram_[from[i] + done + k] = {from[i] + done + end, number};
      }
      note(runs.space, at / lanes_);
      done += count;
    }
  }
}

void StreamValues::store(const Runs& runs) {
  const std::vector<int64_t> from = addresses_of(runs.scratchpad), to = addresses_of(runs.dram);
  for (size_t i = 0; i < from.size(); ++i) {
    for (int64_t done = 0; done < runs.length;) {
      const int64_t at = from[i] + done, lane = at % lanes_, count = std::min(lanes_ - lane, runs.length - done);
      Entry& entry = entry_at(runs.space, at / lanes_);
      name(runs.space, at / lanes_);
      const int64_t begin = to[i] + done;
      forget_dram(begin, begin + count);
      for (int64_t k = 0; k < count;) {
        const Number first = entry.lanes[static_cast<size_t>(lane + k)];
        int64_t end = k + 1;
        while (end < count && first != kUnknown &&
               entry.lanes[static_cast<size_t>(lane + end)] == first + static_cast<Number>(end - k))
          ++end;
        if (first != kUnknown) dram_[begin + k] = {begin + end, first};
        k = end;
      }
      done += count;
    }
  }
}

void StreamValues::copy(const isa::Alu& alu) {
  const auto space = [](isa::AluSpace s) { return s == isa::AluSpace::kInp ? Space::kInp : Space::kOut; };
  const Walk from = walk_of(alu.extent, alu.src_stride, alu.src_addr),
             to = walk_of(alu.extent, alu.dst_stride, alu.dst_addr);
  const std::vector<int64_t> sources = addresses_of(from), results = addresses_of(to);
  for (size_t i = 0; i < sources.size(); ++i) {
    name(space(alu.src), sources[i]);
    const Entry source = entry_at(space(alu.src), sources[i]);
    entry_at(space(alu.dst), results[i]) = source;
    note(space(alu.dst), results[i]);
  }
}

std::optional<Elsewhere> StreamValues::elsewhere(Space space, const Walk& walk, std::array<bool, 2> spaces) {
  Walk moving = walk;
  for (size_t k = 0; k < walk.stride.size(); ++k) {
    if (walk.stride[k] == 0) moving.extent[k] = 1;
  }
  if (entry_at(space, walk.first).lanes.front() == kUnknown || moving.size() * lanes_ > kMostBytes) return {};
  Wanted wanted{{}, lanes_, lanes_};
  bool known = true;
  moving.each([&](int64_t at) {
    const Entry& entry = entry_at(space, at);
    const bool parts = entry.mixed && std::find(entry.lanes.begin(), entry.lanes.end(), kUnknown) != entry.lanes.end();
    known = known && !parts && entry.lanes.front() != kUnknown;
    wanted.numbers.insert(wanted.numbers.end(), entry.lanes.begin(), entry.lanes.end());
  });
  if (!known) return {};
  return find(moving, wanted, spaces, true, space);
}

std::optional<Elsewhere> StreamValues::elsewhere(const Runs& store) {
  Wanted wanted{{}, store.length, 1};
  bool known = true;
  store.scratchpad.each([&](int64_t at) {
    for (int64_t k = 0; k < store.length; ++k) {
      wanted.numbers.push_back(byte_at(store.space, at + k));
      known = known && wanted.numbers.back() != kUnknown;
    }
  });
  if (!known) return {};
  return find(store.scratchpad, wanted, {false, true}, true, store.space);
}

std::optional<Elsewhere> StreamValues::on_chip(const Runs& load, Walk& walk) {
  if (load.scratchpad.first % lanes_ != 0) return {};
  walk = load.scratchpad;
  Walk dram = load.dram;
  for (size_t k = 0; k < walk.stride.size(); ++k) {
    if (walk.stride[k] % lanes_ != 0) return {};
    walk.stride[k] /= lanes_;
  }
  // The loop over the entries of a run is the innermost one; the outermost two are free.
  std::rotate(walk.extent.begin(), walk.extent.begin() + 1, walk.extent.end());
  std::rotate(walk.stride.begin(), walk.stride.begin() + 1, walk.stride.end());
  walk.first /= lanes_;
  walk.extent[5] = (load.length + lanes_ - 1) / lanes_;
  walk.stride[5] = 1;
  Wanted wanted{{}, lanes_, lanes_};
  const std::vector<int64_t> from = addresses_of(dram), to = addresses_of(load.scratchpad);
  for (size_t i = 0; i < from.size(); ++i) {
    for (int64_t done = 0; done < load.length; done += lanes_) {
      const int64_t count = std::min(lanes_, load.length - done);
      if (count < lanes_ && entry_at(load.space, (to[i] + done) / lanes_).mixed) return {};
      const size_t step = wanted.numbers.size();
      wanted.numbers.resize(step + static_cast<size_t>(lanes_), kUnknown);
      Number* const numbers = wanted.numbers.data() + step;
      numbers_in_dram(from[i] + done, count, numbers);
      if (std::find(numbers, numbers + count, kUnknown) != numbers + count) return {};
    }
  }
  return find(walk, wanted, {true, true}, false, load.space);
}

std::optional<Elsewhere> StreamValues::find(const Walk& walk, const Wanted& wanted, std::array<bool, 2> spaces,
                                            bool from_here, Space here) {
  const Number number = *wanted.step(0);
  const std::vector<Place> candidates = places(number);
  for (const Place& place : candidates) {
    const int64_t first = (place.entry * lanes_ + number % lanes_) / wanted.scale;
    if (from_here && place.space == here && first == walk.first) return {};
    if (!spaces[place.space == Space::kInp ? 0 : 1]) continue;
    if (auto found = fit(walk, wanted, place)) return found;
  }
  return {};
}

std::optional<int64_t> StreamValues::address_of(const Wanted& wanted, int64_t flat, Space space) {
  const Number number = *wanted.step(flat);
  for (const Place& place : places(number)) {
    if (place.space == space && holds(place, number)) return (place.entry * lanes_ + number % lanes_) / wanted.scale;
  }
  return std::nullopt;
}

std::optional<Elsewhere> StreamValues::fit(const Walk& walk, const Wanted& wanted, const Place& first) {
  const Number number = *wanted.step(0);
  if (wanted.scale != 1 && number % lanes_ != 0) return {};
  Elsewhere result;
  result.space = first.space;
  result.first = (first.entry * lanes_ + number % lanes_) / wanted.scale;
  int64_t flat = 1;
  for (size_t k = walk.extent.size(); k-- > 0; flat *= walk.extent[k]) {
    if (walk.extent[k] == 1) continue;
    auto parts = even_parts(walk.extent[k], [&](int64_t i) -> std::optional<int64_t> {
      const auto at = address_of(wanted, flat * i, first.space);
      return at ? std::optional(*at - result.first) : std::nullopt;
    });
    if (!parts) return {};
    result.parts[k] = std::move(*parts);
  }
  if (!verify(walk, wanted, result)) return {};
  return result;
}

bool StreamValues::verify(const Walk& walk, const Wanted& wanted, const Elsewhere& found) {
  const int64_t limit = static_cast<int64_t>(entries(found.space).size()) * lanes_;
  int64_t flat = 0;
  bool equal = true;
  each_of_parts(walk, found.first, found.parts, [&](int64_t at) {
    const Number* numbers = wanted.step(flat++);
    const int64_t byte = at * wanted.scale;
    equal = equal && byte >= 0 && byte + wanted.width <= limit;
    for (int64_t k = 0; equal && k < wanted.width; ++k)
      equal = numbers[k] == kUnknown || byte_at(found.space, byte + k) == numbers[k];
  });
  return equal;
}

}  // namespace tessera::npu
