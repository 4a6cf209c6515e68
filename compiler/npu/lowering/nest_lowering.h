// SPDX-License-Identifier: Apache-2.0
// One nest under one schedule, tile by tile: rings of slots in the scratchpads, transfers of boxes of pixels and
// channels, products and stages. A task and its schedule enter; each call appends the instructions of a tile to the
// emitter. The input of a tile comes from DRAM or from a slot that another nest's stage has filled; its result goes to
// DRAM or to such a slot (a Sink). So a single operation (lower.cc) and a chain of them (chain.cc) are the same code.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>

#include "compiler/npu/lowering/emitter.h"
#include "compiler/npu/lowering/legalise.h"
#include "compiler/npu/tasks/task.h"
#include "compiler/schedule/schedule.h"

namespace tessera::npu {

/// One tile: where it begins in each dimension and how far it goes.
struct Tile {
  schedule::Extents begin, count;
  bool operator==(const Tile&) const = default;
};

/// Slots of an operand, used in turn; a key says which part of the operand stands in a slot.
struct Ring {
  int64_t base = 0, size = 0;
  std::vector<std::optional<Tile>> keys;
  size_t next = 0;

  int64_t address(size_t slot) const { return base + static_cast<int64_t>(slot) * size; }
  std::optional<size_t> find(const Tile& key) const;
  size_t take(const Tile& key);
};

/// Where a stage's results go instead of OUT and DRAM: an entry and the strides of n, oh, ow and the channel block.
struct Sink {
  isa::AluSpace space = isa::AluSpace::kInp;
  int64_t address = 0;
  std::array<int64_t, 4> stride{};
  int64_t first_column = 0, columns = 0;  // of a tile whose pixels hold several columns: those that go there
};

class NestLowering {
 public:
  using Nest = schedule::Nest;
  using Extents = schedule::Extents;
  using Span = schedule::Span;
  using Operand = schedule::Operand;

  /// All references stay in use. `layer`: the index that instructions are tagged with. `whole_input`: a slot of the
  /// input holds all channels of a tile's positions, of which the tiles that differ in channels alone read theirs.
  NestLowering(const Task& task, const Nest& nest, const schedule::Schedule& schedule, Emitter& emitter,
               LayerInfo& info, uint32_t layer, bool whole_input = false)
      : task_(task),
        nest_(nest),
        schedule_(schedule),
        emitter_(emitter),
        config_(emitter.config),
        info_(info),
        layer_(layer),
        input_scope_(schedule::input_scope(nest, schedule)),
        keeps_rows_(schedule.keeps_rows()),
        whole_input_(whole_input),
        window_rows_(schedule.window_rows()),
        footprint_(footprint_of(nest, schedule, whole_input)) {
    find_attaches();
    set_planes();
  }

  /// Entries of each scratchpad that the rings need.
  std::map<isa::Space, int64_t> demand() const;
  /// Takes them from `cursor` on, which moves.
  void place(std::map<isa::Space, int64_t>& cursor);
  /// Tables and the constants of a second operation; once, after place().
  void load_layer_constants();

  /// All tiles in the schedule's order.
  void run();
  std::vector<Tile> tiles() const;

  /// What an operand's ring is asked for while the tiles run, one after the other: a part of the operand, by number,
  /// which is found in its slot or takes the next one. `fresh`: it takes the next one wherever it may stand. Bytes of
  /// the input and of constant weights that are fetched at least, with a slot or, rows that are new, in one.
  struct Request {
    int32_t part = 0;
    bool fresh = false;
    int64_t taken = 0, added = 0;
  };
  std::vector<Request> requests(Operand operand, const std::vector<Tile>& tiles) const;
  /// Bytes of the input in those of its rows.
  int64_t fetched_bytes(const Tile& tile, Span rows) const;
  /// What the schedule's strips make of the first and of the last tile: sizes of strips.
  std::vector<int64_t> strip_sizes() const;

