// SPDX-License-Identifier: Apache-2.0
// Which inputs of a function hold indices, and of how many rows: what they may be where nobody gives them.
#pragma once

#include <cstdint>
#include <vector>

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tessera::nn {

/// For each input the least extent among the axes that its elements index (Gather and others), reached through
/// operators that move elements; 0: its elements index nothing that is known.
std::vector<int64_t> id_bounds(mlir::func::FuncOp function);

}  // namespace tessera::nn
