// SPDX-License-Identifier: Apache-2.0
// nn-fold-qdq: groups "DequantizeLinear -> operator -> QuantizeLinear" become integer operators (QLinearConv, QGemm, QLinearAdd, ...), in the
// cases and with the parameters in which ONNX Runtime's extended optimiser fuses them, because a group's rounding depends on whether it is
// fused; a group that is not fused stays as it is. Enters: a function of nn operations as imported, constants folded except Q and DQ, not
// yet common-subexpression-eliminated (two equal Q of one value are two consumers). Method, for each block, until nothing changes:
// every consumer gets its own DQ; a MatMul and the Add of its bias become Gemm; DQ moves forward and Q backward through operators
// that only move data; constant transposes move through DQ; float weights and biases between DQ and Q are quantised. Then Relu and
// Clip that a Q makes redundant go, groups are replaced, and DQ -> Q pairs of equal parameters cancel.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/nn/pass_util.h"
#include "compiler/nn/passes.h"
#include "ops/quantized_math.h"

namespace tessera::nn {
namespace {

using ops::DType;
using ops::Tensor;
using ops::quantized::is_8bit;
using Attributes = std::map<std::string, ops::Attribute>;

// --- what Q and DQ are -----------------------------------------------------------------------------------------------------------

bool is_onnx(NodeOp op, llvm::ArrayRef<llvm::StringRef> op_types) {
  return op && op.getDomain().empty() && llvm::is_contained(op_types, op.getOpType());
}

int64_t int_attribute(NodeOp op, llvm::StringRef name, int64_t fallback) {
  auto attribute = op.getOnnxAttributes().getAs<mlir::IntegerAttr>(name);
  return attribute ? attribute.getInt() : fallback;
}

/// QuantizeLinear or DequantizeLinear of either domain, not blocked.
bool is_quantisation(NodeOp op, llvm::StringRef name) {
  return op && op.getOpType() == name && (op.getDomain().empty() || op.getDomain() == kMicrosoftDomain) && int_attribute(op, "block_size", 0) == 0;
}
bool is_q(NodeOp op) { return is_quantisation(op, "QuantizeLinear"); }
bool is_dq(NodeOp op) { return is_quantisation(op, "DequantizeLinear"); }

NodeOp dq_of(mlir::Value value) {
  if (!value) return {};
  NodeOp op = defining_op(value);
  return is_dq(op) ? op : NodeOp();
}

mlir::Value data_of(NodeOp op) { return op.getInputs()[0]; }
mlir::Value scale_of(NodeOp op) { return op.getInputs()[1]; }
mlir::Value zero_of(NodeOp op) { return input_or_null(op, 2); }
/// Element type on the quantised side.
DType quantised_type(NodeOp op) { return is_q(op) ? dtype_of(op->getResult(0)) : dtype_of(data_of(op)); }

/// One element, as a scalar or a vector.
bool is_scalar(mlir::Value value) {
  auto shape = shape_of(value);
  return shape && (shape->empty() || (shape->size() == 1 && shape->front() == 1));
}

bool has_scalar_scale(NodeOp op) { return is_scalar(scale_of(op)) && (!zero_of(op) || is_scalar(zero_of(op))); }

bool has_constant_scalars(NodeOp op) {
  return has_scalar_scale(op) && constant_value(scale_of(op)) && (!zero_of(op) || constant_value(zero_of(op)));
}

/// Zero point of a Q or DQ with constant scalars; 0 when it is absent.
int64_t zero_value(NodeOp op) {
  mlir::Value zero = zero_of(op);
  return zero ? constant_value(zero)->at_int64(0) : 0;
}
double scale_value(NodeOp op) { return constant_value(scale_of(op))->at_double(0); }

/// Both have constant scalar parameters, stated and equal.
bool same_parameters(NodeOp q, NodeOp dq) {
  if (!zero_of(q) || !zero_of(dq) || !has_constant_scalars(q) || !has_constant_scalars(dq)) return false;
  return dtype_of(scale_of(q)) == dtype_of(scale_of(dq)) && quantised_type(q) == quantised_type(dq) && zero_value(q) == zero_value(dq) &&
         scale_value(q) == scale_value(dq);
}

// --- edges -----------------------------------------------------------------------------------------------------------------------

/// True if the value leaves the graph (its block) as a result.
bool is_graph_output(mlir::Value value) {
  return llvm::any_of(value.getUsers(), [&](mlir::Operation* user) {
    return !llvm::isa<NodeOp>(user) && user->getBlock() == value.getParentBlock();
  });
}

/// Operands of operations (not of the terminator) that read the value.
llvm::SmallVector<mlir::OpOperand*> edges_of(mlir::Value value) {
  llvm::SmallVector<mlir::OpOperand*> edges;
  for (mlir::OpOperand& use : value.getUses())
    if (llvm::isa<NodeOp>(use.getOwner()) || use.getOwner()->getBlock() != value.getParentBlock()) edges.push_back(&use);
  return edges;
}

/// The one operation that reads the value, which is no graph output; null otherwise or when it reads it in a body.
mlir::OpOperand* single_edge(mlir::Value value) {
  auto edges = edges_of(value);
  if (edges.size() != 1 || is_graph_output(value) || edges[0]->getOwner()->getBlock() != value.getParentBlock()) return nullptr;
  return edges[0];
}

// --- the pass over one block -----------------------------------------------------------------------------------------------------

class BlockFolder {
 public:
  explicit BlockFolder(mlir::Block& block) : block_(block), rewriter_(block.getParent()->getContext()) {}

