// SPDX-License-Identifier: Apache-2.0
// Quantised operators of domain com.microsoft that work element by element: QLinearAdd, QLinearMul, QLinearWhere,
// QLinearConcat, QLinearLeakyRelu, QLinearSigmoid, QLinearSoftmax. In and out: 8-bit tensors with fp32 scales and zero
// points of the same type. The binary ones follow the vector kernels of the CPU oracle to the bit (zero point before
// rounding, fused multiply-add, the order that a broadcast operand causes); the unary ones are tables over the 256
// inputs.
#include <cmath>
#include <limits>

#include "ops/quantized_math.h"

namespace tessera::ops {

namespace {

using namespace quantized;

const std::vector<DType> kBytes = {DType::kUint8, DType::kInt8};

int32_t saturate(int32_t value, Range range) { return std::min(std::max(value, range.low), range.high); }

/// True when the innermost run of a broadcast binary operator sees `a` (or `b`) as one scalar. The run lies along the
/// last axis, among those both operands have, whose extent is not 1 (or along the first of these if all are 1).
struct ScalarOperand {
  bool a = false;
  bool b = false;
};
ScalarOperand scalar_operand(const Shape& a, const Shape& b) {
  const size_t shared = std::min(a.size(), b.size());
  if (shared == 0) {
    const bool a_one = a.empty() || a.back() <= 1;
    return {a_one, b.empty() || b.back() <= 1};
  }
  for (size_t k = 1; k <= shared; ++k) {
    const int64_t da = a[a.size() - k];
    const int64_t db = b[b.size() - k];
    if (std::max(da, db) <= 1 && k < shared) continue;
    return {da <= 1, db <= 1};
  }
  return {};
}

// --- QLinearAdd, QLinearMul
// ----------------------------------------------------------------------------------------------------

struct Binary {
  float a_scale, b_scale, c_scale;
  int32_t a_zero, b_zero, c_zero;
};

/// First the term of `second`, then that of `first`, each by a fused multiply-add on the constant part.
struct AddFormula {
  float first_ratio, second_ratio, fixed;
  AddFormula(float first_scale, int32_t first_zero, float second_scale, int32_t second_zero, float c_scale,
             int32_t c_zero)
      : first_ratio(first_scale / c_scale), second_ratio(second_scale / c_scale) {
    const float zeros =
        std::fma(first_ratio, static_cast<float>(first_zero), second_ratio * static_cast<float>(second_zero));
    fixed = static_cast<float>(c_zero) - zeros;
  }
  int32_t operator()(int32_t first, int32_t second) const {
    return round_to_int32(
        std::fma(static_cast<float>(first), first_ratio, std::fma(static_cast<float>(second), second_ratio, fixed)));
  }
};

void infer_binary(InferContext& context) {
  const Node& node = context.node;
  expect_dtype(context, 0, kBytes, "A");
  const DType dtype = context.input(0).dtype;
  const std::vector<DType> same = dtype == DType::kUndefined ? kBytes : std::vector<DType>{dtype};
  expect_dtype(context, 3, same, "B");
  for (size_t i : {1u, 4u, 6u}) expect_dtype(context, i, {DType::kFloat}, "a scale");
  for (size_t i : {2u, 5u, 7u}) expect_dtype(context, i, same, "a zero point");
  for (size_t i : {1u, 2u, 4u, 5u, 6u, 7u}) expect_scalar(context, i, "a scale or zero point");
  context.outputs[0] = broadcast_types(node, dtype, {&context.input(0), &context.input(3)});
}

template <typename F>
Tensor map_pairs(const Node& node, const Tensor& a, const Tensor& b, const Range& range, F&& f) {
  const Shape shape = broadcast_shapes(node, {a.shape(), b.shape()});
  const std::vector<int64_t> a_strides = broadcast_strides(a.shape(), shape);
  const std::vector<int64_t> b_strides = broadcast_strides(b.shape(), shape);
  const std::vector<int32_t> a_values = to_int32s(a);
  const std::vector<int32_t> b_values = to_int32s(b);
  std::vector<int32_t> out(static_cast<size_t>(element_count(shape)));
  for_each_index(shape, [&](int64_t flat, const std::vector<int64_t>& index) {
    int64_t ia = 0, ib = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      ia += index[d] * a_strides[d];
      ib += index[d] * b_strides[d];
    }
    out[static_cast<size_t>(flat)] =
        saturate(f(a_values[static_cast<size_t>(ia)], b_values[static_cast<size_t>(ib)]), range);
  });
  return from_int32s(a.dtype(), shape, out);
}

Binary binary_parameters(const EvalContext& context) {
  const DType dtype = context.input(0).dtype();
  if (!is_8bit(dtype) || context.input(3).dtype() != dtype)
    context.node.fail(ErrorCode::kInvalidModel, "A and B must both be uint8 or both int8");
  return {scalar_scale(context, 1, "A_scale"),
          scalar_scale(context, 4, "B_scale"),
          scalar_scale(context, 6, "C_scale"),
          scalar_zero(context, 2, dtype, "A_zero_point"),
          scalar_zero(context, 5, dtype, "B_zero_point"),
          scalar_zero(context, 7, dtype, "C_zero_point")};
}

void evaluate_add(EvalContext& context) {
  const Binary p = binary_parameters(context);
  const Tensor& a = context.input(0);
  const Tensor& b = context.input(3);
  const Range range = range_of(a.dtype());
  if (scalar_operand(a.shape(), b.shape()).a) {
    const AddFormula formula(p.b_scale, p.b_zero, p.a_scale, p.a_zero, p.c_scale, p.c_zero);
    context.outputs[0] = map_pairs(context.node, a, b, range, [&](int32_t x, int32_t y) { return formula(y, x); });
  } else {
    const AddFormula formula(p.a_scale, p.a_zero, p.b_scale, p.b_zero, p.c_scale, p.c_zero);
    context.outputs[0] = map_pairs(context.node, a, b, range, [&](int32_t x, int32_t y) { return formula(x, y); });
  }
}

void evaluate_mul(EvalContext& context) {
  const Binary p = binary_parameters(context);
  const Tensor& a = context.input(0);
  const float multiplier = p.a_scale * p.b_scale / p.c_scale;
  const auto zero = static_cast<float>(p.c_zero);
  context.outputs[0] = map_pairs(context.node, a, context.input(3), range_of(a.dtype()), [&](int32_t x, int32_t y) {
    const float product = static_cast<float>((x - p.a_zero) * (y - p.b_zero)) * multiplier;
    return round_to_int32(product + zero);
  });
}

// --- tables
// --------------------------------------------------------------------------------------------------------------------

void infer_unary(InferContext& context) {
  expect_dtype(context, 0, kBytes, "X");
  const DType dtype = context.input(0).dtype;
  const std::vector<DType> same = dtype == DType::kUndefined ? kBytes : std::vector<DType>{dtype};
  for (size_t i : {1u, 3u}) expect_dtype(context, i, {DType::kFloat}, "a scale");
  for (size_t i : {2u, 4u}) expect_dtype(context, i, same, "a zero point");
  for (size_t i : {1u, 2u, 3u, 4u}) expect_scalar(context, i, "a scale or zero point");
  context.outputs[0] = same_shape(context.input(0), dtype);
}

void evaluate_unary(EvalContext& context, const std::function<float(float)>& f) {
  const Tensor& x = context.input(0);
  if (!is_8bit(x.dtype())) context.node.fail(ErrorCode::kInvalidModel, "X must be uint8 or int8");
  const auto table =
      build_table(x.dtype(), scalar_scale(context, 1, "X_scale"), scalar_zero(context, 2, x.dtype(), "X_zero_point"),
                  scalar_scale(context, 3, "Y_scale"), scalar_zero(context, 4, x.dtype(), "Y_zero_point"), f);
  context.outputs[0] = apply_table(x, table);
}

void evaluate_leaky_relu(EvalContext& context) {
  const float alpha = context.node.get_float("alpha", 0.01f);
  evaluate_unary(context, [alpha](float v) { return v >= 0.0f ? v : alpha * v; });
}

void evaluate_sigmoid(EvalContext& context) { evaluate_unary(context, logistic); }

/// Requantises `x` unless its parameters are those of the result.
Tensor to_result_scale(const Tensor& x, float x_scale, int32_t x_zero, float y_scale, int32_t y_zero) {
  if (x_scale == y_scale && x_zero == y_zero) return x;
  return apply_table(x, build_table(x.dtype(), x_scale, x_zero, y_scale, y_zero, [](float v) { return v; }));
}

void infer_concat(InferContext& context) {
  const Node& node = context.node;
  if ((context.inputs.size() - 2) % 3 != 0)
    node.fail(ErrorCode::kInvalidModel, "inputs must be Y_scale, Y_zero_point and triples (tensor, scale, zero point)");
  if (!node.has("axis")) node.fail(ErrorCode::kInvalidModel, "attribute 'axis' is missing");
  expect_dtype(context, 0, {DType::kFloat}, "Y_scale");
  expect_dtype(context, 1, kBytes, "Y_zero_point");
  expect_scalar(context, 0, "Y_scale");
  expect_scalar(context, 1, "Y_zero_point");
  const DType dtype = context.input(1).dtype;
  const std::vector<DType> same = dtype == DType::kUndefined ? kBytes : std::vector<DType>{dtype};
  TypeInfo result = TypeInfo::unranked(dtype);
  int64_t axis = 0;
  for (size_t i = 2; i < context.inputs.size(); i += 3) {
    expect_dtype(context, i, same, "an input tensor");
    expect_dtype(context, i + 1, {DType::kFloat}, "a scale");
    expect_dtype(context, i + 2, same, "a zero point");
    expect_scalar(context, i + 1, "a scale");
    expect_scalar(context, i + 2, "a zero point");
    const TypeInfo& x = context.input(i);
    if (!x.ranked) continue;
    if (!result.ranked) {
      axis = normalise_axis(node, node.get_int("axis", 0), static_cast<int64_t>(x.shape.size()));
      result = TypeInfo::tensor(dtype, x.shape);
      result.shape[static_cast<size_t>(axis)] = 0;
    } else if (result.shape.size() != x.shape.size()) {
      node.fail(ErrorCode::kInvalidModel,
                "inputs of ranks " + std::to_string(result.shape.size()) + " and " + std::to_string(x.shape.size()));
    }
    for (size_t d = 0; d < x.shape.size(); ++d) {
      int64_t& dim = result.shape[d];
      if (static_cast<int64_t>(d) == axis) {
        dim = dim < 0 || x.shape[d] < 0 ? -1 : dim + x.shape[d];
      } else if (dim < 0) {
        dim = x.shape[d];
      } else if (x.shape[d] >= 0 && x.shape[d] != dim) {
        node.fail(ErrorCode::kInvalidModel, "inputs differ in axis " + std::to_string(d) + ": " +
                                                to_string(result.shape) + " and " + to_string(x.shape));
      }
    }
  }
  for (size_t i = 2; i < context.inputs.size(); i += 3)
    if (!context.input(i).ranked && result.ranked) result.shape[static_cast<size_t>(axis)] = -1;
  context.outputs[0] = std::move(result);
}

void evaluate_concat(EvalContext& context) {
  const Node& node = context.node;
  if (context.inputs.size() < 5 || (context.inputs.size() - 2) % 3 != 0)
    node.fail(ErrorCode::kInvalidModel, "inputs must be Y_scale, Y_zero_point and triples (tensor, scale, zero point)");
  const DType dtype = context.input(1).dtype();
  const float y_scale = scalar_scale(context, 0, "Y_scale");
  const int32_t y_zero = scalar_zero(context, 1, dtype, "Y_zero_point");
  Shape shape = context.input(2).shape();
  const auto axis =
      static_cast<size_t>(normalise_axis(node, node.get_int("axis", 0), static_cast<int64_t>(shape.size())));
  shape[axis] = 0;
  for (size_t i = 2; i < context.inputs.size(); i += 3) {
    const Shape& part = context.input(i).shape();
    if (part.size() != shape.size()) node.fail(ErrorCode::kInvalidModel, "inputs differ in rank");
    for (size_t d = 0; d < part.size(); ++d) {
      if (d != axis && part[d] != shape[d])
        node.fail(ErrorCode::kInvalidModel, "inputs differ in axis " + std::to_string(d));
    }
    shape[axis] += part[axis];
  }
  Tensor y(dtype, shape);
  auto out = y.as_mutable<uint8_t>();
  int64_t inner = 1, outer = 1;
  for (size_t d = 0; d < shape.size(); ++d) (d < axis ? outer : inner) *= d == axis ? 1 : shape[d];
  int64_t offset = 0;
  for (size_t i = 2; i < context.inputs.size(); i += 3) {
    const Tensor& x = context.input(i);
    if (x.dtype() != dtype || !is_8bit(dtype))
      node.fail(ErrorCode::kInvalidModel, "tensors and zero points must share one 8-bit type");
    const Tensor part = to_result_scale(x, scalar_scale(context, i + 1, "a scale"),
                                        scalar_zero(context, i + 2, dtype, "a zero point"), y_scale, y_zero);
    auto in = part.as<uint8_t>();
    const int64_t run = part.shape()[axis] * inner;
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t k = 0; k < run; ++k)
        out[static_cast<size_t>(o * shape[axis] * inner + offset + k)] = in[static_cast<size_t>(o * run + k)];
    }
    offset += run;
  }
  context.outputs[0] = std::move(y);
}