  /// One tile. `source`: the entry where its input stands; nothing: it is fetched. `sink`: nothing: the result is
  /// stored to DRAM. `held`: it has a sink, and its stage comes with finish_held(), before the nest's next tile.
  void lower_tile(const Tile& tile, std::optional<int64_t> source = {}, const std::optional<Sink>& sink = {},
                  bool held = false);
  void finish_held();

  /// Rows of the input that a tile reads, thinned like those of its window.
  Span rows_of(const Tile& tile) const;
  Span cols_of(const Tile& tile) const;
  int64_t input_blocks(const Tile& tile) const {
    const int64_t chunks = whole_input_ ? nest_.extent[schedule::Dim::kG] : tile.count[schedule::Dim::kG];
    return nest_.input.broadcast_c ? 1 : chunks * tile.count[schedule::Dim::kIc];
  }
  /// Whether an input that comes from a sink has the columns of a block side by side: the matrix engine takes two of
  /// them at once then.
  bool planar() const {
    return config_.raster_pairs != 0 && nest_.computation == schedule::Computation::kDepthwise &&
           schedule_.intrinsic == &schedule::core_intrinsic(nest_.computation);
  }
  /// The next slot for an input that comes from a sink.
  int64_t take_input(const Tile& tile) {
    const int64_t slot = input_.address(input_.take(key_of(Operand::kInput, tile)));
    return nest_.row_pairs ? slot | 1 : slot;
  }
  /// Writes `value` into a rectangle of entries by the ALU; `readable`: an entry that holds something.
  void fill(const Sink& at, int64_t rows, int64_t cols, int64_t blocks, int64_t readable, uint8_t value);
  /// Moves so many entries of bytes by the ALU, from one place of INP or OUT to another.
  void move(isa::AluSpace from, int64_t source, isa::AluSpace to, int64_t destination, int64_t entries);
  const Nest& nest() const { return nest_; }
  isa::Space input_scope() const { return input_scope_; }
  /// Entries of WGT that a tile of weights takes.
  int64_t weight_tile() const { return footprint_.weights; }
  /// Tells the emitter which weights are in use until the end of the nest.
  void release_weights();

 private:
  bool weighted() const {
    return nest_.computation == schedule::Computation::kDense || nest_.computation == schedule::Computation::kDepthwise;
  }
  static schedule::Footprint footprint_of(const Nest& nest, const schedule::Schedule& schedule, bool whole_input);
  /// Whether a result takes several tiles because its window is cut.
  bool split_window() const;
  /// Whether a tile is the first of those that make a result, or the last.
  bool starts(const Tile& tile) const;
  bool ends(const Tile& tile) const;
  /// The heads of GEMM, one for each plane of weights.
  void set_planes();
  /// A tile as the intrinsic sees it, without its weights.
  schedule::TileView view_of(const Tile& tile, int64_t input) const;

  // ---- the borders of the nest (borders.cc)

  /// A strip of a tile: of its rows, or of its columns where it is one row.
  struct Strip {
    schedule::Dim dim = schedule::Dim::kOh;
    int64_t begin = 0, count = 0;
    bool operator==(const Strip&) const = default;
  };
  /// The nest's first tile, in order of execution, and its last one are computed strip by strip: what the nest before
  /// stores last is fetched, and what the next one fetches first is stored, while the engines are at the other strips.
  std::vector<Strip> strips_of(const Tile& tile, bool stored) const;
  /// A strip of a tile, in the tile's slots.
  schedule::TileView view_of(const schedule::TileView& tile, const Strip& strip) const;
  Tile tile_of(const Tile& tile, const Strip& strip) const;

