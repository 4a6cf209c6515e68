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

Planner::Recut Planner::other_covers(const std::vector<Place>& cut, size_t first, size_t count, size_t hands) {
  const std::vector<Place> own(cut.begin() + static_cast<std::ptrdiff_t>(first),
                               cut.begin() + static_cast<std::ptrdiff_t>(first + count));
  const auto alone = [&](const std::vector<Place>& cover) {
    double sum = 0;
    for (const Place& place : cover) sum += offered_.at(place).score;
    return sum;
  };
  Recut result;
  result.alone = alone(own);
  const double most = std::min(kHopeless * result.alone, result.alone + border_);
  result.covers = covers(own.front().first, own.back().first + own.back().second);
  std::erase_if(result.covers, [&](const auto& cover) { return cover == own || alone(cover) > most; });
  std::stable_sort(result.covers.begin(), result.covers.end(),
                   [&](const auto& a, const auto& b) { return alone(a) < alone(b); });
  if (result.covers.empty()) return result;
  Begun begun;
  if (first > 0) begun.units.push_back(&offered_.at(cut[first - 1]));
  const auto cost = [&](const std::vector<Place>& cover) {
    std::vector<const Unit*> stream = begun.units;
    for (const Place& place : cover) stream.push_back(&offered_.at(place));
    for (size_t k = first + count; k < std::min(cut.size(), first + count + kBehind); ++k)
      stream.push_back(&offered_.at(cut[k]));
    return cost_of(stream, &begun);
  };
  result.costs.resize(result.covers.size());
  std::atomic<int64_t> ended = 0;
  at_once(hands, result.covers.size() + 1, [&](size_t k, size_t) {
    if (k == 0) {
      result.own = cost(own);
    } else if (ended <= kReplayed) {
      result.costs[k - 1] = cost(result.covers[k - 1]);
      ended += result.costs[k - 1] ? result.costs[k - 1]->instructions : 0;
    }
  });
  return result;
}

bool Planner::recut_at(std::vector<Place>& cut, size_t first, size_t count) {
  const Recut others = other_covers(cut, first, count, hands_.size());
  if (!others.own) return false;  // the judge looks at no streams, or there is no other cover
  double least = goal_.score(*others.own, config_) - kWorth * others.alone;
  int64_t replayed = 0;
  const std::vector<Place>* best = nullptr;
  for (size_t k = 0; k < others.covers.size() && replayed <= kReplayed; ++k) {
    const Cost& other = others.costs[k].value();
    replayed += other.instructions;
    if (other.cycles > others.own->cycles || goal_.score(other, config_) >= least) continue;
    least = goal_.score(other, config_);
    best = &others.covers[k];
  }
  if (best == nullptr) return false;
  const auto begin = cut.begin() + static_cast<std::ptrdiff_t>(first);
  cut.insert(cut.erase(begin, begin + static_cast<std::ptrdiff_t>(count)), best->begin(), best->end());
  return true;
}

void Planner::recut(std::vector<Unit>& units) {
  std::vector<Place> cut;
  for (Unit& unit : units) {
    cut.emplace_back(unit.first, unit.count);
    offered_.emplace(cut.back(), std::move(unit));
  }
  const auto may_change = [&](size_t u, size_t width) {
    return u + width <= cut.size() &&
           cut[u + width - 1].first + cut[u + width - 1].second - cut[u].first <= kOperations;
  };
  if (hands_.size() > 1) {  // what is asked below if nothing changes, on all hands
    std::vector<std::pair<size_t, size_t>> ahead;
    for (size_t u = 0; u < cut.size(); ++u) {
      for (size_t width = 1; width <= kUnits && may_change(u, width); ++width) ahead.emplace_back(u, width);
    }
    at_once(hands_.size(), ahead.size(),
            [&](size_t k, size_t) { other_covers(cut, ahead[k].first, ahead[k].second, 1); });
  }
  size_t changes = 0;
  for (size_t u = 0; u < cut.size() && changes <= kMostChanges * graph_.operations.size(); ++u) {
    for (size_t width = 1; width <= kUnits && may_change(u, width); ++width) {
      if (!recut_at(cut, u, width)) continue;
      width = 0;  // there are other units now
      if (++changes > kMostChanges * graph_.operations.size()) break;
    }
  }
  units.clear();
  for (const Place& place : cut) units.push_back(std::move(offered_.extract(place).mapped()));
}

}  // namespace tessera::npu