void infer_where(InferContext& context) {
  const Node& node = context.node;
  expect_dtype(context, 0, {DType::kBool}, "condition");
  expect_dtype(context, 1, kBytes, "X");
  const DType dtype = context.input(1).dtype;
  const std::vector<DType> same = dtype == DType::kUndefined ? kBytes : std::vector<DType>{dtype};
  expect_dtype(context, 4, same, "Y");
  for (size_t i : {2u, 5u, 7u}) expect_dtype(context, i, {DType::kFloat}, "a scale");
  for (size_t i : {3u, 6u, 8u}) expect_dtype(context, i, same, "a zero point");
  for (size_t i : {2u, 3u, 5u, 6u, 7u, 8u}) expect_scalar(context, i, "a scale or zero point");
  context.outputs[0] = broadcast_types(node, dtype, {&context.input(0), &context.input(1), &context.input(4)});
}

void evaluate_where(EvalContext& context) {
  const Node& node = context.node;
  const Tensor& condition = context.input(0);
  const DType dtype = context.input(1).dtype();
  if (condition.dtype() != DType::kBool || !is_8bit(dtype) || context.input(4).dtype() != dtype)
    node.fail(ErrorCode::kInvalidModel, "condition must be bool, X and Y both uint8 or both int8");
  const float z_scale = scalar_scale(context, 7, "z_scale");
  const int32_t z_zero = scalar_zero(context, 8, dtype, "z_zero_point");
  const Tensor x = to_result_scale(context.input(1), scalar_scale(context, 2, "x_scale"),
                                   scalar_zero(context, 3, dtype, "x_zero_point"), z_scale, z_zero);
  const Tensor y = to_result_scale(context.input(4), scalar_scale(context, 5, "y_scale"),
                                   scalar_zero(context, 6, dtype, "y_zero_point"), z_scale, z_zero);
  const Shape shape = broadcast_shapes(node, {condition.shape(), x.shape(), y.shape()});
  const std::vector<int64_t> cs = broadcast_strides(condition.shape(), shape);
  const std::vector<int64_t> xs = broadcast_strides(x.shape(), shape);
  const std::vector<int64_t> ys = broadcast_strides(y.shape(), shape);
  Tensor z(dtype, shape);
  auto out = z.as_mutable<uint8_t>();
  for_each_index(shape, [&](int64_t flat, const std::vector<int64_t>& index) {
    int64_t ic = 0, ix = 0, iy = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      ic += index[d] * cs[d];
      ix += index[d] * xs[d];
      iy += index[d] * ys[d];
    }
    out[static_cast<size_t>(flat)] = condition.as<uint8_t>()[static_cast<size_t>(ic)] != 0
                                         ? x.as<uint8_t>()[static_cast<size_t>(ix)]
                                         : y.as<uint8_t>()[static_cast<size_t>(iy)];
  });
  context.outputs[0] = std::move(z);
}