  void run() {
    remove_identities();
    merge_equal();
    fold_constant_quantisation();
    bool changed = true;
    while (changed) {
      make_dqs_unique();
      changed = for_each_op([&](NodeOp op) { return fuse_pad(op); });
      changed |= for_each_op([&](NodeOp op) { return fuse_matmul_add(op); });
      changed |= for_each_op([&](NodeOp op) { return is_dq(op) && propagate_forward(op); });
      changed |= for_each_op([&](NodeOp op) { return is_q(op) && propagate_backward(op); });
      changed |= for_each_op([&](NodeOp op) { return is_dq(op) && transpose_constant(op); });
      changed |= for_each_op([&](NodeOp op) { return quantise_weights_and_bias(op); });
    }
    for_each_op([&](NodeOp op) { return is_q(op) && remove_redundant_activations(op); });
    for_each_op([&](NodeOp op) { return fuse_group(op); });
    for_each_op([&](NodeOp op) { return is_q(op) && cancel(op); });
    remove_dead();
  }

 private:
  /// Calls f for the operations that stand in the block now; those that f erases must be reported through erase().
  bool for_each_op(llvm::function_ref<bool(NodeOp)> f) {
    bool changed = false;
    std::vector<NodeOp> list;
    for (NodeOp op : block_.getOps<NodeOp>()) list.push_back(op);
    erased_.clear();
    for (NodeOp op : list)
      if (!erased_.count(op)) changed |= f(op);
    return changed;
  }

  void erase(NodeOp op) {
    erased_.insert(op);
    op->erase();
  }

  void erase_if_dead(NodeOp op) {
    if (op && !erased_.count(op) && op->use_empty()) erase(op);
  }

  void remove_dead() {
    std::vector<NodeOp> list;
    for (NodeOp op : block_.getOps<NodeOp>()) list.push_back(op);
    for (NodeOp op : llvm::reverse(list))
      if (op->use_empty() && (is_q(op) || is_dq(op))) op->erase();
  }

  NodeOp create(mlir::Location location, llvm::StringRef op_type, llvm::StringRef domain, int64_t version, mlir::ValueRange operands,
                const Attributes& attributes, mlir::TypeRange results) {
    return create_op(rewriter_, location, op_type, domain, static_cast<int>(version), operands, attributes, results);
  }

  mlir::Value constant(mlir::Operation* near, const Tensor& tensor) { return create_constant(rewriter_, near->getLoc(), tensor); }

  void remove_identities() {
    for_each_op([&](NodeOp op) {
      if (!is_onnx(op, {"Identity", "Cast"}) || op->getResult(0).getType() != data_of(op).getType()) return false;
      op->getResult(0).replaceAllUsesWith(data_of(op));
      erase(op);
      return true;
    });
  }

