// SPDX-License-Identifier: Apache-2.0
// The rules of schedules. A nest, a schedule and a machine enter; the first rule that is broken leaves as a sentence,
// which the errors of given schedules show behind the node.
#include <algorithm>

#include "compiler/schedule/schedule.h"

namespace tessera::schedule {

namespace {

constexpr int kMostOuterLevels = 16;

std::string name(Operand operand) { return std::string(kOperandNames[static_cast<size_t>(operand)]); }
std::string name(Dim dim) { return std::string(kDimNames[static_cast<size_t>(dim)]); }
std::string name(isa::Space space) { return std::string(isa::kSpaceNames[static_cast<size_t>(space)]); }
std::string number(int64_t value) { return std::to_string(value); }

std::string levels_obstacle(const Nest& nest, const Schedule& schedule) {
  Extents covered = schedule.tile();
  const Extents tile = covered;
  bool reduction = false, inside = false;
  int outer = 0;
  for (const Level& level : schedule.levels) {
    if (level.outer() && inside) return "levels must come in the order temporal and vthread, hwloop";
    inside = !level.outer();
    if (inside) continue;
    if (++outer > kMostOuterLevels) return "more than " + number(kMostOuterLevels) + " levels around a tile";
    if (level.kind == LevelKind::kVthread && (level.threads < 2 || level.threads > level.factor))
      return "a vthread level of factor " + number(level.factor) + " runs from 2 to as many iterations at once, not " +
             number(level.threads);
    covered[level.dim] *= level.factor;
    if (is_reduction(level.dim))
      reduction = true;
    else if (reduction && level.factor > 1)
      return "temporal reduction levels must be the innermost ones";
  }
  for (int d = 0; d < kDims; ++d) {
    const auto dim = static_cast<Dim>(d);
    if (covered[dim] < nest.extent[dim])
      return "the levels of " + name(dim) + " cover " + number(covered[dim]) + " of " + number(nest.extent[dim]);
    if (tile[dim] > nest.extent[dim])
      return "a tile has " + number(tile[dim]) + " of " + name(dim) + ", the nest " + number(nest.extent[dim]);
  }
  return "";
}

std::string window_obstacle(const Nest& nest, const Schedule& schedule) {
  if (!schedule.keeps_rows()) return "";
  const int64_t images = schedule.tile()[Dim::kN];
  if (images > 1) return "the input keeps rows of one image at a time, a tile has " + number(images);
  int innermost = -1, rows = -1;
  for (int i = 0; i < schedule.outer_levels(); ++i) {
    const Dim dim = schedule.levels[static_cast<size_t>(i)].dim;
    if (indexes(nest, Operand::kInput, dim)) innermost = i;
    if (dim == Dim::kOh) rows = i;
  }
  if (innermost < 0 || innermost != rows)
    return "the input keeps rows where oh is the innermost temporal level that it has";
  if (attach_of(nest, schedule, Operand::kInput) > rows)
    return "rows are kept through the level of oh at " + number(rows) + ": the input is fetched outside of it";
  return "";
}

/// Tiles whose sums are unfinished at once.
int64_t open_sums(const Nest& nest, const Schedule& schedule) {
  int64_t open = 1, inside = 1;
  for (int i = schedule.outer_levels(); i-- > 0;) {
    const Level& level = schedule.levels[static_cast<size_t>(i)];
    if (is_reduction(level.dim))
      inside *= level.factor;
    else if (level.kind == LevelKind::kVthread && inside > 1 && indexes(nest, Operand::kSums, level.dim))
      open *= level.threads;
  }
  return open;
}

std::string place_obstacle(const Nest& nest, const Schedule& schedule, const OperandPlan& plan,
                           const isa::MachineConfig& config) {
  const std::string operand = name(plan.operand);
  if (plan.halo == Halo::kKeep && plan.operand != Operand::kInput) return "only the input can keep rows";
  if (plan.scope) {
    const auto places = plan.operand == Operand::kInput ? input_scopes(nest, config) : std::vector<isa::Space>{};
    if (places.size() < 2) return operand + " has no choice of scope: leave it out";
    if (std::find(places.begin(), places.end(), *plan.scope) == places.end())
      return "the scope of " + operand + " is " + name(places[0]) + " or " + name(places[1]) + ", not " +
             name(*plan.scope);
  }
  if (plan.attach == kDerived) return "";
  if (!fetched(nest, plan.operand)) return operand + " is not fetched: it has no attach";
  if (plan.attach < 0 || plan.attach > schedule.outer_levels())
    return operand + " is fetched inside " + number(plan.attach) + " levels, and there are " +
           number(schedule.outer_levels());
  return "";
}

std::string copies_obstacle(const Nest& nest, const Schedule& schedule, const OperandPlan& plan) {
  const std::string operand = name(plan.operand);
  const int64_t copies = copies_of(nest, schedule, plan.operand);
  const int attach = attach_of(nest, schedule, plan.operand);
  const int64_t kept = kept_tiles(nest, schedule, plan.operand, attach);
  if (fetched(nest, plan.operand) && copies < kept)
    return operand + " stays inside " + number(attach) + " levels in " + number(kept) + " tiles and has " +
           number(copies) + (copies == 1 ? " copy" : " copies");
  const int64_t alone = fetched(nest, plan.operand) ? kept : 1;
  if (!schedule.threaded() && copies > alone)
    return operand + " has " + number(copies) + " copies and no level is a vthread: there are " + number(alone) +
           " then";
  if (plan.operand == Operand::kSums && copies < open_sums(nest, schedule))
    return "sums needs " + number(open_sums(nest, schedule)) + " copies: so many threads sum at once";
  return "";
}

std::string operands_obstacle(const Nest& nest, const Schedule& schedule, const PerOperand& sizes,
                              const isa::MachineConfig& config) {
  for (const OperandPlan& plan : schedule.operands) {
    if (plan.operand == Operand::kSecond && nest.second.present && !nest.second.broadcasts())
      return "operand second is read into the place of the output: it takes no plan";
    if (sizes[static_cast<size_t>(plan.operand)] == 0) return "this operation has no operand " + name(plan.operand);
    if (std::count_if(schedule.operands.begin(), schedule.operands.end(),
                      [&](const OperandPlan& other) { return other.operand == plan.operand; }) > 1)
      return "operand " + name(plan.operand) + " is given twice";
    if (std::string why = place_obstacle(nest, schedule, plan, config); !why.empty()) return why;
  }
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (sizes[static_cast<size_t>(i)] > 0 && schedule.plan(operand) == nullptr)
      return "operand " + name(operand) + " is missing";
  }
  return "";
}

}  // namespace

