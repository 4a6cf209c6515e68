// SPDX-License-Identifier: Apache-2.0
// Functions of one byte as tables, and what belongs to them. A chain of unary operators between two
// 8-bit tensors is one table, computed by the operator library over all 256 values; operators that only move elements
// may stand inside the chain, and so may tensors of 16 bits.
#include <cstring>
#include <set>

#include "compiler/partition/claims_util.h"
#include "compiler/partition/operator_class.h"
#include "compiler/partition/parameters.h"

namespace tessera::partition {

bool is_elementwise(NodeOp op) {
  static const std::set<std::string> kMicrosoft = {"QLinearLeakyRelu", "QLinearSigmoid", "Gelu",
                                                   "QuickGelu",        "FastGelu",       "QuantizeLinear",
                                                   "DequantizeLinear", "QLinearAdd",     "QLinearMul"};
  static const std::set<std::string> kLitert = {"Lookup", "Quantize", "Add", "Sub", "Mul", "PRelu"};
  if (op.getOutputs().size() != 1) return false;
  if (op.getDomain() == nn::kLitertDomain) return kLitert.count(op.getOpType().str()) != 0;
  if (op.getDomain() == nn::kMicrosoftDomain) return kMicrosoft.count(op.getOpType().str()) != 0;
  return op.getDomain().empty() && operator_names().elementwise.count(op.getOpType().str()) != 0;
}

bool is_scalar_constant(mlir::Value value) {
  const auto shape = nn::shape_of(value);
  return shape && ops::element_count(*shape) == 1 && nn::constant_value(value).has_value();
}

namespace {

/// `order` on vectors; `values` holds what it starts from. Operators that only move elements pass them through.
std::optional<ops::Tensor> evaluate_chain(llvm::DenseMap<mlir::Value, ops::Value> values, llvm::ArrayRef<NodeOp> order,
                                          mlir::Value result) {
  for (NodeOp step : order) {
    if (!is_elementwise(step)) {
      ops::Value moved;
      for (mlir::Value operand : step.getInputs())
        if (const auto found = values.find(operand); found != values.end()) moved = found->second;
      for (mlir::Value v : step.getOutputs()) values[v] = moved;
      continue;
    }
    std::vector<ops::Value> inputs;
    for (mlir::Value operand : step.getInputs()) {
      if (nn::is_none(operand)) {
        inputs.emplace_back();
      } else if (const auto constant = nn::constant_value(operand)) {
        inputs.emplace_back(constant->rank() <= 1 ? *constant : constant->reshaped({}));
      } else {
        inputs.push_back(values[operand]);
      }
    }
    ops::Node node = nn::to_node(step);
    if (!ops::lookup(node, inputs.size()).deterministic) return std::nullopt;
    node.attributes.erase("axis");  // per tensor parameters: the axis has no meaning
    auto outputs = ops::evaluate(node, inputs);
    if (outputs.size() != 1 || outputs[0].kind != ops::Value::Kind::kTensor) return std::nullopt;
    values[step.getResult(0)] = outputs[0];
  }
  const auto found = values.find(result);
  if (found == values.end()) return std::nullopt;
  return found->second.tensor;
}

}  // namespace

std::optional<npu::Table> tabulate(mlir::Value source, const std::vector<NodeOp>& order, mlir::Value result) {
  ops::Tensor all(nn::dtype_of(source), {256});
  for (int i = 0; i < 256; ++i) all.as_mutable<uint8_t>()[static_cast<size_t>(i)] = static_cast<uint8_t>(i);
  const auto table = evaluate_chain({{source, ops::Value(all)}}, order, result);
  if (!table || table->bytes() != 256) return std::nullopt;
  npu::Table out(256);
  std::memcpy(out.data(), table->data(), 256);
  return out;
}

namespace {

/// Collects the elementwise operations between `value` and one 8-bit source, in an order in which they can be
/// evaluated.
bool collect_unary(mlir::Value value, const Shape& shape, mlir::Value& source, std::vector<NodeOp>& order,
                   std::set<mlir::Operation*>& seen) {
  if (is_scalar_constant(value)) return true;
  if (nn::shape_of(value) != shape) return false;
  if (value == source) return true;
  NodeOp op = nn::defining_op(value);
  if (!op || seen.size() > 64) return false;
  if (seen.count(op.getOperation())) return true;
  if (!is_elementwise(op)) return false;
  const bool from_bytes = (op.is("DequantizeLinear") || op.is("DequantizeLinear", nn::kMicrosoftDomain));
  const DType read = nn::dtype_of(op.getInputs()[0]);  // 16 bits may stand between the bytes
  const bool reads_integers = is_byte(read) || read == DType::kInt16 || read == DType::kUint16;
  if (from_bytes && (!reads_integers || nn::constant_value(op.getInputs()[0]))) return false;
  for (mlir::Value operand : op.getInputs()) {
    if (nn::is_none(operand)) continue;
    if (is_byte(nn::dtype_of(operand)) && !nn::constant_value(operand)) {
      // Everything must come from one tensor, of the result's shape.
      if ((source && source != operand) || nn::shape_of(operand) != shape) return false;
      source = operand;
      continue;
    }
    if (!collect_unary(operand, shape, source, order, seen)) return false;
  }
  seen.insert(op.getOperation());
  order.push_back(op);
  return true;
}

bool is_identity(const npu::Table& table) {
  for (size_t i = 0; i < table.size(); ++i)
    if (table[i] != i) return false;
  return true;
}

/// The node's operator names the layer: that of the chain which is neither Q nor DQ.
std::string kind_of(const std::vector<NodeOp>& order, NodeOp op) {
  std::string kind = order.size() == 1 ? op.getOpType().str() : "Table";
  for (NodeOp step : order)
    if (!step.is("QuantizeLinear") && !step.is("DequantizeLinear")) kind = step.getOpType().str();
  return kind;
}

}  // namespace

std::optional<Claim> claim_table(NodeOp op) {
  mlir::Value result = op.getResult(0);
  if (!is_byte(nn::dtype_of(result)) || !is_elementwise(op)) return std::nullopt;
  const Shape shape = *nn::shape_of(result);
  mlir::Value source;
  std::vector<NodeOp> order;
  std::set<mlir::Operation*> seen;
  if (!collect_unary(result, shape, source, order, seen) || !source) return std::nullopt;
  auto table = tabulate(source, order, result);
  if (!table) return std::nullopt;
  Claim c = base_claim(op, {source});
  c.covered.clear();
  for (NodeOp step : order) c.covered.push_back(step.getOperation());
  c.op.kind = kind_of(order, op);
  if (nn::dtype_of(source) == nn::dtype_of(result) && is_identity(*table)) {
    c.op.what = graph::Move{{{}}, {}};  // a factor that only scales the steps: the bytes stay where they are
  } else {
    c.op.what = graph::Lookup{std::move(*table)};
  }
  return c;
}

namespace {

bool is_pad(const graph::Step& move) { return move.kind == graph::Step::Kind::kPad; }

/// A chain of unary operators and movements from a byte tensor to `at`.
struct Chain {
  mlir::Value source;
  std::vector<NodeOp> order;  // as they are evaluated
  std::vector<graph::Step> steps;
};
std::optional<Chain> chain_to(mlir::Value at, bool pads = false) {
  Chain chain;
  while (!chain.source) {
    NodeOp step = nn::defining_op(at);
    if (!step || chain.order.size() > 64 || !all_static(step) || !has_elements(at) || !step.getBodies().empty() ||
        step.is("QuantizeLinear"))
      return std::nullopt;
    if (is_elementwise(step)) {
      mlir::Value data;
      for (mlir::Value v : step.getInputs()) {
        if (nn::is_none(v) || is_scalar_constant(v)) continue;
        if (data || nn::shape_of(v) != nn::shape_of(at)) return std::nullopt;
        data = v;
      }
      if (!data) return std::nullopt;
      if (is_byte(nn::dtype_of(data))) chain.source = data;
      at = data;
    } else {
      auto moves = moves_of(step);
      if (!moves) return std::nullopt;
      auto& own = (*moves)[mlir::cast<mlir::OpResult>(at).getResultNumber()];
      if (!pads && std::any_of(own.begin(), own.end(), is_pad)) return std::nullopt;
      chain.steps.insert(chain.steps.begin(), own.begin(), own.end());
      at = step.getInputs()[0];
    }
    chain.order.insert(chain.order.begin(), step);
  }
  if (nn::constant_value(chain.source)) return std::nullopt;
  return chain;
}

}  // namespace

std::optional<Claim> claim_moved_table(NodeOp op) {
  if (!is_byte(nn::dtype_of(op.getResult(0))) || !op.is("QuantizeLinear")) return std::nullopt;
  for (mlir::Value v : op.getInputs().drop_front())
    if (!nn::is_none(v) && !is_scalar_constant(v)) return std::nullopt;
  auto chain = chain_to(op.getInputs()[0], true);
  if (!chain || chain->steps.empty()) return std::nullopt;
  chain->order.push_back(op);
  // What a Pad puts around goes through the operators behind it only: the table comes first then, and the pads are its
  // bytes.
  size_t pad = 0;
  for (size_t i = 0; i < chain->order.size(); ++i) {
    NodeOp step = chain->order[i];
    if (!step.is("Pad")) continue;
    const ops::Node node = nn::to_node(step);
    const auto moves = moves_of(step);
    if (!moves || std::none_of((*moves)[0].begin(), (*moves)[0].end(), is_pad))
      continue;  // it repeats elements, or crops
    float value = node.get_float("value", 0.0f);
    if (mlir::Value v = nn::input_or_null(step, 2)) {
      const auto constant = nn::constant_value(v);
      if (!constant || constant->dtype() != DType::kFloat || constant->size() != 1) return std::nullopt;
      value = constant->to_floats()[0];
    }
    const auto around =
        evaluate_chain({{step.getResult(0), ops::Value(ops::Tensor::of<float>(DType::kFloat, {1}, {value}))}},
                       llvm::ArrayRef<NodeOp>(chain->order).drop_front(i + 1), op.getResult(0));
    while (pad < chain->steps.size() && !is_pad(chain->steps[pad])) ++pad;
    if (!around || around->bytes() != 1 || pad == chain->steps.size()) return std::nullopt;
    chain->steps[pad++].value = static_cast<int32_t>(around->at_int64(0));
  }
  auto table = tabulate(chain->source, chain->order, op.getResult(0));
  if (!table) return std::nullopt;
  Claim c = base_claim(op, {chain->source});
  c.covered.clear();
  for (NodeOp step : chain->order) c.covered.push_back(step.getOperation());
  c.op.kind = kind_of(chain->order, op);
  graph::Move what;
  what.table_first = pad > 0;
  what.steps.push_back(std::move(chain->steps));
  if (nn::dtype_of(chain->source) != nn::dtype_of(op.getResult(0)) || !is_identity(*table))
    what.table = std::move(*table);
  c.op.what = std::move(what);
  return c;
}

namespace {

/// Movements behind int32 sums that `quantise` requantises with one multiplier.
struct MovedSums {
  Requantised requantised;
  std::vector<graph::Step> steps;
  std::vector<mlir::Operation*> movements;
};

std::optional<MovedSums> moved_sums(NodeOp quantise, mlir::Value at) {
  std::vector<graph::Step> steps;
  std::vector<mlir::Operation*> movements;
  for (NodeOp step = nn::defining_op(at); step && all_static(step) && steps.size() < 64; step = nn::defining_op(at)) {
    auto moves = step.getOutputs().size() == 1 ? moves_of(step) : std::nullopt;
    if (!moves || std::any_of((*moves)[0].begin(), (*moves)[0].end(), [](const graph::Step& m) {
          return m.kind == graph::Step::Kind::kPad || m.kind == graph::Step::Kind::kGather;
        }))
      break;
    steps.insert(steps.begin(), (*moves)[0].begin(), (*moves)[0].end());
    movements.push_back(step.getOperation());
    at = step.getInputs()[0];
  }
  auto sums = requantised(quantise, at);
  if (!sums || sums->what.other || sums->what.stage.multiplier.size() != 1) return std::nullopt;
  return MovedSums{std::move(*sums), std::move(steps), std::move(movements)};
}

/// A Concat of floats, and the QuantizeLinear of its result, as a Concat of bytes.
class FloatConcat {
 public:
  FloatConcat(NodeOp concat, NodeOp quantise) : concat_(concat), quantise_(quantise) {}

