// SPDX-License-Identifier: Apache-2.0
// Vector clocks. Each engine is a thread, an instruction with the signal bit releases its engine's clock, a condition
// acquires the clock of the very signal it names (not of later ones that happen to have come). For every byte the
// shadow keeps the last write and the last read of each engine: an access that is ordered after those is ordered after
// all before them, or a race among those has been reported already. Bytes with the same history share a cell of an
// ordered map.
#include "sim/functional/race_checker.h"

#include <algorithm>
#include <iterator>

namespace tessera::sim {
namespace {

constexpr size_t kReachableSignals = 32768;  // a condition cannot name an older one
constexpr size_t kDram = isa::kSpaces;

}  // namespace

RaceChecker::RaceChecker(const isa::MachineConfig& config, const std::array<uint64_t, 16>& bases, Interval program,
                         size_t max_races)
    : config_(config), bases_(bases), program_(program), max_races_(max_races) {}

void RaceChecker::acquire(Clock& clock, const isa::Wait& wait, const std::array<uint16_t, isa::kEngines>& timeline) {
  const auto e = static_cast<size_t>(wait.engine);
  const uint64_t signals = dropped_[e] + released_[e].size();
  const auto later = static_cast<uint16_t>(timeline[e] - wait.count);  // signals beyond the one that is waited for
  if (later >= signals) return;                                        // a signal before the first
  const uint64_t wanted = signals - later - 1;
  if (wanted < dropped_[e]) return;
  const Clock& released = released_[e][wanted - dropped_[e]];
  for (size_t k = 0; k < clock.size(); ++k) clock[k] = std::max(clock[k], released[k]);
}

void RaceChecker::instruction(uint32_t pc, const isa::Instruction& instruction,
                              const std::array<uint16_t, isa::kEngines>& timeline) {
  const auto engine_of = isa::engine_of(instruction);
  if (!engine_of) return;  // FINISH waits until all engines are idle: everything after it is ordered
  const auto engine = static_cast<size_t>(*engine_of);
  const isa::Header& header = isa::header_of(instruction);
  Clock& clock = clock_[engine];
  for (const isa::Wait& wait : header.waits) {
    if (wait.enable) acquire(clock, wait, timeline);
  }
  clock[engine] = ++count_[engine];
  pc_of_[engine].push_back(pc);
  instruction_races_ = races_.size();
  for (const Touched& touched : footprint(instruction, config_, bases_)) {
    touch(shadow_[touched.dram ? kDram : static_cast<size_t>(touched.space)], touched, engine, pc);
    if (touched.dram && touched.write) check_program(touched, engine, pc);
  }
  if (!header.signal) return;
  released_[engine].push_back(clock);
  if (released_[engine].size() > kReachableSignals) {
    released_[engine].pop_front();
    ++dropped_[engine];
  }
}

void RaceChecker::split(Shadow& shadow, uint64_t at) {
  auto cell = shadow.upper_bound(at);
  if (cell == shadow.begin()) return;
  --cell;
  if (cell->first == at || cell->second.end <= at) return;
  const Cell rest = cell->second;
  cell->second.end = at;
  shadow.emplace_hint(std::next(cell), at, rest);
}

void RaceChecker::touch(Shadow& shadow, const Touched& touched, size_t engine, uint32_t pc) {
  const uint32_t number = count_[engine];
  const auto update = [&](Last& last) {
    if (touched.write) {
      last = Last{};
      last.writer = static_cast<uint8_t>(engine);
      last.write = number;
    } else {
      last.read[engine] = number;
    }
  };
  for (const Interval& bytes : touched.bytes) {
    split(shadow, bytes.begin);
    split(shadow, bytes.end);
    auto cell = shadow.lower_bound(bytes.begin);
    uint64_t at = bytes.begin;
    while (at < bytes.end) {
      if (cell == shadow.end() || cell->first > at) {  // bytes nobody has touched
        const uint64_t end = cell == shadow.end() ? bytes.end : std::min(bytes.end, cell->first);
        Cell fresh{end, {}};
        update(fresh.last);
        cell = std::next(shadow.emplace_hint(cell, at, fresh));
        at = end;
        continue;
      }
      check_cell(cell->second.last, {at, cell->second.end}, touched, engine, pc);
      update(cell->second.last);
      at = cell->second.end;
      ++cell;
    }
    // Join cells that have become equal, those at both edges included.
    auto right = shadow.upper_bound(bytes.begin);
    if (right == shadow.begin()) continue;
    auto left = std::prev(right);
    if (left != shadow.begin()) left = std::prev(left);
    for (right = std::next(left); right != shadow.end() && left->first <= bytes.end; right = std::next(left)) {
      if (left->second.end == right->first && left->second.last == right->second.last) {
        left->second.end = right->second.end;
        shadow.erase(right);
      } else {
        left = right;
      }
    }
  }
}

void RaceChecker::check_cell(const Last& last, Interval bytes, const Touched& touched, size_t engine, uint32_t pc) {
  const Clock& known = clock_[engine];
  const auto conflict = [&](size_t other, uint32_t number, bool write) {
    if (number == 0 || other == engine || known[other] >= number) return;
    Race race;
    race.first = {pc_of_[other][number - 1], static_cast<isa::Unit>(other), write};
    race.second = {pc, static_cast<isa::Unit>(engine), touched.write};
    race.dram = touched.dram;
    race.space = touched.space;
    race.begin = bytes.begin;
    race.end = bytes.end;
    report(race);
  };
  conflict(last.writer, last.write, true);
  if (!touched.write) return;
  for (size_t other = 0; other < last.read.size(); ++other) conflict(other, last.read[other], false);
}

/// FETCH reads ahead without waiting for anybody: a STORE over instructions that follow it is always a race.
void RaceChecker::check_program(const Touched& touched, size_t engine, uint32_t pc) {
  const uint64_t ahead = program_.begin + (uint64_t{pc} + 1) * isa::kInstructionBytes;
  for (const Interval& bytes : touched.bytes) {
    const uint64_t begin = std::max(bytes.begin, ahead);
    const uint64_t end = std::min(bytes.end, program_.end);
    if (begin >= end) continue;
    Race race;
    race.first = {pc, static_cast<isa::Unit>(engine), true};
    race.second = {static_cast<uint32_t>((begin - program_.begin) / isa::kInstructionBytes), isa::Unit::kFetch, false};
    race.dram = true;
    race.begin = begin;
    race.end = end;
    report(race);
  }
}

void RaceChecker::report(const Race& race) {
  for (size_t k = instruction_races_; k < races_.size(); ++k) {
    Race& known = races_[k];
    if (known.first != race.first || known.second != race.second || known.dram != race.dram ||
        known.space != race.space) {
      continue;
    }
    known.begin = std::min(known.begin, race.begin);
    known.end = std::max(known.end, race.end);
    return;
  }
  if (races_.size() < max_races_) races_.push_back(race);
}

}  // namespace tessera::sim
