// SPDX-License-Identifier: Apache-2.0
// Chains: consecutive nests whose intermediate results never leave the chip. The nests enter with the machine and a
// tile; a plan leaves: the tile of the last nest's output, how many blocks of the middle channels one step takes, and a
// Schedule for each nest. The middle channels are those between the nests: a product may begin a chain (it makes them,
// a few blocks a step) and may end it (it sums over them), and between stand nests that treat each channel on its own.
// A product between them makes other channels than it takes: then a step has all channels of a tile.
// A step of the chain is one block of middle channels of one tile; nest s works on step q while nest s + 1 works on
// step q - 1. Columns that two tiles share are computed twice, and so are rows, unless the chain keeps them: then tiles
// go down the columns, and the vector unit moves the rows that the next tile needs again aside and back.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "compiler/schedule/schedule.h"

namespace tessera::schedule {

/// An interval of output rows (or columns) of one nest of a chain for one tile.
struct Interval {
  int64_t begin = 0, count = 0;
  int64_t kept = 0;  // positions in front of them that the next nest reads too and an earlier tile has computed
};

/// For each nest the rows (`rows`) or columns it computes so that the last one can compute `last`; an interval may be
/// empty where the next nest sees only padding. Nothing where a nest would skip positions of its input. `made`: for
/// each nest the end of what earlier tiles have computed and is kept, which moves on; nothing: every tile computes all
/// that it needs.
std::optional<std::vector<Interval>> chain_intervals(const std::vector<const Nest*>& nests, Interval last, bool rows,
                                                     std::vector<int64_t>* made = nullptr);

/// The pixels of a nest's output that hold these columns.
Interval pixels_of(const Nest& nest, const Interval& columns);

/// Slots that a link's weights have at most where not all of them stay: the compiler's choice, and what a space offers.
inline constexpr int64_t kWeightCopies = 4, kLeastWeightCopies = 2;
inline constexpr std::array<int64_t, 6> kChainCopies = {kLeastWeightCopies, 3, kWeightCopies, 6, 8, 12};

struct ChainTile {
  int64_t oh = 1, ow = 1;    // of the last nest's output
  int64_t blocks = 1;        // of middle channels in a step
  bool whole_input = false;  // a first link that treats each channel on its own gets all channels of a tile at once
  int64_t strips = 0;        // as of a schedule: the first link's first tile and the last one's last
  bool keeps_rows = false;   // rows that two tiles of a link share are computed once
  int64_t copies = kWeightCopies;  // slots that a link's weights have at most, where not all of them stay
  bool operator==(const ChainTile&) const = default;
};

/// A chain as it is written down: its operations by name, and the tile. The rest follows. Where the first link's input
/// may have several layouts, the one it has; without it the best one.
struct ChainSchedule {
  std::vector<std::string> links;
  ChainTile tile;
  std::optional<InputLayout> input_layout{};
  bool operator==(const ChainSchedule&) const = default;
};

/// How one operation is run: by a schedule for each of its nests, or as a link of a chain.
using LayerSchedule = std::variant<std::vector<Schedule>, ChainSchedule>;

/// Sums over the tiles of one spatial dimension.
struct Sweep {
  bool possible = true;  // no nest skips positions of its input
  int64_t tiles = 0;
  std::vector<int64_t> out, most_out;    // by nest: positions computed, in all tiles and in the largest
  std::vector<int64_t> span;             // positions of its input, padding included
  int64_t read = 0;                      // positions of the first nest's input that are fetched
  std::vector<int64_t> kept, most_kept;  // by nest: positions of its output that are kept, in all tiles and at most
};

struct ChainPlan {
  ChainTile tile;
  /// One for each nest: its largest tile, and copies; no plan for a result that stays on chip.
  std::vector<Schedule> schedules;
  int64_t steps = 0, chunks = 1;  // chunks: steps of a tile
  std::shared_ptr<const Sweep> rows, cols;
  std::vector<int64_t> kept;  // by nest: entries of OUT that hold the kept rows of its output
};

/// Blocks of channels that a link takes, and that it makes.
int64_t blocks_in(const Nest& nest);
int64_t blocks_out(const Nest& nest);

/// Whether a link that is neither the first nor the last one is a product.
bool product_between(const std::vector<const Nest*>& nests);

/// Whether a step has all channels: rows are walked whole, and a product between others sums over what it gets and
/// makes all that the next link takes.
bool takes_all_channels(const std::vector<const Nest*>& nests);

/// Blocks of the channels between the nests, which steps may divide: those that the first one makes.
int64_t middle_blocks(const std::vector<const Nest*>& nests);

/// Whether the whole_input of a tile decides anything: the first link fetches its input block by block otherwise.
bool may_hold_input(const std::vector<const Nest*>& nests, const ChainTile& tile);

/// Whether rows may be shared by two tiles of a link that the next one reads, so that a tile may keep them.
bool may_keep_rows(const std::vector<const Nest*>& nests);

/// Whether nests can be links of a chain in this order, whatever the tile: "" or the reason why not.
std::string chain_obstacle(const std::vector<const Nest*>& nests, const isa::MachineConfig& config);

/// Makes the plans of one chain for many tiles: what tiles of one height or width have in common is computed once.
class ChainPlanner {
 public:
  /// The nests are free of obstacles and outlive it.
  ChainPlanner(std::vector<const Nest*> nests, const isa::MachineConfig& config)
      : nests_(std::move(nests)), config_(config) {}
  /// Nothing when the tile does not fit (`reason` then says why).
  std::optional<ChainPlan> plan(const ChainTile& tile, std::string* reason = nullptr);

 private:
  std::shared_ptr<const Sweep> sweep_of(int64_t size, bool rows, bool keeps);

  std::vector<const Nest*> nests_;
  const isa::MachineConfig& config_;
  std::map<int64_t, std::shared_ptr<const Sweep>> rows_, kept_rows_, cols_;
};

}  // namespace tessera::schedule
