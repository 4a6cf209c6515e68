// SPDX-License-Identifier: Apache-2.0
// Candidates of operations and chains, and which of them are replayed. A searcher finds them by closed forms, which
// costs little; the first of each layout are replayed, and of the others those that are not far behind.
#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <map>

#include "compiler/npu/assembly/at_once.h"
#include "compiler/npu/planning/planner.h"

namespace tessera::npu {

using schedule::ChainPlan;
using schedule::Cost;
using schedule::Nest;
using schedule::Schedule;
using schedule::Subject;

namespace {

/// Candidates that are replayed for each layout, and those that are tried again between the neighbours.
constexpr size_t kTrials = 16, kFinalists = 8;
constexpr size_t kFinalistsOfShares = 16;  // on a chip of several cores, where a layer alone tells less
constexpr size_t kChainTrials = 24;        // tiles of a chain cost little to plan, and the estimate tells less of them

/// Above this many times the best one's score by the model a candidate is hopeless: nine of ten schedules that won on
/// the bench networks were within 1.05. Of short streams all candidates are judged, which costs little: the model knows
/// least of them.
constexpr double kHopeless = 1.08;
constexpr int64_t kJudgedAnyway = 2000;  // instructions
/// A layout whose best candidate is so far behind another layout's is not judged.
constexpr double kFar = 1.15;

/// Whether the judge is not asked about a candidate, after it has replayed so many instructions of others.
bool spared(double score, double best, int64_t replayed) {
  return replayed > kReplayed || (replayed > kJudgedAnyway && score > kHopeless * best);
}

std::string in_short(const ChainPlan& plan) {
  const schedule::ChainTile& tile = plan.tile;
  return "oh" + std::to_string(tile.oh) + " ow" + std::to_string(tile.ow) + " blocks" + std::to_string(tile.blocks) +
         (tile.whole_input ? " whole input" : "") + (tile.keeps_rows ? " keeps rows" : "") +
         (tile.copies != schedule::kWeightCopies ? " copies" + std::to_string(tile.copies) : "");
}

TaskLowering lowering_of(const Task& task, const std::vector<const Nest*>& nests, const isa::MachineConfig& config,
                         const Options& options) {
  return {task, *nests.front(), config, options};
}
ChainLowering lowering_of(const Chain& chain, const std::vector<const Nest*>& nests, const isa::MachineConfig& config,
                          const Options& options) {
  return {chain, nests, config, options};
}

template <typename Judged>
void keep_finalists(Judged& judged, const isa::MachineConfig& config) {
  std::stable_sort(judged.begin(), judged.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  judged.resize(std::min(judged.size(), config.cores > 1 ? kFinalistsOfShares : kFinalists));
}

}  // namespace

std::vector<Planner::Layout<Schedule>> Planner::layouts_of(const Task& task, Hand& hand) const {
  std::vector<Layout<Schedule>> layouts;
  std::string reason;
  for (const Nest& nest : task.alternatives) {
    const TaskLowering lowering(task, nest, config_, options_);
    try {
      Layout<Schedule> layout;
      layout.nests = {&nest};
      layout.plans = hand.searcher->schedules({{&nest}, &lowering}, machine_, *hand.model, goal_, kTrials);
      for (const auto& [schedule, cost, score] : layout.plans) {
        const std::string why = schedule::obstacle(nest, schedule, config_);
        TESSERA_INVARIANT(why.empty(), "searcher '" + options_.search + "' made an illegal schedule: " + why);
      }
      layouts.push_back(std::move(layout));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDoesNotFit) throw;
      if (reason.empty()) reason = error.what();
    }
  }
  if (layouts.empty()) throw Error(ErrorCode::kDoesNotFit, reason);
  return layouts;
}

std::vector<Planner::Layout<ChainPlan>> Planner::layouts_of(const Chain& chain, Hand& hand,
                                                            const schedule::ChainTile* tile,
                                                            std::string* reason) const {
  std::vector<Layout<ChainPlan>> layouts;
  for (const Nest& head : chain.tasks[0].alternatives) {
    Subject subject{nests_of(chain, head), nullptr};
    const ChainLowering lowering(chain, subject.nests, config_, options_);
    subject.lowering = &lowering;
    std::string why = schedule::chain_obstacle(subject.nests, config_);
    std::vector<schedule::Ranked<ChainPlan>> found;
    if (why.empty() && tile == nullptr)
      found = hand.searcher->chains(subject, machine_, *hand.model, goal_, kChainTrials);
    if (why.empty() && tile != nullptr) {
      if (auto plan = schedule::ChainPlanner(subject.nests, config_).plan(*tile, &why)) {
        const Cost cost = hand.model->cost(subject, *plan);
        found.push_back({std::move(*plan), cost, goal_.score(cost, config_)});
      }
    }
    if (found.empty() && reason != nullptr) *reason = why.empty() ? "no tile fits the scratchpads" : why;
    if (!found.empty()) layouts.push_back({subject.nests, std::move(found), {}, {}});
  }
  return layouts;
}

template <typename Work, typename Plan>
void Planner::judge_on(const Work& work, std::vector<Layout<Plan>>& layouts, const std::string& key, Hand& hand) {
  const std::optional<uint32_t> known = key.empty() ? std::nullopt : known_as(key);
  double best = std::numeric_limits<double>::infinity();
  for (auto& layout : layouts) {
    for (const auto& [plan, cost, score] : layout.plans) layout.candidates.push_back(candidate(in_short(plan), cost));
    best = std::min(best, layout.plans.front().score);
  }
  for (auto& layout : layouts) {
    const double first = layout.plans.front().score;
    if (first > kFar * best) continue;
    const auto lowering = lowering_of(work, layout.nests, config_, options_);
    const Subject subject{layout.nests, &lowering};
    int64_t replayed = 0;  // instructions
    for (size_t k = 0; k < layout.plans.size(); ++k) {
      auto& [plan, cost, score] = layout.plans[k];
      if (spared(score, first, replayed)) continue;
      const double replay = judge(layout.candidates[k], subject, plan, hand, known);
      replayed += layout.candidates[k].replayed->instructions;
      layout.judged.push_back({{std::move(plan), k}, replay});
    }
  }
}

/// Of the searcher's schedules for each layout those whose stream does best, best first.
Found<Schedule> Planner::search(const Task& task, const std::string& key, Hand& hand) {
  std::vector<Layout<Schedule>> layouts = layouts_of(task, hand);
  judge_on(task, layouts, key, hand);
  Found<Schedule> result;
  for (auto& layout : layouts) {
    for (auto& [choice, score] : layout.judged) {
      choice.candidate += result.candidates.size();
      result.best.emplace_back(std::move(choice), score);
    }
    std::move(layout.candidates.begin(), layout.candidates.end(), std::back_inserter(result.candidates));
  }
  keep_finalists(result.best, config_);
  return result;
}

/// The plans of a chain, those that were judged best first, of the layout of the first input that does best; nothing:
/// there is none.
std::optional<Found<ChainPlan>> Planner::search_chain(const Chain& chain, const schedule::ChainTile* tile,
                                                      const std::string& key, std::string* reason, Hand& hand) {
  std::vector<Layout<ChainPlan>> layouts = layouts_of(chain, hand, tile, reason);
  judge_on(chain, layouts, key, hand);
  std::optional<Found<ChainPlan>> result;
  for (auto& layout : layouts) {
    keep_finalists(layout.judged, config_);
    if (layout.judged.empty() || (result && layout.judged.front().second >= result->best.front().second)) continue;
    result = {std::move(layout.candidates), std::move(layout.judged), layout.nests.front()->layout};
  }
  return result;
}

void Planner::search_ahead() {
  std::map<std::string, Task> tasks;
  std::map<std::string, Chain> chains;
  for (size_t i = 0; i < graph_.operations.size(); ++i) {
    if (given(i) != nullptr) continue;
    try {
      if (!stays(i)) {
        for (Task& task : make_tasks(graph_, i, placements_, config_, options_)) {
          std::string key = search_key(task);
          if (!memo_.tasks.contains(key)) tasks.try_emplace(std::move(key), std::move(task));
        }
      }
      for (size_t links = 2; links <= kMostLinks && may_chain(i, links); ++links) {
        if (stays(i + links - 1)) continue;
        auto chain = make_chain(graph_, i, links, placements_, config_, options_);
        if (!chain) continue;
        std::string key = search_key(*chain);
        if (!memo_.chains.contains(key)) chains.try_emplace(std::move(key), std::move(*chain));
      }
    } catch (const Error&) {  // run() says why
    }
  }
  std::mutex mutex;
  std::vector<std::function<void(Hand&)>> items;
  const auto keep = [&](auto& memo, const std::string& key, auto found) {
    const std::lock_guard lock(mutex);
    memo.emplace(key, std::move(found));
  };
  for (const auto& [key, chain] : chains)
    items.push_back([&](Hand& hand) { keep(memo_.chains, key, search_chain(chain, nullptr, key, nullptr, hand)); });
  for (const auto& [key, task] : tasks)
    items.push_back([&](Hand& hand) { keep(memo_.tasks, key, search(task, key, hand)); });
  at_once(hands_.size(), items.size(), [&](size_t item, size_t hand) {
    try {
      items[item](hands_[hand]);
    } catch (const Error&) {  // run() finds out again why
    }
  });
}

}  // namespace tessera::npu
