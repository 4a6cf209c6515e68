// SPDX-License-Identifier: Apache-2.0
// What searches have found, so that nobody looks twice: a pass that asks what would be best, the generator that then
// does it, and layers that are alike. Tasks enter as what their search depends on; candidates leave with their
// judgements. Weights, biases, what tables hold, zero points and the places of tensors do not count: a candidate is
// judged without them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/npu/graph/graph.h"
#include "compiler/npu/planning/search_log.h"
#include "compiler/npu/tasks/task.h"

namespace tessera::npu {

struct Chain;
struct Unit;

/// Something that may be chosen, and where the log describes it.
template <typename Plan>
struct Choice {
  Plan plan;
  size_t candidate = 0;  // in the candidates of its piece of the log
};

/// The candidates of one piece of work: all for the log, and the best, at least one, with the judge's score, best
/// first.
template <typename Plan>
struct Found {
  std::vector<SearchLog::Candidate> candidates;
  std::vector<std::pair<Choice<Plan>, double>> best;
  schedule::InputLayout layout;  // of a chain's first input
};

/// What was chosen for a unit between its neighbours, and how its candidates did there.
struct Settled {
  std::vector<schedule::Schedule> schedules;
  std::optional<schedule::ChainPlan> plan;
  size_t candidate = 0;
  std::vector<SearchLog::Candidate> candidates;
  std::vector<Choice<schedule::Schedule>> others;
  std::vector<Choice<schedule::ChainPlan>> plans;
};

/// For one machine and one set of options: what was found for others is not found here.
class SearchMemo {
 public:
  /// Binds an empty memo; false: it is bound to others.
  bool serves(const isa::MachineConfig& config, const Options& options);

  std::map<std::string, Found<schedule::Schedule>> tasks;
  std::map<std::string, std::optional<Found<schedule::ChainPlan>>> chains;  // nothing: there is no plan
  std::map<std::string, std::vector<Settled>> settled;                      // units behind each other at their places

 private:
  std::string bound_;
};

/// What the search for a task, or for a chain, depends on, as text.
std::string search_key(const Task& task);
std::string search_key(const Chain& chain);

/// What the instructions of units behind each other depend on beside the machine, the places of their tensors included.
std::string units_key(const std::vector<const Unit*>& units);

}  // namespace tessera::npu
