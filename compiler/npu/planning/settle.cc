// SPDX-License-Identifier: Apache-2.0
// The choice between neighbours: candidates of a unit, and strips, by replays of what stands beside it.
#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>

#include "compiler/npu/assembly/assemble.h"
#include "compiler/npu/assembly/at_once.h"
#include "compiler/npu/graph/plan.h"
#include "compiler/npu/planning/planner.h"

namespace tessera::npu {

using schedule::ChainPlan;
using schedule::Cost;
using schedule::Schedule;

namespace {

/// At a second look candidates are tried again whose score between the neighbours was so many times the best one's.
constexpr double kNear = 1.01;
/// Instructions between the neighbours above which borders count little: other numbers of strips than none are not
/// tried.
constexpr int64_t kFewBorders = 3000;

/// Instructions up to which every unit of a stream is judged by the whole stream, with candidates whose score between
/// the neighbours was so many times the best one's. What a core of a chip does alone tells less of what it takes there.
constexpr int64_t kFew = 700, kFewOfAChip = 400;
constexpr double kNearWhole = 1.03;

/// Units of a range; one that has the `other`'s operations is replaced by it.
std::vector<const Unit*> between(const std::vector<Unit>& units, size_t first, size_t end,
                                 const Unit* other = nullptr) {
  std::vector<const Unit*> result;
  for (size_t u = first; u < std::min(units.size(), end); ++u)
    result.push_back(other != nullptr && units[u].first == other->first ? other : &units[u]);
  return result;
}

/// What is chosen for units now.
std::vector<Settled> choices_of(const std::vector<Unit>& units, const SearchLog& log) {
  std::vector<Settled> all;
  for (const Unit& unit : units) {
    all.push_back(
        {unit.schedules, std::nullopt, unit.candidate, log.pieces[unit.piece].candidates, unit.others, unit.plans});
    if (unit.chain) all.back().plan = unit.chain->plan;
  }
  return all;
}

void take(std::vector<Settled> choices, std::vector<Unit>& units, SearchLog& log) {
  for (size_t u = 0; u < units.size(); ++u) {
    Unit& unit = units[u];
    Settled& of = choices[u];
    unit.schedules = std::move(of.schedules);
    if (of.plan) unit.chain->plan = std::move(*of.plan);
    unit.candidate = of.candidate;
    unit.others = std::move(of.others);
    unit.plans = std::move(of.plans);
    log.pieces[unit.piece].candidates = std::move(of.candidates);
  }
}

std::string choice_key(const Unit& unit) {
  std::string key = unit.chain ? plan_key(unit.chain->plan) : "";
  for (const Schedule& schedule : unit.schedules) key += plan_key(schedule);
  return key;
}

}  // namespace

template <typename Plan, typename Of>
void Planner::pick(Unit& unit, Of&& plan_of, std::vector<Choice<Plan>>& others, const Costs& cost, Look look) {
  if (others.empty()) return;
  SearchLog::Piece& piece = log_.pieces[unit.piece];
  // At a second look those have their scores between neighbours that were alike.
  std::vector<bool> asked(others.size(), true);
  if ((look == Look::kAgain && !short_) || look == Look::kEach) {
    const double near = look == Look::kEach ? kNearWhole : kNear;
    const auto first = [&](size_t candidate) { return piece.candidates[candidate].score_in_place; };
    std::optional<double> least = first(unit.candidate);
    for (const auto& other : others) {
      if (const auto known = first(other.candidate); least && known) least = std::min(*least, *known);
    }
    for (size_t k = 0; least && k < others.size(); ++k) {
      const std::optional<double> known = first(others[k].candidate);
      asked[k] = known ? *known <= near * *least : look != Look::kEach;
    }
  }
  if (look != Look::kWhole && look != Look::kEach) {
    const auto alone = [&](size_t candidate) { return piece.candidates[candidate].score; };
    double least = alone(unit.candidate);
    for (const auto& other : others) least = std::min(least, alone(other.candidate));
    const bool any = kWorth * least <= border_;
    for (size_t k = 0; k < others.size(); ++k)
      asked[k] = any && asked[k] && alone(others[k].candidate) <= least + border_;
  }
  const auto score = [&](size_t candidate, const Cost& of) {
    const double value = goal_.score(of, config_);
    piece.candidates[candidate].score_in_place = value;
    return value;
  };
  // The unit's own plan, then the others; nothing of those that are beyond what may be replayed.
  std::vector<std::optional<Cost>> costs(others.size() + 1);
  std::atomic<int64_t> own = 0, ended = 0;
  at_once(hands_.size(), costs.size(), [&](size_t k, size_t) {
    if (ended + own > kReplayed || (k > 0 && !asked[k - 1])) return;
    Unit other = unit;
    if (k > 0) plan_of(other) = others[k - 1].plan;
    costs[k] = cost(other);
    if (!costs[k]) return;
    if (k == 0) own = costs[k]->instructions;
    ended += costs[k]->instructions;
  });
  if (!costs[0]) return;  // the judge looks at no streams
  for (SearchLog::Candidate& candidate : piece.candidates) candidate.score_in_place.reset();
  double best = score(unit.candidate, *costs[0]);
  int64_t replayed = costs[0]->instructions;
  for (size_t k = 0; k < others.size(); ++k) {
    auto& [plan, candidate] = others[k];
    if (!asked[k]) continue;
    if (replayed + costs[0]->instructions > kReplayed) return;
    const Cost& other = costs[k + 1].value();
    replayed += other.instructions;
    const double value = score(candidate, other);
    if (value >= best) continue;
    best = value;
    std::swap(plan_of(unit), plan);
    piece.candidates[unit.candidate].chosen = false;
    piece.candidates[candidate].chosen = true;
    std::swap(unit.candidate, candidate);
  }
}

void Planner::cut_into_strips(Unit& unit, int64_t strips) const {
  if (unit.chain) {
    unit.chain->plan.tile.strips = strips;
    for (Schedule* end : {&unit.chain->plan.schedules.front(), &unit.chain->plan.schedules.back()})
      end->strips = strips;
  }
  for (size_t t = 0; t < unit.schedules.size(); ++t) {
    const Task& task = unit.tasks[t];
    unit.schedules[t].strips = strips;
    unit.schedules[t] = schedule::canonical(nest_for(task, unit.schedules[t]), config_, std::move(unit.schedules[t]));
  }
}

void Planner::choose_strips(Unit& unit, const Costs& cost, Look look) {
  const int64_t before = unit.chain ? unit.chain->plan.tile.strips : unit.schedules.front().strips;
  if (before == 0 || given(unit.first) != nullptr) return;
  const std::optional<Cost> own = cost(unit);
  if (!own) return;  // the judge looks at no streams
  const bool few = look != Look::kWhole && look != Look::kEach && own->instructions > kFewBorders;
  std::vector<int64_t> all = {before};
  std::copy_if(std::begin(schedule::kStrips), std::end(schedule::kStrips), std::back_inserter(all),
               [&](int64_t strips) { return strips != before && (!few || strips == 0); });
  std::vector<std::optional<Cost>> costs(all.size());
  costs[0] = own;
  at_once(hands_.size(), all.size() - 1, [&](size_t k, size_t) {
    Unit other = unit;
    cut_into_strips(other, all[k + 1]);
    costs[k + 1] = cost(other);
  });
  size_t best = 0;
  for (size_t k = 1; k < all.size(); ++k) {
    if (goal_.score(costs[k].value(), config_) < goal_.score(*costs[best], config_)) best = k;
  }
  cut_into_strips(unit, all[best]);
}

void Planner::settle(std::vector<Unit>& units, const MemoryPlan& plan) {
  placed_ = &plan.placements;
  known_.clear();
  if (alternate_) {
    // Every other unit at once, then those between them.
    for (const size_t odd : {size_t{0}, size_t{1}})
      at_once(hands_.size(), (units.size() + 1 - odd) / 2,
              [&](size_t k, size_t) { settle_at(units, 2 * k + odd, Look::kFirst); });
    return;
  }
  const std::string key = short_ ? settled_key(units) : "";
  if (const auto known = memo_.settled.find(key); known != memo_.settled.end()) return take(known->second, units, log_);
  std::vector<bool> changed(units.size() + 1, false);
  for (size_t u = 0; u < units.size(); ++u) changed[u] = settle_at(units, u, Look::kFirst);
  if (!long_) look_again(units, plan, changed);
  if (short_) memo_.settled.emplace(key, choices_of(units, log_));
}

std::string Planner::settled_key(const std::vector<Unit>& units) const {
  const std::vector<const Unit*> all = between(units, 0, units.size());
  std::string key = std::to_string(config_.raster_pairs) + std::to_string(forwards()) + units_key(all) + places_of(all);
  for (const Unit& unit : units) {
    key += "\n" + std::to_string(unit.candidate) + (given(unit.first) != nullptr ? " given" : "");
    for (const auto& [plan, candidate] : unit.others) key += std::to_string(candidate) + plan_key(plan);
    for (const auto& [plan, candidate] : unit.plans) key += std::to_string(candidate) + plan_key(plan);
  }
  return key;
}

size_t Planner::in_front(const std::vector<Unit>& units, size_t u) const {
  const size_t most = std::min(u, config_.cores > 1 ? kMostInFront : 1);
  size_t count = 0;
  for (double sum = 0; count < most && (count == 0 || sum < kEnough * units[u].score); ++count)
    sum += units[u - 1 - count].score;
  return count;
}

bool Planner::settle_at(std::vector<Unit>& units, size_t u, Look look) {
  const size_t first = u - in_front(units, u);
  Begun begun{.units = between(units, first, u)};
  return settle_by(
      units[u], [&](const Unit& unit) { return cost_of(between(units, first, u + 2, &unit), &begun); }, look);
}

bool Planner::settle_by(Unit& unit, const Costs& cost, Look look) {
  if (unit.code) return false;
  const std::string before = choice_key(unit);
  if (unit.chain)
    pick(unit, [](Unit& of) -> ChainPlan& { return of.chain->plan; }, unit.plans, cost, look);
  else if (unit.tasks.size() == 1)
    pick(unit, [](Unit& of) -> Schedule& { return of.schedules.front(); }, unit.others, cost, look);
  choose_strips(unit, cost, look);
  return choice_key(unit) != before;
}

void Planner::look_again(std::vector<Unit>& units, const MemoryPlan& plan, std::vector<bool> changed) {
  const bool any = std::count(changed.begin(), changed.end(), true) > 0;
  const std::optional<Cost> known = any ? whole(between(units, 0, units.size()), plan, kAsCompiled) : std::nullopt;
  if (!known) return;
  std::vector<Settled> first = choices_of(units, log_);
  for (size_t u = 0; u < units.size(); ++u)
    changed[u] = (changed[u + 1] || (u > 0 && changed[u - 1])) && settle_at(units, u, Look::kAgain);
  const Cost now = finished(between(units, 0, units.size()), plan, kAsCompiled).value();
  if (now.cycles <= known->cycles && goal_.score(now, config_) < goal_.score(*known, config_)) return;
  take(std::move(first), units, log_);
}

void Planner::polish(std::vector<Unit>& units, const MemoryPlan& plan) {
  if (replays() && !long_ && !alternate_) {
    const auto settled = [&](Unit& unit, Look look) {
      const auto cost = [&](const Unit& other) {
        return whole(between(units, 0, units.size(), &other), plan, kReplayed);
      };
      settle_by(unit, cost, look);
    };
    const auto last = std::find_if(units.rbegin(), units.rend(), [&](const Unit& unit) { return bound_by_bus(unit); });
    const int64_t few = config_.cores > 1 ? kFewOfAChip : kFew;
    if (pushed(units, few) <= few) {
      for (Unit& unit : units) settled(unit, Look::kEach);
    } else if (last != units.rend()) {
      settled(*last, Look::kWhole);
    }
  }
  for (const Unit& unit : units) {
    SearchLog::Piece& piece = log_.pieces[unit.piece];
    if (const auto score = piece.candidates[unit.candidate].score_in_place)
      piece.reason += "; the winner scores " + rounded(*score) + " between its neighbours";
  }
}

bool Planner::bound_by_bus(const Unit& unit) const {
  std::vector<LayerInfo> infos(graph_.operations.size());
  Emitter emitter(config_, options_, WeightBytes::kPlacesOnly);
  lower_unit(unit, emitter, infos);
  emitter.assemble(false);
  int64_t beats = 0, products = 0;
  for (const emit::Work* work : emitter.works) {
    beats += work->duration.beats;
    if (work->engine == isa::Engine::kGemm) products += work->duration.engine;
  }
  return products > 0 && beats * config_.axi_bytes > products * emitter.bus_bytes;
}

std::optional<Cost> Planner::whole(const std::vector<const Unit*>& units, const MemoryPlan& plan, int64_t most) {
  if (!replays()) return std::nullopt;
  return known("whole " + std::to_string(most) + " ", units, [&] { return finished(units, plan, most); });
}

std::optional<Cost> Planner::finished(const std::vector<const Unit*>& units, const MemoryPlan& plan, int64_t most) {
  heed_stop(options_);
  std::vector<LayerInfo> infos(graph_.operations.size());
  Emitter lowered(config_, options_, WeightBytes::kPlacesOnly);
  for (const Unit* unit : units) lower_unit(*unit, lowered, infos);
  if (lowered.pushed() > most) return cost_of(units);
  const emit::SynchroniseOptions order = order_of(plan, options_);
  Options options = options_;
  if (lowered.pushed() > kAsCompiled) options.forward = Forward::kNever;
  Emitter finished = assembled(std::move(lowered), results_of(graph_, plan.placements), order, options, replays());
  return hands_.front().judge->cost(synchronised(std::move(finished), config_, infos.size(), order));
}

std::optional<Cost> Planner::cost_of(const std::vector<const Unit*>& units, Begun* begun) {
  if (!replays()) return std::nullopt;
  if (replays_ != nullptr) return replayed(units, begun);
  return known("", units, [&] { return replayed(units, begun); });
}

Emitter Planner::lowered(const std::vector<const Unit*>& units, Begun* begun) const {
  std::vector<LayerInfo> infos(graph_.operations.size());
  const auto append = [&](Emitter& emitter, size_t first, size_t end) {
    for (size_t u = first; u < end; ++u) lower_unit(*units[u], emitter, infos);
  };
  const size_t known = begun != nullptr ? begun->units.size() : 0;
  const Emitter none(config_, options_,
                     forwards() ? WeightBytes::kPlacesOnly : bytes_for(hands_.front().judge->wants()));
  if (known > 0) std::call_once(begun->once, [&] { append(begun->emitter.emplace(none), 0, known); });
  Emitter emitter = known > 0 ? *begun->emitter : none;
  append(emitter, known, units.size());
  return emitter;
}

template <typename Find>
std::optional<Cost> Planner::known(std::string key, const std::vector<const Unit*>& units, Find&& find) {
  for (const Unit* unit : units) key += std::to_string(unit->first) + " " + choice_key(*unit);
  {
    const std::lock_guard lock(known_mutex_);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
  }
  const std::optional<Cost> cost = find();
  const std::lock_guard lock(known_mutex_);
  known_.emplace(std::move(key), cost);
  return cost;
}

std::optional<Cost> Planner::replayed(const std::vector<const Unit*>& units, Begun* begun) {
  heed_stop(options_);
  std::string key = replays_ != nullptr ? units_key(units) : "";
  if (forwards() && replays_ != nullptr) key += places_of(units);
  return remembered(known_as(""), key, [&](SlotLog& slots) {
    Emitter emitter = lowered(units, begun);
    slots = emitter.slots();
    schedule::CostModel& judge = *hands_.front().judge;
    const auto cost = [&] { return judge.cost(stream_of(emitter, options_, graph_.operations.size(), judge.wants())); };
    std::optional<Cost> best = cost();
    if (!forwards() || !best || !emitter.forward(read_elsewhere(units), {}).changed) return best;
    const std::optional<Cost> other = cost();
    return other->cycles < best->cycles ? other : best;
  });
}

int64_t Planner::pushed(const std::vector<Unit>& units, int64_t most) const {
  std::vector<LayerInfo> infos(graph_.operations.size());
  Emitter emitter(config_, options_, WeightBytes::kPlacesOnly);
  for (const Unit& unit : units) {
    lower_unit(unit, emitter, infos);
    if (emitter.pushed() > most) break;
  }
  return emitter.pushed();
}

ArenaBytes Planner::read_elsewhere(const std::vector<const Unit*>& units) const {
  std::vector<bool> inside(graph_.operations.size(), false), wanted(graph_.tensors.size(), false);
  for (const Unit* unit : units) {
    for (size_t i = unit->first; i < unit->first + unit->count; ++i) inside[i] = true;
  }
  const auto want = [&](TensorId id) { wanted[static_cast<size_t>(root_of(graph_, id))] = true; };
  for (const TensorId output : graph_.outputs) want(output);
  for (size_t i = 0; i < inside.size(); ++i) {
    if (inside[i]) continue;
    for (const TensorId read : uses_of(graph_.operations[i]).read) want(read);
  }
  ArenaBytes bytes;
  for (size_t t = 0; t < wanted.size(); ++t) {
    const Placement& place = (*placed_)[t];
    if (wanted[t] && place.base == kArenaBase)
      bytes.emplace_back(place.region_offset, place.region_offset + place.region_bytes);
  }
  return bytes;
}

std::string Planner::places_of(const std::vector<const Unit*>& units) const {
  std::string text;
  const auto add = [&](TensorId id) {
    const Placement& place = (*placed_)[static_cast<size_t>(id)];
    text += std::to_string(place.base) + "+" + std::to_string(place.offset) + " ";
  };
  for (const Unit* unit : units) {
    for (size_t i = unit->first; i < unit->first + unit->count; ++i) {
      const Uses uses = uses_of(graph_.operations[i]);
      for (const TensorId read : uses.read) add(read);
      add(uses.written);
    }
  }
  for (const auto& [begin, end] : read_elsewhere(units))
    text += std::to_string(begin) + "-" + std::to_string(end) + " ";
  return text;
}

}  // namespace tessera::npu
