// SPDX-License-Identifier: Apache-2.0
// The exhaustive searcher: every thinned extent of a tile, a few loop orders, windows of kept rows, and the copies that
// fit. The same input gives the same schedules.
#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <tuple>

#include "base/error.h"
#include "compiler/schedule/counts.h"
#include "compiler/schedule/searcher.h"
#include "compiler/schedule/space.h"
#include "isa/generated/timing.h"

namespace tessera::schedule {

namespace {

constexpr size_t kCandidatesOfAKind = 2, kChainsOfAKind = 4;
constexpr size_t kChainsOfShares = 6;  // on a chip of several cores
constexpr int64_t kFirstStrips = 128;  // until the neighbours are known
constexpr int kMostCopies = 4;         // of an operand that does not become resident
constexpr int64_t kThreads = 2;        // of the innermost loop

/// Loops around a tile, outermost first.
struct Order {
  std::vector<Loop> loops;
  int kept = -1;  // the loop of oh whose tiles' input stands in one window
};

/// Calls visit(factor, indexed) for the loops around a tile of the operand, innermost first.
template <typename Visit>
void each_loop(const Nest& nest, Operand operand, const Order& order, Visit&& visit) {
  for (auto i = static_cast<int>(order.loops.size()); i-- > 0;) {
    const Loop& loop = order.loops[static_cast<size_t>(i)];
    if (operand == Operand::kInput && i == order.kept) continue;
    visit(loop.factor, indexes(nest, operand, loop.dim));
  }
}

/// Different tiles of the operand.
int64_t distinct_tiles(const Nest& nest, Operand operand, const Order& order) {
  int64_t tiles = 1;
  each_loop(nest, operand, order, [&](int64_t factor, bool indexed) { tiles *= indexed ? factor : 1; });
  return tiles;
}

/// Numbers of copies beyond one that save fetches, largest first.
std::vector<int64_t> useful_copies(const Nest& nest, Operand operand, const Order& order) {
  std::vector<int64_t> result;
  int64_t tiles = 1;
  each_loop(nest, operand, order, [&](int64_t factor, bool indexed) {
    if (indexed)
      tiles *= factor;
    else if (tiles > 1 && (result.empty() || result.back() < tiles))
      result.push_back(tiles);
  });
  std::reverse(result.begin(), result.end());
  return result;
}

Capacity used(const Nest& nest, const Footprint& f, const PerOperand& copies) {
  Capacity use;
  add_use(use, f, copies, nest.input_space);
  return use;
}

PerOperand one_of_each() {
  PerOperand ones;
  ones.fill(1);
  return ones;
}

/// Copies beyond one, as far as they fit: all tiles if they then stay, else a few to fetch ahead.
PerOperand choose_copies(const Nest& nest, const isa::MachineConfig& config, const Footprint& f, const Order& order,
                         bool single) {
  PerOperand copies = one_of_each();
  if (single) return copies;
  PerOperand distinct{};
  for (size_t i = 0; i < distinct.size(); ++i) distinct[i] = distinct_tiles(nest, static_cast<Operand>(i), order);
  const auto grow = [&](Operand operand, int64_t target) {
    int64_t& count = copies[static_cast<size_t>(operand)];
    const int64_t before = count;
    count = std::min(target, distinct[static_cast<size_t>(operand)]);
    if (count <= before || !used(nest, f, copies).fits(config)) count = before;
    return count >= target;
  };
  // Two of everything first, then residence, then depth.
  for (const Operand operand :
       {Operand::kInput, Operand::kWeights, Operand::kSums, Operand::kOutput, Operand::kSecond, Operand::kParams}) {
    grow(operand, 2);
  }
  for (const Operand operand : {Operand::kWeights, Operand::kInput, Operand::kParams, Operand::kSecond}) {
    for (const int64_t count : useful_copies(nest, operand, order)) {
      if (grow(operand, count)) break;
    }
  }
  for (int target = 3; target <= kMostCopies; ++target) {
    for (const Operand operand :
         {Operand::kInput, Operand::kOutput, Operand::kSums, Operand::kWeights, Operand::kParams}) {
      if (copies[static_cast<size_t>(operand)] == target - 1) grow(operand, target);
    }
  }
  return copies;
}

template <typename Dims = std::initializer_list<Dim>>
Order order_of(const Nest& nest, const Extents& tile, const Dims& dims) {
  Order order;
  for (const Dim dim : dims) {
    const int64_t factor = ceil_div(nest.extent[dim], tile[dim]);
    if (factor > 1) order.loops.push_back({dim, factor});
  }
  return order;
}

std::vector<Order> loop_orders(const Nest& nest, const Extents& tile) {
  std::vector<Order> orders;
  orders.push_back(
      order_of(nest, tile, {Dim::kG, Dim::kN, Dim::kOh, Dim::kOw, Dim::kOc, Dim::kIc, Dim::kKh, Dim::kKw}));
  if (tile[Dim::kOc] == nest.extent[Dim::kOc]) return orders;
  orders.push_back(
      order_of(nest, tile, {Dim::kG, Dim::kOc, Dim::kN, Dim::kOh, Dim::kOw, Dim::kIc, Dim::kKh, Dim::kKw}));
  if (!nest.factor.present) return orders;
  // Columns of a matrix outside of the dimensions along which the matrix stays.
  const auto inner = [&](Dim dim) { return nest.factor.indexed(dim) ? Dim::kG : dim; };
  const auto outer = [&](Dim dim) { return nest.factor.indexed(dim) ? dim : Dim::kG; };
  orders.push_back(order_of(nest, tile,
                            {outer(Dim::kN), outer(Dim::kOh), outer(Dim::kOw), Dim::kOc, inner(Dim::kN),
                             inner(Dim::kOh), inner(Dim::kOw), Dim::kIc}));
  return orders;
}

/// The loop of oh, if it is the innermost that the input has, and tiles share rows.
int keepable(const Nest& nest, const Extents& tile, const Order& order) {
  if (tile[Dim::kN] > 1 || !shares_rows(nest)) return -1;
  for (auto i = static_cast<int>(order.loops.size()); i-- > 0;) {
    const Dim dim = order.loops[static_cast<size_t>(i)].dim;
    if (indexes(nest, Operand::kInput, dim)) return dim == Dim::kOh ? i : -1;
  }
  return -1;
}

/// The order with its loop of oh cut into windows of `kept` tiles.
Order with_windows(const Order& order, int loop, int64_t kept) {
  Order result = order;
  const auto at = static_cast<size_t>(loop);
  const int64_t outer = ceil_div(order.loops[at].factor, kept);
  result.kept = loop;
  if (outer > 1) {
    result.loops.insert(result.loops.begin() + loop, {Dim::kOh, outer});
    result.kept = loop + 1;
  }
  result.loops[static_cast<size_t>(result.kept)].factor = kept;
  return result;
}

/// The schedule of a tile in an order, with copies that fit. Virtual threads run on the innermost loop if any operand
/// has a copy to fetch ahead.
void build(const Nest& nest, const Intrinsic& intrinsic, const isa::MachineConfig& config, const Extents& tile,
           const Footprint& f, const Order& order, bool single, Schedule& schedule) {
  schedule.intrinsic = &intrinsic;
  schedule.input_layout = nest.layout;
  schedule.strips = single || !may_strip(nest) ? 0 : kFirstStrips;
  schedule.levels.clear();
  schedule.operands.clear();
  for (const Loop& loop : order.loops) schedule.levels.push_back({loop.dim, loop.factor, LevelKind::kTemporal});
  for (const Level& level : hardware_loops(tile)) schedule.levels.push_back(level);
  const PerOperand copies = choose_copies(nest, config, f, order, single);
  const PerOperand sizes = sizes_of(f);
  bool ahead = false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) continue;
    OperandPlan plan;
    plan.operand = static_cast<Operand>(i);
    plan.copies = static_cast<int>(copies[i]);
    if (plan.operand == Operand::kInput && order.kept >= 0) plan.halo = Halo::kKeep;
    if (plan.operand == Operand::kInput && input_scopes(nest, config).size() > 1) plan.scope = nest.input_space;
    schedule.operands.push_back(plan);
  }
  for (OperandPlan& plan : schedule.operands) {
    int64_t kept = 1;
    if (fetched(nest, plan.operand)) {
      plan.attach = attach_of(nest, schedule, plan.operand);
      kept = kept_tiles(nest, schedule, plan.operand, plan.attach);
    }
    ahead = ahead || plan.copies > kept;
  }
  if (ahead) {
    Level& innermost = schedule.levels[order.loops.size() - 1];
    innermost.kind = LevelKind::kVthread;
    innermost.threads = kThreads;
  }
}

