// SPDX-License-Identifier: Apache-2.0
// The second look at a cut. The first one adds scores of units that were judged alone; here a few units next to each
// other are replayed between their neighbours, beside the other ways to cut the same operations.
#include <algorithm>
#include <atomic>

#include "compiler/npu/assembly/at_once.h"
#include "compiler/npu/planning/planner.h"

namespace tessera::npu {

using schedule::Cost;

namespace {

/// Units that are cut anew together, operations that they may have, and units behind them that are replayed too.
constexpr size_t kUnits = 3, kOperations = 6, kBehind = 2;
/// A cut whose score alone is so many times the present one's is not looked at.
constexpr double kHopeless = 1.1;
/// Changes of one graph, for each operation. Each lowers a score; this only bounds the time.
constexpr size_t kMostChanges = 4;

}  // namespace

std::vector<std::vector<Planner::Place>> Planner::covers(size_t first, size_t end) const {
  if (first == end) return {{}};
  std::vector<std::vector<Place>> result;
  for (size_t count = 1; first + count <= end; ++count) {
    if (!offered_.contains({first, count})) continue;
    for (std::vector<Place>& rest : covers(first + count, end)) {
      rest.insert(rest.begin(), {first, count});
      result.push_back(std::move(rest));
    }
  }
  return result;
}

bool Planner::recut_at(std::vector<Unit>& units, size_t first, size_t count) {
  const auto begin = units.begin() + static_cast<std::ptrdiff_t>(first),
             end = begin + static_cast<std::ptrdiff_t>(count);
  // Units in use may stand in other covers, too.
  std::vector<Place> own;
  for (auto unit = begin; unit != end; ++unit) {
    own.emplace_back(unit->first, unit->count);
    offered_.emplace(own.back(), std::move(*unit));
  }
  const auto cost = [&](const std::vector<Place>& cover) {
    std::vector<const Unit*> stream;
    if (first > 0) stream.push_back(&units[first - 1]);
    for (const Place& place : cover) stream.push_back(&offered_.at(place));
    for (size_t k = first + count; k < std::min(units.size(), first + count + kBehind); ++k)
      stream.push_back(&units[k]);
    return cost_of(stream);
  };
  const auto alone = [&](const std::vector<Place>& cover) {
    double sum = 0;
    for (const Place& place : cover) sum += offered_.at(place).score;
    return sum;
  };
  const double sum = alone(own), most = std::min(kHopeless * sum, sum + kBorder);
  std::vector<std::vector<Place>> all = covers(own.front().first, own.back().first + own.back().second);
  std::erase_if(all, [&](const auto& cover) { return cover == own || alone(cover) > most; });
  std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return alone(a) < alone(b); });
  std::vector<Place> best = own;
  // Nothing where the judge looks at no streams, and of those that are beyond what may be replayed.
  std::optional<Cost> known;
  std::vector<std::optional<Cost>> costs(all.size());
  std::atomic<int64_t> ended = 0;
  at_once(hands_.size(), all.empty() ? 0 : all.size() + 1, [&](size_t k, size_t) {
    if (k == 0) {
      known = cost(own);
    } else if (ended <= kReplayed) {
      costs[k - 1] = cost(all[k - 1]);
      ended += costs[k - 1] ? costs[k - 1]->instructions : 0;
    }
  });
  double least = known ? goal_.score(*known, config_) - kWorth * sum : 0;
  int64_t replayed = 0;
  for (size_t k = 0; k < all.size(); ++k) {
    if (!known || replayed > kReplayed) break;
    const Cost& other = costs[k].value();
    replayed += other.instructions;
    if (other.cycles > known->cycles || goal_.score(other, config_) >= least) continue;
    least = goal_.score(other, config_);
    best = all[k];
  }
  std::vector<Unit> chosen;
  for (const Place& place : best) chosen.push_back(std::move(offered_.extract(place).mapped()));
  units.insert(units.erase(begin, end), std::make_move_iterator(chosen.begin()), std::make_move_iterator(chosen.end()));
  return best != own;
}

void Planner::recut(std::vector<Unit>& units) {
  size_t changes = 0;
  for (size_t u = 0; u < units.size(); ++u) {
    for (size_t width = 1; width <= kUnits && u + width <= units.size(); ++width) {
      const Unit& last = units[u + width - 1];
      if (last.first + last.count - units[u].first > kOperations) break;
      if (!recut_at(units, u, width)) continue;
      width = 0;  // there are other units now
      if (++changes > kMostChanges * graph_.operations.size()) return;
    }
  }
}

}  // namespace tessera::npu
