// SPDX-License-Identifier: Apache-2.0
// How the operations of a graph are run. A checked graph and the machine enter; units leave, in order: an operation
// with a schedule for each of its nests, or several operations as a chain. A searcher finds candidates, the replay
// judges them; of all ways to cut the sequence of operations that the scopes of tensors allow the one of least score
// wins, and each unit then takes the candidate that does best between its neighbours. Schedules given by the user are
// taken as they are.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/error.h"
#include "compiler/npu/graph/graph.h"
#include "compiler/npu/graph/plan.h"
#include "compiler/npu/lowering/chain.h"
#include "compiler/npu/lowering/kernel.h"
#include "compiler/npu/planning/replay_memo.h"
#include "compiler/npu/planning/search_log.h"
#include "compiler/npu/planning/search_memo.h"
#include "compiler/npu/planning/trial.h"
#include "compiler/npu/tasks/task.h"
#include "compiler/schedule/searcher.h"

namespace tessera::npu {

/// Instructions that all replays of one decision may have; one replay there always is.
inline constexpr int64_t kReplayed = 30000;

/// The share of a score for which it pays to look at borders.
inline constexpr double kWorth = 0.005;

/// Units in front of one that are replayed with it at most, on a chip of several cores, and the share of what the unit
/// takes alone from which on those are enough.
inline constexpr size_t kMostInFront = 2;
inline constexpr double kEnough = 0.75;

/// One or several operations: the tasks of a single operation with a schedule each, or a chain.
struct Unit {
  size_t first = 0, count = 1;
  std::vector<Task> tasks;
  std::vector<schedule::Schedule> schedules;  // one for each task
  std::optional<Chain> chain;
  std::shared_ptr<const KernelCode> code;          // of a kernel, which has neither tasks nor schedules
  double score = 0;                                // by the replay; all scores of a plan are sums
  size_t piece = 0;                                // of the log, the first of its tasks'
  size_t candidate = 0;                            // of that piece, in use
  std::vector<Choice<schedule::Schedule>> others;  // for the only task, or
  std::vector<Choice<schedule::ChainPlan>> plans;  // for the chain: what may do better between the neighbours
};

/// Whether the unit is a chain with a product between its first and its last operation.
inline bool has_product_between(const Unit& unit) { return unit.chain && schedule::product_between(unit.chain->nests); }

/// Appends a unit's instructions, and what became of its operations to their infos.
void lower_unit(const Unit& unit, Emitter& emitter, std::vector<LayerInfo>& infos);

/// Places tensors, those between the links of chains nowhere, and moves the units to the places.
MemoryPlan place_units(std::vector<Unit>& units, const Graph& graph, const isa::MachineConfig& config,
                       const Options& options);
/// Moves the units to given places.
void move_units(std::vector<Unit>& units, const Graph& graph, const std::vector<Placement>& placements,
                const isa::MachineConfig& config, const Options& options);

/// Does some work for an operation; errors name it and the machine.
template <typename Work>
auto guarded(const Graph& graph, const isa::MachineConfig& config, size_t operation, Work&& work) -> decltype(work()) {
  try {
    return work();
  } catch (const Error& error) {
    const Operation& op = graph.operations[operation];
    throw Error(error.code(), "node '" + op.name + "' (" + op.kind + ") on " + config.name + ": " + error.what());
  }
}

/// Instructions up to which a whole stream is judged as it is compiled, with what stays on the chip and the times of
/// its fetches: several replays, which decide the more the smaller results are.
inline constexpr int64_t kAsCompiled = 1500;

/// The nest that a schedule is for.
const schedule::Nest& nest_for(const Task& task, const schedule::Schedule& schedule);
/// What was chosen, as text that tells it from any other.
std::string plan_key(const schedule::Schedule& schedule);
std::string plan_key(const schedule::ChainPlan& plan);
class Planner {
 public:
  /// All references stay in use. Errors: kInvalidArgument for unknown names in the options.
  Planner(const Graph& graph, const isa::MachineConfig& config, const Options& options);

