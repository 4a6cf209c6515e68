// SPDX-License-Identifier: Apache-2.0
// Ways of all cores enter the prediction together: the best for each core alone, one for all, and changes of one core.
#include "compiler/npu/cores/cores_refine.h"

#include <algorithm>
#include <array>

namespace tessera::npu {

namespace {

/// Instructions of a core up to which their order is looked at, and the ways to choose among those that are next.
constexpr size_t kInterleaved = 30'000;
constexpr std::array<Choices, 9> kChoices = {
    {{4, 1, 1}, {16, 1, 1}, {4, 4, 1}, {16, 8, 1}, {16, 8, 4}, {16, 16, 16}, {4, 8, 8}, {4, 16, 1}, {16, 16, 4, 400}}};
constexpr size_t kAsItWas = kChoices.size();
constexpr int64_t kWorth = 100;  // cycles that have to go, as the prediction tells no single waits
constexpr size_t kBest = 3;      // ways for all cores alike that are tried for each core

class Refining {
 public:
  Refining(std::vector<CoreCode>& codes, const AwaitsOf& awaits, const Alone& alone, const Together& together)
      : codes_(codes), awaits_(awaits), alone_(alone), together_(together), choices_(codes.size(), kAsItWas) {}

  void run() {
    for (const CoreCode& code : codes_)
      if (code.instructions.size() > kInterleaved) return;
    const std::optional<int64_t> before = together_(codes_);
    if (!before) return;
    least_ = *before;
    best_ = codes_;
    find_ways();
    std::vector<CoreCode> own;
    for (size_t core = 0; core < codes_.size(); ++core) own.push_back(way_of(core, choices_[core]));
    if (!better(std::move(own))) choices_.assign(codes_.size(), kAsItWas);
    std::vector<std::pair<int64_t, size_t>> alike = {{*before, kAsItWas}};
    for (size_t way = 0; way < ways_.size(); ++way) {
      const std::optional<int64_t> cycles = together_(ways_[way]);
      if (cycles) alike.emplace_back(*cycles, way);
      if (cycles && take(*cycles, ways_[way])) choices_.assign(codes_.size(), way);
    }
    std::sort(alike.begin(), alike.end());
    alike.resize(std::min(alike.size(), kBest));
    for (size_t core = 0; core < codes_.size(); ++core) {
      for (const auto& [cycles, way] : alike) {
        if (choices_[core] == way) continue;
        std::vector<CoreCode> other = best_;
        other[core] = way_of(core, way);
        if (better(std::move(other))) choices_[core] = way;
      }
    }
    codes_ = std::move(best_);
  }

 private:
  static void sort(CoreCode& code, const std::vector<uint32_t>& places) {
    const auto sorted = [&](auto& values) {
      const auto before = values;
      for (size_t i = 0; i < places.size(); ++i) values[i] = before[places[i]];
    };
    sorted(code.instructions);
    sorted(code.tags);
    sorted(code.layers);
    sorted(code.works);
  }

  const CoreCode& way_of(size_t core, size_t way) const { return way == kAsItWas ? codes_[core] : ways_[way][core]; }

  /// Each core's stream in all ways, and the best for it alone.
  void find_ways() {
    ways_.resize(kChoices.size());
    for (size_t core = 0; core < codes_.size(); ++core) {
      const auto orders = interleaved(codes_[core].works, awaits_(codes_[core]), kChoices);
      int64_t least = alone_(codes_[core]);
      for (size_t way = 0; way < kChoices.size(); ++way) {
        ways_[way].push_back(codes_[core]);
        sort(ways_[way].back(), orders[way]);
        const int64_t cycles = alone_(ways_[way].back());
        if (cycles >= least) continue;
        least = cycles;
        choices_[core] = way;
      }
    }
  }

  bool better(std::vector<CoreCode> other) {
    const std::optional<int64_t> cycles = together_(other);
    return cycles && take(*cycles, std::move(other));
  }

  bool take(int64_t cycles, std::vector<CoreCode> other) {
    if (cycles + kWorth > least_) return false;
    least_ = cycles;
    best_ = std::move(other);
    return true;
  }

  std::vector<CoreCode>& codes_;
  const AwaitsOf& awaits_;
  const Alone& alone_;
  const Together& together_;
  std::vector<size_t> choices_;  // by core
  std::vector<CoreCode> best_;
  std::vector<std::vector<CoreCode>> ways_;  // by way and core
  int64_t least_ = 0;
};

}  // namespace

void refine(std::vector<CoreCode>& codes, const AwaitsOf& awaits, const Alone& alone, const Together& together) {
  Refining(codes, awaits, alone, together).run();
}

}  // namespace tessera::npu
