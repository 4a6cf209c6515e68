// SPDX-License-Identifier: Apache-2.0
// What follows from a schedule and its nest: extents, where operands stand, how long they stay, how many slots they
// have.
#include "compiler/schedule/schedule.h"

#include <algorithm>

namespace tessera::schedule {

Extents Schedule::tile() const {
  Extents tile;
  for (const Level& level : levels) {
    if (!level.outer()) tile[level.dim] *= level.factor;
  }
  return tile;
}

int Schedule::outer_levels() const {
  int count = 0;
  for (const Level& level : levels) {
    if (!level.outer()) break;
    ++count;
  }
  return count;
}

bool Schedule::threaded() const {
  return std::any_of(levels.begin(), levels.end(),
                     [](const Level& level) { return level.kind == LevelKind::kVthread; });
}

const OperandPlan* Schedule::plan(Operand operand) const {
  const auto found =
      std::find_if(operands.begin(), operands.end(), [&](const OperandPlan& plan) { return plan.operand == operand; });
  return found == operands.end() ? nullptr : &*found;
}

bool Schedule::keeps_rows() const {
  const OperandPlan* input = plan(Operand::kInput);
  return input != nullptr && input->halo == Halo::kKeep;
}

namespace {

/// The innermost outer level of oh; -1: there is none.
int innermost_rows(const Schedule& schedule) {
  int found = -1;
  const int outer = schedule.outer_levels();
  for (int i = 0; i < outer; ++i) {
    if (schedule.levels[static_cast<size_t>(i)].dim == Dim::kOh) found = i;
  }
  return found;
}

}  // namespace

int64_t Schedule::window_rows() const {
  const int64_t rows = tile()[Dim::kOh];
  const int level = keeps_rows() ? innermost_rows(*this) : -1;
  return level < 0 ? rows : rows * levels[static_cast<size_t>(level)].factor;
}

std::string in_short(const Schedule& schedule) {
  const auto word = [](std::string& to, const std::string& text) {
    if (!to.empty()) to += ' ';
    to += text;
  };
  std::string outer, tile, copies;
  for (const Level& level : schedule.levels) {
    const std::string dim(kDimNames[static_cast<size_t>(level.dim)]), factor = std::to_string(level.factor);
    if (!level.outer())
      word(tile, dim + factor);
    else
      word(outer, dim + ":" + factor +
                      (level.kind == LevelKind::kVthread ? "x" + std::to_string(level.threads) : std::string()));
  }
  for (const OperandPlan& plan : schedule.operands) {
    if (plan.copies == kDerived && plan.halo == Halo::kReload) continue;
    word(copies, std::string(kOperandNames[static_cast<size_t>(plan.operand)]) +
                     (plan.copies == kDerived ? "" : std::to_string(plan.copies)) +
                     (plan.halo == Halo::kKeep ? "k" : ""));
  }
  const std::string layout = to_string(schedule.input_layout);
  std::string text = outer + " | " + tile + " | " + copies + (layout == "nhwc" ? "" : " | " + layout);
  if (schedule.intrinsic != &core_intrinsic(schedule.intrinsic->computation()))
    text += " | " + schedule.intrinsic->name();
  return text;
}

bool indexes(const Nest& nest, Operand operand, Dim dim) {
  const bool weighted = nest.computation == Computation::kDense || nest.computation == Computation::kDepthwise;
  const auto broadcast = [&](const Access& access) {
    switch (dim) {
      case Dim::kN: return access.broadcast_n;
      case Dim::kOh: return access.broadcast_h;
      case Dim::kOw: return access.broadcast_w;
      case Dim::kG:
      case Dim::kOc: return access.broadcast_c;
      default: return false;
    }
  };
  switch (operand) {
    case Operand::kInput: return dim != Dim::kOc && !broadcast(nest.input);
    case Operand::kWeights:
      return weighted && (nest.factor.indexed(dim) || (dim != Dim::kN && dim != Dim::kOh && dim != Dim::kOw));
    case Operand::kSums:
    case Operand::kOutput: return !is_reduction(dim);
    case Operand::kSecond: return nest.second.present && !is_reduction(dim) && !broadcast(nest.second);
    case Operand::kParams: return nest.per_channel && (dim == Dim::kG || dim == Dim::kOc);
  }
  return false;
}

std::vector<isa::Space> input_scopes(const Nest& nest, const isa::MachineConfig& config) {
  if (!reads_by_alu(nest.computation) || nest.input.element_bytes != 1 || config.block_in != config.block_out)
    return {nest.input_space};
  if (nest.input_space == isa::Space::kOut) return {isa::Space::kOut, isa::Space::kInp};
  return {isa::Space::kInp, isa::Space::kOut};
}

isa::Space input_scope(const Nest& nest, const Schedule& schedule) {
  const OperandPlan* input = schedule.plan(Operand::kInput);
  return input != nullptr && input->scope ? *input->scope : nest.input_space;
}

bool fetched(const Nest& nest, Operand operand) {
  switch (operand) {
    case Operand::kInput:
    case Operand::kWeights:
    case Operand::kParams: return true;
    case Operand::kSecond: return nest.second.broadcasts();  // else it is read into the place of the result
    case Operand::kSums:
    case Operand::kOutput: return false;
  }
  return false;
}

namespace {

/// The level whose tiles share a window of the input; -1: none do.
int window_level(const Schedule& schedule, Operand operand) {
  return operand == Operand::kInput && schedule.keeps_rows() ? innermost_rows(schedule) : -1;
}

/// Inside the innermost level that the operand has; windows are fetched outside of the level whose tiles they hold.
int innermost_attach(const Nest& nest, const Schedule& schedule, Operand operand) {
  const int window = window_level(schedule, operand);
  int attach = 0;
  for (int i = 0; i < schedule.outer_levels(); ++i) {
    if (i != window && indexes(nest, operand, schedule.levels[static_cast<size_t>(i)].dim)) attach = i + 1;
  }
  return attach;
}

}  // namespace

int64_t kept_tiles(const Nest& nest, const Schedule& schedule, Operand operand, int attach) {
  const int window = window_level(schedule, operand);
  int64_t tiles = 1;
  for (int i = attach; i < schedule.outer_levels(); ++i) {
    const Level& level = schedule.levels[static_cast<size_t>(i)];
    if (i != window && indexes(nest, operand, level.dim)) tiles *= level.factor;
  }
  return tiles;
}

int attach_of(const Nest& nest, const Schedule& schedule, Operand operand) {
  const OperandPlan* plan = schedule.plan(operand);
  if (plan != nullptr && plan->attach != kDerived) return plan->attach;
  int attach = innermost_attach(nest, schedule, operand);
  if (plan == nullptr || !fetched(nest, operand)) return attach;
  const int64_t copies = plan->copies == kDerived ? 1 : plan->copies;
  while (attach > 0 && kept_tiles(nest, schedule, operand, attach - 1) <= copies) --attach;
  return attach;
}

int64_t derived_copies(const Nest& nest, const Schedule& schedule, Operand operand, int attach) {
  const int window = window_level(schedule, operand);
  int64_t copies = kept_tiles(nest, schedule, operand, attach);
  for (int i = 0; i < std::min(attach, schedule.outer_levels()); ++i) {
    const Level& level = schedule.levels[static_cast<size_t>(i)];
    if (level.kind == LevelKind::kVthread && i != window && indexes(nest, operand, level.dim)) copies *= level.threads;
  }
  return copies;
}

int64_t copies_of(const Nest& nest, const Schedule& schedule, Operand operand) {
  const OperandPlan* plan = schedule.plan(operand);
  if (plan == nullptr) return 0;
  if (plan->copies != kDerived) return plan->copies;
  return derived_copies(nest, schedule, operand, attach_of(nest, schedule, operand));
}

int64_t strip_size(int64_t positions, int64_t entries_each, int64_t entries) {
  constexpr int64_t kMost = 8;  // strips; each costs an instruction of every engine
  const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t least = ceil_div(entries, std::max<int64_t>(entries_each, 1));
  return std::max(ceil_div(positions, kMost), std::min(least, positions));
}

bool may_strip(const Nest& nest) { return !nest.raw && !nest.factor.present && nest.computation != Computation::kRows; }

Schedule canonical(const Nest& nest, const isa::MachineConfig& config, Schedule schedule) {
  if (!may_strip(nest)) schedule.strips = 0;
  const bool choice = input_scopes(nest, config).size() > 1;
  const isa::Space scope = input_scope(nest, schedule);
  PerOperand attach{}, copies{};
  for (const OperandPlan& plan : schedule.operands) {
    attach[static_cast<size_t>(plan.operand)] = attach_of(nest, schedule, plan.operand);
    copies[static_cast<size_t>(plan.operand)] = copies_of(nest, schedule, plan.operand);
  }
  for (OperandPlan& plan : schedule.operands) {
    const auto inside = static_cast<int>(attach[static_cast<size_t>(plan.operand)]);
    const int64_t count = copies[static_cast<size_t>(plan.operand)];
    plan.scope = plan.operand == Operand::kInput && choice ? std::optional(scope) : std::nullopt;
    plan.attach = fetched(nest, plan.operand) ? inside : kDerived;
    plan.copies = count == derived_copies(nest, schedule, plan.operand, inside) ? kDerived : static_cast<int>(count);
  }
  return schedule;
}

bool Capacity::fits(const isa::MachineConfig& config) const {
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i] > 0 && entries[i] > config.depth(static_cast<isa::Space>(i))) return false;
  }
  return true;
}

std::string Capacity::reason(const isa::MachineConfig& config) const {
  for (size_t i = 0; i < entries.size(); ++i) {
    const int64_t depth = config.depth(static_cast<isa::Space>(i));
    if (entries[i] > depth)
      return std::string(isa::kSpaceNames[i]) + " needs " + std::to_string(entries[i]) + " entries of " +
             std::to_string(depth);
  }
  return "";
}

void add_use(Capacity& use, const Footprint& f, const PerOperand& copies, isa::Space input_scope) {
  const auto count = [&](Operand operand) { return copies[static_cast<size_t>(operand)]; };
  use[input_scope] += f.input * count(Operand::kInput);
  use[isa::Space::kWgt] += f.weights * count(Operand::kWeights);
  use[isa::Space::kAcc] += f.sums * count(Operand::kSums);
  use[isa::Space::kOut] += f.output * count(Operand::kOutput) + f.second * count(Operand::kSecond);
  use[isa::Space::kParam] += f.params * count(Operand::kParams) + f.constants;
}

}  // namespace tessera::schedule
