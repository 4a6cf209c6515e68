// SPDX-License-Identifier: Apache-2.0
// New operations stand where the one stood that is cut.
#include "compiler/nn/splitter.h"

namespace tessera::nn {

NodeOp Splitter::make(llvm::StringRef type, int version, mlir::ValueRange operands,
                      const std::map<std::string, ops::Attribute>& attributes, unsigned results) {
  llvm::SmallVector<mlir::Value> unnamed(results);
  return create_op(rewriter_, location_for(op_, unnamed), type, "", version, operands, attributes, results);
}

mlir::Value Splitter::one(llvm::StringRef type, int version, mlir::ValueRange operands,
                          const std::map<std::string, ops::Attribute>& attributes) {
  return make(type, version, operands, attributes)->getResult(0);
}

mlir::Value Splitter::cast(mlir::Value value, ops::DType to) {
  if (dtype_of(value) == to) return value;
  return one("Cast", 13, {value}, {{"to", static_cast<int64_t>(to)}});
}

void Splitter::finish(mlir::Value sum, mlir::Value scale, mlir::Value bias) {
  const mlir::Value real = cast(sum, ops::DType::kFloat);
  NodeOp last = bias ? named("Add", {one("Mul", 14, {real, scale}), bias}) : named("Mul", {real, scale});
  rewriter_.replaceOp(op_, last->getResults());
}

void Splitter::finish_as(mlir::Value sum, ops::DType to) {
  rewriter_.replaceOp(op_, named("Cast", {sum}, {{"to", static_cast<int64_t>(to)}})->getResults());
}

NodeOp Splitter::named(llvm::StringRef type, mlir::ValueRange operands,
                       const std::map<std::string, ops::Attribute>& attributes) {
  return create_op(rewriter_, op_.getLoc(), type, "", 14, operands, attributes);
}

}  // namespace tessera::nn
