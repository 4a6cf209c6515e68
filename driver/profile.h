// SPDX-License-Identifier: Apache-2.0
// What backends that know time share. Enters: a program's instructions and what a machine traced of their run. Leaves:
// the profile of a report, with the work that stands in each instruction's word.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "driver/device.h"
#include "isa/config.h"
#include "isa/generated/instructions.h"
#include "sim/trace.h"

namespace tessera::driver {

/// The instructions in `words`, up to the first that cannot be decoded.
std::vector<isa::Instruction> decode_program(std::span<const uint8_t> words);

/// Multiply-accumulates of the GEMM engine's first `executed` instructions (FENCE counts as one).
uint64_t executed_macs(std::span<const isa::Instruction> program, uint64_t executed, const isa::MachineConfig& config);

/// Appends to report.profile and report.bursts what a core has traced.
void fill_profile(RunReport& report, const sim::Trace& trace, std::span<const isa::Instruction> program,
                  const isa::MachineConfig& config, uint32_t core = 0);

}  // namespace tessera::driver
