// SPDX-License-Identifier: Apache-2.0
// Candidates, replays, and the cheapest cut of the sequence; settle.cc chooses between neighbours.
#include "compiler/npu/planning/planner.h"

#include <algorithm>
#include <thread>

#include "compiler/npu/assembly/assemble.h"
#include "compiler/npu/assembly/at_once.h"
#include "compiler/npu/graph/plan.h"
#include "compiler/npu/lowering/lower.h"
#include "compiler/schedule/text/nest_text.h"

namespace tessera::npu {

using schedule::ChainPlan;
using schedule::Cost;
using schedule::Nest;
using schedule::Schedule;
using schedule::Subject;

namespace {

/// A judge that, as the replay, remembers nothing.
constexpr const char* kClosedForm = "closed-form";
/// Threads that look for schedules.
constexpr size_t kMostHands = 8;
/// Instructions up to which units are settled one behind the other, those up to which a whole stream is looked at again
/// when all units are chosen, and those up to which every candidate is tried between its neighbours. Of longer streams
/// a border decides so much (Planner::border_).
constexpr int64_t kInTurn = 20000, kLookedAt = 12000, kAllBorders = 4000;
constexpr double kBorder = 3000;

}  // namespace

const Nest& nest_for(const Task& task, const Schedule& schedule) {
  const Nest* nest = nest_of(task, schedule.input_layout);
  TESSERA_INVARIANT(nest != nullptr, "a layout has gone with the places of tensors");
  return *nest;
}

std::string plan_key(const Schedule& schedule) { return schedule::to_text(schedule); }
std::string plan_key(const ChainPlan& plan) {
  text::Printer printer;
  schedule::print(schedule::ChainSchedule{{}, plan.tile}, printer);
  for (const Schedule& schedule : plan.schedules) schedule::print(schedule, printer);
  return printer.take();
}

void lower_unit(const Unit& unit, Emitter& emitter, std::vector<LayerInfo>& infos) {
  if (unit.chain) {
    lower_chain(*unit.chain, emitter, infos);
    return;
  }
  if (unit.code) {
    lower(*unit.code, emitter);
    return;
  }
  emitter.layer = static_cast<uint32_t>(unit.first);
  for (size_t k = 0; k < unit.tasks.size(); ++k) {
    lower(unit.tasks[k], nest_for(unit.tasks[k], unit.schedules[k]), unit.schedules[k], emitter, infos[unit.first]);
  }
}

MemoryPlan place_units(std::vector<Unit>& units, const Graph& graph, const isa::MachineConfig& config,
                       const Options& options) {
  std::vector<bool> on_chip(graph.tensors.size(), false);
  std::vector<std::pair<int64_t, int64_t>> when;
  for (const Unit& unit : units) {
    for (size_t i = unit.first; i < unit.first + unit.count; ++i) {
      when.emplace_back(unit.first, unit.first + unit.count - 1);
      if (i + 1 < unit.first + unit.count) on_chip[static_cast<size_t>(uses_of(graph.operations[i]).written)] = true;
    }
  }
  MemoryPlan plan = plan_memory(graph, options, on_chip, when);
  move_units(units, graph, plan.placements, config, options);
  return plan;
}

void move_units(std::vector<Unit>& units, const Graph& graph, const std::vector<Placement>& placements,
                const isa::MachineConfig& config, const Options& options) {
  for (Unit& unit : units) {
    if (unit.chain)
      place_chain(*unit.chain, graph, placements, config, options);
    else if (unit.code)
      unit.code = kernel_code(graph, unit.first, placements);
    else
      unit.tasks = make_tasks(graph, unit.first, placements, config, options);
  }
}

Planner::Planner(const Graph& graph, const isa::MachineConfig& config, const Options& options)
    : graph_(graph),
      config_(config),
      options_(options),
      machine_(machine_of(config, options)),
      goal_{!options.virtual_threads, options.traffic_weight},
      placements_(places_apart(graph, options)),
      feeds_(feeds_next(graph)),
      memo_(options.memo != nullptr && options.memo->serves(config, options) ? *options.memo : own_memo_),
      replays_(options.judge == kReplayJudge ? options.replays : nullptr),
      machine_text_(replays_ != nullptr ? replayed_on(config, options) : ""),
      log_(options.search_log != nullptr ? *options.search_log : own_log_),
      known_pieces_(log_.pieces.size()) {
  const bool alone = (options.judge != kReplayJudge && options.judge != kClosedForm) || replays_ != nullptr;
  const size_t threads = std::max(std::thread::hardware_concurrency(), 1u);
  for (size_t h = 0; h < (alone ? 1 : std::min(threads, kMostHands)); ++h)
    hands_.push_back({schedule::make_searcher(options.search), schedule::make_cost_model(options.cost_model, machine_),
                      schedule::make_cost_model(options.judge, machine_)});
  log_.searcher = options.search;
  log_.cost_model = options.cost_model;
  log_.judge = options.judge;
  for (const Operation& operation : graph.operations)
    scopes_.push_back(graph.tensors[static_cast<size_t>(root_of(graph, uses_of(operation).written))].scope);
}

const schedule::LayerSchedule* Planner::given(size_t operation) const {
  const auto& schedules = options_.schedules;
  return operation < schedules.size() && schedules[operation] ? &*schedules[operation] : nullptr;
}

size_t Planner::open_piece(size_t first, size_t count, size_t nest, size_t nests) {
  for (size_t p = 0; p < known_pieces_; ++p) {
    const SearchLog::Piece& piece = log_.pieces[p];
    if (piece.graph == graph_.name && piece.first == first && piece.operations.size() == count && piece.nest == nest)
      return p;
  }
  SearchLog::Piece& piece = log_.pieces.emplace_back();
  piece.graph = graph_.name;
  piece.first = first;
  for (size_t i = first; i < first + count; ++i) piece.operations.push_back(graph_.operations[i].name);
  piece.nest = nest;
  piece.nests = nests;
  return log_.pieces.size() - 1;
}

SearchLog::Candidate Planner::candidate(std::string text, const Cost& estimated) const {
  SearchLog::Candidate candidate;
  candidate.schedule = std::move(text);
  candidate.estimated = estimated;
  candidate.estimated_score = goal_.score(estimated, config_);
  return candidate;
}

std::optional<uint32_t> Planner::known_as(const std::string& text) {
  if (replays_ == nullptr) return std::nullopt;
  return replays_->subject(machine_text_ + "\n" + text);
}

std::vector<Planner::Ranked> Planner::choose(const Task& task, SearchLog::Piece& piece) {
  const std::string key = search_key(task);
  auto known = memo_.tasks.find(key);
  if (known == memo_.tasks.end()) known = memo_.tasks.emplace(key, search(task, key, hands_.front())).first;
  piece.candidates = known->second.candidates;
  return known->second.best;
}

std::vector<schedule::InputLayout> Planner::layouts(size_t operation) {
  std::vector<schedule::InputLayout> result;
  for (const Task& task : make_tasks(graph_, operation, placements_, config_, options_)) {
    SearchLog::Piece piece;
    result.push_back(choose(task, piece).front().first.plan.input_layout);
  }
  return result;
}

/// A schedule given by the user, if it is legal for one of the layouts, in canonical form.
Schedule Planner::legal(const Task& task, const Schedule& given) const {
  // Where the layout is unknown the last nest's refusal says so.
  const Nest* nest = nest_of(task, given.input_layout);
  if (nest == nullptr) nest = &task.alternatives.back();
  const std::string reason = schedule::obstacle(*nest, given, config_);
  if (!reason.empty()) throw Error(ErrorCode::kInvalidArgument, "the given schedule is illegal: " + reason);
  return schedule::canonical(*nest, config_, given);
}

/// A kernel as it is: nothing is searched.
Unit Planner::written(size_t i) {
  if (given(i) != nullptr)
    throw Error(ErrorCode::kInvalidArgument, "a kernel is as its source says, and takes no schedule");
  Unit unit;
  unit.first = i;
  unit.code = kernel_code(graph_, i, placements_);
  unit.piece = open_piece(i, 1, 0, 1);
  SearchLog::Piece& piece = log_.pieces[unit.piece];
  const auto lowered = [&](Emitter& emitter) { lower(*unit.code, emitter); };
  schedule::CostModel& judge = *hands_.front().judge;
  Cost cost;
  if (replays())
    cost =
        judge.cost(lower_stream(config_, options_, graph_.operations.size(), lowered, judge.wants())).value_or(Cost{});
  piece.candidates = {candidate("as written", cost)};
  SearchLog::Candidate& only = piece.candidates.front();
  only.replayed = cost;
  only.score = unit.score = goal_.score(cost, config_);
  only.chosen = true;
  return unit;
}

Unit Planner::single(size_t i) {
  if (std::holds_alternative<Kernel>(graph_.operations[i].what)) return written(i);
  Unit unit;
  unit.first = i;
  unit.tasks = make_tasks(graph_, i, placements_, config_, options_);
  const std::vector<Task>& tasks = unit.tasks;
  const auto* schedules = given(i) == nullptr ? nullptr : std::get_if<std::vector<Schedule>>(given(i));
  if (schedules != nullptr && schedules->size() != tasks.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                std::to_string(schedules->size()) + " schedules are given for an operation of " +
                    std::to_string(tasks.size()) + " nests; give one for each, as a list where there are several");
  }
  for (size_t t = 0; t < tasks.size(); ++t) {
    const size_t number = open_piece(i, 1, t, tasks.size());
    if (t == 0) unit.piece = number;
    SearchLog::Piece& piece = log_.pieces[number];
    if (schedules != nullptr) {
      Schedule schedule = legal(tasks[t], (*schedules)[t]);
      const Nest& nest = nest_for(tasks[t], schedule);
      const TaskLowering lowering(tasks[t], nest, config_, options_);
      const Subject subject{{&nest}, &lowering};
      piece.candidates = {candidate(schedule::in_short(schedule), hands_.front().model->cost(subject, schedule))};
      piece.candidates[0].chosen = true;
      unit.score += judge(piece.candidates[0], subject, schedule, hands_.front());
      unit.schedules.push_back(std::move(schedule));
      continue;
    }
    std::vector<Ranked> best = choose(tasks[t], piece);
    unit.score += best.front().second;
    unit.candidate = best.front().first.candidate;
    piece.candidates[unit.candidate].chosen = true;
    unit.schedules.push_back(std::move(best.front().first.plan));
    for (size_t k = 1; tasks.size() == 1 && k < best.size(); ++k) unit.others.push_back(std::move(best[k].first));
  }
  return unit;
}

