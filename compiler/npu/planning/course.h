// SPDX-License-Identifier: Apache-2.0
// Which schedules of a tile become the same program, and which become programs that differ in little, without making
// them. A program depends on its schedule by the order of the tiles, by the slots that the tiles of operands take in
// turn, by the place and the kept rows of the input, and by the sizes of strips. A task, a nest and a tile enter;
// schedules that differ in one of these leave, each with a digest of them, in groups that differ in the slots of rings
// alone.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "compiler/npu/tasks/task.h"
#include "compiler/schedule/points.h"

namespace tessera::npu {

/// 128 bits of a sequence of numbers, so that two that differ have different ones.
struct Digest {
  uint64_t a = 0x6c62272e07bb0142u, b = 0x62b821756295c58du;
  void add(uint64_t number);
  void add(const Digest& other);
  auto operator<=>(const Digest&) const = default;
};

/// A plan of an operand. `digest`: of the slots that its tiles take; `fetches`: of which of them are fetched; `bytes`:
/// that this brings at least.
struct PlanChoice {
  schedule::OperandPlan plan;
  Digest digest, fetches;
  int64_t bytes = 0;
};

/// Schedules with the same order, the same fetches and strips. Each of the `free` operands has any of some rings,
/// fewest slots first: with more of them its tiles wait for less, and nothing else changes.
struct CourseGroup {
  schedule::Schedule frame;  // has a plan for each operand
  Digest digest;             // of what is the same
  struct Free {
    size_t at = 0;  // of the frame's operands
    std::vector<PlanChoice> choices;
  };
  std::vector<Free> free;

  /// The schedule in which the first operands have these choices, and the others the most slots.
  schedule::Schedule with(const std::vector<size_t>& chosen) const;
  /// Of one in which all are chosen.
  Digest digest_with(const std::vector<size_t>& chosen) const;
  /// Of all its schedules.
  Digest digest_of_all() const;
};

/// The schedules of one tile, in an order that is always the same.
class Courses {
 public:
  /// All references outlive it.
  Courses(const Task& task, const schedule::Nest& nest, const isa::MachineConfig& config, const Options& options,
          const schedule::Intrinsic& intrinsic, const schedule::Extents& tile);

  /// How many orders of loops there are; schedules come by these.
  size_t orders() const { return loops_.size(); }
  /// All schedules of that order, legal and not, of those with equal digests one with the fewest slots. Those are left
  /// out of which `worth` says no: it is asked for bytes that are fetched at least.
  std::vector<CourseGroup> of_order(size_t order, const std::function<bool(int64_t)>& worth) const;

 private:
  std::vector<PlanChoice> choices(const schedule::Schedule& loops, schedule::Operand operand) const;
  /// Strips that differ in what they make of the first and of the last tile.
  std::vector<std::pair<int64_t, Digest>> strips(schedule::Schedule made) const;

  const Task& task_;
  const schedule::Nest& nest_;
  const isa::MachineConfig& config_;
  const Options& options_;
  const schedule::TilePoints points_;
  const std::vector<schedule::Schedule> loops_;
};

}  // namespace tessera::npu
