// SPDX-License-Identifier: Apache-2.0
// nn-fold-qdq: groups "DequantizeLinear -> operator -> QuantizeLinear" become integer operators (QLinearConv, QGemm,
// QLinearAdd, ...), in the cases and with the parameters in which ONNX Runtime's extended optimiser fuses them, because
// a group's rounding depends on whether it is fused; a group that is not fused stays as it is. Enters: a function of nn
// operations as imported, constants folded except Q and DQ, equal constants not merged (two Q of one value are two
// consumers). Method, for each block: preparation (qdq_folding.h), then groups are replaced, and DQ -> Q pairs of equal
// parameters cancel.
#include "compiler/nn/passes/qdq_folding.h"

#include <algorithm>
#include <cmath>

#include "compiler/nn/passes/passes.h"

namespace tessera::nn {
namespace {

using namespace qdq;
using ops::quantized::is_8bit;

class Grouping : public BlockEditor {
 public:
  explicit Grouping(mlir::Block& block) : BlockEditor(block), free_groups_(has_free_groups(block)) {}

  void run() {
    for_each_op([&](NodeOp op) { return fuse_group(op); });
    for_each_op([&](NodeOp op) { return is_q(op) && cancel(op); });
    remove_dead();
  }

 private:
  struct Group {
    NodeOp op;
    llvm::SmallVector<NodeOp> dq;  // producers of the operands that are DQ, in operand order
    size_t operands = 0;           // operands that exist
    llvm::SmallVector<NodeOp> q;   // consumers of the results that are Q
    bool closed = false;           // each result is read by exactly one Q and nothing else
  };

  /// The group around `op`; nullopt when a Relu or Clip that is not redundant stands between it and its only reader.
  static std::optional<Group> group_of(NodeOp op) {
    Group group;
    group.op = op;
    for (mlir::Value operand : op.getInputs()) {
      if (is_none(operand)) continue;
      ++group.operands;
      if (NodeOp dq = dq_of(operand)) group.dq.push_back(dq);
    }
    size_t results = 0, edges = 0;
    bool leaves = false;
    mlir::Operation* last = nullptr;
    for (mlir::Value result : op->getResults()) {
      if (llvm::isa<mlir::NoneType>(result.getType())) continue;
      ++results;
      leaves |= is_graph_output(result);
      for (mlir::OpOperand* edge : edges_of(result)) {
        ++edges;
        last = edge->getOwner();
        NodeOp next = llvm::dyn_cast<NodeOp>(last);
        if (is_q(next) && edge->getOperandNumber() == 0 && last->getBlock() == op->getBlock()) group.q.push_back(next);
      }
    }
    if (edges == 1) {
      NodeOp next = llvm::dyn_cast<NodeOp>(last);
      if (is_onnx(next, {"Relu", "Clip"}) && edges_of(next->getResult(0)).size() == 1 &&
          !is_graph_output(next->getResult(0)))
        return std::nullopt;
    }
    group.closed = !group.q.empty() && group.q.size() == results && edges == results && !leaves;
    return group;
  }

  static bool fp32_parameters(NodeOp op) { return dtype_of(scale_of(op)) == DType::kFloat; }
  static bool tensor_parameters(NodeOp op) { return fp32_parameters(op) && has_scalar_scale(op); }

  /// Scale and zero point of one element or a vector along `axis` of the operand.
  static bool channel_parameters(NodeOp dq, int64_t axis) {
    if (!fp32_parameters(dq)) return false;
    if (is_scalar(scale_of(dq))) return !zero_of(dq) || is_scalar(zero_of(dq));
    auto shape = shape_of(data_of(dq)), scale = shape_of(scale_of(dq));
    if (!shape || !scale || scale->size() != 1) return false;
    int64_t given = int_attribute(dq, "axis", 1);
    if (given < 0) given += static_cast<int64_t>(shape->size());
    return given == axis;
  }

