// SPDX-License-Identifier: Apache-2.0
// Quantised operators of domain com.microsoft that work element by element: QLinearAdd, QLinearMul, QLinearWhere,
// QLinearConcat, QLinearLeakyRelu, QLinearSigmoid, QLinearSoftmax; and ai.tessera's FixedShiftSoftmax. In and out:
// 8-bit tensors with fp32 scales and zero points of the same type. The binary ones follow the vector kernels of the CPU
// oracle to the bit (zero point before rounding, fused multiply-add, the order that a broadcast operand causes); the
// unary ones are tables over the 256 inputs.
#include <cmath>
#include <limits>

#include "ops/quantized/quantized_math.h"

namespace tessera::ops {

namespace {

using namespace quantized;

int32_t saturate(int32_t value, Range range) { return std::min(std::max(value, range.low), range.high); }

// --- QLinearAdd, QLinearMul
// ----------------------------------------------------------------------------------------------------

void infer_binary(InferContext& context) {
  expect_dtype(context, 0, kBytes, "A");
  const std::vector<DType> same = bytes_as(context, 0);
  expect_dtype(context, 3, same, "B");
  for (size_t i : {1u, 4u, 6u}) expect_parameters(context, i, same);
  context.outputs[0] = broadcast_types(context.node, context.input(0).dtype, {&context.input(0), &context.input(3)});
}

/// f(a, b) of the broadcast bytes of inputs 0 and 3, saturated.
template <typename F>
void map_pairs(EvalContext& context, F&& f) {
  const Tensor &a = context.input(0), &b = context.input(3);
  Tensor y(a.dtype(), broadcast_shapes(context.node, {a.shape(), b.shape()}));
  const Range range = range_of(a.dtype());
  visit_bytes(a.dtype(), [&]<typename T>(kernel::Tag<T>) {
    kernel::binary_loop(y.shape(), a.shape(), b.shape(), kernel::elements<T>(a), kernel::elements<T>(b),
                        kernel::mutable_elements<T>(y),
                        [&](T p, T q) { return static_cast<T>(saturate(f(int32_t{p}, int32_t{q}), range)); });
  });
  context.outputs[0] = std::move(y);
}

/// First the term of `second`, then that of `first`, each by a fused multiply-add on the constant part.
void evaluate_add(EvalContext& context) {
  const DType dtype = context.input(0).dtype();
  const Parameters a(context, 1, dtype), b(context, 4, dtype), c(context, 6, dtype);
  const bool swapped = first_is_scalar(context.input(0).shape(), context.input(3).shape());
  const Parameters &first = swapped ? b : a, &second = swapped ? a : b;
  const float first_ratio = first.scale / c.scale, second_ratio = second.scale / c.scale;
  const float zeros =
      std::fma(first_ratio, static_cast<float>(first.zero), second_ratio * static_cast<float>(second.zero));
  const float fixed = static_cast<float>(c.zero) - zeros;
  map_pairs(context, [=](int32_t x, int32_t y) {
    if (swapped) std::swap(x, y);
    return round_to_int32(
        std::fma(static_cast<float>(x), first_ratio, std::fma(static_cast<float>(y), second_ratio, fixed)));
  });
}

void evaluate_mul(EvalContext& context) {
  const DType dtype = context.input(0).dtype();
  const Parameters a(context, 1, dtype), b(context, 4, dtype), c(context, 6, dtype);
  const float multiplier = a.scale * b.scale / c.scale;
  map_pairs(context, [&, zero = static_cast<float>(c.zero)](int32_t x, int32_t y) {
    const float product = static_cast<float>((x - a.zero) * (y - b.zero)) * multiplier;
    return round_to_int32(product + zero);
  });
}

// --- tables
// --------------------------------------------------------------------------------------------------------------------

void infer_unary(InferContext& context) {
  expect_dtype(context, 0, kBytes, "X");
  for (size_t i : {1u, 3u}) expect_parameters(context, i, bytes_as(context, 0));
  context.outputs[0] = same_shape(context.input(0), context.input(0).dtype);
}

void evaluate_unary(EvalContext& context, const std::function<float(float)>& f) {
  const Tensor& x = context.input(0);
  const Parameters from(context, 1, x.dtype()), to(context, 3, x.dtype());
  context.outputs[0] = apply_table(x, build_table(x.dtype(), from.scale, from.zero, to.scale, to.zero, f));
}

void evaluate_leaky_relu(EvalContext& context) {
  const float alpha = context.node.get_float("alpha", 0.01f);
  evaluate_unary(context, [alpha](float v) { return v >= 0.0f ? v : alpha * v; });
}

void evaluate_sigmoid(EvalContext& context) { evaluate_unary(context, logistic); }

/// Requantises `x` unless its parameters are those of the result.
Tensor to_result_scale(const Tensor& x, const Parameters& from, const Parameters& to) {
  if (from.scale == to.scale && from.zero == to.zero) return x;
  return apply_table(x, build_table(x.dtype(), from.scale, from.zero, to.scale, to.zero, [](float v) { return v; }));
}

/// The standard's operator on the tensors alone: Concat of every third operand, Where.
Node standard(const Node& node, const char* op_type) {
  Node inner = node;
  inner.domain = "";
  inner.op_type = op_type;
  inner.version = 16;
  return inner;
}

void infer_quantised_concat(InferContext& context) {
  const Node& node = context.node;
  if ((context.inputs.size() - 2) % 3 != 0)
    node.fail(ErrorCode::kInvalidModel, "inputs must be Y_scale, Y_zero_point and triples (tensor, scale, zero point)");
  expect_parameters(context, 0, kBytes);
  const std::vector<DType> same = bytes_as(context, 1);
  std::vector<TypeInfo> tensors;
  for (size_t i = 2; i < context.inputs.size(); i += 3) {
    expect_dtype(context, i, same, "an input tensor");
    expect_parameters(context, i + 1, same);
    tensors.push_back(kernel::without_constant(context.input(i), context.input(1).dtype));
  }
  context.outputs[0] = infer(standard(node, "Concat"), tensors)[0];
}

void evaluate_quantised_concat(EvalContext& context) {
  const DType dtype = context.input(1).dtype();
  const Parameters to(context, 0, dtype);
  std::vector<Value> parts;
  for (size_t i = 2; i < context.inputs.size(); i += 3)
    parts.emplace_back(to_result_scale(context.input(i), Parameters(context, i + 1, dtype), to));
  context.outputs[0] = evaluate(standard(context.node, "Concat"), parts)[0];
}

void infer_where(InferContext& context) {
  expect_dtype(context, 0, {DType::kBool}, "condition");
  expect_dtype(context, 1, kBytes, "X");
  const std::vector<DType> same = bytes_as(context, 1);
  expect_dtype(context, 4, same, "Y");
  for (size_t i : {2u, 5u, 7u}) expect_parameters(context, i, same);
  context.outputs[0] =
      broadcast_types(context.node, context.input(1).dtype, {&context.input(0), &context.input(1), &context.input(4)});
}

void evaluate_where(EvalContext& context) {
  const Tensor &x = context.input(1), &y = context.input(4);
  const Parameters to(context, 7, x.dtype());
  context.outputs[0] = evaluate(standard(context.node, "Where"),
                                {context.input(0), to_result_scale(x, Parameters(context, 2, x.dtype()), to),
                                 to_result_scale(y, Parameters(context, 5, x.dtype()), to)})[0];
}

// --- QLinearSoftmax
// ------------------------------------------------------------------------------------------------------------

int64_t softmax_axis(const Node& node, int64_t rank) { return normalise_axis(node, node.get_int("axis", -1), rank); }

/// exp over the 256 distances from the row's maximum or another byte that is no less, scaled up so far that the sum of
/// a row of `length` still fits a float, times 2^-24, which changes no quotient and leaves room for the steps of the
/// result. Entry d belongs to distance 255 - d.
std::array<float, 256> exponent_table(float x_scale, int64_t length) {
  const float room = std::log(std::numeric_limits<float>::max() / static_cast<float>(length));
  const double shift = std::max(0.0, static_cast<double>(room) - 5.0) / static_cast<double>(x_scale);
  std::array<float, 256> table{};
  for (int i = 0; i < 256; ++i)
    table[static_cast<size_t>(i)] =
        static_cast<float>(std::exp((static_cast<double>(i) - 255.0 + shift) * static_cast<double>(x_scale))) *
        0x1p-24f;
  return table;
}

void infer_softmax(InferContext& context) {
  infer_unary(context);
  const TypeInfo& x = context.input(0);
  if (x.ranked) softmax_axis(context.node, static_cast<int64_t>(x.shape.size()));
}

/// fixed_shift: distances are those from the highest byte, not from the row's maximum.
template <bool fixed_shift>
void evaluate_softmax(EvalContext& context) {
  const Node& node = context.node;
  const Tensor& x = context.input(0);
  const DType dtype = x.dtype();
  const Range range = range_of(dtype);
  const auto axis = static_cast<size_t>(softmax_axis(node, x.rank()));
  const bool flattens = node.get_int("opset", 13) < 13;
  int64_t length = 1, inner = 1;
  for (size_t d = axis; d < x.shape().size(); ++d) (d == axis || flattens ? length : inner) *= x.shape()[d];
  if (x.size() == 0) {
    context.outputs[0] = x;
    return;
  }
  const std::array<float, 256> table = exponent_table(Parameters(context, 1, dtype).scale, length);
  const Parameters to(context, 3, dtype);
  const float steps = std::floor(1.0f / to.scale);
  const std::vector<int32_t> in = to_int32s(x);
  std::vector<int32_t> out(in.size(), 0);
  for (int64_t row = 0; row < x.size() / length; ++row) {
    const int64_t start = row / inner * inner * length + row % inner;
    int32_t largest = fixed_shift ? range.high : range.low;
    for (int64_t k = 0; !fixed_shift && k < length; ++k)
      largest = std::max(largest, in[static_cast<size_t>(start + k * inner)]);
    float sum = 0.0f;
    for (int64_t k = 0; k < length; ++k)
      sum += table[static_cast<size_t>(255 - largest + in[static_cast<size_t>(start + k * inner)])];
    for (int64_t k = 0; k < length; ++k) {
      const float e = table[static_cast<size_t>(255 - largest + in[static_cast<size_t>(start + k * inner)])];
      out[static_cast<size_t>(start + k * inner)] = quantize(e * steps, sum, to.zero, range);
    }
  }
  context.outputs[0] = from_int32s(dtype, x.shape(), out);
}

}  // namespace

void register_quantized_pointwise(Registry& registry) {
  const std::string ms = "com.microsoft";
  kernel::add_operator(registry, ms, "QLinearAdd", 1, {7, 8}, infer_binary, evaluate_add);
  kernel::add_operator(registry, ms, "QLinearMul", 1, {7, 8}, infer_binary, evaluate_mul);
  kernel::add_operator(registry, ms, "QLinearLeakyRelu", 1, {4, 5}, infer_unary, evaluate_leaky_relu, {"alpha"});
  kernel::add_operator(registry, ms, "QLinearSigmoid", 1, {4, 5}, infer_unary, evaluate_sigmoid);
  kernel::add_operator(registry, ms, "QLinearSoftmax", 1, {5, 5}, infer_softmax, evaluate_softmax<false>,
                       {"axis", "opset"});
  kernel::add_operator(registry, "ai.tessera", "FixedShiftSoftmax", 1, {5, 5}, infer_softmax, evaluate_softmax<true>,
                       {"axis", "opset"});
  kernel::add_operator(registry, ms, "QLinearConcat", 1, {5, -1}, infer_quantised_concat, evaluate_quantised_concat,
                       {"axis"});
  kernel::add_operator(registry, ms, "QLinearWhere", 1, {9, 9}, infer_where, evaluate_where);
}

}  // namespace tessera::ops