  /// The units, under places that tensors have without chains.
  std::vector<Unit> run();

  /// The nests' layouts of an operation that the replay likes best, each alone.
  std::vector<schedule::InputLayout> layouts(size_t operation);

  /// Takes for each unit in turn the candidate that does best between its neighbours, where tensors stand at their
  /// places: a replay by itself cannot see what the layer before leaves in the queues, nor what the next one must wait
  /// for. Then those are looked at again whose neighbours have changed since. A short stream that the memo knows, or
  /// that will be known, is settled once.
  void settle(std::vector<Unit>& units, const MemoryPlan& plan);

  /// Behind settle(): settles by the whole stream the last unit that the bus bounds, as its fetches are decided far
  /// before it and nothing behind it hides them; in a stream of few instructions every unit.
  void polish(std::vector<Unit>& units, const MemoryPlan& plan);

  /// Whether the stream of what run() chose has few instructions.
  bool is_short() const { return short_; }
  /// Instructions of all units, counted no further than to the first unit with which they are more than `most`.
  int64_t pushed(const std::vector<Unit>& units, int64_t most) const;
  /// Whether the judge looks at finished instructions.
  bool replays() const { return hands_.front().judge->reads_streams(); }

 private:
  using Ranked = std::pair<Choice<schedule::Schedule>, double>;  // with the replay's score

  /// The ways to end a unit before an operation: the best one, and what the next best scores.
  struct Cut {
    double score = -1, rival = -1;  // of all units up to here; negative: there is none
    size_t first = 0;               // operation of that unit
  };
  /// Where a unit begins, and its operations.
  using Place = std::pair<size_t, size_t>;
  /// A unit that was offered.
  struct Offer {
    size_t piece = 0, pieces = 1, first = 0, count = 1;
    double total = 0;
  };

  const schedule::LayerSchedule* given(size_t operation) const;
  /// The number of a piece of the log; one that an earlier plan of the same graph has opened is taken up again.
  size_t open_piece(size_t first, size_t count, size_t nest, size_t nests);
  /// A candidate for the log, without a replay.
  SearchLog::Candidate candidate(std::string text, const schedule::Cost& estimated) const;
  /// Who looks for candidates and judges them; those that do so at once are not the same.
  struct Hand {
    std::unique_ptr<schedule::Searcher> searcher;
    std::unique_ptr<schedule::CostModel> model, judge;
  };
  /// What a unit costs, or another in its place: of the whole unit as it is given.
  using Costs = std::function<std::optional<schedule::Cost>(const Unit&)>;
  /// How a unit is settled: between its neighbours, between those that have changed since, by the whole stream, or by
  /// it as each other one.
  enum class Look { kFirst, kAgain, kWhole, kEach };
  /// Replays the noted candidate; its score.
  template <typename Plan>
  double judge(SearchLog::Candidate& candidate, const schedule::Subject& subject, const Plan& plan, Hand& hand,
               std::optional<uint32_t> known = {});
  /// The memo's number for what the text says on this machine; nothing where there is no memo.
  std::optional<uint32_t> known_as(const std::string& text);
  /// Calls cost(slots) where the memo does not know the answer.
  template <typename Replay>
  std::optional<schedule::Cost> remembered(std::optional<uint32_t> subject, const std::string& plan, Replay&& replay);

  /// Candidates of a piece of work in one layout of its input.
  template <typename Plan>
  struct Layout {
    std::vector<const schedule::Nest*> nests;
    std::vector<schedule::Ranked<Plan>> plans;
    std::vector<SearchLog::Candidate> candidates;  // of the plans
    std::vector<std::pair<Choice<Plan>, double>> judged;
  };

