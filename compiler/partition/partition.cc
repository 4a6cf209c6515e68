// SPDX-License-Identifier: Apache-2.0
// The main line: select, run the passes of the graph, package.
#include "compiler/partition/partition.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/step_times.h"
#include "compiler/graph/passes.h"
#include "compiler/partition/operator_class.h"
#include "compiler/partition/package.h"
#include "compiler/partition/select.h"
#include "compiler/partition/util.h"

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

/// What the passes may ask of one of these graphs: the schedules given for it.
auto schedules_in(const Selection& selection, const std::vector<graph::AnyGraph>& graphs, const Options& options) {
  return [&](const npu::Graph& graph) {
    std::map<std::string, int64_t> named;
    for (const size_t number : graphs_in_order(selection)) {
      const auto* other = std::get_if<npu::Graph>(&graphs[number]);
      if (other == nullptr) continue;
      auto schedules = given_schedules(*other, options, named);
      if (other == &graph) return schedules;
    }
    return std::vector<std::optional<schedule::LayerSchedule>>(graph.operations.size());
  };
}

/// Checks that a graph given as text takes and leaves the values of the one that it replaces.
void check_interface(const npu::Graph& given, const graph::ValueGraph& values, const graph::PassContext& context) {
  const npu::Graph own = graph::assign_layouts(values, context);
  const auto same = [&](const std::vector<npu::Binding>& a, const std::vector<npu::Binding>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const npu::Binding& x, const npu::Binding& y) {
      const npu::Tensor &t = given.tensors[static_cast<size_t>(x.tensor)],
                        &u = own.tensors[static_cast<size_t>(y.tensor)];
      return x.value == y.value && x.axes.size() == y.axes.size() && t.elements() == u.elements() &&
             t.element_bytes == u.element_bytes;
    });
  };
  if (!same(given.host_inputs, own.host_inputs) || !same(given.host_outputs, own.host_outputs)) {
    throw Error(ErrorCode::kInvalidArgument,
                "the given graph @" + given.name +
                    " takes or leaves other values than this model's; dump the graphs of this model again");
  }
}

/// Puts given graphs in the places of those of the same names. The pipeline does not run over them.
void replace_graphs(std::vector<graph::AnyGraph>& graphs, const std::vector<graph::AnyGraph>& given,
                    const graph::PassContext& context) {
  for (const graph::AnyGraph& any : given) {
    const auto* graph = std::get_if<npu::Graph>(&any);
    if (graph == nullptr) {
      throw Error(ErrorCode::kInvalidArgument,
                  "a given graph is one of values; give one of tensors, from assign-layouts on");
    }
    const auto own = std::find_if(graphs.begin(), graphs.end(), [&](const graph::AnyGraph& g) {
      const auto* values = std::get_if<graph::ValueGraph>(&g);
      return values != nullptr && values->name == graph->name;
    });
    if (own == graphs.end()) {
      throw Error(ErrorCode::kInvalidArgument, "the given graph @" + graph->name +
                                                   " is none of this model's, or is given twice; there are " +
                                                   std::to_string(graphs.size()) + ", named npu0, npu1 and so on");
    }
    check_interface(*graph, std::get<graph::ValueGraph>(*own), context);
    *own = *graph;
  }
  for (const graph::AnyGraph& any : graphs) {
    if (const auto* values = std::get_if<graph::ValueGraph>(&any))
      throw Error(ErrorCode::kInvalidArgument, "the model has a graph @" + values->name + ", and none is given for it");
  }
}

/// Adds products, and nodes that the CPU runs, of turns that run `times` times.
void add_turns(const Selection& selection, const std::vector<Turn>& turns, int64_t times, Placement& placement) {
  for (const Turn& turn : turns) {
    if (turn.graph)
      for (const graph::Operation& operation : selection.graphs[*turn.graph].operations)
        placement.macs_npu += times * operation.macs;
    for (nn::NodeOp op : turn.cpu) {
      for (std::string& name : covered_nodes({op.getOperation()}))
        if (!placement.npu.contains(name)) placement.cpu.insert(std::move(name));
      placement.macs_cpu += times * model_macs(op);
      for (mlir::Region& region : op.getBodies())
        add_turns(selection, selection.bodies.at(&region.front()), times * trips_of(op), placement);
    }
  }
}

}  // namespace

std::vector<graph::AnyGraph> value_graphs(mlir::ModuleOp module) {
  Selection selection = select(main_function(module).getBody().front(), true);
  return take_graphs(selection);
}

std::vector<graph::AnyGraph> value_graphs(mlir::ModuleOp module, const isa::MachineConfig& config) {
  Selection selection = select(main_function(module).getBody().front(), true, ability_of(config));
  std::vector<graph::AnyGraph> graphs = take_graphs(selection), ordered;
  for (const size_t number : graphs_in_order(selection)) ordered.push_back(std::move(graphs[number]));
  return ordered;
}

Placement placement(mlir::ModuleOp module, const isa::MachineConfig& config) {
  const Selection selection = select(main_function(module).getBody().front(), true, ability_of(config));
  Placement placement;
  for (const graph::ValueGraph& graph : selection.graphs)
    for (const graph::Operation& operation : graph.operations)
      placement.npu.insert(operation.nodes.begin(), operation.nodes.end());
  add_turns(selection, selection.turns, 1, placement);
  return placement;
}

program::Artifact partition(mlir::ModuleOp module, const isa::MachineConfig& config, const Options& given) {
  Options options = given;
  mlir::func::FuncOp function = main_function(module);
  Selection selection = timed(options.npu.times.get(), "select", [&] {
    return select(function.getBody().front(), options.use_npu, ability_of(config), options.growing, options.growth);
  });
  options.npu.room = options.growth.room;
  for (const int64_t bytes : selection.cache_bytes) {
    options.npu.cache_offsets.push_back(static_cast<int64_t>(options.growth.state_bytes));
    options.growth.state_bytes += static_cast<uint64_t>(bytes + 63) / 64 * 64;
  }
  std::vector<graph::AnyGraph> graphs = take_graphs(selection);
  if (options.after_pass) options.after_pass(kPartitionPass, graphs);
  const graph::PassContext context{config, options.npu, schedules_in(selection, graphs, options)};
  if (options.graphs.empty()) {
    graph::run_pipeline(graph::PassRegistry::instance().pipeline(), graphs, context, options.after_pass);
  } else {
    replace_graphs(graphs, options.graphs, context);
    if (options.after_pass) options.after_pass("given", graphs);
  }
  std::vector<npu::Graph> lowered;
  for (graph::AnyGraph& any : graphs) {
    auto* graph = std::get_if<npu::Graph>(&any);
    TESSERA_INVARIANT(graph != nullptr, "the pipeline ends with graphs of tensors");
    lowered.push_back(std::move(*graph));
  }
  return package(function, selection, lowered, config, options);
}

}  // namespace tessera::partition
