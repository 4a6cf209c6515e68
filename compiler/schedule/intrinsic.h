// SPDX-License-Identifier: Apache-2.0
// Intrinsics: how one tile of a nest becomes instructions. A nest says what is computed (its Computation), an intrinsic
// how the machine computes a tile of it: which tiles it takes, in which order their weights lie, how many entries of
// sums it needs, which instructions it issues, and how much work that is for the closed form. Everything around a tile
// (levels, slots, transfers, parameters, the way to DRAM) is the same for all of them. The core registers one for each
// computation, under the same name. One of your own derives from Intrinsic and is registered in a file of its own; the
// searchers then consider it for every nest of its computation, and a schedule can name it:
//
//   class Mine : public schedule::Intrinsic { ... };
//   const schedule::RegisterIntrinsic kMine("mine", "how it computes a tile", std::make_unique<Mine>());
//
// What it computes must be what the nest says, bit by bit: sums are int32 and wrap, so their order is free.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compiler/schedule/compute_nest.h"
#include "compiler/schedule/nest.h"
#include "compiler/schedule/registry.h"
#include "isa/config.h"
#include "isa/generated/instructions.h"

namespace tessera::schedule {

/// How often a nest runs a tile.
struct Tiling {
  Extents tile;
  int64_t output_tiles = 1;     // tiles of the result
  int64_t reduction_tiles = 1;  // for each of them
  int64_t tiles() const { return output_tiles * reduction_tiles; }
};

/// Cycles in which the matrix engine and the vector unit issue for a whole nest, and their instructions.
struct Work {
  int64_t gemm_cycles = 0, gemm_instructions = 0;
  int64_t alu_cycles = 0, alu_instructions = 0;
};

/// Entries that a tile takes beside its input and its result.
struct Demand {
  int64_t weights = 0;  // WGT
  int64_t sums = 0;     // ACC
};

/// One tile, its operands in the scratchpads. Input: [n][row][column][chunk][block], or [n][row][chunk][block][column]
/// where it is `planar`; result and sums that stand for it: [n][oh][ow][chunk][block]; weights: in the intrinsic's
/// order.
struct TileView {
  const Nest& nest;
  Extents count;       // iterations of the tile
  bool split = false;  // the window is cut: a result takes several tiles
  bool first = true;   // of the tiles that make a result
  bool last = true;
  Span rows, cols;           // positions of the input's slot that the tile reads
  int64_t input_blocks = 1;  // channel blocks of a position
  bool planar = false;       // the columns of a block stand side by side
  int64_t input = 0, weights = 0, sums = 0;
  bool accumulate = false;            // sums hold something already
  std::span<const isa::Gemm> planes;  // of weights, in order: types and zero points
  isa::AluSpace input_space;          // where the vector unit finds the input
  isa::ReduceOp reduce;               // of a reduction: sum or maximum

