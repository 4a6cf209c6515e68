// SPDX-License-Identifier: Apache-2.0
// Random legal programs for a chip of several cores. Enters: a seed, limits, and what is to be wrong on purpose.
// Leaves: a program for each core, one DRAM for all, and an order in which their instructions could run one by one.
// Cores read and write the same DRAM; where two of them conflict, a publish behind the one and an await in front of the
// other order them, and elsewhere they are free.
#pragma once

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "sim/tests/random_program.h"

namespace tessera::sim::testing {

struct RandomChip {
  std::vector<std::vector<isa::Instruction>> programs;  // by core; each ends with FINISH
  std::vector<std::pair<size_t, size_t>> order;         // core, instruction: each behind what it waits for
  std::vector<uint8_t> dram;
  uint64_t dram_address = 0;
  std::array<uint64_t, 16> bases{};
  std::vector<uint8_t> param;
  size_t awaits = 0;
};

enum class Planted { kNothing, kRace, kDeadlock };

struct RandomChipLimits {
  RandomLimits core;  // `instructions` of each core, without FENCEs between cores
  /// Every publish waits for all that is older in its program, so that what other cores do does not depend on when a
  /// fault is found.
  bool publish_last = false;
};

class RandomChipMaker {
 public:
  RandomChipMaker(const isa::MachineConfig& config, uint64_t seed, RandomChipLimits limits = {})
      : config_(config), limits_(limits), maker_(config, seed, empty(limits.core)) {}

  RandomChip make(Planted planted = Planted::kNothing) {
    RandomProgram memory = maker_.make();
    chip_.dram = std::move(memory.dram);
    chip_.dram_address = memory.dram_address;
    chip_.bases = memory.bases;
    chip_.param = std::move(memory.param);
    cores_.assign(static_cast<size_t>(config_.cores), Core(cores()));
    chip_.programs.resize(cores());
    for (size_t n = cores() * static_cast<size_t>(limits_.core.instructions); n > 0; --n) {
      const size_t core = pick_core();
      const isa::Instruction instruction = maker_.make_instruction();
      order_behind_others(core, instruction);
      append(core, instruction);
      if (maker_.chance(20)) publish(pick_core(), {});
    }
    if (planted == Planted::kRace) plant_race();
    if (planted == Planted::kDeadlock) plant_deadlock();
    for (size_t k = 0; k < cores(); ++k) {
      maker_.synchronise(chip_.programs[k], cores_[k].needs);
      chip_.order.emplace_back(k, chip_.programs[k].size() - 1);
    }
    return std::move(chip_);
  }

  RandomProgramMaker& maker() { return maker_; }

 private:
  using Counts = std::array<size_t, isa::kEngines>;
  static constexpr auto kLoad = static_cast<size_t>(isa::Engine::kLoad);
  static constexpr auto kStore = static_cast<size_t>(isa::Engine::kStore);

  struct Access {
    int64_t first, last;
    bool write;
    size_t number;  // 1 + number in its engine
  };
  struct Core {
    explicit Core(size_t cores) : awaited{std::vector<size_t>(cores), std::vector<size_t>(cores)} {}
    Counts count{};
    std::vector<RandomProgramMaker::Needs> needs;
    std::vector<Access> accesses;                // of DRAM
    std::vector<Counts> publishes;               // what each is behind
    std::array<std::vector<size_t>, 2> awaited;  // by LOAD or STORE, by core: the highest count
  };

  static RandomLimits empty(RandomLimits limits) {
    limits.instructions = 0;
    return limits;
  }
  size_t cores() const { return static_cast<size_t>(config_.cores); }
  size_t pick_core() { return static_cast<size_t>(maker_.pick(0, config_.cores - 1)); }

  std::optional<Access> access(const isa::Instruction& instruction) const {
    const auto range = isa::dram_range(instruction);
    if (!range) return {};
    const auto base = static_cast<int64_t>(chip_.bases[range->base]);
    return Access{base + range->lowest, base + range->highest, range->write, 0};
  }

