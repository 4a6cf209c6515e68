// SPDX-License-Identifier: Apache-2.0
// What the passes of this room share: a pass over func.func without TableGen, and a driver that applies one rewrite to every nn.op
// until nothing changes, errors of the operator library being no match.
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

/// A rewrite of one operation. Returns true if it changed the graph. It may throw tessera::Error before its first change, which counts
/// as no match.
using Rewrite = std::function<bool(NodeOp, mlir::PatternRewriter&)>;

/// Applies `rewrites` to the operations of `func`, bodies included, until none matches.
mlir::LogicalResult apply_rewrites(mlir::func::FuncOp func, const std::vector<Rewrite>& rewrites);

/// An nn.op with inferred result types at the rewriter's insertion point.
NodeOp create_like(mlir::PatternRewriter& rewriter, NodeOp model, llvm::StringRef op_type, mlir::ValueRange operands,
                   const std::map<std::string, ops::Attribute>& attributes);

}  // namespace tessera::nn
