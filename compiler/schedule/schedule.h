// SPDX-License-Identifier: Apache-2.0
// The Schedule of one loop nest: the intrinsic that computes a tile, an ordered list of levels over the nest's
// dimensions and, for each operand, inside how many levels it is fetched and in how many copies. Everything else (tile
// extents, slots, footprints, legality, DRAM traffic) is derived here and in rules.cc from the nest's accesses, so that
// a generator, a file given by the user and a tuner are judged by the same rules. Every field changes the program, or a
// rule refuses it. Outside forms: json.h, nest_text.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/schedule/intrinsic.h"
#include "compiler/schedule/nest.h"
#include "isa/config.h"

namespace tessera::schedule {

/// temporal: iterations one after the other, each its own tile operations. vthread: `threads` neighbouring iterations
/// at once: each has its own copies of the operands that the dimension indexes, and they take the steps of the levels
/// further in by turns. hwloop: iterations inside an instruction; their product is the tile.
enum class LevelKind : uint8_t { kTemporal, kVthread, kHwloop };
inline constexpr std::array<std::string_view, 3> kLevelKindNames = {"temporal", "vthread", "hwloop"};

struct Level {
  Dim dim = Dim::kN;
  int64_t factor = 1;
  LevelKind kind = LevelKind::kTemporal;
  int64_t threads = 1;  // of a vthread level: 2 to factor
  bool outer() const { return kind != LevelKind::kHwloop; }
  bool operator==(const Level&) const = default;
};

/// What happens to input rows that two neighbouring tiles share. reload: both fetch them. keep: a slot is a window that
/// holds the rows of all tiles of the innermost outer level of oh; each tile fetches those that its predecessors have
/// not.
enum class Halo : uint8_t { kReload, kKeep };
inline constexpr std::array<std::string_view, 2> kHaloNames = {"reload", "keep"};

enum class Operand : uint8_t { kInput, kWeights, kSums, kSecond, kOutput, kParams };
inline constexpr int kOperands = 6;
inline constexpr std::array<std::string_view, kOperands> kOperandNames = {"input",  "weights", "sums",
                                                                          "second", "output",  "params"};

/// One number for each operand.
using PerOperand = std::array<int64_t, kOperands>;
/// Entries of a tile of each operand.
inline PerOperand sizes_of(const Footprint& f) { return {f.input, f.weights, f.sums, f.second, f.output, f.params}; }

/// A number that is left to what follows from the levels.
inline constexpr int kDerived = -1;

struct OperandPlan {
  Operand operand = Operand::kInput;
  /// Where it stands, if there is a choice (input_scopes); nothing: its only place, or the first of them.
  std::optional<isa::Space> scope;
  /// Of what is fetched: inside how many of the outer levels. Its tiles of the levels further in stay on chip, and each
  /// iteration of the levels further out fetches them again. kDerived: as far out as its copies allow.
  int attach = kDerived;
  /// Slots of its ring. kDerived: the tiles that attach keeps, for each virtual thread that indexes them.
  int copies = kDerived;
  Halo halo = Halo::kReload;  // of the input
  bool operator==(const OperandPlan&) const = default;
};

struct Schedule {
  const Intrinsic* intrinsic = nullptr;  // how a tile is computed; every legal schedule has one
  InputLayout input_layout;              // which of the layouts of the input it is for (first-layer folding)
  std::vector<Level> levels;             // outermost first: temporal and vthread, then hwloop
  std::vector<OperandPlan> operands;     // those the nest has; nothing is derived for one that is missing
  /// The first and the last tile are fetched, computed and stored in strips of at least so many entries of the result,
  /// so that neighbouring nests overlap; 0: these tiles are whole, too.
  int64_t strips = 0;

