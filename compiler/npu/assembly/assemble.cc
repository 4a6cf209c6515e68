// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/assembly/assemble.h"

#include <array>
#include <optional>
#include <set>
#include <vector>

#include "compiler/emit/predict.h"
#include "compiler/npu/assembly/at_once.h"

namespace tessera::npu {

namespace {

constexpr int64_t kGlanced = 300;  // instructions from which on one glance tells streams apart

/// The ways to keep on the chip what a finished stream writes and reads again: with all copies, and with those LOADs
/// that became copies and stayed ones.
class Ways {
 public:
  Ways(const Emitter& lowered, const ArenaBytes& results, const Options& options)
      : lowered_(lowered), results_(results), options_(options) {}

  /// The way that is asked for by an option, unjudged.
  Emitter last() {
    const std::set<size_t> copies = forward(0, {});
    const bool again = !copies.empty() && options_.forward != Forward::kAlways;
    if (again) forward(1, copies);
    return std::move(*ways_[again ? 1 : 0]);
  }

  /// The finished stream with the fewest cycles, that without any copy among them.
  Emitter fastest(const Emitter::Judge& judge, bool prefetch) {
    Emitter unchanged = lowered_;
    std::array<int64_t, 3> cycles{};
    // Of a long stream the best way alone is then judged in all ways to place fetches.
    const bool glances = lowered_.pushed() > kGlanced;
    const auto cycles_of = [&](Emitter& way) {
      return glances ? way.glance(prefetch, judge) : way.assemble(prefetch, judge);
    };
    at_once(kAtOnce, 2, [&](size_t which, size_t) {
      if (which == 1) {
        cycles[2] = cycles_of(unchanged);
        return;
      }
      const std::set<size_t> copies = forward(0, {});
      if (!ways_[0]) return;
      at_once(kAtOnce, copies.empty() ? 1 : 2, [&](size_t way, size_t) {
        if (way == 1) forward(1, copies);
        if (ways_[way]) cycles[way] = cycles_of(*ways_[way]);
      });
    });
    // Of equal ones the last, which is the least changed.
    size_t best = 2;
    for (const size_t way : {size_t{1}, size_t{0}}) {
      if (ways_[way] && cycles[way] < cycles[best]) best = way;
    }
    Emitter& chosen = best == 2 ? unchanged : *ways_[best];
    if (glances) chosen.assemble(prefetch, judge);
    return std::move(chosen);
  }

 private:
  /// Makes a way; the copies that took the places of LOADs other than `loads`.
  std::set<size_t> forward(size_t way, const std::set<size_t>& loads) {
    if (!pointed_) pointed_ = lowered_.pointed(results_);
    Emitter other = lowered_;
    const Forwarded done = other.forward(*pointed_, results_, loads);
    if (done.changed || options_.forward != Forward::kIfFaster) ways_[way].emplace(std::move(other));
    return done.copies;
  }

  const Emitter& lowered_;
  const ArenaBytes& results_;
  const Options& options_;
  std::optional<Pointed> pointed_;
  std::array<std::optional<Emitter>, 2> ways_;
};

}  // namespace

ArenaBytes results_of(const Graph& graph, const std::vector<Placement>& placements) {
  ArenaBytes results;
  for (const TensorId output : graph.outputs) {
    const Placement& place = placements[static_cast<size_t>(root_of(graph, output))];
    if (place.base == kArenaBase) results.emplace_back(place.region_offset, place.region_offset + place.region_bytes);
  }
  return results;
}

emit::SynchroniseOptions order_of(const MemoryPlan& plan, const Options& options) {
  emit::SynchroniseOptions order;
  for (const int64_t pitch : plan.slides) order.slides.push_back(pitch * options.room);
  return order;
}

Emitter assembled(Emitter lowered, const ArenaBytes& results, const emit::SynchroniseOptions& order,
                  const Options& options, bool judged) {
  const isa::MachineConfig& config = lowered.config;
  const Emitter::Judge judge = [&](std::span<const emit::Work* const> works, std::span<const uint32_t> tags,
                                   size_t count) {
    heed_stop(options);
    return emit::predict(emit::in_order(works, tags, config, order), count, config,
                         {options.dram_latency_cycles, options.dram_bandwidth_bytes, options.dram_cost});
  };
  const bool prefetch = options.prefetch_weights && options.virtual_threads;
  if (!judged || options.forward == Forward::kNever) {
    lowered.assemble(prefetch, judged ? judge : Emitter::Judge());
    return lowered;
  }
  Ways ways(lowered, results, options);
  if (options.forward == Forward::kIfFaster) return ways.fastest(judge, prefetch);
  Emitter last = ways.last();
  last.assemble(prefetch, judge);
  return last;
}

}  // namespace tessera::npu
