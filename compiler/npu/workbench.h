// SPDX-License-Identifier: Apache-2.0
// Single layers and chains of a graph on the bench of a tuner. A checked graph and the machine enter; its pieces leave
// (an operation, or a few that can be a chain), each with the space of its schedules, and the cost of any schedule by
// any judge: of a piece alone, of a window of neighbours, of the whole graph. Nothing here chooses.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/npu/planning/exhaust.h"
#include "compiler/npu/planning/planner.h"
#include "compiler/schedule/space.h"

namespace tessera::npu {

/// An operation, or neighbours that can be a chain.
struct Piece {
  size_t first = 0, count = 1;
  std::string key;  // what the cost of its schedules depends on, beside machine and memory
};

/// A schedule where it stands: it begins at operation `first`.
struct Placed {
  size_t first = 0;
  schedule::LayerSchedule schedule;
};

class Workbench {
 public:
  /// A checked graph, or a core's part of one. Scopes of tensors are open: any cut into chains may be judged.
  Workbench(Graph graph, const isa::MachineConfig& config, const Options& options);
  ~Workbench();

  const Graph& graph() const { return graph_; }
  const schedule::Machine& machine() const { return machine_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  /// Of all operations in order: graphs with the same key are scheduled alike.
  std::string key() const;

  /// What a compilation without any given schedule chooses, in order of operations; a chain stands once.
  std::vector<Placed> chosen() const;
  /// The generator's candidates for a piece by its searcher, best first by the judge of the options.
  std::vector<schedule::LayerSchedule> candidates(size_t piece, const std::string& searcher, size_t count) const;

  /// Points of the piece's space; layouts and nests multiply or add.
  schedule::Index size(size_t piece) const;
  /// Errors: kDoesNotFit when none was met.
  schedule::LayerSchedule sample(size_t piece, schedule::Dice& dice) const;
  schedule::LayerSchedule mutate(size_t piece, const schedule::LayerSchedule& from, schedule::Dice& dice) const;
  schedule::LayerSchedule cross(size_t piece, const schedule::LayerSchedule& a, const schedule::LayerSchedule& b,
                                schedule::Dice& dice) const;
  /// Why a schedule is not legal for a piece; "" if it is.
  std::string obstacle(size_t piece, const schedule::LayerSchedule& schedule) const;

  /// Cycles that no schedule of a single operation can be below, run once, by the tiles of its nests, least first: for
  /// each number of cycles how many tiles have it. Empty for chains.
  std::map<int64_t, int64_t> bounds(size_t piece) const;

  /// Of a single operation of one nest: what looks at all schedules of its tiles by this judge, as the call before has
  /// left it. Null for other pieces.
  Exhaustion* exhaustion(size_t piece, schedule::CostModel& judge) const;
  /// The same from the beginning, of a single operation of one nest, by any judge.
  Exhaustion plain_exhaustion(size_t piece, Exhaustion::Judge judge) const;

  /// Of a legal schedule, the piece alone. Errors: kInvalidArgument with the rule that is broken.
  schedule::Cost alone(size_t piece, const schedule::LayerSchedule& schedule, schedule::CostModel& judge) const;
  /// Of neighbours one behind the other, in one stream. Errors: as alone; kInvalidArgument where they leave a gap or
  /// the judge looks at no streams.
  schedule::Cost together(const std::vector<Placed>& schedules, schedule::CostModel& judge) const;
  /// Of all operations as a compilation places their tensors, keeps values on the chip and fetches weights. Errors: as
  /// together; kInvalidArgument where an operation is left out.
  schedule::Cost whole(const std::vector<Placed>& schedules, schedule::CostModel& judge) const;

 private:
  struct Entry;  // of a piece: its tasks or its chain, and its spaces, made when first asked for
  Entry& entry(size_t piece) const;
  void find_tiles(Entry& of) const;
  size_t piece_of(size_t first, const schedule::LayerSchedule& schedule) const;
  Unit unit_of(size_t piece, const schedule::LayerSchedule& schedule) const;
  Unit unit_here(size_t piece, const schedule::LayerSchedule& schedule) const;
  /// The same graph on the machine without depthwise rasters in pairs.
  const Workbench& plain() const;
  /// One behind the other. Errors: kInvalidArgument.
  std::vector<Unit> units_of(const std::vector<Placed>& schedules) const;
  void append(const std::vector<Unit>& units, Emitter& emitter) const;
  struct Arrangement {  // of the whole graph
    std::vector<Unit> units;
    MemoryPlan plan;
  };
  /// Moves the units of the whole graph to the places that tensors have under their cut.
  const MemoryPlan& arrange(std::vector<Unit>& units) const;
  const schedule::Nest& head_of(const Chain& chain, const schedule::ChainSchedule& given,
                                std::optional<schedule::ChainPlan>* plan, std::string* reason) const;

  Graph graph_;
  const isa::MachineConfig config_;
  Options options_;
  const schedule::Machine machine_;
  std::vector<Placement> placements_;
  std::vector<Piece> pieces_;
  std::map<std::pair<size_t, size_t>, size_t> numbers_;  // of pieces, by first operation and count
  mutable std::map<size_t, std::unique_ptr<Entry>> entries_;
  mutable std::map<std::string, Arrangement> arrangements_;  // by cut
  mutable std::unique_ptr<Workbench> plain_;
};

}  // namespace tessera::npu
