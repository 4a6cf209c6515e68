// SPDX-License-Identifier: Apache-2.0
// Who looks for schedules and chains. A subject, a machine and a cost model enter; a few legal candidates leave, best
// first by the model's score. The compiler then replays them and takes the best. "exhaustive" visits thinned candidates
// of every tile extent and loop order. A searcher of one's own derives from Searcher and is registered under a name, in
// a file of its own, as cost models are (cost_model.h).
#pragma once

#include "compiler/schedule/cost_model.h"

namespace tessera::schedule {

/// A candidate with what the searcher's model said.
template <typename Plan>
struct Ranked {
  Plan plan;
  Cost cost;
  double score = 0;
};

class Searcher {
 public:
  virtual ~Searcher() = default;
  /// At least one and at most `count` legal schedules of the subject's only nest, best first. With goal.single none has
  /// virtual threads. Errors: kDoesNotFit when not even single entries fit.
  virtual std::vector<Ranked<Schedule>> schedules(const Subject& subject, const Machine& machine, CostModel& model,
                                                  const Goal& goal, size_t count) = 0;
  /// At most `count` plans of the subject's nests as a chain, best first; none when no tile fits.
  virtual std::vector<Ranked<ChainPlan>> chains(const Subject& subject, const Machine& machine, CostModel& model,
                                                const Goal& goal, size_t count) = 0;
};

using MakeSearcher = std::function<std::unique_ptr<Searcher>()>;
Registry<MakeSearcher>& searchers();
/// Errors: kInvalidArgument for an unknown name.
std::unique_ptr<Searcher> make_searcher(const std::string& name);
struct RegisterSearcher {
  RegisterSearcher(const std::string& name, const std::string& what, MakeSearcher make) {
    guarded_registration([&] { searchers().add(name, what, std::move(make)); });
  }
};

/// The best schedule of a nest by the closed form.
Schedule generate(const Nest& nest, const Machine& machine, const Goal& goal = {});

}  // namespace tessera::schedule
