// SPDX-License-Identifier: Apache-2.0
// The registry of intrinsics and the core's five: the two forms of GEMM, and ALU with and without a reduction and along
// rows.
#include "compiler/schedule/intrinsic.h"

#include <algorithm>
#include <cctype>

namespace tessera::schedule {

namespace {

constexpr int64_t kLoopLimit = 4095;    // iterations of an instruction's loop
constexpr int64_t kStrideLimit = 8191;  // entries from one iteration to the next

int64_t results_of(const Extents& tile) {
  return tile[Dim::kN] * tile[Dim::kOh] * tile[Dim::kOw] * tile[Dim::kG] * tile[Dim::kOc];
}

}  // namespace

int64_t TileView::results() const { return results_of(count); }

std::array<int64_t, 4> TileView::result_strides() const {
  const int64_t blocks = count[Dim::kG] * count[Dim::kOc];
  return {count[Dim::kOh] * count[Dim::kOw] * blocks, count[Dim::kOw] * blocks, blocks, 1};
}

std::array<int64_t, 4> TileView::input_strides() const {
  const int64_t row = row_stride();
  const Access& in = nest.input;
  return {in.broadcast_n ? 0 : rows.count * row, in.broadcast_h ? 0 : rows.stride * row,
          in.broadcast_w ? 0 : cols.stride * column_stride(), in.broadcast_c ? 0 : block_stride()};
}

std::array<NestLoop, 2> TileView::window() const {
  return {{{count[Dim::kKh], {rows.dilation * row_stride(), 0, 0, 0}},
           {count[Dim::kKw], {cols.dilation * column_stride(), 0, 0, 0}}}};
}

std::string Intrinsic::nest_obstacle(const Nest&) const { return ""; }
std::string Intrinsic::tile_obstacle(const Nest&, const Extents&) const { return ""; }
std::array<Dim, 5> Intrinsic::weight_order() const { return {Dim::kG, Dim::kOc, Dim::kKh, Dim::kKw, Dim::kIc}; }
void Intrinsic::accumulate(const TileView&, TileCode&) const {}

void Intrinsic::finish(const TileView& tile, TileCode& code) const {
  if (tile.nest.raw) return;  // sums are the result
  isa::Alu alu = code.stage();
  alu.src = isa::AluSpace::kAcc;
  ComputeNest nest = code.stage_nest(tile.result_strides());
  nest.address[0] = tile.sums;
  code.alu(alu, nest);
}

Extents weight_strides(const std::array<Dim, 5>& order, const Extents& tile) {
  Extents strides;
  int64_t stride = 1;
  for (size_t k = order.size(); k-- > 0;) {
    strides[order[k]] = stride;
    stride *= tile[order[k]];
  }
  return strides;
}

namespace {

/// Of products that take so many cycles, and their stage.
Work work_of(const Nest& nest, const Tiling& tiling, int64_t gemm_cycles) {
  Work work{gemm_cycles, tiling.tiles(), 0, 0};
  if (nest.raw) return work;
  work.alu_cycles = results_of(nest.extent);
  work.alu_instructions = tiling.output_tiles;
  return work;
}

/// GEMM over blocks of channels: sums over ic, kh, kw of input times weights, or times the factor's matrices.
class Dense : public Intrinsic {
 public:
  Dense() : Intrinsic(Computation::kDense) {}

  Demand demand(const Nest& nest, const Extents& tile) const override {
    return {nest.planes * matrices(nest, tile) * tile[Dim::kG] * tile[Dim::kOc] * tile[Dim::kIc] * tile[Dim::kKh] *
                tile[Dim::kKw],
            results_of(tile)};
  }

  Work work(const Nest& nest, const Tiling& tiling) const override {
    const Extents& e = nest.extent;
    return work_of(nest, tiling, results_of(e) * e[Dim::kIc] * e[Dim::kKh] * e[Dim::kKw] * nest.planes);
  }

