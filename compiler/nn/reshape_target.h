// SPDX-License-Identifier: Apache-2.0
// Constants of shapes in a model that is compiled for any length of a past. Enters: the shapes around a Reshape that a
// pass writes. Leaves: its operand, which holds no extent along the past.
#pragma once

#include <optional>
#include <vector>

#include "compiler/nn/bridge.h"

namespace tessera::nn {

/// Unit attribute of a function in which extents along a past are those of one run among many: no constant holds them.
inline constexpr llvm::StringLiteral kPastGrowsAttr = "nn.past_grows";

/// The operand of a Reshape from `from` to `to`, static shapes without extents of 0, in the function around `at`. Where
/// a past grows an extent that stays in its place is 0 there, and one other is -1; nothing where a second other is more
/// than 1.
std::optional<std::vector<int64_t>> reshape_target(mlir::Operation* at, const ops::Shape& from, const ops::Shape& to);

}  // namespace tessera::nn
