// SPDX-License-Identifier: Apache-2.0
// From linalg.generic on memrefs to loops over vectors.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tessera::cpu {

/// Replaces every linalg.generic by loop nests. `vector_bytes`: width of the processor's vectors.
void make_loops(mlir::func::FuncOp function, int64_t vector_bytes);

}  // namespace tessera::cpu
