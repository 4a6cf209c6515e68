// SPDX-License-Identifier: Apache-2.0
// Keys of tasks: their nests without the places of tensors, and what of the stage becomes instructions.
#include "compiler/npu/planning/search_memo.h"

#include <algorithm>
#include <bit>
#include <initializer_list>

#include "compiler/npu/planning/planner.h"
#include "compiler/schedule/text/nest_text.h"

namespace tessera::npu {

namespace {

constexpr int64_t kPage = 4096;  // tensors that lie alike inside it are alike to a burst

constexpr int64_t kTableBytes = 256;

/// Tables by the order in which they come: which of them are equal decides what is loaded, what they hold decides
/// nothing.
class TableNames {
 public:
  std::string of(const Table& table) {
    std::string name = " t";
    for (size_t at = 0; at < table.size(); at += kTableBytes) {
      const auto begin = table.begin() + static_cast<std::ptrdiff_t>(at);
      Table part(begin, begin + std::min<std::ptrdiff_t>(kTableBytes, table.end() - begin));
      name += " " + std::to_string(numbers_.try_emplace(std::move(part), numbers_.size()).first->second);
    }
    return name;
  }

 private:
  std::map<Table, size_t> numbers_;
};

/// The nest as a replay sees it: it gives input and output places of its own, and bytes take as long whatever they are.
schedule::Nest somewhere(schedule::Nest nest) {
  nest.pad_value = 0;
  for (schedule::Access* access : {&nest.input, &nest.output}) {
    access->base = kArenaBase;
    access->offset = 0;
  }
  nest.second.offset %= kPage;
  nest.factor.offset %= kPage;
  return nest;
}

void add_numbers(std::string& key, std::initializer_list<int64_t> numbers) {
  for (const int64_t number : numbers) key += " " + std::to_string(number);
}

/// Of a task's stage and rows what decides which instructions there are.
std::string stage_key(const Task& task, TableNames& tables) {
  const Stage& stage = *task.stage;
  std::string key;
  add_numbers(key, {task.sum, task.unit_input, stage.second.has_value()});
  for (const auto* table : {&stage.table, &stage.second_table}) key += *table ? tables.of(**table) : " -";
  if (stage.second) add_numbers(key, {static_cast<int64_t>(stage.second->kind)});
  if (task.rows == nullptr) return key;
  const RowForm& form = *task.rows;
  add_numbers(key, {static_cast<int64_t>(form.kind), form.centre, form.fixed_shift, form.shortest});
  if (form.shortest != 0)  // the tables of each length follow from the scales
    add_numbers(key, {std::bit_cast<int32_t>(form.input_scale), std::bit_cast<int32_t>(form.output_scale)});
  return key + tables.of(form.sum_tables) + tables.of(form.map_tables);
}

std::string search_key(const Task& task, TableNames& tables) {
  text::Printer printer;
  for (const schedule::Nest& nest : task.alternatives) schedule::print(somewhere(nest), printer);
  return printer.take() + stage_key(task, tables);
}

}  // namespace

bool SearchMemo::serves(const isa::MachineConfig& config, const Options& o) {
  isa::MachineConfig machine = config;
  machine.raster_pairs = 0;  // nests that it changes say so
  std::string to = isa::to_toml(machine);
  for (const bool flag : {o.fold, o.collapse_pixels, o.chain, o.prefetch_weights, o.virtual_threads})
    to += flag ? "1" : "0";
  for (const int64_t number : {o.dram_latency_cycles, o.dram_bandwidth_bytes, o.dram_cost.beat_256ths,
                               o.dram_cost.burst_cycles, o.dram_cost.turn_cycles})
    to += " " + std::to_string(number);
  to += " " + text::number(o.traffic_weight) + " " + o.search + " " + o.cost_model + " " + o.judge;
  if (bound_.empty()) bound_ = to;
  return bound_ == to;
}

std::string search_key(const Task& task) {
  TableNames tables;
  return search_key(task, tables);
}

std::string search_key(const Chain& chain) {
  TableNames tables;
  std::string key;
  for (const Task& task : chain.tasks) key += search_key(task, tables) + "\n";
  return key;
}

std::string units_key(const std::vector<const Unit*>& units) {
  TableNames tables;
  text::Printer printer;
  std::string key;
  const auto add = [&](const Task& task, const schedule::Nest& nest, const schedule::Schedule& schedule) {
    schedule::print(nest, printer);
    schedule::print(schedule, printer);
    key += stage_key(task, tables);
  };
  for (const Unit* unit : units) {
    if (unit->code) {
      key += unit->code->key;
    } else if (unit->chain) {
      key += schedule::to_text(schedule::ChainSchedule{{}, unit->chain->plan.tile});
      for (size_t s = 0; s < unit->chain->size(); ++s)
        add(unit->chain->tasks[s], *unit->chain->nests[s], unit->chain->plan.schedules[s]);
    } else {
      for (size_t t = 0; t < unit->tasks.size(); ++t)
        add(unit->tasks[t], *nest_of(unit->tasks[t], unit->schedules[t].input_layout), unit->schedules[t]);
    }
    key += "\n";
  }
  return printer.take() + key;
}

}  // namespace tessera::npu
