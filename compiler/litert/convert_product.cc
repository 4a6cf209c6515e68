// SPDX-License-Identifier: Apache-2.0
// Convolutions and matrix products. Images are channels last and weights [out, h, w, in] (depthwise: [1, h, w, out]);
// ONNX wants channels first, so images are transposed on both sides, which the compiler cancels between neighbours.
// Bytes by bytes become QLinearConv, QLinearMatMul and QGemm: XNNPACK's kernels convert sums by one float32 factor,
// rounded to even, exactly as these do.
#include <algorithm>

#include "compiler/litert/conversions.h"

namespace tessera::litert {
namespace {

using ops::DType;

bool is_byte(TensorType type) { return type == TensorType::kInt8 || type == TensorType::kUint8; }

/// A constant operand with its axes permuted.
ops::Tensor permuted(const ops::Tensor& tensor, const std::vector<int64_t>& perm) {
  const ops::Node node{"", "Transpose", 13, "", {{"perm", perm}}, 1};
  return ops::evaluate(node, {ops::Value(tensor)}).at(0).tensor;
}

/// 4-bit weights as bytes.
ops::Tensor widened(const ops::Tensor& tensor) {
  if (tensor.dtype() != DType::kInt4 && tensor.dtype() != DType::kInt2) return tensor;
  return tensor.bitcast(DType::kInt8);  // a tensor holds each element in a byte already
}

struct Window {
  int64_t stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  Padding padding = Padding::kSame;

