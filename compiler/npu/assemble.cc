// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/assemble.h"

#include <algorithm>
#include <set>
#include <vector>

#include "compiler/emit/predict.h"
#include "compiler/npu/at_once.h"

namespace tessera::npu {

namespace {

constexpr int64_t kWorthAsking = 500;  // instructions of which one has to go

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
                  const Options& options, bool judged, bool thorough) {
  const isa::MachineConfig& config = lowered.config;
  const Emitter::Judge judge = [&](std::span<const emit::Work* const> works, std::span<const uint32_t> tags,
                                   size_t count) {
    heed_stop(options);
    return emit::predict(emit::in_order(works, tags, config, order), count, config,
                         {options.dram_latency_cycles, options.dram_bandwidth_bytes, options.dram_cost});
  };
  const bool prefetch = options.prefetch_weights && options.virtual_threads;
  if (options.forward == Forward::kNever || !judged) {
    lowered.assemble(prefetch, judged ? judge : Emitter::Judge(), thorough);
    return lowered;
  }
  std::vector<Emitter> ways;
  const auto add = [&](const std::set<size_t>& loads) {
    Emitter way = lowered;
    std::set<size_t> copies = way.forward(results, loads).copies;
    const bool worth = (lowered.pushed() - way.pushed()) * kWorthAsking >= lowered.pushed();
    if (worth || options.forward != Forward::kIfFaster) ways.push_back(std::move(way));
    return copies;
  };
  const auto forward = [&] {
    const std::set<size_t> copies = add({});
    if (!ways.empty() && !copies.empty() && options.forward != Forward::kAlways) add(copies);
  };
  if (options.forward != Forward::kIfFaster) {
    forward();
    ways.back().assemble(prefetch, judge, thorough);
    return std::move(ways.back());
  }
  Emitter unchanged = lowered;
  int64_t as_it_is = 0;
  at_once(kAtOnce, 2, [&](size_t way, size_t) {
    if (way == 0)
      forward();
    else
      as_it_is = unchanged.assemble(prefetch, judge, thorough);
  });
  std::vector<int64_t> cycles(ways.size());
  at_once(kAtOnce, ways.size(),
          [&](size_t way, size_t) { cycles[way] = ways[way].assemble(prefetch, judge, thorough); });
  ways.push_back(std::move(unchanged));
  cycles.push_back(as_it_is);
  // Of equal ones the last, which is the least changed.
  const auto best = std::min_element(cycles.rbegin(), cycles.rend());
  return std::move(ways[static_cast<size_t>(cycles.rend() - best) - 1]);
}

}  // namespace tessera::npu
