// SPDX-License-Identifier: Apache-2.0
// Storage of tensors, conversions between element types, and the bit-level formats fp16, bfloat16 and fp8. Conversions
// to narrow floats go through the exact real value of the fp32 input: scale the significand to the target's unit in the
// last place, round half to even, then look whether the result left the range. One such routine serves every fp8
// format, so none can differ.
#include "ops/tensor.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "ops/limits.h"

namespace tessera::ops {

namespace {

/// Layout of a narrow float: widths, exponent bias and what stands at the top of the range.
struct NarrowFormat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  uint8_t max_finite;  // bit pattern without sign
  uint8_t nan;         // bit pattern without sign; 0x80 for the formats with one unsigned zero
  bool has_infinity;
  bool unsigned_zero;  // FNUZ: 0x80 is NaN and there is no -0
};

NarrowFormat narrow_format(DType dtype) {
  switch (dtype) {
    case DType::kFloat8E4M3FN: return {4, 3, 7, 0x7e, 0x7f, false, false};
    case DType::kFloat8E4M3FNUZ: return {4, 3, 8, 0x7f, 0x80, false, true};
    case DType::kFloat8E5M2: return {5, 2, 15, 0x7b, 0x7f, true, false};
    case DType::kFloat8E5M2FNUZ: return {5, 2, 16, 0x7f, 0x80, false, true};
    default: throw Error(ErrorCode::kInvalidArgument, std::string(to_string(dtype)) + " is not an 8-bit float type");
  }
}

float float4_to_float(uint8_t bits) {
  static constexpr float kMagnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const float magnitude = kMagnitudes[bits & 7];
  return (bits & 8) ? -magnitude : magnitude;
}

/// Sign, exponent, mantissa; no infinities and no NaN.
float float6_to_float(DType dtype, uint8_t bits) {
  const int mantissa_bits = dtype == DType::kFloat6E2M3 ? 3 : 2, bias = dtype == DType::kFloat6E2M3 ? 1 : 3;
  const int exponent = (bits & 31) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  const int significand = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  const float magnitude = std::ldexp(static_cast<float>(significand), std::max(exponent, 1) - bias - mantissa_bits);
  return (bits & 32) ? -magnitude : magnitude;
}

/// Truncation towards zero with saturation; NaN gives 0.
int64_t double_to_int64(double value) {
  if (std::isnan(value)) return 0;
  if (value >= 9223372036854775808.0) return std::numeric_limits<int64_t>::max();
  if (value < -9223372036854775808.0) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

/// Calls f with the element at `index` as a double, int64_t or uint64_t, whichever holds it exactly.
template <typename F>
auto with_element(DType dtype, const std::byte* data, int64_t index, F&& f) {
  const auto load = [&](auto tag) {
    decltype(tag) value;
    std::memcpy(&value, data + index * static_cast<int64_t>(sizeof(value)), sizeof(value));
    return value;
  };
  switch (dtype) {
    case DType::kFloat: return f(static_cast<double>(load(float{})));
    case DType::kDouble: return f(load(double{}));
    case DType::kFloat16: return f(static_cast<double>(half_to_float(load(uint16_t{}))));
    case DType::kBfloat16: return f(static_cast<double>(bfloat16_to_float(load(uint16_t{}))));
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2:
    case DType::kFloat8E5M2FNUZ: return f(static_cast<double>(float8_to_float(dtype, load(uint8_t{}))));
    case DType::kFloat4E2M1: return f(static_cast<double>(float4_to_float(load(uint8_t{}))));
    case DType::kFloat6E2M3:
    case DType::kFloat6E3M2: return f(static_cast<double>(float6_to_float(dtype, load(uint8_t{}))));
    case DType::kFloat8E8M0: return f(static_cast<double>(float8e8m0_to_float(load(uint8_t{}))));
    case DType::kUint8:
    case DType::kUint4:
    case DType::kUint2: return f(static_cast<int64_t>(load(uint8_t{})));
    case DType::kBool: return f(static_cast<int64_t>(load(uint8_t{}) != 0));
    case DType::kInt8:
    case DType::kInt4:
    case DType::kInt2: return f(static_cast<int64_t>(load(int8_t{})));
    case DType::kUint16: return f(static_cast<int64_t>(load(uint16_t{})));
    case DType::kInt16: return f(static_cast<int64_t>(load(int16_t{})));
    case DType::kUint32: return f(static_cast<int64_t>(load(uint32_t{})));
    case DType::kInt32: return f(static_cast<int64_t>(load(int32_t{})));
    case DType::kInt64: return f(load(int64_t{}));
    case DType::kUint64: return f(load(uint64_t{}));
    default: break;
  }
  throw Error(ErrorCode::kUnsupported,
              "elements of type " + std::string(to_string(dtype)) + " cannot be read as numbers");
}

double as_double(DType dtype, const std::byte* data, int64_t index) {
  return with_element(dtype, data, index, [](auto value) { return static_cast<double>(value); });
}

int64_t as_int64(DType dtype, const std::byte* data, int64_t index) {
  return with_element(dtype, data, index, [](auto value) {
    if constexpr (std::is_same_v<decltype(value), double>)
      return double_to_int64(value);
    else
      return static_cast<int64_t>(value);
  });
}

/// Storage in the account of memory: a copy of `from`, or zeros.
std::shared_ptr<std::vector<std::byte>> charged(size_t size, const std::byte* from = nullptr) {
  struct Charged {
    MemoryCharge charge;
    std::vector<std::byte> bytes;
    Charged(size_t count, const std::byte* source) : charge(static_cast<int64_t>(count)) {
      if (source != nullptr) {
        bytes.assign(source, source + count);
      } else {
        bytes.resize(count);
      }
    }
  };
  auto made = std::make_shared<Charged>(size, from);
  return {made, &made->bytes};
}

}  // namespace

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kUndefined: return "undefined";
    case DType::kFloat: return "float32";
    case DType::kUint8: return "uint8";
    case DType::kInt8: return "int8";
    case DType::kUint16: return "uint16";
    case DType::kInt16: return "int16";
    case DType::kInt32: return "int32";
    case DType::kInt64: return "int64";
    case DType::kString: return "string";
    case DType::kBool: return "bool";
    case DType::kFloat16: return "float16";
    case DType::kDouble: return "float64";
    case DType::kUint32: return "uint32";
    case DType::kUint64: return "uint64";
    case DType::kComplex64: return "complex64";
    case DType::kComplex128: return "complex128";
    case DType::kBfloat16: return "bfloat16";
    case DType::kFloat8E4M3FN: return "float8e4m3fn";
    case DType::kFloat8E4M3FNUZ: return "float8e4m3fnuz";
    case DType::kFloat8E5M2: return "float8e5m2";
    case DType::kFloat8E5M2FNUZ: return "float8e5m2fnuz";
    case DType::kUint4: return "uint4";
    case DType::kInt4: return "int4";
    case DType::kFloat4E2M1: return "float4e2m1";
    case DType::kFloat8E8M0: return "float8e8m0";
    case DType::kUint2: return "uint2";
    case DType::kInt2: return "int2";
    case DType::kFloat6E2M3: return "float6e2m3";
    case DType::kFloat6E3M2: return "float6e3m2";
  }
  return "unknown";
}

