// SPDX-License-Identifier: Apache-2.0
// The stream out of steps, and when weights are fetched. LOAD takes its instructions in order, so a long fetch just
// before its use stalls the matrix engine, and a long fetch far ahead of it stalls the inputs of the steps between.
// Each fetch is therefore cut into pieces that fill the time the bus has to spare beside the steps before: from the
// step that needs them backward, as far as their place in WGT is free, past the borders of layers.
#include <algorithm>

#include "base/error.h"
#include "compiler/emit/duration.h"
#include "compiler/npu/emitter.h"
#include "compiler/npu/legalise.h"
#include "isa/effects.h"

namespace tessera::npu {

namespace {

constexpr int64_t kPieceCycles = 768;     // a piece keeps the bus busy at least so long: it costs an instruction
constexpr int64_t kSmallestCycles = 640;  // shorter fetches stay where they are
constexpr double kShare = 0.9;            // of the spare time that is given away
constexpr size_t kRunAhead = 2;           // steps by which LOAD is ahead of the engine that frees a place

/// What a step does to the bus and to WGT.
struct Profile {
  int64_t spare = 0;  // cycles of its computation that its own transfers leave; negative: it is bound by them
  std::vector<std::pair<int64_t, int64_t>>
      used;  // intervals of WGT entries that products read or that run-time factors are fetched into

  bool uses(int64_t entry, int64_t entries) const {
    return std::any_of(used.begin(), used.end(),
                       [&](const auto& r) { return r.first < entry + entries && entry < r.second; });
  }
};

/// Not right behind the last reader, where LOAD would wait for it while the next inputs wait for LOAD.
bool busy_around(const std::vector<Profile>& profiles, size_t step, int64_t entry, int64_t entries) {
  for (size_t ahead = 0; ahead <= std::min(kRunAhead, step); ++ahead) {
    if (profiles[step - ahead].uses(entry, entries)) return true;
  }
  return false;
}

Profile profile_of(const std::vector<isa::Instruction>& instructions, const isa::MachineConfig& config,
                   int64_t bus_bytes) {
  const int64_t entry_bytes = config.wgt_entry_bytes();
  Profile profile;
  int64_t gemm = 0, alu = 0, bus = 0;
  for (const isa::Instruction& instruction : instructions) {
    const isa::Effects effects = isa::effects(instruction, config);
    const emit::Duration d = emit::duration(instruction, effects, config);
    const auto engine = isa::engine_of(instruction);
    const int64_t beats = d.beats * config.axi_bytes / bus_bytes;
    bus += std::max(beats, engine == isa::Engine::kLoad ? d.engine : 0) + isa::kInstructionBytes / bus_bytes;
    if (engine == isa::Engine::kGemm) gemm += d.engine;
    if (engine == isa::Engine::kAlu) alu += d.engine;
    for (const isa::Operand& operand : effects.operands) {
      if (operand.memory() == static_cast<int>(isa::Space::kWgt))
        profile.used.emplace_back(operand.begin / entry_bytes, (operand.end + entry_bytes - 1) / entry_bytes);
    }
  }
  profile.spare = std::max(gemm, alu) - bus;
  return profile;
}

}  // namespace

void Emitter::append_fetch(const WeightFetch& fetch) {
  Transfer t;
  t.space = isa::Space::kWgt;
  t.base = kConstantBase;
  t.dram_offset = fetch.constant_offset;
  t.length = config.wgt_entry_bytes();
  t.sp_addr = fetch.entry * t.length;
  t.loops.push_back({fetch.entries, t.length, t.length});
  std::vector<isa::Instruction> loads;
  append_transfer(t, loads);
  for (const isa::Instruction& load : loads) {
    stream_bytes_of(fetch.layer)[static_cast<size_t>(Stream::kWeights)] += isa::dram_bytes(load);
    instructions.push_back(load);
    layer_of_instruction.push_back(fetch.layer);
  }
}

void Emitter::place_weights(std::vector<std::vector<WeightFetch>>& before,
                            std::vector<std::vector<WeightFetch>>& behind) const {
  const int64_t entry_bytes = config.wgt_entry_bytes(), entry_cycles = std::max<int64_t>(1, entry_bytes / bus_bytes);
  std::vector<Profile> profiles;
  profiles.reserve(steps_.size());
  for (const Step& step : steps_) profiles.push_back(profile_of(step.instructions, config, bus_bytes));
  /// Puts pieces behind steps before `step`; returns the entries that are left.
  const auto spread = [&](const WeightFetch& fetch, size_t step) {
    int64_t left = fetch.entries,
            budget = 0;  // negative: steps bound by the bus that earlier ones must make up for
    for (size_t behind_it = step; behind_it > 0 && left > 0; --behind_it) {
      const size_t s = behind_it - 1;
      if (busy_around(profiles, s, fetch.entry, fetch.entries)) break;
      const int64_t spare = profiles[s].spare;
      budget += spare > 0 ? static_cast<int64_t>(kShare * static_cast<double>(spare)) : spare;
      const int64_t entries = std::min(left, budget / entry_cycles);
      if (entries <= 0 || (entries * entry_cycles < kPieceCycles && entries < left)) continue;
      left -= entries;
      budget -= entries * entry_cycles;
      profiles[s].spare -= entries * entry_cycles;
      behind[s].push_back({fetch.entry + left, entries, fetch.constant_offset + left * entry_bytes, fetch.layer});
    }
    return left;
  };
  for (size_t i = 0; i < steps_.size(); ++i) {
    for (const WeightFetch& fetch : steps_[i].weights) {
      if (fetch.entries * entry_cycles < kSmallestCycles) {
        before[i].push_back(fetch);
        profiles[i].spare -= fetch.entries * entry_cycles;
        continue;
      }
      const int64_t left = spread(fetch, i);
      if (left > 0) before[i].push_back({fetch.entry, left, fetch.constant_offset, fetch.layer});
    }
  }
}

void Emitter::assemble(bool prefetch) {
  std::vector<std::vector<WeightFetch>> before(steps_.size()), behind(steps_.size());
  if (prefetch) {
    place_weights(before, behind);
  } else {
    for (size_t i = 0; i < steps_.size(); ++i) before[i] = steps_[i].weights;
  }
  for (size_t i = 0; i < steps_.size(); ++i) {
    for (const WeightFetch& fetch : before[i]) append_fetch(fetch);
    instructions.insert(instructions.end(), std::make_move_iterator(steps_[i].instructions.begin()),
                        std::make_move_iterator(steps_[i].instructions.end()));
    layer_of_instruction.insert(layer_of_instruction.end(), steps_[i].layers.begin(), steps_[i].layers.end());
    for (const WeightFetch& fetch : behind[i]) append_fetch(fetch);
  }
  steps_.clear();
}

}  // namespace tessera::npu