  void append(size_t core, const isa::Instruction& instruction, const Counts& needs = {}) {
    Core& to = cores_[core];
    const auto engine = static_cast<size_t>(*isa::engine_of(instruction));
    ++to.count[engine];
    to.needs.push_back(needs);
    if (auto found = access(instruction)) {
      found->number = to.count[engine];
      to.accesses.push_back(*found);
    }
    chip_.order.emplace_back(core, chip_.programs[core].size());
    chip_.programs[core].push_back(instruction);
  }

  /// Awaits what the instruction conflicts with in other cores.
  void order_behind_others(size_t core, const isa::Instruction& instruction) {
    const auto own = access(instruction);
    if (!own) return;
    const auto engine = *isa::engine_of(instruction);
    for (size_t other = 0; other < cores(); ++other) {
      if (other == core) continue;
      Counts needs{};
      for (const Access& one : cores_[other].accesses) {
        if ((one.write || own->write) && one.first <= own->last && own->first <= one.last)
          needs[one.write ? kStore : kLoad] = std::max(needs[one.write ? kStore : kLoad], one.number);
      }
      const bool free = needs == Counts{};
      if (free && (cores_[other].publishes.empty() || !maker_.chance(16))) continue;
      const size_t count =
          free ? static_cast<size_t>(maker_.pick(1, static_cast<int64_t>(cores_[other].publishes.size())))
               : publish_behind(other, needs);
      size_t& awaited = cores_[core].awaited[engine == isa::Engine::kLoad ? 0 : 1][other];
      if (awaited >= count && !maker_.chance(8)) continue;
      awaited = std::max(awaited, count);
      await(core, engine, other, count);
    }
  }

  void await(size_t core, isa::Engine engine, size_t other, size_t count) {
    isa::Fence fence;
    fence.engine = engine;
    fence.await = true;
    fence.await_core = static_cast<uint8_t>(other);
    fence.await_count = static_cast<uint16_t>(count);
    append(core, fence);
    ++chip_.awaits;
  }

  /// The count of a publish behind those instructions: one that is there, or a new one.
  size_t publish_behind(size_t core, const Counts& needs) {
    const auto& known = cores_[core].publishes;
    for (size_t n = 0; n < known.size(); ++n) {
      if (known[n][kLoad] >= needs[kLoad] && known[n][kStore] >= needs[kStore]) return n + 1;
    }
    publish(core, needs);
    return cores_[core].publishes.size();
  }

  void publish(size_t core, Counts needs) {
    if (limits_.publish_last) needs = cores_[core].count;
    needs[kStore] = cores_[core].count[kStore];  // its own engine's order
    isa::Fence fence;
    fence.engine = isa::Engine::kStore;
    fence.publish = true;
    cores_[core].publishes.push_back(needs);
    append(core, fence, needs);
  }

  std::pair<size_t, size_t> pick_two() {
    const size_t one = pick_core();
    const auto further = static_cast<size_t>(maker_.pick(1, config_.cores - 1));
    return {one, (one + further) % cores()};
  }

  /// At the ends of two programs, where nothing orders them.
  void plant_race() {
    const auto [one, other] = pick_two();
    for (;;) {
      const isa::Instruction store = maker_.make_store();
      if (isa::check_operands(store, config_) || isa::check_ranges(store, config_)) continue;
      append(one, store);
      append(other, store);
      return;
    }
  }

  void plant_deadlock() {
    const auto [one, other] = pick_two();
    const size_t first = cores_[one].publishes.size() + 1, second = cores_[other].publishes.size() + 1;
    await(one, isa::Engine::kStore, other, second);
    await(other, isa::Engine::kStore, one, first);
    publish(one, {});
    publish(other, {});
  }

  isa::MachineConfig config_;
  RandomChipLimits limits_;
  RandomProgramMaker maker_;
  RandomChip chip_;
  std::vector<Core> cores_;
};

/// The configuration as a chip; `ratio`: beats of a core in one of the shared master.
inline isa::MachineConfig chip_of(isa::MachineConfig config, int cores, int ratio = 1) {
  config.name += "x" + std::to_string(cores);
  config.cores = cores;
  config.memory_axi_bytes = config.axi_bytes * ratio;
  isa::validate(config);
  return config;
}

}  // namespace tessera::sim::testing
