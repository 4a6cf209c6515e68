// SPDX-License-Identifier: Apache-2.0
// Convolutions and matrix products. Images are channels last and weights [out, h, w, in] (depthwise: [1, h, w, out]);
// ONNX wants channels first, so images are transposed on both sides, which the compiler cancels between neighbours.
// Bytes by bytes become QLinearConv, QLinearMatMul and QGemm: XNNPACK's kernels convert sums by one float32 factor,
// rounded to even, exactly as these do.
#include <algorithm>
#include <tuple>

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

/// Whether operand and result are bytes, or all are 16 bits, and the weights are bytes.
bool computes_on_integers(Op& op, size_t x = 0) {
  const TensorInfo &from = op.input(x), &w = op.input(1), &y = op.output();
  const auto known = [](const TensorInfo& tensor) {
    return tensor.is_quantised() && (is_byte(tensor.type) || tensor.type == TensorType::kInt16);
  };
  const bool small = is_byte(w.type) || w.type == TensorType::kInt4 || w.type == TensorType::kInt16;
  return known(from) && known(y) && w.is_quantised() && small && from.type == y.type;
}

/// Whether XNNPACK has the operator for these types. Its sums are converted by one float32 factor; LiteRT's own kernels
/// convert them in fixed point.
bool xnnpack_takes(Op& op, size_t x = 0, Activation activation = Activation::kNone) {
  // It has no transposed convolution with an activation, and no depthwise one of uint8.
  if (op.code() == BuiltinOperator::kTransposeConv && activation != Activation::kNone) return false;
  const bool wide = op.input(x).type == TensorType::kInt16;
  const bool old = op.code() == BuiltinOperator::kDepthwiseConv2d && op.input(x).type == TensorType::kUint8;
  return op.kernels() == Kernels::kXnnpack && !wide && !old;
}

/// Sums to the result's type, channels along `axis`, as LiteRT's kernel does it.
Value requantised(Op& op, const Value& sums, int64_t axis, Activation activation, size_t x = 0, size_t bias = 2) {
  const TensorInfo& y = op.output();
  const Quantisation& w = op.input(1).quantisation;
  const IntegerLimits limits = limits_of(y, activation);
  const bool dense = op.code() == BuiltinOperator::kFullyConnected;
  const bool narrow = op.has(bias) && op.input(bias).type == TensorType::kInt32;  // sums of 32 bits
  // A dense layer of 16 bits without a bias of 64 has LiteRT's product for matrices.
  const bool tuned = op.kernels() == Kernels::kXnnpack && y.type == TensorType::kInt16 && (narrow || !op.has(bias));
  const char* kernel = xnnpack_takes(op, x, activation)         ? "xnnpack"
                       : dense && tuned                         ? "upwards"
                       : dense                                  ? "real"
                       : y.type != TensorType::kInt16 || narrow ? "reference"
                                                                : "short";
  Values operands = {sums};
  if (op.has(bias)) operands.push_back(op.value(bias));
  return op.node("Requantise", operands,
                 {{"axis", axis},
                  {"kernel", std::string(kernel)},
                  {"low", limits.low},
                  {"high", limits.high},
                  {"to", static_cast<int64_t>(op.output_dtype())},
                  {"x_scale", op.input(x).quantisation.scale()},
                  {"w_scales", w.scales},
                  {"y_scale", y.quantisation.scale()},
                  {"y_zero_point", y.quantisation.zero()}},
                 kDomain);
}

/// An operand less its zero point, in float64, in which sums of products of 8 by 16 bits are exact.
Value exact(Op& op, const Value& value, const TensorInfo& tensor) {
  const Value wide = op.cast(value, DType::kDouble);
  const int64_t zero = tensor.quantisation.zero();
  return zero == 0 ? wide : op.node("Sub", {wide, op.scalar(DType::kDouble, static_cast<double>(zero))});
}

