// SPDX-License-Identifier: Apache-2.0
// Folds BatchNormalization, and Mul and Add by a constant for each channel, into the constant weights and bias of a
// preceding float Conv, ConvTranspose, Gemm or MatMul. The weights are rounded once more, so results change in the last
// bits: only float operators with constant weights, in the arithmetic in which ONNX Runtime fuses them; never integer
// operators. Weights behind DequantizeLinear are left alone too, but for networks of QONNX, which ONNX Runtime does not
// run: there the factors of the channels go into the scales, and the integers stay.
#include <array>
#include <cmath>

#include "compiler/nn/passes/pass_util.h"
#include "compiler/nn/passes/passes.h"

namespace tessera::nn {
namespace {

using ops::DType;

ops::Tensor from_floats(DType dtype, const ops::Shape& shape, const std::vector<float>& values) {
  ops::Tensor tensor(dtype, shape);
  if (dtype == DType::kFloat) {
    std::copy(values.begin(), values.end(), tensor.as_mutable<float>().begin());
  } else {
    auto out = tensor.as_mutable<uint16_t>();
    for (size_t i = 0; i < out.size(); ++i) out[i] = ops::float_to_half(values[i]);
  }
  return tensor;
}

/// An operator whose output channels have weights and a bias of their own.
struct Linear {
  NodeOp op;
  NodeOp dequantise;  // null, or what makes the weights of integers
  ops::Tensor weights;
  std::vector<float> bias;  // empty: none
  int64_t channels = 0;
  int64_t rank = 0;                            // of the result
  std::function<int64_t(int64_t)> channel_of;  // of a weight's flat index
};

/// A constant, or what a DequantizeLinear of constants makes of them.
std::optional<ops::Tensor> known_value(mlir::Value value) {
  NodeOp op = value ? defining_op(value, "DequantizeLinear") : NodeOp();
  if (!op) return constant_value(value);
  std::vector<ops::Value> operands;
  for (mlir::Value operand : op.getInputs()) {
    auto tensor = is_none(operand) ? std::optional<ops::Tensor>(ops::Tensor()) : constant_value(operand);
    if (!tensor) return std::nullopt;
    operands.push_back(is_none(operand) ? ops::Value() : ops::Value(*tensor));
  }
  return ops::evaluate(to_node(op), operands)[0].tensor;
}

/// Gives `linear` its channels and the channel of each weight; false where the operator does not have one for each.
bool find_channels(Linear& linear) {
  NodeOp op = linear.op;
  const ops::Node node = to_node(op);
  const ops::Shape& shape = linear.weights.shape();
  const int64_t size = linear.weights.size();
  if (op.is("Conv")) {
    linear.channels = shape.at(0);
    int64_t inner = size / shape[0];
    linear.channel_of = [=](int64_t i) { return i / inner; };
  } else if (op.is("ConvTranspose")) {
    int64_t group = node.get_int("group", 1), per_group = shape.at(1), inner = size / (shape[0] * shape[1]);
    int64_t inputs_per_group = shape[0] / std::max<int64_t>(1, group);
    linear.channels = per_group * group;
    linear.channel_of = [=](int64_t i) {
      return i / inner / per_group / inputs_per_group * per_group + i / inner % per_group;
    };
  } else {
    const bool gemm = op.is("Gemm");
    if (shape.size() != 2 || linear.rank != 2) return false;
    if (gemm && (node.get_float("alpha", 1) != 1 || node.get_float("beta", 1) != 1)) return false;
    bool rows = gemm && node.get_int("transB", 0) != 0;
    linear.channels = shape[rows ? 0 : 1];
    int64_t width = shape[1];
    linear.channel_of = [=](int64_t i) { return rows ? i / width : i % width; };
  }
  return true;
}

/// Gives `linear` the bias of its operator, one value a channel; false where it is not known.
bool find_bias(Linear& linear) {
  mlir::Value bias = input_or_null(linear.op, 2);
  if (!bias) return true;
  auto values = linear.dequantise ? known_value(bias) : constant_value(bias);
  if (!values) return false;
  bool vector = values->rank() >= 1 && values->shape().back() == values->size();
  if (values->size() == 1) {
    linear.bias.assign(static_cast<size_t>(linear.channels), values->to_floats()[0]);
  } else if (vector && values->size() == linear.channels) {
    linear.bias = values->to_floats();
  } else {
    return false;
  }
  return true;
}

/// The operator that makes `value`; of quantised weights only if `quantised`, of others only if not.
std::optional<Linear> match_linear(mlir::Value value, bool quantised) {
  NodeOp op = defining_op(value);
  if (!is_onnx(op, {"Conv", "ConvTranspose", "Gemm", "MatMul"}) || !value.hasOneUse()) return std::nullopt;
  DType dtype = dtype_of(value);
  if (dtype != DType::kFloat && dtype != DType::kFloat16) return std::nullopt;
  const mlir::Value second = input_or_null(op, 1);
  NodeOp dequantise = second ? defining_op(second, "DequantizeLinear") : NodeOp();
  if (!second || quantised != static_cast<bool>(dequantise) || (quantised && dtype != DType::kFloat))
    return std::nullopt;
  auto weights = known_value(second);
  auto result_shape = shape_of(value);
  if (!weights || !result_shape || weights->size() == 0) return std::nullopt;
  Linear linear{op, dequantise, *weights, {}, 0, static_cast<int64_t>(result_shape->size()), {}};
  if (!find_channels(linear) || !find_bias(linear)) return std::nullopt;
  return linear;
}

/// Scales and zero points of the output channels where each channel's scale is multiplied by `factor`; a negative
/// factor turns the sign of the zero point. Nothing where a scale is not finite or a zero point has no negative.
std::optional<std::pair<ops::Tensor, ops::Tensor>> scaled_parameters(NodeOp dq, const std::vector<float>& factor) {
  const ops::Tensor scale = *constant_value(dq->getOperand(1));
  const auto channels = static_cast<int64_t>(factor.size());
  ops::Tensor scales(DType::kFloat, {channels}), zeros(DType::kInt8, {channels});
  const auto given = input_or_null(dq, 2) ? constant_value(input_or_null(dq, 2)) : std::nullopt;
  for (size_t c = 0; c < factor.size(); ++c) {
    const int64_t from = scale.size() == 1 ? 0 : static_cast<int64_t>(c);
    const int64_t zero = given ? given->at_int64(given->size() == 1 ? 0 : from) : 0;
    if (zero == -128 && factor[c] < 0) return std::nullopt;
    const float product = std::abs(factor[c]) * scale.as<float>()[static_cast<size_t>(from)];
    scales.as_mutable<float>()[c] = product > 0 ? product : 1.0f;
    zeros.as_mutable<int8_t>()[c] = static_cast<int8_t>(factor[c] < 0 ? -zero : zero);
    if (!std::isfinite(product)) return std::nullopt;
  }
  return std::pair{scales, zeros};
}

/// Weights [..] of integers whose scale along the output channels is multiplied by `factor`; a negative factor turns
/// the signs of the integers, a factor of zero makes them the zero point. Nothing where the integers do not allow it.
std::optional<mlir::Value> scaled_integers(mlir::PatternRewriter& rewriter, const Linear& linear,
                                           const std::vector<float>& factor) {
  NodeOp dq = linear.dequantise, op = linear.op;
  const ops::Tensor scale = *constant_value(dq->getOperand(1));
  ops::Tensor q = copy_of(*constant_value(dq->getOperand(0)));
  const int64_t group = to_node(op).get_int("group", 1);
  if (q.dtype() != DType::kInt8 || scale.dtype() != DType::kFloat || (op.is("ConvTranspose") && group != 1))
    return std::nullopt;
  const bool rows = op.is("Conv") || (op.is("Gemm") && to_node(op).get_int("transB", 0) != 0);
  const int64_t axis = rows ? 0 : 1;
  if (scale.size() != 1 &&
      (ops::normalise_axis(to_node(dq), to_node(dq).get_int("axis", 1), q.rank()) != axis || scale.rank() != 1))
    return std::nullopt;
  const auto parameters = scaled_parameters(dq, factor);
  if (!parameters) return std::nullopt;
  const auto& [scales, zeros] = *parameters;
  auto out = q.as_mutable<int8_t>();
  for (size_t i = 0; i < out.size(); ++i) {
    const auto c = static_cast<size_t>(linear.channel_of(static_cast<int64_t>(i)));
    if (out[i] == -128 && factor[c] < 0) return std::nullopt;
    if (factor[c] < 0) out[i] = static_cast<int8_t>(-out[i]);
    if (factor[c] == 0) out[i] = zeros.as<int8_t>()[c];
  }
  const auto constant = [&](const ops::Tensor& tensor) { return create_constant(rewriter, dq.getLoc(), tensor); };
  NodeOp result = create_op(rewriter, dq.getLoc(), "DequantizeLinear", dq.getDomain(),
                            std::max(13, static_cast<int>(dq.getVersion())),
                            {constant(q), constant(scales), constant(zeros)}, {{"axis", axis}});
  return result->getResult(0);
}

/// Replaces `last` by the linear operator with weights multiplied by `scale` (none if empty) and the given bias.
bool rebuild(mlir::PatternRewriter& rewriter, NodeOp last, const Linear& linear, const std::vector<float>& scale,
             const std::vector<float>& bias) {
  NodeOp op = linear.op;
  mlir::Location location = location_for(op, {last->getResult(0)}, {last});
  mlir::Value weights = op->getOperand(1);
  if (!scale.empty() && linear.dequantise) {
    std::optional<mlir::Value> scaled = scaled_integers(rewriter, linear, scale);
    if (!scaled) return false;
    weights = *scaled;
  } else if (!scale.empty()) {
    std::vector<float> values = linear.weights.to_floats();
    for (size_t i = 0; i < values.size(); ++i)
      values[i] *= scale[static_cast<size_t>(linear.channel_of(static_cast<int64_t>(i)))];
    weights = create_constant(rewriter, weights.getLoc(),
                              from_floats(linear.weights.dtype(), linear.weights.shape(), values));
  }
  mlir::Value bias_value;
  if (!bias.empty()) {
    bias_value = create_constant(rewriter, make_location(op.getContext(), node_name(op) + ".bias", {}),
                                 from_floats(linear.weights.dtype(), {linear.channels}, bias));
  }
  llvm::StringRef type = op.is("MatMul") && bias_value ? llvm::StringRef("Gemm") : op.getOpType();
  NodeOp folded = create_op(rewriter, location, type, "", static_cast<int>(op.getVersion()),
                            {op->getOperand(0), weights, bias_value}, to_attributes(op.getOnnxAttributes()));
  rewriter.replaceOp(last, folded->getResults());
  return true;
}

bool fold_batch_norm(NodeOp op, mlir::PatternRewriter& rewriter, bool quantised) {
  if (!op.is("BatchNormalization") || !only_first_result_used(op) || op->getNumOperands() != 5) return false;
  ops::Node node = to_node(op);
  if (node.get_int("training_mode", 0) != 0 || node.get_int("spatial", 1) != 1) return false;
  auto linear = match_linear(op->getOperand(0), quantised);
  if (!linear) return false;
  std::array<std::vector<float>, 4> parameters;
  for (unsigned i = 0; i < 4; ++i) {
    auto tensor = constant_value(op->getOperand(i + 1));
    if (!tensor || tensor->size() != linear->channels) return false;
    parameters[i] = tensor->to_floats();
  }
  auto& [scale, shift, mean, variance] = parameters;
  float epsilon = node.get_float("epsilon", 1e-5f);
  std::vector<float> bias(scale.size());
  for (size_t c = 0; c < scale.size(); ++c) {
    scale[c] = scale[c] / std::sqrt(variance[c] + epsilon);
    bias[c] = linear->bias.empty() ? shift[c] - mean[c] * scale[c] : (linear->bias[c] - mean[c]) * scale[c] + shift[c];
  }
  return rebuild(rewriter, op, *linear, scale, bias);
}

/// Values for each channel of a constant that is broadcast over a result [N, C, ...]; nothing if it varies elsewhere.
std::optional<std::vector<float>> channel_values(mlir::Value value, const Linear& linear) {
  auto tensor = constant_value(value);
  if (!tensor || tensor->rank() > linear.rank) return std::nullopt;
  if (tensor->size() == 1) return std::vector<float>(static_cast<size_t>(linear.channels), tensor->to_floats()[0]);
  if (tensor->size() != linear.channels) return std::nullopt;
  int64_t axis = 1 - (linear.rank - tensor->rank());  // where the channels must stand
  if (axis < 0 || tensor->shape()[static_cast<size_t>(axis)] != linear.channels) return std::nullopt;
  return tensor->to_floats();
}

bool fold_scale_or_shift(NodeOp op, mlir::PatternRewriter& rewriter, bool quantised) {
  bool mul = op.is("Mul"), add = op.is("Add");
  if (!mul && !add) return false;
  for (unsigned i = 0; i < 2; ++i) {
    auto linear = match_linear(op->getOperand(i), quantised);
    if (!linear || linear->op.is("MatMul") || linear->op.is("Gemm")) continue;
    auto values = channel_values(op->getOperand(1 - i), *linear);
    if (!values) continue;
    std::vector<float> bias = linear->bias;
    if (mul) {
      for (size_t c = 0; c < bias.size(); ++c) bias[c] *= (*values)[c];
      return rebuild(rewriter, op, *linear, *values, bias);
    } else {
      if (bias.empty()) bias.assign(values->size(), 0.0f);
      for (size_t c = 0; c < bias.size(); ++c) bias[c] += (*values)[c];
      return rebuild(rewriter, op, *linear, {}, bias);
    }
  }
  return false;
}

}  // namespace

std::unique_ptr<mlir::Pass> create_fold_batch_norm_pass(bool quantised) {
  const auto rewrites = [quantised](mlir::func::FuncOp func) {
    if (quantised && !func->hasAttr(kFreeGroupsAttr)) return mlir::success();
    const auto with = [quantised](bool (*fold)(NodeOp, mlir::PatternRewriter&, bool)) {
      return [=](NodeOp op, mlir::PatternRewriter& rewriter) { return fold(op, rewriter, quantised); };
    };
    return apply_rewrites(func, {with(fold_batch_norm), with(fold_scale_or_shift)});
  };
  return make_function_pass(
      quantised ? "nn-fold-batch-norm-quantised" : "nn-fold-batch-norm",
      quantised ? "fold batch normalisation and channel-wise constants into the scales of quantised weights"
                : "fold batch normalisation and channel-wise constants into convolutions and matmuls",
      rewrites);
}

}  // namespace tessera::nn