  /// Whether the bias of a convolution counts in steps of x_scale * w_scale, within one per cent and 1e-6, from zero.
  static bool has_scale_of_sums(NodeOp bias, NodeOp x, NodeOp w) {
    const auto x_scale = constant_value(scale_of(x)), w_scale = constant_value(scale_of(w)),
               scale = constant_value(scale_of(bias));
    if (!x_scale || !w_scale || !scale || !fp32_parameters(bias)) return false;
    if (zero_of(bias)) {
      const auto zero = constant_value(zero_of(bias));
      if (!zero || llvm::any_of(zero->to_int64s(), [](int64_t z) { return z != 0; })) return false;
    }
    const auto sums = w_scale->as<float>(), given = scale->as<float>();
    const size_t channels = std::max(sums.size(), given.size());
    if ((sums.size() != 1 && sums.size() != channels) || (given.size() != 1 && given.size() != channels)) return false;
    for (size_t c = 0; c < channels; ++c) {
      const float wanted = x_scale->as<float>()[0] * sums[sums.size() == 1 ? 0 : c];
      const float distance = std::abs(given[given.size() == 1 ? 0 : c] - wanted);
      if (!(distance <= 1e-6f + 0.01f * std::abs(wanted))) return false;
    }
    return true;
  }

  /// The zero point as an operand: 0 of the quantised type when it is absent.
  mlir::Value zero_operand(NodeOp op) {
    if (mlir::Value zero = zero_of(op)) return zero;
    ops::Shape shape;
    if (auto scale = shape_of(scale_of(op)); scale && is_static(scale_of(op))) shape = *scale;
    return constant(op, Tensor(quantised_type(op), shape));
  }

  void append_triple(llvm::SmallVectorImpl<mlir::Value>& operands, NodeOp dq) {
    operands.append({data_of(dq), scale_of(dq), zero_operand(dq)});
  }

  /// Replaces the result that `last` (a Q or the operator itself) gives by that of a new operator, and drops what
  /// nobody reads any more.
  bool replace(Group& group, NodeOp last, llvm::StringRef op_type, llvm::StringRef domain, mlir::ValueRange operands,
               const Attributes& attributes) {
    llvm::SmallVector<mlir::Operation*> others;
    if (last != group.op) others.push_back(last);
    for (NodeOp dq : group.dq) others.push_back(dq);
    // The operator gives the node's name, its quantisation the value's.
    NodeOp result = create(location_for(group.op, {last->getResult(0)}, others), op_type, domain,
                           domain.empty() ? static_cast<int64_t>(group.op.getVersion()) : 1, operands, attributes,
                           last->getResultTypes());
    last->getResult(0).replaceAllUsesWith(result->getResult(0));
    llvm::SmallVector<NodeOp> dqs = group.dq;
    if (last != group.op) erase(last);
    erase(group.op);
    for (NodeOp dq : dqs) erase_if_dead(dq);
    return true;
  }

  /// The builder stands where the new operator goes: before the last operation of the group.
  void place(Group& group) { rewriter_.setInsertionPoint(group.q.empty() ? group.op : group.q.front()); }

  bool fuse_group(NodeOp op) {
    if (!op.getDomain().empty()) return false;
    auto group = group_of(op);
    if (!group || group->dq.empty()) return false;
    const llvm::StringRef type = op.getOpType();
    if (type == "Conv") return fuse_conv(*group);
    if (type == "MatMul") return fuse_matmul(*group);
    if (type == "Gemm") return fuse_gemm(*group);
    if (is_onnx(op, {"AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid", "Softmax"})) return fuse_unary(*group);
    if (type == "Add" || type == "Mul") return fuse_binary(*group);
    if (type == "Concat") return fuse_concat(*group);
    if (type == "Where") return fuse_where(*group);
    if (type == "Split") return drop_around_split(*group);
    if (type == "ArgMax") return drop_before_arg_max(*group);
    return drop_around(*group);
  }

  /// Whether ONNX Runtime's kernels multiply such bytes.
  static bool are_multiplied(DType a, DType b) {
    return is_8bit(a) && is_8bit(b) && (a != DType::kInt8 || b == DType::kInt8);
  }

  bool fuse_conv(Group& group) {
    if (!group.closed || group.dq.size() != group.operands || group.operands < 2) return false;
    NodeOp x = group.dq[0], w = group.dq[1], q = group.q[0];
    const DType x_type = quantised_type(x), w_type = quantised_type(w);
    if (!are_multiplied(x_type, w_type) || quantised_type(q) != x_type) return false;
    if (group.operands > 2 && quantised_type(group.dq[2]) != DType::kInt32) return false;
    if (!tensor_parameters(x) || !tensor_parameters(q) || !channel_parameters(w, 0)) return false;
    if (group.operands > 2 && !has_scale_of_sums(group.dq[2], x, w)) return false;
    place(group);
    llvm::SmallVector<mlir::Value> operands;
    append_triple(operands, x);
    append_triple(operands, w);
    operands.append({scale_of(q), zero_operand(q)});
    if (group.operands > 2) operands.push_back(data_of(group.dq[2]));
    return replace(group, q, "QLinearConv", "", operands, to_attributes(group.op.getOnnxAttributes()));
  }

