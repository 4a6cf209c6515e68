// SPDX-License-Identifier: Apache-2.0
// Texts as keys; all is forgotten at once when it becomes much.
#include "compiler/npu/planning/replay_memo.h"

#include <algorithm>

namespace tessera::npu {

namespace {

constexpr size_t kMostBytes = size_t{128} << 20;
constexpr size_t kEntry = 160;  // bytes of an entry beside its text and its slots, about

std::string key_of(uint32_t subject, const std::string& plan) { return std::to_string(subject) + " " + plan; }

}  // namespace

uint32_t ReplayMemo::subject(const std::string& text) {
  const auto [at, is_new] = subjects_.emplace(text, next_);
  if (is_new) {
    ++next_;
    bytes_ += text.size() + kEntry;
  }
  return at->second;
}

std::optional<schedule::Cost> ReplayMemo::find(uint32_t subject, const std::string& plan,
                                               const isa::MachineConfig& config) {
  const auto known = known_.find(key_of(subject, plan));
  if (known != known_.end()) {
    const auto alike = std::find_if(known->second.begin(), known->second.end(),
                                    [&](const Known& one) { return same_slots(one.slots, config); });
    if (alike != known->second.end()) {
      ++found_;
      return alike->cost;
    }
  }
  ++missed_;
  return std::nullopt;
}

void ReplayMemo::keep(uint32_t subject, const std::string& plan, SlotLog slots, const schedule::Cost& cost) {
  if (bytes_ > kMostBytes) {  // subjects in hand keep their numbers, which are not given again
    subjects_.clear();
    known_.clear();
    bytes_ = 0;
  }
  bytes_ += plan.size() + slots.size() * sizeof(SlotStep) + kEntry;
  known_[key_of(subject, plan)].push_back({std::move(slots), cost});
}

std::string replayed_on(const isa::MachineConfig& config, const Options& o) {
  isa::MachineConfig machine = config;
  machine.name.clear();
  machine.inp_bytes = machine.wgt_bytes = machine.acc_bytes = machine.out_bytes = machine.param_bytes = 0;
  std::string text = isa::to_toml(machine);
  for (const bool flag : {o.prefetch_weights, o.virtual_threads}) text += flag ? "1" : "0";
  for (const int64_t number : {o.dram_latency_cycles, o.dram_bandwidth_bytes, o.dram_cost.beat_256ths,
                               o.dram_cost.burst_cycles, o.dram_cost.turn_cycles})
    text += " " + std::to_string(number);
  return text;
}

}  // namespace tessera::npu