/// Beside the extents of rows those that fill groups of rows which the machine walks together. Largest first.
void add_groups_of_rows(std::vector<int64_t>& extents, int64_t most, const isa::MachineConfig& config) {
  const int64_t group = isa::timing::row::group(config);
  const std::vector<int64_t> balanced = extents;
  for (const int64_t extent : balanced) {
    for (const int64_t whole : {extent / group * group, ceil_div(extent, group) * group}) {
      if (whole > 0 && whole <= most) extents.push_back(whole);
    }
  }
  std::sort(extents.begin(), extents.end(), std::greater<>());
  extents.erase(std::unique(extents.begin(), extents.end()), extents.end());
}

struct Candidate {
  double score = 0;
  int64_t tiles = 0;
  Cost cost;
  Schedule schedule;
};

bool better(const Candidate& a, const Candidate& b) {
  return a.score < b.score || (a.score == b.score && a.tiles < b.tiles);
}

/// Of candidates that differ little only the best few go on.
class Best {
 public:
  using Kind = std::tuple<size_t, size_t, bool, int64_t, int64_t, int64_t>;
  void offer(const Kind& kind, const Candidate& candidate) {
    auto& list = best_[kind];
    if (list.size() == kCandidatesOfAKind && !better(candidate, list.back())) return;
    if (list.size() == kCandidatesOfAKind) list.pop_back();
    list.insert(std::upper_bound(list.begin(), list.end(), candidate, better), candidate);
  }
  bool empty() const { return best_.empty(); }
  std::vector<Candidate> take() {
    std::vector<Candidate> all;
    for (auto& [kind, list] : best_) std::move(list.begin(), list.end(), std::back_inserter(all));
    std::stable_sort(all.begin(), all.end(), better);
    return all;
  }

