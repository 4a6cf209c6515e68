// SPDX-License-Identifier: Apache-2.0
// What no schedule can do without. A nest and a machine enter; for each extent that a tile of the space may have
// (space.h) a number of cycles leaves that every schedule with this tile takes at least, in whatever order, with
// whatever copies: that of the busiest engine between what comes before its work and what comes behind it. Tiles
// whose bound is not below the cycles of a schedule that was measured cannot hold a better one. So a search over tiles
// ends with a proof, or with the least bound that is left.
#pragma once

#include <vector>

#include "compiler/schedule/cost_model.h"
#include "compiler/schedule/space.h"

namespace tessera::schedule {

/// Of tiles with these extents, computed by this intrinsic, of one nest that runs alone.
struct TileBound {
  const Intrinsic* intrinsic = nullptr;
  Extents tile;
  int64_t cycles = 0;
};

/// What every schedule of a nest needs, alone or as a link of a chain.
struct LeastWork {
  int64_t gemm = 0, alu = 0;  // cycles of the engines; of the vector unit those of a product's stage alone
  int64_t macs = 0;           // of dense products, padding of blocks included
  int64_t constants = 0;      // bytes of weights and parameters
  int64_t input = 0;          // bytes of the input, where it comes from DRAM
  int64_t output = 0;         // bytes of the result, where it goes there
};
LeastWork least_work(const Nest& nest, const Machine& machine);

/// Rows and columns of a tensor, by whether they are needed.
struct Lines {
  std::vector<bool> rows, cols;
};
/// What every schedule needs that computes those results of the nest at least.
LeastWork least_work(const Nest& nest, const Machine& machine, const Lines& results);
/// What of the input those results read.
Lines lines_read(const Nest& nest, const Lines& results);

/// Bytes that must pass the bus for a nest, whatever stays on chip.
int64_t least_bytes(const Nest& nest, const Machine& machine);

/// What a nest does not tell of its fetches. `other_bytes`: what must pass the bus beside the nest's own, for nests
/// that run with it. `biases`: entries of PARAM that have biases other than zero.
struct Besides {
  int64_t other_bytes = 0, biases = 0;
};

/// The bound of one tile. It need not fit the scratchpads.
int64_t tile_bound(const Nest& nest, const Intrinsic& intrinsic, const Extents& tile, const Machine& machine,
                   const Besides& besides = {});

/// All tiles of the nest's space that fit the scratchpads with one slot of each operand, least bound first.
std::vector<TileBound> tile_bounds(const Nest& nest, const Machine& machine, const Besides& besides = {});

}  // namespace tessera::schedule
