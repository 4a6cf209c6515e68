// SPDX-License-Identifier: Apache-2.0
// QuantizeLinear, DequantizeLinear (per tensor, per axis, blocked; every integer type, fp8, fp6 and fp4) and
// DynamicQuantizeLinear. In: float or quantised tensors with scales and zero points; out: the other kind. Scalar loops;
// how one element is rounded stands in quantized_math.h, how the scale of an element is found in ParameterIndex.
#include <cmath>

#include "ops/quantized/quantized_math.h"

namespace tessera::ops {

namespace {

using namespace quantized;

const std::vector<DType> kQuantized = {
    DType::kUint8,      DType::kInt8,         DType::kUint16,         DType::kInt16,      DType::kUint4,
    DType::kInt4,       DType::kFloat8E4M3FN, DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2, DType::kFloat8E5M2FNUZ,
    DType::kFloat4E2M1, DType::kUint2,        DType::kInt2,           DType::kFloat6E2M3, DType::kFloat6E3M2};
const std::vector<DType> kScales = {DType::kFloat, DType::kFloat16, DType::kBfloat16, DType::kFloat8E8M0};

bool is_small_float(DType dtype) {
  return element_bytes(dtype) == 1 && is_floating(dtype) && dtype != DType::kFloat8E8M0;
}

/// Maps a flat element index to the index of its scale and zero point.
class ParameterIndex {
 public:
  ParameterIndex(const Node& node, const Shape& shape, const Shape& scale, int64_t scale_size) {
    const int64_t block = node.get_int("block_size", 0);
    if (block < 0) node.fail(ErrorCode::kInvalidModel, "block_size must not be negative");
    const auto rank = static_cast<int64_t>(shape.size());
    if (block == 0 && scale_size == 1 && scale.size() <= 1) return;
    // A vector has one axis, whatever the attribute says: quantisers write 1, which is the default, beside biases.
    const bool vector = rank == 1 && block == 0;
    const int64_t axis = vector ? 0 : normalise_axis(node, node.get_int("axis", 1), rank);
    const size_t a = static_cast<size_t>(axis);
    extent_ = shape[a];
    for (size_t i = a + 1; i < shape.size(); ++i) inner_ *= shape[i];
    if (block == 0) {
      // A vector kept as a row whose axis attribute names the axis of extent 1, as quantisers write biases: there is
      // one reading.
      if (scale.size() == 1 && scale[0] != extent_ && element_count(shape) == scale[0]) {
        extent_ = scale[0];
        inner_ = 1;
      }
      if (scale.size() != 1 || scale[0] != extent_) {
        node.fail(ErrorCode::kInvalidModel, "the scale has shape " + to_string(scale) + "; along axis " +
                                                std::to_string(axis) + " of " + to_string(shape) + " it must have " +
                                                std::to_string(extent_) + " elements");
      }
      mode_ = Mode::kAxis;
      return;
    }
    Shape wanted = shape;
    wanted[a] = (extent_ + block - 1) / block;
    if (scale != wanted)
      node.fail(ErrorCode::kInvalidModel,
                "blocked quantisation wants a scale of shape " + to_string(wanted) + ", not " + to_string(scale));
    mode_ = Mode::kBlocked;
    block_ = block;
    blocks_ = wanted[a];
  }

  size_t operator()(int64_t flat) const {
    switch (mode_) {
      case Mode::kTensor: return 0;
      case Mode::kAxis: return static_cast<size_t>(flat / inner_ % extent_);
      case Mode::kBlocked: break;
    }
    const int64_t inner = flat % inner_;
    const int64_t along = flat / inner_ % extent_;
    const int64_t outer = flat / inner_ / extent_;
    return static_cast<size_t>((outer * blocks_ + along / block_) * inner_ + inner);
  }

