// SPDX-License-Identifier: Apache-2.0
// A module of nn operations as text that reads back as the same module: names of nodes and values (MLIR's locations)
// and constants included. Large constants are numbered in the order of their use, so that equal modules have equal
// texts, however they came to be.
#pragma once

#include <string>
#include <string_view>

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace tessera::nn {

/// `elide`: without names and large constants, for reading only.
std::string module_to_text(mlir::ModuleOp module, bool elide = false);

/// The module, verified. `context` has the nn and func dialects. Errors: kInvalidArgument with source, line and column.
mlir::OwningOpRef<mlir::ModuleOp> module_from_text(mlir::MLIRContext& context, std::string_view text,
                                                   const std::string& source);

}  // namespace tessera::nn
