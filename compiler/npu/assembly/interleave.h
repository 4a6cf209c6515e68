// SPDX-License-Identifier: Apache-2.0
// The vector unit's turns. It takes its instructions in order, and a stream has them layer by layer: a walk over rows
// waits behind the results of the layer before although its own input stands ready, and the next layer's products wait
// for it. A finished stream enters, without waits; the same instructions leave in an order in which the vector unit does
// first what the array needs soonest. The other engines keep their order.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/emit/work.h"
#include "isa/config.h"

namespace tessera::npu {

/// The places of the instructions in the order in which they run if the vector unit may choose among its next `choice`
/// ones. `awaits`: instructions that wait for other cores; no transfer that stands before one comes behind it.
std::vector<uint32_t> interleaved(const emit::Works& works, const std::vector<bool>& awaits, size_t choice,
                                  size_t loads);

}  // namespace tessera::npu
