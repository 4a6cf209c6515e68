// SPDX-License-Identifier: Apache-2.0
// Claims become operations of one value graph; the layout assigner says which of them can run together.
#include "compiler/partition/select.h"

#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>

#include "base/error.h"
#include "compiler/graph/layout_assigner.h"
#include "compiler/partition/claims.h"
#include "compiler/partition/claims_util.h"
#include "compiler/partition/growth.h"
#include "compiler/partition/operator_class.h"
#include "compiler/partition/util.h"

namespace tessera::partition {
namespace {

using nn::NodeOp;

std::optional<graph::Element> element_of(mlir::Value value) {
  switch (nn::dtype_of(value)) {
    case ops::DType::kInt8: return graph::Element::kInt8;
    case ops::DType::kUint8: return graph::Element::kUint8;
    case ops::DType::kInt32: return graph::Element::kInt32;
    default: return std::nullopt;
  }
}

/// The order that the first convolution, pool or matrix product reads which the value reaches through other operators.
graph::Preference preference_of(mlir::Value value) {
  constexpr size_t kMostReaders = 64;
  std::vector<mlir::Value> reached{value};
  for (size_t i = 0; i < reached.size() && i < kMostReaders; ++i) {
    for (mlir::Operation* user : reached[i].getUsers()) {
      auto op = mlir::dyn_cast<NodeOp>(user);
      if (!op) continue;
      switch (operator_class(op)) {
        case OperatorClass::kConvolution:
        case OperatorClass::kTransposedConvolution:
        case OperatorClass::kPool: return graph::Preference::kChannelsLast;
        case OperatorClass::kMatrixProduct: return graph::Preference::kRows;
        case OperatorClass::kRecurrentCell:
        case OperatorClass::kOther: break;
      }
      for (mlir::Value result : op.getOutputs())
        if (std::find(reached.begin(), reached.end(), result) == reached.end()) reached.push_back(result);
    }
  }
  return graph::Preference::kChannelsLast;
}

class Selector {
 public:
  /// `first`: the number of the first graph.
  Selector(mlir::Block& block, bool use_npu, const Ability& ability, const nn::GrowingAxes& growing,
           const program::Growth& growth, size_t first = 0)
      : block_(block), ability_(ability), growing_(growing), growth_(growth), first_(first) {
    for (mlir::Operation& operation : block)
      if (auto op = mlir::dyn_cast<NodeOp>(operation)) {
        operations_.push_back(op);
        if (use_npu) match(op);
      }
    if (!growing.empty()) leave_what_mixes();
  }

  Selection run() && {
    leave_images();
    drop_idle_moves();
    for (bool again = true; again;) {
      again = false;
      cache_bytes_ = number_caches();
      place_all();
      for (mlir::Operation* op : refused_) {
        // Its layout fits nowhere, or it is an alias of a host value: the CPU does it, and what is needed changes.
        again = claims_.erase(op) != 0 || again;
      }
      refused_.clear();
    }
    Selection selection;
    selection.cache_bytes = std::move(cache_bytes_);
    for (const auto& [root, claim] : claims_)
      for (mlir::Value v : claim.operands) selection.claim_reads.insert(v.getAsOpaquePointer());
    for (Slot& slot : slots_) {
      Turn turn;
      turn.cpu = std::move(slot.cpu);
      if (slot.on_npu) {
        turn.graph = selection.graphs.size();
        selection.graphs.push_back(extract(slot, "npu" + std::to_string(first_ + selection.graphs.size())));
      }
      selection.turns.push_back(std::move(turn));
    }
    selection.values = std::move(known_);
    selection.fills = std::move(fills_);
    return selection;
  }

 private:
  struct Slot {
    bool on_npu = false;
    std::vector<mlir::Operation*> claims;  // roots
    std::vector<mlir::Value> outputs;      // needed elsewhere
    std::vector<NodeOp> cpu;
  };

  // --- claims as operations of the value graph

  void match(NodeOp op) {
    auto found = claim(op);
    if (!found) return;
    for (mlir::Value v : found->operands)
      if (!element_of(v)) return;
    NodeOp root = found->root;
    for (mlir::Value v : root.getOutputs())
      if (!element_of(v)) return;
    for (mlir::Value v : found->operands) found->op.operands.push_back(id_of(v));
    for (mlir::Value v : root.getOutputs()) found->op.results.push_back(id_of(v));
    if (ability_ ? !ability_(found->op, values_)
                 : std::holds_alternative<graph::Rows>(found->op.what) ||
                       std::holds_alternative<graph::Kernel>(found->op.what))
      return;
    found->op.nodes = covered_nodes(found->covered);
    claims_.emplace(op.getOperation(), std::move(*found));
  }