  /// What the intrinsic writes of a tile.
  class Code : public schedule::TileCode {
   public:
    Code(NestLowering& lowering, const Tile& tile) : lowering_(lowering), tile_(tile) {}
    void gemm(const isa::Gemm& head, const ComputeNest& nest) override;
    void alu(const isa::Alu& head, const ComputeNest& nest) override;
    void row_reduce(const isa::RowReduce& head, const ComputeNest& nest) override;
    void row_map(const isa::RowMap& head, const ComputeNest& nest) override;
    isa::Alu stage() const override;
    std::vector<isa::RowReduce> row_reductions() const override;
    isa::RowMap row_mapping() const override;
    void fix_shift(int64_t scalars, int64_t entries, isa::AluSpace space, int64_t readable) override;
    ComputeNest stage_nest(const std::array<int64_t, 4>& source) const override;

   private:
    NestLowering& lowering_;
    const Tile& tile_;
  };

  /// The tile in the dimensions that the operand has, and where it stands in the levels outside of its attach.
  Tile key_of(Operand operand, const Tile& tile) const;
  void find_attaches();

  // ---- transfers

  void emit(const Transfer& transfer, Stream stream);

  /// Channels [first, first + run) of a pixel and where they lie: a run with loops around it. Strides in channels of
  /// DRAM (translated by the access) and in bytes of the scratchpad row.
  struct ChannelPiece {
    int64_t dram = 0;   // bytes from the pixel
    int64_t block = 0;  // entries from the pixel's first
    int64_t byte = 0;   // bytes inside the entry's row
    int64_t run = 0;    // bytes
    LoopList<TransferLoop> loops;
  };
  class PieceMaker;
  /// Channels of blocks [b0, b0 + blocks) of chunks [g0, g0 + chunks), as pieces. Entries are rows of `lanes` channels.
  std::vector<ChannelPiece> channel_pieces(const schedule::ChannelMap& map, const schedule::Access& access, int64_t g0,
                                           int64_t chunks, int64_t b0, int64_t blocks, int64_t entry_bytes) const;

  /// A box of images, rows, columns and channel blocks between DRAM and a slot laid out [n][row][column][block].
  struct Box {
    const schedule::Access* access;
    const schedule::ChannelMap* map;
    isa::Space space;
    Stream stream;
    bool store = false;
    int64_t slot = 0;           // entry
    int64_t n = 0, groups = 1;  // groups of BATCH images
    Span rows, cols;
    int64_t g = 0, chunks = 1, b = 0, blocks = 1;
    uint8_t pad_value = 0;
  };

  void transfer(const Box& box);
  /// The input of the nest's first tile, in strips.
  void load_strips(Box box, const Tile& tile);
  /// Positions of such a strip; 0: there are none. `each`: entries of a position.
  int64_t loaded_strip(int64_t positions, int64_t each, const Tile& tile) const;

  /// A blob in the constants, packed when a tile first asks for it.
  struct Blob {
    int64_t offset = 0, bytes = 0;
  };
  /// Bias and scale of a tile's channels. Without biases the scales are also there by themselves.
  struct Params {
    Blob both;
    std::optional<Blob> scales;
  };
  Blob add_blob(std::vector<uint8_t> bytes);

  void load_blob(isa::Space space, int64_t entry_address, const Blob& blob, Stream stream);

  static Span plain_span(int64_t begin, int64_t count) { return {begin, 1, count, 1, 0}; }

  Box result_box(const schedule::Access& access, const Tile& tile, int64_t slot, Stream stream) const;

  // ---- constants

  /// Calls use(lane, channel or -1) for every lane of the result blocks of a tile, in entry order.
  template <typename Use>
  void for_each_result_lane(const Tile& tile, Use&& use) const;

  /// Bias and scale of a tile's channels, packed when a tile first asks for them.
  const Params& params_of(const Tile& tile);
  /// Biases of zero stay in PARAM, where the entries hold them already.
  void load_params(int64_t entry, const Params& params);
  std::vector<uint8_t> pack_params(const Tile& tile) const;