  std::vector<Ranked> choose(const Task& task, SearchLog::Piece& piece);
  Found<schedule::Schedule> search(const Task& task, const std::string& key, Hand& hand);
  /// At least one. Errors: kDoesNotFit.
  std::vector<Layout<schedule::Schedule>> layouts_of(const Task& task, Hand& hand) const;
  std::vector<Layout<schedule::ChainPlan>> layouts_of(const Chain& chain, Hand& hand, const schedule::ChainTile* tile,
                                                      std::string* reason) const;
  /// Writes down the candidates of all layouts, and judges those that may be the best.
  template <typename Work, typename Plan>
  void judge_on(const Work& work, std::vector<Layout<Plan>>& layouts, const std::string& key, Hand& hand);
  /// Searches of all operations and chains that the memo does not know, on all hands; those that fail are left to
  /// run(), which knows whether anybody asks for them.
  void search_ahead();
  schedule::Schedule legal(const Task& task, const schedule::Schedule& given) const;
  Unit single(size_t i);
  Unit written(size_t i);
  /// The chain of so many links under its best plan, or under the given tile; nothing when there is none.
  std::optional<Unit> chained(size_t i, size_t links, const schedule::ChainTile* tile, std::string* reason,
                              const std::optional<schedule::InputLayout>& layout = {});
  Unit given_chain(size_t i, const schedule::ChainSchedule& given);
  std::optional<Found<schedule::ChainPlan>> search_chain(const Chain& chain, const schedule::ChainTile* tile,
                                                         const std::string& key, std::string* reason, Hand& hand);
  /// Whether scopes, options and given schedules allow a unit of so many operations.
  bool may_chain(size_t i, size_t links) const;
  bool stays(size_t i) const { return scopes_[i] == Scope::kChip; }
  [[noreturn]] void refuse_scopes(const std::vector<Cut>& cuts) const;
  void offer(std::vector<Cut>& cuts, Unit unit);
  void explain(const std::vector<Cut>& cuts, const std::vector<Unit>& units);
  /// Replaces a few units next to each other by others that cover the same operations and do better between their
  /// neighbours.
  void recut(std::vector<Unit>& units);
  bool recut_at(std::vector<Place>& cut, size_t first, size_t count);
  /// Some units next to each other, and the other ways to cover their operations, least score alone first.
  struct Recut {
    double alone = 0;                   // the units' scores
    std::optional<schedule::Cost> own;  // between the neighbours; nothing where there is no other way, as of `costs`
    std::vector<std::vector<Place>> covers;
    std::vector<std::optional<schedule::Cost>> costs;  // of those that may be replayed
  };
  Recut other_covers(const std::vector<Place>& cut, size_t first, size_t count, size_t hands);
  /// All ways to cover the operations from `first` to `end` by units that were offered.
  std::vector<std::vector<Place>> covers(size_t first, size_t end) const;
  /// How many units in front of one are replayed with it. A core's share of a layer has little work, but all weights of
  /// it: there they are fetched beside more than one unit.
  size_t in_front(const std::vector<Unit>& units, size_t u) const;
  /// Takes the strips that do best between the neighbours.
  void choose_strips(Unit& unit, const Costs& cost, Look look);
  /// The unit cut into so many strips.
  void cut_into_strips(Unit& unit, int64_t strips) const;
  /// Settles one unit; whether another choice was made.
  bool settle_at(std::vector<Unit>& units, size_t u, Look look);
  bool settle_by(Unit& unit, const Costs& cost, Look look);
  /// What settle() depends on of units, and of what they may take instead, as text.
  std::string settled_key(const std::vector<Unit>& units) const;
  /// Whether a unit's transfers take longer than its products.
  bool bound_by_bus(const Unit& unit) const;
  /// Settles again the neighbours of those that have changed, and keeps that if the whole stream does better with it.
  void look_again(std::vector<Unit>& units, const MemoryPlan& plan, std::vector<bool> changed);
  /// Of the whole stream; one of `most` instructions or fewer with the times of its fetches, a short one as it is
  /// compiled; nothing where the judge looks at no streams.
  std::optional<schedule::Cost> whole(const std::vector<const Unit*>& units, const MemoryPlan& plan, int64_t most);
  std::optional<schedule::Cost> finished(const std::vector<const Unit*>& units, const MemoryPlan& plan, int64_t most);
  /// What find() says of units behind each other, asked once for each choice of theirs.
  template <typename Find>
  std::optional<schedule::Cost> known(std::string key, const std::vector<const Unit*>& units, Find&& find);
  /// The units with which several streams begin, lowered when the first of these is replayed.
  struct Begun {
    std::vector<const Unit*> units = {};
    std::optional<Emitter> emitter = {};
    std::once_flag once = {};
  };
  /// Units behind each other, of which `begun` has the first; null: none.
  Emitter lowered(const std::vector<const Unit*>& units, Begun* begun) const;
  /// Of units behind each other, those of a short stream with what stays on the chip; nothing where the judge looks at
  /// no streams.
  std::optional<schedule::Cost> cost_of(const std::vector<const Unit*>& units, Begun* begun = nullptr);
  std::optional<schedule::Cost> replayed(const std::vector<const Unit*>& units, Begun* begun);
  /// Whether the stream is judged with what stays on the chip.
  bool forwards() const { return short_ && options_.forward != Forward::kNever; }
  /// Of what the units write that which others read, or the user.
  ArenaBytes read_elsewhere(const std::vector<const Unit*>& units) const;
  /// Where the tensors stand that the units read and write.
  std::string places_of(const std::vector<const Unit*>& units) const;
  /// Tries the other candidates in place of the unit's own.
  template <typename Plan, typename Of>
  void pick(Unit& unit, Of&& plan_of, std::vector<Choice<Plan>>& others, const Costs& cost, Look look);

