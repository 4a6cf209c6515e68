// SPDX-License-Identifier: Apache-2.0
// See quantized_math.h. Rounding and saturation, parameters of a node, tables.
#include "ops/quantized/quantized_math.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera::ops::quantized {

bool is_quantized_integer(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
    case DType::kInt8:
    case DType::kUint16:
    case DType::kInt16:
    case DType::kUint4:
    case DType::kInt4:
    case DType::kUint2:
    case DType::kInt2: return true;
    default: return false;
  }
}

bool is_8bit(DType dtype) { return dtype == DType::kUint8 || dtype == DType::kInt8; }

Range range_of(DType dtype) {
  switch (dtype) {
    case DType::kUint8: return {0, 255};
    case DType::kInt8: return {-128, 127};
    case DType::kUint16: return {0, 65535};
    case DType::kInt16: return {-32768, 32767};
    case DType::kUint4: return {0, 15};
    case DType::kInt4: return {-8, 7};
    case DType::kUint2: return {0, 3};
    case DType::kInt2: return {-2, 1};
    default: break;
  }
  throw Error(ErrorCode::kInvalidModel, "no quantised range for element type " + std::string(to_string(dtype)));
}

using scalar::Number;
using Real = Number<float>;
using Integer = Number<int32_t>;

int32_t round_to_int32(float value) { return scalar::round_to_int32(Real{value}).value; }

int32_t quantize(float x, float scale, int32_t zero, Range range) {
  return scalar::quantize(Real{x}, Real{scale}, Integer{zero}, range).value;
}

int32_t requantize(int32_t accumulator, float multiplier, int32_t zero, Range range) {
  return scalar::requantize(Integer{accumulator}, Real{multiplier}, Integer{zero}, range).value;
}

float dequantize(int32_t x, float scale, int32_t zero) {
  return scalar::dequantize(Integer{x}, Real{scale}, Integer{zero}).value;
}

float logistic(float x) { return scalar::logistic(Real{x}).value; }

float hyperbolic_tangent(float x) { return scalar::hyperbolic_tangent(Real{x}).value; }

std::vector<int32_t> to_int32s(const Tensor& tensor) {
  std::vector<int32_t> out(static_cast<size_t>(tensor.size()));
  auto copy = [&](auto elements) { std::copy(elements.begin(), elements.end(), out.begin()); };
  switch (tensor.dtype()) {
    case DType::kUint8: copy(tensor.as<uint8_t>()); break;
    case DType::kInt8: copy(tensor.as<int8_t>()); break;
    // Only the low bits of an element of fewer than eight count.
    case DType::kUint4:
      std::transform(tensor.as<uint8_t>().begin(), tensor.as<uint8_t>().end(), out.begin(),
                     [](int v) { return v & 15; });
      break;
    case DType::kInt4:
      std::transform(tensor.as<uint8_t>().begin(), tensor.as<uint8_t>().end(), out.begin(),
                     [](int v) { return ((v & 15) ^ 8) - 8; });
      break;
    case DType::kUint2:
      std::transform(tensor.as<uint8_t>().begin(), tensor.as<uint8_t>().end(), out.begin(),
                     [](int v) { return v & 3; });
      break;
    case DType::kInt2:
      std::transform(tensor.as<uint8_t>().begin(), tensor.as<uint8_t>().end(), out.begin(),
                     [](int v) { return ((v & 3) ^ 2) - 2; });
      break;
    case DType::kUint16: copy(tensor.as<uint16_t>()); break;
    case DType::kInt16: copy(tensor.as<int16_t>()); break;
    case DType::kInt32: copy(tensor.as<int32_t>()); break;
    default:
      throw Error(ErrorCode::kInvalidModel,
                  "element type " + std::string(to_string(tensor.dtype())) + " is not a quantised type");
  }
  return out;
}

Tensor from_int32s(DType dtype, const Shape& shape, std::span<const int32_t> values) {
  Tensor out(dtype, shape);
  auto copy = [&](auto elements) {
    using T = typename decltype(elements)::value_type;
    std::transform(values.begin(), values.end(), elements.begin(), [](int32_t v) { return static_cast<T>(v); });
  };
  switch (dtype) {
    case DType::kUint8:
    case DType::kUint4:
    case DType::kUint2: copy(out.as_mutable<uint8_t>()); break;
    case DType::kInt8:
    case DType::kInt4:
    case DType::kInt2: copy(out.as_mutable<int8_t>()); break;
    case DType::kUint16: copy(out.as_mutable<uint16_t>()); break;
    case DType::kInt16: copy(out.as_mutable<int16_t>()); break;
    case DType::kInt32: copy(out.as_mutable<int32_t>()); break;
    default:
      throw Error(ErrorCode::kInvalidModel,
                  "element type " + std::string(to_string(dtype)) + " is not a quantised type");
  }
  return out;
}

Tensor without_zero(const Tensor& x, const Tensor* zero, const Shape& as) {
  const std::vector<int32_t> zeros = zero ? to_int32s(*zero) : std::vector<int32_t>{0};
  Tensor result(DType::kInt32, x.shape());
  visit_bytes(x.dtype(), [&]<typename T>(kernel::Tag<T>) {
    kernel::binary_loop(x.shape(), x.shape(), zeros.size() == 1 ? Shape{} : as, kernel::elements<T>(x), zeros.data(),
                        kernel::mutable_elements<int32_t>(result), [](T v, int32_t z) { return v - z; });
  });
  return result;
}

float scalar_scale(const EvalContext& context, size_t index, const char* what) {
  return channel_scales(context, index, 1, what)[0];
}

