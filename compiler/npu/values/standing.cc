// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/values/standing.h"

#include <algorithm>
#include <variant>

#include "compiler/npu/values/walk.h"

namespace tessera::npu {

using isa::Space;

Standing::Standing(const isa::MachineConfig& config)
    : config_(config),
      entry_bytes_(config.entry_bytes(Space::kInp)),
      written_(static_cast<size_t>(config.depth(Space::kInp) + config.depth(Space::kOut)), 0) {}

template <typename Visit>
void Standing::each_part(const Runs& runs, Visit&& visit) {
  // What reaches past the end, as a candidate of a plugin may, is refused when it is chosen.
  const int64_t first = runs.space == Space::kInp ? 0 : config_.depth(Space::kInp),
                last = static_cast<int64_t>(written_.size()) - 1;
  bool on = true;
  each_of_both(runs.dram, runs.scratchpad, [&](int64_t dram, int64_t chip) {
    for (int64_t at = dram; on && at < dram + runs.length; at = (at / kPart + 1) * kPart) {
      Source& source = (*arena_.find(at / kPage, true))[static_cast<size_t>(at % kPage / kPart)];
      on = visit(source, static_cast<uint32_t>(std::min(last, first + (chip + at - dram) / entry_bytes_)));
    }
  });
}

void Standing::run(const isa::Instruction& instruction, const emit::Work& work) {
  ++time_;
  const std::optional<Runs> runs = arena_runs(instruction);
  const bool load = std::holds_alternative<isa::Load>(instruction);
  if (runs && load) {
    bool all = true;
    each_part(*runs, [&](const Source& source, uint32_t) { return all = stands(source); });
    if (all) bytes_ += work.dram_bytes;
  }
  for (const emit::Touch& touch : work.touches) {
    if (!touch.write || touch.begin >= touch.end) continue;
    const bool inp = touch.memory == static_cast<int>(Space::kInp);
    if (!inp && touch.memory != static_cast<int>(Space::kOut)) continue;
    const int64_t first = inp ? 0 : config_.depth(Space::kInp);
    const auto end = std::min(written_.size(), static_cast<size_t>(first + (touch.end - 1) / entry_bytes_ + 1));
    for (auto at = static_cast<size_t>(first + touch.begin / entry_bytes_); at < end; ++at) written_[at] = time_;
  }
  if (!runs) return;
  each_part(*runs, [&](Source& source, uint32_t entry) {
    if (!load || !stands(source)) source = {time_, entry};
    return true;
  });
}

}  // namespace tessera::npu
