// SPDX-License-Identifier: Apache-2.0
// Moves transposes down through operations that work on each element, concatenate, split, pad, reduce or normalise
// along an axis, where nothing else reads the transposed value, so that a transpose meets its inverse and both vanish.
// Several readers that come together again in one value (x * sigmoid(x)) count as one.
// No arithmetic changes. A transpose that only moves dimensions of extent one becomes a reshape.
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

#include "compiler/nn/passes/pass_util.h"
#include "compiler/nn/passes/passes.h"
#include "compiler/nn/reshape_target.h"

namespace tessera::nn {
namespace {

using Permutation = std::vector<int64_t>;

/// The permutation of a Transpose whose result only `user` reads (perhaps several times); empty if it is none.
Permutation sinkable(mlir::Value value, mlir::Operation* user) {
  NodeOp transpose = defining_op(value, "Transpose");
  if (!transpose) return {};
  for (mlir::Operation* other : value.getUsers()) {
    if (other != user) return {};
  }
  return permutation_of(transpose);
}

Permutation inverse(const Permutation& perm) {
  Permutation result(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) result[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return result;
}

mlir::Value source(mlir::Value value) { return value.getDefiningOp()->getOperand(0); }

/// A constant that is broadcast against a transposed value, as it must be against the value itself. Scalars stay.
std::optional<mlir::Value> untranspose(mlir::PatternRewriter& rewriter, mlir::Value value, const Permutation& perm) {
  auto shape = shape_of(value);
  if (!shape || shape->size() > perm.size()) return std::nullopt;
  if (shape->empty()) return value;
  auto tensor = constant_value(value);
  if (!tensor) return std::nullopt;
  ops::Shape padded(perm.size() - shape->size(), 1);
  padded.insert(padded.end(), shape->begin(), shape->end());
  ops::Node node{"", "Transpose", 13, "", {{"perm", inverse(perm)}}, 1};
  std::vector<ops::Value> results = ops::evaluate(node, {ops::Value(tensor->reshaped(padded))});
  return create_constant(rewriter, value.getLoc(), copy_of(results.at(0).tensor));
}

/// Replaces `op` by itself on other operands, each used result transposed behind it.
bool rebuild(NodeOp op, mlir::PatternRewriter& rewriter, mlir::ValueRange operands,
             const std::map<std::string, ops::Attribute>& attributes, const Permutation& perm) {
  rewriter.setInsertionPoint(op);
  llvm::SmallVector<mlir::Value> unnamed(op->getNumResults());
  NodeOp moved = create_op(rewriter, location_for(op, unnamed), op.getOpType(), op.getDomain(),
                           static_cast<int>(op.getVersion()), operands, attributes, op->getNumResults());
  llvm::SmallVector<mlir::Value> results;
  for (auto [before, after] : llvm::zip(op->getResults(), moved->getResults())) {
    mlir::Location location = make_location(op.getContext(), node_name(op) + ".transpose", {value_name(before)});
    results.push_back(create_op(rewriter, location, "Transpose", "",
                                static_cast<int>(op.getDomain().empty() ? op.getVersion() : 13), {after},
                                {{"perm", perm}})
                          ->getResult(0));
  }
  rewriter.replaceOp(op, results);
  return true;
}

const llvm::StringSet<>& unary_operators() {
  static const llvm::StringSet<> names = {
      "Abs",         "Acos",       "Acosh",    "Asin",  "Asinh", "Atan",      "Atanh",   "BitwiseNot",     "Cast",
      "Ceil",        "Celu",       "Cos",      "Cosh",  "Elu",   "Erf",       "Exp",     "Floor",          "Gelu",
      "HardSigmoid", "HardSwish",  "Identity", "IsInf", "IsNaN", "LeakyRelu", "Log",     "Mish",           "Neg",
      "Not",         "Reciprocal", "Relu",     "Round", "Selu",  "Shrink",    "Sigmoid", "Sign",           "Sin",
      "Sinh",        "Softplus",   "Softsign", "Sqrt",  "Swish", "Tan",       "Tanh",    "ThresholdedRelu"};
  return names;
}
const llvm::StringSet<>& broadcasting_operators() {
  static const llvm::StringSet<> names = {"Add",        "And",         "BitShift", "BitwiseAnd", "BitwiseOr",
                                          "BitwiseXor", "Div",         "Equal",    "Greater",    "GreaterOrEqual",
                                          "Less",       "LessOrEqual", "Max",      "Mean",       "Min",
                                          "Mod",        "Mul",         "Or",       "PRelu",      "Pow",
                                          "Sub",        "Sum",         "Where",    "Xor"};
  return names;
}

/// Whether an operator works on each element of its first operand, and its other operands are scalars or absent.
bool is_unary(NodeOp op) {
  bool plain = op.getDomain().empty() && unary_operators().contains(op.getOpType());
  bool scalars = op.is("Clip") || op.is("QuantizeLinear") || op.is("DequantizeLinear") ||
                 op.is("QuantizeLinear", kMicrosoftDomain) || op.is("DequantizeLinear", kMicrosoftDomain) ||
                 op.is("QLinearLeakyRelu", kMicrosoftDomain) || op.is("QLinearSigmoid", kMicrosoftDomain) ||
                 op.is("Lookup", kLitertDomain) || op.is("Quantize", kLitertDomain);
  if (!plain && !scalars) return false;
  return llvm::all_of(llvm::drop_begin(op->getOperands()), [](mlir::Value other) {
    auto shape = shape_of(other);
    return is_none(other) || (shape && shape->empty());
  });
}

/// The operands that an operator broadcasts against each other; none if it does not.
std::vector<unsigned> broadcast_operands(NodeOp op) {
  bool quantised = op.is("QLinearAdd", kMicrosoftDomain) || op.is("QLinearMul", kMicrosoftDomain);
  const bool litert = op.is("Add", kLitertDomain) || op.is("Sub", kLitertDomain) || op.is("Mul", kLitertDomain) ||
                      op.is("PRelu", kLitertDomain);
  std::vector<unsigned> data;
  if (!quantised && !litert && !(op.getDomain().empty() && broadcasting_operators().contains(op.getOpType())))
    return data;
  for (unsigned i = 0; i < op->getNumOperands(); ++i) {
    if (!quantised || i == 0 || i == 3) data.push_back(i);
  }
  return data;
}

/// Whether a transposition of the values in `transposed` passes through the operation.
bool passes(NodeOp op, const Permutation& perm, const llvm::DenseSet<mlir::Value>& transposed) {
  const auto turned = [&](mlir::Value value) {
    NodeOp other = defining_op(value, "Transpose");
    return transposed.contains(value) || (other && permutation_of(other) == perm);
  };
  if (op->getNumResults() != 1 || !op.getBodies().empty()) return false;
  if (is_unary(op)) return turned(op->getOperand(0));
  const std::vector<unsigned> data = broadcast_operands(op);
  auto result = shape_of(op->getResult(0));
  return !data.empty() && result && result->size() == perm.size() && llvm::all_of(data, [&](unsigned i) {
    mlir::Value value = op->getOperand(i);
    auto shape = shape_of(value);
    return !is_none(value) && (turned(value) || constant_value(value) || (shape && shape->empty()));
  });
}

/// A transpose with several readers becomes one for each reader where all of them lead, through element-wise
/// operations, to one value: then they sink to it, and are one transpose again.
bool split_at_diamond(NodeOp op, mlir::PatternRewriter& rewriter) {
  constexpr int kMostOperations = 64;
  if (!op.is("Transpose")) return false;
  const Permutation perm = permutation_of(op);
  mlir::Value start = op->getResult(0);
  llvm::SmallSetVector<mlir::Operation*, 4> readers(start.user_begin(), start.user_end());
  if (perm.empty() || readers.size() < 2) return false;
  llvm::DenseSet<mlir::Value> inside = {start};
  const auto leaves = [&](mlir::Value value) {  // whether something outside reads it
    return llvm::any_of(value.getUsers(), [&](mlir::Operation* user) {
      return user->getNumResults() != 1 || !inside.contains(user->getResult(0));
    });
  };
  mlir::Operation* at = op->getNextNode();
  for (int i = 0; at && i < kMostOperations; ++i, at = at->getNextNode()) {
    NodeOp next = llvm::dyn_cast<NodeOp>(at);
    if (!next || !passes(next, perm, inside)) continue;
    inside.insert(next->getResult(0));
    if (leaves(start) || llvm::count_if(inside, leaves) != 1) continue;
    rewriter.setInsertionPointAfter(op);
    for (mlir::Operation* reader : llvm::drop_begin(readers)) {
      mlir::Value copy = rewriter.clone(*op)->getResult(0);
      rewriter.modifyOpInPlace(reader, [&] { reader->replaceUsesOfWith(start, copy); });
    }
    return true;
  }
  return false;
}

/// Operators on one tensor whose other operands are scalars or absent: the leading operand moves.
bool sink_through_unary(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!is_unary(op)) return false;
  Permutation perm = sinkable(op->getOperand(0), op);
  if (perm.empty()) return false;
  llvm::SmallVector<mlir::Value> operands(op->getOperands());
  operands[0] = source(operands[0]);
  return rebuild(op, rewriter, operands, to_attributes(op.getOnnxAttributes()), perm);
}

/// Element-wise operators with broadcasting: every operand is transposed alike or a constant.
bool sink_through_broadcast(NodeOp op, mlir::PatternRewriter& rewriter) {
  const std::vector<unsigned> data = broadcast_operands(op);
  Permutation perm;
  for (unsigned i : data) {
    if (is_none(op->getOperand(i))) return false;
    Permutation own = sinkable(op->getOperand(i), op);
    if (own.empty()) continue;
    if (!perm.empty() && own != perm) return false;
    perm = own;
  }
  auto result = shape_of(op->getResult(0));
  if (perm.empty() || !result || result->size() != perm.size()) return false;
  llvm::SmallVector<mlir::Value> operands(op->getOperands());
  for (unsigned i : data) {
    if (!sinkable(operands[i], op).empty()) continue;
    auto shape = shape_of(operands[i]);
    bool constant = constant_value(operands[i]).has_value() || (shape && shape->empty());
    if (!constant) return false;
  }
  for (unsigned i : data) {
    if (!sinkable(operands[i], op).empty()) {
      operands[i] = source(operands[i]);
      continue;
    }
    auto turned = untranspose(rewriter, operands[i], perm);
    if (!turned) return false;
    operands[i] = *turned;
  }
  return rebuild(op, rewriter, operands, to_attributes(op.getOnnxAttributes()), perm);
}

bool sink_through_concat(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.is("Concat")) return false;
  Permutation perm = sinkable(op->getOperand(0), op);
  if (perm.empty()) return false;
  llvm::SmallVector<mlir::Value> operands;
  for (mlir::Value operand : op->getOperands()) {
    if (sinkable(operand, op) != perm) return false;
    operands.push_back(source(operand));
  }
  ops::Node node = to_node(op);
  int64_t axis = ops::normalise_axis(node, node.get_int("axis", 0), static_cast<int64_t>(perm.size()));
  node.attributes["axis"] = perm[static_cast<size_t>(axis)];
  return rebuild(op, rewriter, operands, node.attributes, perm);
}

/// Operators with one axis attribute along which they work. Split makes several transposes of one: only where each
/// meets another.
bool sink_through_axis(NodeOp op, mlir::PatternRewriter& rewriter) {
  bool split = op.is("Split");
  bool softmax = (op.is("Softmax") || op.is("LogSoftmax") || op.is("Hardmax")) && op.getVersion() >= 13;
  if (!split && !softmax) return false;
  Permutation perm = sinkable(op->getOperand(0), op);
  if (perm.empty()) return false;
  for (mlir::Operation* user : op->getUsers()) {
    NodeOp next = llvm::dyn_cast<NodeOp>(user);
    if (split && !(next && next.is("Transpose"))) return false;
  }
  ops::Node node = to_node(op);
  int64_t axis = ops::normalise_axis(node, node.get_int("axis", split ? 0 : -1), static_cast<int64_t>(perm.size()));
  node.attributes["axis"] = perm[static_cast<size_t>(axis)];
  llvm::SmallVector<mlir::Value> operands(op->getOperands());
  operands[0] = source(operands[0]);
  return rebuild(op, rewriter, operands, node.attributes, perm);
}

bool sink_through_pad(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.is("Pad") || input_or_null(op, 3)) return false;
  Permutation perm = sinkable(op->getOperand(0), op);
  auto pads = constant_ints(op, 1, "pads");
  if (perm.empty() || !pads || pads->size() != 2 * perm.size()) return false;
  std::vector<int64_t> turned(pads->size());
  for (size_t i = 0; i < perm.size(); ++i) {
    turned[static_cast<size_t>(perm[i])] = (*pads)[i];
    turned[perm.size() + static_cast<size_t>(perm[i])] = (*pads)[perm.size() + i];
  }
  auto attributes = to_attributes(op.getOnnxAttributes());
  llvm::SmallVector<mlir::Value> operands(op->getOperands());
  operands[0] = source(operands[0]);
  if (attributes.count("pads")) {
    attributes["pads"] = turned;
  } else {
    operands[1] = create_constant(rewriter, op.getLoc(), ops::Tensor::vector_i64(turned));
  }
  return rebuild(op, rewriter, operands, attributes, perm);
}

