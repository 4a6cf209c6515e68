// SPDX-License-Identifier: Apache-2.0
// Machine code for runs of CPU operators. The interface is what the partitioner sees: it includes this header and
// links no code generator. See README.md for the way from nn.op to code.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "compiler/cpu/code/target.h"
#include "compiler/nn/bridge.h"
#include "isa/program/artifact.h"
#include "mlir/IR/MLIRContext.h"

namespace tessera::cpu {

/// Turns groups of CPU operations into machine code. The partitioner offers runs of operations that can execute
/// together.
class Codegen {
 public:
  virtual ~Codegen() = default;
  /// True if `op` can be compiled: static shapes, a lowering exists, no subgraphs.
  virtual bool supports(nn::NodeOp op) = 0;
  /// Compiles `ops` (topological order) into one function. `inputs` are the run-time values they read, `outputs` those
  /// that are needed outside. Constants are inputs too. Returns the step without value ids; nothing if it declines
  /// after all.
  virtual std::optional<program::CodeStep> add(const std::vector<nn::NodeOp>& ops,
                                               const std::vector<mlir::Value>& inputs,
                                               const std::vector<mlir::Value>& outputs) = 0;
  virtual program::CpuModule finish() = 0;
};

/// A code generator whose functions all end up in one module, for the processor `target`: kHost, or a name of
/// find_bare_target(). Loads the dialects it needs into `context`, which must outlive it. `cached`: machine code that
/// was made before is taken from the user's cache (code_cache.h), and what is made is kept there.
/// Errors: kInvalidArgument for an unknown processor.
std::unique_ptr<Codegen> create_codegen(mlir::MLIRContext& context, bool cached = false,
                                        std::string_view target = kHost);

}  // namespace tessera::cpu