  /// Entries of the input's slot from one column to the next, from one block to the next and from one row to the next.
  int64_t column_stride() const { return planar ? 1 : input_blocks; }
  int64_t block_stride() const { return planar ? planar_strides(nest, cols.count, input_blocks).block : 1; }
  int64_t row_stride() const {
    return planar ? planar_strides(nest, cols.count, input_blocks).row : cols.count * input_blocks;
  }
  /// Entries of the result, and from one to the next in n, oh, ow, block.
  int64_t results() const;
  std::array<int64_t, 4> result_strides() const;
  /// Entries of the input slot between neighbours in n, oh, ow, block of a channel-wise nest; 0: broadcast.
  std::array<int64_t, 4> input_strides() const;
  /// The loops kh and kw over the input's slot.
  std::array<NestLoop, 2> window() const;
};

/// What an intrinsic writes into.
class TileCode {
 public:
  virtual ~TileCode() = default;
  virtual void gemm(const isa::Gemm& head, const ComputeNest& nest) = 0;
  virtual void alu(const isa::Alu& head, const ComputeNest& nest) = 0;
  /// The reduction of the nest walks a row. Operands: source, scalars.
  virtual void row_reduce(const isa::RowReduce& head, const ComputeNest& nest) = 0;
  /// The same. Operands: source, destination, scalars, PARAM.
  virtual void row_map(const isa::RowMap& head, const ComputeNest& nest) = 0;
  /// What turns a value into the result: parameters, bounds, tables, second operation, destination. The source is the
  /// intrinsic's to set.
  virtual isa::Alu stage() const = 0;
  /// What finds the scalars of rows, in order, and what makes the result with them. The source is the intrinsic's.
  virtual std::vector<isa::RowReduce> row_reductions() const = 0;
  virtual isa::RowMap row_mapping() const = 0;
  /// Gives so many entries of ACC the highest byte as the maximum of their row, where they do not have it from a tile
  /// before. `readable`: an entry of `space` that holds something.
  virtual void fix_shift(int64_t scalars, int64_t entries, isa::AluSpace space, int64_t readable) = 0;
  /// The loops n, oh, ow, block of the stage over a source of these strides; address[0], the source's, is to be set.
  virtual ComputeNest stage_nest(const std::array<int64_t, 4>& source) const = 0;
};

class Intrinsic {
 public:
  explicit Intrinsic(Computation computation) : computation_(computation) {}
  virtual ~Intrinsic() = default;
  Intrinsic(const Intrinsic&) = delete;
  Intrinsic& operator=(const Intrinsic&) = delete;

  const std::string& name() const { return name_; }
  Computation computation() const { return computation_; }

  /// Why it cannot compute a nest of its computation, whatever the tile; "" if it can.
  virtual std::string nest_obstacle(const Nest& nest) const;
  /// Why it cannot compute tiles of these extents; "" if it can. Searchers ask for each tile.
  virtual std::string tile_obstacle(const Nest& nest, const Extents& tile) const;
  /// The order of a dense nest's constant weights in WGT, the first dimension the slowest. Depthwise weights are
  /// entries of taps by chunk, and products of two tensors have k outside of columns.
  virtual std::array<Dim, 5> weight_order() const;
  virtual Demand demand(const Nest& nest, const Extents& tile) const = 0;
  virtual Work work(const Nest& nest, const Tiling& tiling) const = 0;
  /// The instructions of every tile: products, or a part of a reduction, into sums.
  virtual void accumulate(const TileView& tile, TileCode& code) const;
  /// Those of the last tile of a result, from sums or input through the stage. By default sums go through the stage.
  virtual void finish(const TileView& tile, TileCode& code) const;

 private:
  friend struct RegisterIntrinsic;
  std::string name_;
  Computation computation_;
};

/// From one entry of weights to the next in each of the five dimensions, for a tile in this order.
Extents weight_strides(const std::array<Dim, 5>& order, const Extents& tile);

using IntrinsicEntry = std::shared_ptr<const Intrinsic>;
Registry<IntrinsicEntry>& intrinsics();
/// The intrinsic of this name, which lives as long as the program. Errors: kInvalidArgument; the message names those
/// that are known, and the way to load others.
const Intrinsic& find_intrinsic(const std::string& name);
/// The core's intrinsic of a computation.
const Intrinsic& core_intrinsic(Computation computation);
/// Those that can compute a nest: the core's first, then others in order of names.
std::vector<const Intrinsic*> intrinsics_for(const Nest& nest);

struct RegisterIntrinsic {
  /// The name: letters, digits and underscores, so that it is a word of the text form.
  RegisterIntrinsic(const std::string& name, const std::string& what, std::unique_ptr<Intrinsic> intrinsic) {
    guarded_registration([&] {
      check_name(name);
      intrinsic->name_ = name;
      intrinsics().add(name, what, IntrinsicEntry(std::move(intrinsic)));
    });
  }

 private:
  static void check_name(const std::string& name);
};

}  // namespace tessera::schedule
