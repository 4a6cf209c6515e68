// SPDX-License-Identifier: Apache-2.0
// A graph on the bench of a tuner, for a chip of several cores. A checked graph and the machine enter; each core's
// operations leave as a workbench of their own, under divisions that are given or that a compilation chooses. What
// schedules of all cores cost together is the cost of the program that a compilation makes of them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/npu/graph/graph.h"
#include "compiler/npu/workbench.h"

namespace tessera::npu {

class ChipBench {
 public:
  /// Divisions that the options give are taken; their schedules of parts are not. Errors: those of compile().
  ChipBench(Graph graph, const isa::MachineConfig& config, const Options& options);

  const Graph& graph() const { return graph_; }
  /// By operation.
  std::vector<schedule::Division> divisions() const;
  /// Other divisions of an operation: along each axis and by each core, and the present one with a unit moved from a
  /// core to its neighbour or with another answer to whether each core makes what it reads of the result.
  std::vector<schedule::Division> ways(size_t operation) const;

  /// The operations of a core, in order.
  struct Part {
    size_t core = 0;
    std::vector<size_t> operations;  // by operation of the bench: that of the graph
    std::unique_ptr<Workbench> bench;
  };
  /// Cores without operations have none.
  const std::vector<Part>& parts() const { return parts_; }

  /// What a compilation under these divisions chooses, by part, in order of operations. `kept`: schedules that it
  /// takes, by operation of the graph and core.
  using Kept = std::map<std::pair<size_t, size_t>, schedule::LayerSchedule>;
  std::vector<std::vector<Placed>> chosen(const Kept& kept = {}) const;
  /// The program under schedules of all operations, by part. Errors: those of compile().
  Program program(const std::vector<std::vector<Placed>>& schedules) const;

 private:
  const Graph graph_;
  const isa::MachineConfig config_;
  Options options_;  // with divisions of all operations
  mutable std::optional<Program> chosen_;
  std::vector<Part> parts_;
};

}  // namespace tessera::npu