/// Floats by constant weights of 8 or 4 bits: the kernels quantise each row of the operand when it comes.
bool is_hybrid(Op& op) {
  const TensorInfo& w = op.input(1);
  return op.input(0).type == TensorType::kFloat32 && op.output().type == TensorType::kFloat32 && w.is_constant &&
         w.is_quantised() && (w.type == TensorType::kInt8 || w.type == TensorType::kInt4) &&
         std::all_of(w.quantisation.zero_points.begin(), w.quantisation.zero_points.end(),
                     [](int64_t z) { return z == 0; });
}

/// Rows as int8 with their scales, and zero points where they have some.
struct Rows {
  Value bytes, scales, zeros;
};

/// How a kernel makes rows of floats, and floats of the sums of their products.
struct HybridKernel {
  std::string rows, order;
  bool has_zeros() const { return rows != "symmetric"; }
};

/// Of a convolution: XNNPACK has that of weights of 8 bits. LiteRT's own kernels give rows a zero point where each
/// channel has a scale, and multiply in orders of their own.
HybridKernel hybrid_kernel_of_convolution(Op& op, int64_t group) {
  const bool reference = op.kernels() == Kernels::kReference;
  if (op.code() == BuiltinOperator::kDepthwiseConv2d) return {"asymmetric", reference ? "scales" : "fours"};
  if (!reference && op.input(1).type == TensorType::kInt8) return {"xnnpack", "fused"};
  if (op.input(1).quantisation.scales.size() == 1) return {"symmetric", "scales"};
  return {"asymmetric", reference || group > 1 ? "weights" : "scales"};
}

/// Of a dense layer: XNNPACK has it, but not for an odd number of weights of 4 bits.
HybridKernel hybrid_kernel_of_product(Op& op, int64_t depth) {
  const bool fits = op.input(1).type == TensorType::kInt8 || depth % 2 == 0;
  if (op.kernels() == Kernels::kXnnpack && fits) return {"xnnpack", "fused"};
  return {op.option(FullyConnectedOptions::asymmetric_quantize_inputs) ? "asymmetric" : "symmetric", "scales"};
}

Rows quantised_rows(Op& op, const Value& x, int64_t axis, const HybridKernel& kernel) {
  const Values made = op.nodes("DynamicQuantize", {x}, {{"axis", axis}, {"kernel", kernel.rows}}, 3, kDomain);
  return {made[0], made[1], made[2]};
}

/// Sums of such rows as floats, with the bias. `zeros`: those of the rows, where the sums still have their part.
Value scaled_rows(Op& op, const Value& sums, const Rows& rows, const HybridKernel& kernel,
                  const std::vector<int64_t>& weight_sums, int64_t channel_axis) {
  Values operands = {sums, rows.scales, weight_sums.empty() ? Value() : rows.zeros};
  if (op.has(2)) operands.push_back(op.real(2));
  return op.node("DynamicScale", operands,
                 {{"channel_axis", channel_axis},
                  {"order", kernel.order},
                  {"w_scales", op.input(1).quantisation.scales},
                  {"w_sums", weight_sums}},
                 kDomain);
}

Value hybrid_convolution(Op& op, const std::vector<int64_t>& perm, const Attributes& attributes,
                         const HybridKernel& kernel) {
  const Rows rows = quantised_rows(op, op.channels_first(op.real(0)), 1, kernel);
  // One image has one zero point, which the product subtracts; in several images each has its own.
  if (op.input(0).shape[0] == 1) {
    const Value zero = op.reshape(rows.zeros, {});
    return scaled_rows(op, op.node("ConvInteger", {rows.bytes, weights(op, perm), zero}, attributes), rows, kernel, {},
                       1);
  }
  const Value zeros = op.reshape(op.cast(rows.zeros, DType::kDouble), {-1, 1, 1, 1});
  const Value steps = op.node("Sub", {op.cast(rows.bytes, DType::kDouble), zeros});
  const Value sums = op.node("Conv", {steps, op.cast(weights(op, perm), DType::kDouble)}, attributes);
  return scaled_rows(op, sums, rows, kernel, {}, 1);
}

