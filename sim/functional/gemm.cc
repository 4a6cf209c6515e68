// SPDX-License-Identifier: Apache-2.0
#include "sim/functional/gemm.h"

namespace tessera::sim {

struct GemmUnit::State {
  const isa::MachineConfig& config;
  Scratchpads& scratchpads;
};

GemmUnit::GemmUnit(const isa::MachineConfig& config, Scratchpads& scratchpads, Kernels)
    : state_(new State{config, scratchpads}) {}
GemmUnit::~GemmUnit() = default;
void GemmUnit::run(const isa::Gemm& gemm) { run_gemm_portable(gemm, state_->config, state_->scratchpads); }
void GemmUnit::weights_written(size_t, size_t) {}

}  // namespace tessera::sim
