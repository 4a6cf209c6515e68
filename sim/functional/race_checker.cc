// SPDX-License-Identifier: Apache-2.0
// Vector clocks. Each engine is a thread, an instruction with the signal bit releases its engine's clock, a condition
// acquires the clock of the very signal it names (not of later ones that happen to have come). Between cores a publish
// releases and an await acquires likewise. For every byte the shadow keeps the last write and the last read of each
// engine: an access that is ordered after those is ordered after all before them, or a race among those has been
// reported already. Bytes with the same history share a cell of an ordered map.
#include "sim/functional/race_checker.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace tessera::sim {
namespace {

constexpr size_t kReachableSignals = 32768;  // a condition cannot name an older one
constexpr auto kLoad = static_cast<size_t>(isa::Engine::kLoad);
constexpr auto kStore = static_cast<size_t>(isa::Engine::kStore);

}  // namespace

void RaceChecker::Released::add(const Clock& clock) {
  clocks.push_back(clock);
  if (clocks.size() <= kReachableSignals) return;
  clocks.pop_front();
  ++dropped;
}

void RaceChecker::Released::acquire(Clock& clock, uint16_t reached, uint16_t wanted) const {
  const uint64_t signals = dropped + clocks.size();
  const auto later = static_cast<uint16_t>(reached - wanted);  // signals beyond the one that is waited for
  if (later >= signals) return;                                // a signal before the first
  const uint64_t number = signals - later - 1;
  if (number < dropped) return;
  const Clock& released = clocks[number - dropped];
  for (size_t k = 0; k < clock.size(); ++k) clock[k] = std::max(clock[k], released[k]);
}

RaceChecker::RaceChecker(const isa::MachineConfig& config, size_t max_races)
    : config_(config), max_races_(max_races), cores_(static_cast<size_t>(config.cores)) {}

void RaceChecker::begin(size_t core, const std::array<uint64_t, 16>& bases, Interval program) {
  cores_[core].bases = &bases;
  cores_[core].program = program;
  for (Clock& clock : cores_[core].clock) clock.assign(cores_.size() * isa::kEngines, 0);
}

void RaceChecker::instruction(size_t core, uint32_t pc, const isa::Instruction& instruction,
                              const std::array<uint16_t, isa::kEngines>& timeline, const PublicCounters& publics) {
  const auto engine_of = isa::engine_of(instruction);
  if (!engine_of) return;  // FINISH waits until all engines are idle: everything after it is ordered
  const Runs runs{core, static_cast<size_t>(*engine_of), pc};
  const isa::Header& header = isa::header_of(instruction);
  Core& own = cores_[core];
  Clock& clock = own.clock[runs.engine];
  for (const isa::Wait& wait : header.waits) {
    const auto e = static_cast<size_t>(wait.engine);
    if (wait.enable) own.signals[e].acquire(clock, timeline[e], wait.count);
  }
  const auto* fence = std::get_if<isa::Fence>(&instruction);
  if (fence != nullptr && fence->await)
    cores_[fence->await_core].publishes.acquire(clock, publics.count(fence->await_core), fence->await_count);
  clock[core * isa::kEngines + runs.engine] = ++own.count[runs.engine];
  own.pc_of[runs.engine].push_back(pc);
  instruction_races_ = races_.size();
  for (const Touched& touched : footprint(instruction, config_, *own.bases)) {
    if (touched.dram) {
      TESSERA_INVARIANT(runs.engine == (touched.write ? kStore : kLoad), "LOAD reads DRAM, STORE writes it");
      touch(dram_, touched, runs);
      if (touched.write) check_programs(touched, runs);
    } else {
      touch(own.shadow[static_cast<size_t>(touched.space)], touched, runs);
    }
  }
  if (header.signal) own.signals[runs.engine].add(clock);
  if (fence != nullptr && fence->publish) own.publishes.add(clock);
}

template <size_t readers>
void RaceChecker::split(Shadow<readers>& shadow, uint64_t at) {
  auto cell = shadow.upper_bound(at);
  if (cell == shadow.begin()) return;
  --cell;
  if (cell->first == at || cell->second.end <= at) return;
  const Cell<readers> rest = cell->second;
  cell->second.end = at;
  shadow.emplace_hint(std::next(cell), at, rest);
}

template <size_t readers>
void RaceChecker::touch(Shadow<readers>& shadow, const Touched& touched, const Runs& runs) {
  const uint32_t number = cores_[runs.core].count[runs.engine];
  const size_t who = touched.dram ? runs.core : runs.engine;
  const auto update = [&](Last<readers>& last) {
    if (touched.write) {
      last = {};
      last.writer = static_cast<uint16_t>(who);
      last.write = number;
    } else {
      last.read[who] = number;
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
        Cell<readers> fresh{end, {}};
        update(fresh.last);
        cell = std::next(shadow.emplace_hint(cell, at, fresh));
        at = end;
        continue;
      }
      check_cell(cell->second.last, {at, cell->second.end}, touched, runs);
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

template <size_t readers>
void RaceChecker::check_cell(const Last<readers>& last, Interval bytes, const Touched& touched, const Runs& runs) {
  const Clock& known = cores_[runs.core].clock[runs.engine];
  const auto conflict = [&](size_t who, uint32_t number, bool write) {
    const size_t core = touched.dram ? who : runs.core;
    const size_t engine = !touched.dram ? who : write ? kStore : kLoad;
    if (number == 0 || (core == runs.core && engine == runs.engine)) return;
    if (known[core * isa::kEngines + engine] >= number) return;
    Race race;
    race.first = {cores_[core].pc_of[engine][number - 1], static_cast<isa::Unit>(engine), write,
                  static_cast<uint32_t>(core)};
    race.second = {runs.pc, static_cast<isa::Unit>(runs.engine), touched.write, static_cast<uint32_t>(runs.core)};
    race.dram = touched.dram;
    race.space = touched.space;
    race.begin = bytes.begin;
    race.end = bytes.end;
    report(race);
  };
  conflict(last.writer, last.write, true);
  if (!touched.write) return;
  for (size_t who = 0; who < readers; ++who) conflict(who, last.read[who], false);
}

/// FETCH reads ahead without waiting for anybody: a STORE over instructions that follow it is always a race, and so is
/// one over those of another core.
void RaceChecker::check_programs(const Touched& touched, const Runs& runs) {
  for (size_t core = 0; core < cores_.size(); ++core) {
    const Interval& program = cores_[core].program;
    const uint64_t ahead =
        core == runs.core ? program.begin + (uint64_t{runs.pc} + 1) * isa::kInstructionBytes : program.begin;
    for (const Interval& bytes : touched.bytes) {
      const uint64_t begin = std::max(bytes.begin, ahead);
      const uint64_t end = std::min(bytes.end, program.end);
      if (begin >= end) continue;
      Race race;
      race.first = {runs.pc, static_cast<isa::Unit>(runs.engine), true, static_cast<uint32_t>(runs.core)};
      race.second = {static_cast<uint32_t>((begin - program.begin) / isa::kInstructionBytes), isa::Unit::kFetch, false,
                     static_cast<uint32_t>(core)};
      race.dram = true;
      race.begin = begin;
      race.end = end;
      report(race);
    }
  }
}

void RaceChecker::report(Race race) {
  if (race.second.core < race.first.core) std::swap(race.first, race.second);
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