/// The product of the rows along the last axis, `axis`, of x by the weights [out, ..., in].
Value hybrid_product(Op& op, const Value& x, const HybridKernel& kernel, int64_t axis) {
  const ops::Tensor stored = widened(*op.content(1));
  const int64_t in = stored.shape().back(), out = stored.shape().front();
  const ops::Tensor w = permuted(stored.reshaped({out, in}), {1, 0});
  const Rows rows = quantised_rows(op, x, axis, kernel);
  std::vector<int64_t> sums(static_cast<size_t>(kernel.has_zeros() ? out : 0));
  for (int64_t i = 0; kernel.has_zeros() && i < in * out; ++i)
    sums[static_cast<size_t>(i % out)] += w.as<int8_t>()[static_cast<size_t>(i)];
  return scaled_rows(op, op.node("MatMulInteger", {rows.bytes, op.constant(w)}), rows, kernel, sums, axis);
}

/// Whether a convolution is a dense layer of each pixel, as which XNNPACK computes it: each pixel is a row then.
bool is_dense(Op& op, const Window& window, int64_t group) {
  const ops::Shape& w = op.input(1).shape;
  return w[1] == 1 && w[2] == 1 && window.stride_h == 1 && window.stride_w == 1 && group == 1;
}

/// A convolution of `group` groups whose weights have the axes of `perm` in the file's order.
void convert_convolution(Op& op, const Window& window, int64_t group, const std::vector<int64_t>& perm,
                         Activation activation) {
  Attributes attributes = window.attributes();
  attributes["group"] = group;
  const TensorInfo &x = op.input(0), &w = op.input(1), &y = op.output();
  if (computes_on_integers(op)) {
    const Value image = op.channels_first(op.value(0));
    if (xnnpack_takes(op)) {
      Values operands = {image,       op.scale(x),     op.zero_point(x), weights(op, perm),
                         op.scale(w), weight_zero(op), op.scale(y),      op.zero_point(y)};
      if (op.has(2)) operands.push_back(op.value(2));
      return op.give(0, op.limited(op.channels_last(op.node("QLinearConv", operands, attributes)), activation));
    }
    const Value sums =
        x.type == TensorType::kInt16
            ? op.node("Conv", {exact(op, image, x), op.cast(weights(op, perm), DType::kDouble)}, attributes)
            : op.node("ConvInteger", {image, weights(op, perm), op.zero_point(x), weight_zero(op)}, attributes);
    return op.give(0, op.channels_last(requantised(op, sums, 1, activation)));
  }
  if (x.is_quantised()) op.refuse("this combination of element types is not supported");
  if (is_hybrid(op)) {
    const HybridKernel kernel = hybrid_kernel_of_convolution(op, group);
    const Value result = is_dense(op, window, group) && kernel.rows == "xnnpack"
                             ? hybrid_product(op, op.real(0), kernel, 3)
                             : op.channels_last(hybrid_convolution(op, perm, attributes, kernel));
    return op.give(0, op.activate(result, activation));
  }
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
  if (op.input(0).shape.empty()) op.refuse("the operand must have an axis", ErrorCode::kInvalidModel);
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
  const TensorInfo &x = op.input(0), &w = op.input(1), &y = op.output();
  if (computes_on_integers(op)) {
    const Value matrix = rows(op.value(0));
    if (xnnpack_takes(op) && op.input(1).is_constant) {
      const Value product = op.node("QGemm",
                                    {matrix, op.scale(x), op.zero_point(x), weights(op, {1, 0}), op.scale(w),
                                     weight_zero(op), op.value(2), op.scale(y), op.zero_point(y)},
                                    {}, kMicrosoft);
      return op.give(0, op.limited(finish(product), activation));
    }
    const Value sums = x.type == TensorType::kInt16
                           ? op.node("MatMul", {exact(op, matrix, x), op.cast(weights(op, {1, 0}), DType::kDouble)})
                           : op.node("MatMulInteger", {matrix, weights(op, {1, 0}), op.zero_point(x), weight_zero(op)});
    return op.give(0, finish(requantised(op, sums, 1, activation)));
  }
  if (x.is_quantised()) op.refuse("this combination of element types is not supported");
  if (is_hybrid(op)) {
    const Value product = hybrid_product(op, rows(op.real(0)), hybrid_kernel_of_product(op, in), 1);
    return op.give(0, op.activate(finish(product), activation));
  }
  Value product = op.node("MatMul", {rows(op.real(0)), real_weights(op, {1, 0})});
  if (op.has(2)) product = op.node("Add", {product, op.real(2)});
  op.give_real(0, op.activate(finish(product), activation));
}

