// SPDX-License-Identifier: Apache-2.0
// The reference interpreter: runs a function of nn operations, one operator after another, by the operator library's
// evaluation. It is the oracle inside the project, so it does nothing clever.
#pragma once

#include <functional>
#include <vector>

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "compiler/nn/bridge.h"

namespace tessera::nn {

/// Called after each operation (those of bodies at each execution) with its results.
using Observer = std::function<void(NodeOp, const std::vector<ops::Value>&)>;

/// Results of `func` for `inputs`, in the order of its arguments. Values are freed after their last use.
/// Errors: kInvalidArgument if an input does not fit its argument; what evaluation throws otherwise, naming the node.
std::vector<ops::Value> interpret(mlir::func::FuncOp func, const std::vector<ops::Value>& inputs,
                                  const Observer& observer = {});

}  // namespace tessera::nn
