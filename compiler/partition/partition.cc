// SPDX-License-Identifier: Apache-2.0
// The main line: select, run the passes of the graph, package.
#include "compiler/partition/partition.h"

#include "base/error.h"
#include "compiler/partition/package.h"
#include "compiler/partition/select.h"

namespace tessera::partition {
namespace {

mlir::func::FuncOp main_function(mlir::ModuleOp module) {
  auto function = module.lookupSymbol<mlir::func::FuncOp>("main");
  if (!function) throw Error(ErrorCode::kInvalidArgument, "the module has no function 'main'");
  return function;
}

std::vector<graph::AnyGraph> take_graphs(Selection& selection) {
  std::vector<graph::AnyGraph> graphs;
  for (graph::ValueGraph& values : selection.graphs) graphs.emplace_back(std::move(values));
  selection.graphs.clear();
  return graphs;
}

}  // namespace

std::vector<graph::AnyGraph> value_graphs(mlir::ModuleOp module) {
  Selection selection = select(main_function(module).getBody().front(), true);
  return take_graphs(selection);
}

program::Artifact partition(mlir::ModuleOp module, const isa::MachineConfig& config, const Options& options) {
  mlir::func::FuncOp function = main_function(module);
  Selection selection = select(function.getBody().front(), options.use_npu);
  std::vector<graph::AnyGraph> graphs = take_graphs(selection);
  if (options.after_pass) options.after_pass(kPartitionPass, graphs);
  graph::run_pipeline(graph::PassRegistry::instance().pipeline(), graphs, {config, options.npu}, options.after_pass);
  std::vector<npu::Graph> lowered;
  for (graph::AnyGraph& any : graphs) {
    auto* graph = std::get_if<npu::Graph>(&any);
    TESSERA_INVARIANT(graph != nullptr, "the pipeline ends with graphs of tensors");
    lowered.push_back(std::move(*graph));
  }
  return package(function, selection, lowered, config, options);
}

}  // namespace tessera::partition
