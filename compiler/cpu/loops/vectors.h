// SPDX-License-Identifier: Apache-2.0
// Reads, writes and calls on vectors: the operations that a loop nest is written with.
#pragma once

#include <map>
#include <string>

#include "llvm/ADT/STLFunctionalExtras.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"

namespace tessera::cpu {

/// What VectorCode needs of a context.
void load_vector_dialect(mlir::MLIRContext& context);

/// Writes into one function at the builder's place. Buffers are flat rows of elements. Of a vector only the first
/// `active` lanes exist: others are not read from memory, hold zeros or repetitions, and are not stored.
class VectorCode {
 public:
  VectorCode(mlir::OpBuilder& builder, mlir::Location location, mlir::func::FuncOp function, int64_t vector_bytes)
      : builder_(builder), location_(location), function_(function), vector_bytes_(vector_bytes) {}

  /// An index, defined at the start of the function.
  mlir::Value constant(int64_t value);
  /// Elements `at`, `at` + `stride`, ...
  mlir::Value load(mlir::VectorType type, mlir::Value buffer, mlir::Value at, int64_t stride, int64_t active);
  void store(mlir::Value vector, mlir::Value buffer, mlir::Value at, int64_t stride, int64_t active);
  /// A vector of what `lane` makes for each lane.
  mlir::Value from_lanes(mlir::VectorType type, llvm::function_ref<mlir::Value(int64_t)> lane);
  /// Lane i of a vector; a scalar is every lane.
  mlir::Value lane_of(mlir::Value v, int64_t i);
  /// A function of the C library, of scalars or lane by lane, or in its vector form where there is one.
  mlir::Value call(const std::string& name, llvm::ArrayRef<mlir::Value> operands, mlir::Type result);

 private:
  mlir::Value contiguous(mlir::VectorType type, mlir::Value buffer, mlir::Value at, int64_t active);
  mlir::Value every_second(mlir::VectorType type, mlir::Value buffer, mlir::Value at, int64_t active);
  mlir::Value mask(int64_t lanes, int64_t active);
  mlir::Value behind(mlir::Value at, int64_t distance);
  mlir::Value vector_form(const std::string& name, mlir::Value operand);
  mlir::func::FuncOp declared(const std::string& name, llvm::ArrayRef<mlir::Type> inputs,
                              llvm::ArrayRef<mlir::Type> results);

  mlir::OpBuilder& builder_;
  mlir::Location location_;
  mlir::func::FuncOp function_;
  int64_t vector_bytes_;
  std::map<int64_t, mlir::Value> constants_;
  std::map<int64_t, mlir::Value> places_;  // of arguments and results of vector calls, by lanes
};

}  // namespace tessera::cpu
