// SPDX-License-Identifier: Apache-2.0
// Passes over graphs, by name. A pass takes a graph of one level and leaves one of the same or the next: values (no
// places yet) or tensors of the device. The manager runs a pipeline over all graphs of a model, verifies each graph
// after each pass, and shows the result to an observer, which may print it. Whoever links or loads code can register a
// pass and say where in the pipeline it runs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compiler/graph/value_graph.h"
#include "compiler/npu/graph/graph.h"
#include "isa/config.h"

namespace tessera::graph {

/// The last of the core's passes: the one that looks for schedules of the whole graph.
inline constexpr const char* kPlaceChains = "place-chains";

/// What a pass may ask besides its graph: the machine and the options of the compilation.
struct PassContext {
  const isa::MachineConfig& config;
  const npu::Options& options;
  /// The schedules that the user gives for the operations of a graph, by index; nothing: none.
  std::function<std::vector<std::optional<schedule::LayerSchedule>>(const npu::Graph&)> schedules = {};
};

using AnyGraph = std::variant<ValueGraph, npu::Graph>;

using ValuePass = std::function<void(ValueGraph&, const PassContext&)>;
using LoweringPass = std::function<npu::Graph(const ValueGraph&, const PassContext&)>;
using GraphPass = std::function<void(npu::Graph&, const PassContext&)>;

struct Pass {
  std::string name;     // words with '-' between them
  std::string summary;  // a sentence
  std::variant<ValuePass, LoweringPass, GraphPass> run;
};

/// Where a pass joins the default pipeline.
struct Place {
  std::string after;  // the last pass of this name; empty: it is not part of the pipeline
};

class PassRegistry {
 public:
  /// The core's passes and those that were registered. Not for use by several threads while one registers.
  static PassRegistry& instance();

  /// Errors: kInvalidArgument when the name is taken or `place` names no pass of the pipeline.
  void add(Pass pass, const Place& place = {});
  /// Errors: kInvalidArgument; the message lists the passes.
  const Pass& find(std::string_view name) const;
  const std::vector<Pass>& passes() const { return passes_; }
  /// Names in the order in which a compilation runs them; a pass may stand there several times.
  const std::vector<std::string>& pipeline() const { return pipeline_; }

 private:
  PassRegistry();
  std::vector<Pass> passes_;
  std::vector<std::string> pipeline_;
};

/// Registers a pass while the program or a plugin is loaded:
///   const RegisterPass kMine({"drop-copies", "...", drop_copies}, {.after = "fuse-stages"});
struct RegisterPass {
  explicit RegisterPass(Pass pass, const Place& place = {});
};

/// Called after each pass with its name and all graphs.
using Observer = std::function<void(const std::string& pass, const std::vector<AnyGraph>& graphs)>;

/// Runs one pass and verifies what it leaves. Errors: kInvalidArgument when the graph is of another level; kInternal
/// when what it leaves breaks a rule; what the pass throws. All name pass and graph, or
/// the node.
void run_pass(const Pass& pass, AnyGraph& graph, const PassContext& context);

/// Runs passes one after the other, each over all graphs.
void run_pipeline(const std::vector<std::string>& pipeline, std::vector<AnyGraph>& graphs, const PassContext& context,
                  const Observer& observer = {});

/// check_values or npu::check_graph.
void verify(const AnyGraph& graph);

/// All graphs and their constants.
std::string to_text(const std::vector<AnyGraph>& graphs, bool elide = false);
/// The reverse; each graph is verified. Errors: kInvalidArgument with source, line and column.
std::vector<AnyGraph> graphs_from_text(std::string_view text, const std::string& source = "text");

}  // namespace tessera::graph
