// SPDX-License-Identifier: Apache-2.0
// Numbers by byte: of whole scratchpads, and of the pages of the arena that were touched.
#include "compiler/npu/values/stream_values.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "isa/verify/effects.h"

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
      lane_bits_(std::countr_zero(static_cast<uint64_t>(lanes_))) {
  for (const Space space : {Space::kInp, Space::kOut}) {
    scratchpad(space).numbers.reset(config.depth(space) * lanes_, lanes_);
    scratchpad(space).mixed.resize(static_cast<size_t>(config.depth(space)), 0);
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
  const Number number = first_of(space, entry);
  if (number != kUnknown && lane_of(number) == 0) note(number, Place(space, entry));
}

void StreamValues::note(Number number, const Place& place) {
  const size_t at = entry_of(number);
  if (places_.size() <= at) places_.resize(std::max(at + 1, 2 * places_.size()), kNoPlace);
  uint32_t& known = places_[at];
  if (known == place.packed()) return;
  if (known == kNoPlace || (known < kList && gone(Place(known), at))) {
    known = place.packed();
    return;
  }
  const auto node = static_cast<int32_t>(nodes_.size());
  if (known < kList) {
    nodes_.push_back({known, node + 1});
    nodes_.push_back({place.packed(), -1});
    known = kList + static_cast<uint32_t>(lists_.size());
    lists_.push_back({node, node + 1});
    return;
  }
  List& list = lists_[known - kList];
  nodes_.push_back({place.packed(), -1});
  (list.first < 0 ? list.first : nodes_[static_cast<size_t>(list.last)].next) = node;
  list.last = node;
}

void StreamValues::name(Space space, int64_t at) {
  ByteNumbers& numbers = scratchpad(space).numbers;
  if (mixed(space, at) != 0 || numbers.whole(at) != kUnknown) return;
  const Number number = fresh();
  numbers.set_whole(at, number);
  note(number, Place(space, at));
}

template <typename Visit>
bool StreamValues::any_place(Number number, Visit&& visit) {
  const size_t at = entry_of(number);
  if (at >= places_.size() || places_[at] == kNoPlace) return false;
  if (places_[at] < kList) {
    const Place place(places_[at]);
    return !gone(place, at) && visit(place);
  }
  List& list = lists_[places_[at] - kList];
  int32_t before = -1;
  for (int32_t i = list.first; i >= 0;) {
    const auto [packed, next] = nodes_[static_cast<size_t>(i)];
    const Place place(packed);
    if (!gone(place, at)) {
      if (visit(place)) return true;
      before = i;
    } else {
      (before < 0 ? list.first : nodes_[static_cast<size_t>(before)].next) = next;
      if (next < 0) list.last = before;
    }
    i = next;
  }
  return false;
}

bool StreamValues::maybe_elsewhere(Number number, std::array<bool, 2> spaces, bool from_here, Space here,
                                   int64_t byte) {
  bool other = false;
  any_place(number, [&](const Place& place) {
    if (from_here && place.space == here && place.entry * lanes_ + lane_of(number) == byte) return true;
    other = other || spaces[place.space == Space::kInp ? 0 : 1];
    return other;
  });
  return other;
}

template <typename Visit>
void StreamValues::each_page(int64_t begin, int64_t count, bool make, Visit&& visit) {
  for (int64_t done = 0; done < count;) {
    const int64_t page = (begin + done) / kPage, at = (begin + done) % kPage, part = std::min(kPage - at, count - done);
    ByteNumbers* const found = dram_.find(page, make);
    if (found != nullptr && found->empty()) found->reset(kPage, lanes_);
    visit(found, at, done, part);
    done += part;
  }
}

void StreamValues::numbers_in_dram(int64_t begin, int64_t count, Number* numbers) {
  each_page(begin, count, false, [&](const ByteNumbers* page, int64_t at, int64_t offset, int64_t part) {
    if (page == nullptr)
      std::fill_n(numbers + offset, part, kUnknown);
    else
      page->read(at, part, numbers + offset);
  });
}

void StreamValues::set_in_dram(int64_t begin, int64_t count, const Number* numbers) {
  each_page(begin, count, true, [&](ByteNumbers* page, int64_t at, int64_t offset, int64_t part) {
    page->write(at, part, numbers + offset);
  });
}

void StreamValues::forget_dram(int64_t begin, int64_t end) {
  if ((end - begin) / kPage > static_cast<int64_t>(dram_.size())) {  // more than there is
    for (auto& [page, numbers] : dram_) {
      const int64_t from = std::max(begin - page * kPage, int64_t{0}), to = std::min(end - page * kPage, kPage);
      if (from < to) numbers->forget(from, to - from);
    }
    return;
  }
  each_page(begin, end - begin, false, [](ByteNumbers* page, int64_t at, int64_t, int64_t part) {
    if (page != nullptr) page->forget(at, part);
  });
}

void StreamValues::forget(const emit::Work& work, bool transfer, bool all) {
  for (const emit::Touch& touch : work.touches) {
    if (!touch.write) continue;
    if (touch.memory == kArenaMemory) forget_dram(touch.begin, touch.end);
    const auto space = static_cast<Space>(touch.memory);
    if (touch.memory >= isa::kSpaces || (space != Space::kInp && space != Space::kOut)) continue;
    const int64_t first = touch.begin / lanes_, end = (touch.end + lanes_ - 1) / lanes_;
    if (first >= end) continue;
    scratchpad(space).numbers.forget(first * lanes_, (end - first) * lanes_);
    for (int64_t at = first; at < end; ++at) {
      uint8_t& parts = mixed(space, at);
      parts = static_cast<uint8_t>(transfer || (parts != 0 && !all));
    }
  }
}

bool StreamValues::number_unknown(Number* lanes, int64_t lane, int64_t count) {
  bool made = false;
  for (int64_t k = 0, end = 0; k < count; k = end) {
    end = k + 1;
    if (lanes[k] != kUnknown) continue;
    while (end < count && lanes[end] == kUnknown) ++end;
    std::iota(lanes + k, lanes + end, fresh() + static_cast<Number>(lane + k));
    made = true;
  }
  return made;
}

void StreamValues::load_parts(Space space, int64_t byte, int64_t from, int64_t count) {
  numbers_.resize(static_cast<size_t>(count));
  Number* const numbers = numbers_.data();
  numbers_in_dram(from, count, numbers);
  bool made = false;
  for (int64_t done = 0, part = 0; done < count; done += part) {
    const int64_t lane = (byte + done) & (lanes_ - 1);
    part = std::min(lanes_ - lane, count - done);
    made = number_unknown(numbers + done, lane, part) || made;
  }
  if (made) set_in_dram(from, count, numbers);
  scratchpad(space).numbers.write(byte, count, numbers);
}

void StreamValues::load_entries(Space space, int64_t entry, int64_t from, int64_t count) {
  std::fill_n(&mixed(space, entry), count, uint8_t{0});
  const auto load_apart = [&](int64_t e) {
    load_parts(space, (entry + e) * lanes_, from + e * lanes_, lanes_);
    note(space, entry + e);
  };
  if ((from & (lanes_ - 1)) != 0) {
    load_parts(space, entry * lanes_, from, count * lanes_);
    for (int64_t e = 0; e < count; ++e) note(space, entry + e);
    return;
  }
  ByteNumbers& there = scratchpad(space).numbers;
  each_page(from, count * lanes_, true, [&](ByteNumbers* page, int64_t at, int64_t offset, int64_t part) {
    for (int64_t e = offset >> lane_bits_, in_page = at >> lane_bits_; e << lane_bits_ < offset + part;
         ++e, ++in_page) {
      Number number = page->whole(in_page);
      if (number == ByteNumbers::kApart) {
        load_apart(e);
        continue;
      }
      if (number == kUnknown) page->set_whole(in_page, number = fresh());
      there.set_whole(entry + e, number);
      note(number, Place(space, entry + e));
    }
  });
}

void StreamValues::load(const Runs& runs) {
  each_of_both(runs.dram, runs.scratchpad, [&](int64_t from, int64_t to) {
    for (int64_t done = 0; done < runs.length;) {
      const int64_t at = to + done, lane = at & (lanes_ - 1), entry = at >> lane_bits_;
      if (const int64_t whole = (runs.length - done) >> lane_bits_; lane == 0 && whole > 0) {
        load_entries(runs.space, entry, from + done, whole);
        done += whole << lane_bits_;
        continue;
      }
      const int64_t count = std::min(lanes_ - lane, runs.length - done);
      uint8_t& parts = mixed(runs.space, entry);
      if (lane != 0) parts = 1;
      if (lane == 0 && parts == 0) scratchpad(runs.space).numbers.set_whole(entry, kUnknown);
      load_parts(runs.space, at, from + done, count);
      note(runs.space, entry);
      done += count;
    }
  });
}

void StreamValues::store(const Runs& runs) {
  each_of_both(runs.scratchpad, runs.dram, [&](int64_t from, int64_t to) {
    for (int64_t at = from >> lane_bits_; at << lane_bits_ < from + runs.length; ++at) name(runs.space, at);
    each_page(to, runs.length, true, [&](ByteNumbers* page, int64_t at, int64_t offset, int64_t part) {
      page->copy(scratchpad(runs.space).numbers, from + offset, at, part);
    });
  });
}

void StreamValues::copy(const isa::Alu& alu) {
  const auto space = [](isa::AluSpace s) { return s == isa::AluSpace::kInp ? Space::kInp : Space::kOut; };
  const Walk from = walk_of(alu.extent, alu.src_stride, alu.src_addr),
             to = walk_of(alu.extent, alu.dst_stride, alu.dst_addr);
  const Space read = space(alu.src), written = space(alu.dst);
  each_of_both(from, to, [&](int64_t source, int64_t result) {
    name(read, source);
    scratchpad(written).numbers.copy(scratchpad(read).numbers, source * lanes_, result * lanes_, lanes_);
    mixed(written, result) = mixed(read, source);
    note(written, result);
  });
}

std::optional<Elsewhere> StreamValues::elsewhere(Space space, const Walk& walk, std::array<bool, 2> spaces) {
  Walk moving = walk;
  for (size_t k = 0; k < walk.stride.size(); ++k) {
    if (walk.stride[k] == 0) moving.extent[k] = 1;
  }
  const Number first = first_of(space, walk.first);
  if (first == kUnknown || lane_of(first) != 0 || moving.size() * lanes_ > kMostBytes) return {};
  if (!maybe_elsewhere(first, spaces, true, space, walk.first * lanes_)) return {};
  Wanted wanted{{}, lanes_, lanes_};
  bool known = true;
  moving.each([&](int64_t at) {
    const size_t begin = wanted.numbers.size();
    wanted.numbers.resize(begin + static_cast<size_t>(lanes_));
    Number* const lanes = wanted.numbers.data() + begin;
    scratchpad(space).numbers.read(at * lanes_, lanes_, lanes);
    const bool parts = mixed(space, at) != 0 && std::find(lanes, lanes + lanes_, kUnknown) != lanes + lanes_;
    known = known && !parts && *lanes != kUnknown;
  });
  if (!known) return {};
  return find(moving, wanted, spaces, true, space);
}

std::optional<Elsewhere> StreamValues::elsewhere(const Runs& store) {
  const Number first = byte_at(store.space, store.scratchpad.first);
  if (first == kUnknown || !maybe_elsewhere(first, {false, true}, true, store.space, store.scratchpad.first)) return {};
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
  Number first = kUnknown;
  numbers_in_dram(load.dram.first, 1, &first);
  if (first == kUnknown || lane_of(first) != 0) return {};
  if (!maybe_elsewhere(first, {true, true}, false, load.space, 0)) return {};
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
      if (count < lanes_ && mixed(load.space, (to[i] + done) / lanes_) != 0) return {};
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
  std::vector<Place> candidates;
  any_place(number, [&](const Place& place) {
    candidates.push_back(place);
    return false;
  });
  for (const Place& place : candidates) {
    const int64_t first = (place.entry * lanes_ + lane_of(number)) / wanted.scale;
    if (from_here && place.space == here && first == walk.first) return {};
    if (!spaces[place.space == Space::kInp ? 0 : 1]) continue;
    if (auto found = fit(walk, wanted, place)) return found;
  }
  return {};
}

std::optional<int64_t> StreamValues::address_of(const Wanted& wanted, int64_t flat, Space space) {
  const Number number = *wanted.step(flat);
  std::optional<int64_t> address;
  any_place(number, [&](const Place& place) {
    if (place.space == space && holds(place, number)) address = (place.entry * lanes_ + lane_of(number)) / wanted.scale;
    return address.has_value();
  });
  return address;
}

std::optional<Elsewhere> StreamValues::fit(const Walk& walk, const Wanted& wanted, const Place& first) {
  const Number number = *wanted.step(0);
  if (wanted.scale != 1 && lane_of(number) != 0) return {};
  Elsewhere result;
  result.space = first.space;
  result.first = (first.entry * lanes_ + lane_of(number)) / wanted.scale;
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
  const auto limit = scratchpad(found.space).numbers.bytes();
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
