// SPDX-License-Identifier: Apache-2.0
// Keys of tasks: their nests without the places of tensors, and what of the stage becomes instructions.
#include "compiler/npu/search_memo.h"

#include <bit>

#include "compiler/npu/planner.h"
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

/// Of a task's stage and rows what becomes instructions.
std::string stage_key(const Task& task) {
  const Stage& stage = *task.stage;
  std::string key;
  for (const int64_t number : {int64_t{task.sum}, int64_t{task.input_zero}, int64_t{task.factor_zero},
                               int64_t{task.unit_input}, int64_t{stage.second.has_value()}})
    key += " " + std::to_string(number);
  for (const std::optional<Table>* table : {&stage.table, &stage.second_table})
    key += " " + std::to_string(hash_of(*table));
  if (stage.second) key += " " + std::to_string(static_cast<int>(stage.second->kind));
  if (task.rows != nullptr) {
    const RowForm& form = *task.rows;
    for (const int64_t number :
         {static_cast<int64_t>(form.kind), int64_t{form.centre}, form.shortest,
          static_cast<int64_t>(std::bit_cast<uint32_t>(form.input_scale)),
          static_cast<int64_t>(std::bit_cast<uint32_t>(form.output_scale)),
          static_cast<int64_t>(hash_of(form.sum_tables)), static_cast<int64_t>(hash_of(form.map_tables))})
      key += " " + std::to_string(number);
  }
  return key;
}

}  // namespace

bool SearchMemo::serves(const isa::MachineConfig& config, const Options& o) {
  std::string to = isa::to_toml(config);
  for (const bool flag : {o.fold, o.collapse_pixels, o.chain, o.prefetch_weights, o.virtual_threads})
    to += flag ? "1" : "0";
  for (const int64_t number : {o.alignment, o.dram_latency_cycles, o.dram_bandwidth_bytes, o.dram_cost.beat_256ths,
                               o.dram_cost.burst_cycles, o.dram_cost.turn_cycles})
    to += " " + std::to_string(number);
  to += " " + text::number(o.traffic_weight) + " " + o.search + " " + o.cost_model + " " + o.judge;
  if (bound_.empty()) bound_ = to;
  return bound_ == to;
}

std::string search_key(const Task& task) {
  text::Printer printer;
  for (const schedule::Nest& nest : task.alternatives) schedule::print(somewhere(nest), printer);
  return printer.take() + stage_key(task);
}

std::string search_key(const Chain& chain) {
  std::string key;
  for (const Task& task : chain.tasks) key += search_key(task) + "\n";
  return key;
}

std::string unit_key(const Unit& unit) {
  text::Printer printer;
  std::string key;
  const auto add = [&](const Task& task, const schedule::Nest& nest, const schedule::Schedule& schedule) {
    schedule::print(nest, printer);
    schedule::print(schedule, printer);
    key += stage_key(task);
  };
  if (unit.code) return unit.code->key + "\n";
  if (unit.chain) {
    key = schedule::to_text(schedule::ChainSchedule{{}, unit.chain->plan.tile});
    for (size_t s = 0; s < unit.chain->size(); ++s)
      add(unit.chain->tasks[s], *unit.chain->nests[s], unit.chain->plan.schedules[s]);
  } else {
    for (size_t t = 0; t < unit.tasks.size(); ++t)
      add(unit.tasks[t], *nest_of(unit.tasks[t], unit.schedules[t].input_layout), unit.schedules[t]);
  }
  return printer.take() + key + "\n";
}

}  // namespace tessera::npu