 private:
  std::map<Kind, std::vector<Candidate>> best_;
};

/// All tiles of one nest.
class NestSearch {
 public:
  NestSearch(const Subject& subject, const Machine& machine, CostModel& model, const Goal& goal)
      : subject_(subject),
        nest_(*subject.nests.front()),
        machine_(machine),
        model_(model),
        goal_(goal),
        intrinsics_(intrinsics_for(nest_)) {
    const Extents& extent = nest_.extent;
    const isa::MachineConfig& config = machine.config;
    const auto limit = [](int64_t value) { return std::max<int64_t>(value, 1); };
    const int64_t out_limit = limit(nest_.raw ? config.acc_depth() : config.out_depth());
    const bool flat = extent[Dim::kOh] == 1 && extent[Dim::kN] == 1;
    const auto set = [&](Dim dim, double ratio, int64_t most) {
      values_[static_cast<size_t>(dim)] = candidate_extents(extent[dim], ratio, most);
    };
    const auto in_groups = [&](Dim dim) {
      if (nest_.computation == Computation::kRows) {
        add_groups_of_rows(values_[static_cast<size_t>(dim)], std::min(extent[dim], out_limit), config);
      }
    };
    set(Dim::kN, extent[Dim::kOh] * extent[Dim::kOw] == 1 ? 1.2 : 1.6, out_limit);
    set(Dim::kOc, 1.3, std::min(out_limit, limit(config.wgt_depth())));
    set(Dim::kOh, extent[Dim::kOh] > 32 ? 1.25 : 1.1, out_limit);
    set(Dim::kOw, flat ? 1.1 : 1.7, out_limit);
    in_groups(Dim::kOh);
    in_groups(Dim::kOw);
    // A core walks along the few rows of its share group by group, so that the next layer begins with the first one.
    if (nest_.computation == Computation::kRows && config.cores > 1) {
      std::vector<int64_t>& rows = values_[static_cast<size_t>(Dim::kOw)];
      const int64_t group = std::min(rows.front(), isa::timing::row::group(config));
      for (rows = {group}; rows.back() > 1;) rows.push_back(rows.back() / 2);
    }
    set(Dim::kIc, 1.4, limit(config.inp_depth()));
    set(Dim::kG, 1.4, out_limit);
    values_[static_cast<size_t>(Dim::kKh)] = {extent[Dim::kKh]};
    values_[static_cast<size_t>(Dim::kKw)] = {extent[Dim::kKw]};
  }

