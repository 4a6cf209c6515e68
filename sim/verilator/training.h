// SPDX-License-Identifier: Apache-2.0
// What a verilated machine is run on so that its compiler sees which of its branches are taken. Enters: a
// configuration. Leaves: a program in which all engines work side by side as they do in convolutional networks: dense
// and depthwise convolutions in tiles of two copies, with residuals, tables, pools and results that stay on chip. Any
// configuration has one; what its memories do not hold is left out. Deterministic.
#pragma once

#include <cstdint>
#include <vector>

#include "isa/config.h"
#include "isa/generated/instructions.h"
#include "sim/verilator/model_api.h"

namespace tessera::sim {

struct TrainingProgram {
  std::vector<isa::Instruction> instructions;  // ends with FINISH; base register 0 is the first byte of `dram`
  std::vector<uint8_t> dram;
};

TrainingProgram training_program(const isa::MachineConfig& config);

/// Runs the program. Leaves its cycles. Errors: kInternal when the machine does not end it without a fault.
uint64_t train(const isa::MachineConfig& config, const TesseraRtlApi& api);

}  // namespace tessera::sim
