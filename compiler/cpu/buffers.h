// SPDX-License-Identifier: Apache-2.0
// What happens between bufferisation and loops: allocations become places in one scratch area, and each operation moves
// into a function of its own.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace tessera::cpu {

/// Bytes of one element in memory.
int64_t element_bytes(mlir::Type type);
bool is_view(mlir::Operation* op);
/// The allocation, argument or place in the scratch area that a chain of views starts at.
mlir::Value root_of(mlir::Value buffer);
/// Operations that only set an output of the reduction `op` to a constant, just before it.
std::vector<mlir::linalg::GenericOp> fills_before(mlir::linalg::GenericOp op);
void erase_dead_views(mlir::func::FuncOp function);

/// Replaces the static allocations of a function by places in a scratch area, which becomes its last argument
/// (memref<Nxi8>) if any is needed. Buffers whose uses do not overlap in time share bytes; each place is 64-byte
/// aligned. Returns N.
int64_t plan_scratch(mlir::func::FuncOp function);

/// Moves every linalg.generic and memref.copy into a function of its own, whose arguments are the buffers it works on;
/// operations that are equal but for their buffers share one. Returns the new functions; `known` holds those of the
/// module by content.
std::vector<mlir::func::FuncOp> outline(mlir::func::FuncOp function, std::map<std::string, mlir::func::FuncOp>& known);

}  // namespace tessera::cpu
