// SPDX-License-Identifier: Apache-2.0
// From a module of `nn` operations to the program container: what the NPU computes becomes NPU programs, the rest CPU
// steps, and a plan orders them. Enters: a module whose integer operators are folded. Leaves: an artifact that
// validates.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "compiler/cpu/codegen.h"
#include "compiler/graph/pass.h"
#include "compiler/nn/bridge.h"
#include "compiler/nn/growing_axes.h"
#include "compiler/npu/graph/graph.h"
#include "isa/program/artifact.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace tessera::partition {

/// The step from a module of nn operations to value graphs, as dumps and tessera-opt call it.
inline constexpr const char* kPartitionPass = "partition";

struct Options {
  npu::Options npu;
  bool use_npu = true;  // false: everything on the CPU
  // By node name, overriding the generator's. Where several layers bear a name, the second is "name#2" and so on.
  // Of a chip's core K also by the name with "@K" behind it.
  std::map<std::string, schedule::LayerSchedule> schedules;
  std::map<std::string, schedule::DividedSchedule> divided;  // among the cores of a chip, by the same names
  /// Graphs of tensors in place of those that the passes would make: all of them, by name. Empty: the passes run.
  std::vector<graph::AnyGraph> graphs;
  cpu::Codegen* cpu = nullptr;  // nullptr: every CPU operation is a library kernel
  std::function<void(const std::string& what, int64_t done, int64_t total)> progress;
  nn::GrowingAxes growing;  // of a decoder that is compiled for its longest past, and what it grows by
  program::Growth growth;
  graph::Observer after_pass;  // sees the graphs of the NPU after partitioning and after each pass
  std::function<void(const npu::Graph& graph, const npu::Program& program)> after_compile;
};

/// Errors: kDoesNotFit and kInvalidArgument of the NPU code generator, naming the node; kInvalidArgument for a schedule
/// of what is no layer on the NPU; kUnsupported.
program::Artifact partition(mlir::ModuleOp module, const isa::MachineConfig& config, const Options& options = {});

/// Nodes of the model by where they run, and their products.
struct Placement {
  std::set<std::string> npu, cpu;  // a node of which the NPU computes a part stands in `npu` alone
  int64_t macs_npu = 0, macs_cpu = 0;
};
/// What partition() would place where, without looking for schedules.
Placement placement(mlir::ModuleOp module, const isa::MachineConfig& config);

/// What of a module the NPU computes, before any pass of the graph has run.
std::vector<graph::AnyGraph> value_graphs(mlir::ModuleOp module);
/// The same for a machine, in the order in which they run.
std::vector<graph::AnyGraph> value_graphs(mlir::ModuleOp module, const isa::MachineConfig& config);

}  // namespace tessera::partition
