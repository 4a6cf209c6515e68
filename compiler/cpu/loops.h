// SPDX-License-Identifier: Apache-2.0
// From linalg.generic on memrefs to loops over vectors, and from allocations to one scratch area.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tessera::cpu {

/// Replaces the static allocations of a function by places in a scratch area, which becomes its last argument (memref<Nxi8>) if any is
/// needed. Buffers whose uses do not overlap in time share bytes; each place is 64-byte aligned. Returns N.
int64_t plan_scratch(mlir::func::FuncOp function);

/// Moves every linalg.generic and memref.copy into a function of its own, whose arguments are the buffers it works on; operations that
/// are equal but for their buffers share one. Returns the new functions; `known` holds those of the module by content.
std::vector<mlir::func::FuncOp> outline(mlir::func::FuncOp function, std::map<std::string, mlir::func::FuncOp>& known);

/// Replaces every linalg.generic by loop nests. `vector_bytes`: width of the processor's vectors.
void make_loops(mlir::func::FuncOp function, int64_t vector_bytes);

}  // namespace tessera::cpu
