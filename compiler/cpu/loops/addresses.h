// SPDX-License-Identifier: Apache-2.0
// Where the operands of a linalg.generic on memrefs of static shape and strides lie: offsets that are linear in its
// loops.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace tessera::cpu {

/// A linear function of the loops, in elements: offset + sum coefficient * loop.
struct Linear {
  int64_t offset = 0;
  std::vector<int64_t> coefficients;
};

/// Of an operand, over the operation's own loops.
Linear linear_address(mlir::linalg::GenericOp op, mlir::OpOperand& operand);

/// The operands of the element-wise `reader` over the loops of `sum`, whose result is the reader's operand `number`:
/// where each element of the result is read once, in loops that are those of `sum` or several of them as one.
std::optional<std::vector<Linear>> addresses_over(mlir::linalg::GenericOp sum, mlir::linalg::GenericOp reader,
                                                  unsigned number);

/// Name of the C library's function for an operation that no instruction computes; "" for all others.
std::string library_function(mlir::Operation* op);
/// Whether the runtime has a vector form of the C library's function (runtime/vector_math.h).
bool has_vector_form(const std::string& function);
/// Whether an operation calls a function or reads memory by computed addresses, one lane after the other.
bool lane_by_lane(mlir::Operation& op, int64_t vector_bytes);

}  // namespace tessera::cpu