// --- QLinearSoftmax
// ------------------------------------------------------------------------------------------------------------

int64_t softmax_axis(const Node& node, int64_t rank) {
  const bool flattens = node.get_int("opset", 13) < 13;
  return normalise_axis(node, node.get_int("axis", flattens ? 1 : -1), rank);
}

/// exp over the 256 distances from the row's maximum, scaled up so far that the sum of a row of `length` still fits a
/// float, times 2^-24, which changes no quotient and leaves room for the steps of the result. Entry d belongs to
/// distance 255 - d.
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

void evaluate_softmax(EvalContext& context) {
  const Node& node = context.node;
  const Tensor& x = context.input(0);
  const DType dtype = x.dtype();
  if (!is_8bit(dtype)) node.fail(ErrorCode::kInvalidModel, "X must be uint8 or int8");
  const Range range = range_of(dtype);
  const auto axis = static_cast<size_t>(softmax_axis(node, x.rank()));
  const bool flattens = node.get_int("opset", 13) < 13;
  int64_t length = 1, inner = 1;
  for (size_t d = axis; d < x.shape().size(); ++d) (d == axis || flattens ? length : inner) *= x.shape()[d];
  if (x.size() == 0) {
    context.outputs[0] = x;
    return;
  }
  const std::array<float, 256> table = exponent_table(scalar_scale(context, 1, "X_scale"), length);
  const float steps = std::floor(1.0f / scalar_scale(context, 3, "Y_scale"));
  const int32_t zero = scalar_zero(context, 4, dtype, "Y_zero_point");
  const std::vector<int32_t> in = to_int32s(x);
  std::vector<int32_t> out(in.size(), 0);
  for (int64_t row = 0; row < x.size() / length; ++row) {
    const int64_t start = row / inner * inner * length + row % inner;
    int32_t largest = range.low;
    for (int64_t k = 0; k < length; ++k) largest = std::max(largest, in[static_cast<size_t>(start + k * inner)]);
    float sum = 0.0f;
    for (int64_t k = 0; k < length; ++k)
      sum += table[static_cast<size_t>(255 - largest + in[static_cast<size_t>(start + k * inner)])];
    for (int64_t k = 0; k < length; ++k) {
      const float e = table[static_cast<size_t>(255 - largest + in[static_cast<size_t>(start + k * inner)])];
      out[static_cast<size_t>(start + k * inner)] = quantize(e * steps, sum, zero, range);
    }
  }
  context.outputs[0] = from_int32s(dtype, x.shape(), out);
}

}  // namespace