  /// Extents of one tile: products of the hwloop factors.
  Extents tile() const;
  /// Levels around a tile.
  int outer_levels() const;
  bool threaded() const;
  /// Whether the input keeps its rows; then output rows of a window, else of a tile.
  bool keeps_rows() const;
  int64_t window_rows() const;
  const OperandPlan* plan(Operand operand) const;
  bool operator==(const Schedule&) const = default;
};

/// The schedule in one line: iterations outermost first | the tile | copies that do not follow from them, as
/// "oh:14x2 oc:2 | oh4 ow56 oc2 kh3 kw3 | input3 weights2k"; x: threads, k: rows are kept. Behind it stand a layout
/// that is not the usual one, and an intrinsic that is not the core's.
std::string in_short(const Schedule& schedule);

/// Whether a tile of the operand depends on a dimension.
bool indexes(const Nest& nest, Operand operand, Dim dim);

/// Where an operand may stand, the usual place first: the input of an ALU nest of bytes in INP or OUT if their entries
/// have the same lanes; one place else.
std::vector<isa::Space> input_scopes(const Nest& nest, const isa::MachineConfig& config);
/// Where a schedule puts the input.
isa::Space input_scope(const Nest& nest, const Schedule& schedule);

/// Whether the operand is fetched from DRAM into slots of its own, so that it has an attach.
bool fetched(const Nest& nest, Operand operand);

/// Tiles of the operand that the iterations inside `attach` levels come to.
int64_t kept_tiles(const Nest& nest, const Schedule& schedule, Operand operand, int attach);
/// Inside how many levels it is fetched: the given number, or what follows.
int attach_of(const Nest& nest, const Schedule& schedule, Operand operand);
/// Copies that follow from levels and attach alone.
int64_t derived_copies(const Nest& nest, const Schedule& schedule, Operand operand, int attach);
/// Slots of its ring: the given number, or what follows. 0 when the schedule has no such operand.
int64_t copies_of(const Nest& nest, const Schedule& schedule, Operand operand);

/// Strips that a searcher chooses from; the makers of schedules take the first.
inline constexpr std::array<int64_t, 4> kStrips = {64, 0, 128, 32};
/// Of so many positions, of so many entries each, those that a strip of at least so many entries has.
int64_t strip_size(int64_t positions, int64_t entries_each, int64_t entries);
/// Whether the tiles of a nest can be cut into strips.
bool may_strip(const Nest& nest);

/// The same schedule in its one canonical form: no strips where there can be none, attach of what is fetched as a
/// number, copies only where they do not follow, a scope only where there is a choice.
Schedule canonical(const Nest& nest, const isa::MachineConfig& config, Schedule schedule);

/// Entries of each scratchpad.
struct Capacity {
  std::array<int64_t, isa::kSpaces> entries{};
  int64_t& operator[](isa::Space space) { return entries[static_cast<size_t>(space)]; }
  bool fits(const isa::MachineConfig& config) const;
  /// Which scratchpad is too small, if one is: "inp needs 3000 entries of 2048".
  std::string reason(const isa::MachineConfig& config) const;
};
/// Adds what slots of the given number take.
void add_use(Capacity& use, const Footprint& footprint, const PerOperand& copies, isa::Space input_scope);

/// Rules of tiles that no split of an instruction can mend.
bool encodable(const Nest& nest, const Intrinsic& intrinsic, const Extents& tile);

/// Why the plan of one operand, which stands in the schedule, breaks a rule, whatever the plans of others.
std::string plan_obstacle(const Nest& nest, const Schedule& schedule, const OperandPlan& plan,
                          const isa::MachineConfig& config);

/// Why a schedule breaks a rule or exceeds a scratchpad; nothing for a legal one.
std::string obstacle(const Nest& nest, const Schedule& schedule, const isa::MachineConfig& config);

/// Loops around a tile, outermost first, as the makers of schedules see them.
struct Loop {
  Dim dim = Dim::kN;
  int64_t factor = 1;
};

/// The schedule of a tile, the loops around it and the copies of operands that fit: two of everything first, then those
/// that save fetches, then a few to fetch ahead, with virtual threads on the innermost loop. `single`: no virtual
/// threads, one copy of each. `kept` > 0: the input keeps rows in windows of that many tiles of oh, the innermost of
/// its loops. `intrinsic`: nothing is the core's.
Schedule make_schedule(const Nest& nest, const isa::MachineConfig& config, const Extents& tile,
                       const std::vector<Dim>& order, bool single = false, int64_t kept = 0,
                       const Intrinsic* intrinsic = nullptr);

/// Bytes of one run in DRAM when chunks x blocks of channels of `pixels` neighbouring pixels are moved.
int64_t run_bytes(const ChannelMap& map, const Access& access, int64_t chunks, int64_t blocks, int64_t pixels,
                  int64_t batch);

/// Distinct values ceil(extent / k), thinned to ratios of about `ratio`, largest first; at most `limit` large; 1 is
/// always one.
std::vector<int64_t> candidate_extents(int64_t extent, double ratio, int64_t limit);

}  // namespace tessera::schedule
