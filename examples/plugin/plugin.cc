// SPDX-License-Identifier: Apache-2.0
// A plugin of the compiler: what somebody outside the project writes to teach it more. It adds a matcher, which places
// an operator that the core leaves to the CPU, a pass over the NPU's graph, a cost model for the search, and an
// intrinsic that computes the windows of pools with fewer cycles:
//
//   tessera compile model.onnx --plugin libtessera_example_plugin.so
//   tessera-opt graphs.npu --load libtessera_example_plugin.so --pass=drop-identity-tables
//
// Everything is registered by objects that are made when the file is loaded.
#include <array>
#include <memory>
#include <numeric>
#include <utility>

#include "compiler/graph/pass.h"
#include "compiler/nn/bridge.h"
#include "compiler/partition/claims.h"
#include "compiler/schedule/cost_model.h"
#include "compiler/schedule/intrinsic.h"

namespace {

using namespace tessera;

// --- a matcher: BitwiseNot of bytes is a table

std::optional<partition::Claim> match_bitwise_not(nn::NodeOp op) {
  mlir::Value x = op.getInputs()[0];
  const ops::DType dtype = nn::dtype_of(x);
  if ((dtype != ops::DType::kUint8 && dtype != ops::DType::kInt8) || nn::constant_value(x)) return std::nullopt;
  graph::Lookup lookup;
  for (int byte = 0; byte < 256; ++byte) lookup.table.push_back(static_cast<uint8_t>(~byte));
  partition::Claim claim;
  claim.root = op;
  claim.operands = {x};
  claim.covered = {op.getOperation()};
  claim.op.name = nn::node_name(op.getOperation());
  claim.op.kind = "BitwiseNot";
  claim.op.what = std::move(lookup);
  return claim;
}

const partition::RegisterMatcher kMatcher({"bitwise-not", "", "BitwiseNot", match_bitwise_not});

// --- a pass: tables that change nothing go, and with them the transfer that loads them

void drop_identity(std::optional<npu::Table>& table) {
  if (!table) return;
  for (size_t i = 0; i < table->size(); ++i)
    if ((*table)[i] != i) return;
  table.reset();
}

void drop_identity_tables(npu::Graph& graph, const graph::PassContext&) {
  for (npu::Operation& operation : graph.operations) {
    std::visit(
        [](auto& what) {
          npu::Stage& stage = what.stage;
          // A second operation reads the value as the table's type says: only without one is the table nothing.
          if (!stage.second) drop_identity(stage.table);
          drop_identity(stage.second_table);
        },
        operation.what);
  }
}

const graph::RegisterPass kPass({"drop-identity-tables", "Drops tables that map every byte to itself.",
                                 graph::GraphPass(drop_identity_tables)},
                                {.after = "fuse-stages"});

// --- a cost model: --cost-model fewest-bytes ranks schedules by DRAM traffic alone

class FewestBytes : public schedule::CostModel {
 public:
  explicit FewestBytes(const schedule::Machine& machine) : exact_(schedule::make_cost_model("closed-form", machine)) {}
  schedule::Cost cost(const schedule::Subject& subject, const schedule::Schedule& schedule) override {
    return by_bytes(exact_->cost(subject, schedule));
  }
  schedule::Cost cost(const schedule::Subject& subject, const schedule::ChainPlan& plan) override {
    return by_bytes(exact_->cost(subject, plan));
  }

 private:
  static schedule::Cost by_bytes(schedule::Cost cost) {
    cost.cycles = cost.bytes;
    return cost;
  }
  std::unique_ptr<schedule::CostModel> exact_;
};

const schedule::RegisterCostModel kModel("fewest-bytes", "the closed form's DRAM bytes",
                                         [](const schedule::Machine& machine) {
                                           return std::make_unique<FewestBytes>(machine);
                                         });

// --- an intrinsic: the window of a pool as its columns, then its rows

/// A sum or a maximum over kh x kw is one over kw of one over kh. So the vector unit first reduces the columns of every
/// input row into ACC, and then the rows of those through the stage: kw + kh cycles for a result of stride 1, where the
/// core's `reduce` takes kw * kh. The price is ACC for the rows between. Sums are int32 and maxima have no order, so
/// results are the same bits.
class ReduceSeparable : public schedule::Intrinsic {
 public:
  using Dim = schedule::Dim;
  ReduceSeparable() : Intrinsic(schedule::Computation::kReduce) {}

