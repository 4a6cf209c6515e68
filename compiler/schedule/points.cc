// SPDX-License-Identifier: Apache-2.0
#include "compiler/schedule/points.h"

#include <algorithm>

#include "compiler/schedule/counts.h"
#include "compiler/schedule/space.h"

namespace tessera::schedule {

TilePoints::TilePoints(const Nest& nest, const isa::MachineConfig& config, const Intrinsic& intrinsic,
                       const Extents& tile)
    : nest_(nest),
      config_(config),
      intrinsic_(intrinsic),
      tile_(tile),
      sizes_(sizes_of(footprint(nest, intrinsic, tile))) {}

std::vector<Operand> TilePoints::operands() const {
  std::vector<Operand> result;
  for (size_t i = 0; i < sizes_.size(); ++i) {
    if (sizes_[i] > 0) result.push_back(static_cast<Operand>(i));
  }
  return result;
}

std::vector<int64_t> TilePoints::strips() const {
  return may_strip(nest_) ? std::vector<int64_t>(kStrips.begin(), kStrips.end()) : std::vector<int64_t>{0};
}

std::vector<Schedule> TilePoints::loops() const {
  std::vector<Schedule> result;
  if (!encodable(nest_, intrinsic_, tile_)) return result;
  std::vector<Dim> outer, reductions;
  for (int d = 0; d < kDims; ++d) {
    const auto dim = static_cast<Dim>(d);
    if (tile_[dim] < nest_.extent[dim]) (is_reduction(dim) ? reductions : outer).push_back(dim);
  }
  add_orders(outer, reductions, std::nullopt, result);
  for (const Dim dim : outer) add_orders(outer, reductions, dim, result);
  return result;
}

void TilePoints::add_orders(std::vector<Dim> outer, const std::vector<Dim>& reductions, std::optional<Dim> twice,
                            std::vector<Schedule>& to) const {
  const auto trips = [&](Dim dim) { return ceil_div(nest_.extent[dim], tile_[dim]); };
  const auto add_cuts = [&](std::vector<Level> levels) {
    if (!twice) return add_threads(levels, to);
    const auto same = [&](const Level& level) { return level.dim == *twice; };
    const auto first = std::find_if(levels.begin(), levels.end(), same),
               second = std::find_if(first + 1, levels.end(), same);
    for (int64_t cuts = 2; cuts < 2 + kCuts; ++cuts) {
      const int64_t rest = ceil_div(trips(*twice), cuts);
      if (rest < 2 || ceil_div(trips(*twice), rest) != cuts) continue;
      first->factor = cuts;
      second->factor = rest;
      add_threads(levels, to);
    }
  };
  if (twice) outer.push_back(*twice);
  std::sort(outer.begin(), outer.end());
  do {
    std::vector<Dim> inner = reductions;
    do {
      std::vector<Level> levels;
      for (const std::vector<Dim>& dims : {outer, inner}) {
        for (const Dim dim : dims) levels.push_back({dim, trips(dim), LevelKind::kTemporal, 1});
      }
      add_cuts(std::move(levels));
    } while (std::next_permutation(inner.begin(), inner.end()));
  } while (std::next_permutation(outer.begin(), outer.end()));
}

void TilePoints::add_threads(const std::vector<Level>& levels, std::vector<Schedule>& to) const {
  Schedule made;
  made.intrinsic = &intrinsic_;
  made.input_layout = nest_.layout;
  made.levels = levels;
  const std::vector<Level> inside = hardware_loops(tile_);
  made.levels.insert(made.levels.end(), inside.begin(), inside.end());
  const auto with = [&](size_t level, auto&& go_on) {
    Level& of = made.levels[level];
    of.kind = LevelKind::kVthread;
    for (of.threads = 2; of.threads <= std::min(kMostThreads, of.factor); ++of.threads) go_on();
    of.kind = LevelKind::kTemporal;
    of.threads = 1;
  };
  to.push_back(made);
  for (size_t i = 0; i < levels.size(); ++i) {
    with(i, [&] {
      to.push_back(made);
      for (size_t k = i + 1; k < levels.size(); ++k) with(k, [&] { to.push_back(made); });
    });
  }
}

std::vector<OperandPlan> TilePoints::plans(const Schedule& loops, Operand operand) const {
  std::vector<std::optional<isa::Space>> scopes = {std::nullopt};
  std::vector<Halo> halos = {Halo::kReload};
  if (operand == Operand::kInput) {
    if (const auto places = input_scopes(nest_, config_); places.size() > 1)
      scopes.assign(places.begin(), places.end());
    if (shares_rows(nest_)) halos.push_back(Halo::kKeep);
  }
  std::vector<int> attaches = {kDerived};
  if (fetched(nest_, operand)) {
    attaches = {0};
    for (int i = 0; i < loops.outer_levels(); ++i) {
      if (indexes(nest_, operand, loops.levels[static_cast<size_t>(i)].dim)) attaches.push_back(i + 1);
    }
  }
  std::vector<OperandPlan> result;
  Schedule made = loops;
  made.operands.resize(1);
  OperandPlan& plan = made.operands.front();
  plan.operand = operand;
  for (const auto& scope : scopes) {
    for (const Halo halo : halos) {
      for (const int attach : attaches) {
        plan.scope = scope;
        plan.halo = halo;
        plan.attach = attach;
        const int64_t kept = attach == kDerived ? 1 : kept_tiles(nest_, made, operand, attach);
        if (kept > INT32_MAX - kSpare) continue;
        const auto add = [&](int64_t copies) {
          plan.copies = static_cast<int>(copies);
          if (plan_obstacle(nest_, made, plan, config_).empty()) result.push_back(plan);
        };
        for (int64_t spare = 0; spare < kSpare; ++spare) add(kept + spare);
        const int64_t threads = derived_copies(nest_, made, operand, attach_of(nest_, made, operand));
        if (threads >= kept + kSpare && threads <= INT32_MAX) add(threads);
      }
    }
  }
  return result;
}

}  // namespace tessera::schedule
