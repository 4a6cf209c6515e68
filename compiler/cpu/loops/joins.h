// SPDX-License-Identifier: Apache-2.0
// Passes over buffers that save writing a result twice.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace tessera::cpu {

/// Joins sums to the element-wise operations that alone read them (bias, activation, residual): such a reader is
/// marked, stands behind its sum, and takes the sum's elements out of registers. The buffer between them is never
/// written.
void join_readers(mlir::func::FuncOp function, int64_t vector_bytes);
/// Whether `op` is a reader that is joined to a sum; the sum; the number of the operand that is its result.
bool is_joined(mlir::linalg::GenericOp op);
mlir::linalg::GenericOp sum_before(mlir::linalg::GenericOp reader);
unsigned joined_operand(mlir::linalg::GenericOp reader);
/// Whether an allocation is only the name of a joined sum.
bool is_name_of_sum(mlir::Operation* alloc);

/// Results that are copied into a part of another buffer (a padded input, a concatenation) are written there at once,
/// and of a padded buffer only what lies outside of that part is filled.
void write_in_place(mlir::func::FuncOp function, int64_t vector_bytes);

}  // namespace tessera::cpu