  /// Operations with the same operands and attributes become one. Constants are not compared: equal values given twice stay two, as they
  /// do in ONNX Runtime, and two Q that differ only in that keep a convolution from being fused.
  void merge_equal() {
    struct Info : llvm::DenseMapInfo<mlir::Operation*> {
      static unsigned getHashValue(const mlir::Operation* op) {
        return mlir::OperationEquivalence::computeHash(const_cast<mlir::Operation*>(op), mlir::OperationEquivalence::directHashValue,
                                                       mlir::OperationEquivalence::ignoreHashValue, mlir::OperationEquivalence::IgnoreLocations);
      }
      static bool isEqual(const mlir::Operation* a, const mlir::Operation* b) {
        if (a == b) return true;
        if (a == getTombstoneKey() || a == getEmptyKey() || b == getTombstoneKey() || b == getEmptyKey()) return false;
        return mlir::OperationEquivalence::isEquivalentTo(const_cast<mlir::Operation*>(a), const_cast<mlir::Operation*>(b),
                                                          mlir::OperationEquivalence::IgnoreLocations);
      }
    };
    llvm::DenseSet<mlir::Operation*, Info> seen;
    for_each_op([&](NodeOp op) {
      if (!op.getBodies().empty() || !op.is_deterministic()) return false;
      auto [first, inserted] = seen.insert(op);
      if (inserted) return false;
      op->replaceAllUsesWith(*first);
      erase(op);
      return true;
    });
  }

  /// Q of constants becomes a constant; DQ of constants stays, it is an operand of a group.
  void fold_constant_quantisation() {
    for_each_op([&](NodeOp op) {
      if (!is_q(op)) return false;
      std::vector<ops::Value> values;
      for (mlir::Value operand : op.getInputs()) {
        if (is_none(operand)) {
          values.emplace_back();
          continue;
        }
        auto value = constant_value(operand);
        if (!value) return false;
        values.emplace_back(*value);
      }
      rewriter_.setInsertionPoint(op);
      mlir::Value folded = create_constant(rewriter_, op.getLoc(), ops::evaluate(to_node(op), values)[0].tensor);
      op->getResult(0).replaceAllUsesWith(folded);
      erase(op);
      return true;
    });
  }

  /// Each operation of the block that reads a DQ gets a DQ of its own; graph output and bodies keep the first one.
  void make_dqs_unique() {
    for_each_op([&](NodeOp op) {
      if (!is_dq(op)) return false;
      llvm::SmallVector<mlir::OpOperand*> here;
      auto edges = edges_of(op->getResult(0));
      for (mlir::OpOperand* edge : edges)
        if (edge->getOwner()->getBlock() == &block_) here.push_back(edge);
      const bool keep = is_graph_output(op->getResult(0)) || here.size() != edges.size();
      for (size_t i = keep ? 0 : 1; i < here.size(); ++i) {
        rewriter_.setInsertionPointAfter(op);
        here[i]->set(rewriter_.clone(*op)->getResult(0));
      }
      return false;
    });
  }

  // --- preparation ---------------------------------------------------------------------------------------------------------------

  /// A Pad of 0 on the spatial axes between a DQ and a Conv moves into the Conv's pads.
  bool fuse_pad(NodeOp conv) {
    if (!conv.is("Conv") || conv.getVersion() >= 22) return false;
    NodeOp pad = defining_op(data_of(conv), "Pad");
    if (!pad || pad.getVersion() >= 21 || !dq_of(data_of(pad)) || !single_edge(pad->getResult(0)) || input_or_null(pad, 3)) return false;
    const ops::Node node = to_node(pad), target = to_node(conv);
    if (node.get_string("mode", "constant") != "constant" || target.get_string("auto_pad", "NOTSET") != "NOTSET") return false;
    std::vector<int64_t> pads = node.get_ints("pads");
    if (pad.getVersion() >= 11) {
      auto given = constant_value(pad.getInputs()[1]);
      if (!given) return false;
      pads = given->to_int64s();
      if (mlir::Value value = input_or_null(pad, 2); value && constant_scalar(value) != 0.0) return false;
    } else if (node.get_float("value", 0.0f) != 0.0f) {
      return false;
    }
    const size_t rank = pads.size() / 2;
    if (rank < 3) return false;
    std::vector<int64_t> own = target.get_ints("pads");
    own.resize(2 * (rank - 2), 0);
    for (size_t i = 0; i < pads.size(); ++i) {
      const size_t axis = i % rank;
      if (pads[i] < 0 || (axis < 2 && pads[i] != 0)) return false;
      if (axis >= 2) own[(i / rank) * (rank - 2) + axis - 2] += pads[i];
    }
    Attributes attributes = to_attributes(conv.getOnnxAttributes());
    attributes["pads"] = own;
    conv.setOnnxAttributesAttr(to_dictionary(rewriter_.getContext(), attributes));
    conv->setOperand(0, data_of(pad));
    erase(pad);
    return true;
  }