  bool fuse_matmul(Group& group) {
    if (group.dq.size() != 2) return false;
    NodeOp a = group.dq[0], b = group.dq[1];
    const DType a_type = quantised_type(a);
    if (!are_multiplied(a_type, quantised_type(b))) return false;
    auto b_shape = shape_of(data_of(b));
    if (!tensor_parameters(a) || !b_shape || !channel_parameters(b, static_cast<int64_t>(b_shape->size()) - 1))
      return false;
    if (!is_scalar(scale_of(b)) && b_shape->size() < 2) return false;
    if (group.q.empty()) {
      place(group);
      return replace(group, group.op, "MatMulIntegerToFloat", kMicrosoftDomain,
                     {data_of(a), data_of(b), scale_of(a), scale_of(b), zero_operand(a), zero_operand(b)}, {});
    }
    NodeOp q = group.q[0];
    if (!group.closed || quantised_type(q) != a_type || !tensor_parameters(q)) return false;
    place(group);
    llvm::SmallVector<mlir::Value> operands;
    append_triple(operands, a);
    append_triple(operands, b);
    operands.append({scale_of(q), zero_operand(q)});
    return replace(group, q, "QLinearMatMul", "", operands, {});
  }

  bool fuse_gemm(Group& group) {
    if (group.dq.size() != group.operands || group.operands < 2 || (!group.q.empty() && !group.closed)) return false;
    NodeOp a = group.dq[0], b = group.dq[1];
    const DType a_type = quantised_type(a);
    if (!are_multiplied(a_type, quantised_type(b))) return false;
    const ops::Node node = to_node(group.op);
    if (group.operands > 2 && (node.get_float("beta", 1.0f) != 1.0f || node.get_float("alpha", 1.0f) != 1.0f ||
                               quantised_type(group.dq[2]) != DType::kInt32))
      return false;
    if (!free_groups_ && (!zero_of(a) || !zero_of(b))) return false;
    if (!tensor_parameters(a) || !channel_parameters(b, node.get_int("transB", 0) == 0 ? 1 : 0)) return false;
    NodeOp q = group.q.empty() ? NodeOp() : group.q[0];
    if (q && (quantised_type(q) != a_type || !tensor_parameters(q))) return false;
    place(group);
    llvm::SmallVector<mlir::Value> operands;
    append_triple(operands, a);
    append_triple(operands, b);
    operands.push_back(group.operands > 2 ? data_of(group.dq[2]) : mlir::Value());
    if (q) operands.append({scale_of(q), zero_operand(q)});
    Attributes attributes = to_attributes(group.op.getOnnxAttributes());
    attributes.erase("beta");
    return replace(group, q ? q : group.op, "QGemm", kMicrosoftDomain, operands, attributes);
  }

  bool fuse_unary(Group& group) {
    if (!group.closed || group.dq.size() != 1 || group.operands != 1) return false;
    NodeOp x = group.dq[0], q = group.q[0], op = group.op;
    if (!is_8bit(quantised_type(x)) || quantised_type(q) != quantised_type(x) || !tensor_parameters(x) ||
        !tensor_parameters(q))
      return false;
    Attributes attributes = to_attributes(op.getOnnxAttributes());
    if (op.is("AveragePool")) {
      for (int64_t d : to_node(op).get_ints("dilations"))
        if (d != 1) return false;
      attributes.erase("dilations");
      if (op.getVersion() < 10) attributes.erase("ceil_mode");
    }
    if (op.is("Softmax") && constant_value(scale_of(x)) && !(scale_value(x) > 0)) return false;
    if (op.is("Softmax")) {
      attributes["opset"] = int64_t{op.getVersion() >= 13 ? 13 : op.getVersion() >= 11 ? 11 : 1};
      attributes.try_emplace("axis", int64_t{op.getVersion() >= 13 ? -1 : 1});  // that of QLinearSoftmax is -1
    }
    place(group);
    llvm::SmallVector<mlir::Value> operands;
    append_triple(operands, x);
    operands.append({scale_of(q), zero_operand(q)});
    return replace(group, q, ("QLinear" + op.getOpType()).str(), kMicrosoftDomain, operands, attributes);
  }

