// SPDX-License-Identifier: Apache-2.0
// From a module of `nn` operations to the program container: what the NPU computes becomes NPU programs, the rest CPU
// steps, and a plan orders them. Enters: a module whose integer operators are folded. Leaves: an artifact that
// validates.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/nn/bridge.h"
#include "compiler/npu/graph.h"
#include "isa/program/artifact.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace tessera::partition {

/// Turns groups of CPU operations into machine code. The partitioner offers runs of operations that can execute
/// together.
class CpuCodegen {
 public:
  virtual ~CpuCodegen() = default;
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

struct Options {
  npu::Options npu;
  bool use_npu = true;  // false: everything on the CPU
  // JSON by node name, overriding the generator's. Where several layers bear a name, the second is "name#2" and so on.
  std::map<std::string, std::string> schedules;
  CpuCodegen* cpu = nullptr;  // nullptr: every CPU operation is a library kernel
  std::function<void(const std::string& what, int64_t done, int64_t total)> progress;
};

/// Errors: kDoesNotFit and kInvalidArgument of the NPU code generator, naming the node; kInvalidArgument for a schedule
/// of what is no layer on the NPU; kUnsupported.
program::Artifact partition(mlir::ModuleOp module, const isa::MachineConfig& config, const Options& options = {});

}  // namespace tessera::partition
