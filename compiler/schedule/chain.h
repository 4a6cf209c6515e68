// SPDX-License-Identifier: Apache-2.0
// Chains: consecutive nests whose intermediate results never leave the chip. The nests enter with the machine; a plan
// leaves: the tile of the last nest's output, how many blocks of the middle channels one step takes, and a Schedule for
// each nest. The middle channels are those between the nests: a product may begin a chain (it makes them, a few blocks
// a step) and may end it (it sums over them), and between stand nests that treat each channel on its own. A step of the
// chain is one block of middle channels of one tile; nest s works on step q while nest s + 1 works on step q - 1. Rows
// and columns that two tiles share are computed twice.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/schedule/schedule.h"

namespace tessera::schedule {

/// An interval of output rows (or columns) of one nest of a chain for one tile.
struct Interval {
  int64_t begin = 0, count = 0;
};

/// For each nest the rows (`rows`) or columns it computes so that the last one can compute `last`; an interval may be
/// empty where the next nest sees only padding. Nothing where a nest would skip positions of its input.
std::optional<std::vector<Interval>> chain_intervals(const std::vector<const Nest*>& nests, Interval last, bool rows);

struct ChainTile {
  int64_t oh = 1, ow = 1;  // of the last nest's output
  int64_t blocks = 1;      // of middle channels in a step
  bool operator==(const ChainTile&) const = default;
};

struct ChainPlan {
  ChainTile tile;
  std::vector<Schedule>
      schedules;  // one for each nest: the largest tile, and copies; 0 copies of a result that stays on chip
  int64_t steps = 0;
  int64_t cycles = 0;  // estimate of the whole chain
};

/// Whether nests can be links of a chain in this order, whatever the tile: "" or the reason why not.
std::string chain_obstacle(const std::vector<const Nest*>& nests, const isa::MachineConfig& config);

/// Judges one tile; nothing when it does not fit (`reason` then says which memory).
std::optional<ChainPlan> evaluate_chain(const std::vector<const Nest*>& nests, const ChainTile& tile,
                                        const isa::MachineConfig& config, std::string* reason = nullptr);

/// At most `count` plans of least estimated cycles, best first, of which at most two have the same number of blocks;
/// none when no tile fits. Deterministic.
std::vector<ChainPlan> generate_chains(const std::vector<const Nest*>& nests, const isa::MachineConfig& config,
                                       size_t count);

}  // namespace tessera::schedule
