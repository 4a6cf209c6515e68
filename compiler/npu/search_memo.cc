// SPDX-License-Identifier: Apache-2.0
// Keys of tasks: their nests without the places of tensors, and what of the stage becomes instructions.
#include "compiler/npu/search_memo.h"

#include "compiler/schedule/nest_text.h"

namespace tessera::npu {

namespace {

constexpr int64_t kPage = 4096;  // tensors that lie alike inside it are alike to a burst

uint64_t hash_of(const std::optional<Table>& table) {
  uint64_t hash = 1469598103934665603ull;
  if (table) {
    for (const uint8_t byte : *table) hash = (hash ^ byte) * 1099511628211ull;
  }
  return table ? hash : 0;
}

/// The nest as a replay sees it: it gives input and output places of its own.
schedule::Nest somewhere(schedule::Nest nest) {
  for (schedule::Access* access : {&nest.input, &nest.output}) {
    access->base = kArenaBase;
    access->offset = 0;
  }
  nest.second.offset %= kPage;
  nest.factor.offset %= kPage;
  return nest;
}

}  // namespace

bool SearchMemo::serves(const isa::MachineConfig& config, const Options& o) {
  std::string to = isa::to_toml(config);
  for (const bool flag : {o.fold, o.collapse_pixels, o.chain, o.prefetch_weights, o.virtual_threads})
    to += flag ? "1" : "0";
  for (const int64_t number : {o.alignment, o.dram_latency_cycles, o.dram_bandwidth_bytes})
    to += " " + std::to_string(number);
  to += " " + text::number(o.traffic_weight) + " " + o.search + " " + o.cost_model + " " + o.judge;
  if (bound_.empty()) bound_ = to;
  return bound_ == to;
}

std::string search_key(const Task& task) {
  text::Printer printer;
  for (const schedule::Nest& nest : task.alternatives) schedule::print(somewhere(nest), printer);
  const Stage& stage = *task.stage;
  std::string key = printer.take();
  for (const int64_t number : {int64_t{task.sum}, int64_t{task.input_zero}, int64_t{task.factor_zero},
                               int64_t{task.unit_input}, int64_t{stage.second.has_value()}})
    key += " " + std::to_string(number);
  for (const std::optional<Table>* table : {&stage.table, &stage.second_table})
    key += " " + std::to_string(hash_of(*table));
  if (stage.second) key += " " + std::to_string(static_cast<int>(stage.second->kind));
  return key;
}

}  // namespace tessera::npu
