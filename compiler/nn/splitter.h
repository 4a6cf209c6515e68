// SPDX-License-Identifier: Apache-2.0
// What the passes share that cut one operation into several: operations in front of it that carry its name, and the
// arithmetic in float behind an integer product.
#pragma once

#include <map>
#include <string>

#include "compiler/nn/bridge.h"
#include "mlir/IR/PatternMatch.h"

namespace tessera::nn {

class Splitter {
 public:
  Splitter(NodeOp op, mlir::PatternRewriter& rewriter) : op_(op), rewriter_(rewriter) {}

  NodeOp make(llvm::StringRef type, int version, mlir::ValueRange operands,
              const std::map<std::string, ops::Attribute>& attributes = {}, unsigned results = 1);
  mlir::Value one(llvm::StringRef type, int version, mlir::ValueRange operands,
                  const std::map<std::string, ops::Attribute>& attributes = {});
  mlir::Value cast(mlir::Value value, ops::DType to);
  mlir::Value constant(const ops::Tensor& tensor) { return create_constant(rewriter_, op_.getLoc(), tensor); }

  /// Replaces the operation by the sum in another type.
  void finish_as(mlir::Value sum, ops::DType to);
  /// Replaces the operation by float(sum) * scale + bias; null values are left out.
  void finish(mlir::Value sum, mlir::Value scale, mlir::Value bias);

 private:
  /// The operation that makes the result, under its name.
  NodeOp named(llvm::StringRef type, mlir::ValueRange operands,
               const std::map<std::string, ops::Attribute>& attributes = {});

  NodeOp op_;
  mlir::PatternRewriter& rewriter_;
};

}  // namespace tessera::nn