  void accumulate(const TileView& tile, TileCode& code) const override {
    if (tile.nest.factor.present) return multiply_factor(tile, code);
    const Extents& c = tile.count;
    const int64_t row = tile.cols.count * tile.input_blocks, results = c[Dim::kG] * c[Dim::kOc];
    const Extents weight = weight_strides(weight_order(), c);
    const int64_t plane = results * c[Dim::kKh] * c[Dim::kKw] * c[Dim::kIc];
    ComputeNest nest;
    nest.address = {tile.input, tile.weights, tile.sums, 0};
    nest.outer = {{c[Dim::kN], {tile.rows.count * row, 0, c[Dim::kOh] * c[Dim::kOw] * results, 0}},
                  {c[Dim::kOh], {tile.rows.stride * row, 0, c[Dim::kOw] * results, 0}},
                  {c[Dim::kOw], {tile.cols.stride * tile.input_blocks, 0, results, 0}},
                  {c[Dim::kG], {c[Dim::kIc], weight[Dim::kG], c[Dim::kOc], 0}},
                  {c[Dim::kOc], {0, weight[Dim::kOc], 1, 0}}};
    nest.reduction = {{c[Dim::kKh], {tile.rows.dilation * row, weight[Dim::kKh], 0, 0}},
                      {c[Dim::kKw], {tile.cols.dilation * tile.input_blocks, weight[Dim::kKw], 0, 0}},
                      {c[Dim::kIc], {1, weight[Dim::kIc], 0, 0}}};
    bool accumulate = tile.accumulate;
    for (isa::Gemm gemm : tile.planes) {
      gemm.accumulate = accumulate;
      code.gemm(gemm, nest);
      nest.address[1] += plane;
      accumulate = true;
    }
  }

 private:
  /// The factor lies in WGT as [n][oh][ow][ic][oc], without the dimensions that it does not have.
  static void multiply_factor(const TileView& tile, TileCode& code) {
    const Extents& c = tile.count;
    const int64_t oc = c[Dim::kOc], ic = c[Dim::kIc];
    const std::array<int64_t, 4> in = tile.input_strides();
    int64_t stride = oc * ic;
    std::array<int64_t, 3> matrix{};  // entries of WGT from one to the next in n, oh, ow
    const std::array<Dim, 3> dims{Dim::kN, Dim::kOh, Dim::kOw};
    for (size_t d = dims.size(); d-- > 0;) {
      if (!tile.nest.factor.indexed(dims[d])) continue;
      matrix[d] = stride;
      stride *= c[dims[d]];
    }
    ComputeNest nest;
    nest.address = {tile.input, tile.weights, tile.sums, 0};
    nest.outer = {{c[Dim::kN], {in[0], matrix[0], c[Dim::kOh] * c[Dim::kOw] * oc, 0}},
                  {c[Dim::kOh], {in[1], matrix[1], c[Dim::kOw] * oc, 0}},
                  {c[Dim::kOw], {in[2], matrix[2], oc, 0}},
                  {oc, {0, 1, 1, 0}}};
    nest.reduction = {{ic, {1, oc, 0, 0}}};
    isa::Gemm gemm = tile.planes.front();
    gemm.accumulate = tile.accumulate;
    code.gemm(gemm, nest);
  }
};

/// GEMM with one channel a lane and the taps of a part of the window inside a weight entry.
class Depthwise : public Intrinsic {
 public:
  Depthwise() : Intrinsic(Computation::kDepthwise) {}

  Demand demand(const Nest& nest, const Extents& tile) const override {
    return {nest.planes * tile[Dim::kG] * depthwise_passes(nest, tile[Dim::kKh], tile[Dim::kKw]), results_of(tile)};
  }

  Work work(const Nest& nest, const Tiling& tiling) const override {
    return work_of(nest, tiling, products(nest, tiling));
  }