  bool fuse_binary(Group& group) {
    if (!group.closed || group.dq.size() != 2 || group.operands != 2) return false;
    NodeOp a = group.dq[0], b = group.dq[1], q = group.q[0];
    const DType type = quantised_type(a);
    if (!is_8bit(type) || quantised_type(b) != type || quantised_type(q) != type) return false;
    if (!tensor_parameters(a) || !tensor_parameters(b) || !tensor_parameters(q)) return false;
    place(group);
    llvm::SmallVector<mlir::Value> operands;
    append_triple(operands, a);
    append_triple(operands, b);
    operands.append({scale_of(q), zero_operand(q)});
    return replace(group, q, ("QLinear" + group.op.getOpType()).str(), kMicrosoftDomain, operands, {});
  }

  bool fuse_concat(Group& group) {
    if (!group.closed || group.dq.size() != group.operands) return false;
    NodeOp q = group.q[0];
    const DType type = quantised_type(q);
    if (!is_8bit(type) || !tensor_parameters(q)) return false;
    for (NodeOp dq : group.dq)
      if (quantised_type(dq) != type || !tensor_parameters(dq)) return false;
    place(group);
    llvm::SmallVector<mlir::Value> operands{scale_of(q), zero_operand(q)};
    for (NodeOp dq : group.dq) append_triple(operands, dq);
    return replace(group, q, "QLinearConcat", kMicrosoftDomain, operands, to_attributes(group.op.getOnnxAttributes()));
  }

  bool fuse_where(Group& group) {
    if (!group.closed || group.dq.size() != 2 || group.operands != 3) return false;
    NodeOp x = dq_of(group.op.getInputs()[1]), y = dq_of(group.op.getInputs()[2]), q = group.q[0];
    if (!x || !y) return false;
    const DType type = quantised_type(x);
    if (!is_8bit(type) || quantised_type(y) != type || quantised_type(q) != type) return false;
    if (!tensor_parameters(x) || !tensor_parameters(y) || !tensor_parameters(q)) return false;
    place(group);
    llvm::SmallVector<mlir::Value> operands{group.op.getInputs()[0]};
    append_triple(operands, x);
    append_triple(operands, y);
    operands.append({scale_of(q), zero_operand(q)});
    return replace(group, q, "QLinearWhere", kMicrosoftDomain, operands, {});
  }

  // --- operators that only move elements: Q and DQ go when their parameters agree
  // --------------------------------------------------

  /// What an operator that gives elements of its operand does; nothing for others.
  enum class Taking { kMove, kMaximum, kResize, kPad };
  static std::optional<Taking> taking_of(NodeOp op) {
    const int64_t version = op.getVersion();
    if (is_onnx(op, {"DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "Reshape", "Slice",
                     "SpaceToDepth", "Squeeze", "Tile", "Transpose", "Unsqueeze"}))
      return Taking::kMove;
    if (is_onnx(op, {"MaxPool", "ReduceMax", "ReduceMin"}) && version >= 12) return Taking::kMaximum;
    if (op.is("Resize") && version >= 10 && to_node(op).get_string("mode", "nearest") == "nearest")
      return Taking::kResize;
    if (op.is("Pad") && version >= 13) return Taking::kPad;
    return std::nullopt;
  }

  bool drop_around(Group& group) {
    NodeOp op = group.op;
    const auto taking = taking_of(op);
    if (!taking) return false;
    if (!group.closed || group.q.size() != 1 || group.dq.size() != 1 || dq_of(data_of(op)) != group.dq[0]) return false;
    NodeOp dq = group.dq[0], q = group.q[0];
    const DType type = quantised_type(q);
    if (!same_parameters(q, dq)) return false;
    const bool is_16bit = type == DType::kInt16 || type == DType::kUint16;
    if (!is_8bit(type) && !(taking == Taking::kMove && is_16bit)) return false;
    if (taking == Taking::kMaximum && (!(scale_value(q) > 0) || op->getNumResults() != 1)) return false;
    place(group);
    llvm::SmallVector<mlir::Value> operands(op.getInputs().begin(), op.getInputs().end());
    operands[0] = data_of(dq);
    if (taking == Taking::kPad && !quantise_pad_value(op, q, operands)) return false;
    return replace(group, q, op.getOpType(), "", operands, to_attributes(op.getOnnxAttributes()));
  }

