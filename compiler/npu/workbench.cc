// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/workbench.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "compiler/npu/assembly/assemble.h"
#include "compiler/npu/cores/cores.h"
#include "compiler/npu/graph/plan.h"
#include "compiler/npu/planning/bound.h"
#include "compiler/schedule/bound.h"
#include "compiler/schedule/cost_model.h"

namespace tessera::npu {

using schedule::ChainPlan;
using schedule::ChainSchedule;
using schedule::ChainTile;
using schedule::Cost;
using schedule::Dice;
using schedule::Index;
using schedule::LayerSchedule;
using schedule::Nest;
using schedule::Schedule;
using schedule::Space;

struct Workbench::Entry {
  std::vector<Task> tasks;                                  // of a single operation, or
  std::optional<Chain> chain;                               // the chain, without a plan
  std::vector<std::vector<std::unique_ptr<Space>>> spaces;  // by task and alternative
  std::optional<schedule::ChainSpace> chain_space;
  std::vector<NestTile> tiles;                 // of the first task, least bound first
  std::unique_ptr<Exhaustion> exhaustion;      // of these tiles
  const schedule::CostModel* judge = nullptr;  // that measured them
};

namespace {

constexpr size_t kKeptArrangements = 16;

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, "the schedule is illegal: " + why);
}

Cost judged(schedule::CostModel& judge, const schedule::InstructionStream& stream) {
  if (const std::optional<Cost> cost = judge.cost(stream)) return *cost;
  throw Error(ErrorCode::kInvalidArgument,
              "this judge looks at no instructions: it cannot judge layers together; take replay, sysc or rtl");
}

const std::vector<Schedule>& schedules_of(const LayerSchedule& schedule, size_t tasks) {
  const auto* list = std::get_if<std::vector<Schedule>>(&schedule);
  if (list == nullptr) refuse("a chain is given for a single operation");
  if (list->size() != tasks)
    refuse(std::to_string(list->size()) + " schedules are given for " + std::to_string(tasks) + " nests");
  return *list;
}

const ChainSchedule& chain_of(const LayerSchedule& schedule) {
  const auto* chain = std::get_if<ChainSchedule>(&schedule);
  if (chain == nullptr) refuse("a single schedule is given for a chain");
  return *chain;
}
const ChainTile& tile_of(const LayerSchedule& schedule) { return chain_of(schedule).tile; }

/// The alternative that a schedule is for. Errors: kInvalidArgument.
const Nest& nest_for(const Task& task, const Schedule& schedule, const isa::MachineConfig& config) {
  const Nest* nest = nest_of(task, schedule.input_layout);
  if (nest == nullptr) nest = &task.alternatives.back();
  if (const std::string why = schedule::obstacle(*nest, schedule, config); !why.empty()) refuse(why);
  return *nest;
}

Options opened(Options options) {
  options.schedules.clear();
  options.search_log = nullptr;
  return options;
}

}  // namespace

Workbench::Workbench(Graph graph, const isa::MachineConfig& config, const Options& options)
    : graph_(std::move(graph)), config_(config), options_(opened(options)), machine_(machine_of(config, options)) {
  isa::validate(config_);
  for (Tensor& tensor : graph_.tensors) tensor.scope = Scope::kOpen;
  if (options_.memo == nullptr) options_.memo = std::make_shared<SearchMemo>();
  placements_ = places_apart(graph_, options_);
  const std::vector<bool> feeds = feeds_next(graph_);
  const size_t operations = graph_.operations.size();
  const auto add = [&](size_t first, size_t count, std::string key) {
    numbers_[{first, count}] = pieces_.size();
    pieces_.push_back({first, count, std::move(key)});
  };
  for (size_t i = 0; i < operations; ++i) {
    std::string key;
    for (const Task& task :
         guarded(graph_, config_, i, [&] { return make_tasks(graph_, i, placements_, config_, options_); }))
      key += search_key(task) + "\n";
    add(i, 1, std::move(key));
    for (size_t links = 2; links <= kMostLinks && i + links <= operations && feeds[i + links - 2]; ++links) {
      if (!options_.chain || !options_.virtual_threads) break;
      const auto chain = make_chain(graph_, i, links, placements_, config_, options_);
      if (!chain) continue;
      const bool possible = std::any_of(
          chain->tasks[0].alternatives.begin(), chain->tasks[0].alternatives.end(),
          [&](const Nest& head) { return schedule::chain_obstacle(nests_of(*chain, head), config_).empty(); });
      if (!possible) continue;
      std::string links_key = "chain\n";
      for (const Task& task : chain->tasks) links_key += search_key(task) + "\n";
      add(i, links, std::move(links_key));
    }
  }
}