  /// Whether a Concat of bytes adds to an input of the model what its result is an output of.
  bool extends_past(const Claim& claim, const graph::Concat& concat) const {
    const mlir::Value whole = claim.result();
    if (claim.operands.size() != 2 || !concat.tables[0].empty() || (!concat.steps.empty() && !concat.steps[0].empty()))
      return false;
    return std::any_of(growth_.pasts.begin(), growth_.pasts.end(), [&](const program::Past& past) {
      return claim.operands[0] == block_.getArgument(static_cast<unsigned>(past.input)) &&
             whole == block_.getTerminator()->getOperand(static_cast<unsigned>(past.output)) &&
             concat.axis == past.axis && nn::dtype_of(whole) == nn::dtype_of(claim.operands[0]);
    });
  }

  /// Gives each value that claims append to its part of the memory that stays; their bytes.
  std::vector<int64_t> number_caches() {
    std::vector<int64_t> bytes;
    for (graph::Value& value : values_.values) value.cache = value.cache_axis = -1;
    for (NodeOp op : operations_) {
      const auto claim = claims_.find(op.getOperation());
      if (claim == claims_.end()) continue;
      const auto* concat = std::get_if<graph::Concat>(&claim->second.op.what);
      if (concat == nullptr || !concat->appends) continue;
      graph::Value& value = values_.values[static_cast<size_t>(claim->second.op.results[0])];
      value.cache = static_cast<int32_t>(bytes.size());
      value.cache_axis = summed_.contains(op.getOperation()) ? concat->axis : -1;
      bytes.push_back(graph::element_count(value.shape));
    }
    return bytes;
  }

  /// Drops claims on values that grow which the NPU cannot compute at their largest extent, and notes what those that
  /// stay need of the host.
  void leave_what_mixes() {
    const auto axes = [&](graph::ValueId id) -> const std::vector<int64_t>& {
      return nn::axes_of(growing_, known_[static_cast<size_t>(id)]);
    };
    for (auto& [op, claim] : claims_)
      if (auto* concat = std::get_if<graph::Concat>(&claim.op.what)) concat->appends = extends_past(claim, *concat);
    const int64_t longest = growth_.room + growth_.step;
    std::map<mlir::Operation*, uint8_t> fills;
    std::erase_if(claims_, [&](const auto& item) {
      const GrowthRule rule = growth_rule(item.second.op, values_, axes, longest);
      if (rule.fits && rule.fill) fills[item.first] = static_cast<uint8_t>(*rule.fill);
      return !rule.fits;
    });
    for (const auto& [op, fill] : fills)
      for (mlir::Value operand : claims_.at(op).operands) note_sum(operand);
    for (const auto& [op, fill] : fills) {
      const mlir::Value left = claims_.at(op).operands[0];
      const auto made = left.getDefiningOp() ? claims_.find(left.getDefiningOp()) : claims_.end();
      if (made != claims_.end() && !leaves_behind(made->second.op, axes, fill))
        claims_.erase(op);
      else
        fills_[left.getAsOpaquePointer()] = fill;
    }
    for (auto& [op, claim] : claims_)
      if (grows_along_rows(claim.op, values_, axes, longest))
        give_run_time_length(claim.root, std::get<graph::Rows>(claim.op.what).form, growth_.step);
  }

  /// Notes the Concat that appends to `summed`, directly or in front of movements: a product sums along the axis that
  /// grows, and wants it contiguous.
  void note_sum(mlir::Value summed) {
    for (mlir::Operation* op = summed.getDefiningOp(); op != nullptr;) {
      const auto made = claims_.find(op);
      if (made == claims_.end()) return;
      const auto* concat = std::get_if<graph::Concat>(&made->second.op.what);
      if (concat != nullptr && concat->appends) summed_.insert(op);
      if (!graph::only_moves(made->second.op)) return;
      op = made->second.operands[0].getDefiningOp();
    }
  }