 private:
  enum class Mode { kTensor, kAxis, kBlocked } mode_ = Mode::kTensor;
  int64_t inner_ = 1, extent_ = 1, block_ = 1, blocks_ = 1;
};

void check_parameters(InferContext& context) {
  const Node& node = context.node;
  expect_dtype(context, 1, kScales, "the scale");
  if (!context.has(1)) return;
  const TypeInfo& scale = context.input(1);
  if (context.has(2)) {
    const TypeInfo& zero = context.input(2);
    if (scale.is_static() && zero.is_static() && scale.shape != zero.shape &&
        !(element_count(scale.shape) == 1 && element_count(zero.shape) == 1)) {
      node.fail(ErrorCode::kInvalidModel,
                "scale " + to_string(scale.shape) + " and zero point " + to_string(zero.shape) + " differ in shape");
    }
  }
  const TypeInfo& x = context.input(0);
  if (x.is_static() && scale.is_static()) ParameterIndex(node, x.shape, scale.shape, element_count(scale.shape));
}

DType quantized_type(const Node& node, DType zero_type) {
  const auto asked = static_cast<DType>(node.get_int("output_dtype", 0));
  if (zero_type == DType::kUndefined) return asked == DType::kUndefined ? DType::kUint8 : asked;
  if (asked != DType::kUndefined && asked != zero_type)
    node.fail(ErrorCode::kInvalidModel, "output_dtype contradicts the zero point's element type");
  return zero_type;
}

void infer_quantize(InferContext& context) {
  expect_dtype(context, 0, {DType::kFloat, DType::kFloat16, DType::kBfloat16, DType::kInt32}, "x");
  expect_dtype(context, 2, kQuantized, "the zero point");
  check_parameters(context);
  context.outputs[0] = same_shape(
      context.input(0), quantized_type(context.node, context.has(2) ? context.input(2).dtype : DType::kUndefined));
}

float rounded_to(DType dtype, float value) {
  if (dtype == DType::kFloat16) return half_to_float(float_to_half(value));
  return dtype == DType::kBfloat16 ? bfloat16_to_float(float_to_bfloat16(value)) : value;
}

void evaluate_quantize(EvalContext& context) {
  const Node& node = context.node;
  const Tensor& x = context.input(0);
  const Tensor& scale = context.input(1);
  const DType dtype = quantized_type(node, context.has(2) ? context.input(2).dtype() : DType::kUndefined);
  const ParameterIndex parameter(node, x.shape(), scale.shape(), scale.size());
  const std::vector<float> values = x.to_floats();
  const std::vector<float> scales = scale.to_floats();
  if (context.has(2) && context.input(2).size() != scale.size())
    node.fail(ErrorCode::kInvalidModel, "scale and zero point differ in size");
  if (is_small_float(dtype)) {
    Tensor quotients(DType::kFloat, x.shape());
    for (size_t i = 0; i < values.size(); ++i)
      quotients.as_mutable<float>()[i] = values[i] / scales[parameter(static_cast<int64_t>(i))];
    const int64_t saturate = node.get_int("saturate", 1);
    const Node cast{"", "Cast", 23, node.name, {{"to", static_cast<int64_t>(dtype)}, {"saturate", saturate}}, 1};
    context.outputs[0] = evaluate(cast, {quotients})[0];
    return;
  }
  if (!is_quantized_integer(dtype))
    node.fail(ErrorCode::kInvalidModel, "cannot quantise to " + std::string(to_string(dtype)));
  const Range range = range_of(dtype);
  const std::vector<int32_t> zeros =
      context.has(2) ? to_int32s(context.input(2)) : std::vector<int32_t>(scales.size(), 0);
  std::vector<int32_t> out(values.size());
  // Opset 23 brought the precision of the quotient: the type that the attribute names, or that of the scale.
  auto precision = static_cast<DType>(node.get_int("precision", 0));
  if (precision == DType::kUndefined) precision = scale.dtype();
  if (!node.domain.empty() || node.version < 23) precision = DType::kFloat;
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t p = parameter(static_cast<int64_t>(i));
    out[i] = quantize(rounded_to(precision, values[i] / scales[p]), 1.0f, zeros[p], range);
  }
  context.outputs[0] = from_int32s(dtype, x.shape(), out);
}

void infer_dequantize(InferContext& context) {
  std::vector<DType> types = kQuantized;
  types.push_back(DType::kInt32);
  expect_dtype(context, 0, types, "x");
  expect_dtype(context, 2, types, "the zero point");
  check_parameters(context);
  const TypeInfo& x = context.input(0);
  if (context.has(2) && x.dtype != DType::kUndefined && context.input(2).dtype != DType::kUndefined &&
      context.input(2).dtype != x.dtype)
    context.node.fail(ErrorCode::kInvalidModel, "x and its zero point differ in element type");
  auto dtype = static_cast<DType>(context.node.get_int("output_dtype", 0));
  if (dtype == DType::kUndefined) dtype = context.input(1).dtype;
  context.outputs[0] = same_shape(x, dtype);
}

void evaluate_dequantize(EvalContext& context) {
  const Node& node = context.node;
  const Tensor& x = context.input(0);
  const Tensor& scale = context.input(1);
  const ParameterIndex parameter(node, x.shape(), scale.shape(), scale.size());
  const std::vector<float> scales = scale.to_floats();
  auto dtype = static_cast<DType>(node.get_int("output_dtype", 0));
  if (dtype == DType::kUndefined) dtype = scale.dtype();
  if (context.has(2) && context.input(2).size() != scale.size())
    node.fail(ErrorCode::kInvalidModel, "scale and zero point differ in size");

  std::vector<float> values(static_cast<size_t>(x.size()));
  if (is_small_float(x.dtype())) {
    const std::vector<float> in = x.to_floats();
    for (size_t i = 0; i < values.size(); ++i) values[i] = in[i] * scales[parameter(static_cast<int64_t>(i))];
  } else {
    const std::vector<int32_t> in = to_int32s(x);
    const std::vector<int32_t> zeros =
        context.has(2) ? to_int32s(context.input(2)) : std::vector<int32_t>(scales.size(), 0);
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t p = parameter(static_cast<int64_t>(i));
      values[i] = dequantize(in[i], scales[p], zeros[p]);
    }
  }
  if (dtype != DType::kFloat && dtype != DType::kFloat16 && dtype != DType::kBfloat16)
    node.fail(ErrorCode::kInvalidModel, "cannot dequantise to " + std::string(to_string(dtype)));
  context.outputs[0] = kernel::narrow(Tensor::of(DType::kFloat, x.shape(), values), dtype);
}