  const Graph& graph_;
  const isa::MachineConfig& config_;
  const Options& options_;
  const schedule::Machine machine_;
  const schedule::Goal goal_;
  const std::vector<Placement> placements_;
  const std::vector<Placement>* placed_ = &placements_;         // where tensors stand now
  std::map<std::string, std::optional<schedule::Cost>> known_;  // of units and their schedules, as tensors stand now
  std::mutex known_mutex_;
  bool short_ = false, long_ = false;  // the stream has few instructions (kAsCompiled), or many (planner.cc)
  bool alternate_ = false;             // so many that every other unit is settled at once
  /// What stands beside a unit changes its score by so much at most, as its border with a neighbour lasts no longer: of
  /// candidates that are further apart alone the better one is better between any neighbours.
  double border_ = std::numeric_limits<double>::infinity();
  const std::vector<bool> feeds_;
  std::vector<Scope> scopes_;              // by operation: of its result
  std::map<size_t, std::string> reasons_;  // by operation: why no chain that begins with it can be
  SearchMemo own_memo_;
  SearchMemo& memo_;
  const std::shared_ptr<ReplayMemo> replays_;  // nothing: the judge is none whose answers are kept
  const std::string machine_text_;             // for its keys
  std::vector<Hand> hands_;                    // at least one; several where the judge's answers need no memory
  std::vector<Offer> offers_;
  std::map<Place, Unit> offered_;  // units that are not in run()'s result
  SearchLog own_log_;
  SearchLog& log_;
  const size_t known_pieces_;  // of earlier plans
};

template <typename Replay>
std::optional<schedule::Cost> Planner::remembered(std::optional<uint32_t> subject, const std::string& plan,
                                                  Replay&& replay) {
  SlotLog slots;
  if (!subject) return replay(slots);
  if (const auto known = replays_->find(*subject, plan, config_)) return known;
  const std::optional<schedule::Cost> cost = replay(slots);
  if (cost) replays_->keep(*subject, plan, std::move(slots), *cost);
  return cost;
}

template <typename Plan>
double Planner::judge(SearchLog::Candidate& candidate, const schedule::Subject& subject, const Plan& plan, Hand& hand,
                      std::optional<uint32_t> known) {
  heed_stop(options_);
  candidate.replayed = remembered(known, known ? plan_key(plan) : "", [&](SlotLog& slots) {
    const schedule::Cost cost = hand.judge->cost(subject, plan);
    if (known) slots = static_cast<const LoggedLowering*>(subject.lowering)->slots();
    return std::optional(cost);
  });
  candidate.score = goal_.score(*candidate.replayed, config_);
  return candidate.score;
}

}  // namespace tessera::npu