  /// Whether an operation of the NPU leaves this byte behind the end of its result.
  bool leaves_behind(const graph::Operation& operation, const AxesOf& axes, uint8_t byte) const {
    return grows_along_rows(operation, values_, axes, growth_.room + growth_.step) &&
           static_cast<uint8_t>(std::get<graph::Rows>(operation.what).stage.out_zero) == byte;
  }

  graph::ValueId id_of(mlir::Value v) {
    const auto [at, fresh] = ids_.emplace(v.getAsOpaquePointer(), static_cast<graph::ValueId>(known_.size()));
    if (fresh) {
      known_.push_back(v);
      values_.values.push_back({nn::value_name(v), *element_of(v), *nn::shape_of(v), preference_of(v)});
    }
    return at->second;
  }

  /// Whether an operator makes [n, c, ...] of [n, ..., c]; where there is one channel, it may be a Reshape.
  static bool brings_channels_first(NodeOp op) {
    if (!op.is("Transpose") && !op.is("Reshape")) return false;
    const ops::Shape from = *nn::shape_of(op.getInputs()[0]), to = *nn::shape_of(op.getResult(0));
    if (from.size() < 3) return false;
    std::vector<int64_t> perm = {0, static_cast<int64_t>(from.size()) - 1};
    while (perm.size() < from.size()) perm.push_back(static_cast<int64_t>(perm.size()) - 1);
    if (op.is("Transpose")) return nn::to_node(op).get_ints("perm") == perm;
    ops::Shape moved = from;
    std::rotate(moved.begin() + 1, moved.end() - 1, moved.end());
    return from.back() == 1 && to == moved;
  }

  /// An image of the host that is transposed to channels first for convolutions and pools alone stays with the host
  /// until then: it orders what it puts into the device's memory as they read it, and saves the device a copy.
  void leave_images() {
    for (NodeOp op : operations_) {
      if (!claims_.contains(op.getOperation()) || !brings_channels_first(op)) continue;
      mlir::Value image = op.getInputs()[0], result = op.getResult(0);
      std::vector<mlir::Operation*> moves{op.getOperation()};  // and a Reshape in front of it
      if (NodeOp before = nn::defining_op(image, "Reshape"); before && image.hasOneUse() && claims_.contains(before)) {
        moves.push_back(before.getOperation());
        image = before.getInputs()[0];
      }
      if (image.getDefiningOp() != nullptr && claims_.contains(image.getDefiningOp())) continue;
      if (llvm::all_of(result.getUsers(), [&](mlir::Operation* user) {
            const auto found = claims_.find(user);
            return found != claims_.end() && (std::holds_alternative<graph::Convolution>(found->second.op.what) ||
                                              std::holds_alternative<graph::Pool>(found->second.op.what));
          }))
        for (mlir::Operation* move : moves) claims_.erase(move);
    }
  }

  /// Movements with no computation of the NPU before or behind them, other movements aside, stay with the CPU.
  void drop_idle_moves() {
    std::set<mlir::Operation*> useful;
    std::set<const void*> read;  // values that useful claims read
    for (bool changed = true; changed;) {
      changed = false;
      for (auto& [op, claim] : claims_) {
        if (useful.count(op)) continue;
        bool beside = !graph::only_moves(claim.op);
        for (mlir::Value v : claim.operands) beside = beside || (v.getDefiningOp() && useful.count(v.getDefiningOp()));
        for (mlir::Value v : op->getResults()) beside = beside || read.count(v.getAsOpaquePointer());
        if (!beside) continue;
        changed = useful.insert(op).second;
        for (mlir::Value v : claim.operands) read.insert(v.getAsOpaquePointer());
      }
    }
    for (NodeOp op : operations_)
      if (!useful.count(op.getOperation())) claims_.erase(op.getOperation());
  }

  /// The operations of a slot as a graph of their own, values numbered by first use.
  graph::ValueGraph extract(const Slot& slot, const std::string& name) {
    graph::ValueGraph out;
    out.name = name;
    std::map<graph::ValueId, graph::ValueId> numbers;
    const auto number = [&](graph::ValueId id, bool defined) {
      const auto [at, fresh] = numbers.emplace(id, static_cast<graph::ValueId>(out.values.size()));
      if (fresh) {
        out.values.push_back(values_.value(id));
        out.numbers.push_back(id);
        if (!defined) out.inputs.push_back(at->second);
      }
      return at->second;
    };
    for (mlir::Operation* root : slot.claims) {
      graph::Operation op = std::move(claims_.at(root).op);
      for (graph::ValueId& id : op.operands) id = number(id, false);
      for (graph::ValueId& id : op.results) id = number(id, true);
      out.operations.push_back(std::move(op));
    }
    for (mlir::Value v : slot.outputs) out.outputs.push_back(numbers.at(ids_.at(v.getAsOpaquePointer())));
    return out;
  }