std::optional<Unit> Planner::chained(size_t i, size_t links, const schedule::ChainTile* tile, std::string* reason,
                                     const std::optional<schedule::InputLayout>& layout) {
  auto chain = make_chain(graph_, i, links, placements_, config_, options_, reason);
  if (!chain) return std::nullopt;
  if (layout) {
    std::vector<Nest>& heads = chain->tasks[0].alternatives;
    std::erase_if(heads, [&](const Nest& head) { return head.layout != *layout; });
    if (heads.empty()) {
      if (reason != nullptr) *reason = "the first link's input has no layout " + schedule::to_string(*layout);
      return std::nullopt;
    }
  }
  std::optional<Found<ChainPlan>> found;
  if (tile != nullptr) {
    found = search_chain(*chain, tile, "", reason, hands_.front());
  } else {
    const std::string key = search_key(*chain);
    auto known = memo_.chains.find(key);
    if (known == memo_.chains.end())
      known = memo_.chains.emplace(key, search_chain(*chain, nullptr, key, reason, hands_.front())).first;
    found = known->second;
    if (!found && reason != nullptr && reason->empty()) *reason = "no tile fits the scratchpads";
  }
  if (!found) return std::nullopt;

  Unit unit;
  unit.first = i;
  unit.count = links;
  unit.piece = open_piece(i, links, 0, 1);
  SearchLog::Piece& piece = log_.pieces[unit.piece];
  piece.candidates = std::move(found->candidates);
  chain->nests = nests_of(*chain, *nest_of(chain->tasks[0], found->layout));
  unit.score = found->best.front().second;
  unit.candidate = found->best.front().first.candidate;
  piece.candidates[unit.candidate].chosen = true;
  chain->plan = std::move(found->best.front().first.plan);
  for (size_t k = 1; k < found->best.size(); ++k) unit.plans.push_back(std::move(found->best[k].first));
  unit.chain = std::move(chain);
  return unit;
}