Workbench::~Workbench() = default;

std::string Workbench::key() const {
  std::string key;
  for (const Piece& piece : pieces_) key += std::to_string(piece.count) + " " + piece.key;
  return key;
}

Workbench::Entry& Workbench::entry(size_t piece) const {
  std::unique_ptr<Entry>& known = entries_[piece];
  if (known) return *known;
  const Piece& of = pieces_.at(piece);
  auto made = std::make_unique<Entry>();
  if (of.count == 1) {
    made->tasks = make_tasks(graph_, of.first, placements_, config_, options_);
    for (const Task& task : made->tasks) {
      auto& spaces = made->spaces.emplace_back();
      for (const Nest& nest : task.alternatives) spaces.push_back(std::make_unique<Space>(nest, config_));
    }
  } else {
    made->chain = make_chain(graph_, of.first, of.count, placements_, config_, options_);
    TESSERA_INVARIANT(made->chain.has_value(), "a chain that could be made before");
    made->chain_space.emplace(nests_of(*made->chain, made->chain->tasks[0].alternatives.front()));
  }
  known = std::move(made);
  return *known;
}

const Nest& Workbench::head_of(const Chain& chain, const ChainSchedule& given, std::optional<ChainPlan>* plan,
                               std::string* reason) const {
  // As the planner does with a given chain: of layouts that are not said, the one whose plan the model likes best.
  const auto model = schedule::make_cost_model(options_.cost_model, machine_);
  const Nest* best = nullptr;
  int64_t cycles = 0;
  for (const Nest& head : chain.tasks[0].alternatives) {
    if (given.input_layout && head.layout != *given.input_layout) continue;
    const std::vector<const Nest*> nests = nests_of(chain, head);
    std::string why = schedule::chain_obstacle(nests, config_);
    std::optional<ChainPlan> made;
    if (why.empty()) made = schedule::ChainPlanner(nests, config_).plan(given.tile, &why);
    if (!made) {
      *reason = why;
      continue;
    }
    const int64_t estimated = model->cost({nests, nullptr}, *made).cycles;
    if (best != nullptr && cycles <= estimated) continue;
    best = &head;
    cycles = estimated;
    *plan = std::move(made);
  }
  return best != nullptr ? *best : chain.tasks[0].alternatives.front();
}

std::string Workbench::obstacle(size_t piece, const LayerSchedule& schedule) const {
  try {
    unit_of(piece, schedule);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    return error.what();
  }
  return "";
}

Unit Workbench::unit_of(size_t piece, const LayerSchedule& schedule) const {
  try {
    return unit_here(piece, schedule);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument || !has_pairs(graph_, config_)) throw;
    // The compiler may have found it on a machine without pairs: what is legal there runs here, too.
    try {
      return plain().unit_here(plain().piece_of(pieces_[piece].first, schedule), schedule);
    } catch (const Error&) {
    }
    throw;
  }
}

const Workbench& Workbench::plain() const {
  if (!plain_) plain_ = std::make_unique<Workbench>(graph_, without_pairs(config_), options_);
  return *plain_;
}

Unit Workbench::unit_here(size_t piece, const LayerSchedule& schedule) const {
  const Entry& from = entry(piece);
  Unit unit;
  unit.first = pieces_[piece].first;
  unit.count = pieces_[piece].count;
  if (!from.chain) {
    const auto& list = schedules_of(schedule, from.tasks.size());
    for (size_t t = 0; t < list.size(); ++t) {
      const Nest& nest = nest_for(from.tasks[t], list[t], config_);
      unit.schedules.push_back(schedule::canonical(nest, config_, list[t]));
    }
    unit.tasks = from.tasks;
    return unit;
  }
  std::optional<ChainPlan> plan;
  std::string reason;
  const Nest& head = head_of(*from.chain, chain_of(schedule), &plan, &reason);
  if (!plan) refuse(reason.empty() ? "the first link's input has not this layout" : reason);
  unit.chain = from.chain;
  const schedule::InputLayout layout = head.layout;
  unit.chain->nests = nests_of(*unit.chain, *nest_of(unit.chain->tasks[0], layout));
  unit.chain->plan = std::move(*plan);
  return unit;
}

std::vector<Placed> Workbench::chosen() const {
  const Program program = compile(graph_, config_, options_);
  std::vector<Placed> result;
  for (size_t i = 0; i < graph_.operations.size();) {
    const LayerSchedule& schedule = program.layers[i].schedule;
    result.push_back({i, schedule});
    const auto* chain = std::get_if<ChainSchedule>(&schedule);
    i += chain == nullptr ? 1 : chain->links.size();
  }
  return result;
}