/// The pads of a transposed convolution, before and behind, of one axis: what the full result is longer than the wanted
/// one, SAME padding as the convolution has it that goes the other way.
std::pair<int64_t, int64_t> transposed_pads(Op& op, int64_t in, int64_t out, int64_t kernel, int64_t stride,
                                            Padding padding) {
  const int64_t expected = padding == Padding::kSame ? (out + stride - 1) / stride : (out - kernel + stride) / stride;
  if (expected != in) op.refuse("its result does not have the shape that it asks for", ErrorCode::kInvalidModel);
  const int64_t total = std::max<int64_t>(0, (in - 1) * stride + kernel - out);
  return padding == Padding::kSame ? std::pair{total / 2, total - total / 2} : std::pair<int64_t, int64_t>{0, 0};
}

/// MediaPipe's Convolution2DTransposeBias in float: x, weights [out, h, w, in], bias; the options are three int32:
/// padding (1 is SAME, 2 VALID), the stride along a row, the stride along a column.
void convert_transpose_bias(Op& op) {
  if (op.info().custom_options.size() < 12) op.refuse("its options are cut off", ErrorCode::kInvalidModel);
  const auto option = [&](uint64_t i) { return int64_t{load<int32_t>(op.info().custom_options, 4 * i)}; };
  const int64_t strides[] = {option(2), option(1)};
  if (op.input(0).is_quantised() || strides[0] < 1 || strides[1] < 1 || op.output().shape.size() != 4)
    op.refuse("it is supported in float, of images");
  std::vector<int64_t> pads(4), more(2);
  for (size_t d = 0; d < 2; ++d) {
    const int64_t in = extent(op, 0, d + 1), kernel = extent(op, 1, d + 1);
    const int64_t out = option(0) == 1 ? in * strides[d] : (in - 1) * strides[d] + kernel;
    const int64_t spare = (in - 1) * strides[d] + kernel - out;
    pads[d] = std::max<int64_t>(spare, 0) / 2;
    pads[d + 2] = std::max<int64_t>(spare, 0) - pads[d];
    more[d] = std::max<int64_t>(-spare, 0);
  }
  op.give_real(
      0, op.channels_last(op.node(
             "ConvTranspose", {op.channels_first(op.real(0)), real_weights(op, {3, 0, 1, 2}), op.real(2)},
             {{"strides", std::vector<int64_t>{strides[0], strides[1]}}, {"pads", pads}, {"output_padding", more}})));
}