  std::vector<Candidate> run() {
    // Whole windows if any tile with them fits; else parts of windows too.
    sweep_intrinsics();
    for (const auto& [dim, ratio, most] :
         {std::tuple{Dim::kKh, 1.4, machine_.config.inp_depth()}, std::tuple{Dim::kKw, 1.2, int64_t{1} << 14}}) {
      if (!best_.empty()) break;
      values_[static_cast<size_t>(dim)] = candidate_extents(nest_.extent[dim], ratio, most);
      sweep_intrinsics();
    }
    if (best_.empty()) {
      const Extents one;
      throw Error(ErrorCode::kDoesNotFit,
                  "no tile fits the scratchpads: " +
                      used(nest_, footprint(nest_, *intrinsics_.front(), one), one_of_each()).reason(machine_.config) +
                      "; give the configuration more of it, or compile with --no-npu");
    }
    return best_.take();
  }

 private:
  void sweep_intrinsics() {
    for (intrinsic_ = 0; intrinsic_ < intrinsics_.size(); ++intrinsic_) sweep();
  }

  const Intrinsic& intrinsic() const { return *intrinsics_[intrinsic_]; }

  /// Every tile, the dimensions in this order from the slowest on.
  void sweep() {
    static constexpr std::array<Dim, kDims> kSlowestFirst = {Dim::kKh, Dim::kKw, Dim::kN,  Dim::kG,
                                                             Dim::kOh, Dim::kOw, Dim::kOc, Dim::kIc};
    visit(kSlowestFirst, 0);
  }

  void visit(const std::array<Dim, kDims>& dims, size_t depth) {
    if (depth == dims.size()) {
      consider();
      return;
    }
    const Dim dim = dims[depth];
    for (const int64_t value : values_[static_cast<size_t>(dim)]) {
      // Several images in a tile only when they are whole.
      const bool pixels = dim == Dim::kOh || dim == Dim::kOw;
      if (pixels && tile_[Dim::kN] > 1 && value < nest_.extent[dim] && !nest_.factor.present) break;
      tile_[dim] = value;
      visit(dims, depth + 1);
    }
  }

  void judge(size_t number, const Order& order, const Footprint& f, int64_t kept) {
    build(nest_, intrinsic(), machine_.config, tile_, f, order, goal_.single, candidate_.schedule);
    candidate_.cost = model_.cost(subject_, candidate_.schedule);
    candidate_.score = goal_.score(candidate_.cost, machine_.config);
    candidate_.tiles = 1;
    for (const Loop& loop : order.loops) candidate_.tiles *= loop.factor;
    best_.offer({intrinsic_, number, kept > 0, tile_[Dim::kOc], tile_[Dim::kIc], tile_[Dim::kG]}, candidate_);
  }

  bool holds(const Footprint& f) const { return used(nest_, f, one_of_each()).fits(machine_.config); }

  void consider() {
    if (!encodable(nest_, intrinsic(), tile_)) return;
    const Footprint f = footprint(nest_, intrinsic(), tile_);
    if (!holds(f)) return;
    const auto orders = loop_orders(nest_, tile_);
    for (size_t number = 0; number < orders.size(); ++number) {
      judge(number, orders[number], f, 0);
      consider_windows(number, orders[number]);
    }
  }

