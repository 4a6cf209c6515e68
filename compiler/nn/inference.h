// SPDX-License-Identifier: Apache-2.0
// Type and shape inference over a function of nn operations through the operator library, bodies included. Values that
// shape arithmetic makes known (Shape, Gather, Concat, ... of static shapes) are propagated without changing the graph.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "compiler/nn/bridge.h"

namespace tessera::nn {

class TypeInference {
 public:
  /// Infers every operation of `func` in order, sets result types, block argument types and the function's result
  /// types. A branch of an If that cannot run with these shapes gives way to an ai.tessera::Refuse, which says why if
  /// it is ever taken. Throws Error (kInvalidModel, kDoesNotFit) naming the node.
  void run(mlir::func::FuncOp func);
  /// Infers one operation, its bodies included, and sets its result types.
  void visit(NodeOp op);
  /// What is known about a value: its type and, when known, its content.
  ops::TypeInfo info(mlir::Value value) const;
  void set(mlir::Value value, const ops::TypeInfo& info);

 private:
  friend class InferredBody;
  std::vector<ops::TypeInfo> visit_block(mlir::Block& block);

  void put_refusals();

  llvm::DenseMap<mlir::Value, ops::TypeInfo> known_;
  llvm::MapVector<mlir::Region*, std::string> refused_;  // bodies whose last inference failed, and why
};

/// A call to TypeInference::run with errors as diagnostics.
mlir::LogicalResult infer_types(mlir::func::FuncOp func);

/// Bytes that one tensor may have at most: the memory of this machine. Throws Error kDoesNotFit beyond it.
void check_size(const ops::TypeInfo& info, const std::string& what);

}  // namespace tessera::nn