bool encodable(const Nest& nest, const Intrinsic& intrinsic, const Extents& tile) {
  if (tile[Dim::kG] > 1 && (tile[Dim::kOc] < nest.extent[Dim::kOc] || tile[Dim::kIc] < nest.extent[Dim::kIc]))
    return false;
  return intrinsic.tile_obstacle(nest, tile).empty();
}

namespace {

std::string intrinsic_obstacle(const Nest& nest, const Schedule& schedule) {
  if (schedule.intrinsic == nullptr) return "it names no intrinsic";
  const Intrinsic& intrinsic = *schedule.intrinsic;
  if (intrinsic.computation() != nest.computation) {
    return "the intrinsic of this operation is " + core_intrinsic(nest.computation).name() + ", not " +
           intrinsic.name();
  }
  const std::string why = intrinsic.nest_obstacle(nest);
  return why.empty() ? "" : "intrinsic " + intrinsic.name() + " cannot compute this operation: " + why;
}

}  // namespace

std::string plan_obstacle(const Nest& nest, const Schedule& schedule, const OperandPlan& plan,
                          const isa::MachineConfig& config) {
  if (std::string why = place_obstacle(nest, schedule, plan, config); !why.empty()) return why;
  if (std::string why = window_obstacle(nest, schedule); !why.empty()) return why;
  return copies_obstacle(nest, schedule, plan);
}

std::string obstacle(const Nest& nest, const Schedule& schedule, const isa::MachineConfig& config) {
  if (std::string why = intrinsic_obstacle(nest, schedule); !why.empty()) return why;
  if (schedule.input_layout != nest.layout)
    return "input_layout '" + to_string(schedule.input_layout) + "' is not '" + to_string(nest.layout) + "'";
  if (std::string why = levels_obstacle(nest, schedule); !why.empty()) return why;
  const Extents tile = schedule.tile();
  if (tile[Dim::kG] > 1 && (tile[Dim::kOc] < nest.extent[Dim::kOc] || tile[Dim::kIc] < nest.extent[Dim::kIc]))
    return "a tile of several chunks must hold them whole";
  if (std::string why = schedule.intrinsic->tile_obstacle(nest, tile); !why.empty()) return why;
  const Footprint f = footprint(nest, *schedule.intrinsic, tile, schedule.window_rows());
  if (std::string why = operands_obstacle(nest, schedule, sizes_of(f), config); !why.empty()) return why;
  if (std::string why = window_obstacle(nest, schedule); !why.empty()) return why;
  PerOperand copies{};
  for (const OperandPlan& plan : schedule.operands) {
    if (std::string why = copies_obstacle(nest, schedule, plan); !why.empty()) return why;
    copies[static_cast<size_t>(plan.operand)] = copies_of(nest, schedule, plan.operand);
  }
  Capacity use;
  add_use(use, f, copies, input_scope(nest, schedule));
  return use.reason(config);
}

}  // namespace tessera::schedule