  /// The fewest windows that fit, and those of half their size, of which two may.
  void consider_windows(size_t number, const Order& order) {
    const int level = keepable(nest_, tile_, order);
    if (level < 0) return;
    const int64_t tiles = order.loops[static_cast<size_t>(level)].factor;
    int tried = 0;
    for (int64_t cuts = 1; cuts < tiles && tried < 2; cuts = tried > 0 ? cuts * 2 : cuts + 1) {
      const int64_t kept = ceil_div(tiles, cuts);
      if (kept < 2) break;
      const Footprint window = footprint(nest_, intrinsic(), tile_, kept * tile_[Dim::kOh]);
      if (!holds(window)) continue;
      ++tried;
      judge(number, with_windows(order, level, kept), window, kept);
    }
  }

  const Subject& subject_;
  const Nest& nest_;
  const Machine& machine_;
  CostModel& model_;
  const Goal& goal_;
  const std::vector<const Intrinsic*> intrinsics_;
  size_t intrinsic_ = 0;  // in hand
  std::array<std::vector<int64_t>, kDims> values_;
  Extents tile_;
  Candidate candidate_;  // in hand
  Best best_;
};

/// Whether a kept row costs more than one that is computed twice. A product of one step a result leaves the vector unit
/// as much to do as the matrix engine, and windows that take a result in each cycle leave it no time for two moves.
bool moves_cost_more(const std::vector<const Nest*>& nests) {
  const Nest& first = *nests.front();
  const int64_t steps = first.extent[Dim::kIc] * first.extent[Dim::kKh] * first.extent[Dim::kKw];
  return nests.size() > 1 && first.computation == Computation::kDense && steps == 1 && nests[1]->row_pairs;
}

class Exhaustive : public Searcher {
 public:
  std::vector<Ranked<Schedule>> schedules(const Subject& subject, const Machine& machine, CostModel& model,
                                          const Goal& goal, size_t count) override {
    std::vector<Candidate> all = NestSearch(subject, machine, model, goal).run();
    std::vector<Ranked<Schedule>> result;
    for (size_t i = 0; i < std::min(count, all.size()); ++i)
      result.push_back(
          {canonical(*subject.nests.front(), machine.config, std::move(all[i].schedule)), all[i].cost, all[i].score});
    return result;
  }

