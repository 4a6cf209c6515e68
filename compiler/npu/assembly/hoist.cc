// SPDX-License-Identifier: Apache-2.0
// Run-time factors of products, fetched in earlier steps. Such a factor is an activation: it can be fetched once its
// producer has stored it, which may be a whole layer before its product, and its place in WGT is free. Where the bus is
// idle then and busy at the product, as in attention whose keys are made before its queries, the fetch moves.
// Parameters that are many, as a classifier's, become fetches that are placed as those of weights are (fetches.cc):
// where all steps before are bound by their weights they come before these.
#include <algorithm>
#include <span>

#include "compiler/npu/assembly/steps.h"

namespace tessera::npu {

namespace {

/// What a fetch reads of DRAM and writes on chip.
struct Places {
  emit::Touch source, place;
};

std::optional<Places> run_time_factor(const emit::Work& work) {
  if (work.engine != isa::Engine::kLoad) return std::nullopt;
  Places found;
  bool reads = false, writes = false;
  for (const emit::Touch& touch : work.touches) {
    if (touch.memory >= isa::kSpaces) {
      found.source = touch;
      reads = !touch.write;
    } else if (touch.memory == static_cast<int>(isa::Space::kWgt)) {
      found.place = touch;
      writes = touch.write;
    }
  }
  return reads && writes ? std::optional(found) : std::nullopt;
}

bool overlap(const emit::Touch& a, const emit::Touch& b) { return a.begin < b.end && b.begin < a.end; }

/// Whether the fetch may not stand in front of this work. Bytes behind another base register may be the same ones.
bool holds_back(const emit::Work& work, const Places& fetch) {
  return std::any_of(work.touches.begin(), work.touches.end(), [&](const emit::Touch& touch) {
    if (touch.memory >= isa::kSpaces)
      return touch.write && (touch.memory != fetch.source.memory || overlap(touch, fetch.source));
    return touch.memory == fetch.place.memory && overlap(touch, fetch.place);
  });
}

template <typename Pushed>
bool holds_back(std::span<const Pushed> step, const Places& fetch) {
  return std::any_of(step.begin(), step.end(), [&](const Pushed& pushed) { return holds_back(*pushed.work, fetch); });
}

}  // namespace

void Emitter::Step::copy(const Step& other, size_t k) {
  instructions.push_back(other.instructions[k]);
  pushed.push_back(other.pushed[k]);
}

void Emitter::Step::take(Step& other, size_t k) {
  const auto at = static_cast<std::ptrdiff_t>(k);
  copy(other, k);
  other.instructions.erase(other.instructions.begin() + at);
  other.pushed.erase(other.pushed.begin() + at);
}

bool Emitter::hoist_factors() {
  std::vector<Profile> profiles;
  profiles.reserve(steps_.size());
  for (const Step& step : steps_) profiles.push_back(profile_of(step.pushed));
  /// The step behind which there is time for the fetch.
  const auto step_for = [&](size_t from, const Places& fetch, int64_t cycles) -> std::optional<size_t> {
    int64_t budget = 0;
    for (size_t s = from; s-- > 0;) {
      for (size_t ahead = 0; ahead <= std::min(kRunAhead, s); ++ahead) {
        if (holds_back(std::span<const Pushed>(steps_[s - ahead].pushed), fetch)) return std::nullopt;
      }
      budget += profiles[s].spare;
      if (budget >= cycles) return s;
    }
    return std::nullopt;
  };
  bool moved = false;
  for (size_t i = 1; i < steps_.size(); ++i) {
    for (size_t k = 0; k < steps_[i].pushed.size();) {
      const std::span<const Pushed> step = steps_[i].pushed;
      const emit::Work& work = *step[k].work;
      const auto fetch = run_time_factor(work);
      const int64_t cycles = fetch ? bus_cycles(work) : 0;
      const auto to = fetch && !holds_back(step.first(k), *fetch) ? step_for(i, *fetch, cycles) : std::nullopt;
      if (!to) {
        ++k;
        continue;
      }
      steps_[*to].take(steps_[i], k);
      profiles[*to].spare -= cycles;
      profiles[i].spare += cycles;
      moved = true;
    }
  }
  return moved;
}

std::optional<Emitter::ConstantFetch> Emitter::parameters_of(const isa::Instruction& instruction,
                                                             uint32_t of_layer) const {
  const auto* load = std::get_if<isa::Load>(&instruction);
  if (load == nullptr || load->space != isa::Space::kParam || load->fill || load->base != kConstantBase)
    return std::nullopt;
  const int64_t entry = config.param_entry_bytes();
  int64_t bytes = load->length;
  for (const uint16_t extent : load->extent) bytes *= extent;
  for (const bool scales : {false, true}) {
    ConstantFetch fetch{
        isa::Space::kParam, load->sp_addr / entry, 0, static_cast<int64_t>(load->dram_offset), of_layer, scales};
    fetch.entries = bytes / entry_bytes(fetch);
    if (fetch.entries > 0 && loads_of(fetch) == std::vector<isa::Instruction>{instruction}) return fetch;
  }
  return std::nullopt;
}

bool Emitter::free_parameters() {
  constexpr int64_t kLeast = 128;  // cycles: shorter ones stay where they are in any case
  bool any = false;
  for (Step& step : steps_) {
    Step kept;
    kept.fetches = std::move(step.fetches);
    for (size_t k = 0; k < step.pushed.size(); ++k) {
      const auto fetch = parameters_of(step.instructions[k], step.pushed[k].layer);
      const auto touches = [&](const Pushed& pushed) { return profile_of({&pushed, 1}).uses(*fetch); };
      const auto before = step.pushed.begin(), at = before + static_cast<std::ptrdiff_t>(k);
      if (!fetch || fetch->entries * entry_cycles(*fetch) < kLeast || std::any_of(before, at, touches)) {
        kept.copy(step, k);
      } else {
        kept.fetches.push_back(*fetch);
        any = true;
      }
    }
    step = std::move(kept);
  }
  return any;
}

}  // namespace tessera::npu