  void accumulate(const TileView& tile, TileCode& code) const override {
    const Extents& c = tile.count;
    const Nest& n = tile.nest;
    const int64_t column = tile.column_stride(), row = tile.row_stride();
    const int64_t results = c[Dim::kG] * c[Dim::kOc];
    bool accumulate = tile.accumulate;
    int64_t pass = 0;
    for (isa::Gemm gemm : tile.planes) {
      gemm.mode = isa::GemmMode::kDepthwise;
      for (int64_t kh = 0; kh < c[Dim::kKh]; kh += n.tap_h) {
        for (int64_t kw = 0; kw < c[Dim::kKw]; kw += n.tap_w, ++pass) {
          ComputeNest nest;
          nest.address = {tile.input + kh * tile.rows.dilation * row + kw * tile.cols.dilation * column,
                          tile.weights + pass * c[Dim::kG], tile.sums, 0};
          nest.outer = {{c[Dim::kN], {tile.rows.count * row, 0, c[Dim::kOh] * c[Dim::kOw] * results, 0}},
                        {c[Dim::kG], {tile.block_stride(), 1, 1, 0}},
                        {c[Dim::kOh], {tile.rows.stride * row, 0, c[Dim::kOw] * results, 0}},
                        {c[Dim::kOw], {tile.cols.stride * column, 0, results, 0}}};
          nest.reduction = {{std::min(n.tap_h, c[Dim::kKh] - kh), {tile.rows.dilation * row, 0, 0, 0}},
                            {std::min(n.tap_w, c[Dim::kKw] - kw), {tile.cols.dilation * column, 0, 0, 0}}};
          gemm.accumulate = accumulate;
          code.gemm(gemm, nest);
          accumulate = true;
        }
      }
    }
  }

 private:
  /// One tap a cycle, or in the raster form one position of the input.
  static int64_t products(const Nest& nest, const Tiling& tiling) {
    const int64_t each = results_of(nest.extent) * nest.extent[Dim::kKh] * nest.extent[Dim::kKw] * nest.planes;
    if (nest.dilation_h != 1 || nest.dilation_w != 1) return each;
    const Extents& tile = tiling.tile;
    const Span rows = input_span(0, tile[Dim::kOh], 0, tile[Dim::kKh], nest.stride_h, nest.dilation_h, 0);
    const Span cols = input_span(0, tile[Dim::kOw], 0, tile[Dim::kKw], nest.stride_w, nest.dilation_w, 0);
    const int64_t passes = depthwise_passes(nest, nest.extent[Dim::kKh], nest.extent[Dim::kKw]) * nest.planes;
    const int64_t steps = raster_steps(nest, rows.count, 1, cols.count, 1);
    return std::min(tiling.tiles() * tile[Dim::kN] * tile[Dim::kG] * steps * passes, each);
  }
};

/// ALU with the window as its reduction. A part of a window goes into the second half of the sums' slot (the first
/// part: the first half) and is joined to the first half.
class Reduce : public Intrinsic {
 public:
  Reduce() : Intrinsic(Computation::kReduce) {}

  std::string tile_obstacle(const Nest& nest, const Extents& tile) const override {
    const Span cols = input_span(0, tile[Dim::kOw], 0, tile[Dim::kKw], nest.stride_w, nest.dilation_w, 0);
    const Span rows = input_span(0, tile[Dim::kOh], 0, tile[Dim::kKh], nest.stride_h, nest.dilation_h, 0);
    const bool fits = tile[Dim::kKh] <= kLoopLimit && tile[Dim::kKw] <= kLoopLimit &&
                      rows.dilation * cols.count * tile[Dim::kG] <= kStrideLimit &&
                      cols.dilation * tile[Dim::kG] <= kStrideLimit;
    return fits ? "" : "a stride or an extent of the reduction does not fit an instruction";
  }

  Demand demand(const Nest& nest, const Extents& tile) const override {
    const bool part = tile[Dim::kKh] < nest.extent[Dim::kKh] || tile[Dim::kKw] < nest.extent[Dim::kKw];
    return {0, part ? 2 * results_of(tile) : nest.raw ? results_of(tile) : 0};
  }

  Work work(const Nest& nest, const Tiling& tiling) const override {
    const int64_t results = results_of(nest.extent);
    Work work;
    work.alu_cycles = results * nest.extent[Dim::kKh] * nest.extent[Dim::kKw] +
                      (tiling.reduction_tiles > 1 ? 2 * results * tiling.reduction_tiles : 0);
    work.alu_instructions = tiling.tiles();
    return work;
  }