  Attributes attributes() const {
    return {{"strides", std::vector<int64_t>{stride_h, stride_w}},
            {"dilations", std::vector<int64_t>{dilation_h, dilation_w}},
            {"auto_pad", std::string(padding == Padding::kSame ? "SAME_UPPER" : "VALID")}};
  }
};

/// Weights as ONNX lays them out, [out, in / group, h, w]; constant where they are constant in the file.
Value weights(Op& op, const std::vector<int64_t>& perm) {
  if (const auto content = op.content(1)) return op.constant(permuted(widened(*content), perm));
  return op.transpose(op.value(1), perm);
}

/// float32 weights, from whatever they are stored in.
Value real_weights(Op& op, const std::vector<int64_t>& perm) { return op.transpose(op.real(1), perm); }

/// The zero points of weights, as bytes.
Value weight_zero(Op& op) {
  const TensorInfo& w = op.input(1);
  if (w.type != TensorType::kInt4) return op.zero_point(w);
  return op.constant(ops::Tensor(DType::kInt8, w.quantisation.per_tensor()
                                                   ? ops::Shape{}
                                                   : ops::Shape{static_cast<int64_t>(w.quantisation.scales.size())}));
}

bool computes_on_bytes(Op& op) {
  const TensorInfo &x = op.input(0), &w = op.input(1);
  return x.is_quantised() && is_byte(x.type) && w.is_quantised() && op.output().is_quantised() &&
         is_byte(op.output().type);
}

/// A convolution of `group` groups whose weights have the axes of `perm` in the file's order.
void convert_convolution(Op& op, const Window& window, int64_t group, const std::vector<int64_t>& perm,
                         Activation activation) {
  Attributes attributes = window.attributes();
  attributes["group"] = group;
  if (computes_on_bytes(op)) {
    const TensorInfo &x = op.input(0), &w = op.input(1), &y = op.output();
    Values operands = {op.channels_first(op.value(0)),
                       op.scale(x),
                       op.zero_point(x),
                       weights(op, perm),
                       op.scale(w),
                       weight_zero(op),
                       op.scale(y),
                       op.zero_point(y)};
    if (op.has(2)) operands.push_back(op.value(2));
    return op.give(0, op.limited(op.channels_last(op.node("QLinearConv", operands, attributes)), activation));
  }
  if (op.input(0).is_quantised()) op.refuse("this combination of element types is not supported");
  Values operands = {op.channels_first(op.real(0)), real_weights(op, perm)};
  if (op.has(2)) operands.push_back(op.real(2));
  op.give_real(0, op.activate(op.channels_last(op.node("Conv", operands, attributes)), activation));
}

int64_t extent(Op& op, size_t operand, size_t axis) {
  const ops::Shape& shape = op.input(operand).shape;
  if (axis >= shape.size() || shape[axis] < 0)
    op.refuse("axis " + std::to_string(axis) + " of operand " + std::to_string(operand) + " has no fixed extent",
              ErrorCode::kInvalidModel);
  return shape[axis];
}

void convert_conv_2d(Op& op) {
  using O = Conv2DOptions;
  const Window window{op.option(O::stride_h), op.option(O::stride_w), op.option(O::dilation_h_factor),
                      op.option(O::dilation_w_factor), static_cast<Padding>(op.option(O::padding))};
  const int64_t in = extent(op, 0, 3), each = extent(op, 1, 3);
  if (each == 0 || in % each != 0) op.refuse("the channels do not divide into groups", ErrorCode::kInvalidModel);
  convert_convolution(op, window, in / each, {0, 3, 1, 2},
                      static_cast<Activation>(op.option(O::fused_activation_function)));
}

void convert_depthwise_conv_2d(Op& op) {
  using O = DepthwiseConv2DOptions;
  const Window window{op.option(O::stride_h), op.option(O::stride_w), op.option(O::dilation_h_factor),
                      op.option(O::dilation_w_factor), static_cast<Padding>(op.option(O::padding))};
  convert_convolution(op, window, extent(op, 0, 3), {3, 0, 1, 2},
                      static_cast<Activation>(op.option(O::fused_activation_function)));
}

/// x [..., in] by w [out, in]: all axes but the last are rows.
void convert_fully_connected(Op& op) {
  using O = FullyConnectedOptions;
  const auto activation = static_cast<Activation>(op.option(O::fused_activation_function));
  if (op.option(O::weights_format) != 0) op.refuse("shuffled weights are not supported");
  const int64_t in = extent(op, 1, 1), out = extent(op, 1, 0);
  const bool flat = op.input(0).shape.size() == 2 && op.output().shape.size() == 2;
  const auto rows = [&](const Value& value) { return flat ? value : op.reshape(value, {-1, in}); };
  const auto finish = [&](const Value& value) {
    if (flat) return value;
    if (!op.option(O::keep_num_dims)) return value;
    std::vector<int64_t> shape(op.input(0).shape.begin(), op.input(0).shape.end());
    if (std::count(shape.begin(), shape.end() - 1, -1) > 1) op.refuse("several axes of the operand are open");
    shape.back() = out;
    return op.reshape(value, shape);
  };
  if (computes_on_bytes(op)) {
    const TensorInfo &x = op.input(0), &w = op.input(1), &y = op.output();
    const Value bias = op.has(2) ? op.value(2) : Value();
    const Value product = op.node("QGemm",
                                  {rows(op.value(0)), op.scale(x), op.zero_point(x), weights(op, {1, 0}), op.scale(w),
                                   weight_zero(op), bias, op.scale(y), op.zero_point(y)},
                                  {}, kMicrosoft);
    return op.give(0, op.limited(finish(product), activation));
  }
  if (op.input(0).is_quantised()) op.refuse("this combination of element types is not supported");
  Value product = op.node("MatMul", {rows(op.real(0)), real_weights(op, {1, 0})});
  if (op.has(2)) product = op.node("Add", {product, op.real(2)});
  op.give_real(0, op.activate(finish(product), activation));
}

}  // namespace

void register_product(Conversions& conversions) {
  conversions.add(BuiltinOperator::kConv2d, convert_conv_2d);
  conversions.add(BuiltinOperator::kDepthwiseConv2d, convert_depthwise_conv_2d);
  conversions.add(BuiltinOperator::kFullyConnected, convert_fully_connected);
}

}  // namespace tessera::litert