  /// The value of a Pad, quantised; false when it is not known. Only constant padding reads it, but wherever it is
  /// given it has the type of the data.
  bool quantise_pad_value(NodeOp op, NodeOp q, llvm::SmallVectorImpl<mlir::Value>& operands) {
    const bool read = to_node(op).get_string("mode", "constant") == "constant";
    const mlir::Value given = input_or_null(op, 2);
    if (!read && !given) return true;
    double value = 0.0;
    if (read && given) {
      auto known = constant_scalar(given);
      if (!known) return false;
      value = *known;
    }
    const DType type = quantised_type(q);
    const int32_t padding =
        ops::quantized::quantize(static_cast<float>(value), static_cast<float>(scale_value(q)),
                                 static_cast<int32_t>(zero_value(q)), ops::quantized::range_of(type));
    operands.resize(std::max<size_t>(operands.size(), 3));
    operands[2] = constant(op, ops::quantized::from_int32s(type, {}, std::vector<int32_t>{padding}));
    return true;
  }

  bool drop_around_split(Group& group) {
    if (!group.closed || group.dq.size() != 1 || dq_of(data_of(group.op)) != group.dq[0]) return false;
    NodeOp op = group.op, dq = group.dq[0];
    const DType type = quantised_type(dq);
    if (!is_8bit(type) && type != DType::kInt16 && type != DType::kUint16) return false;
    for (NodeOp q : group.q)
      if (!same_parameters(q, dq)) return false;
    rewriter_.setInsertionPoint(op);
    llvm::SmallVector<mlir::Value> operands(op.getInputs().begin(), op.getInputs().end());
    operands[0] = data_of(dq);
    llvm::SmallVector<mlir::Type> types;
    llvm::SmallVector<NodeOp> qs;
    for (mlir::Value result : op->getResults()) {
      NodeOp q = llvm::cast<NodeOp>(*result.getUsers().begin());
      qs.push_back(q);
      types.push_back(q->getResult(0).getType());
    }
    llvm::SmallVector<mlir::Operation*> others(qs.begin(), qs.end());
    NodeOp split = create(names_of_results(op, qs), "Split", "", op.getVersion(), operands,
                          to_attributes(op.getOnnxAttributes()), types);
    for (auto [q, result] : llvm::zip(qs, split->getResults())) {
      q->getResult(0).replaceAllUsesWith(result);
      erase(q);
    }
    erase(op);
    erase_if_dead(dq);
    return true;
  }

  /// A location for `op` with the ONNX names of the results of `qs`.
  mlir::Location names_of_results(NodeOp op, llvm::ArrayRef<NodeOp> qs) {
    std::vector<std::string> names;
    for (NodeOp q : qs) names.push_back(value_name(q->getResult(0)));
    return make_location(rewriter_.getContext(), node_name(op), names);
  }

  bool drop_before_arg_max(Group& group) {
    NodeOp op = group.op, dq = group.dq[0];
    if (group.dq.size() != 1 || !is_8bit(quantised_type(dq)) || !zero_of(dq) || !has_constant_scalars(dq) ||
        !(scale_value(dq) > 0))
      return false;
    if (op.getVersion() < 13) return false;
    op->setOperand(0, data_of(dq));
    erase_if_dead(dq);
    return true;
  }

  bool cancel(NodeOp q) {
    NodeOp dq = dq_of(data_of(q));
    if (!dq || !same_parameters(q, dq) || data_of(dq).getType() != q->getResult(0).getType()) return false;
    q->getResult(0).replaceAllUsesWith(data_of(dq));
    erase(q);
    erase_if_dead(dq);
    return true;
  }

  const bool free_groups_;
};

}  // namespace

std::unique_ptr<mlir::Pass> create_qdq_folding_pass() {
  return make_function_pass("nn-fold-qdq", "fold QuantizeLinear and DequantizeLinear into integer operators",
                            [](mlir::func::FuncOp func) {
                              std::vector<mlir::Block*> blocks;
                              for (mlir::Block& block : func.getBody()) blocks.push_back(&block);
                              func.walk([&](NodeOp op) {
                                for (mlir::Region& body : op->getRegions())
                                  for (mlir::Block& block : body) blocks.push_back(&block);
                              });
                              for (mlir::Block* block : blocks) {
                                prepare(*block);
                                Grouping(*block).run();
                              }
                              return mlir::success();
                            });
}

}  // namespace tessera::nn