  void accumulate(const TileView& tile, TileCode& code) const override {
    if (!tile.split) return;
    isa::Alu alu;
    alu.reduce_op = tile.reduce;
    alu.src = tile.input_space;
    alu.dst = isa::AluSpace::kAcc;
    alu.src_unsigned = tile.nest.input.is_unsigned;
    ComputeNest nest = plain(tile, tile.input_strides());
    nest.address = {tile.input, tile.first ? tile.sums : tile.sums + tile.results(), 0, 0};
    add_window(nest, tile);
    code.alu(alu, nest);
    if (tile.first || tile.last) return;
    isa::Alu join;
    join.reduce_op = tile.reduce;
    join.src = join.dst = isa::AluSpace::kAcc;
    nest = plain(tile, tile.result_strides());
    nest.address[1] = tile.sums;
    add_halves(nest, tile);
    code.alu(join, nest);
  }

  void finish(const TileView& tile, TileCode& code) const override {
    isa::Alu alu = code.stage();
    alu.reduce_op = tile.reduce;
    ComputeNest nest = code.stage_nest(tile.split ? tile.result_strides() : tile.input_strides());
    if (tile.split) {
      alu.src = isa::AluSpace::kAcc;
      add_halves(nest, tile);
    } else {
      alu.src = tile.input_space;
      alu.src_unsigned = alu.src != isa::AluSpace::kAcc && tile.nest.input.is_unsigned;
      nest.address[0] = tile.input;
      add_window(nest, tile);
    }
    code.alu(alu, nest);
  }

 private:
  static ComputeNest plain(const TileView& tile, const std::array<int64_t, 4>& source) {
    const std::array<int64_t, 4> to = tile.result_strides();
    const Extents& c = tile.count;
    ComputeNest nest;
    const std::array<int64_t, 4> extents = {c[Dim::kN], c[Dim::kOh], c[Dim::kOw], c[Dim::kG] * c[Dim::kOc]};
    for (size_t k = 0; k < extents.size(); ++k) nest.outer.push_back({extents[k], {source[k], to[k], 0, 0}});
    return nest;
  }
  static void add_window(ComputeNest& nest, const TileView& tile) {
    for (const NestLoop& loop : tile.window()) nest.reduction.push_back(loop);
  }
  static void add_halves(ComputeNest& nest, const TileView& tile) {
    nest.address[0] = tile.sums;
    nest.reduction.push_back({2, {tile.results(), 0, 0, 0}});
  }
};

/// ALU without a reduction.
class Map : public Intrinsic {
 public:
  Map() : Intrinsic(Computation::kMap) {}

  Demand demand(const Nest& nest, const Extents& tile) const override {
    const bool converted = nest.input_space != isa::Space::kAcc || nest.input.broadcasts();
    return {0, nest.raw && converted ? results_of(tile) : 0};
  }

  Work work(const Nest& nest, const Tiling& tiling) const override {
    Work work;
    work.alu_cycles = results_of(nest.extent);
    work.alu_instructions = tiling.output_tiles;
    return work;
  }

  void finish(const TileView& tile, TileCode& code) const override {
    isa::Alu alu = code.stage();
    alu.src = tile.input_space;
    alu.src_unsigned = alu.src != isa::AluSpace::kAcc && tile.nest.input.is_unsigned;
    ComputeNest nest = code.stage_nest(tile.input_strides());
    nest.address[0] = tile.input;
    code.alu(alu, nest);
  }
};

/// ALU along rows: an entry of sums for each pixel holds the scalars of its row, which is all its channels.
class RowWalk : public Intrinsic {
 public:
  RowWalk() : Intrinsic(Computation::kRows) {}

  std::string tile_obstacle(const Nest& nest, const Extents& tile) const override {
    return tile[Dim::kG] == nest.extent[Dim::kG] ? "" : "a tile must hold rows whole: all of g";
  }

  Demand demand(const Nest&, const Extents& tile) const override {
    return {0, tile[Dim::kN] * tile[Dim::kOh] * tile[Dim::kOw]};
  }

  Work work(const Nest& nest, const Tiling& tiling) const override {
    constexpr int64_t kPasses = 3;
    Work work;
    work.alu_cycles = kPasses * results_of(nest.extent);
    work.alu_instructions = kPasses * tiling.output_tiles;
    return work;
  }