  /// MatMul of two DQ, read only by an Add of a bias that Gemm can take, becomes Gemm (with reshapes around it for other ranks than 2).
  bool fuse_matmul_add(NodeOp matmul) {
    if (!matmul.is("MatMul") || !dq_of(matmul.getInputs()[0]) || !dq_of(matmul.getInputs()[1])) return false;
    mlir::OpOperand* edge = single_edge(matmul->getResult(0));
    NodeOp add = edge ? llvm::dyn_cast<NodeOp>(edge->getOwner()) : NodeOp();
    if (!is_onnx(add, {"Add"})) return false;
    const mlir::Value a = matmul.getInputs()[0], b = matmul.getInputs()[1], bias = add.getInputs()[1 - edge->getOperandNumber()];
    const auto a_shape = shape_of(a), b_shape = shape_of(b), bias_shape = shape_of(bias);
    if (!a_shape || !b_shape || !bias_shape || b_shape->size() != 2 || dtype_of(a) != dtype_of(bias)) return false;
    const int64_t n = (*b_shape)[1];
    const bool reshapes = a_shape->size() != 2;
    if (reshapes && (!is_static(a) || !is_static(b))) return false;
    const auto& s = *bias_shape;
    const bool row = s.size() == 1 && s[0] == n && n >= 0;
    const bool matrix = !reshapes && s.size() == 2 && n >= 0 &&
                        ((s[0] == 1 && s[1] == n) || (s[0] == (*a_shape)[0] && s[0] >= 0 && (s[1] == 1 || s[1] == n)));
    if (!row && !matrix) return false;

    rewriter_.setInsertionPoint(add);
    mlir::Value left = a;
    mlir::Type type = add->getResult(0).getType();
    const int64_t version = std::max<int64_t>(matmul.getVersion(), 13);
    auto reshape = [&](mlir::Value value, const ops::Shape& shape) {
      mlir::Type result = to_type(rewriter_.getContext(), ops::TypeInfo::tensor(dtype_of(value), shape));
      return create(add.getLoc(), "Reshape", "", version, {value, constant(add, Tensor::vector_i64(shape))}, {}, result)->getResult(0);
    };
    if (reshapes) {
      const int64_t rows = ops::element_count(ops::Shape(a_shape->begin(), a_shape->end() - 1));
      left = reshape(a, {rows, a_shape->back()});
      type = to_type(rewriter_.getContext(), ops::TypeInfo::tensor(dtype_of(a), {rows, n}));
    }
    NodeOp gemm = create(fuse_locations(add, {matmul}), "Gemm", "", version, {left, b, bias}, {}, type);
    mlir::Value result = gemm->getResult(0);
    if (reshapes) {
      ops::Shape shape = *a_shape;
      shape.back() = n;
      result = reshape(result, shape);
    }
    if (result.getType() != add->getResult(0).getType()) result.setType(add->getResult(0).getType());
    add->getResult(0).replaceAllUsesWith(result);
    erase(add);
    erase(matmul);
    return true;
  }

