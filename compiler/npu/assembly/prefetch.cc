// SPDX-License-Identifier: Apache-2.0
// The stream out of steps, and when weights are fetched. LOAD takes its instructions in order, so a long fetch just
// before its use stalls the matrix engine, and a long fetch far ahead of it stalls the inputs of the steps between.
// Each fetch is therefore cut into pieces that fill the time the bus has to spare beside the steps before: from the
// step that needs them backward, as far as their place in WGT is free, past the borders of layers.
#include <algorithm>
#include <array>
#include <tuple>

#include "base/error.h"
#include "compiler/emit/duration.h"
#include "compiler/npu/assembly/at_once.h"
#include "compiler/npu/assembly/steps.h"
#include "compiler/npu/lowering/legalise.h"
#include "isa/verify/effects.h"

namespace tessera::npu {

/// The work, the layer and the step of each instruction of a stream.
struct Emitter::Timeline {
  emit::Works works;
  std::vector<uint32_t> layers, steps;
  emit::WorkPool fetches;  // the works of what is fetched
};

int64_t Emitter::bus_cycles(const emit::Work& work) const {
  const emit::Duration& d = work.duration;
  const int64_t beats = d.beats * config.axi_bytes / bus_bytes;
  return std::max(beats, work.engine == isa::Engine::kLoad ? d.engine : 0) + isa::kInstructionBytes / bus_bytes;
}

Emitter::Profile Emitter::profile_of(std::span<const Pushed> step) const {
  Profile profile;
  int64_t gemm = 0, alu = 0;
  for (const Pushed& pushed : step) {
    const emit::Work& work = *pushed.work;
    const emit::Duration& d = work.duration;
    const auto engine = work.engine;
    profile.bus += bus_cycles(work);
    if (engine == isa::Engine::kGemm) gemm += d.engine;
    if (engine == isa::Engine::kAlu) alu += d.engine;
    for (const emit::Touch& touch : work.touches) {
      for (const isa::Space space : {isa::Space::kWgt, isa::Space::kParam}) {
        if (touch.memory != static_cast<int>(space)) continue;
        const int64_t bytes = config.entry_bytes(space);
        const Profile::Used used{space, touch.begin / bytes, (touch.end + bytes - 1) / bytes};
        const size_t known = profile.used.size();  // products of a tile read the same weights one after the other
        if (known == 0 || profile.used[known - 1] != used) profile.used.push_back(used);
      }
    }
  }
  profile.spare = std::max(gemm, alu) - profile.bus;
  return profile;
}

std::vector<isa::Instruction> Emitter::loads_of(const ConstantFetch& fetch) const {
  Transfer t;
  const int64_t entry = config.entry_bytes(fetch.space);
  t.space = fetch.space;
  t.base = kConstantBase;
  t.dram_offset = fetch.constant_offset;
  t.length = entry_bytes(fetch);
  t.packed = fetch.packed;
  t.sp_addr = fetch.packed ? fetch.entry * entry : (fetch.entry + 1) * entry - t.length;
  t.loops.push_back({fetch.entries, t.length, entry});
  std::vector<isa::Instruction> loads;
  append_transfer(t, loads);
  return loads;
}

Emitter::ConstantFetch Emitter::part_of(const ConstantFetch& fetch, int64_t first, int64_t entries) const {
  ConstantFetch part = fetch;
  part.entry += first;
  part.entries = entries;
  part.constant_offset += first * entry_bytes(fetch);
  return part;
}

void Emitter::append_fetch(const ConstantFetch& fetch) {
  for (const isa::Instruction& load : loads_of(fetch)) {
    works.push_back(pool.add(load, config));
    if (fetch.space == isa::Space::kWgt)  // parameters are counted where they are pushed
      stream_bytes_of(fetch.layer)[static_cast<size_t>(Stream::kWeights)] += works.back()->dram_bytes;
    instructions.push_back(load);
    layer_of_instruction.push_back(fetch.layer);
  }
}

Emitter::Fetches Emitter::place_apart(std::vector<Profile> profiles, const Pieces& pieces) const {
  Fetches fetches;
  fetches.before.resize(steps_.size());
  fetches.behind.resize(steps_.size());
  /// Puts pieces behind steps before `step`; returns the entries that are left.
  const auto spread = [&](const ConstantFetch& fetch, size_t step) {
    const int64_t cycles = entry_cycles(fetch);
    int64_t left = fetch.entries,
            budget = 0;  // negative: steps bound by the bus that earlier ones must make up for
    for (size_t behind_it = step; behind_it > 0 && left > 0; --behind_it) {
      const size_t s = behind_it - 1;
      if (Profile::busy_around(profiles, s, fetch)) break;
      const int64_t spare = profiles[s].spare;
      budget += spare > 0 ? static_cast<int64_t>(pieces.share * static_cast<double>(spare)) : spare;
      const int64_t entries = std::min(left, budget / cycles);
      if (entries <= 0 || (entries * cycles < pieces.cycles && entries < left)) continue;
      left -= entries;
      budget -= entries * cycles;
      profiles[s].spare -= entries * cycles;
      fetches.behind[s].push_back(part_of(fetch, left, entries));
    }
    return left;
  };
  for (size_t i = 0; i < steps_.size(); ++i) {
    for (const ConstantFetch& fetch : steps_[i].fetches) {
      const int64_t cycles = fetch.entries * entry_cycles(fetch);
      if (cycles < pieces.smallest) {
        fetches.before[i].push_back(fetch);
        profiles[i].spare -= cycles;
        continue;
      }
      const int64_t left = spread(fetch, i);
      if (left > 0) fetches.before[i].push_back(part_of(fetch, 0, left));
    }
  }
  return fetches;
}

Emitter::Timeline Emitter::joined(const Fetches& fetches) const {
  Timeline line;
  size_t count = 0;
  for (const Step& step : steps_) count += step.pushed.size() + 2 * step.fetches.size();
  line.works.reserve(count);
  line.layers.reserve(count);
  line.steps.reserve(count);
  for (size_t i = 0; i < steps_.size(); ++i) {
    const auto fetch = [&](const std::vector<std::vector<ConstantFetch>>& pieces) {
      if (pieces.empty()) return;
      for (const ConstantFetch& piece : pieces[i]) {
        for (const isa::Instruction& load : loads_of(piece)) {
          line.works.push_back(line.fetches.add(load, config));
          line.layers.push_back(piece.layer);
        }
      }
    };
    fetch(fetches.before);
    for (const Pushed& pushed : steps_[i].pushed) {
      line.works.push_back(pushed.work);
      line.layers.push_back(pushed.layer);
    }
    fetch(fetches.behind);
    line.steps.resize(line.works.size(), static_cast<uint32_t>(i));
  }
  return line;
}

int64_t Emitter::predicted(const Fetches& fetches, const Judge& judge) const {
  const Timeline line = joined(fetches);
  return judge(line.works, line.layers, 0).cycles;
}

std::vector<Emitter::Profile> Emitter::profiles() const {
  std::vector<Profile> all;
  all.reserve(steps_.size());
  for (const Step& step : steps_) all.push_back(profile_of(step.pushed));
  return all;
}

/// Both ways to place fetches, by the profiles of single steps. The better one is first; of equal ones the first.
std::array<Emitter::Placed, 2> Emitter::first_fetches(const std::vector<Profile>& profiles, const Judge& judge) const {
  std::array<Placed, 2> ways;
  ways[0].fetches = place_apart(profiles, {});
  ways[1].fetches = place_together(profiles, {});
  ways[1].together = true;
  const bool alike = ways[0].fetches == ways[1].fetches;
  at_once(kAtOnce, alike ? 1 : 2, [&](size_t k, size_t) { ways[k].cycles = predicted(ways[k].fetches, judge); });
  if (alike) ways[1].cycles = ways[0].cycles;
  if (ways[1].cycles < ways[0].cycles) std::swap(ways[0], ways[1]);
  return ways;
}

/// The stream of least cycles by the judge. First of both ways to place fetches. A step may take longer than its
/// engines work, as one of a few instructions that wait for each other: then the bus has more time than the step's own
/// profile says. The stream without fetches tells how much, and the better way is tried again. Streams of few fetches
/// come out alike in several ways, and are judged once.
Emitter::Placed Emitter::best_fetches(const Judge& judge, bool thorough) const {
  std::vector<Profile> profiles = this->profiles();
  if (!judge) return {place_apart(std::move(profiles), {})};
  const bool fetches =
      std::any_of(steps_.begin(), steps_.end(), [](const Step& step) { return !step.fetches.empty(); });
  if (!fetches) {
    Placed only{place_apart(std::move(profiles), {})};
    only.cycles = predicted(only.fetches, judge);
    return only;
  }
  std::array<Placed, 2> first;
  emit::Prediction timed;
  at_once(kAtOnce, 2, [&](size_t k, size_t) {
    if (k == 0) first = first_fetches(profiles, judge);
    if (k == 0 || !thorough) return;
    const Timeline bare = joined({});
    timed = judge(bare.works, bare.steps, steps_.size());
  });
  if (!thorough) return std::move(first[0]);
  for (size_t i = 0; i < steps_.size(); ++i) profiles[i].spare = timed.layer_cycles[i] - profiles[i].bus;
  const auto place = first[0].together ? &Emitter::place_together : &Emitter::place_apart;
  std::vector<Placed> others;
  for (const Pieces& pieces : {Pieces{}, Pieces{192, 128, 0.9}, Pieces{192, 128, 0.7}}) {
    Placed other{(this->*place)(profiles, pieces)};
    const auto alike = [&](const Placed& known) { return known.fetches == other.fetches; };
    if (std::ranges::none_of(first, alike) && std::ranges::none_of(others, alike)) others.push_back(std::move(other));
  }
  at_once(kAtOnce, others.size(), [&](size_t k, size_t) { others[k].cycles = predicted(others[k].fetches, judge); });
  Placed& best = first[0];
  for (Placed& other : others)
    if (other.cycles < best.cycles) std::swap(best, other);
  return std::move(best);
}

int64_t Emitter::glance(bool prefetch, const Judge& judge) const {
  return prefetch ? best_fetches(judge, false).cycles : predicted(unmoved(), judge);
}

Emitter::Fetches Emitter::unmoved() const {
  Fetches fetches;
  fetches.behind.resize(steps_.size());
  for (const Step& step : steps_) fetches.before.push_back(step.fetches);
  return fetches;
}

emit::Ordered Emitter::ordered(bool prefetch, emit::WorkPool& made) const {
  Timeline line = joined(prefetch ? best_fetches(nullptr, false).fetches : unmoved());
  made = std::move(line.fetches);
  made.share(pool);
  return emit::in_order(line.works, line.layers, config);
}

int64_t Emitter::assemble(bool prefetch, const Judge& judge) {
  Fetches fetches;
  int64_t least = 0;
  if (prefetch) {
    Placed placed = best_fetches(judge, true);
    const auto attempt = [&](auto change) {
      std::vector<Step> before = steps_;
      if (!(this->*change)()) return;
      Placed other = best_fetches(judge, true);
      if (other.cycles < placed.cycles) {
        placed = std::move(other);
      } else {
        steps_ = std::move(before);
      }
    };
    if (judge) {
      if (!keeps_order) attempt(&Emitter::hoist_factors);
      attempt(&Emitter::free_parameters);
      if (!keeps_order) attempt(&Emitter::advance_reductions);
    }
    fetches = std::move(placed.fetches);
    least = placed.cycles;
  } else {
    fetches = unmoved();
    if (judge) least = predicted(fetches, judge);
  }
  for (size_t i = 0; i < steps_.size(); ++i) {
    for (const ConstantFetch& fetch : fetches.before[i]) append_fetch(fetch);
    instructions.insert(instructions.end(), std::make_move_iterator(steps_[i].instructions.begin()),
                        std::make_move_iterator(steps_[i].instructions.end()));
    for (const Pushed& pushed : steps_[i].pushed) {
      works.push_back(pushed.work);
      layer_of_instruction.push_back(pushed.layer);
    }
    for (const ConstantFetch& fetch : fetches.behind[i]) append_fetch(fetch);
  }
  steps_.clear();
  return least;
}

}  // namespace tessera::npu
