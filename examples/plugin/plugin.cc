// SPDX-License-Identifier: Apache-2.0
// A plugin of the compiler: what somebody outside the project writes to teach it more. It adds a matcher, which places
// an operator that the core leaves to the CPU, a pass over the NPU's graph, and a cost model for the search:
//
//   tessera compile model.onnx --plugin libtessera_example_plugin.so
//   tessera-opt graphs.npu --load libtessera_example_plugin.so --pass=drop-identity-tables
//
// Everything is registered by objects that are made when the file is loaded.
#include <memory>
#include <utility>

#include "compiler/graph/pass.h"
#include "compiler/nn/bridge.h"
#include "compiler/partition/claims.h"
#include "compiler/schedule/cost_model.h"

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

}  // namespace
