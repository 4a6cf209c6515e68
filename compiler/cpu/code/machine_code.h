// SPDX-License-Identifier: Apache-2.0
// From a module of loops over memrefs and vectors to an object for this host or a bare processor.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/cpu/code/code_cache.h"
#include "compiler/cpu/code/target.h"
#include "compiler/cpu/loops/loops.h"
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

/// Consumes the module. `work`: the functions that threads can share, by name. `bare`: the processor, or null for this
/// host. `cache`: where code that was made before is found, or null. Throws Error kInternal when LLVM refuses
/// what the lowering made.
program::CpuModule emit_machine_code(mlir::ModuleOp module, const std::vector<EntryPoint>& entry_points,
                                     const std::map<std::string, Work>& work, const BareTarget* bare,
                                     const CodeCache* cache);

}  // namespace tessera::cpu
