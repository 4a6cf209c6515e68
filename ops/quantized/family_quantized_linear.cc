// SPDX-License-Identifier: Apache-2.0
// Quantised products: QLinearConv, QLinearMatMul, QGemm, MatMulIntegerToFloat, DynamicQuantizeMatMul. In: 8-bit tensors
// with scales and zero points (per tensor, weights also per channel or column) and an int32 bias; out: 8-bit or fp32.
// Sums are int32 and wrap; the sum is converted to fp32 once and multiplied by one fp32 factor, whose own rounding
// order differs between the operators.
#include <optional>

#include "ops/expansion.h"
#include "ops/kernels/convolution.h"
#include "ops/kernels/product.h"
#include "ops/quantized/quantized_math.h"

namespace tessera::ops {

namespace {

using namespace quantized;

/// Throws unless input i is absent, one element, or `count` elements in a vector.
void expect_channels(const InferContext& context, size_t i, int64_t count, const char* what) {
  if (!context.has(i) || !context.input(i).is_static()) return;
  const Shape& shape = context.input(i).shape;
  const int64_t size = element_count(shape);
  if (size == 1 || count < 0 || (size == count && shape.size() == 1)) return;
  context.node.fail(ErrorCode::kInvalidModel, std::string(what) + " has shape " + to_string(shape) +
                                                  "; one element or a vector of " + std::to_string(count) +
                                                  " is possible");
}

/// A bias is not repeated: it has an element for each output channel.
void expect_bias(const InferContext& context, size_t i, int64_t count) {
  if (!context.has(i) || !context.input(i).is_static() || count < 0) return;
  if (element_count(context.input(i).shape) == count) return;
  context.node.fail(ErrorCode::kInvalidModel, "B has shape " + to_string(context.input(i).shape) +
                                                  "; it must hold one int32 for each of the " + std::to_string(count) +
                                                  " output channels");
}

// --- QLinearConv
// ---------------------------------------------------------------------------------------------------------------

void infer_conv(InferContext& context) {
  const Node& node = context.node;
  expect_dtype(context, 0, kBytes, "x");
  expect_dtype(context, 3, kBytes, "w");
  expect_parameters(context, 1, bytes_as(context, 0));
  expect_dtype(context, 4, {DType::kFloat}, "w_scale");
  expect_dtype(context, 5, bytes_as(context, 3), "w_zero_point");
  expect_parameters(context, 6, kBytes);
  expect_dtype(context, 8, {DType::kInt32}, "B");
  const TypeInfo& w = context.input(3);
  const std::vector<TypeInfo> operands = {context.input(0), w};
  context.outputs[0] =
      infer_convolution(InferContext{node, operands, context.outputs}, context.input(7).dtype, operands.size());
  if (!w.ranked) return;
  for (size_t i : {4u, 5u}) expect_channels(context, i, w.shape[0], "a scale or zero point of the output channels");
  expect_bias(context, 8, w.shape[0]);
}

/// Input i, which may be absent.
const Tensor* optional_input(const EvalContext& context, size_t i) {
  return context.has(i) ? &context.input(i) : nullptr;
}

void evaluate_conv(EvalContext& context) {
  const Tensor &x = context.input(0), &w = context.input(3);
  const int64_t filters = w.shape()[0];
  const DType dtype = context.input(7).dtype();
  const Parameters of_x(context, 1, x.dtype()), of_y(context, 6, dtype);
  Shape each(w.shape().size(), 1);
  each[0] = filters;
  Tensor bias;
  if (context.has(8)) bias = context.input(8).reshaped({filters});
  Tensor sums = convolve(context.node, without_zero(x, optional_input(context, 2), {}),
                         without_zero(w, optional_input(context, 5), each), context.has(8) ? &bias : nullptr);
  const std::vector<float> w_scale = channel_scales(context, 4, filters, "w_scale");
  const int64_t plane = kernel::product(sums.shape(), 2, sums.shape().size());
  const Range range = range_of(dtype);
  int32_t* y = kernel::mutable_elements<int32_t>(sums);
  for (int64_t row = 0; plane > 0 && row < sums.size() / plane; ++row) {
    const float multiplier = of_x.scale * w_scale[static_cast<size_t>(row % filters)] / of_y.scale;
    for (int64_t i = 0; i < plane; ++i, ++y) *y = requantize(*y, multiplier, of_y.zero, range);
  }
  context.outputs[0] = from_int32s(dtype, sums.shape(), sums.as<int32_t>());
}

// --- matrix products
// -----------------------------------------------------------------------------------------------------------

/// The shape of an operand as a matrix [.., m, k], or [.., k, n]: a vector gets a unit axis.
Shape as_matrix(Shape shape, bool left) {
  if (shape.size() == 1) shape.insert(left ? shape.begin() : shape.end(), 1);
  return shape;
}

/// The shape in which a scale or zero point broadcasts to a matrix operand. It has one element, or is a vector along
/// the operand's outer matrix axis, the last or the last but one, or has the operand's shape with extent 1 along the
/// other.
Shape parameter_shape(const Node& node, const Shape& parameter, const Shape& matrix, bool columns, const char* what) {
  const int64_t outer = columns ? matrix.back() : matrix[matrix.size() - 2];
  if (element_count(parameter) == 1) return {};
  Shape wanted = matrix;
  wanted[matrix.size() - (columns ? 2 : 1)] = 1;
  if (parameter == wanted) return wanted;
  if (parameter.size() == 1 && parameter[0] == outer) return columns ? Shape{outer} : Shape{outer, 1};
  node.fail(ErrorCode::kInvalidModel, std::string(what) + " has shape " + to_string(parameter) + "; for an operand " +
                                          to_string(matrix) + " one element, " + std::to_string(outer) +
                                          " elements or " + to_string(wanted) + " are possible");
}

/// The parameter at input i in that shape.
Tensor matrix_parameter(const EvalContext& context, size_t i, const Shape& matrix, bool columns, const char* what) {
  const Tensor& given = context.input(i);
  return given.reshaped(parameter_shape(context.node, given.shape(), matrix, columns, what));
}

/// Shape of the product of inputs a and b.
Shape product_shape(const EvalContext& context, size_t a, size_t b) {
  const auto type = [&](size_t i) { return TypeInfo::tensor(DType::kInt32, context.input(i).shape()); };
  return infer_product(context.node, type(a), type(b), DType::kInt32).shape;
}

/// f of two float32 tensors, broadcast.
template <typename F>
Tensor combine(const Node& node, const Tensor& a, const Tensor& b, F f) {
  Tensor y(DType::kFloat, broadcast_shapes(node, {a.shape(), b.shape()}));
  kernel::binary_loop(y.shape(), a.shape(), b.shape(), kernel::elements<float>(a), kernel::elements<float>(b),
                      kernel::mutable_elements<float>(y), f);
  return y;
}

/// `x` repeated to `shape`.
Tensor repeated(const Tensor& x, const Shape& shape) {
  return kernel::gather_strided(x, shape, 0, broadcast_strides(x.shape(), shape));
}

void infer_qlinear_matmul(InferContext& context) {
  expect_dtype(context, 0, kBytes, "a");
  expect_dtype(context, 3, kBytes, "b");
  for (size_t i : {1u, 4u, 6u}) expect_dtype(context, i, {DType::kFloat}, "a scale");
  expect_dtype(context, 2, bytes_as(context, 0), "a_zero_point");
  expect_dtype(context, 5, bytes_as(context, 3), "b_zero_point");
  expect_dtype(context, 7, kBytes, "y_zero_point");
  const TypeInfo &a = context.input(0), &b = context.input(3);
  context.outputs[0] = infer_product(context.node, a, b, context.input(7).dtype);
  if (!a.is_static() || !b.is_static()) return;
  TypeInfo left = a, right = b;
  left.shape = as_matrix(a.shape, true), right.shape = as_matrix(b.shape, false);
  const Shape full = infer_product(context.node, left, right, DType::kInt32).shape;
  const auto expect = [&](size_t i, const Shape& matrix, bool columns, const char* what) {
    const TypeInfo& parameter = context.input(i);
    if (parameter.is_static()) parameter_shape(context.node, parameter.shape, matrix, columns, what);
  };
  expect(1, left.shape, false, "a_scale"), expect(2, left.shape, false, "a_zero_point");
  expect(4, right.shape, true, "b_scale"), expect(5, right.shape, true, "b_zero_point");
  expect(6, full, false, "y_scale"), expect(7, full, false, "y_zero_point");
}

void evaluate_qlinear_matmul(EvalContext& context) {
  const Node& node = context.node;
  const Tensor a = context.input(0).reshaped(as_matrix(context.input(0).shape(), true)),
               b = context.input(3).reshaped(as_matrix(context.input(3).shape(), false));
  const Tensor a_zero = matrix_parameter(context, 2, a.shape(), false, "a_zero_point"),
               b_zero = matrix_parameter(context, 5, b.shape(), true, "b_zero_point");
  Tensor sums =
      matrix_product(node, without_zero(a, &a_zero, a_zero.shape()), without_zero(b, &b_zero, b_zero.shape()));
  const Shape& full = sums.shape();
  const Tensor scales = combine(node, matrix_parameter(context, 1, a.shape(), false, "a_scale"),
                                matrix_parameter(context, 4, b.shape(), true, "b_scale"), std::multiplies<>());
  const Tensor multipliers =
      repeated(combine(node, scales, matrix_parameter(context, 6, full, false, "y_scale"), std::divides<>()), full);
  const DType dtype = context.input(7).dtype();
  const std::vector<int32_t> zeros =
      to_int32s(repeated(matrix_parameter(context, 7, full, false, "y_zero_point"), full));
  const Range range = range_of(dtype);
  const auto out = sums.as_mutable<int32_t>();
  for (size_t i = 0; i < out.size(); ++i) out[i] = requantize(out[i], multipliers.as<float>()[i], zeros[i], range);
  context.outputs[0] = from_int32s(dtype, product_shape(context, 0, 3), out);
}

// --- QGemm
// ---------------------------------------------------------------------------------------------------------------------

void infer_gemm(InferContext& context) {
  const Node& node = context.node;
  expect_dtype(context, 0, kBytes, "A");
  expect_dtype(context, 3, kBytes, "B");
  expect_parameters(context, 1, bytes_as(context, 0));
  expect_dtype(context, 4, {DType::kFloat}, "b_scale");
  expect_dtype(context, 5, bytes_as(context, 3), "b_zero_point");
  expect_dtype(context, 6, {DType::kInt32}, "C");
  expect_parameters(context, 7, kBytes);
  if (context.has(7) != context.has(8)) node.fail(ErrorCode::kInvalidModel, "y_scale and y_zero_point go together");
  std::vector<TypeInfo> operands;
  for (size_t i : {0u, 3u, 6u})
    operands.push_back(context.has(i) ? kernel::without_constant(context.input(i), DType::kInt32) : TypeInfo::absent());
  const Shape shape = infer_general_product(InferContext{node, operands, context.outputs}).shape;
  for (size_t i : {4u, 5u}) expect_channels(context, i, shape[1], "a scale or zero point of B");
  context.outputs[0] = TypeInfo::tensor(context.has(8) ? context.input(8).dtype : DType::kFloat, shape);
}

void evaluate_gemm(EvalContext& context) {
  const Tensor &a = context.input(0), &b = context.input(3);
  const bool transposed = context.node.get_int("transB", 0) != 0;
  const int64_t n = b.shape()[transposed ? 0 : 1];
  Node plain = context.node;
  plain.attributes.erase("alpha");
  Tensor product = general_product(plain, without_zero(a, optional_input(context, 2), {}),
                                   without_zero(b, optional_input(context, 5), transposed ? Shape{n, 1} : Shape{n}),
                                   optional_input(context, 6));
  const float alpha = context.node.get_float("alpha", 1.0f), a_scale = scalar_scale(context, 1, "a_scale");
  const bool quantises = context.has(8);
  const float y_scale = quantises ? scalar_scale(context, 7, "y_scale") : 1.0f;
  std::vector<float> multiplier = channel_scales(context, 4, n, "b_scale");
  for (float& m : multiplier) {
    m = alpha * a_scale * m;
    if (quantises) m = m / y_scale;
  }
  const auto sums = product.as_mutable<int32_t>();
  if (!quantises) {
    Tensor y(DType::kFloat, product.shape());
    auto out = y.as_mutable<float>();
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>(sums[i]) * multiplier[i % static_cast<size_t>(n)];
    context.outputs[0] = std::move(y);
    return;
  }
  const DType dtype = context.input(8).dtype();
  const int32_t y_zero = scalar_zero(context, 8, dtype, "y_zero_point");
  const Range range = range_of(dtype);
  for (size_t i = 0; i < sums.size(); ++i)
    sums[i] = requantize(sums[i], multiplier[i % static_cast<size_t>(n)], y_zero, range);
  context.outputs[0] = from_int32s(dtype, product.shape(), sums);
}

// --- products with an fp32 result
// ----------------------------------------------------------------------------------------------

/// float(sum) * (a_scale * b_scale[n]) (+ bias[n]), each rounded once.
std::optional<Expansion> scaled(Expander& e, const std::vector<TypeInfo>& inputs, const Expander::Operand& sum,
                                const Expander::Operand& a_scale, const Expander::Operand& b_scale,
                                const Expander::Operand& bias) {
  if (!inputs[0].ranked || !inputs[1].ranked) return std::nullopt;
  const Expander::Operand real = e.cast(sum, DType::kFloat);
  Expander::Operand y = e.step("Mul", {real, e.step("Mul", {a_scale, b_scale})});
  if (bias.kind != Expander::Operand::Kind::kNone) y = e.step("Add", {y, bias});
  if (inputs[0].shape.size() + inputs[1].shape.size() == 2)  // of two vectors: no scale adds an axis
    y = e.step("Reshape", {y, Expander::integers({})});
  return e.finish({y});
}

/// Inputs: A, B, scale of A, of B, zero points of both, bias.
std::optional<Expansion> expand_integer_to_float(const Node& node, const std::vector<TypeInfo>& inputs) {
  Expander e(node, inputs, 14);
  const auto sum = e.steps("MatMulInteger", {e.input(0), e.input(1), e.input(4), e.input(5)}, {}, 1, "", 10)[0];
  return scaled(e, inputs, sum, e.input(2), e.input(3), e.input(6));
}

/// Inputs: A, B, scale and zero point of B, bias.
std::optional<Expansion> expand_dynamic_matmul(const Node& node, const std::vector<TypeInfo>& inputs) {
  Expander e(node, inputs, 14);
  const auto a = e.steps("DynamicQuantizeLinear", {e.input(0)}, {}, 3, "", 11);
  const auto sum = e.steps("MatMulInteger", {a[0], e.input(1), a[2], e.input(3)}, {}, 1, "", 10)[0];
  return scaled(e, inputs, sum, a[1], e.input(2), e.input(4));
}

void infer_unknown_float(InferContext& context) { context.outputs[0] = TypeInfo::unranked(DType::kFloat); }

/// From opset 21 on scales may be of 16 bits; each is widened, which is exact.
std::optional<Expansion> expand_linear_matmul_21(const Node& node, const std::vector<TypeInfo>& inputs) {
  Expander e(node, inputs, 13);
  std::vector<Expander::Operand> operands = e.inputs();
  for (const size_t i : {1, 4, 6}) {
    if (i >= inputs.size() || !inputs[i].present)
      node.fail(ErrorCode::kInvalidModel, "input " + std::to_string(i) + " is missing");
    if (inputs[i].dtype == DType::kFloat16 || inputs[i].dtype == DType::kBfloat16)
      operands[i] = e.cast(operands[i], DType::kFloat);
  }
  return e.finish(e.steps("QLinearMatMul", std::move(operands), {}, 1, "", 10));
}

}  // namespace

void register_quantized_linear(Registry& registry) {
  const std::string ms = "com.microsoft";
  const std::set<std::string> conv = {"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"};
  add_expansion(registry, "QLinearMatMul", 21, {8, 8}, expand_linear_matmul_21);
  kernel::add_operator(registry, "", "QLinearConv", 10, {8, 9}, infer_conv, evaluate_conv, conv);
  kernel::add_operator(registry, "", "QLinearMatMul", 10, {8, 8}, infer_qlinear_matmul, evaluate_qlinear_matmul);
  kernel::add_operator(registry, ms, "QGemm", 1, {6, 9}, infer_gemm, evaluate_gemm, {"alpha", "transA", "transB"});
  add_expansion(registry, "MatMulIntegerToFloat", 1, {4, 7}, expand_integer_to_float, {}, kernel::kOne, ms.c_str(),
                infer_unknown_float);
  add_expansion(registry, "DynamicQuantizeMatMul", 1, {3, 5}, expand_dynamic_matmul, {}, kernel::kOne, ms.c_str(),
                infer_unknown_float);
}

}  // namespace tessera::ops
