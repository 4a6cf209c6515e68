// SPDX-License-Identifier: Apache-2.0
// What the passes of this room share: a pass over func.func without TableGen, and a driver that applies one rewrite to
// every nn.op until nothing changes, errors of the operator library being no match.
#pragma once

#include <functional>

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Pass/Pass.h"

#include "compiler/nn/bridge.h"

namespace tessera::nn {

/// A pass over functions given by its command-line name, a description, and a function.
std::unique_ptr<mlir::Pass> make_function_pass(llvm::StringRef argument, llvm::StringRef description,
                                               std::function<mlir::LogicalResult(mlir::func::FuncOp)> body);

/// A rewrite of one operation. Returns true if it changed the graph. It may throw tessera::Error before its first
/// change, which counts as no match.
using Rewrite = std::function<bool(NodeOp, mlir::PatternRewriter&)>;

/// Applies `rewrites` to the operations of `func`, bodies included, until none matches.
mlir::LogicalResult apply_rewrites(mlir::func::FuncOp func, const std::vector<Rewrite>& rewrites);

/// int8 or uint8.
inline bool is_byte(ops::DType dtype) { return dtype == ops::DType::kInt8 || dtype == ops::DType::kUint8; }
inline bool is_byte(mlir::Value value) { return is_byte(dtype_of(value)); }
/// True for an operator of ai.onnx of one of these types; false for none.
inline bool is_onnx(NodeOp op, llvm::ArrayRef<llvm::StringRef> op_types) {
  return op && op.getDomain().empty() && llvm::is_contained(op_types, op.getOpType());
}
/// True if both are ranked, static and of one shape.
bool same_static_shape(mlir::Value a, mlir::Value b);
/// What a ReduceMean over the last axis alone averages, extents kept; null where `value` is no such mean.
mlir::Value mean_of(mlir::Value value);

/// Integers of a constant value, or of attribute `attribute` where the operator has it (older opsets); nullopt if
/// neither is known.
std::optional<std::vector<int64_t>> constant_ints(NodeOp op, unsigned input, const std::string& attribute);
/// The permutation of a Transpose of known rank, negative entries resolved, the default (reversal) written out; empty
/// if it is none.
std::vector<int64_t> permutation_of(NodeOp transpose);
/// True if every result but the first is unused.
bool only_first_result_used(NodeOp op);
/// Replaces `op` by an operator of ai.onnx under the same opset and location, with inferred types.
NodeOp replace_with(mlir::PatternRewriter& rewriter, NodeOp op, llvm::StringRef op_type, mlir::ValueRange operands,
                    const std::map<std::string, ops::Attribute>& attributes = {});

}  // namespace tessera::nn