int64_t element_bytes(DType dtype) {
  switch (dtype) {
    case DType::kUndefined:
    case DType::kString: return 0;
    case DType::kUint8:
    case DType::kInt8:
    case DType::kBool:
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2:
    case DType::kFloat8E5M2FNUZ:
    case DType::kUint4:
    case DType::kInt4:
    case DType::kFloat4E2M1:
    case DType::kFloat8E8M0:
    case DType::kUint2:
    case DType::kInt2:
    case DType::kFloat6E2M3:
    case DType::kFloat6E3M2: return 1;
    case DType::kUint16:
    case DType::kInt16:
    case DType::kFloat16:
    case DType::kBfloat16: return 2;
    case DType::kFloat:
    case DType::kInt32:
    case DType::kUint32: return 4;
    case DType::kInt64:
    case DType::kDouble:
    case DType::kUint64:
    case DType::kComplex64: return 8;
    case DType::kComplex128: return 16;
  }
  throw Error(ErrorCode::kInvalidModel,
              "element type " + std::to_string(static_cast<int>(dtype)) + " is not one of ONNX");
}

int64_t packed_bits(DType dtype) {
  switch (dtype) {
    case DType::kUint2:
    case DType::kInt2: return 2;
    case DType::kUint4:
    case DType::kInt4:
    case DType::kFloat4E2M1: return 4;
    case DType::kFloat6E2M3:
    case DType::kFloat6E3M2: return 6;
    default: return 8 * element_bytes(dtype);
  }
}

