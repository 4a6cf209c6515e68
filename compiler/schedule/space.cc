// SPDX-License-Identifier: Apache-2.0
// Numbers of points are mixed: intrinsic, group of sketches (which dimensions are cut), extents, sketch, annotation.
#include "compiler/schedule/space.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "compiler/schedule/counts.h"

namespace tessera::schedule {

namespace {

constexpr int kTries = 64;  // of a mutation

/// None, one or two of so many levels are virtual threads.
Index thread_choices(size_t levels) {
  const Index each = kMostThreads - 1, count = levels;
  return 1 + each * count + each * each * (count * (count - 1) / 2);
}

/// Makes the levels that a number says virtual threads.
void set_threads(std::vector<Level>& levels, size_t outer, Index number) {
  constexpr Index kEach = kMostThreads - 1;
  const auto make = [&](size_t level, Index which) {
    levels[level].kind = LevelKind::kVthread;
    levels[level].threads = 2 + static_cast<int64_t>(which);
  };
  if (number-- == 0) return;
  if (number < kEach * outer) {
    make(static_cast<size_t>(number / kEach), number % kEach);
    return;
  }
  number -= kEach * outer;
  auto pair = static_cast<size_t>(number / (kEach * kEach));
  for (size_t first = 0; first + 1 < outer; ++first) {
    const size_t others = outer - first - 1;
    if (pair < others) {
      make(first, number % kEach);
      make(first + 1 + pair, number / kEach % kEach);
      return;
    }
    pair -= others;
  }
}

/// Distinct values ceil(extent / k), largest first.
std::vector<int64_t> parts(int64_t extent) {
  std::vector<int64_t> values;
  for (int64_t value = extent; value > 1; value = ceil_div(extent, ceil_div(extent, value - 1)))
    values.push_back(value);
  values.push_back(1);
  return values;
}

OperandPlan* plan_in(Schedule& schedule, Operand operand) {
  for (OperandPlan& plan : schedule.operands) {
    if (plan.operand == operand) return &plan;
  }
  return nullptr;
}

}  // namespace

std::vector<Level> hardware_loops(const Extents& tile) {
  std::vector<Level> levels;
  for (int d = 0; d < kDims; ++d) {
    const auto dim = static_cast<Dim>(d);
    if (tile[dim] > 1) levels.push_back({dim, tile[dim], LevelKind::kHwloop, 1});
  }
  return levels;
}

bool shares_rows(const Nest& nest) {
  return nest.extent[Dim::kKh] > 1 && (nest.extent[Dim::kKh] - 1) * nest.dilation_h >= nest.stride_h;
}

uint64_t Dice::next() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

uint64_t Dice::below(uint64_t bound) { return static_cast<uint64_t>(below_index(bound)); }

Index Dice::below_index(Index bound) {
  TESSERA_INVARIANT(bound > 0, "a number below zero");
  const Index limit = ~Index{0} - ~Index{0} % bound;  // a multiple of the bound
  for (;;) {
    const Index number = (Index{next()} << 64) | next();
    if (number < limit) return number % bound;
  }
}

Space::Space(const Nest& nest, const isa::MachineConfig& config)
    : nest_(nest),
      config_(config),
      intrinsics_(intrinsics_for(nest)),
      scopes_(input_scopes(nest, config).size()),
      strips_(may_strip(nest) ? kStrips.size() : 1) {
  for (int d = 0; d < kDims; ++d) {
    const int64_t extent = nest.extent[static_cast<Dim>(d)];
    extents_[static_cast<size_t>(d)] = parts(extent);
  }
  may_keep_ = shares_rows(nest);
  // An operand may be there in small tiles alone, or in large ones.
  std::array<bool, kOperands> there{};
  Extents split = nest.extent;
  split[Dim::kIc] = split[Dim::kKh] = split[Dim::kKw] = 1;
  for (const Intrinsic* intrinsic : intrinsics_) {
    for (const Extents& tile : {Extents{}, nest.extent, split}) {
      const PerOperand sizes = sizes_of(footprint(nest, *intrinsic, tile));
      for (size_t i = 0; i < sizes.size(); ++i) there[i] = there[i] || sizes[i] > 0;
    }
  }
  for (size_t i = 0; i < there.size(); ++i) {
    if (there[i]) operands_.push_back(static_cast<Operand>(i));
  }
  uint32_t cut = 0;
  for (uint32_t d = 0; d < kDims; ++d) cut |= extents_[d].size() > 1 ? 1u << d : 0u;
  for (uint32_t mask = 0; mask <= cut; ++mask) {
    if ((mask & ~cut) == 0) add_group(mask);
  }
  size_ *= intrinsics_.size() * strips_;
}

std::vector<int> Space::attachments(const std::vector<Dim>& loops, Operand operand) const {
  std::vector<int> result = {0};
  for (size_t i = 0; i < loops.size(); ++i) {
    if (indexes(nest_, operand, loops[i])) result.push_back(static_cast<int>(i) + 1);
  }
  return result;
}

Index Space::annotations_of(const Sketch& sketch) const {
  Index count = thread_choices(sketch.loops.size()) * scopes_ * (may_keep_ ? 2 : 1);
  if (sketch.doubled >= 0) count *= kCuts;
  for (const Operand operand : operands_) {
    count *= kSpare;
    if (fetched(nest_, operand)) count *= attachments(sketch.loops, operand).size();
  }
  return count;
}

void Space::add_group(uint32_t mask) {
  Group group;
  group.mask = mask;
  std::vector<Dim> outer, reductions;
  for (uint32_t d = 0; d < kDims; ++d) {
    if ((mask >> d & 1) == 0) continue;
    const auto dim = static_cast<Dim>(d);
    (is_reduction(dim) ? reductions : outer).push_back(dim);
    group.tiles *= extents_[d].size() - 1;
  }
  Index annotations = 0;
  const auto add_orders = [&](std::vector<Dim> loops, std::optional<Dim> twice) {
    std::sort(loops.begin(), loops.end());
    do {
      std::vector<Dim> inner = reductions;
      do {
        Sketch sketch;
        sketch.loops = loops;
        if (twice) sketch.doubled = static_cast<int>(std::find(loops.begin(), loops.end(), *twice) - loops.begin());
        sketch.loops.insert(sketch.loops.end(), inner.begin(), inner.end());
        sketch.annotations = annotations_of(sketch);
        annotations += sketch.annotations;
        group.sketches.push_back(std::move(sketch));
      } while (std::next_permutation(inner.begin(), inner.end()));
    } while (std::next_permutation(loops.begin(), loops.end()));
  };
  add_orders(outer, std::nullopt);
  for (const Dim dim : outer) {
    std::vector<Dim> loops = outer;
    loops.push_back(dim);
    add_orders(std::move(loops), dim);
  }
  group.size = group.tiles * annotations;
  size_ += group.size;
  groups_.push_back(std::move(group));
}

std::optional<Schedule> Space::legal(Schedule schedule) const {
  if (!obstacle(nest_, schedule, config_).empty()) return std::nullopt;
  return canonical(nest_, config_, std::move(schedule));
}

std::optional<Schedule> Space::at(Index number) const {
  TESSERA_INVARIANT(number < size_, "no point of the space");
  const int64_t strips = may_strip(nest_) ? kStrips[static_cast<size_t>(number % strips_)] : 0;
  number /= strips_;
  const Index each = size_ / strips_ / intrinsics_.size();
  const Intrinsic& intrinsic = *intrinsics_[static_cast<size_t>(number / each)];
  number %= each;
  for (const Group& group : groups_) {
    if (number >= group.size) {
      number -= group.size;
      continue;
    }
    const Index tile = number % group.tiles;
    number /= group.tiles;
    for (const Sketch& sketch : group.sketches) {
      if (number < sketch.annotations) {
        auto made = build(intrinsic, group, sketch, tile, number);
        if (made) made->strips = strips;
        return made;
      }
      number -= sketch.annotations;
    }
  }
  return std::nullopt;
}

std::optional<Schedule> Space::build(const Intrinsic& intrinsic, const Group& group, const Sketch& sketch, Index tile,
                                     Index annotation) const {
  const auto digit = [](Index& number, Index base) {
    const Index value = number % base;
    number /= base;
    return static_cast<int64_t>(value);
  };
  Extents extents = nest_.extent;
  for (uint32_t d = 0; d < kDims; ++d) {
    if ((group.mask >> d & 1) == 0) continue;
    const auto& values = extents_[d];
    extents.value[d] = values[1 + static_cast<size_t>(digit(tile, values.size() - 1))];
  }
  if (!encodable(nest_, intrinsic, extents)) return std::nullopt;
  const PerOperand sizes = sizes_of(footprint(nest_, intrinsic, extents));
  Schedule schedule;
  schedule.intrinsic = &intrinsic;
  schedule.input_layout = nest_.layout;
  for (size_t i = 0; i < sketch.loops.size(); ++i) {
    const Dim dim = sketch.loops[i];
    schedule.levels.push_back({dim, ceil_div(nest_.extent[dim], extents[dim]), LevelKind::kTemporal, 1});
  }
  if (sketch.doubled >= 0) {
    Level& outer = schedule.levels[static_cast<size_t>(sketch.doubled)];
    const int64_t tiles = outer.factor, cuts = 2 + digit(annotation, kCuts), inner = ceil_div(tiles, cuts);
    if (inner < 2 || ceil_div(tiles, inner) != cuts) return std::nullopt;
    outer.factor = cuts;
    for (size_t i = static_cast<size_t>(sketch.doubled) + 1; i < sketch.loops.size(); ++i) {
      if (sketch.loops[i] == outer.dim) schedule.levels[i].factor = inner;
    }
  }
  const size_t outer = schedule.levels.size();
  const std::vector<Level> inside = hardware_loops(extents);
  schedule.levels.insert(schedule.levels.end(), inside.begin(), inside.end());
  set_threads(schedule.levels, outer, static_cast<Index>(digit(annotation, thread_choices(outer))));
  const int64_t scope = digit(annotation, scopes_);
  const bool keep = may_keep_ && digit(annotation, 2) == 1;
  std::vector<int64_t> spare;
  for (const Operand operand : operands_) {
    OperandPlan plan;
    plan.operand = operand;
    if (fetched(nest_, operand)) {
      const std::vector<int> places = attachments(sketch.loops, operand);
      plan.attach = places[static_cast<size_t>(digit(annotation, places.size()))];
    }
    const int64_t more = digit(annotation, kSpare);
    if (sizes[static_cast<size_t>(operand)] == 0) {
      if (more > 0 || plan.attach > 0) return std::nullopt;
      continue;
    }
    if (operand == Operand::kInput && scopes_ > 1)
      plan.scope = input_scopes(nest_, config_)[static_cast<size_t>(scope)];
    if (operand == Operand::kInput && keep) plan.halo = Halo::kKeep;
    schedule.operands.push_back(plan);
    spare.push_back(more);
  }
  for (size_t i = 0; i < spare.size(); ++i) {
    OperandPlan& plan = schedule.operands[i];
    const int64_t kept = plan.attach == kDerived ? 1 : kept_tiles(nest_, schedule, plan.operand, plan.attach);
    if (kept > INT32_MAX - kSpare) return std::nullopt;
    plan.copies = static_cast<int>(kept + spare[i]);
  }
  return legal(std::move(schedule));
}

std::optional<Schedule> Space::sample(Dice& dice, int64_t tries) const {
  for (; tries > 0; --tries) {
    if (auto schedule = at(dice.below_index(size_))) return schedule;
  }
  return std::nullopt;
}

void Space::refit(Schedule& schedule, Dice& dice) const {
  const bool keep = schedule.keeps_rows();
  if (dice.chance(0.5)) {
    // The copies that the generator would give a tile of these loops.
    std::vector<Dim> dims;
    std::set<Dim> seen;
    bool twice = false;
    for (int i = 0; i < schedule.outer_levels(); ++i) {
      const Dim dim = schedule.levels[static_cast<size_t>(i)].dim;
      twice = twice || !seen.insert(dim).second;
      dims.push_back(dim);
    }
    if (!twice && !keep) {
      const auto scope =
          schedule.plan(Operand::kInput) != nullptr ? schedule.plan(Operand::kInput)->scope : std::nullopt;
      Schedule made = make_schedule(nest_, config_, schedule.tile(), dims, false, 0, schedule.intrinsic);
      if (OperandPlan* input = plan_in(made, Operand::kInput); input != nullptr) input->scope = scope;
      schedule = std::move(made);
      return;
    }
  }
  const PerOperand sizes = sizes_of(footprint(nest_, *schedule.intrinsic, schedule.tile(), schedule.window_rows()));
  PerOperand copies{};
  std::vector<OperandPlan> plans;
  for (const Operand operand : operands_) {
    if (sizes[static_cast<size_t>(operand)] == 0) continue;
    OperandPlan plan;
    plan.operand = operand;
    if (const OperandPlan* before = schedule.plan(operand); before != nullptr) {
      plan = *before;
      copies[static_cast<size_t>(operand)] = copies_of(nest_, schedule, operand);
    }
    plan.attach = kDerived;
    plan.copies = static_cast<int>(std::max<int64_t>(1, copies[static_cast<size_t>(operand)]));
    plans.push_back(plan);
  }
  schedule.operands = std::move(plans);
  // Where that is too much, fewer.
  for (int i = 0; i < 16 && !obstacle(nest_, schedule, config_).empty(); ++i) {
    OperandPlan& plan = schedule.operands[dice.below(schedule.operands.size())];
    if (plan.copies > 1) plan.copies = dice.chance(0.5) ? 1 : plan.copies - 1;
  }
}

void Space::change_tile(Schedule& schedule, Dice& dice) const {
  std::vector<Dim> dims;
  for (int d = 0; d < kDims; ++d) {
    if (extents_[static_cast<size_t>(d)].size() > 1) dims.push_back(static_cast<Dim>(d));
  }
  if (dims.empty()) return;
  const Dim dim = dims[dice.below(dims.size())];
  const auto& values = extents(dim);
  Extents tile = schedule.tile();
  auto at = static_cast<size_t>(std::find_if(values.begin(), values.end(), [&](int64_t v) { return v <= tile[dim]; }) -
                                values.begin());
  if (dice.chance(0.3))
    at = dice.below(values.size());
  else if (dice.chance(0.5))
    at = at == 0 ? 1 : at - 1;
  else
    at = std::min(at + 1, values.size() - 1);
  tile[dim] = values[at];
  std::vector<Level> outer;
  int64_t trips = ceil_div(nest_.extent[dim], tile[dim]);
  int last = -1;
  for (int i = 0; i < schedule.outer_levels(); ++i) {
    if (schedule.levels[static_cast<size_t>(i)].dim == dim) last = i;
  }
  for (int i = 0; i < schedule.outer_levels(); ++i) {
    Level level = schedule.levels[static_cast<size_t>(i)];
    if (level.dim == dim) {
      level.factor = i == last ? trips : std::min(level.factor, trips);
      trips = ceil_div(trips, level.factor);
      if (level.factor < 2) continue;
      if (level.kind == LevelKind::kVthread) level.threads = std::min(level.threads, level.factor);
    }
    outer.push_back(level);
  }
  if (last < 0 && trips > 1) {
    // Reductions stand innermost.
    const auto behind = std::find_if(outer.begin(), outer.end(), [](const Level& l) { return is_reduction(l.dim); });
    const auto free = static_cast<size_t>(behind - outer.begin());
    const size_t place = is_reduction(dim) ? free + dice.below(outer.size() - free + 1) : dice.below(free + 1);
    outer.insert(outer.begin() + static_cast<int64_t>(place), {dim, trips, LevelKind::kTemporal, 1});
  }
  const std::vector<Level> inside = hardware_loops(tile);
  outer.insert(outer.end(), inside.begin(), inside.end());
  schedule.levels = std::move(outer);
  refit(schedule, dice);
}

void Space::change_loops(Schedule& schedule, Dice& dice) const {
  const auto outer = static_cast<size_t>(schedule.outer_levels());
  if (outer == 0) return;
  auto& levels = schedule.levels;
  const auto at = static_cast<size_t>(dice.below(outer));
  const auto begin = levels.begin();
  const size_t same = static_cast<size_t>(std::count_if(begin, begin + static_cast<int64_t>(outer),
                                                        [&](const Level& l) { return l.dim == levels[at].dim; }));
  const uint64_t what = dice.below(3);
  if (what == 0 && same == 1 && levels[at].factor > 2 && !is_reduction(levels[at].dim)) {
    // One loop becomes two.
    const int64_t cuts = 2 + static_cast<int64_t>(dice.below(kCuts));
    const int64_t inner = ceil_div(levels[at].factor, cuts);
    if (inner < 2) return;
    Level level{levels[at].dim, ceil_div(levels[at].factor, inner), LevelKind::kTemporal, 1};
    levels[at].factor = inner;
    levels[at].threads = std::min(levels[at].threads, inner);
    levels.insert(begin + static_cast<int64_t>(dice.below(at + 1)), level);
    if (OperandPlan* input = plan_in(schedule, Operand::kInput); input != nullptr && may_keep_ && dice.chance(0.3))
      input->halo = Halo::kKeep;
  } else if (what == 1 && same == 2) {
    // Two become one, where the inner one stands.
    const Dim dim = levels[at].dim;
    const Extents tile = schedule.tile();
    size_t first = 0;
    while (levels[first].dim != dim) ++first;
    levels.erase(begin + static_cast<int64_t>(first));
    for (Level& level : levels) {
      if (level.dim == dim && level.outer()) level.factor = ceil_div(nest_.extent[dim], tile[dim]);
    }
  } else {
    const auto other = static_cast<size_t>(dice.below(outer));
    std::swap(levels[at], levels[other]);
  }
  refit(schedule, dice);
}

void Space::change_threads(Schedule& schedule, Dice& dice) {
  const int outer = schedule.outer_levels();
  if (outer == 0) return;
  Level& level = schedule.levels[dice.below(static_cast<uint64_t>(outer))];
  level.threads = 1 + static_cast<int64_t>(dice.below(static_cast<uint64_t>(std::min(kMostThreads, level.factor))));
  level.kind = level.threads > 1 ? LevelKind::kVthread : LevelKind::kTemporal;
}

void Space::change_operand(Schedule& schedule, Dice& dice) const {
  if (schedule.operands.empty()) return;
  std::vector<Dim> loops;
  for (int i = 0; i < schedule.outer_levels(); ++i) loops.push_back(schedule.levels[static_cast<size_t>(i)].dim);
  OperandPlan& plan = schedule.operands[dice.below(schedule.operands.size())];
  const int64_t before = copies_of(nest_, schedule, plan.operand);
  if (plan.operand == Operand::kInput && dice.chance(0.4)) {
    if (scopes_ > 1 && dice.chance(0.5))
      plan.scope = input_scopes(nest_, config_)[dice.below(scopes_)];
    else if (may_keep_)
      plan.halo = plan.halo == Halo::kKeep ? Halo::kReload : Halo::kKeep;
    plan.attach = kDerived;
    plan.copies = static_cast<int>(before);
    return;
  }
  int64_t kept = 1;
  if (fetched(nest_, plan.operand)) {
    const std::vector<int> places = attachments(loops, plan.operand);
    plan.attach = dice.chance(0.5) ? attach_of(nest_, schedule, plan.operand) : places[dice.below(places.size())];
    kept = kept_tiles(nest_, schedule, plan.operand, plan.attach);
    if (kept > INT32_MAX - kSpare) return;
  }
  plan.copies = static_cast<int>(kept + static_cast<int64_t>(dice.below(kSpare)));
}

Schedule Space::mutate(const Schedule& schedule, Dice& dice) const {
  for (int i = 0; i < kTries; ++i) {
    Schedule next = canonical(nest_, config_, schedule);
    if (intrinsics_.size() > 1 && dice.chance(0.1)) next.intrinsic = intrinsics_[dice.below(intrinsics_.size())];
    do {
      switch (dice.below(may_strip(nest_) ? 7 : 6)) {
        case 0:
        case 1: change_tile(next, dice); break;
        case 2: change_loops(next, dice); break;
        case 3: change_threads(next, dice); break;
        case 6: next.strips = kStrips[dice.below(kStrips.size())]; break;
        default: change_operand(next, dice); break;
      }
    } while (dice.chance(0.3));
    if (auto made = legal(std::move(next)); made && !(*made == schedule)) return *made;
  }
  return schedule;
}

Schedule Space::cross(const Schedule& a, const Schedule& b, Dice& dice) const {
  const Extents tile_a = a.tile(), tile_b = b.tile();
  for (int i = 0; i < kTries; ++i) {
    Extents tile;
    for (size_t d = 0; d < kDims; ++d) tile.value[d] = dice.chance(0.5) ? tile_a.value[d] : tile_b.value[d];
    const Schedule &order = dice.chance(0.5) ? a : b, &copies = dice.chance(0.5) ? a : b;
    Schedule next;
    next.intrinsic = dice.chance(0.5) ? a.intrinsic : b.intrinsic;
    next.input_layout = a.input_layout;
    next.strips = copies.strips;
    uint32_t placed = 0;
    const auto place = [&](const Level& level) {
      const auto bit = 1u << static_cast<uint32_t>(level.dim);
      const int64_t factor = ceil_div(nest_.extent[level.dim], tile[level.dim]);
      if ((placed & bit) != 0 || factor < 2) return;
      placed |= bit;
      Level made{level.dim, factor, level.kind, std::min(level.threads, factor)};
      if (made.threads < 2) made.kind = LevelKind::kTemporal;
      next.levels.push_back(made);
    };
    for (const Schedule* from : {&order, &a, &b}) {
      for (int k = 0; k < from->outer_levels(); ++k) place(from->levels[static_cast<size_t>(k)]);
    }
    std::stable_partition(next.levels.begin(), next.levels.end(), [](const Level& l) { return !is_reduction(l.dim); });
    const std::vector<Level> inside = hardware_loops(tile);
    next.levels.insert(next.levels.end(), inside.begin(), inside.end());
    next.operands = copies.operands;
    for (OperandPlan& plan : next.operands) {
      plan.copies = static_cast<int>(copies_of(nest_, copies, plan.operand));
      plan.attach = kDerived;
      plan.halo = Halo::kReload;
    }
    if (!encodable(nest_, *next.intrinsic, tile)) continue;
    refit(next, dice);
    if (auto made = legal(std::move(next)); made && !(*made == a)) return *made;
  }
  return a;
}

ChainSpace::ChainSpace(const std::vector<const Nest*>& nests) {
  const Nest& tail = *nests.back();
  values_ = {parts(tail.extent[Dim::kOh]), parts(tail.extent[Dim::kOw]), parts(middle_blocks(nests))};
  for (auto& values : values_) std::reverse(values.begin(), values.end());
  if (takes_all_channels(nests)) values_[2] = {middle_blocks(nests)};
  may_hold_ = may_hold_input(nests, {});
  may_keep_ = may_keep_rows(nests);
}

Index ChainSpace::size() const {
  const size_t blocks = values_[2].size();
  return Index{values_[0].size()} * values_[1].size() * (blocks + (may_hold_ ? blocks - 1 : 0)) * kStrips.size() *
         kChainCopies.size() * (may_keep_ ? 2 : 1);
}

ChainTile ChainSpace::at(Index number) const {
  ChainTile tile;
  tile.strips = kStrips[static_cast<size_t>(number % kStrips.size())];
  number /= kStrips.size();
  tile.copies = kChainCopies[static_cast<size_t>(number % kChainCopies.size())];
  number /= kChainCopies.size();
  if (may_keep_) {
    tile.keeps_rows = number % 2 == 1;
    number /= 2;
  }
  tile.oh = values_[0][static_cast<size_t>(number % values_[0].size())];
  number /= values_[0].size();
  tile.ow = values_[1][static_cast<size_t>(number % values_[1].size())];
  number /= values_[1].size();
  tile.whole_input = number >= values_[2].size();
  tile.blocks = values_[2][static_cast<size_t>(number % values_[2].size())];
  return tile;
}

ChainTile ChainSpace::mutate(ChainTile tile, Dice& dice) const {
  const std::array<int64_t*, 3> fields = {&tile.oh, &tile.ow, &tile.blocks};
  do {
    const auto which = static_cast<size_t>(dice.below(3));
    const auto& values = values_[which];
    auto at = static_cast<int64_t>(std::lower_bound(values.begin(), values.end(), *fields[which]) - values.begin());
    at += static_cast<int64_t>(dice.below(5)) - 2;
    if (dice.chance(0.2)) at = static_cast<int64_t>(dice.below(values.size()));
    *fields[which] = values[static_cast<size_t>(std::clamp<int64_t>(at, 0, static_cast<int64_t>(values.size()) - 1))];
    if (may_hold_ && dice.chance(0.15)) tile.whole_input = !tile.whole_input;
    if (may_keep_ && dice.chance(0.2)) tile.keeps_rows = !tile.keeps_rows;
    if (dice.chance(0.2)) tile.strips = kStrips[dice.below(kStrips.size())];
    if (dice.chance(0.2)) tile.copies = kChainCopies[dice.below(kChainCopies.size())];
  } while (dice.chance(0.4));
  if (tile.blocks == values_[2].back()) tile.whole_input = false;
  if (tile.oh == values_[0].back()) tile.keeps_rows = false;
  return tile;
}

ChainTile ChainSpace::cross(const ChainTile& a, const ChainTile& b, Dice& dice) {
  const ChainTile& of = dice.chance(0.5) ? a : b;
  return {dice.chance(0.5) ? a.oh : b.oh,
          dice.chance(0.5) ? a.ow : b.ow,
          of.blocks,
          of.whole_input,
          dice.chance(0.5) ? a.strips : b.strips,
          dice.chance(0.5) ? a.keeps_rows : b.keeps_rows,
          dice.chance(0.5) ? a.copies : b.copies};
}

}  // namespace tessera::schedule