  // --- the order of turns

  std::vector<mlir::Value> reads_of(NodeOp op) const {
    const auto found = claims_.find(op.getOperation());
    return found != claims_.end() ? found->second.operands : reads(op.getOperation());
  }

  /// Operations that the results need, in order.
  std::vector<NodeOp> needed() const {
    std::set<mlir::Operation*> wanted_by;
    std::vector<mlir::Value> wanted(block_.getTerminator()->operand_begin(), block_.getTerminator()->operand_end());
    while (!wanted.empty()) {
      mlir::Value v = wanted.back();
      wanted.pop_back();
      auto op = mlir::dyn_cast_or_null<NodeOp>(v.getDefiningOp());
      if (!op || op->getBlock() != &block_ || !wanted_by.insert(op.getOperation()).second) continue;
      for (mlir::Value read : reads_of(op)) wanted.push_back(read);
    }
    std::vector<NodeOp> result;
    for (NodeOp op : operations_)
      if (wanted_by.count(op.getOperation())) result.push_back(op);
    return result;
  }

  bool on_host(mlir::Value v) const {
    mlir::Operation* def = v.getDefiningOp();
    return !def || !mlir::isa<NodeOp>(def) || def->getBlock() != &block_ || host_.count(v.getAsOpaquePointer()) != 0;
  }

  void place_all() {
    slots_.clear();
    host_.clear();
    std::vector<NodeOp> pending = needed();
    while (!pending.empty()) {
      const size_t before = pending.size();
      take_cpu(pending);
      const bool took = take_npu(pending);
      if (!refused_.empty()) return;
      if (!took && pending.size() == before) {
        throw Error(ErrorCode::kInternal,
                    "the graph cannot be put in order at node '" + nn::node_name(pending[0].getOperation()) + "'");
      }
    }
  }

  /// Operations of the CPU that are ready.
  void take_cpu(std::vector<NodeOp>& pending) {
    Slot slot;
    std::vector<NodeOp> rest;
    for (NodeOp op : pending) {
      const auto values = reads(op.getOperation());
      const bool ready = std::all_of(values.begin(), values.end(), [&](mlir::Value v) { return on_host(v); });
      if (claims_.count(op.getOperation()) == 0 && ready) {
        slot.cpu.push_back(op);
        for (mlir::Value v : op.getOutputs()) host_.insert(v.getAsOpaquePointer());
      } else {
        rest.push_back(op);
      }
    }
    if (!slot.cpu.empty()) slots_.push_back(std::move(slot));
    pending = std::move(rest);
  }

  /// As many claims as can run together. False: there is none.
  bool take_npu(std::vector<NodeOp>& pending) {
    Slot slot;
    slot.on_npu = true;
    graph::LayoutAssigner assigner(values_);
    std::vector<NodeOp> rest;
    for (NodeOp op : pending) {
      const auto found = claims_.find(op.getOperation());
      if (found == claims_.end()) {
        rest.push_back(op);
        continue;
      }
      const Claim& c = found->second;
      const bool here = std::all_of(c.operands.begin(), c.operands.end(), [&](mlir::Value v) {
        return on_host(v) || assigner.produces(ids_.at(v.getAsOpaquePointer()));
      });
      if (here && assigner.add(c.op)) {
        slot.claims.push_back(op.getOperation());
        continue;
      }
      // On the host already and still no fit, or a reshape of a host value.
      const bool all_on_host =
          std::all_of(c.operands.begin(), c.operands.end(), [&](mlir::Value v) { return on_host(v); });
      if (here && all_on_host) refused_.push_back(op.getOperation());
      rest.push_back(op);
    }
    if (!refused_.empty()) return false;
    pending = std::move(rest);
    if (slot.claims.empty()) return false;
    find_outputs(slot, pending);
    slots_.push_back(std::move(slot));
    return true;
  }