Unit Planner::given_chain(size_t i, const schedule::ChainSchedule& given) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::kInvalidArgument, "the given chain is illegal: " + why);
  };
  const size_t links = given.links.size();
  if (links < 2 || links > kMostLinks) refuse("it has " + std::to_string(links) + " links");
  for (size_t s = 0; s < links; ++s) {
    if (i + s >= graph_.operations.size() || graph_.operations[i + s].name != given.links[s])
      refuse("'" + given.links[s] + "' does not stand at place " + std::to_string(s) + " behind this node");
    if (s + 1 < links && !feeds_[i + s])
      refuse("the result of '" + given.links[s] + "' is not read by the next node alone");
    if (s + 1 < links && scopes_[i + s] == Scope::kDram)
      refuse("the graph places the result of '" + given.links[s] + "' in DRAM");
  }
  std::string reason;
  auto unit = chained(i, links, &given.tile, &reason, given.input_layout);
  if (!unit) refuse(reason);
  return std::move(*unit);
}

bool Planner::may_chain(size_t i, size_t links) const {
  const size_t last = i + links - 1;
  return options_.virtual_threads && last < graph_.operations.size() && feeds_[last - 1] &&
         (options_.chain || stays(last - 1)) && scopes_[last - 1] != Scope::kDram && given(i) == nullptr &&
         given(last) == nullptr;
}