/// Operands: the result's shape, weights [out, h, w, in], x, perhaps a bias.
void convert_transpose_conv(Op& op) {
  using O = TransposeConvOptions;
  const auto activation = static_cast<Activation>(op.option(O::fused_activation_function));
  const auto padding = static_cast<Padding>(op.option(O::padding));
  const TensorInfo &x = op.input(2), &y = op.output();
  const int64_t strides[] = {op.option(O::stride_h), op.option(O::stride_w)};
  const std::vector<int64_t> shape = op.integers(0, "the result's shape");
  if (shape.size() != 4 || strides[0] < 1 || strides[1] < 1)
    op.refuse("its shapes are wrong", ErrorCode::kInvalidModel);
  std::vector<int64_t> pads(4), more(2);
  for (size_t d = 0; d < 2; ++d) {
    const int64_t in = extent(op, 2, d + 1), kernel = extent(op, 1, d + 1);
    std::tie(pads[d], pads[d + 2]) = transposed_pads(op, in, shape[d + 1], kernel, strides[d], padding);
    more[d] = shape[d + 1] - ((in - 1) * strides[d] + kernel - pads[d] - pads[d + 2]);
    if (more[d] < 0 || more[d] >= strides[d]) {
      pads[d + 2] -= more[d];
      more[d] = 0;
    }
  }
  const Attributes attributes = {
      {"strides", std::vector<int64_t>{strides[0], strides[1]}}, {"pads", pads}, {"output_padding", more}};
  if (computes_on_integers(op, 2)) {
    const Value image = op.channels_first(op.value(2)), turned = weights(op, {3, 0, 1, 2});
    Attributes integers = attributes;
    integers["x_zero_point"] = x.quantisation.zero();
    integers["w_zero_point"] = op.input(1).quantisation.zero();
    const Value sums = x.type == TensorType::kInt16
                           ? op.node("ConvTranspose", {exact(op, image, x), exact(op, turned, op.input(1))}, attributes)
                           : op.node("ConvTransposeInteger", {image, turned}, integers, kDomain);
    return op.give(0, op.channels_last(requantised(op, sums, 1, activation, 2, 3)));
  }
  if (x.is_quantised() || y.is_quantised()) op.refuse("this combination of element types is not supported");
  Values operands = {op.channels_first(op.real(2)), real_weights(op, {3, 0, 1, 2})};
  if (op.has(3)) operands.push_back(op.real(3));
  op.give_real(0, op.activate(op.channels_last(op.node("ConvTranspose", operands, attributes)), activation));
}

void convert_batch_matmul(Op& op) {
  using O = BatchMatMulOptions;
  const TensorInfo &a = op.input(0), &b = op.input(1), &y = op.output();
  const auto adjoint = [&](const Value& value, const TensorInfo& tensor, bool turned) {
    if (!turned) return value;
    std::vector<int64_t> perm(tensor.shape.size());
    for (size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<int64_t>(i);
    if (perm.size() < 2) op.refuse("an operand has fewer than two axes", ErrorCode::kInvalidModel);
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    return op.transpose(value, perm);
  };
  const bool adj_x = op.option(O::adj_x), adj_y = op.option(O::adj_y);
  if (computes_on_integers(op) && b.quantisation.per_tensor()) {
    const Value left = adjoint(op.value(0), a, adj_x), right = adjoint(op.value(1), b, adj_y);
    if (xnnpack_takes(op))
      return op.give(0, op.node("QLinearMatMul", {left, op.scale(a), op.zero_point(a), right, op.scale(b),
                                                  op.zero_point(b), op.scale(y), op.zero_point(y)}));
    const Value sums = a.type == TensorType::kInt16
                           ? op.node("MatMul", {exact(op, left, a), exact(op, right, b)})
                           : op.node("MatMulInteger", {left, right, op.zero_point(a), op.zero_point(b)});
    return op.give(0, requantised(op, sums, -1, Activation::kNone, 0, 9));
  }
  if (a.is_quantised()) op.refuse("this combination of element types is not supported");
  op.give_real(0, op.node("MatMul", {adjoint(op.real(0), a, adj_x), adjoint(op.real(1), b, adj_y)}));
}

}  // namespace

void register_product(Conversions& conversions) {
  conversions.add(BuiltinOperator::kConv2d, convert_conv_2d);
  conversions.add(BuiltinOperator::kDepthwiseConv2d, convert_depthwise_conv_2d);
  conversions.add(BuiltinOperator::kFullyConnected, convert_fully_connected);
  conversions.add(BuiltinOperator::kTransposeConv, convert_transpose_conv);
  conversions.add("Convolution2DTransposeBias", convert_transpose_bias);
  conversions.add(BuiltinOperator::kBatchMatmul, convert_batch_matmul);
}

}  // namespace tessera::litert