  std::string nest_obstacle(const schedule::Nest& nest) const override {
    if (nest.extent[Dim::kKh] < 2 || nest.extent[Dim::kKw] < 2) return "its window has one row or one column";
    if (nest.raw) return "its results are int32 and would stand where the rows do";
    return "";
  }

  std::string tile_obstacle(const schedule::Nest& nest, const schedule::Extents& tile) const override {
    if (tile[Dim::kKh] < nest.extent[Dim::kKh] || tile[Dim::kKw] < nest.extent[Dim::kKw])
      return "intrinsic reduce_separable takes whole windows";
    return schedule::core_intrinsic(computation()).tile_obstacle(nest, tile);
  }

  schedule::Demand demand(const schedule::Nest& nest, const schedule::Extents& tile) const override {
    return {0, tile[Dim::kN] * rows(nest, tile) * tile[Dim::kOw] * tile[Dim::kG]};
  }

  schedule::Work work(const schedule::Nest& nest, const schedule::Tiling& tiling) const override {
    const schedule::Extents& all = nest.extent;
    schedule::Work work;
    work.alu_cycles = tiling.output_tiles * demand(nest, tiling.tile).sums * all[Dim::kKw] +
                      all[Dim::kN] * all[Dim::kG] * all[Dim::kOh] * all[Dim::kOw] * all[Dim::kKh];
    work.alu_instructions = 2 * tiling.output_tiles;
    return work;
  }

  void finish(const schedule::TileView& tile, schedule::TileCode& code) const override {
    const schedule::Extents& c = tile.count;
    const std::array<int64_t, 4> from = tile.input_strides();
    const auto [window_rows, window_cols] = tile.window();
    const int64_t row = c[Dim::kOw] * c[Dim::kG], image = tile.rows.count * row;
    // Columns: one entry of ACC for each row of the input, each column and block of the result.
    isa::Alu columns;
    columns.reduce_op = tile.reduce;
    columns.src = tile.input_space;
    columns.src_unsigned = tile.nest.input.is_unsigned;
    columns.dst = isa::AluSpace::kAcc;
    schedule::ComputeNest nest;
    nest.address = {tile.input, tile.sums, 0, 0};
    nest.outer = {{c[Dim::kN], {from[0], image, 0, 0}},
                  {tile.rows.count, {tile.cols.count * tile.input_blocks, row, 0, 0}},
                  {c[Dim::kOw], {from[2], c[Dim::kG], 0, 0}},
                  {c[Dim::kG], {from[3], 1, 0, 0}}};
    nest.reduction = {window_cols};
    code.alu(columns, nest);
    // Rows, through the stage.
    isa::Alu result = code.stage();
    result.reduce_op = tile.reduce;
    result.src = isa::AluSpace::kAcc;
    nest = code.stage_nest({image, tile.rows.stride * row, c[Dim::kG], 1});
    nest.address[0] = tile.sums;
    nest.reduction = {{window_rows.extent, {tile.rows.dilation * row, 0, 0, 0}}};
    code.alu(result, nest);
  }

 private:
  /// Rows of the input that a tile reads at most, those between them that are skipped not counted.
  static int64_t rows(const schedule::Nest& nest, const schedule::Extents& tile) {
    const int64_t step = std::gcd(nest.stride_h, nest.dilation_h);
    return ((tile[Dim::kOh] - 1) * nest.stride_h + (tile[Dim::kKh] - 1) * nest.dilation_h) / step + 1;
  }
};

const schedule::RegisterIntrinsic kIntrinsic("reduce_separable", "a window's columns into ACC, then its rows",
                                             std::make_unique<ReduceSeparable>());

}  // namespace