  /// Operators through which DQ and Q move: their result is a selection of their input, in the opsets that ONNX Runtime lists.
  static bool can_propagate(NodeOp op) {
    if (is_onnx(op, {"MaxPool"})) return op.getVersion() >= 12 && op.getVersion() < 22;
    return is_onnx(op, {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice"});
  }

  /// Puts Q and a DQ for each edge between `value` and the edges, with the parameters of `model` (a Q or DQ).
  void insert_pairs(mlir::Value value, llvm::ArrayRef<mlir::OpOperand*> edges, NodeOp model) {
    rewriter_.setInsertionPointAfterValue(value);
    llvm::SmallVector<mlir::Value> parameters{value, scale_of(model)};
    if (zero_of(model)) parameters.push_back(zero_of(model));
    // The parameters are constants; they must stand above.
    for (mlir::Value& parameter : llvm::MutableArrayRef<mlir::Value>(parameters).drop_front())
      parameter = create_constant(rewriter_, model.getLoc(), *constant_value(parameter));
    ops::TypeInfo info = to_type_info(value.getType());
    info.dtype = quantised_type(model);
    mlir::Location location = rewriter_.getUnknownLoc();
    const Attributes type = zero_of(model) || info.dtype == DType::kUint8
                                ? Attributes{} : Attributes{{"output_dtype", static_cast<int64_t>(info.dtype)}};
    NodeOp q = create(location, "QuantizeLinear", model.getDomain(), model.getVersion(), parameters, type, to_type(rewriter_.getContext(), info));
    parameters[0] = q->getResult(0);
    for (mlir::OpOperand* edge : edges)
      edge->set(create(location, "DequantizeLinear", model.getDomain(), model.getVersion(), parameters, {}, value.getType())->getResult(0));
  }

  bool propagate_forward(NodeOp dq) {
    if (!has_constant_scalars(dq)) return false;
    mlir::OpOperand* edge = single_edge(dq->getResult(0));
    if (!edge) return false;
    bool changed = false;
    std::vector<NodeOp> work{llvm::cast<NodeOp>(edge->getOwner())};
    while (!work.empty()) {
      NodeOp op = work.back();
      work.pop_back();
      if (!can_propagate(op) || is_graph_output(op->getResult(0))) continue;
      llvm::SmallVector<mlir::OpOperand*> edges;
      for (mlir::OpOperand* next : edges_of(op->getResult(0))) {
        if (next->getOwner()->getBlock() != &block_) return changed;
        if (!is_q(llvm::cast<NodeOp>(next->getOwner()))) edges.push_back(next);
      }
      if (edges.empty()) continue;
      insert_pairs(op->getResult(0), edges, dq);
      changed = true;
      for (mlir::OpOperand* next : edges) work.push_back(llvm::cast<NodeOp>(next->getOwner()));
    }
    return changed;
  }

  bool propagate_backward(NodeOp q) {
    if (!has_constant_scalars(q)) return false;
    bool changed = false;
    for (NodeOp reader = q;;) {
      mlir::Value value = data_of(reader);
      mlir::OpOperand* edge = single_edge(value);
      NodeOp source = defining_op(value);
      if (!edge || !source) return changed;
      if (reader != q) {
        if (is_dq(source)) return changed;
        insert_pairs(value, {edge}, q);
        changed = true;
      }
      if (!can_propagate(source)) return changed;
      reader = source;
    }
  }

  /// DQ(constant) -> Transpose becomes DQ(transposed constant), whatever the axis of the scales.
  bool transpose_constant(NodeOp dq) {
    auto data = constant_value(data_of(dq));
    mlir::OpOperand* edge = single_edge(dq->getResult(0));
    NodeOp transpose = edge ? llvm::dyn_cast<NodeOp>(edge->getOwner()) : NodeOp();
    if (!data || !is_onnx(transpose, {"Transpose"})) return false;
    Tensor moved = ops::evaluate(to_node(transpose), {*data})[0].tensor;
    Attributes attributes = to_attributes(dq.getOnnxAttributes());
    if (!is_scalar(scale_of(dq))) {
      std::vector<int64_t> permutation = to_node(transpose).get_ints("perm");
      const int64_t rank = data->rank();
      if (permutation.empty())
        for (int64_t i = rank; i-- > 0;) permutation.push_back(i);
      int64_t axis = int_attribute(dq, "axis", 1);
      if (axis < 0) axis += rank;
      attributes["axis"] = static_cast<int64_t>(llvm::find(permutation, axis) - permutation.begin());
    }
    rewriter_.setInsertionPoint(transpose);
    llvm::SmallVector<mlir::Value> operands{constant(dq, moved), scale_of(dq)};
    if (zero_of(dq)) operands.push_back(zero_of(dq));
    NodeOp result = create(dq.getLoc(), "DequantizeLinear", dq.getDomain(), dq.getVersion(), operands, attributes, transpose->getResult(0).getType());
    transpose->getResult(0).replaceAllUsesWith(result->getResult(0));
    erase(transpose);
    erase(dq);
    return true;
  }

  /// True if the value runs to a Q, through Relu and Clip at most, each read by one operation only.
  static bool reaches_q(mlir::Value value) {
    for (;;) {
      auto edges = edges_of(value);
      if (edges.size() != 1) return false;
      NodeOp next = llvm::dyn_cast<NodeOp>(edges[0]->getOwner());
      if (is_q(next)) return true;
      if (!is_onnx(next, {"Relu", "Clip"})) return false;
      value = next->getResult(0);
    }
  }

  /// Conv, ConvTranspose, Gemm from a DQ to a Q: float weights are quantised to int8, a constant bias vector to int32 with the scale
  /// x_scale * w_scale, both as DQ of constants.
  bool quantise_weights_and_bias(NodeOp op) {
    if (!is_onnx(op, {"Conv", "ConvTranspose", "Gemm"})) return false;
    NodeOp x = dq_of(op.getInputs()[0]);
    if (!x || !is_scalar(scale_of(x)) || !constant_value(scale_of(x)) || dtype_of(scale_of(x)) != DType::kFloat) return false;
    if (!reaches_q(op->getResult(0))) return false;
    const mlir::Value weights = op.getInputs()[1], bias = input_or_null(op, 2);
    NodeOp w = dq_of(weights);
    const auto weight_value = w ? std::nullopt : constant_value(weights);
    if (!w && (!weight_value || weight_value->dtype() != DType::kFloat)) return false;
    if (w && (!constant_value(scale_of(w)) || dtype_of(scale_of(w)) != DType::kFloat)) return false;
    const auto bias_value = bias ? constant_value(bias) : std::nullopt;
    if (bias && (!bias_value || bias_value->rank() != 1 || bias_value->dtype() != DType::kFloat)) return false;
    if (w && !bias) return false;

    const bool per_channel = w && !is_scalar(scale_of(w));
    if (per_channel) {
      auto shape = shape_of(scale_of(w));
      auto weight_shape = shape_of(weights);
      if (!shape || shape->size() != 1 || shape->front() != bias_value->size() || !weight_shape) return false;
      int64_t axis = int_attribute(w, "axis", 1);
      if (axis < 0) axis += static_cast<int64_t>(weight_shape->size());
      if (axis != (is_onnx(op, {"Gemm"}) && int_attribute(op, "transB", 0) == 0 ? 1 : 0)) return false;
    }
    rewriter_.setInsertionPoint(op);
    Tensor w_scale;
    if (w) {
      w_scale = *constant_value(scale_of(w));
    } else {
      float low = 0.0f, high = 0.0f;
      for (float v : weight_value->as<float>()) {
        low = std::min(low, v);
        high = std::max(high, v);
      }
      const float scale = high == low ? 1.0f : (high - low) / 255.0f;
      const float zero = std::nearbyintf(std::max(-128.0f, std::min(127.0f, -128.0f - low / scale)));
      w_scale = Tensor::scalar_f32(scale);
      const Tensor w_zero = Tensor::of<int8_t>(DType::kInt8, {}, {static_cast<int8_t>(zero)});
      Tensor quantised(DType::kInt8, weight_value->shape());
      for (size_t i = 0; i < weight_value->as<float>().size(); ++i) {
        quantised.as_mutable<int8_t>()[i] = static_cast<int8_t>(
            ops::quantized::quantize(weight_value->as<float>()[i], scale, static_cast<int32_t>(zero), {-128, 127}));
      }
      NodeOp dq = create(op.getLoc(), "DequantizeLinear", "", x.getVersion(), {constant(op, quantised), constant(op, w_scale), constant(op, w_zero)},
                         {}, weights.getType());
      op->setOperand(1, dq->getResult(0));
    }
    if (bias) {
      const float x_scale = static_cast<float>(scale_value(x));
      Tensor scale(DType::kFloat, per_channel ? w_scale.shape() : ops::Shape{});
      for (size_t i = 0; i < scale.as<float>().size(); ++i) scale.as_mutable<float>()[i] = x_scale * w_scale.as<float>()[i];
      Tensor quantised(DType::kInt32, bias_value->shape());
      for (size_t i = 0; i < quantised.as<int32_t>().size(); ++i) {
        const float s = scale.as<float>()[per_channel ? i : 0];
        quantised.as_mutable<int32_t>()[i] = ops::quantized::round_to_int32(bias_value->as<float>()[i] / s);
      }
      const Attributes axis = per_channel ? Attributes{{"axis", int64_t{0}}} : Attributes{};
      NodeOp dq = create(op.getLoc(), "DequantizeLinear", "", std::max<int64_t>(x.getVersion(), per_channel ? 13 : 10),
                         {constant(op, quantised), constant(op, scale)}, axis, bias.getType());
      op->setOperand(2, dq->getResult(0));
    }
    return true;
  }

  /// Relu or Clip in front of a Q goes when the Q's range implies it.
  bool remove_redundant_activations(NodeOp q) {
    bool changed = false;
    for (;;) {
      NodeOp op = defining_op(data_of(q));
      if (!is_onnx(op, {"Relu", "Clip"}) || !single_edge(op->getResult(0)) || !has_constant_scalars(q)) return changed;
      const DType dtype = quantised_type(q);
      if (!ops::quantized::is_quantized_integer(dtype) || dtype == DType::kInt4 || dtype == DType::kUint4) return changed;
      const auto range = ops::quantized::range_of(dtype);
      const double scale = scale_value(q);
      const auto zero = static_cast<double>(zero_value(q));
      if (!(scale > 0)) return changed;
      if (op.is("Relu")) {
        if (zero != range.low) return changed;
      } else {
        if (!shape_of(scale_of(q))->empty() || (zero_of(q) && !shape_of(zero_of(q))->empty())) return changed;
        auto bound = [&](unsigned input, llvm::StringRef attribute, double fallback) -> std::optional<double> {
          if (op.getVersion() >= 11) return input_or_null(op, input) ? constant_scalar(input_or_null(op, input)) : fallback;
          auto value = op.getOnnxAttributes().getAs<mlir::FloatAttr>(attribute);
          return value ? value.getValueAsDouble() : fallback;
        };
        const auto low = bound(1, "min", -std::numeric_limits<double>::infinity());
        const auto high = bound(2, "max", std::numeric_limits<double>::infinity());
        if (!low || !high) return changed;
        auto step = [&](double v) { return std::nearbyint(static_cast<double>(static_cast<float>(v) / static_cast<float>(scale))) + zero; };
        if (!(step(*low) <= range.low && step(*high) >= range.high)) return changed;
      }
      q->setOperand(0, data_of(op));
      erase(op);
      changed = true;
    }
  }

  // --- groups --------------------------------------------------------------------------------------------------------------------

  struct Group {
    NodeOp op;
    llvm::SmallVector<NodeOp> dq;      // producers of the operands that are DQ, in operand order
    size_t operands = 0;               // operands that exist
    llvm::SmallVector<NodeOp> q;       // consumers of the results that are Q
    bool closed = false;               // each result is read by exactly one Q and nothing else
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
      if (is_onnx(next, {"Relu", "Clip"}) && edges_of(next->getResult(0)).size() == 1 && !is_graph_output(next->getResult(0))) return std::nullopt;
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

  /// Replaces the result that `last` (a Q or the operator itself) gives by that of a new operator, and drops what nobody reads any more.
  bool replace(Group& group, NodeOp last, llvm::StringRef op_type, llvm::StringRef domain, mlir::ValueRange operands, const Attributes& attributes) {
    llvm::SmallVector<mlir::Operation*> others;
    if (last != group.op) others.push_back(last);
    for (NodeOp dq : group.dq) others.push_back(dq);
    // The operator gives the node's name, its quantisation the value's.
    NodeOp result = create(location_for(group.op, {last->getResult(0)}, others), op_type, domain, domain.empty() ? static_cast<int64_t>(group.op.getVersion()) : 1,
                           operands, attributes, last->getResultTypes());
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

  bool fuse_conv(Group& group) {
    if (!group.closed || group.dq.size() != group.operands || group.operands < 2) return false;
    NodeOp x = group.dq[0], w = group.dq[1], q = group.q[0];
    const DType x_type = quantised_type(x), w_type = quantised_type(w);
    if (!is_8bit(x_type) || !is_8bit(w_type) || quantised_type(q) != x_type) return false;
    if (x_type == DType::kInt8 && w_type != DType::kInt8) return false;
    if (group.operands > 2 && quantised_type(group.dq[2]) != DType::kInt32) return false;
    if (!tensor_parameters(x) || !tensor_parameters(q) || !channel_parameters(w, 0)) return false;
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
    const DType a_type = quantised_type(a), b_type = quantised_type(b);
    if (!is_8bit(a_type) || !is_8bit(b_type) || (a_type == DType::kInt8 && b_type != DType::kInt8)) return false;
    auto b_shape = shape_of(data_of(b));
    if (!tensor_parameters(a) || !b_shape || !channel_parameters(b, static_cast<int64_t>(b_shape->size()) - 1)) return false;
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
    const DType a_type = quantised_type(a), b_type = quantised_type(b);
    if (!is_8bit(a_type) || !is_8bit(b_type) || (a_type == DType::kInt8 && b_type != DType::kInt8)) return false;
    const ops::Node node = to_node(group.op);
    if (group.operands > 2 && (node.get_float("beta", 1.0f) != 1.0f || quantised_type(group.dq[2]) != DType::kInt32)) return false;
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
    if (!is_8bit(quantised_type(x)) || quantised_type(q) != quantised_type(x) || !tensor_parameters(x) || !tensor_parameters(q)) return false;
    Attributes attributes = to_attributes(op.getOnnxAttributes());
    if (op.is("AveragePool")) {
      for (int64_t d : to_node(op).get_ints("dilations"))
        if (d != 1) return false;
      attributes.erase("dilations");
      if (op.getVersion() < 10) attributes.erase("ceil_mode");
    }
    if (op.is("Softmax")) attributes["opset"] = int64_t{op.getVersion() >= 13 ? 13 : op.getVersion() >= 11 ? 11 : 1};
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

  // --- operators that only move elements: Q and DQ go when their parameters agree --------------------------------------------------

  bool drop_around(Group& group) {
    NodeOp op = group.op;
    const int64_t version = op.getVersion();
    const bool ordered = (op.is("MaxPool") && version >= 12) || (is_onnx(op, {"ReduceMax", "ReduceMin"}) && version >= 12);
    const bool moves = is_onnx(op, {"DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "Reshape", "Slice", "SpaceToDepth", "Squeeze",
                                    "Tile", "Transpose", "Unsqueeze"});
    const bool resize = op.is("Resize") && version >= 10 && to_node(op).get_string("mode", "nearest") != "cubic";
    const bool pad = op.is("Pad") && version >= 13;
    if (!ordered && !moves && !resize && !pad) return false;
    if (!group.closed || group.q.size() != 1 || group.dq.size() != 1 || dq_of(data_of(op)) != group.dq[0]) return false;
    NodeOp dq = group.dq[0], q = group.q[0];
    const DType type = quantised_type(q);
    if (!same_parameters(q, dq)) return false;
    if (!is_8bit(type) && !(moves && (type == DType::kInt16 || type == DType::kUint16))) return false;
    if (ordered && !(scale_value(q) > 0)) return false;
    if (ordered && op->getNumResults() != 1) return false;
    place(group);
    llvm::SmallVector<mlir::Value> operands(op.getInputs().begin(), op.getInputs().end());
    operands[0] = data_of(dq);
    if (pad && !quantise_pad_value(op, q, operands)) return false;
    return replace(group, q, op.getOpType(), "", operands, to_attributes(op.getOnnxAttributes()));
  }

  /// The value of a constant Pad, quantised; false when it is not known.
  bool quantise_pad_value(NodeOp op, NodeOp q, llvm::SmallVectorImpl<mlir::Value>& operands) {
    if (to_node(op).get_string("mode", "constant") != "constant") return true;
    double value = 0.0;
    if (mlir::Value given = input_or_null(op, 2)) {
      auto known = constant_scalar(given);
      if (!known) return false;
      value = *known;
    }
    const DType type = quantised_type(q);
    const int32_t padding = ops::quantized::quantize(static_cast<float>(value), static_cast<float>(scale_value(q)),
                                                     static_cast<int32_t>(zero_value(q)), ops::quantized::range_of(type));
    operands.resize(std::max<size_t>(operands.size(), 3));
    operands[2] = constant(op, ops::quantized::from_int32s(type, {}, {padding}));
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
    NodeOp split = create(names_of_results(op, qs), "Split", "", op.getVersion(), operands, to_attributes(op.getOnnxAttributes()), types);
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
    if (group.dq.size() != 1 || !is_8bit(quantised_type(dq)) || !zero_of(dq) || !has_constant_scalars(dq) || !(scale_value(dq) > 0)) return false;
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

  mlir::Block& block_;
  mlir::IRRewriter rewriter_;
  llvm::DenseSet<mlir::Operation*> erased_;
};

}  // namespace

std::unique_ptr<mlir::Pass> create_qdq_folding_pass() {
  return make_function_pass("nn-fold-qdq", "fold QuantizeLinear and DequantizeLinear into integer operators", [](mlir::func::FuncOp func) {
    std::vector<mlir::Block*> blocks;
    for (mlir::Block& block : func.getBody()) blocks.push_back(&block);
    func.walk([&](NodeOp op) {
      for (mlir::Region& body : op->getRegions())
        for (mlir::Block& block : body) blocks.push_back(&block);
    });
    for (mlir::Block* block : blocks) BlockFolder(*block).run();
    return mlir::success();
  });
}

}  // namespace tessera::nn
