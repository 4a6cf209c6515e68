// SPDX-License-Identifier: Apache-2.0
// The registry, the manager and files of several graphs; see pass.h.
#include "compiler/graph/pass.h"

#include <algorithm>

#include "base/error.h"
#include "base/step_times.h"
#include "compiler/graph/passes.h"
#include "compiler/npu/input/check.h"
#include "compiler/npu/input/graph_text.h"
#include "compiler/schedule/registry.h"

namespace tessera::graph {
namespace {

template <typename... Visits>
struct Overloaded : Visits... {
  using Visits::operator()...;
};

const std::string& name_of(const AnyGraph& graph) {
  return std::visit([](const auto& g) -> const std::string& { return g.name; }, graph);
}

constexpr const char* level_of(const ValueGraph&) { return "values"; }
constexpr const char* level_of(const npu::Graph&) { return "tensors"; }

template <typename Graph>
Graph& level(AnyGraph& graph) {
  if (auto* found = std::get_if<Graph>(&graph)) return *found;
  throw Error(ErrorCode::kInvalidArgument, std::string("it takes a graph of ") + level_of(Graph{}) +
                                               ", and this one is of " +
                                               std::visit([](const auto& g) { return level_of(g); }, graph));
}

}  // namespace

PassRegistry::PassRegistry()
    : passes_{{"assign-layouts", "Gives each value strides into a tensor of the device.", LoweringPass(assign_layouts)},
              {"transpose-factors", "Transposes factors of products where that pays.", transpose_factors},
              {"fold-layout", "Makes tensors in the order and place in which they are read.", fold_layout},
              {"fuse-stages", "Joins element-wise operations to their producers.", fuse_stages},
              {"fold-borders", "Puts a border around inputs whose first layer is folded.", fold_borders},
              {"order-factors", "Does first what stands between a product and its input.", order_factors},
              {"mark-chains", "Says which results may stay on chip for the next operation.", mark_chains},
              {kPlaceChains, "Says which tensors stay on chip, and so which operations form chains.", place_chains}},
      pipeline_{"assign-layouts", "transpose-factors", "fold-layout", "fuse-stages", "fold-layout",
                "fold-borders",   "order-factors",     "mark-chains", kPlaceChains} {}

PassRegistry& PassRegistry::instance() {
  static PassRegistry registry;
  return registry;
}

void PassRegistry::add(Pass pass, const Place& place) {
  if (std::any_of(passes_.begin(), passes_.end(), [&](const Pass& p) { return p.name == pass.name; }))
    throw Error(ErrorCode::kInvalidArgument, "a pass named '" + pass.name + "' is registered already");
  if (!place.after.empty()) {
    const auto at = std::find(pipeline_.rbegin(), pipeline_.rend(), place.after);
    if (at == pipeline_.rend()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "pass '" + pass.name + "' wants to run after '" + place.after + "', which the pipeline does not run");
    }
    pipeline_.insert(at.base(), pass.name);
  }
  passes_.push_back(std::move(pass));
}

const Pass& PassRegistry::find(std::string_view name) const {
  const auto found = std::find_if(passes_.begin(), passes_.end(), [&](const Pass& p) { return p.name == name; });
  if (found != passes_.end()) return *found;
  std::string known;
  for (const Pass& pass : passes_) known += (known.empty() ? "" : ", ") + pass.name;
  throw Error(ErrorCode::kInvalidArgument, "there is no pass '" + std::string(name) + "'; known: " + known);
}

RegisterPass::RegisterPass(Pass pass, const Place& place) {
  schedule::guarded_registration([&] { PassRegistry::instance().add(std::move(pass), place); });
}

void verify(const AnyGraph& graph) {
  std::visit(Overloaded{[](const ValueGraph& g) { check_values(g); }, [](const npu::Graph& g) { npu::check_graph(g); }},
             graph);
}

void run_pass(const Pass& pass, AnyGraph& graph, const PassContext& context) {
  const std::string where = "pass '" + pass.name + "' on graph @" + name_of(graph) + ": ";
  const auto named = [&](const std::string& what) { return what.starts_with("node '") ? what : where + what; };
  try {
    std::visit(Overloaded{[&](const ValuePass& run) { run(level<ValueGraph>(graph), context); },
                          [&](const LoweringPass& run) { graph = run(level<ValueGraph>(graph), context); },
                          [&](const GraphPass& run) { run(level<npu::Graph>(graph), context); }},
               pass.run);
  } catch (const Error& error) {
    throw Error(error.code(), named(error.what()));
  }
  try {
    verify(graph);
  } catch (const Error& error) {
    throw Error(ErrorCode::kInternal, where + "what it leaves breaks a rule: " + error.what());
  }
}

void run_pipeline(const std::vector<std::string>& pipeline, std::vector<AnyGraph>& graphs, const PassContext& context,
                  const Observer& observer) {
  for (const std::string& name : pipeline) {
    const Pass& pass = PassRegistry::instance().find(name);
    const TimedStep times(context.options.times.get(), name);
    for (AnyGraph& graph : graphs) run_pass(pass, graph, context);
    if (observer) observer(name, graphs);
  }
}

std::string to_text(const std::vector<AnyGraph>& graphs, bool elide) {
  text::Printer printer;
  text::Constants constants(elide);
  for (const AnyGraph& graph : graphs) std::visit([&](const auto& g) { print(g, printer, constants); }, graph);
  constants.print(printer);
  return printer.take();
}

std::vector<AnyGraph> graphs_from_text(std::string_view text, const std::string& source) {
  const text::Constants constants = text::Constants::find(text, source);
  text::Reader reader(text, source);
  std::vector<AnyGraph> graphs;
  while (!reader.at_end()) {
    if (reader.at("npu.graph")) {
      graphs.emplace_back(npu::read_graph(reader, constants));
    } else if (reader.at("value.graph")) {
      graphs.emplace_back(read_values(reader, constants));
    } else if (reader.at("constants")) {
      text::Constants::read(reader);
      if (!reader.at_end()) reader.fail("expected the end of the text behind the constants");
    } else {
      reader.fail("expected npu.graph, value.graph or constants");
    }
  }
  return graphs;
}

}  // namespace tessera::graph
