// SPDX-License-Identifier: Apache-2.0
// All schedules of one tile of a nest's space (space.h), as choices that do not depend on each other: the loops around
// the tile with their virtual threads, a plan for each operand that these loops allow, and strips. A nest, a machine
// and a tile enter; the choices leave. A schedule of the space with this tile is one of each, if all slots fit. Beside
// the space's numbers of copies there are those that follow from the threads.
#pragma once

#include <functional>
#include <vector>

#include "compiler/schedule/schedule.h"

namespace tessera::schedule {

class TilePoints {
 public:
  /// All references outlive it.
  TilePoints(const Nest& nest, const isa::MachineConfig& config, const Intrinsic& intrinsic, const Extents& tile);

  /// Schedules without operands: every order of the loops, with one of them twice or none, and threads.
  std::vector<Schedule> loops() const;
  /// Operands that the tile has.
  std::vector<Operand> operands() const;
  /// Plans of an operand around which these loops stand, fewest copies of the same residence first. They break no rule;
  /// whether their slots fit beside those of others is not asked.
  std::vector<OperandPlan> plans(const Schedule& loops, Operand operand) const;
  std::vector<int64_t> strips() const;

 private:
  void add_orders(std::vector<Dim> outer, const std::vector<Dim>& reductions, std::optional<Dim> twice,
                  std::vector<Schedule>& to) const;
  void add_threads(const std::vector<Level>& levels, std::vector<Schedule>& to) const;

  const Nest& nest_;
  const isa::MachineConfig& config_;
  const Intrinsic& intrinsic_;
  const Extents tile_;
  PerOperand sizes_{};
};

}  // namespace tessera::schedule
