// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/assemble.h"

#include "compiler/emit/predict.h"

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
                  const Options& options, bool judged) {
  const isa::MachineConfig& config = lowered.config;
  const Emitter::Judge judge = [&](std::vector<isa::Instruction> stream, std::vector<uint32_t> tags,
                                   std::vector<emit::Work> works, size_t count) {
    emit::synchronise(stream, tags, works, config, order);
    return emit::predict(stream, tags, works, count, config,
                         {options.dram_latency_cycles, options.dram_bandwidth_bytes});
  };
  const bool prefetch = options.prefetch_weights && options.virtual_threads;
  if (options.forward == Forward::kNever || !judged) {
    lowered.assemble(prefetch, judged ? judge : Emitter::Judge());
    return lowered;
  }
  Emitter forwarded = lowered;
  const int64_t gone = forwarded.forward(results);
  if (options.forward == Forward::kIfFaster && gone * kWorthAsking < lowered.pushed()) {
    lowered.assemble(prefetch, judge);
    return lowered;
  }
  forwarded.assemble(prefetch, judge);
  if (options.forward == Forward::kAlways) return forwarded;
  lowered.assemble(prefetch, judge);
  const auto cycles = [&](const Emitter& of) {
    return judge(of.instructions, of.layer_of_instruction, of.works, 0).cycles;
  };
  return cycles(forwarded) < cycles(lowered) ? std::move(forwarded) : std::move(lowered);
}

}  // namespace tessera::npu