/// Reductions with known axes that keep their dimensions, if the order in which they add does not matter (integers,
/// max, min).
bool sink_through_reduction(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.getDomain().empty() || !op.getOpType().starts_with("Reduce")) return false;
  bool exact = op.is("ReduceMax") || op.is("ReduceMin") || ops::is_integer(dtype_of(op->getResult(0)));
  Permutation perm = sinkable(op->getOperand(0), op);
  auto axes = constant_ints(op, 1, "axes");
  ops::Node node = to_node(op);
  if (!exact || perm.empty() || !axes || axes->empty() || node.get_int("keepdims", 1) == 0) return false;
  for (int64_t& axis : *axes)
    axis = perm[static_cast<size_t>(ops::normalise_axis(node, axis, static_cast<int64_t>(perm.size())))];
  llvm::SmallVector<mlir::Value> operands(op->getOperands());
  operands[0] = source(operands[0]);
  if (node.attributes.count("axes")) {
    node.attributes["axes"] = *axes;
  } else {
    operands[1] = create_constant(rewriter, op.getLoc(), ops::Tensor::vector_i64(*axes));
  }
  return rebuild(op, rewriter, operands, node.attributes, perm);
}

/// A transpose that keeps the order of the dimensions beyond extent one moves no data.
bool transpose_to_reshape(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.is("Transpose") || !is_static(op->getResult(0))) return false;
  auto input = shape_of(op->getOperand(0)), output = shape_of(op->getResult(0));
  Permutation perm = permutation_of(op);
  if (!input || !output || perm.empty()) return false;
  int64_t last = -1;
  for (int64_t p : perm) {
    if ((*input)[static_cast<size_t>(p)] == 1) continue;
    if ((*input)[static_cast<size_t>(p)] == 0 || p < last) return false;
    last = p;
  }
  const auto target = reshape_target(op, *input, *output);
  if (!target) return false;
  mlir::Value shape = create_constant(rewriter, op.getLoc(), ops::Tensor::vector_i64(*target));
  replace_with(rewriter, op, "Reshape", {op->getOperand(0), shape});
  return true;
}

