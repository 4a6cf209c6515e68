// SPDX-License-Identifier: Apache-2.0
// Integer products whose results are float: MatMulIntegerToFloat and QGemm without parameters of its result. Each
// becomes MatMulInteger, the addition of an int32 bias, Cast, Mul by the product of the scales and the addition of a
// float bias, in the order of the operator's formula (docs/numerics.md), so that every bit is kept and the product may
// run on the NPU. Only 8-bit weights that are constant are worth that. The products of DynamicQuantizeLSTM become
// integer ones too, those of its hidden state in the body of a Scan.
#include <algorithm>
#include <array>
#include <cctype>

#include "compiler/nn/passes/pass_util.h"
#include "compiler/nn/passes/passes.h"
#include "compiler/nn/splitter.h"

namespace tessera::nn {
namespace {

using ops::DType;

bool is_known_float(mlir::Value value) {
  const auto shape = shape_of(value);
  return dtype_of(value) == DType::kFloat && shape && shape->size() <= 1;
}

/// Inputs: A, B, scale of A, of B, zero points of both, bias.
bool split_to_float(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.is("MatMulIntegerToFloat", kMicrosoftDomain)) return false;
  const mlir::Value a = op->getOperand(0), b = op->getOperand(1), a_scale = op->getOperand(2),
                    b_scale = op->getOperand(3);
  if (!is_byte(a) || !is_byte(b) || !constant_value(b) || !is_known_float(a_scale) || !is_known_float(b_scale))
    return false;
  Splitter split(op, rewriter);
  const mlir::Value sum = split.one("MatMulInteger", 10, {a, b, input_or_null(op, 4), input_or_null(op, 5)});
  split.finish(sum, split.one("Mul", 14, {a_scale, b_scale}), input_or_null(op, 6));
  return true;
}

/// Inputs: A, scale, zero point, B, scale, zero point, int32 C, parameters of the result.
bool split_gemm(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.is("QGemm", kMicrosoftDomain) || input_or_null(op, 7)) return false;
  const ops::Node node = to_node(op);
  mlir::Value a = op->getOperand(0), b = op->getOperand(3);
  const mlir::Value a_scale = op->getOperand(1), b_scale = op->getOperand(4), c = input_or_null(op, 6);
  auto weights = constant_value(b);
  if (!is_byte(a) || !is_byte(b) || !weights || !is_known_float(a_scale) || !is_known_float(b_scale)) return false;
  const std::map<std::string, ops::Attribute> turn = {{"perm", std::vector<int64_t>{1, 0}}};
  Splitter split(op, rewriter);
  if (node.get_int("transB", 0) != 0) {
    const ops::Node transpose{"", "Transpose", 13, node.name, turn, 1};
    b = split.constant(copy_of(ops::evaluate(transpose, {ops::Value(*weights)})[0].tensor));
  }
  if (node.get_int("transA", 0) != 0) a = split.one("Transpose", 13, {a}, turn);
  mlir::Value sum = split.one("MatMulInteger", 10, {a, b, input_or_null(op, 2), input_or_null(op, 5)});
  if (c) sum = split.one("Add", 14, {sum, c});
  const mlir::Value alpha = split.constant(ops::Tensor::scalar_f32(node.get_float("alpha", 1.0f)));
  split.finish(sum, split.one("Mul", 14, {split.one("Mul", 14, {alpha, a_scale}), b_scale}), {});
  return true;
}

/// DynamicQuantizeLSTM of constant weights, for sequences of one length: an integer product of the inputs of all steps
/// for each direction, and a Scan whose body has that of the hidden state.
class LstmSplitter {
 public:
  LstmSplitter(NodeOp op, mlir::PatternRewriter& rewriter)
      : op_(op), rewriter_(rewriter), split_(op, rewriter), node_(to_node(op)) {}

