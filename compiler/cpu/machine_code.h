// SPDX-License-Identifier: Apache-2.0
// From a module of loops over memrefs and vectors to an object for this host.
#pragma once

#include <string>
#include <vector>

#include "isa/program/artifact.h"
#include "mlir/IR/BuiltinOps.h"

namespace tessera::cpu {

struct EntryPoint {
  std::string symbol;    // void symbol(void** buffers)
  std::string function;  // in the module: one memref argument for each buffer
  size_t buffers = 0;
};

/// Bytes of the widest vector that this host computes with.
int64_t host_vector_bytes();

/// Consumes the module. Throws Error kInternal when LLVM refuses what the lowering made.
program::CpuModule emit_machine_code(mlir::ModuleOp module, const std::vector<EntryPoint>& entry_points);

}  // namespace tessera::cpu
