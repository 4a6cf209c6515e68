// SPDX-License-Identifier: Apache-2.0
// Operators that the operator library defines by others (ops/expansion.h) become those others.
#pragma once

#include "compiler/nn/inference.h"

namespace tessera::nn {

/// Replaces each operation that has an expansion by the expansion's steps, and raises operations of operator sets below
/// 7 to set 7 where both have one definition. Operations whose expansion needs a rank or a content that `inference`
/// does not know stay; the library evaluates them. The types of new operations are not set. Returns whether an
/// operation was replaced. Throws Error that names the node.
bool expand_operators(mlir::func::FuncOp func, const TypeInference& inference);

}  // namespace tessera::nn