  /// Takes the next operand in. False where it is not made from bytes or sums.
  bool add(mlir::Value value) {
    auto chain = chain_to(value);
    if (!has_elements(value)) return false;
    return chain ? add_chain(std::move(*chain)) : add_sums(value);
  }

  Claim finish(int64_t axis) && {
    Claim c = base_claim(quantise_, operands_);
    c.op.kind = "Concat";
    c.covered = std::move(covered_);
    c.covered.push_back(concat_.getOperation());
    c.covered.push_back(quantise_.getOperation());
    what_.axis = axis;
    c.op.what = std::move(what_);
    return c;
  }

 private:
  bool add_sums(mlir::Value value) {
    auto sums = moved_sums(quantise_, value);
    if (!sums) return false;
    covered_.insert(covered_.end(), sums->movements.begin(), sums->movements.end());
    covered_.insert(covered_.end(), sums->requantised.covered.begin() + 1, sums->requantised.covered.end());
    what_.stages.push_back(std::move(sums->requantised.what.stage));
    what_.tables.emplace_back();
    what_.steps.push_back(std::move(sums->steps));
    operands_.push_back(sums->requantised.sums);
    return true;
  }

  bool add_chain(Chain chain) {
    for (NodeOp step : chain.order)
      if (std::find(covered_.begin(), covered_.end(), step.getOperation()) == covered_.end())
        covered_.push_back(step.getOperation());
    chain.order.push_back(concat_);
    chain.order.push_back(quantise_);
    mlir::Value result = quantise_.getResult(0);
    auto table = tabulate(chain.source, chain.order, result);
    if (!table) return false;
    if (nn::dtype_of(chain.source) == nn::dtype_of(result) && is_identity(*table)) table->clear();
    what_.stages.emplace_back();
    what_.tables.push_back(std::move(*table));
    what_.steps.push_back(std::move(chain.steps));
    operands_.push_back(chain.source);
    return true;
  }

  NodeOp concat_, quantise_;
  graph::Concat what_;
  std::vector<mlir::Value> operands_;
  std::vector<mlir::Operation*> covered_;
};

}  // namespace

std::optional<Claim> claim_float_concat(NodeOp op) {
  NodeOp concat = nn::defining_op(op.getInputs()[0], "Concat");
  if (!concat || !is_byte(nn::dtype_of(op.getResult(0))) || !all_static(concat)) return std::nullopt;
  for (mlir::Value v : op.getInputs().drop_front())
    if (!nn::is_none(v) && !is_scalar_constant(v)) return std::nullopt;
  const auto rank = static_cast<int64_t>(nn::shape_of(concat.getResult(0))->size());
  int64_t axis = nn::to_node(concat).get_int("axis", 0);
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) return std::nullopt;
  FloatConcat bytes(concat, op);
  for (mlir::Value v : concat.getInputs())
    if (!bytes.add(v)) return std::nullopt;
  return std::move(bytes).finish(axis);
}

}  // namespace tessera::partition