  /// At most kChainsOfAKind of the result have the same number of blocks, fetch their input alike and keep rows or do
  /// not.
  std::vector<Ranked<ChainPlan>> chains(const Subject& subject, const Machine& machine, CostModel& model,
                                        const Goal& goal, size_t count) override {
    const auto& nests = subject.nests;
    if (!chain_obstacle(nests, machine.config).empty()) return {};
    const Nest& tail = *nests.back();
    const int64_t height = tail.extent[Dim::kOh], width = tail.extent[Dim::kOw], middle = middle_blocks(nests);
    const bool walks_rows = std::any_of(nests.begin(), nests.end(),
                                        [](const Nest* nest) { return nest->computation == Computation::kRows; });
    const auto ascending = [&](std::vector<int64_t> values, int64_t most) {
      if (walks_rows) {
        add_groups_of_rows(values, most, machine.config);
        // As many tiles as with whole groups, which need less room where they are equal.
        for (size_t i = values.size(); i-- > 0;) values.push_back(ceil_div(most, ceil_div(most, values[i])));
        std::sort(values.begin(), values.end());
        values.erase(std::unique(values.begin(), values.end()), values.end());
      }
      std::sort(values.begin(), values.end());
      return values;
    };
    const auto better = [](const Ranked<ChainPlan>& a, const Ranked<ChainPlan>& b) {
      return a.cost.cycles < b.cost.cycles || (a.cost.cycles == b.cost.cycles && a.plan.steps < b.plan.steps);
    };
    const auto all_columns = ascending(candidate_extents(width, 1.3, width), width);
    ChainPlanner planner(nests, machine.config);
    // By blocks, whole input and kept rows.
    std::map<std::tuple<int64_t, bool, bool>, std::vector<Ranked<ChainPlan>>> best;
    const size_t of_a_kind = machine.config.cores > 1 ? kChainsOfShares : kChainsOfAKind;
    const bool keepable = may_keep_rows(nests) && !moves_cost_more(nests);
    const auto look = [&](const ChainTile& tile) {
      auto plan = planner.plan(tile);
      if (!plan) return;
      const Cost cost = model.cost(subject, *plan);
      Ranked<ChainPlan> ranked{std::move(*plan), cost, goal.score(cost, machine.config)};
      auto& kind = best[{tile.blocks, tile.whole_input, tile.keeps_rows}];
      const auto at = std::upper_bound(kind.begin(), kind.end(), ranked, better);
      kind.insert(at, std::move(ranked));
      if (kind.size() > of_a_kind) kind.pop_back();
    };
    for (const int64_t oh : ascending(candidate_extents(height, 1.15, height), height)) {
      for (const int64_t ow : all_columns) {
        for (const int64_t blocks : candidate_extents(middle, 1.25, middle)) {
          for (const bool keeps : {false, true}) {
            if (keeps && (!keepable || oh == height)) continue;
            look({oh, ow, blocks, false, kFirstStrips, keeps});
            if (const ChainTile whole{oh, ow, blocks, true, kFirstStrips, keeps}; may_hold_input(nests, whole))
              look(whole);
          }
        }
      }
    }
    std::vector<Ranked<ChainPlan>> all;
    for (auto& [of, kind] : best) std::move(kind.begin(), kind.end(), std::back_inserter(all));
    std::stable_sort(all.begin(), all.end(), better);
    if (all.size() > count) all.resize(count);
    return all;
  }
};

const RegisterSearcher kExhaustive("exhaustive", "thinned candidates of every tile extent and loop order",
                                   [] { return std::make_unique<Exhaustive>(); });

}  // namespace

std::vector<int64_t> candidate_extents(int64_t extent, double ratio, int64_t limit) {
  std::vector<int64_t> result;
  double last = std::numeric_limits<double>::infinity();
  for (int64_t k = 1; k <= extent;) {
    const int64_t value = ceil_div(extent, k);
    if (value <= limit && (result.empty() || value * ratio <= last || value == 1)) {
      result.push_back(value);
      last = static_cast<double>(value);
    }
    if (value == 1) break;
    k = std::max(k + 1, ceil_div(extent, value - 1));  // the first k with another value
    if (static_cast<double>(ceil_div(extent, k)) * ratio > last && last < 1e18) {
      k = std::max(k, ceil_div(extent, std::max<int64_t>(1, static_cast<int64_t>(last / ratio))));
    }
  }
  if (result.empty() || result.back() != 1) result.push_back(1);
  return result;
}

Schedule make_schedule(const Nest& nest, const isa::MachineConfig& config, const Extents& tile,
                       const std::vector<Dim>& dims, bool single, int64_t kept, const Intrinsic* with) {
  const Intrinsic& intrinsic = with != nullptr ? *with : core_intrinsic(nest.computation);
  Order order = order_of(nest, tile, dims);
  if (kept > 0) order = with_windows(order, keepable(nest, tile, order), kept);
  const Footprint f = footprint(nest, intrinsic, tile, kept * tile[Dim::kOh]);
  Schedule schedule;
  build(nest, intrinsic, config, tile, f, order, single, schedule);
  return canonical(nest, config, std::move(schedule));
}

Registry<MakeSearcher>& searchers() {
  static Registry<MakeSearcher> registry("searcher");
  return registry;
}

std::unique_ptr<Searcher> make_searcher(const std::string& name) { return searchers().find(name)(); }

Schedule generate(const Nest& nest, const Machine& machine, const Goal& goal) {
  const auto model = make_cost_model("closed-form", machine);
  Subject subject;
  subject.nests = {&nest};
  return std::move(make_searcher("exhaustive")->schedules(subject, machine, *model, goal, 1).front().plan);
}

}  // namespace tessera::schedule
