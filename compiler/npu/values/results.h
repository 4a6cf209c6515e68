// SPDX-License-Identifier: Apache-2.0
// Results where GEMM wants them: the vector unit writes to INP what copies alone would bring there from OUT.
#pragma once

#include <cstddef>
#include <vector>

#include "compiler/npu/values/forward.h"

namespace tessera::npu {

/// Whether an instruction writes what it would read, in INP or OUT.
bool overlaps_itself(const emit::Work& work);

/// `copies`: instructions of the stream, in order, that copy between INP and OUT. Those into INP go, with all that
/// write what they read, where each of these can write to one place in INP instead.
void place_results(std::vector<Streamed>& stream, const std::vector<size_t>& copies, const isa::MachineConfig& config);

}  // namespace tessera::npu
