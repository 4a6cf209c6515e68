// SPDX-License-Identifier: Apache-2.0
// Profiles of instructions become stretches of work; isa/charging says whose each cycle is.
#include "runtime/attribution.h"

#include <algorithm>

#include "isa/verify/charging.h"

namespace tessera::runtime {

std::string_view to_string(Cause cause) {
  static constexpr std::array<std::string_view, kCauses> kNames = {"compute", "alu", "load", "store", "sync"};
  return kNames[static_cast<size_t>(cause)];
}

std::vector<LayerCycles> attribute_cycles(std::span<const driver::InstructionProfile> profile,
                                          std::span<const uint32_t> layer_of_instruction, size_t layers,
                                          uint64_t cycles) {
  if (layers == 0 || profile.empty()) return {};
  std::vector<LayerCycles> result(layers);
  std::vector<bool> seen(layers);
  std::array<std::vector<isa::Stretch>, isa::kChargedEngines> work;
  for (const driver::InstructionProfile& one : profile) {
    const bool known = one.pc < layer_of_instruction.size() && layer_of_instruction[one.pc] < layers;
    const uint32_t layer = known ? layer_of_instruction[one.pc] : isa::kNoLayer;
    LayerCycles ignored;
    LayerCycles& own = known ? result[layer] : ignored;
    if (known) {
      own.begin_cycle = seen[layer] ? std::min(own.begin_cycle, one.start_cycle) : one.start_cycle;
      own.end_cycle = std::max(own.end_cycle, one.end_cycle + 1);
      seen[layer] = true;
    }
    const auto add = [&](Cause cause, uint64_t begin, uint64_t end) {
      work[static_cast<size_t>(cause)].push_back({begin, std::min(end, cycles), layer});
    };
    const uint64_t first = one.first_busy_cycle, last = one.last_busy_cycle + 1;
    switch (one.unit) {
      case isa::Unit::kGemm:
      case isa::Unit::kAlu:
        if (one.steps == 0) break;
        add(isa::cause_of(static_cast<isa::Engine>(one.unit)), first, last);
        (one.unit == isa::Unit::kGemm ? own.gemm_cycles : own.alu_cycles) += last - first;
        break;
      case isa::Unit::kLoad:
      case isa::Unit::kStore:
        add(isa::cause_of(static_cast<isa::Engine>(one.unit)), one.start_cycle, one.end_cycle + 1);
        break;
      case isa::Unit::kFetch: break;
    }
  }
  const auto charges = isa::charge(std::move(work), layers, cycles);
  for (size_t layer = 0; layer < layers; ++layer) {
    result[layer].causes = charges[layer];
    for (const uint64_t count : charges[layer]) result[layer].cycles += count;
  }
  return result;
}

std::string_view limit_of(const LayerCycles& layer, uint64_t dram_cycles) {
  if (layer.cycles == 0) return "";
  if (10 * layer.causes[static_cast<size_t>(Cause::kCompute)] >= 9 * layer.cycles) return "compute";
  const uint64_t most = std::max({layer.gemm_cycles, dram_cycles, layer.alu_cycles});
  if (3 * most < 2 * layer.cycles) return "sync";
  return most == layer.gemm_cycles ? "compute" : most == dram_cycles ? "dram" : "alu";
}

}  // namespace tessera::runtime