  bool run() {
    if (!fits()) return false;
    const bool both = node_.get_string("direction", "forward") == "bidirectional";
    NodeOp quantised = split_.make("DynamicQuantizeLinear", 11, {op_->getOperand(0)}, {}, 3);
    std::array<std::vector<mlir::Value>, 3> results;  // Y, Y_h, Y_c by direction
    for (int64_t d = 0; d < (both ? 2 : 1); ++d) {
      const bool backward = d == 1 || node_.get_string("direction", "forward") == "reverse";
      NodeOp scan = direction(d, quantised, backward);
      for (unsigned i = 0; i < 3; ++i) results[i].push_back(scan->getResult((i + 2) % 3));
    }
    std::vector<mlir::Value> joined;
    for (unsigned i = 0; i < op_->getNumResults(); ++i) joined.push_back(join(results[i], i == 0 ? 1 : 0, i));
    rewriter_.replaceOp(op_, joined);
    return true;
  }

 private:
  bool fits() {
    if (!op_.is("DynamicQuantizeLSTM", kMicrosoftDomain) || input_or_null(op_, 4)) return false;
    const auto x = shape_of(op_->getOperand(0));
    if (!x || x->size() != 3 || !is_static(op_->getOperand(0)) || ops::element_count(*x) == 0) return false;
    for (const unsigned i : {1u, 2u, 8u, 9u, 10u, 11u})
      if (!constant_value(op_->getOperand(i))) return false;
    if (!is_byte(op_->getOperand(1)) || !is_byte(op_->getOperand(2))) return false;
    const std::vector<std::string> names = node_.get_strings("activations");
    return std::all_of(names.begin(), names.end(), [](std::string name) {
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
      return name == "sigmoid" || name == "tanh" || name == "relu";
    });
  }

  /// Direction d of a constant operand; of a scale or zero point of columns a vector, else a scalar.
  mlir::Value part(unsigned operand, int64_t d) {
    const ops::Tensor index = ops::Tensor::scalar_i64(d);
    const ops::Node gather{"", "Gather", 13, node_.name, {{"axis", int64_t{0}}}, 1};
    const ops::Tensor whole = *constant_value(op_->getOperand(operand));
    return split_.constant(copy_of(ops::evaluate(gather, {ops::Value(whole), ops::Value(index)})[0].tensor));
  }
  /// Direction d of an operand that need not be constant; null where it is absent.
  mlir::Value vectors(unsigned operand, int64_t d) {
    const mlir::Value whole = input_or_null(op_, operand);
    if (!whole) return {};
    return split_.one("Gather", 13, {whole, split_.constant(ops::Tensor::scalar_i64(d))}, {{"axis", int64_t{0}}});
  }
  mlir::Value state(unsigned operand, int64_t d) {
    if (const mlir::Value given = vectors(operand, d)) return given;
    const int64_t batch = (*shape_of(op_->getOperand(0)))[1], hidden = (*shape_of(op_->getOperand(2)))[1];
    return split_.constant(ops::Tensor(ops::DType::kFloat, {batch, hidden}));
  }

  /// float(quantised by weights of direction d) * (scale * scale of the weights).
  mlir::Value product(NodeOp quantised, unsigned weights, unsigned scale, int64_t d) {
    const mlir::Value sum = split_.one(
        "MatMulInteger", 10, {quantised->getResult(0), part(weights, d), quantised->getResult(2), part(scale + 1, d)});
    const mlir::Value real = split_.one("Cast", 13, {sum}, {{"to", static_cast<int64_t>(DType::kFloat)}});
    return split_.one("Mul", 14, {real, split_.one("Mul", 14, {quantised->getResult(1), part(scale, d)})});
  }