bool is_floating(DType dtype) {
  switch (dtype) {
    case DType::kFloat:
    case DType::kFloat16:
    case DType::kDouble:
    case DType::kBfloat16:
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2:
    case DType::kFloat8E5M2FNUZ:
    case DType::kFloat4E2M1:
    case DType::kFloat8E8M0:
    case DType::kFloat6E2M3:
    case DType::kFloat6E3M2: return true;
    default: return false;
  }
}

bool is_signed_integer(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kInt4:
    case DType::kInt2: return true;
    default: return false;
  }
}

bool is_integer(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
    case DType::kUint16:
    case DType::kUint32:
    case DType::kUint64:
    case DType::kUint4:
    case DType::kUint2: return true;
    default: return is_signed_integer(dtype);
  }
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ",";
    text += shape[i] < 0 ? "?" : std::to_string(shape[i]);
  }
  return text + "]";
}

int64_t element_count(const Shape& shape) {
  int64_t count = 1;
  bool zero = false;
  for (int64_t dim : shape) {
    if (dim < 0)
      throw Error(ErrorCode::kInvalidModel, "shape " + to_string(shape) + " has a negative or unknown dimension");
    if (dim == 0)
      zero = true;
    else if (__builtin_mul_overflow(count, dim, &count))
      throw Error(ErrorCode::kInvalidModel, "shape " + to_string(shape) + " has more elements than 63 bits count");
  }
  return zero ? 0 : count;
}

Tensor::Tensor(DType dtype, Shape shape) : dtype_(dtype), shape_(std::move(shape)), size_(element_count(shape_)) {
  const int64_t width = dtype == DType::kString ? static_cast<int64_t>(sizeof(std::string)) : element_bytes(dtype);
  int64_t total = 0;
  if (__builtin_mul_overflow(size_, width, &total) || total > memory_limit_bytes())
    throw Error(ErrorCode::kDoesNotFit, "a tensor of shape " + to_string(shape_) + " needs more memory than the " +
                                            std::to_string(memory_limit_bytes()) + " bytes that tensors may have");
  if (dtype == DType::kString)
    strings_ = std::make_shared<std::vector<std::string>>(static_cast<size_t>(size_));
  else
    storage_ = charged(static_cast<size_t>(total));
}

Tensor Tensor::scalar_f32(float value) { return of<float>(DType::kFloat, {}, {value}); }
Tensor Tensor::scalar_i64(int64_t value) { return of<int64_t>(DType::kInt64, {}, {value}); }
Tensor Tensor::vector_i64(const std::vector<int64_t>& values) {
  return of<int64_t>(DType::kInt64, {static_cast<int64_t>(values.size())}, values);
}

Tensor Tensor::vector_of_strings(std::vector<std::string> values) {
  Tensor result(DType::kString, {static_cast<int64_t>(values.size())});
  result.mutable_strings() = std::move(values);
  return result;
}

Tensor Tensor::reshaped(Shape shape) const {
  if (element_count(shape) != size_)
    throw Error(ErrorCode::kInvalidModel,
                "shape " + to_string(shape_) + " cannot become " + to_string(shape) + ": the element counts differ");
  Tensor result = *this;
  result.shape_ = std::move(shape);
  return result;
}

