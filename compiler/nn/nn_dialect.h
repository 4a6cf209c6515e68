// SPDX-License-Identifier: Apache-2.0
// C++ face of the `nn` dialect (nn_dialect.td). A module holds one func.func @main whose arguments and results carry
// `nn.name` (string) and, where the model names its dynamic dimensions, `nn.dim_names` (array of strings, "" for an
// unnamed dimension).
#pragma once

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "compiler/nn/nn_dialect.h.inc"

#define GET_TYPEDEF_CLASSES
#include "compiler/nn/nn_dialect_types.h.inc"

#define GET_OP_CLASSES
#include "compiler/nn/nn_dialect_ops.h.inc"

namespace tessera::nn {

inline constexpr llvm::StringLiteral kNameAttr = "nn.name";
inline constexpr llvm::StringLiteral kDimNamesAttr = "nn.dim_names";
/// On a result that stands for a sequence of maps: the keys of its columns (array of strings or of i64).
inline constexpr llvm::StringLiteral kMapKeysAttr = "nn.map_keys";
/// On a function whose quantisers are none of ONNX Runtime's: its groups need not be those that ONNX Runtime fuses.
inline constexpr llvm::StringLiteral kFreeGroupsAttr = "nn.free_groups";
inline constexpr llvm::StringLiteral kMicrosoftDomain = "com.microsoft";
/// Of operators that the compiler makes and no model has.
inline constexpr llvm::StringLiteral kTesseraDomain = "ai.tessera";
/// LiteRT's operators that ONNX does not have (ops/litert/family_*.cc).
inline constexpr llvm::StringLiteral kLitertDomain = "litert";

}  // namespace tessera::nn
