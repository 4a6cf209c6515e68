// SPDX-License-Identifier: Apache-2.0
// The vector unit's turns. It takes its instructions in order, and a stream has them layer by layer: a walk over rows
// waits behind the results of the layer before although its own input stands ready, and the next layer's products wait
// for it. A finished stream enters, without waits; the same instructions leave in an order in which the vector unit does
// first what the array needs soonest. The other engines keep their order.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/emit/work.h"
#include "isa/config.h"

namespace tessera::npu {

/// Of each instruction of a core the place of its operation in the order of all, and the place of the last operation
/// that it waits for on other cores, or -1. Cores cannot block each other while nothing waits for an operation in front
/// of what the core itself has to do for that one.
struct Positions {
  std::vector<int64_t> own, awaited;

  /// The last STORE from `first` on in front of an instruction that waits for others by which this core ends its own
  /// part of what it waits for: about then the others have ended theirs.
  std::optional<uint32_t> own_part(size_t i, size_t first, const emit::Works& works) const;
};

/// Among how many of its next instructions an engine may choose.
struct Choices {
  size_t vectors = 1, loads = 1, products = 1;
};

/// The places of the instructions in the order in which they run then.
std::vector<uint32_t> interleaved(const emit::Works& works, const Positions& positions, const Choices& choices);

}  // namespace tessera::npu