  /// Results that somebody outside reads.
  void find_outputs(Slot& slot, const std::vector<NodeOp>& pending) {
    std::set<const void*> read_outside;
    for (NodeOp op : pending)
      for (mlir::Value v : reads_of(op)) read_outside.insert(v.getAsOpaquePointer());
    for (mlir::Value v : block_.getTerminator()->getOperands()) read_outside.insert(v.getAsOpaquePointer());
    for (mlir::Operation* op : slot.claims)
      for (mlir::Value v : op->getResults())
        if (read_outside.count(v.getAsOpaquePointer())) {
          slot.outputs.push_back(v);
          host_.insert(v.getAsOpaquePointer());
        }
  }

  mlir::Block& block_;
  const Ability& ability_;
  std::vector<NodeOp> operations_;
  const nn::GrowingAxes& growing_;
  const program::Growth& growth_;
  const size_t first_;
  std::map<const void*, uint8_t> fills_;
  std::set<mlir::Operation*> summed_;  // Concats that append along an axis along which a product sums
  std::vector<int64_t> cache_bytes_;
  std::unordered_map<mlir::Operation*, Claim> claims_;
  graph::ValueGraph values_;  // of all claims; without operations
  std::vector<mlir::Value> known_;
  std::unordered_map<const void*, graph::ValueId> ids_;
  std::set<const void*> host_;  // values the host has
  std::vector<Slot> slots_;
  std::vector<mlir::Operation*> refused_;
};

/// Adds the turns of the bodies of operations in `turns`, and of those inside them.
void add_bodies(const std::vector<Turn>& turns, bool use_npu, const Ability& ability, Selection& all) {
  static const nn::GrowingAxes kNothingGrows;
  static const program::Growth kNoGrowth;
  for (const Turn& turn : turns) {
    for (NodeOp op : turn.cpu) {
      for (mlir::Region& region : op.getBodies()) {
        mlir::Block& block = region.front();
        Selection own = Selector(block, use_npu, ability, kNothingGrows, kNoGrowth, all.graphs.size()).run();
        for (Turn& inner : own.turns)
          if (inner.graph) *inner.graph += all.graphs.size();
        for (graph::ValueGraph& graph : own.graphs) {
          for (auto& number : graph.numbers) number += static_cast<graph::ValueId>(all.values.size());
          all.graphs.push_back(std::move(graph));
        }
        all.values.insert(all.values.end(), own.values.begin(), own.values.end());
        all.claim_reads.merge(own.claim_reads);
        add_bodies(own.turns, use_npu, ability, all);
        all.bodies.emplace(&block, std::move(own.turns));
      }
    }
  }
}

void put_in_order(const Selection& selection, const std::vector<Turn>& turns, std::vector<size_t>& order) {
  for (const Turn& turn : turns) {
    if (turn.graph) order.push_back(*turn.graph);
    for (NodeOp op : turn.cpu)
      for (mlir::Region& region : op.getBodies()) put_in_order(selection, selection.bodies.at(&region.front()), order);
  }
}

}  // namespace

std::vector<size_t> graphs_in_order(const Selection& selection) {
  std::vector<size_t> order;
  put_in_order(selection, selection.turns, order);
  return order;
}

Ability ability_of(const isa::MachineConfig& config) {
  return [config, machine = isa::to_toml(config)](const graph::Operation& operation, const graph::ValueGraph& values) {
    if (const auto* kernel = std::get_if<graph::Kernel>(&operation.what)) return kernel->machine == machine;
    const auto* rows = std::get_if<graph::Rows>(&operation.what);
    if (rows == nullptr) return true;
    const graph::Extents& shape = values.value(operation.results[0]).shape;
    const size_t first = static_cast<size_t>(rows->axis), end = rows->flattened ? shape.size() : first + 1;
    int64_t length = 1;
    for (size_t a = first; a < end; ++a) length *= shape[a];
    return length <= npu::longest_row(config, rows->form.kind);
  };
}

Selection select(mlir::Block& block, bool use_npu, const Ability& ability, const nn::GrowingAxes& growing,
                 const program::Growth& growth) {
  Selection selection = Selector(block, use_npu, ability, growing, growth).run();
  add_bodies(selection.turns, use_npu && growing.empty(), ability, selection);
  return selection;
}

}  // namespace tessera::partition
