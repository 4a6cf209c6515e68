// SPDX-License-Identifier: Apache-2.0
// Where a program's cycles went. Enters: the profile of a run on a device that knows time, and which layer each
// instruction belongs to. Leaves: cycles by layer and cause, and what limits a layer. The rules are in
// docs/profiling.md; they are applied here, once for all devices.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "driver/device.h"
#include "isa/verify/charging.h"

namespace tessera::runtime {

using isa::Cause;
inline constexpr size_t kCauses = isa::kCharges;

/// "compute", "alu", "load", "store", "sync".
std::string_view to_string(Cause cause);

struct LayerCycles {
  uint64_t cycles = 0;                     // the sum of `causes`
  std::array<uint64_t, kCauses> causes{};  // by Cause
  // Of the layer's own instructions, whichever layer the cycles went to.
  uint64_t begin_cycle = 0, end_cycle = 0;   // the first is taken, the last has completed; equal without instructions
  uint64_t gemm_cycles = 0, alu_cycles = 0;  // from first to last tile or vector, summed
};

/// One entry for each of `layers`; they sum to `cycles`. `layer_of_instruction` may name no layer (any number from
/// `layers` on). Empty without layers or profile.
std::vector<LayerCycles> attribute_cycles(std::span<const driver::InstructionProfile> profile,
                                          std::span<const uint32_t> layer_of_instruction, size_t layers,
                                          uint64_t cycles);

/// What limits a layer: "compute", "dram", "alu" or "sync". `dram_cycles`: the cycles that its bytes need at the
/// memory's bandwidth. Empty for a layer without cycles.
std::string_view limit_of(const LayerCycles& layer, uint64_t dram_cycles);

}  // namespace tessera::runtime
