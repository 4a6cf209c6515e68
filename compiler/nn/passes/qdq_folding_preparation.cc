// SPDX-License-Identifier: Apache-2.0
// The first half of nn-fold-qdq, on one block: brings Q and DQ to the operators they quantise, as ONNX Runtime does
// before it looks for groups. Each step keeps every value of the graph except those of float weights and biases, which
// become their dequantised ones.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/nn/passes/qdq_folding.h"

namespace tessera::nn::qdq {
namespace {

class Preparation : public BlockEditor {
 public:
  explicit Preparation(mlir::Block& block) : BlockEditor(block), free_groups_(has_free_groups(block)) {}

  void run() {
    remove_identities();
    if (free_groups_) {
      for_each_op([&](NodeOp op) { return flatten_to_reshape(op); });
      for_each_op([&](NodeOp op) { return drop_formula(op); });
    }
    merge_equal();
    fold_constant_quantisation();
    bool changed = true;
    while (changed) {
      make_dqs_unique();
      changed = for_each_op([&](NodeOp op) { return fuse_pad(op); });
      changed |= for_each_op([&](NodeOp op) { return fuse_matmul_add(op); });
      changed |= for_each_op([&](NodeOp op) { return quantise_where_constant(op); });
      changed |= for_each_op([&](NodeOp op) { return is_dq(op) && propagate_forward(op); });
      changed |= for_each_op([&](NodeOp op) { return is_q(op) && propagate_backward(op); });
      changed |= for_each_op([&](NodeOp op) { return is_dq(op) && transpose_constant(op); });
      changed |= for_each_op([&](NodeOp op) { return quantise_weights_and_bias(op); });
    }
    for_each_op([&](NodeOp op) { return is_q(op) && remove_redundant_activations(op); });
  }

 private:
  /// Q and DQ move through Reshape, and not through Flatten.
  bool flatten_to_reshape(NodeOp op) {
    const auto shape = op.is("Flatten") ? shape_of(op->getResult(0)) : std::nullopt;
    if (!shape || !is_static(op->getResult(0))) return false;
    rewriter_.setInsertionPoint(op);
    NodeOp reshape = create(op.getLoc(), "Reshape", "", std::max<int64_t>(op.getVersion(), 13),
                            {data_of(op), constant(op, Tensor::vector_i64(*shape))}, {}, op->getResultTypes());
    op->getResult(0).replaceAllUsesWith(reshape->getResult(0));
    erase(op);
    return true;
  }

  /// A group of DQ and an operator that a Q could close.
  static bool is_open_group(mlir::Value value) {
    NodeOp op = defining_op(value);
    if (!single_edge(value)) return false;
    if (is_onnx(op, {"Relu", "Clip", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "MaxPool"}))
      return is_open_group(data_of(op));
    if (is_onnx(op, {"Conv", "MatMul", "Gemm", "AveragePool", "GlobalAveragePool"}))
      return dq_of(data_of(op)) && (op.getInputs().size() < 2 || dq_of(op.getInputs()[1]));
    return is_onnx(op, {"Add", "Mul"}) && llvm::all_of(op.getInputs(), [](mlir::Value operand) {
             NodeOp product = defining_op(operand, "MatMul");
             return dq_of(operand) || constant_value(operand) || (product && is_open_group(operand));
           });
  }

  /// QONNX's Quant with a zero point, which rounds behind its addition, is its formula in front of a Q. Behind a group
  /// the Q alone is taken: the group rounds its sums as QLinearConv does, and ties are no longer those of the formula.
  bool drop_formula(NodeOp op) {
    if (!op.is("Quant", "tessera") || !is_open_group(data_of(op))) return false;
    const ops::Node node = to_node(op);
    const std::string mode = llvm::StringRef(node.get_string("rounding_mode", "ROUND")).upper();
    mlir::OpOperand* edge = single_edge(op->getResult(0));
    const auto bits = constant_value(op.getInputs()[3]);
    if ((mode != "ROUND" && mode != "HALF_EVEN") || !edge || !is_q(llvm::dyn_cast<NodeOp>(edge->getOwner())) || !bits ||
        (bits->at_double(0) == 1 && node.get_int("signed", 1) != 0))
      return false;
    op->getResult(0).replaceAllUsesWith(data_of(op));
    erase(op);
    return true;
  }