void Planner::offer(std::vector<Cut>& cuts, Unit unit) {
  const double total = cuts[unit.first].score + unit.score;
  offers_.push_back({unit.piece, std::max<size_t>(unit.schedules.size(), 1), unit.first, unit.count, total});
  Cut& end = cuts[unit.first + unit.count];
  const size_t first = unit.first;
  offered_.insert_or_assign(Place{unit.first, unit.count}, std::move(unit));
  if (end.score >= 0 && end.score <= total) {
    if (end.rival < 0 || total < end.rival) end.rival = total;
    return;
  }
  end.rival = end.score;
  end.score = total;
  end.first = first;
}

std::vector<Unit> Planner::run() {
  search_ahead();
  const size_t count = graph_.operations.size();
  std::vector<Cut> cuts(count + 1);  // by the operation before which a unit ends
  cuts[0].score = 0;
  for (size_t i = 0; i < count; ++i) {
    if (cuts[i].score < 0) continue;
    const auto* chain = given(i) == nullptr ? nullptr : std::get_if<schedule::ChainSchedule>(given(i));
    if (chain != nullptr) {
      offer(cuts, guarded(graph_, config_, i, [&] { return given_chain(i, *chain); }));
      continue;
    }
    if (!stays(i)) offer(cuts, guarded(graph_, config_, i, [&] { return single(i); }));
    for (size_t links = 2; links <= kMostLinks && may_chain(i, links); ++links) {
      if (stays(i + links - 1)) continue;
      std::string reason;
      if (auto unit = chained(i, links, nullptr, &reason))
        offer(cuts, std::move(*unit));
      else
        reasons_[i] = reason;
    }
  }
  if (cuts[count].score < 0) refuse_scopes(cuts);
  std::vector<Unit> result;
  for (size_t end = count; end > 0; end = result.back().first)
    result.push_back(std::move(offered_.extract({cuts[end].first, end - cuts[end].first}).mapped()));
  std::reverse(result.begin(), result.end());
  const int64_t length = replays() ? pushed(result, kInTurn) : 0;
  short_ = replays() && length <= kAsCompiled;
  long_ = length > kLookedAt;
  alternate_ = length > kInTurn;
  if (length > kAllBorders) border_ = kBorder;
  recut(result);
  explain(cuts, result);
  return result;
}

void Planner::refuse_scopes(const std::vector<Cut>& cuts) const {
  // The first operation at which no unit ends although one begins before it.
  size_t first = 0;
  for (size_t i = 0; i < cuts.size(); ++i) {
    if (cuts[i].score >= 0) first = i;
  }
  size_t at = first;
  while (at < scopes_.size() && !stays(at)) ++at;
  const auto named = [&](size_t i) { return "'" + graph_.operations[i].name + "'"; };
  std::string why = "a chain has at most " + std::to_string(kMostLinks) + " operations";
  if (!options_.virtual_threads)
    why = "without virtual threads there are no chains";
  else if (given(at) != nullptr || (at + 1 < scopes_.size() && given(at + 1) != nullptr))
    why = "a schedule of its own is given";
  else if (const auto found = reasons_.find(first); found != reasons_.end())
    why = found->second;
  throw Error(ErrorCode::kInvalidArgument,
              "node " + named(at) + " on " + config_.name +
                  ": the graph keeps its result on chip (scope=chip), and no chain can be: " + why +
                  "; scope=dram splits it there");
}

void Planner::explain(const std::vector<Cut>& cuts, const std::vector<Unit>& units) {
  std::vector<bool> used(log_.pieces.size(), false);
  for (const Unit& unit : units) used[unit.piece] = true;
  for (const Offer& offer : offers_) {
    const Cut& end = cuts[offer.first + offer.count];
    const bool chosen = used[offer.piece];
    std::string reason;
    const bool least = end.first == offer.first;  // of those that end with it, each alone
    if (given(offer.first) != nullptr)
      reason = "given";
    else if (chosen && !least)
      reason = "between its neighbours it does better than the cut of least score, " + rounded(end.score);
    else if (chosen && end.rival >= 0)
      reason = "all operations up to its last one score " + rounded(end.score) + " with it, " + rounded(end.rival) +
               " by the next best cut";
    else if (chosen)
      reason = "no other cut ends with it";
    else if (offer.total > end.score)
      reason = "all operations up to its last one score " + rounded(offer.total) + " with it, " + rounded(end.score) +
               " without";
    else
      reason = "a cut through other operations scores less";
    for (size_t k = 0; k < offer.pieces; ++k) {
      log_.pieces[offer.piece + k].chosen = chosen;
      if (offer.piece >= known_pieces_) log_.pieces[offer.piece + k].reason = reason;
    }
  }
}

}  // namespace tessera::npu