  /// The Scan of direction d: results h, cell state, and h of all steps.
  NodeOp direction(int64_t d, NodeOp quantised, bool backward) {
    const mlir::Value gates = product(quantised, 1, 8, d), h = state(5, d), cell = state(6, d);
    const mlir::Value bias = vectors(3, d), peepholes = vectors(7, d);
    std::map<std::string, ops::Attribute> attributes = {{"num_scan_inputs", int64_t{1}}};
    if (backward) {
      attributes["scan_input_directions"] = std::vector<int64_t>{1};
      attributes["scan_output_directions"] = std::vector<int64_t>{1};
    }
    mlir::MLIRContext* context = rewriter_.getContext();
    const auto float_type = [&](const ops::Shape& shape) {
      return to_type(context, ops::TypeInfo::tensor(DType::kFloat, shape));
    };
    const ops::Shape all = *shape_of(gates), one = *shape_of(h), stacked = {all[0], one[0], one[1]};
    auto scan = rewriter_.create<NodeOp>(
        location_for(op_, {mlir::Value(), mlir::Value(), mlir::Value()}),
        mlir::TypeRange{float_type(one), float_type(one), float_type(stacked)}, mlir::ValueRange{h, cell, gates},
        rewriter_.getStringAttr("Scan"), rewriter_.getStringAttr(""), rewriter_.getI64IntegerAttr(16),
        to_dictionary(context, attributes), rewriter_.getArrayAttr({rewriter_.getStringAttr("body")}), 1u);
    const mlir::OpBuilder::InsertionGuard guard(rewriter_);
    mlir::Block* body = rewriter_.createBlock(&scan.getBodies()[0]);
    const mlir::Location place = make_location(context, node_.name, {});
    const mlir::Value own_h = body->addArgument(float_type(one), place),
                      own_cell = body->addArgument(float_type(one), place),
                      own_gates = body->addArgument(float_type({all[1], all[2]}), place);
    NodeOp state_bytes = split_.make("DynamicQuantizeLinear", 11, {own_h}, {}, 3);
    const mlir::Value sums = split_.one("Add", 14, {own_gates, product(state_bytes, 2, 10, d)});
    NodeOp next = create_op(rewriter_, location_for(op_, {mlir::Value(), mlir::Value()}), "LstmGates", "ai.tessera", 1,
                            {sums, own_cell, or_none(bias), or_none(peepholes)}, rules(d), 2);
    rewriter_.create<ReturnOp>(place, mlir::ValueRange{next->getResult(0), next->getResult(1), next->getResult(0)});
    return scan;
  }

  mlir::Value or_none(mlir::Value value) { return value ? value : create_none(rewriter_, op_.getLoc()); }

  /// What the gates of direction d compute.
  std::map<std::string, ops::Attribute> rules(int64_t d) const {
    std::map<std::string, ops::Attribute> rules = {{"input_forget", node_.get_int("input_forget", 0)}};
    if (node_.has("clip")) rules["clip"] = node_.get_float("clip", 0);
    const std::vector<std::string> names = node_.get_strings("activations");
    if (!names.empty())
      rules["activations"] = std::vector<std::string>(names.begin() + d * 3, names.begin() + d * 3 + 3);
    return rules;
  }

  /// Result i of the node: those of the directions along an axis of their own.
  mlir::Value join(const std::vector<mlir::Value>& parts, int64_t axis, unsigned i) {
    std::vector<mlir::Value> wide;
    const mlir::Value axes = split_.constant(ops::Tensor::vector_i64({axis}));
    const mlir::Location named = location_for(op_, {op_->getResult(i)});
    for (const mlir::Value part : parts)
      wide.push_back(parts.size() == 1
                         ? create_op(rewriter_, named, "Unsqueeze", "", 13, {part, axes}, {})->getResult(0)
                         : split_.one("Unsqueeze", 13, {part, axes}));
    if (wide.size() == 1) return wide[0];
    return create_op(rewriter_, named, "Concat", "", 13, wide, {{"axis", axis}})->getResult(0);
  }

  NodeOp op_;
  mlir::PatternRewriter& rewriter_;
  Splitter split_;
  const ops::Node node_;
};

bool split_lstm(NodeOp op, mlir::PatternRewriter& rewriter) { return LstmSplitter(op, rewriter).run(); }

}  // namespace

std::unique_ptr<mlir::Pass> create_split_float_products_pass() {
  return make_function_pass(
      "nn-split-float-products", "integer products with float results become integer products and arithmetic",
      [](mlir::func::FuncOp func) { return apply_rewrites(func, {split_to_float, split_gemm, split_lstm}); });
}

}  // namespace tessera::nn