  void finish(const TileView& tile, TileCode& code) const override {
    const std::array<int64_t, 4> in = tile.input_strides();
    const Extents& c = tile.count;
    const std::array<int64_t, 3> rows{c[Dim::kOh] * c[Dim::kOw], c[Dim::kOw], 1};
    ComputeNest map = code.stage_nest(in);
    const NestLoop blocks = map.outer.back();
    map.outer.pop_back();
    map.reduction.push_back(blocks);
    map.address[0] = tile.input;
    map.address[2] = tile.sums;
    ComputeNest reduce;
    reduce.address = {tile.input, tile.sums, 0, 0};
    for (size_t k = 0; k < rows.size(); ++k) {
      map.outer[k].stride[2] = rows[k];
      reduce.outer.push_back({map.outer[k].extent, {in[k], rows[k], 0, 0}});
    }
    reduce.reduction.push_back({blocks.extent, {in[3], 0, 0, 0}});
    isa::RowMap head = code.row_mapping();
    head.src = tile.input_space;
    head.src_unsigned = tile.nest.input.is_unsigned;
    std::vector<isa::RowReduce> reductions = code.row_reductions();
    if (head.operation == isa::Mapping::kSoftmax && head.src != head.dst) {  // the sums beside the results
      head.operation = isa::Mapping::kSumSoftmax;
      head.tail = reductions.back().tail;
      head.sum_table = reductions.back().table;
      reductions.pop_back();
    }
    if (tile.nest.fixed_shift) {
      const bool one = reductions.empty();  // serves all rows
      if (one) {
        for (NestLoop& loop : map.outer) loop.stride[2] = 0;
      }
      code.fix_shift(tile.sums, one ? 1 : c[Dim::kN] * rows[0], head.src, tile.input);
    }
    for (isa::RowReduce& reduction : reductions) {
      reduction.src = tile.input_space;
      reduction.src_unsigned = tile.nest.input.is_unsigned;
      code.row_reduce(reduction, reduce);
    }
    code.row_map(head, map);
  }
};

}  // namespace

Registry<IntrinsicEntry>& intrinsics() {
  static Registry<IntrinsicEntry> registry("intrinsic");
  return registry;
}

namespace {

const RegisterIntrinsic kDense("dense", "GEMM over blocks of channels", std::make_unique<Dense>());
const RegisterIntrinsic kDepthwise("depthwise", "GEMM with one channel a lane", std::make_unique<Depthwise>());
const RegisterIntrinsic kReduce("reduce", "ALU with the window as its reduction", std::make_unique<Reduce>());
const RegisterIntrinsic kMap("map", "ALU without a reduction", std::make_unique<Map>());
const RegisterIntrinsic kRows("rows", "ALU along rows", std::make_unique<RowWalk>());

}  // namespace

void RegisterIntrinsic::check_name(const std::string& name) {
  const bool word =
      !name.empty() && std::isalpha(static_cast<unsigned char>(name[0])) != 0 &&
      std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  if (!word) {
    throw Error(ErrorCode::kInvalidArgument,
                "the name of an intrinsic is a letter, then letters, digits and underscores, not '" + name + "'");
  }
}

const Intrinsic& find_intrinsic(const std::string& name) {
  try {
    return *intrinsics().find(name);
  } catch (const Error& error) {
    throw Error(error.code(),
                std::string(error.what()) + "; where a plugin brings it, load that plugin with --plugin FILE.so");
  }
}

const Intrinsic& core_intrinsic(Computation computation) {
  static const std::array<const Intrinsic*, kComputationNames.size()> core = [] {
    std::array<const Intrinsic*, kComputationNames.size()> found{};
    for (size_t i = 0; i < found.size(); ++i) found[i] = &find_intrinsic(std::string(kComputationNames[i]));
    return found;
  }();
  return *core[static_cast<size_t>(computation)];
}

std::vector<const Intrinsic*> intrinsics_for(const Nest& nest) {
  const Intrinsic& core = core_intrinsic(nest.computation);
  std::vector<const Intrinsic*> found{&core};
  for (const auto& [name, what] : intrinsics().entries()) {
    const Intrinsic& other = find_intrinsic(name);
    if (&other != &core && other.computation() == nest.computation && other.nest_obstacle(nest).empty())
      found.push_back(&other);
  }
  return found;
}

}  // namespace tessera::schedule