  void remove_identities() {
    for_each_op([&](NodeOp op) {
      if (!is_onnx(op, {"Identity", "Cast", "Dropout"}) || op->getResult(0).getType() != data_of(op).getType())
        return false;
      if (op.is("Dropout") &&
          (op.getVersion() < 7 || input_or_null(op, 2) || (op->getNumResults() > 1 && !op->getResult(1).use_empty())))
        return false;
      op->getResult(0).replaceAllUsesWith(data_of(op));
      erase(op);
      return true;
    });
  }

  /// Operations with the same operands and attributes become one. Constants are not compared: equal values given twice
  /// stay two, as they do in ONNX Runtime, and two Q that differ only in that keep a convolution from being fused.
  void merge_equal() {
    struct Info : llvm::DenseMapInfo<mlir::Operation*> {
      static unsigned getHashValue(const mlir::Operation* op) {
        return mlir::OperationEquivalence::computeHash(
            const_cast<mlir::Operation*>(op), mlir::OperationEquivalence::directHashValue,
            mlir::OperationEquivalence::ignoreHashValue, mlir::OperationEquivalence::IgnoreLocations);
      }
      static bool isEqual(const mlir::Operation* a, const mlir::Operation* b) {
        if (a == b) return true;
        if (a == getTombstoneKey() || a == getEmptyKey() || b == getTombstoneKey() || b == getEmptyKey()) return false;
        return mlir::OperationEquivalence::isEquivalentTo(const_cast<mlir::Operation*>(a),
                                                          const_cast<mlir::Operation*>(b),
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

  /// A Pad of 0 on the spatial axes between a DQ and a Conv moves into the Conv's pads.
  bool fuse_pad(NodeOp conv) {
    if (!conv.is("Conv")) return false;
    NodeOp pad = defining_op(data_of(conv), "Pad");
    if (!pad || !dq_of(data_of(pad)) || !single_edge(pad->getResult(0)) || input_or_null(pad, 3)) return false;
    const ops::Node node = to_node(pad), target = to_node(conv);
    if (node.get_string("mode", "constant") != "constant" || target.get_string("auto_pad", "NOTSET") != "NOTSET")
      return false;
    std::vector<int64_t> pads = node.get_ints("pads");
    if (pad.getVersion() >= 11) {
      auto given = constant_value(pad.getInputs()[1]);
      if (!given) return false;
      pads = given->to_int64s();
      if (mlir::Value value = input_or_null(pad, 2); value && constant_scalar(value) != 0.0) return false;
    } else if (node.get_float("value", 0.0f) != 0.0f) {
      return false;
    }
    const auto shape = shape_of(data_of(pad));
    const size_t rank = pads.size() / 2;
    if (!shape || shape->size() != rank || pads.size() != 2 * rank || rank < 3) return false;
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

  /// Whether Gemm adds a bias of this shape to a product of `a` with n columns: a row, or for matrices also what is
  /// broadcast along one dimension or none.
  static bool gemm_adds(const ops::Shape& bias, const ops::Shape& a, int64_t n) {
    if (n < 0) return false;
    if (bias.size() == 1) return bias[0] == n;
    if (bias.size() != 2 || a.size() != 2) return false;
    return (bias[0] == 1 && bias[1] == n) || (bias[0] == a[0] && bias[0] >= 0 && (bias[1] == 1 || bias[1] == n));
  }

  /// MatMul of two DQ, read only by an Add of a bias that Gemm can take, becomes Gemm (with reshapes around it for
  /// other ranks than 2).
  bool fuse_matmul_add(NodeOp matmul) {
    if (!matmul.is("MatMul") || !dq_of(matmul.getInputs()[0]) || !dq_of(matmul.getInputs()[1])) return false;
    mlir::OpOperand* edge = single_edge(matmul->getResult(0));
    NodeOp add = edge ? llvm::dyn_cast<NodeOp>(edge->getOwner()) : NodeOp();
    if (!is_onnx(add, {"Add"})) return false;
    const mlir::Value a = matmul.getInputs()[0], b = matmul.getInputs()[1],
                      bias = add.getInputs()[1 - edge->getOperandNumber()];
    const auto a_shape = shape_of(a), b_shape = shape_of(b), bias_shape = shape_of(bias);
    if (!a_shape || a_shape->empty() || !b_shape || !bias_shape || b_shape->size() != 2 ||
        dtype_of(a) != dtype_of(bias))
      return false;
    const int64_t n = (*b_shape)[1];
    const bool reshapes = a_shape->size() != 2;
    if (reshapes && (!is_static(a) || !is_static(b))) return false;
    if (!gemm_adds(*bias_shape, *a_shape, n)) return false;

    rewriter_.setInsertionPoint(add);
    mlir::Value left = a;
    mlir::Type type = add->getResult(0).getType();
    const int64_t version = std::max<int64_t>(matmul.getVersion(), 13);
    auto reshape = [&](mlir::Value value, const ops::Shape& shape) {
      mlir::Type result = to_type(rewriter_.getContext(), ops::TypeInfo::tensor(dtype_of(value), shape));
      return create(add.getLoc(), "Reshape", "", version, {value, constant(add, Tensor::vector_i64(shape))}, {}, result)
          ->getResult(0);
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

  /// A Where of a DQ and a float scalar in front of a Q: the scalar becomes the DQ of a constant, the outermost step of
  /// its side of zero, with a scale that gives it back.
  bool quantise_where_constant(NodeOp where) {
    if (!is_onnx(where, {"Where"})) return false;
    const auto edges = edges_of(where->getResult(0));
    NodeOp q = edges.size() == 1 ? llvm::dyn_cast<NodeOp>(edges[0]->getOwner()) : NodeOp();
    if (!is_q(q)) return false;
    const unsigned place = dq_of(where.getInputs()[1]) ? 2 : 1;
    NodeOp dq = dq_of(where.getInputs()[3 - place]);
    const auto value = constant_value(where.getInputs()[place]);
    if (!dq || !value || value->rank() != 0 || value->dtype() != DType::kFloat) return false;
    const DType type = quantised_type(dq);
    const bool is_signed = type == DType::kInt8 || type == DType::kInt16;
    if (quantised_type(q) != type || !(is_signed || type == DType::kUint8 || type == DType::kUint16)) return false;
    if (!zero_of(dq) || !constant_value(zero_of(dq)) || !constant_value(scale_of(dq)) ||
        dtype_of(scale_of(dq)) != DType::kFloat)
      return false;
    const auto range = ops::quantized::range_of(type);
    const float x = value->as<float>()[0];
    const int32_t zero = is_signed ? 0 : range.high / 2, step = x > 0 ? range.high : x == 0 ? zero : range.low;
    rewriter_.setInsertionPoint(where);
    const auto scalar = [&](int32_t v) {
      return constant(where, ops::quantized::from_int32s(type, {}, std::vector<int32_t>{v}));
    };
    const mlir::Value scale = constant(where, Tensor::scalar_f32(x == 0 ? 1.0f : x / static_cast<float>(step - zero)));
    NodeOp moved = create(where.getLoc(), "DequantizeLinear", dq.getDomain(), dq.getVersion(),
                          {scalar(step), scale, scalar(zero)}, {}, where.getInputs()[place].getType());
    where->setOperand(place, moved->getResult(0));
    return true;
  }

  /// Operators through which DQ and Q move: their result is a selection of their input.
  static bool can_propagate(NodeOp op) {
    if (is_onnx(op, {"MaxPool"})) return op.getVersion() >= 12;
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
                                ? Attributes{}
                                : Attributes{{"output_dtype", static_cast<int64_t>(info.dtype)}};
    NodeOp q = create(location, "QuantizeLinear", model.getDomain(), model.getVersion(), parameters, type,
                      to_type(rewriter_.getContext(), info));
    parameters[0] = q->getResult(0);
    for (mlir::OpOperand* edge : edges)
      edge->set(
          create(location, "DequantizeLinear", model.getDomain(), model.getVersion(), parameters, {}, value.getType())
              ->getResult(0));
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
    NodeOp result = create(dq.getLoc(), "DequantizeLinear", dq.getDomain(), dq.getVersion(), operands, attributes,
                           transpose->getResult(0).getType());
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

  static bool has_float_scale(NodeOp dq) {
    return constant_value(scale_of(dq)) && dtype_of(scale_of(dq)) == DType::kFloat;
  }

  static std::optional<Tensor> float_constant(mlir::Value value) {
    const auto content = constant_value(value);
    return content && content->dtype() == DType::kFloat ? content : std::nullopt;
  }

  /// Whether the weights' scales are a vector of `channels` along the output channels of `op`: the first axis, but the
  /// second one of a ConvTranspose and of a Gemm that reads its weights as they stand.
  static bool has_scale_by_channel(NodeOp op, NodeOp w, int64_t channels) {
    auto shape = shape_of(scale_of(w));
    if (!shape || shape->size() != 1 || shape->front() != channels) return false;
    const auto rank = static_cast<int64_t>(shape_of(op.getInputs()[1]).value_or(ops::Shape{}).size());
    const int64_t given = int_attribute(w, "axis", 1), axis = given < 0 ? given + rank : given;
    const bool second = op.is("ConvTranspose") || (op.is("Gemm") && int_attribute(op, "transB", 0) == 0);
    return axis == (second ? 1 : 0);
  }

  /// The operands of a product from a DQ to a Q of which some are still float constants.
  struct FloatParameters {
    NodeOp x, w;                          // DQ; w is null where the weights are float
    std::optional<Tensor> weights, bias;  // float constants
    bool per_channel = false;             // w has a scale for each output channel
  };

  std::optional<FloatParameters> float_parameters_of(NodeOp op) {
    FloatParameters p;
    p.x = dq_of(op.getInputs()[0]);
    p.w = dq_of(op.getInputs()[1]);
    if (!p.x || !is_scalar(scale_of(p.x)) || !has_float_scale(p.x)) return std::nullopt;
    if (!reaches_q(op->getResult(0)) && !(free_groups_ && op.is("Gemm"))) return std::nullopt;
    const mlir::Value bias = input_or_null(op, 2);
    if (bias) p.bias = float_constant(bias);
    if (bias && (!p.bias || p.bias->rank() != 1)) return std::nullopt;
    if (!p.w) {
      p.weights = float_constant(op.getInputs()[1]);
      return p.weights ? std::optional(p) : std::nullopt;
    }
    if (!has_float_scale(p.w) || !bias) return std::nullopt;
    p.per_channel = !is_scalar(scale_of(p.w));
    if (p.per_channel && !has_scale_by_channel(op, p.w, p.bias->size())) return std::nullopt;
    return p;
  }

  /// Float weights become the DQ of int8 with one scale, which is returned.
  Tensor quantise_weights(NodeOp op, const Tensor& weights, int64_t version) {
    float low = 0.0f, high = 0.0f;
    for (float v : weights.as<float>()) {
      low = std::min(low, v);
      high = std::max(high, v);
    }
    const float scale = high == low ? 1.0f : (high - low) / 255.0f;
    const float zero = std::nearbyintf(std::max(-128.0f, std::min(127.0f, -128.0f - low / scale)));
    const Tensor w_scale = Tensor::scalar_f32(scale);
    const Tensor w_zero = Tensor::of<int8_t>(DType::kInt8, {}, {static_cast<int8_t>(zero)});
    Tensor quantised(DType::kInt8, weights.shape());
    for (size_t i = 0; i < weights.as<float>().size(); ++i) {
      quantised.as_mutable<int8_t>()[i] = static_cast<int8_t>(
          ops::quantized::quantize(weights.as<float>()[i], scale, static_cast<int32_t>(zero), {-128, 127}));
    }
    NodeOp dq =
        create(op.getLoc(), "DequantizeLinear", "", version,
               {constant(op, quantised), constant(op, w_scale), constant(op, w_zero)}, {}, op.getInputs()[1].getType());
    op->setOperand(1, dq->getResult(0));
    return w_scale;
  }

  /// A float bias becomes the DQ of int32 with the scale x_scale * w_scale.
  void quantise_bias(NodeOp op, const FloatParameters& p, const Tensor& w_scale) {
    NodeOp x = p.x;
    const float x_scale = static_cast<float>(scale_value(x));
    Tensor scale(DType::kFloat, p.per_channel ? w_scale.shape() : ops::Shape{});
    for (size_t i = 0; i < scale.as<float>().size(); ++i)
      scale.as_mutable<float>()[i] = x_scale * w_scale.as<float>()[i];
    Tensor quantised(DType::kInt32, p.bias->shape());
    for (size_t i = 0; i < quantised.as<int32_t>().size(); ++i) {
      const float s = scale.as<float>()[p.per_channel ? i : 0];
      quantised.as_mutable<int32_t>()[i] = ops::quantized::round_to_int32(p.bias->as<float>()[i] / s);
    }
    const Attributes axis = p.per_channel ? Attributes{{"axis", int64_t{0}}} : Attributes{};
    NodeOp dq = create(op.getLoc(), "DequantizeLinear", "", std::max<int64_t>(x.getVersion(), p.per_channel ? 13 : 10),
                       {constant(op, quantised), constant(op, scale)}, axis, op.getInputs()[2].getType());
    op->setOperand(2, dq->getResult(0));
  }

  /// Conv, ConvTranspose, Gemm from a DQ to a Q: float weights are quantised to int8, a constant bias vector to int32
  /// with the scale x_scale * w_scale, both as DQ of constants.
  bool quantise_weights_and_bias(NodeOp op) {
    if (!is_onnx(op, {"Conv", "ConvTranspose", "Gemm"})) return false;
    const auto p = float_parameters_of(op);
    if (!p) return false;
    NodeOp x = p->x, w = p->w;
    rewriter_.setInsertionPoint(op);
    // X may be dequantised by the operator of Microsoft's domain, whose version is none of ONNX.
    const Tensor w_scale =
        w ? *constant_value(scale_of(w)) : quantise_weights(op, *p->weights, std::max<int64_t>(x.getVersion(), 10));
    if (p->bias) quantise_bias(op, *p, w_scale);
    return true;
  }

  /// Relu or Clip in front of a Q goes when the Q's range implies it.
  bool remove_redundant_activations(NodeOp q) {
    bool changed = false;
    for (;;) {
      NodeOp op = defining_op(data_of(q));
      if (!is_onnx(op, {"Relu", "Clip"}) || !single_edge(op->getResult(0)) || !has_constant_scalars(q)) return changed;
      const DType dtype = quantised_type(q);
      if (!ops::quantized::is_quantized_integer(dtype) || ops::packed_bits(dtype) < 8) return changed;
      const auto range = ops::quantized::range_of(dtype);
      const double scale = scale_value(q);
      const auto zero = static_cast<double>(zero_value(q));
      if (!(scale > 0)) return changed;
      if (op.is("Relu")) {
        if (zero != range.low) return changed;
      } else {
        if (!shape_of(scale_of(q))->empty() || (zero_of(q) && !shape_of(zero_of(q))->empty())) return changed;
        auto bound = [&](unsigned input, llvm::StringRef attribute, double fallback) -> std::optional<double> {
          if (op.getVersion() >= 11)
            return input_or_null(op, input) ? constant_scalar(input_or_null(op, input)) : fallback;
          auto value = op.getOnnxAttributes().getAs<mlir::FloatAttr>(attribute);
          return value ? value.getValueAsDouble() : fallback;
        };
        const auto low = bound(1, "min", -std::numeric_limits<double>::infinity());
        const auto high = bound(2, "max", std::numeric_limits<double>::infinity());
        if (!low || !high) return changed;
        auto step = [&](double v) {
          return std::nearbyint(static_cast<double>(static_cast<float>(v) / static_cast<float>(scale))) + zero;
        };
        if (!(step(*low) <= range.low && step(*high) >= range.high)) return changed;
      }
      q->setOperand(0, data_of(op));
      erase(op);
      changed = true;
    }
  }

  const bool free_groups_;
};

}  // namespace

void prepare(mlir::Block& block) { Preparation(block).run(); }

}  // namespace tessera::nn::qdq
