// SPDX-License-Identifier: Apache-2.0
// The best schedule of a single operation by looking at all of its space. The operation's tiles with their bounds
// enter, least bound first, and a judge of instruction streams. One tile after the other is closed: each of its
// schedules has been measured, or its program cannot take less than the best one (emit/least.h), or it is the same
// program as one before. The best schedule that was met leaves, and what no schedule is below. The work can be
// interrupted and taken up again at any schedule.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "compiler/npu/planning/course.h"
#include "compiler/schedule/bound.h"
#include "compiler/schedule/cost_model.h"

namespace tessera::npu {

struct NestTile {
  const schedule::Nest* nest = nullptr;
  schedule::TileBound of;
};

/// A digest of all that the cycles of a stream depend on: two streams with the same one differ in the places of slots
/// in the scratchpads alone.
Digest digest_of(const schedule::InstructionStream& stream, const isa::MachineConfig& config);

class Exhaustion {
 public:
  /// The stream of a schedule that fits the machine of that configuration.
  using Lower = std::function<schedule::InstructionStream(const schedule::Schedule&, const isa::MachineConfig&)>;
  /// Its cycles.
  using Judge = std::function<int64_t(const schedule::InstructionStream&)>;

  /// All references outlive it. `tiles`: least bound first.
  Exhaustion(const Task& task, const std::vector<NestTile>& tiles, const schedule::Machine& machine,
             const Options& options, Lower lower, Judge judge);

  struct Standing {
    size_t closed = 0;                       // tiles, those of the least bounds
    int64_t schedules = 0;                   // whose order, slots and strips differ from those before
    int64_t programs = 0;                    // that were measured
    std::optional<schedule::Schedule> best;  // of those
    int64_t cycles = 0;                      // its
    int64_t cut = kNothing;                  // the least bound of a program in a closed tile that was not measured
    bool broken = false;  // a schedule takes less than its tile's bound or its program's: nothing is proven
  };
  static constexpr int64_t kNothing = std::numeric_limits<int64_t>::max();
  const Standing& standing() const { return standing_; }

  /// Closes tiles whose bound is below `share` of the best schedule, of `known` cycles or of one that is met, for so
  /// many seconds; programs whose bound is not below it are left out. With a larger share than before tiles are closed
  /// anew where a program was left out that may be better. Says whether none of these tiles is open.
  bool go_on(int64_t known, double share, double seconds);

 private:
  /// Measures schedules of the first open tile until `over` says so; whether it is closed.
  bool close(const std::function<bool()>& over);
  /// The groups of one order, from `group_` on; whether they are through.
  bool close_order(const std::function<bool()>& over);
  struct Waiting;
  /// Looks at the group's schedules with these choices: at what all of them cannot be below, or at the only one.
  void look(const CourseGroup& group, const Waiting& at);
  void measure(const schedule::Schedule& schedule);
  /// What no program with at least these waits is below.
  int64_t least(const schedule::InstructionStream& stream) const;
  /// What no program with the open tile is below that fetches so many bytes of the input and of weights.
  int64_t least(int64_t bytes) const;
  /// Whether that is enough to leave these programs out.
  bool cut(int64_t least);
  int64_t best() const { return standing_.best ? std::min(known_, standing_.cycles) : known_; }
  /// What a tile or a program has to be below.
  double limit() const { return share_ * static_cast<double>(best()); }
  void leave_tile();

  const Task& task_;
  const std::vector<NestTile>& tiles_;
  const schedule::Machine& machine_;
  const Options& options_;
  const Lower lower_;
  const Judge judge_;
  const isa::MachineConfig roomy_;  // the same machine with scratchpads that hold the most slots of everything
  Standing standing_;
  int64_t known_ = 0;
  double share_ = 0;
  // Of the first open tile.
  std::optional<Courses> courses_;
  size_t order_ = 0, group_ = 0;
  std::vector<CourseGroup> groups_;  // of the order
  /// Choices in the group that are to be looked at, the next one last.
  struct Waiting {
    std::vector<size_t> chosen;
    bool bounded = false;  // what they cannot be below is known, and is below the limit
  };
  std::vector<Waiting> waiting_;
  std::set<Digest> groups_seen_, seen_, measured_;
  int64_t other_bytes_ = 0;  // of DRAM, that every schedule of its nest moves
};

}  // namespace tessera::npu
