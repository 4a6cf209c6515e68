// SPDX-License-Identifier: Apache-2.0
// The Schedule of one loop nest: an ordered list of levels over its dimensions and, for each operand, where it lives,
// at which level it is fetched and in how many copies. Everything else (tile extents, footprints, legality, DRAM
// traffic, an estimate of cycles) is derived here from the nest's accesses, so that a generator, a file given by the
// user and a tuner are judged by the same rules. JSON is the outside form.
#pragma once

#include <string>
#include <vector>

#include "compiler/schedule/nest.h"
#include "isa/config.h"

namespace tessera::schedule {

/// temporal: iterations one after the other, each its own tile operations. vthread: the same, and neighbouring
/// iterations overlap in separate copies of every operand they index. hwloop: iterations inside an instruction. lane:
/// inside an entry.
enum class LevelKind : uint8_t { kTemporal, kVthread, kHwloop, kLane };
inline constexpr std::array<std::string_view, 4> kLevelKindNames = {"temporal", "vthread", "hwloop", "lane"};

struct Level {
  Dim dim = Dim::kN;
  int64_t factor = 1;
  LevelKind kind = LevelKind::kTemporal;
  bool operator==(const Level&) const = default;
};

/// What happens to input rows that two neighbouring tiles share. reload: both fetch them. keep: a slot is a window that
/// holds the rows of all tiles of the innermost temporal level of oh; each tile fetches those that its predecessors
/// have not.
enum class Halo : uint8_t { kReload, kKeep };
inline constexpr std::array<std::string_view, 2> kHaloNames = {"reload", "keep"};

enum class Operand : uint8_t { kInput, kWeights, kSums, kSecond, kOutput, kParams };
inline constexpr int kOperands = 6;
inline constexpr std::array<std::string_view, kOperands> kOperandNames = {"input",  "weights", "sums",
                                                                          "second", "output",  "params"};

inline constexpr int kDerived = -1;

struct OperandPlan {
  Operand operand = Operand::kInput;
  isa::Space scope = isa::Space::kInp;
  int attach = 0;  // number of outer levels inside which the operand is fetched
  int copies = 1;  // tiles of it that live at once
  Halo halo = Halo::kReload;
  std::string layout;  // order of the dimensions inside the scope, slowest first
  bool operator==(const OperandPlan&) const = default;
};

struct Schedule {
  std::vector<Level> levels;          // outermost first: temporal and vthread, then hwloop, then lane
  std::vector<OperandPlan> operands;  // those the nest has
  std::string input_layout = "nhwc";  // which of the layouts of the input it is for (first-layer folding)

  /// Extents of one tile: products of the hwloop factors.
  Extents tile() const;
  /// Whether the input keeps its rows; then output rows of a window, else of a tile.
  bool keeps_rows() const;
  int64_t window_rows() const;
  int copies(Operand operand) const;  // 0 when the nest has no such operand
  bool operator==(const Schedule&) const = default;
};

/// JSON text of a schedule, and back. Errors of from_json: kInvalidArgument naming the key.
std::string to_json(const Schedule& schedule);
Schedule from_json(const std::string& text);

/// The schedules of an operation's parts as one text, and back: one schedule stands alone, several are a JSON list.
std::string join_json(const std::vector<std::string>& schedules);
std::vector<std::string> split_json(const std::string& text);

/// What a schedule costs. legal = false: `reason` says which capacity or rule it breaks.
struct Evaluation {
  bool legal = false;
  std::string reason;
  Footprint footprint;
  int64_t tiles = 0;  // output tiles times reduction tiles
  int64_t read_bytes = 0, write_bytes = 0;
  int64_t gemm_cycles = 0, alu_cycles = 0, load_cycles = 0, store_cycles = 0;
  int64_t cycles = 0;  // estimate of the whole nest
};

/// The operand dimensions: whether a tile of the operand depends on a dimension.
bool indexes(const Nest& nest, Operand operand, Dim dim);

/// Inside how many of the outer levels an operand is fetched: the innermost that it has; with kKeep the one before.
int attach_of(const Nest& nest, const std::vector<Level>& levels, Operand operand, Halo halo);

/// The schedule of a tile and the loops around it, outermost first, with the copies of operands that fit. `single`: one
/// copy of each, so that fetching cannot hide behind computing. `kept` > 0: the input keeps rows in windows of that
/// many tiles of oh, the innermost of its loops.
Schedule make_schedule(const Nest& nest, const isa::MachineConfig& config, const Extents& tile,
                       const std::vector<Dim>& order, bool single = false, int64_t kept = 0);

/// Fills in what a given schedule leaves open because levels and nest decide it: attach (kDerived), layouts (empty),
/// lane levels (none). Returns why the rest of it contradicts them, or nothing.
std::string complete(const Nest& nest, const isa::MachineConfig& config, Schedule& schedule);

/// Judges a schedule for a nest: rules, capacities, traffic, estimate.
Evaluation evaluate(const Nest& nest, const Schedule& schedule, const isa::MachineConfig& config);

/// What a schedule is chosen by.
struct Goal {
  bool single = false;          // one copy of each operand, as in make_schedule
  double traffic_weight = 0.2;  // of a cycle, for each cycle of the bus: bytes cost energy, and time that neighbours
                                // could use, even where they hide behind products
  /// Cycles and DRAM bytes as one figure to be made small.
  double score(int64_t cycles, int64_t bytes, const isa::MachineConfig& config) const;
};

/// The generator: the legal schedule of least estimated score over tile extents and loop orders; deterministic.
/// Errors: kDoesNotFit when not even single entries fit.
Schedule generate(const Nest& nest, const isa::MachineConfig& config, const Goal& goal = {});

/// The first `count` of them, best first, of which at most two differ in their tiles of pixels alone. At least one.
std::vector<Schedule> generate_several(const Nest& nest, const isa::MachineConfig& config, size_t count,
                                       const Goal& goal = {});

/// Bytes of one run in DRAM when chunks x blocks of channels of `pixels` neighbouring pixels are moved.
int64_t run_bytes(const ChannelMap& map, const Access& access, int64_t chunks, int64_t blocks, int64_t pixels,
                  int64_t batch);

/// Distinct values ceil(extent / k), thinned to ratios of about `ratio`, largest first; at most `limit` large; 1 is
/// always one.
std::vector<int64_t> candidate_extents(int64_t extent, double ratio, int64_t limit);

}  // namespace tessera::schedule