std::vector<LayerSchedule> Workbench::candidates(size_t piece, const std::string& searcher, size_t count) const {
  const Entry& from = entry(piece);
  const auto finder = schedule::make_searcher(searcher);
  const auto model = schedule::make_cost_model(options_.cost_model, machine_);
  const schedule::Goal goal{!options_.virtual_threads, options_.traffic_weight};
  std::vector<std::pair<double, LayerSchedule>> all;
  if (from.chain) {
    ChainSchedule made;
    for (size_t s = 0; s < pieces_[piece].count; ++s)
      made.links.push_back(graph_.operations[pieces_[piece].first + s].name);
    for (const Nest& head : from.chain->tasks[0].alternatives) {
      const schedule::Subject subject{nests_of(*from.chain, head), nullptr};
      if (!schedule::chain_obstacle(subject.nests, config_).empty()) continue;
      for (const auto& [plan, cost, score] : finder->chains(subject, machine_, *model, goal, count)) {
        made.tile = plan.tile;
        if (from.chain->tasks[0].alternatives.size() > 1) made.input_layout = head.layout;
        all.emplace_back(score, made);
      }
    }
  } else {
    // Nests of one operation are independent: the n-th best of each.
    std::vector<std::vector<std::pair<double, Schedule>>> lists;
    for (const Task& task : from.tasks) {
      auto& list = lists.emplace_back();
      for (const Nest& nest : task.alternatives) {
        try {
          for (auto& found : finder->schedules({{&nest}, nullptr}, machine_, *model, goal, count))
            list.emplace_back(found.score, std::move(found.plan));
        } catch (const Error& error) {
          if (error.code() != ErrorCode::kDoesNotFit) throw;
        }
      }
      if (list.empty()) return {};
      std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    for (size_t i = 0; i < count; ++i) {
      std::vector<Schedule> schedules;
      double score = 0;
      bool more = false;
      for (const auto& list : lists) {
        const auto& [value, schedule] = list[std::min(i, list.size() - 1)];
        more = more || i < list.size();
        score += value;
        schedules.push_back(schedule);
      }
      if (!more) break;
      all.emplace_back(score, std::move(schedules));
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<LayerSchedule> result;
  for (auto& [score, schedule] : all) {
    if (result.size() < count && std::find(result.begin(), result.end(), schedule) == result.end())
      result.push_back(std::move(schedule));
  }
  return result;
}

Index Workbench::size(size_t piece) const {
  const Entry& from = entry(piece);
  if (from.chain) return from.chain_space->size();
  Index size = 1;
  for (const auto& spaces : from.spaces) {
    Index sum = 0;
    for (const auto& space : spaces) sum += space->size();
    size *= sum;
  }
  return size;
}

namespace {

/// A schedule of any alternative; those with more points are drawn more often.
Schedule sample_task(const std::vector<std::unique_ptr<Space>>& spaces, Dice& dice) {
  Index total = 0;
  for (const auto& space : spaces) total += space->size();
  constexpr int64_t kTries = int64_t{1} << 22;
  for (int64_t tries = kTries; tries > 0; --tries) {
    Index number = dice.below_index(total);
    for (const auto& space : spaces) {
      if (number < space->size()) {
        if (auto schedule = space->at(number)) return std::move(*schedule);
        break;
      }
      number -= space->size();
    }
  }
  throw Error(ErrorCode::kDoesNotFit, "none of " + std::to_string(kTries) + " points of the space is a legal schedule");
}

const Space& space_of(const Task& task, const std::vector<std::unique_ptr<Space>>& spaces, const Schedule& schedule) {
  for (size_t a = 0; a < task.alternatives.size(); ++a) {
    if (task.alternatives[a].layout == schedule.input_layout) return *spaces[a];
  }
  refuse("no alternative has input_layout '" + to_string(schedule.input_layout) + "'");
}

}  // namespace

LayerSchedule Workbench::sample(size_t piece, Dice& dice) const {
  const Entry& from = entry(piece);
  if (from.chain) {
    ChainSchedule made;
    for (size_t s = 0; s < pieces_[piece].count; ++s)
      made.links.push_back(graph_.operations[pieces_[piece].first + s].name);
    constexpr int kTries = 1 << 14;
    for (int i = 0; i < kTries; ++i) {
      made.tile = from.chain_space->sample(dice);
      if (obstacle(piece, made).empty()) return made;
    }
    throw Error(ErrorCode::kDoesNotFit, "none of " + std::to_string(kTries) + " tiles of the chain is legal");
  }
  std::vector<Schedule> schedules;
  for (const auto& spaces : from.spaces) schedules.push_back(sample_task(spaces, dice));
  return schedules;
}

LayerSchedule Workbench::mutate(size_t piece, const LayerSchedule& given, Dice& dice) const {
  const Entry& from = entry(piece);
  if (from.chain) {
    ChainSchedule made = std::get<ChainSchedule>(given);
    for (int i = 0; i < 64; ++i) {
      made.tile = from.chain_space->mutate(tile_of(given), dice);
      if (!(made.tile == tile_of(given)) && obstacle(piece, made).empty()) return made;
    }
    return given;
  }
  std::vector<Schedule> schedules = schedules_of(given, from.tasks.size());
  const auto t = static_cast<size_t>(dice.below(schedules.size()));
  if (from.spaces[t].size() > 1 && dice.chance(0.05)) {
    schedules[t] = sample_task(from.spaces[t], dice);
  } else {
    schedules[t] = space_of(from.tasks[t], from.spaces[t], schedules[t]).mutate(schedules[t], dice);
  }
  return schedules;
}

LayerSchedule Workbench::cross(size_t piece, const LayerSchedule& a, const LayerSchedule& b, Dice& dice) const {
  const Entry& from = entry(piece);
  if (from.chain) {
    ChainSchedule made = std::get<ChainSchedule>(a);
    made.tile = schedule::ChainSpace::cross(tile_of(a), tile_of(b), dice);
    return obstacle(piece, made).empty() ? LayerSchedule(made) : a;
  }
  std::vector<Schedule> schedules = schedules_of(a, from.tasks.size());
  const auto& others = schedules_of(b, from.tasks.size());
  for (size_t t = 0; t < schedules.size(); ++t) {
    if (schedules[t].input_layout != others[t].input_layout) {
      if (dice.chance(0.5)) schedules[t] = others[t];
    } else {
      schedules[t] = space_of(from.tasks[t], from.spaces[t], schedules[t]).cross(schedules[t], others[t], dice);
    }
  }
  return schedules;
}

void Workbench::find_tiles(Entry& of) const {
  if (of.chain || !of.tiles.empty()) return;
  // Nests of one operation overlap, but share the bus: the first one's tiles, with the bytes of the others.
  int64_t others = 0;
  for (size_t t = 1; t < of.tasks.size(); ++t) {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const Nest& nest : of.tasks[t].alternatives) least = std::min(least, schedule::least_bytes(nest, machine_));
    others += least;
  }
  for (const Nest& nest : of.tasks[0].alternatives) {
    for (const schedule::TileBound& tile :
         schedule::tile_bounds(nest, machine_, {others, biased_entries(of.tasks[0], nest)}))
      of.tiles.push_back({&nest, tile});
  }
  std::stable_sort(of.tiles.begin(), of.tiles.end(),
                   [](const NestTile& a, const NestTile& b) { return a.of.cycles < b.of.cycles; });
}

std::map<int64_t, int64_t> Workbench::bounds(size_t piece) const {
  Entry& from = entry(piece);
  find_tiles(from);
  std::map<int64_t, int64_t> result;
  for (const auto& [nest, tile] : from.tiles) ++result[tile.cycles];
  return result;
}

Exhaustion Workbench::plain_exhaustion(size_t piece, Exhaustion::Judge judge) const {
  Entry& from = entry(piece);
  find_tiles(from);
  TESSERA_INVARIANT(!from.chain && from.tasks.size() == 1, "tiles of one nest are closed");
  Unit unit;
  unit.first = pieces_[piece].first;
  unit.tasks = from.tasks;
  unit.schedules.resize(1);
  const auto lowered = [this, unit](const Schedule& schedule, const isa::MachineConfig& config) mutable {
    unit.schedules[0] = schedule;
    std::vector<LayerInfo> infos(graph_.operations.size());
    return lower_stream(config, options_, infos.size(), [&](Emitter& emitter) { lower_unit(unit, emitter, infos); });
  };
  return {from.tasks[0], from.tiles, machine_, options_, lowered, std::move(judge)};
}

Exhaustion* Workbench::exhaustion(size_t piece, schedule::CostModel& judge) const {
  Entry& from = entry(piece);
  if (from.chain || from.tasks.size() > 1) return nullptr;
  if (from.exhaustion && from.judge == &judge) return from.exhaustion.get();
  from.judge = &judge;
  from.exhaustion = std::make_unique<Exhaustion>(plain_exhaustion(
      piece, [&judge](const schedule::InstructionStream& stream) { return judged(judge, stream).cycles; }));
  return from.exhaustion.get();
}

Cost Workbench::alone(size_t piece, const LayerSchedule& schedule, schedule::CostModel& judge) const {
  Unit unit = unit_of(piece, schedule);
  if (unit.chain) {
    const ChainLowering lowering(*unit.chain, unit.chain->nests, config_, options_);
    return judge.cost({unit.chain->nests, &lowering}, unit.chain->plan);
  }
  Cost total;
  for (size_t t = 0; t < unit.tasks.size(); ++t) {
    const Nest& nest = nest_for(unit.tasks[t], unit.schedules[t], config_);
    const TaskLowering lowering(unit.tasks[t], nest, config_, options_);
    const Cost cost = judge.cost({{&nest}, &lowering}, unit.schedules[t]);
    total.cycles += cost.cycles;
    total.bytes += cost.bytes;
    total.instructions += cost.instructions;
  }
  return total;
}

size_t Workbench::piece_of(size_t first, const LayerSchedule& schedule) const {
  const auto* chain = std::get_if<ChainSchedule>(&schedule);
  const size_t count = chain == nullptr ? 1 : chain->links.size();
  const auto found = numbers_.find({first, count});
  if (found == numbers_.end())
    refuse("no " +
           std::string(count > 1 ? "chain of " + std::to_string(count) + " operations begins" : "operation is") +
           " at operation " + std::to_string(first));
  return found->second;
}

const MemoryPlan& Workbench::arrange(std::vector<Unit>& units) const {
  std::string cut;
  for (const Unit& unit : units) cut += std::to_string(unit.count) + " ";
  auto known = arrangements_.find(cut);
  if (known == arrangements_.end()) {
    if (arrangements_.size() >= kKeptArrangements) arrangements_.clear();
    Arrangement made{units, {}};
    made.plan = place_units(made.units, graph_, config_, options_);
    known = arrangements_.emplace(cut, std::move(made)).first;
  }
  for (size_t u = 0; u < units.size(); ++u) {
    const Unit& placed = known->second.units[u];
    if (units[u].chain)
      take_tasks(*units[u].chain, placed.chain->tasks);
    else
      units[u].tasks = placed.tasks;
  }
  return known->second.plan;
}

std::vector<Unit> Workbench::units_of(const std::vector<Placed>& schedules) const {
  std::vector<Unit> units;
  for (const Placed& placed : schedules) {
    if (!units.empty() && units.back().first + units.back().count != placed.first)
      refuse("operation " + std::to_string(placed.first) + " does not follow the one before");
    units.push_back(unit_of(piece_of(placed.first, placed.schedule), placed.schedule));
  }
  return units;
}

void Workbench::append(const std::vector<Unit>& units, Emitter& emitter) const {
  std::vector<LayerInfo> infos(graph_.operations.size());
  for (const Unit& unit : units) lower_unit(unit, emitter, infos);
}

Cost Workbench::together(const std::vector<Placed>& schedules, schedule::CostModel& judge) const {
  const std::vector<Unit> units = units_of(schedules);
  return judged(judge, lower_stream(config_, options_, graph_.operations.size(),
                                    [&](Emitter& emitter) { append(units, emitter); }));
}

Cost Workbench::whole(const std::vector<Placed>& schedules, schedule::CostModel& judge) const {
  const auto finished = [&](std::vector<Unit> units) {
    if (units.empty() || units.front().first != 0 ||
        units.back().first + units.back().count != graph_.operations.size())
      throw Error(ErrorCode::kInvalidArgument,
                  "schedules of a whole graph begin with its first operation and end with "
                  "its last one");
    const MemoryPlan& plan = arrange(units);
    const emit::SynchroniseOptions order = order_of(plan, options_);
    Emitter lowered(config_, options_);
    append(units, lowered);
    Emitter emitter = assembled(std::move(lowered), results_of(graph_, plan.placements), order, options_, true);
    return synchronised(std::move(emitter), config_, graph_.operations.size(), order);
  };
  schedule::InstructionStream stream = finished(units_of(schedules));
  if (has_pairs(graph_, config_)) {
    // As compile_one() does with given schedules, which may be of either machine.
    std::optional<schedule::InstructionStream> other;
    try {
      other = finished(plain().units_of(schedules));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInvalidArgument) throw;
    }
    if (other && replay(*other, machine_).cycles < replay(stream, machine_).cycles) stream = std::move(*other);
  }
  return judged(judge, stream);
}

}  // namespace tessera::npu