Tensor Tensor::bitcast(DType dtype) const {
  if (element_bytes(dtype) != element_bytes(dtype_) || dtype == DType::kString || dtype_ == DType::kString)
    throw Error(ErrorCode::kInvalidArgument, std::string(to_string(dtype_)) + " and " + std::string(to_string(dtype)) +
                                                 " differ in width: no bit cast");
  Tensor result = *this;
  result.dtype_ = dtype;
  return result;
}

const std::byte* Tensor::data() const {
  if (view_ != nullptr) return view_;
  return storage_ ? storage_->data() : nullptr;
}

std::byte* Tensor::mutable_data() {
  if (view_ != nullptr) {
    storage_ = charged(static_cast<size_t>(bytes()), view_);
    view_ = nullptr;
    owner_.reset();
  } else if (storage_ && storage_.use_count() > 1) {
    storage_ = charged(storage_->size(), storage_->data());
  }
  return storage_ ? storage_->data() : nullptr;
}

const std::vector<std::string>& Tensor::strings() const {
  if (!strings_)
    throw Error(ErrorCode::kInvalidModel, "a tensor of " + std::string(to_string(dtype_)) + " holds no strings");
  return *strings_;
}

std::vector<std::string>& Tensor::mutable_strings() {
  if (!strings_)
    throw Error(ErrorCode::kInvalidModel, "a tensor of " + std::string(to_string(dtype_)) + " holds no strings");
  if (strings_.use_count() > 1) strings_ = std::make_shared<std::vector<std::string>>(*strings_);
  return *strings_;
}

std::vector<int64_t> Tensor::to_int64s() const {
  std::vector<int64_t> values(static_cast<size_t>(size_));
  for (int64_t i = 0; i < size_; ++i) values[static_cast<size_t>(i)] = as_int64(dtype_, data(), i);
  return values;
}

std::vector<float> Tensor::to_floats() const {
  std::vector<float> values(static_cast<size_t>(size_));
  if (dtype_ == DType::kFloat) {
    if (size_ > 0) std::memcpy(values.data(), data(), static_cast<size_t>(bytes()));
    return values;
  }
  // From the stored type in one step: int64 through double would round twice.
  for (int64_t i = 0; i < size_; ++i)
    values[static_cast<size_t>(i)] =
        with_element(dtype_, data(), i, [](auto value) { return static_cast<float>(value); });
  return values;
}

std::vector<double> Tensor::to_doubles() const {
  std::vector<double> values(static_cast<size_t>(size_));
  for (int64_t i = 0; i < size_; ++i) values[static_cast<size_t>(i)] = as_double(dtype_, data(), i);
  return values;
}

double Tensor::at_double(int64_t index) const {
  if (index < 0 || index >= size_)
    throw Error(ErrorCode::kInvalidModel,
                "element " + std::to_string(index) + " of a tensor of shape " + to_string(shape_));
  return as_double(dtype_, data(), index);
}

int64_t Tensor::at_int64(int64_t index) const {
  if (index < 0 || index >= size_)
    throw Error(ErrorCode::kInvalidModel,
                "element " + std::to_string(index) + " of a tensor of shape " + to_string(shape_));
  return as_int64(dtype_, data(), index);
}

Tensor Tensor::view(DType dtype, Shape shape, std::shared_ptr<const void> owner, const std::byte* data) {
  if (dtype == DType::kString) throw Error(ErrorCode::kInvalidArgument, "strings cannot be viewed in raw memory");
  const int64_t size = element_count(shape);
  const int64_t width = element_bytes(dtype);
  if (width > 0 && reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(std::min<int64_t>(width, 8)) != 0) {
    // Elements are read through typed pointers, so memory that is not aligned is copied.
    Tensor copy(dtype, std::move(shape));
    if (size > 0) std::memcpy(copy.mutable_data(), data, static_cast<size_t>(size * width));
    return copy;
  }
  Tensor result;
  result.dtype_ = dtype;
  result.shape_ = std::move(shape);
  result.size_ = size;
  result.owner_ = std::move(owner);
  result.view_ = data;
  return result;
}