bool cancel_transposes(NodeOp op, mlir::PatternRewriter& rewriter) {
  NodeOp inner = op.is("Transpose") ? defining_op(op->getOperand(0), "Transpose") : NodeOp();
  if (!inner) return false;
  Permutation outer_perm = permutation_of(op), inner_perm = permutation_of(inner);
  if (outer_perm.empty() || inner_perm.size() != outer_perm.size()) return false;
  for (size_t i = 0; i < outer_perm.size(); ++i) {
    if (inner_perm[static_cast<size_t>(outer_perm[i])] != static_cast<int64_t>(i)) return false;
  }
  // An operation that moved lost the name of its result; the value it now stands for has one.
  mlir::Value kept = inner->getOperand(0);
  NodeOp producer = defining_op(kept);
  if (producer && producer->getNumResults() == 1 && value_name(kept).empty())
    producer->setLoc(location_for(producer, {op->getResult(0)}));
  rewriter.replaceOp(op, kept);
  return true;
}

}  // namespace

std::unique_ptr<mlir::Pass> create_sink_transposes_pass() {
  return make_function_pass(
      "nn-sink-transposes", "move transposes down until they cancel", [](mlir::func::FuncOp func) {
        std::vector<Rewrite> sink = {cancel_transposes,      split_at_diamond,      sink_through_unary,
                                     sink_through_broadcast, sink_through_concat,   sink_through_axis,
                                     sink_through_pad,       sink_through_reduction};
        if (mlir::failed(apply_rewrites(func, sink))) return mlir::failure();
        return apply_rewrites(func, {transpose_to_reshape});
      });
}

}  // namespace tessera::nn
