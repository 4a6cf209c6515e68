// SPDX-License-Identifier: Apache-2.0
// From a graph's second operation, stated in binary32, to the machine's constants (isa/second_operation.h). What has
// none does not run on the machine: the partition leaves it to the host, check() names it in a graph made by hand.
#pragma once

#include <optional>

#include "compiler/npu/graph/graph.h"
#include "isa/second_operation.h"

namespace tessera::npu {

/// Values of a 1-byte tensor.
constexpr isa::IntegerRange byte_range(bool is_unsigned) {
  return is_unsigned ? isa::IntegerRange{0, 255} : isa::IntegerRange{-128, 127};
}

/// What the first stage and its table hand to the second operation. `bytes`: the stage reads bytes of this range and
/// no sums.
isa::IntegerRange first_stage_range(const Stage& stage, std::optional<isa::IntegerRange> bytes);

/// `first`: range of the first stage's value, `other` that of the second tensor's elements.
std::optional<isa::SecondConstants> second_constants(const SecondOperation& second, isa::IntegerRange first,
                                                     isa::IntegerRange other);

}  // namespace tessera::npu
