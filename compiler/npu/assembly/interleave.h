// SPDX-License-Identifier: Apache-2.0
// Turns of the engines. Each takes its instructions in order, and a stream has them layer by layer: a walk over rows
// waits behind the results of the layer before although its own input stands ready, and the products behind it wait for
// the walk. A finished stream enters, without waits; the same instructions leave in an order in which the engines
// do first what the array needs soonest. STORE keeps its order, and so do fetches of constants.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compiler/emit/work.h"

namespace tessera::npu {

/// Among how many of its next instructions an engine may choose.
struct Choices {
  size_t vectors = 1, loads = 1, products = 1;
  int64_t transferred = 120;  // cycles from the last beat of a transfer to its completion
};

/// By instruction that waits for other cores: the one with which this core ends its own part of what is awaited, at
/// about the time at which the others end theirs; its own place if there is none.
using Awaits = std::vector<std::optional<uint32_t>>;

/// For each of the choices the places of the instructions in the order in which they run then. No transfer that stands
/// in front of one that waits for other cores comes behind it, so that cores cannot block each other.
std::vector<std::vector<uint32_t>> interleaved(const emit::Works& works, const Awaits& awaits,
                                               std::span<const Choices> choices);

}  // namespace tessera::npu
