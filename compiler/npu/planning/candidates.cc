// SPDX-License-Identifier: Apache-2.0
// Candidates of operations and chains, and which of them are replayed. A searcher finds them by closed forms, which
// costs little. Replays cost much, and most of what could be a unit is far behind another cut of the same operations.
// So the pieces of a sequence compete: a chain that is far behind by its estimate is not replayed at all, then the
// first few candidates of each piece are, and the others only of those pieces that may still be in the best cut.
#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <limits>
#include <type_traits>

#include "compiler/npu/assembly/at_once.h"
#include "compiler/npu/planning/planner.h"

namespace tessera::npu {

using schedule::ChainPlan;
using schedule::Cost;
using schedule::Nest;
using schedule::Schedule;
using schedule::Subject;

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

/// Candidates that are replayed for each layout, and those that are tried again between the neighbours.
constexpr size_t kTrials = 16, kFinalists = 8;
constexpr size_t kFinalistsOfShares = 16;  // on a chip of several cores, where a layer alone tells less
constexpr size_t kChainTrials = 24;        // tiles of a chain cost little to plan, and the estimate tells less of them
/// Layouts of a chain's first input that are judged.
constexpr size_t kChainLayouts = 3;

/// Above this many times the best one's score by the model a candidate is hopeless: nine of ten schedules that won on
/// the bench networks were within 1.05. Of short streams all candidates are judged, which costs little: the model knows
/// least of them.
constexpr double kHopeless = 1.08;
constexpr int64_t kJudgedAnyway = 2000;  // instructions
/// A chain that is so far behind another cut of its operations is not judged, nor is a layout behind another one.
/// In a graph of few instructions by these estimates chains may be further behind.
constexpr double kFar = 1.15, kFarOfFew = 1.3;
constexpr int64_t kFew = 4000;
/// A piece whose first candidates make the best cut longer by more than this share of their score is left there.
constexpr double kBehind = 0.3;

/// Whether the judge is not asked about a candidate, after it has replayed so many instructions of others.
bool spared(double score, double best, int64_t replayed) {
  return replayed > kReplayed || (replayed > kJudgedAnyway && score > kHopeless * best);
}

std::string in_short(const schedule::ChainTile& tile) {
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

/// Layouts that are far behind the best one are not judged.
template <typename Layouts>
void leave_far_layouts(Layouts& layouts) {
  double best = kNever;
  for (const auto& layout : layouts) best = std::min(best, layout.plans.front().score);
  for (auto& layout : layouts) {
    if (layout.plans.front().score > kFar * best) layout.next = layout.plans.size();
  }
}

/// A score of what the memo has found; kNever: nothing.
template <typename Plan, typename Of>
double known_score(const Found<Plan>& found, Of&& of) {
  return found.best.empty() ? kNever : of(found);
}
template <typename Plan, typename Of>
double known_score(const std::optional<Found<Plan>>& found, Of&& of) {
  return found ? known_score(*found, of) : kNever;
}

template <typename Judged>
void keep_finalists(Judged& judged, const isa::MachineConfig& config) {
  std::stable_sort(judged.begin(), judged.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  judged.resize(std::min(judged.size(), config.cores > 1 ? kFinalistsOfShares : kFinalists));
}

}  // namespace

template <typename Plan>
double Planner::Contest<Plan>::estimated() const {
  double score = kNever;
  for (const Layout& layout : layouts) score = std::min(score, layout.plans.front().score);
  return score;
}

template <typename Plan>
double Planner::Contest<Plan>::least() const {
  double score = kNever;
  for (const Layout& layout : layouts) {
    for (const auto& [choice, judged] : layout.judged) score = std::min(score, judged);
  }
  return score;
}

template <typename Plan>
bool Planner::Contest<Plan>::whole() const {
  return std::all_of(layouts.begin(), layouts.end(), [](const Layout& l) { return l.next == l.plans.size(); });
}

/// What may be units of a sequence of operations, with a score each.
class Planner::Rivals {
 public:
  explicit Rivals(size_t operations) : scores_(operations) {
    for (auto& scores : scores_) scores.fill(kNever);
  }

  void add(size_t first, size_t count, double score) { scores_[first][count] = score; }
  void find_cuts() {
    before_.assign(scores_.size() + 1, kNever);
    behind_ = before_;
    before_.front() = behind_.back() = 0;
    each(
        [&](size_t first, size_t end, double score) { before_[end] = std::min(before_[end], before_[first] + score); });
    for (size_t first = scores_.size(); first-- > 0;) {
      for (size_t count = 1; count <= longest(first); ++count)
        behind_[first] = std::min(behind_[first], scores_[first][count] + behind_[first + count]);
    }
  }

  double score(size_t first, size_t count) const { return scores_[first][count]; }
  /// The least score of the same operations in several units; kNever: there is no way.
  double cover(size_t first, size_t count) const {
    std::array<double, kMostLinks + 1> least;
    least.fill(kNever);
    least[0] = 0;
    for (size_t at = 0; at < count; ++at) {
      for (size_t k = 1; at + k <= count; ++k) {
        if (k < count) least[at + k] = std::min(least[at + k], least[at] + scores_[first + at][k]);
      }
    }
    return least[count];
  }

  /// By how much the best cut with a unit scores more than the best one.
  double excess(size_t first, size_t count) const {
    const double best = before_.back();
    return best == kNever ? 0 : before_[first] + scores_[first][count] + behind_[first + count] - best;
  }

 private:
  size_t longest(size_t first) const { return std::min(kMostLinks, scores_.size() - first); }
  template <typename Visit>
  void each(Visit&& visit) const {
    for (size_t first = 0; first < scores_.size(); ++first) {
      for (size_t count = 1; count <= longest(first); ++count) visit(first, first + count, scores_[first][count]);
    }
  }

  std::vector<std::array<double, kMostLinks + 1>> scores_;  // by first operation and count
  std::vector<double> before_, behind_;                     // least scores up to an operation, and from there on
};

/// All that run() may ask for.
struct Planner::Ahead {
  template <typename Work, typename Plan>
  struct Entry {
    Work work;
    std::optional<Contest<Plan>> contest = {};
    bool goes_on = false;  // to be judged
    std::string why = {};  // if it has not been judged at all
  };
  struct Place {
    size_t first = 0, count = 1;
    std::vector<std::string> keys;  // of an operation's tasks, or of the chain
  };
  std::map<std::string, Entry<Task, Schedule>> tasks;
  std::map<std::string, Entry<Chain, ChainPlan>> chains;
  std::vector<Place> places;

  template <typename Visit>
  void each(Visit&& visit) {
    for (auto& [key, entry] : chains) visit(key, entry);
    for (auto& [key, entry] : tasks) visit(key, entry);
  }

  /// Calls work(key, entry, hand) for each entry. What fails is dropped: run() finds out again why.
  template <typename Work>
  void at_once(std::vector<Hand>& hands, Work&& work) {
    std::vector<std::function<void(Hand&)>> items;
    each([&](const std::string& key, auto& entry) {
      items.push_back([&](Hand& hand) {
        try {
          work(key, entry, hand);
        } catch (const Error&) {
          entry.contest.reset();
        }
      });
    });
    npu::at_once(hands.size(), items.size(), [&](size_t item, size_t hand) { items[item](hands[hand]); });
  }
};

Planner::Contest<Schedule> Planner::contest(const Task& task, Hand& hand) const {
  Contest<Schedule> result;
  std::string reason;
  for (const Nest& nest : task.alternatives) {
    const TaskLowering lowering(task, nest, config_, options_);
    try {
      auto& layout = result.layouts.emplace_back();
      layout.nests = {&nest};
      layout.plans = hand.searcher->schedules({{&nest}, &lowering}, machine_, *hand.model, goal_, kTrials);
      for (const auto& [schedule, cost, score] : layout.plans) {
        const std::string why = schedule::obstacle(nest, schedule, config_);
        TESSERA_INVARIANT(why.empty(), "searcher '" + options_.search + "' made an illegal schedule: " + why);
        layout.candidates.push_back(candidate(schedule::in_short(schedule), cost));
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDoesNotFit) throw;
      if (reason.empty()) reason = error.what();
      result.layouts.pop_back();
    }
  }
  if (result.layouts.empty()) throw Error(ErrorCode::kDoesNotFit, reason);
  leave_far_layouts(result.layouts);
  return result;
}

Planner::Contest<ChainPlan> Planner::contest(const Chain& chain, Hand& hand, const schedule::ChainTile* tile,
                                             std::string* reason) const {
  Contest<ChainPlan> result;
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
    if (!found.empty()) result.layouts.push_back({subject.nests, std::move(found), {}, {}});
  }
  auto& layouts = result.layouts;
  std::stable_sort(layouts.begin(), layouts.end(), [](const auto& a, const auto& b) {
    return a.plans.front().cost.cycles < b.plans.front().cost.cycles;
  });
  if (layouts.size() > kChainLayouts) layouts.erase(layouts.begin() + kChainLayouts, layouts.end());
  for (auto& layout : layouts) {
    for (const auto& [plan, cost, score] : layout.plans)
      layout.candidates.push_back(candidate(in_short(plan.tile), cost));
  }
  leave_far_layouts(layouts);
  return result;
}

template <typename Work, typename Plan>
void Planner::judge_on(const Work& work, Contest<Plan>& contest, int64_t most, const std::string& key, Hand& hand) {
  const std::optional<uint32_t> known = key.empty() ? std::nullopt : known_as(key);
  for (auto& layout : contest.layouts) {
    const auto lowering = lowering_of(work, layout.nests, config_, options_);
    const Subject subject{layout.nests, &lowering};
    for (; layout.next < layout.plans.size() && layout.replayed <= most; ++layout.next) {
      auto& [plan, cost, score] = layout.plans[layout.next];
      if (spared(score, layout.plans.front().score, layout.replayed)) continue;
      SearchLog::Candidate& candidate = layout.candidates[layout.next];
      const double replay = judge(candidate, subject, plan, hand, known);
      layout.replayed += candidate.replayed->instructions;
      layout.judged.push_back({{std::move(plan), layout.next}, replay});
    }
  }
}

/// Of all layouts.
Found<Schedule> Planner::found(Contest<Schedule> contest) const {
  Found<Schedule> result;
  result.whole = contest.whole();
  for (auto& layout : contest.layouts) {
    for (auto& [choice, score] : layout.judged) {
      choice.candidate += result.candidates.size();
      result.best.emplace_back(std::move(choice), score);
    }
    std::move(layout.candidates.begin(), layout.candidates.end(), std::back_inserter(result.candidates));
  }
  keep_finalists(result.best, config_);
  return result;
}

/// Of the layout that does best. Layouts differ in the first input alone.
Found<ChainPlan> Planner::found(Contest<ChainPlan> contest) const {
  Found<ChainPlan> result;
  double least = kNever;
  for (auto& layout : contest.layouts) {
    keep_finalists(layout.judged, config_);
    const bool better = !layout.judged.empty() && layout.judged.front().second < least;
    if (!better && !result.candidates.empty()) continue;
    if (better) least = layout.judged.front().second;
    result = {std::move(layout.candidates), std::move(layout.judged), layout.nests.front()->layout, "", true};
  }
  result.whole = contest.whole();
  return result;
}

/// Of the searcher's schedules for each layout those whose stream does best, best first.
Found<Schedule> Planner::search(const Task& task, const std::string& key, Hand& hand) {
  Contest<Schedule> all = contest(task, hand);
  judge_on(task, all, kAll, key, hand);
  return found(std::move(all));
}

/// The plans of a chain, those that were judged best first; nothing: there is none.
std::optional<Found<ChainPlan>> Planner::search_chain(const Chain& chain, const schedule::ChainTile* tile,
                                                      const std::string& key, std::string* reason, Hand& hand) {
  Contest<ChainPlan> all = contest(chain, hand, tile, reason);
  if (all.layouts.empty()) return std::nullopt;
  judge_on(chain, all, kAll, tile == nullptr ? key : "", hand);
  return found(std::move(all));
}

Planner::Ahead Planner::ahead() const {
  Ahead all;
  for (size_t i = 0; i < graph_.operations.size(); ++i) {
    if (given(i) != nullptr) continue;
    try {
      if (!stays(i)) {
        auto& place = all.places.emplace_back(Ahead::Place{i, 1, {}});
        for (Task& task : make_tasks(graph_, i, placements_, config_, options_)) {
          place.keys.push_back(search_key(task));
          const auto known = memo_.tasks.find(place.keys.back());
          if (known == memo_.tasks.end() || !known->second.whole)
            all.tasks.try_emplace(place.keys.back(), std::move(task));
        }
      }
      for (size_t links = 2; links <= kMostLinks && may_chain(i, links); ++links) {
        if (stays(i + links - 1)) continue;
        auto chain = make_chain(graph_, i, links, placements_, config_, options_);
        if (!chain) continue;
        auto& place = all.places.emplace_back(Ahead::Place{i, links, {search_key(*chain)}});
        const auto known = memo_.chains.find(place.keys.front());
        if (known == memo_.chains.end() || (known->second && !known->second->whole))
          all.chains.try_emplace(place.keys.front(), std::move(*chain));
      }
    } catch (const Error&) {  // run() says why
    }
  }
  return all;
}

template <typename Score>
Planner::Rivals Planner::rivals(const Ahead& all, Score&& score) const {
  Rivals result(graph_.operations.size());
  for (size_t i = 0; i < graph_.operations.size(); ++i) {
    if (given(i) == nullptr) continue;
    const auto* chain = std::get_if<schedule::ChainSchedule>(given(i));
    result.add(i, chain == nullptr ? 1 : std::min(chain->links.size(), kMostLinks), 0);
  }
  for (const Ahead::Place& place : all.places) {
    double sum = 0;
    for (const std::string& key : place.keys)
      sum += place.count == 1 ? score(all.tasks, memo_.tasks, key) : score(all.chains, memo_.chains, key);
    result.add(place.first, place.count, sum);
  }
  result.find_cuts();
  return result;
}

void Planner::leave_far_chains(Ahead& all) const {
  const auto estimated = [](const auto& entries, const auto& memo, const std::string& key) {
    if (const auto entry = entries.find(key); entry != entries.end())
      return entry->second.contest ? entry->second.contest->estimated() : kNever;
    return known_score(memo.at(key), [](const auto& found) {
      double least = kNever;
      for (const auto& candidate : found.candidates) least = std::min(least, candidate.estimated_score);
      return least;
    });
  };
  const Rivals rivals = this->rivals(all, estimated);
  int64_t instructions = 0;  // of all operations that are not known, each alone
  for (const auto& [key, entry] : all.tasks) {
    if (entry.contest) instructions += entry.contest->layouts.front().plans.front().cost.instructions;
  }
  const double far = instructions <= kFew ? kFarOfFew : kFar;
  for (const auto& [first, count, keys] : all.places) {
    const auto entry = count > 1 ? all.chains.find(keys.front()) : all.chains.end();
    if (entry == all.chains.end()) continue;
    const double cover = rivals.cover(first, count), own = rivals.score(first, count);
    entry->second.goes_on |= own <= far * cover;
    entry->second.why =
        "not replayed: its estimate is far above that of another cut of its operations, " + rounded(cover);
  }
}

void Planner::leave_behind(Ahead& all) const {
  const auto judged = [](const auto& entries, const auto& memo, const std::string& key) {
    if (const auto entry = entries.find(key); entry != entries.end())
      return entry->second.contest ? entry->second.contest->least() : kNever;
    return known_score(memo.at(key), [](const auto& found) { return found.best.front().second; });
  };
  const Rivals rivals = this->rivals(all, judged);
  all.each([](const std::string&, auto& entry) { entry.goes_on = false; });
  for (const auto& [first, count, keys] : all.places) {
    const double own = rivals.score(first, count);
    if (own == kNever || rivals.excess(first, count) > kBehind * own) continue;
    for (const std::string& key : keys) {
      if (const auto entry = all.tasks.find(key); count == 1 && entry != all.tasks.end()) entry->second.goes_on = true;
      if (const auto entry = all.chains.find(key); count > 1 && entry != all.chains.end()) entry->second.goes_on = true;
    }
  }
}

void Planner::search_ahead() {
  Ahead all = ahead();
  const auto judge_all = [&](int64_t most) {
    all.at_once(hands_, [&](const std::string& key, auto& entry, Hand& hand) {
      if (entry.goes_on && entry.contest) judge_on(entry.work, *entry.contest, most, key, hand);
    });
  };
  all.at_once(hands_, [&](const std::string&, auto& entry, Hand& hand) {
    entry.goes_on = std::is_same_v<decltype(entry.work), Task>;
    entry.contest = contest(entry.work, hand);
  });
  leave_far_chains(all);
  judge_all(kJudgedAnyway);
  leave_behind(all);
  judge_all(kAll);
  for (auto& [key, entry] : all.tasks) {
    if (entry.contest) memo_.tasks.insert_or_assign(key, found(std::move(*entry.contest)));
  }
  for (auto& [key, entry] : all.chains) {
    if (!entry.contest) continue;
    auto& known = memo_.chains.insert_or_assign(key, std::nullopt).first->second;
    if (entry.contest->layouts.empty()) continue;
    known = found(std::move(*entry.contest));
    known->why = std::move(entry.why);
  }
}

}  // namespace tessera::npu