void infer_dynamic(InferContext& context) {
  expect_dtype(context, 0, {DType::kFloat}, "x");
  context.outputs[0] = same_shape(context.input(0), DType::kUint8);
  if (context.outputs.size() > 1) context.outputs[1] = TypeInfo::tensor(DType::kFloat, {});
  if (context.outputs.size() > 2) context.outputs[2] = TypeInfo::tensor(DType::kUint8, {});
}

void evaluate_dynamic(EvalContext& context) {
  const Tensor& x = context.input(0);
  const DynamicParameters parameters = dynamic_parameters(x.as<float>());
  Tensor y(DType::kUint8, x.shape());
  auto in = x.as<float>();
  auto out = y.as_mutable<uint8_t>();
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<uint8_t>(quantize(in[i], parameters.scale, parameters.zero, {0, 255}));
  context.outputs[0] = std::move(y);
  if (context.outputs.size() > 1) context.outputs[1] = Tensor::scalar_f32(parameters.scale);
  if (context.outputs.size() > 2)
    context.outputs[2] = Tensor::of<uint8_t>(DType::kUint8, {}, {static_cast<uint8_t>(parameters.zero)});
}

}  // namespace

void register_quantized(Registry& registry) {
  const std::vector<std::pair<int, std::set<std::string>>> versions = {
      {10, {}},
      {13, {"axis"}},
      {19, {"axis", "saturate"}},
      {21, {"axis", "saturate", "block_size", "output_dtype"}},
      {23, {"axis", "saturate", "block_size", "output_dtype", "precision"}}};
  auto add = [&registry](const std::string& domain, int version, const std::set<std::string>& attributes) {
    kernel::add_operator(registry, domain, "QuantizeLinear", version, {2, 3}, infer_quantize, evaluate_quantize,
                         attributes);
    kernel::add_operator(registry, domain, "DequantizeLinear", version, {2, 3}, infer_dequantize, evaluate_dequantize,
                         attributes);
  };
  for (const auto& [version, attributes] : versions) add("", version, attributes);
  add("com.microsoft", 1, {"axis", "saturate", "block_size"});
  kernel::add_operator(registry, "", "DynamicQuantizeLinear", 11, {1, 1}, infer_dynamic, evaluate_dynamic, {}, 4,
                       {1, 3});
}

}  // namespace tessera::ops