  std::vector<uint8_t> pack_weights(const Tile& tile) const;
  /// Appends one plane: [g][oc][kh][kw][ic] entries of [output lane][input lane].
  void pack_products(const Tile& tile, size_t plane, std::vector<uint8_t>& bytes) const;
  /// Appends one plane: [pass over the window][g] entries of [channel][tap].
  void pack_taps(const Tile& tile, size_t plane, std::vector<uint8_t>& bytes) const;

  // ---- the tile loop

  /// Iterations of a level further out, of which virtual threads take the steps further in by turns.
  template <typename Visit>
  void iterate(size_t depth, const std::vector<Extents>& threads, Visit&& visit) const;

  /// The entry where the tile's input begins, fetched as far as it is not there.
  int64_t load_input(const Tile& tile);
  /// Rows of a slot, of which rows_of() are the tile's.
  Span window_of(const Tile& tile) const;

  size_t load_weights(const Tile& tile);

  // ---- products of two run-time tensors (product.cc)

  /// The factor's part of a tile into a slot of WGT, laid out [n][oh][ow][ic][oc]; lanes past the end of k hold the
  /// zero point.
  void load_factor(const Tile& tile, size_t slot);

  /// Rows of the unit matrix in place of an input.
  void load_unit(const Tile& tile, int64_t entry);

  /// ACC starts from the bias, one entry for each block, the same for every pixel.
  void preload_bias(const Tile& tile);

  isa::AluSpace alu_space(isa::Space space) const;

  void emit_alu(const isa::Alu& head, const ComputeNest& nest);
  void push_scratch();

  /// The stage's fields; destination OUT, or ACC when the result is raw.
  void set_stage(isa::Alu& alu) const;

  /// The nest from a source with the given strides through the stage; addresses but the source's are set.
  ComputeNest stage_nest(const Tile& tile, const std::array<int64_t, 4>& source) const;

  /// Loads what the stage needs.
  void begin_finish(const Tile& tile);
  /// Runs the stage on a strip of the tile, and stores it or leaves it in the sink.
  void finish(const Tile& tile, int64_t input, const Strip& strip);

  void load_second(const Tile& tile);

  const Task& task_;
  const Nest& nest_;
  const schedule::Schedule& schedule_;
  Emitter& emitter_;
  const isa::MachineConfig& config_;
  LayerInfo& info_;
  uint32_t layer_;
  const isa::Space input_scope_;
  const bool keeps_rows_, whole_input_;
  const int64_t window_rows_;
  const schedule::Footprint footprint_;
  /// By operand: whether it has a dimension.
  std::array<std::array<bool, schedule::kDims>, schedule::kOperands> indexed_{};
  /// By operand: how many neighbouring positions of a dimension that it does not have share one fetch, because a level
  /// outside of its attach steps so far; 0: all of them.
  std::array<std::array<int64_t, schedule::kDims>, schedule::kOperands> share_{};
  std::map<size_t, int64_t> rows_present_;  // by slot of a window
  Ring input_, weights_, sums_, second_, output_, params_;
  int64_t constants_entry_ = 0, second_address_ = 0;
  size_t sums_slot_ = 0, output_slot_ = 0, params_slot_ = 0;
  std::optional<Sink> sink_;  // of the tile in hand
  Strip strip_;               // of it
  struct Held {
    Tile tile;
    int64_t input = 0;
    Strip strip;
  };
  std::vector<Held> held_;  // whose stages have yet to come
  int table_ = -1, second_table_ = -1;
  std::set<int64_t> fixed_scalars_;  // entries of ACC with the highest byte as a maximum
  std::map<Extents, Blob> weight_blobs_;
  std::map<std::array<int64_t, 4>, Params> param_blobs_;  // by chunks and blocks; one where all channels have the same
  std::map<size_t, std::array<int64_t, 4>> factor_frames_;  // by slot of WGT: which lanes hold the factor's zero point
  std::vector<isa::Gemm> planes_;
  std::vector<isa::Instruction> scratch_;
};

}  // namespace tessera::npu