int32_t scalar_zero(const EvalContext& context, size_t index, DType dtype, const char* what) {
  return channel_zeros(context, index, 1, dtype, what)[0];
}

std::vector<float> channel_scales(const EvalContext& context, size_t index, int64_t count, const char* what) {
  const Tensor& scale = context.input(index);
  if (scale.dtype() != DType::kFloat)
    context.node.fail(ErrorCode::kInvalidModel,
                      std::string(what) + " must be float32, not " + std::string(to_string(scale.dtype())));
  if (scale.size() != 1 && scale.size() != count) {
    context.node.fail(ErrorCode::kInvalidModel, std::string(what) + " has " + std::to_string(scale.size()) +
                                                    " elements; 1 or " + std::to_string(count) + " are possible");
  }
  std::vector<float> out(static_cast<size_t>(count));
  auto values = scale.as<float>();
  for (size_t i = 0; i < out.size(); ++i) out[i] = values[scale.size() == 1 ? 0 : i];
  return out;
}

std::vector<int32_t> channel_zeros(const EvalContext& context, size_t index, int64_t count, DType dtype,
                                   const char* what) {
  std::vector<int32_t> out(static_cast<size_t>(count), 0);
  if (!context.has(index)) return out;
  const Tensor& zero = context.input(index);
  if (zero.dtype() != dtype) {
    context.node.fail(ErrorCode::kInvalidModel, std::string(what) + " must be " + std::string(to_string(dtype)) +
                                                    ", not " + std::string(to_string(zero.dtype())));
  }
  if (zero.size() != 1 && zero.size() != count) {
    context.node.fail(ErrorCode::kInvalidModel, std::string(what) + " has " + std::to_string(zero.size()) +
                                                    " elements; 1 or " + std::to_string(count) + " are possible");
  }
  const std::vector<int32_t> values = to_int32s(zero);
  for (size_t i = 0; i < out.size(); ++i) out[i] = values[values.size() == 1 ? 0 : i];
  return out;
}

std::array<uint8_t, 256> build_table(DType dtype, float x_scale, int32_t x_zero, float y_scale, int32_t y_zero,
                                     const std::function<float(float)>& f) {
  const Range range = range_of(dtype);
  std::array<uint8_t, 256> table{};
  for (int32_t x = range.low; x <= range.high; ++x)
    table[static_cast<uint8_t>(x)] =
        static_cast<uint8_t>(quantize(f(dequantize(x, x_scale, x_zero)), y_scale, y_zero, range));
  return table;
}

Tensor apply_table(const Tensor& x, const std::array<uint8_t, 256>& table) {
  Tensor y(x.dtype(), x.shape());
  auto in = x.as<uint8_t>();
  auto out = y.as_mutable<uint8_t>();
  for (size_t i = 0; i < out.size(); ++i) out[i] = table[in[i]];
  return y;
}

bool first_is_scalar(const Shape& a, const Shape& b) {
  const size_t shared = std::min(a.size(), b.size());
  if (shared == 0) return a.empty() || a.back() <= 1;
  for (size_t k = 1; k <= shared; ++k) {
    const int64_t da = a[a.size() - k], db = b[b.size() - k];
    if (std::max(da, db) <= 1 && k < shared) continue;
    return da <= 1;
  }
  return false;
}

DynamicParameters dynamic_parameters(std::span<const float> x) {
  float low = 0.0f;
  float high = 0.0f;
  for (float v : x) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  DynamicParameters result;
  result.scale = high == low ? 1.0f : (high - low) / 255.0f;
  const float zero = 0.0f - low / result.scale;
  result.zero = static_cast<int32_t>(std::nearbyintf(std::max(0.0f, std::min(255.0f, zero))));
  return result;
}

TypeInfo same_shape(const TypeInfo& x, DType dtype) {
  return x.ranked ? TypeInfo::tensor(dtype, x.shape) : TypeInfo::unranked(dtype);
}

void expect_dtype(const InferContext& context, size_t i, const std::vector<DType>& dtypes, const char* what) {
  if (!context.has(i)) return;
  const DType dtype = context.input(i).dtype;
  if (dtype == DType::kUndefined || std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end()) return;
  std::string wanted;
  for (DType d : dtypes) wanted += (wanted.empty() ? "" : ", ") + std::string(to_string(d));
  context.node.fail(ErrorCode::kInvalidModel,
                    std::string(what) + " has element type " + std::string(to_string(dtype)) + "; possible: " + wanted);
}

void expect_scalar(const InferContext& context, size_t i, const char* what) {
  if (!context.has(i)) return;
  const TypeInfo& type = context.input(i);
  if (!type.ranked) return;
  for (int64_t dim : type.shape) {
    if (dim != 1 && dim != -1)
      context.node.fail(ErrorCode::kInvalidModel,
                        std::string(what) + " must hold one element, its shape is " + to_string(type.shape));
  }
}

std::vector<DType> bytes_as(const InferContext& context, size_t i) {
  const DType dtype = context.has(i) ? context.input(i).dtype : DType::kUndefined;
  return dtype == DType::kUndefined ? kBytes : std::vector<DType>{dtype};
}

void expect_parameters(const InferContext& context, size_t scale, const std::vector<DType>& dtypes) {
  expect_dtype(context, scale, {DType::kFloat}, "a scale");
  expect_dtype(context, scale + 1, dtypes, "a zero point");
  for (size_t i : {scale, scale + 1}) expect_scalar(context, i, "a scale or zero point");
}

}  // namespace tessera::ops::quantized
