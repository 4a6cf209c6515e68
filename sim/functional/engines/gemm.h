// SPDX-License-Identifier: Apache-2.0
// The GEMM engine. Enters: a checked instruction and the scratchpads. Leaves: ACC. One class with three implementations
// of the dense and the depthwise nest that agree to the bit; it owns what they cache between instructions.
#pragma once

#include <cstddef>
#include <memory>

#include "isa/config.h"
#include "isa/generated/instructions.h"
#include "sim/functional/engines/work.h"
#include "sim/functional/scratchpads.h"

namespace tessera::sim {

class GemmUnit {
 public:
  GemmUnit(const isa::MachineConfig& config, Scratchpads& scratchpads, Kernels kernels);
  ~GemmUnit();

  /// Runs one instruction. check_operands and check_ranges must hold.
  void run(const isa::Gemm& gemm);

  /// WGT bytes [first, first + count) have changed.
  void weights_written(size_t first, size_t count);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The nest word for word: the meaning of GEMM without any rearrangement.
void run_gemm_portable(const isa::Gemm& gemm, const isa::MachineConfig& config, Scratchpads& scratchpads);

}  // namespace tessera::sim