Value Value::make_sequence(std::vector<Value> elements) {
  Value value;
  value.kind = Kind::kSequence;
  if (!elements.empty() && elements[0].kind == Kind::kTensor) value.sequence_dtype = elements[0].tensor.dtype();
  value.sequence = std::move(elements);
  return value;
}

bool TypeInfo::is_static() const {
  if (!ranked) return false;
  for (int64_t dim : shape)
    if (dim < 0) return false;
  return true;
}

float half_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // subnormal or zero: exact
  return sign ? -magnitude : magnitude;
}

uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {                                               // below 2^-14: subnormal
    // Adding 0.5 aligns the unit in the last place of the sum with 2^-24; the addition rounds half to even.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

float bfloat16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t float_to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float float8_to_float(DType dtype, uint8_t bits) {
  const NarrowFormat format = narrow_format(dtype);
  if (format.unsigned_zero) {
    if (bits == 0x80) return std::numeric_limits<float>::quiet_NaN();
  } else if ((bits & 0x7f) > format.max_finite) {
    const bool infinite = format.has_infinity && (bits & 0x7f) == format.max_finite + 1;
    const float top = infinite ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    return std::copysign(top, (bits & 0x80) ? -1.0f : 1.0f);
  }
  const int exponent = (bits & 0x7f) >> format.mantissa_bits;
  const int fraction = bits & ((1 << format.mantissa_bits) - 1);
  const int significand = exponent == 0 ? fraction : fraction | (1 << format.mantissa_bits);
  const int scale = (exponent == 0 ? 1 : exponent) - format.bias - format.mantissa_bits;
  const float magnitude = std::ldexp(static_cast<float>(significand), scale);
  return (bits & 0x80) ? -magnitude : magnitude;
}

float float8e8m0_to_float(uint8_t bits) {
  return bits == 0xff ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, bits - 127);
}

uint8_t float_to_float8e8m0(float value, bool saturate, PowerRounding rounding) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), exponent = bits >> 23 & 0xff, fraction = bits & 0x7fffff;
  if (exponent == 0xff) return 0xff;
  // A tie goes up, but among the subnormal numbers, where the exponent 0 stands for the same power as 1.
  const bool nearest_is_above = fraction > 0x400000 || (fraction == 0x400000 && exponent > 0);
  const bool up =
      rounding == PowerRounding::kUp ? fraction != 0 : rounding == PowerRounding::kNearest && nearest_is_above;
  return static_cast<uint8_t>(exponent + (up && !(saturate && exponent == 0xfe) ? 1 : 0));
}

uint8_t float_to_float8(DType dtype, float value, bool saturate) {
  const NarrowFormat format = narrow_format(dtype);
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const auto with_sign = [&](uint8_t magnitude) -> uint8_t { return magnitude == 0x80 ? 0x80 : (sign | magnitude); };
  if (std::isnan(value)) return with_sign(format.nan);
  const auto overflow = [&]() -> uint8_t {
    if (saturate) return with_sign(format.max_finite);
    return with_sign(format.has_infinity ? static_cast<uint8_t>(format.max_finite + 1) : format.nan);
  };
  if (std::isinf(value)) return overflow();
  const float magnitude = std::fabs(value);
  if (magnitude == 0.0f) return format.unsigned_zero ? 0 : sign;
  const int exponent = std::max(std::ilogb(magnitude), 1 - format.bias);
  // Units in the last place of the target; exact in double, nearbyint rounds half to even.
  const int units =
      static_cast<int>(std::nearbyint(std::ldexp(static_cast<double>(magnitude), format.mantissa_bits - exponent)));
  // Biased exponent and fraction as one number: a carry out of the fraction steps the exponent, a subnormal has
  // exponent 0.
  const int bits = ((exponent + format.bias - 1) << format.mantissa_bits) + units;
  if (bits > format.max_finite) return overflow();
  if (bits == 0) return format.unsigned_zero ? 0 : sign;
  return static_cast<uint8_t>(sign | bits);
}

}  // namespace tessera::ops