void register_quantized_pointwise(Registry& registry) {
  const std::string ms = "com.microsoft";
  registry.add({.domain = ms,
                .name = "QLinearAdd",
                .since_version = 1,
                .min_inputs = 7,
                .max_inputs = 8,
                .infer = infer_binary,
                .evaluate = evaluate_add,
                .work_bytes = 4});
  registry.add({.domain = ms,
                .name = "QLinearMul",
                .since_version = 1,
                .min_inputs = 7,
                .max_inputs = 8,
                .infer = infer_binary,
                .evaluate = evaluate_mul,
                .work_bytes = 4});
  registry.add({.domain = ms,
                .name = "QLinearLeakyRelu",
                .since_version = 1,
                .min_inputs = 4,
                .max_inputs = 5,
                .infer = infer_unary,
                .evaluate = evaluate_leaky_relu,
                .work_bytes = 4,
                .attributes = {"alpha"}});
  registry.add({.domain = ms,
                .name = "QLinearSigmoid",
                .since_version = 1,
                .min_inputs = 4,
                .max_inputs = 5,
                .infer = infer_unary,
                .evaluate = evaluate_sigmoid,
                .work_bytes = 4});
  registry.add({.domain = ms,
                .name = "QLinearSoftmax",
                .since_version = 1,
                .min_inputs = 5,
                .max_inputs = 5,
                .infer = infer_softmax,
                .evaluate = evaluate_softmax,
                .work_bytes = 4,
                .attributes = {"axis", "opset"}});
  registry.add({.domain = ms,
                .name = "QLinearConcat",
                .since_version = 1,
                .min_inputs = 5,
                .max_inputs = -1,
                .infer = infer_concat,
                .evaluate = evaluate_concat,
                .work_bytes = 4,
                .attributes = {"axis"}});
  registry.add({.domain = ms,
                .name = "QLinearWhere",
                .since_version = 1,
                .min_inputs = 9,
                .max_inputs = 9,
                .infer = infer_where,
                .evaluate = evaluate_where,
                .work_bytes = 4});
}

}  // namespace tessera::ops
