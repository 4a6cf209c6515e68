// SPDX-License-Identifier: Apache-2.0
// From linalg.generic on memrefs to loops over vectors.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tessera::cpu {

/// How a function's work is split among threads: into ranges of `items` of at least `grain`.
struct Work {
  int64_t items = 1, grain = 1;
};

/// Replaces every linalg.generic by loop nests. `vector_bytes`: width of the processor's vectors. The function gets two
/// more arguments, index: the first item of its work and the one behind the last.
Work make_loops(mlir::func::FuncOp function, int64_t vector_bytes);

}  // namespace tessera::cpu
