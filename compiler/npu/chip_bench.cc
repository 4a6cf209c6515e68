// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/chip_bench.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "compiler/npu/cores/cores.h"

namespace tessera::npu {

using schedule::DividedSchedule;

ChipBench::ChipBench(Graph graph, const isa::MachineConfig& config, const Options& options)
    : graph_(std::move(graph)), config_(config), options_(options) {
  options_.search_log = nullptr;
  options_.schedules.clear();
  options_.divided.resize(graph_.operations.size());
  for (auto& given : options_.divided)
    if (given) given->cores.clear();
  if (std::ranges::any_of(options_.divided, [](const auto& given) { return !given.has_value(); }))
    chosen_ = compile(graph_, config_, options_);
  for (size_t i = 0; chosen_ && i < graph_.operations.size(); ++i)
    options_.divided[i] = DividedSchedule{chosen_->layers[i].divided.value_or(DividedSchedule()).division, {}};
  const Shares shares = choose_shares(graph_, config_, options_, 1).front();
  // Where nobody said who makes what the cores read of a result, they say it now.
  for (size_t i = 0; i < graph_.operations.size(); ++i) options_.divided[i]->division = shares.divisions[i];
  const ChipGraph chip = divided(graph_, shares, config_.memory_bytes());
  for (size_t core = 0; core < static_cast<size_t>(config_.cores); ++core) {
    Part part;
    part.core = core;
    std::vector<uint32_t> numbers;
    Graph own = graph_of(chip, core, numbers);
    if (numbers.empty()) continue;
    for (const uint32_t number : numbers) part.operations.push_back(chip.layers[number]);
    part.bench = std::make_unique<Workbench>(std::move(own), config_, options_of_a_core(config_, options_, 0));
    parts_.push_back(std::move(part));
  }
}

std::vector<schedule::Division> ChipBench::divisions() const {
  std::vector<schedule::Division> divisions;
  for (const auto& given : options_.divided) divisions.push_back(given->division);
  return divisions;
}

std::vector<schedule::Division> ChipBench::ways(size_t operation) const {
  const Operation& of = graph_.operations.at(operation);
  const schedule::Division& present = options_.divided[operation]->division;
  const auto cores = static_cast<size_t>(config_.cores);
  std::vector<schedule::Division> all = divisions_of(graph_, of, cores, config_.block_out);
  const auto add = [&](schedule::Division division) {
    division.own.reset();
    if (obstacle(graph_, of, division, cores, config_.block_out).empty()) all.push_back(std::move(division));
  };
  for (size_t core = 0; core + 1 < present.ends.size(); ++core) {
    // A unit is not known here: the least step that is legal.
    const int64_t before = core == 0 ? 0 : present.ends[core - 1], behind = present.ends[core + 1];
    for (const int64_t sign : {-1, 1}) {
      schedule::Division other = present;
      do other.ends[core] += sign;
      while (other.ends[core] > before && other.ends[core] < behind &&
             !obstacle(graph_, of, other, cores, config_.block_out).empty());
      add(std::move(other));
    }
  }
  for (const std::optional<bool> own : {std::optional<bool>(false), std::optional<bool>(true)}) {
    if (own == present.own) continue;
    all.push_back(present);
    all.back().own = own;
  }
  return all;
}

std::vector<std::vector<Placed>> ChipBench::chosen(const Kept& kept) const {
  if (!kept.empty()) {
    Options options = options_;
    for (const auto& [place, schedule] : kept) {
      auto& parts = options.divided.at(place.first)->cores;
      parts.resize(static_cast<size_t>(config_.cores));
      parts.at(place.second) = schedule;
    }
    chosen_ = compile(graph_, config_, options);
  } else if (!chosen_) {
    chosen_ = compile(graph_, config_, options_);
  }
  std::vector<std::vector<Placed>> result;
  for (const Part& part : parts_) {
    std::vector<Placed>& placed = result.emplace_back();
    for (size_t i = 0; i < part.operations.size();) {
      const LayerInfo& layer = chosen_->layers[part.operations[i]];
      placed.push_back({i, layer.divided ? layer.divided->cores[part.core].value() : layer.schedule});
      const auto* chain = std::get_if<schedule::ChainSchedule>(&placed.back().schedule);
      i += chain == nullptr ? 1 : chain->links.size();
    }
  }
  return result;
}

Program ChipBench::program(const std::vector<std::vector<Placed>>& schedules) const {
  Options options = options_;
  for (auto& given : options.divided) given->cores.resize(static_cast<size_t>(config_.cores));
  for (size_t p = 0; p < parts_.size(); ++p) {
    size_t next = 0;
    const std::vector<size_t>& operations = parts_[p].operations;
    const bool all =
        p < schedules.size() && std::ranges::all_of(
                                    schedules[p],
                                    [&](const Placed& placed) {
                                      const auto* chain = std::get_if<schedule::ChainSchedule>(&placed.schedule);
                                      const size_t end = placed.first + (chain == nullptr ? 1 : chain->links.size());
                                      if (placed.first != next || end > operations.size()) return false;
                                      for (; next < end; ++next)
                                        options.divided[operations[next]]->cores[parts_[p].core] = placed.schedule;
                                      return true;
                                    });
    if (!all || next != operations.size())
      throw Error(ErrorCode::kInvalidArgument,
                  "schedules of a whole graph on a chip are those of all operations of each core, in order");
  }
  return compile(graph_, config_, options);
}

}  // namespace tessera::npu
