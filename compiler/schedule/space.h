// SPDX-License-Identifier: Apache-2.0
// All schedules of a nest, and all tiles of a chain, as spaces: counted, enumerated by number, sampled uniformly, and
// walked by mutation and crossover that keep legality. The searchers of a compilation look at a thinned part of them
// (search.cc); tuners look at the whole.
//
// A point has two levels. Its sketch is what stands where: the intrinsic, which dimensions are cut, the order of their
// loops, one dimension that may have a loop twice. Its annotation is the numbers: extents of the tile, how the doubled
// loop is cut, virtual threads, attach and copies of operands, kept rows, the input's scope. Sketches with the counts
// of their annotations number all points; a point that breaks a rule is no schedule. Each schedule of the space has one
// number.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/schedule/chain.h"
#include "compiler/schedule/schedule.h"

namespace tessera::schedule {

/// Numbers of points exceed 64 bits.
__extension__ using Index = unsigned __int128;

inline constexpr int64_t kMostThreads = 4;  // of a level
inline constexpr int64_t kSpare = 4;        // copies beyond those that stay: 0 to 3
inline constexpr int64_t kCuts = 8;         // ways to cut the dimension that has two loops: into 2 to 9

/// The loops of a tile, which stand inside an instruction.
std::vector<Level> hardware_loops(const Extents& tile);
/// Whether tiles of the nest may share rows of the input.
bool shares_rows(const Nest& nest);

/// A generator of numbers whose sequence depends on the seed alone, on every host (splitmix64).
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  uint64_t next();
  /// 0 to bound - 1, each as likely; bound > 0.
  uint64_t below(uint64_t bound);
  Index below_index(Index bound);
  bool chance(double share) { return static_cast<double>(next() >> 11) < share * 9007199254740992.0; }

 private:
  uint64_t state_;
};

class Space {
 public:
  /// Both outlive it.
  Space(const Nest& nest, const isa::MachineConfig& config);

  /// Points, legal or not.
  Index size() const { return size_; }
  /// The schedule of a number below size(), in canonical form; nothing where it breaks a rule.
  std::optional<Schedule> at(Index number) const;
  /// Every legal schedule is as likely. Nothing: none was met in `tries` points.
  std::optional<Schedule> sample(Dice& dice, int64_t tries = int64_t{1} << 20) const;

  /// A legal schedule that differs in a decision or a few; the given one itself where none was found.
  Schedule mutate(const Schedule& schedule, Dice& dice) const;
  /// A legal schedule with decisions of both; the first one itself where none was found.
  Schedule cross(const Schedule& a, const Schedule& b, Dice& dice) const;

  /// Extents that a tile may have in a dimension, largest first: those that cut it into equal parts but for the last.
  const std::vector<int64_t>& extents(Dim dim) const { return extents_[static_cast<size_t>(dim)]; }

 private:
  /// Loops of a sketch, outermost first; `doubled`: the position of the outer loop of the dimension that has two.
  struct Sketch {
    std::vector<Dim> loops;
    int doubled = -1;
    Index annotations = 0;  // without the extents of the tile
  };
  struct Group {
    uint32_t mask = 0;  // of the dimensions that are cut
    Index tiles = 1;    // of them
    std::vector<Sketch> sketches;
    Index size = 0;  // tiles times annotations
  };

  void add_group(uint32_t mask);
  Index annotations_of(const Sketch& sketch) const;
  std::vector<int> attachments(const std::vector<Dim>& loops, Operand operand) const;
  std::optional<Schedule> build(const Intrinsic& intrinsic, const Group& group, const Sketch& sketch, Index tile,
                                Index annotation) const;
  std::optional<Schedule> legal(Schedule schedule) const;

  void change_tile(Schedule& schedule, Dice& dice) const;
  void change_loops(Schedule& schedule, Dice& dice) const;
  static void change_threads(Schedule& schedule, Dice& dice);
  void change_operand(Schedule& schedule, Dice& dice) const;
  /// Fills in what follows from levels that have changed: attach and copies, in one of two ways.
  void refit(Schedule& schedule, Dice& dice) const;

  const Nest& nest_;
  const isa::MachineConfig& config_;
  std::vector<const Intrinsic*> intrinsics_;
  std::array<std::vector<int64_t>, kDims> extents_;
  std::vector<Operand> operands_;  // that a schedule may have
  size_t scopes_ = 1, strips_ = 1;
  bool may_keep_ = false;
  std::vector<Group> groups_;
  Index size_ = 0;
};

/// The tiles of a chain: rows and columns of the last link's output, blocks of the channels between.
class ChainSpace {
 public:
  explicit ChainSpace(const std::vector<const Nest*>& nests);
  Index size() const;
  ChainTile at(Index number) const;
  ChainTile sample(Dice& dice) const { return at(dice.below_index(size())); }
  ChainTile mutate(ChainTile tile, Dice& dice) const;
  static ChainTile cross(const ChainTile& a, const ChainTile& b, Dice& dice);

 private:
  std::array<std::vector<int64_t>, 3> values_;  // ascending: oh, ow, blocks
  bool may_hold_ = false;                       // with fewer blocks than all the input may come whole
  bool may_keep_ = false;                       // tiles may share rows
};

}  // namespace tessera::schedule
