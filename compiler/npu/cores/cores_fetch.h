// SPDX-License-Identifier: Apache-2.0
// Weights and parameters ahead of what waits for other cores. LOAD takes its instructions in order, so that the bus
// rests while a core waits for others, and afterwards all cores fetch their next weights at once, in front of what the
// next layer reads. Enters: each core's instructions, right when run one at a time, without FENCEs. Leaves: the same
// ones, with fetches of constants earlier.
#pragma once

#include <vector>

#include <functional>
#include <optional>

#include "compiler/emit/predict_chip.h"
#include "compiler/npu/cores/cores_order.h"

namespace tessera::npu {

/// What the streams take together, by core; nothing where they would block each other.
using Replayed = std::function<std::optional<std::vector<emit::Prediction>>(const std::vector<CoreCode>&)>;

/// Moves fetches of constants in front of loads of earlier layers where all cores take fewer cycles together. Long
/// streams stay as they are.
void fetch_ahead(std::vector<CoreCode>& codes, const Replayed& replayed);

}  // namespace tessera::npu
