// SPDX-License-Identifier: Apache-2.0
// Conversions between element types and the operators that make constants: Cast, CastLike, BitCast, Constant,
// ConstantOfShape, EyeLike, Range, Shape, Size. Floats to integers truncate; a value outside the target, which ONNX
// leaves undefined, gives what the conversion instructions of x86-64 give, as ONNX Runtime does. Narrow floats are
// reached through fp32, rounded half to even; integers of 2 and 4 bits round half away from zero and keep their low
// bits. Strings print with eight significant digits.
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

using namespace kernel;

// ------------------------------------------------------------------------------------------------- numbers

/// Truncation to int32 or int64; NaN and values outside give the smallest integer.
template <typename I>
I truncate(double value) {
  const double limit = std::ldexp(1.0, 8 * sizeof(I) - 1);
  if (!(value > -limit - 1) || !(value < limit)) return std::numeric_limits<I>::min();
  return static_cast<I>(value);
}

template <typename D, typename S>
D convert(S value) {
  if constexpr (std::is_floating_point_v<S> && std::is_integral_v<D>) {
    const double wide = static_cast<double>(value);
    if constexpr (std::is_same_v<D, uint64_t> || std::is_same_v<D, uint32_t>) {
      // Through the signed type, the upper half moved down and its sign bit set again.
      using I = std::make_signed_t<D>;
      const double half = std::ldexp(1.0, 8 * sizeof(D) - 1);
      if (wide >= half) return static_cast<D>(truncate<I>(wide - half)) ^ (D{1} << (8 * sizeof(D) - 1));
      return static_cast<D>(truncate<I>(wide));
    } else if constexpr (std::is_same_v<D, int64_t>) {
      return truncate<int64_t>(wide);
    } else {
      return static_cast<D>(truncate<int32_t>(wide));
    }
  } else {
    return static_cast<D>(value);
  }
}

/// The low bits as the stored byte of an integer of 2 or 4 bits, signed ones with their sign.
uint8_t low_bits(int64_t value, DType dtype) {
  const int64_t sign = int64_t{1} << (packed_bits(dtype) - 1), low = value & (2 * sign - 1);
  return static_cast<uint8_t>(is_signed_integer(dtype) ? (low ^ sign) - sign : low);
}

/// Nearest value of float4e2m1 (ties to the even code), saturating; NaN, which the format lacks, gives -0.
uint8_t float_to_float4(float value) {
  if (std::isnan(value)) return 8;
  const uint8_t sign = std::signbit(value) ? 8 : 0;
  const float m = std::fabs(value);
  if (m > 5.0f) return sign | 7;
  // Midpoints between neighbours; a tie goes to the code whose last bit is 0.
  if (m <= 0.25f) return sign | 0;
  if (m < 0.75f) return sign | 1;
  if (m <= 1.25f) return sign | 2;
  if (m < 1.75f) return sign | 3;
  if (m <= 2.5f) return sign | 4;
  if (m < 3.5f) return sign | 5;
  return sign | 6;
}

/// The same for the formats of 6 bits.
uint8_t float_to_float6(DType dtype, float value) {
  if (std::isnan(value)) return 32;
  const int mantissa_bits = dtype == DType::kFloat6E2M3 ? 3 : 2, bias = dtype == DType::kFloat6E2M3 ? 1 : 3;
  const uint8_t sign = std::signbit(value) ? 32 : 0;
  const float magnitude = std::fabs(value), smallest = std::ldexp(1.0f, 1 - bias);
  // Below the smallest normal number the steps stay as they are there.
  const int exponent = magnitude < smallest ? 1 - bias : std::ilogb(magnitude);
  if (exponent + bias > 7) return sign | 31;
  const float steps = std::nearbyintf(std::ldexp(magnitude, mantissa_bits - exponent));
  const int code = static_cast<int>(steps) + ((exponent + bias - 1) << mantissa_bits);
  return static_cast<uint8_t>(sign | std::min(code, 31));
}

// ------------------------------------------------------------------------------------------------- strings

std::string print_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "INF" : "-INF";
  char text[40];
  std::snprintf(text, sizeof(text), "%.8g", value);
  return text;
}

template <typename D>
D parse(const Node& node, const std::string& text) {
  char* end = nullptr;
  errno = 0;
  D value;
  if constexpr (std::is_same_v<D, float>)
    value = std::strtof(text.c_str(), &end);
  else if constexpr (std::is_same_v<D, double>)
    value = std::strtod(text.c_str(), &end);
  else if constexpr (std::is_unsigned_v<D>)
    value = static_cast<D>(std::strtoull(text.c_str(), &end, 10));
  else
    value = static_cast<D>(std::strtoll(text.c_str(), &end, 10));
  const bool overflow = std::is_integral_v<D> && errno == ERANGE;
  if (end == text.c_str() || overflow)
    node.fail(ErrorCode::kInvalidArgument, "string '" + text + "' is no number of the asked type");
  return value;
}

// --------------------------------------------------------------------------------------------------- cast

/// Elements as D, an arithmetic type, whatever the (non-narrow) element type of `in`.
template <typename D>
Tensor to_arithmetic(const Node& node, const Tensor& in, DType result) {
  Tensor out(result, in.shape());
  D* y = mutable_elements<D>(out);
  const auto from = [&]<typename T>(Tag<T>) {
    using S = T;
    const S* x = elements<S>(in);
    for (int64_t i = 0; i < in.size(); ++i) y[i] = convert<D>(x[i]);
  };
  switch (in.dtype()) {
    case DType::kString:
      for (int64_t i = 0; i < in.size(); ++i) y[i] = parse<D>(node, in.strings()[static_cast<size_t>(i)]);
      return out;
    case DType::kBool: {
      const uint8_t* x = elements<uint8_t>(in);
      for (int64_t i = 0; i < in.size(); ++i) y[i] = static_cast<D>(x[i] != 0);
      return out;
    }
    case DType::kInt2:
    case DType::kInt4: from(Tag<int8_t>{}); return out;
    case DType::kUint2:
    case DType::kUint4: from(Tag<uint8_t>{}); return out;
    default: break;
  }
  visit_arithmetic(node, in.dtype(), from);
  return out;
}

Tensor to_strings(const Node& node, const Tensor& in) {
  Tensor out(DType::kString, in.shape());
  std::vector<std::string>& y = out.mutable_strings();
  for (int64_t i = 0; i < in.size(); ++i) {
    std::string& text = y[static_cast<size_t>(i)];
    if (is_floating(in.dtype()))
      text = print_number(in.at_double(i));
    else if (in.dtype() == DType::kUint64)
      text = std::to_string(elements<uint64_t>(in)[i]);
    else
      text = std::to_string(in.at_int64(i));
  }
  return out;
}

Tensor to_bool(const Node& node, const Tensor& in) {
  Tensor out(DType::kBool, in.shape());
  uint8_t* y = mutable_elements<uint8_t>(out);
  if (in.dtype() == DType::kString) {
    for (int64_t i = 0; i < in.size(); ++i) y[i] = parse<int64_t>(node, in.strings()[static_cast<size_t>(i)]) != 0;
  } else {
    for (int64_t i = 0; i < in.size(); ++i) y[i] = in.at_double(i) != 0;
  }
  return out;
}

Tensor to_few_bits(const Node& node, const Tensor& in, DType to) {
  Tensor out(to, in.shape());
  uint8_t* y = mutable_elements<uint8_t>(out);
  const Tensor source = in.dtype() == DType::kString ? to_arithmetic<double>(node, in, DType::kDouble) : in;
  for (int64_t i = 0; i < in.size(); ++i) {
    if (to == DType::kFloat4E2M1)
      y[i] = float_to_float4(static_cast<float>(source.at_double(i)));
    else if (is_floating(to))
      y[i] = float_to_float6(to, static_cast<float>(source.at_double(i)));
    else if (is_floating(source.dtype()))
      y[i] = low_bits(truncate<int32_t>(std::round(source.at_double(i))), to);
    else
      y[i] = low_bits(source.at_int64(i), to);
  }
  return out;
}

PowerRounding power_rounding(const Node& node) {
  const std::string mode = node.get_string("round_mode", "up");
  if (mode == "up") return PowerRounding::kUp;
  if (mode == "down") return PowerRounding::kDown;
  if (mode == "nearest") return PowerRounding::kNearest;
  node.fail(ErrorCode::kInvalidModel, "round_mode '" + mode + "' is none of up, down, nearest");
}

Tensor cast(const Node& node, const Tensor& given, DType to) {
  if (given.dtype() == to) return given;
  if (to == DType::kString) return to_strings(node, given);
  if (to == DType::kBool) return to_bool(node, given);
  if (packed_bits(to) < 8) return to_few_bits(node, given, to);
  const Tensor in = widen(given);
  if (!is_narrow_float(to)) {
    Tensor out;
    if (!visit_arithmetic(to, [&]<typename T>(Tag<T>) { out = to_arithmetic<T>(node, in, to); }))
      unsupported_type(node, to);
    return out;
  }
  const Tensor wide = in.dtype() == DType::kFloat ? in : to_arithmetic<float>(node, in, DType::kFloat);
  if (to == DType::kFloat16 || to == DType::kBfloat16) return narrow(wide, to);
  const bool saturate = node.get_int("saturate", 1) != 0;
  Tensor out(to, in.shape());
  uint8_t* y = mutable_elements<uint8_t>(out);
  const float* x = elements<float>(wide);
  if (to == DType::kFloat8E8M0) {
    const PowerRounding rounding = power_rounding(node);
    for (int64_t i = 0; i < wide.size(); ++i) y[i] = float_to_float8e8m0(x[i], saturate, rounding);
    return out;
  }
  for (int64_t i = 0; i < wide.size(); ++i) y[i] = float_to_float8(to, x[i], saturate);
  return out;
}

constexpr TypeSet kCastable =
    kNumeric | kFloat8s | kBoolSet |
    set_of({DType::kString, DType::kInt4, DType::kUint4, DType::kFloat4E2M1, DType::kFloat8E8M0, DType::kUint2,
            DType::kInt2, DType::kFloat6E2M3, DType::kFloat6E3M2});

/// Attribute `name` as an element type; throws Error kInvalidModel for a number that names none.
DType type_attribute(const Node& node, const char* name, int64_t fallback) {
  const int64_t to = node.get_int(name, fallback);
  if (to <= 0 || to > kLastDType)
    node.fail(ErrorCode::kInvalidModel,
              "attribute '" + std::string(name) + "' = " + std::to_string(to) + " is no element type");
  return static_cast<DType>(to);
}

void infer_to(InferContext& c, DType to) {
  const DType from = c.input(0).dtype;
  if (from != to) {
    require_type(c.node, from, kCastable, "input");
    require_type(c.node, to, kCastable, "result");
  }
  c.outputs[0] = without_constant(c.input(0), to);
}

void infer_bit_cast(InferContext& c) {
  const DType from = c.input(0).dtype, to = type_attribute(c.node, "to", 0);
  if (from == DType::kString || to == DType::kString ||
      (from != DType::kUndefined && packed_bits(from) != packed_bits(to)))
    c.node.fail(ErrorCode::kInvalidModel,
                std::string(to_string(from)) + " and " + std::string(to_string(to)) + " differ in width");
  c.outputs[0] = without_constant(c.input(0), to);
}

/// Integers of fewer than eight bits are stored with their sign, which goes or comes.
Tensor bit_cast(const Tensor& in, DType to) {
  Tensor out = in.bitcast(to);
  if (packed_bits(to) < 8 && is_signed_integer(in.dtype()) != is_signed_integer(to)) {
    const int64_t mask = (int64_t{1} << packed_bits(to)) - 1;
    for (uint8_t& element : out.as_mutable<uint8_t>())
      element = is_integer(to) ? low_bits(element, to) : static_cast<uint8_t>(element & mask);
  }
  return out;
}

void register_casts(Registry& r) {
  const auto evaluate = [](EvalContext& c, const std::vector<TypeInfo>& types) {
    c.outputs[0] = cast(c.node, c.input(0), types[0].dtype);
  };
  const InferFunction infer_cast = [](InferContext& c) { infer_to(c, type_attribute(c.node, "to", 0)); };
  const InferFunction infer_like = [](InferContext& c) { infer_to(c, c.input(1).dtype); };
  add(r, "Cast", 6, kOne, infer_cast, evaluate, {"to"});
  add(r, "Cast", 19, kOne, infer_cast, evaluate, {"to", "saturate"});
  add(r, "Cast", 24, kOne, infer_cast, evaluate, {"to", "saturate", "round_mode"});
  add(r, "CastLike", 15, kTwo, infer_like, evaluate);
  add(r, "CastLike", 19, kTwo, infer_like, evaluate, {"saturate"});
  add(r, "CastLike", 24, kTwo, infer_like, evaluate, {"saturate", "round_mode"});
  add(r, "BitCast", 26, kOne, infer_bit_cast,
      [](EvalContext& c, const std::vector<TypeInfo>& types) { c.outputs[0] = bit_cast(c.input(0), types[0].dtype); },
      {"to"});
}

// ----------------------------------------------------------------------------------------------- constants

Tensor constant_of(const Node& node) {
  if (const Tensor* value = node.get_tensor("value")) return *value;
  if (const Tensor* value = node.get_tensor("sparse_value")) return *value;  // dense by the time it is an attribute
  if (node.has("value_float")) return Tensor::scalar_f32(node.get_float("value_float", 0));
  if (node.has("value_int")) return Tensor::scalar_i64(node.get_int("value_int", 0));
  if (node.has("value_ints")) return Tensor::vector_i64(node.get_ints("value_ints"));
  if (node.has("value_floats")) {
    const std::vector<float> values = node.get_floats("value_floats");
    return Tensor::of<float>(DType::kFloat, {static_cast<int64_t>(values.size())}, values);
  }
  if (node.has("value_string") || node.has("value_strings")) {
    const bool scalar = node.has("value_string");
    std::vector<std::string> values =
        scalar ? std::vector<std::string>{node.get_string("value_string", "")} : node.get_strings("value_strings");
    Tensor out(DType::kString, scalar ? Shape{} : Shape{static_cast<int64_t>(values.size())});
    out.mutable_strings() = std::move(values);
    return out;
  }
  node.fail(ErrorCode::kInvalidModel,
            "none of the attributes value, value_float(s), value_int(s), value_string(s) is given");
}

Tensor filler(const Node& node) {
  const Tensor* value = node.get_tensor("value");
  if (value == nullptr) return Tensor::scalar_f32(0);
  if (value->size() != 1)
    node.fail(ErrorCode::kInvalidModel,
              "attribute 'value' must hold one element, not shape " + to_string(value->shape()));
  return *value;
}

void infer_constant_of_shape(InferContext& c) {
  const DType dtype = filler(c.node).dtype();
  require_type(c.node, c.input(0).dtype, kInt64Set, "shape");
  require_rank(c.node, c.input(0), 1, "shape");
  if (const auto dims = known_ints(c, 0)) {
    for (int64_t d : *dims)
      if (d < 0) c.node.fail(ErrorCode::kInvalidModel, "negative dimension in shape " + to_string(*dims));
    c.outputs[0] = TypeInfo::tensor(dtype, *dims);
  } else {
    const int64_t rank = known_length(c, 0);
    c.outputs[0] = rank < 0 ? TypeInfo::unranked(dtype) : of_rank(dtype, rank);
  }
}

void evaluate_constant_of_shape(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor value = filler(c.node);
  c.outputs[0] = gather_strided(value, types[0].shape, 0, std::vector<int64_t>(types[0].shape.size(), 0));
}

void infer_eye_like(InferContext& c) {
  const TypeInfo& in = c.input(0);
  require_rank(c.node, in, 2, "input");
  const DType dtype = c.node.has("dtype") ? type_attribute(c.node, "dtype", 1) : in.dtype;
  require_type(c.node, dtype, kNumeric | kBoolSet, "result");
  c.outputs[0] = in.ranked ? without_constant(in, dtype) : of_rank(dtype, 2);
}

void evaluate_eye_like(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Shape& shape = types[0].shape;
  Tensor out(types[0].dtype, shape);
  const Tensor one = cast(c.node, Tensor::scalar_f32(1), types[0].dtype);
  const int64_t k = std::clamp(c.node.get_int("k", 0), -kSizeLimit, kSizeLimit);
  visit_storage(out.dtype(), [&]<typename T>(Tag<T>) {
    T* y = mutable_elements<T>(out);
    for (int64_t row = 0; row < shape[0]; ++row)
      if (row + k >= 0 && row + k < shape[1]) y[row * shape[1] + row + k] = elements<T>(one)[0];
  });
  c.outputs[0] = std::move(out);
}

/// Number of elements of Range. Throws for a zero step.
int64_t range_count(const Node& node, const Tensor& start, const Tensor& limit, const Tensor& delta) {
  for (const Tensor* t : {&start, &limit, &delta})
    if (t->size() != 1)
      node.fail(ErrorCode::kInvalidModel, "start, limit and delta must be scalars, not shape " + to_string(t->shape()));
  if (delta.at_double(0) == 0) node.fail(ErrorCode::kInvalidArgument, "delta is 0");
  if (is_floating(start.dtype())) {
    const double count = std::ceil((limit.at_double(0) - start.at_double(0)) / delta.at_double(0));
    if (std::isnan(count) || count > 1e12)
      node.fail(ErrorCode::kInvalidArgument, "the range has no finite number of elements");
    return count > 0 ? static_cast<int64_t>(count) : 0;
  }
  const __int128 step = delta.at_int64(0), span = static_cast<__int128>(limit.at_int64(0)) - start.at_int64(0);
  if ((span > 0) != (step > 0) || span == 0) return 0;
  const __int128 count = (span + step - (step > 0 ? 1 : -1)) / step;
  if (count > (__int128{1} << 40)) node.fail(ErrorCode::kDoesNotFit, "the range has too many elements");
  return static_cast<int64_t>(count);
}

void infer_range(InferContext& c) {
  require_type(c.node, c.input(0).dtype, kNumeric, "start");
  require_same_type(c.node, c.input(0), c.input(1));
  require_same_type(c.node, c.input(0), c.input(2));
  int64_t count = -1;
  if (c.input(0).constant && c.input(1).constant && c.input(2).constant)
    count = range_count(c.node, *c.input(0).constant, *c.input(1).constant, *c.input(2).constant);
  c.outputs[0] = TypeInfo::tensor(c.input(0).dtype, {count});
}

void evaluate_range(EvalContext& c, const std::vector<TypeInfo>& types) {
  const int64_t stash = c.node.get_int("stash_type", 1);
  if (stash != 1 && contains(kFloats, c.input(0).dtype()))
    c.node.fail(ErrorCode::kUnsupported, "stash_type " + std::to_string(stash) + " is not 1 (float)");
  const Tensor delta = widen(c.input(2));
  c.outputs[0] = in_numbers(c.node, c.input(0), types[0], [&]<typename T>(const T* start, T* y) {
    const T first = start[0], step = elements<T>(delta)[0];
    for (int64_t i = 0; i < types[0].shape[0]; ++i) y[i] = wrap_add<T>(first, wrap_mul<T>(static_cast<T>(i), step));
  });
}

// ------------------------------------------------------------------------------------------- Shape and Size

void infer_shape(InferContext& c) {
  const TypeInfo& in = c.input(0);
  if (!in.ranked) {
    c.outputs[0] = TypeInfo::tensor(DType::kInt64, {-1});
    return;
  }
  const int64_t rank = static_cast<int64_t>(in.shape.size());
  const auto clamp = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const int64_t start = clamp(c.node.get_int("start", 0)), end = std::max(start, clamp(c.node.get_int("end", rank)));
  const std::vector<int64_t> dims(in.shape.begin() + start, in.shape.begin() + end);
  if (std::all_of(dims.begin(), dims.end(), [](int64_t d) { return d >= 0; }))
    c.outputs[0] = TypeInfo::of(Tensor::vector_i64(dims));
  else
    c.outputs[0] = TypeInfo::tensor(DType::kInt64, {end - start});
}

void infer_size(InferContext& c) {
  const int64_t count = c.input(0).ranked ? product(c.input(0).shape) : -1;
  c.outputs[0] = count >= 0 ? TypeInfo::of(Tensor::scalar_i64(count)) : TypeInfo::tensor(DType::kInt64, {});
}

}  // namespace

void register_cast(Registry& r) {
  register_casts(r);
  const Kernel inferred = [](EvalContext& c, const std::vector<TypeInfo>& types) { c.outputs[0] = *types[0].constant; };
  const InferFunction infer_constant = [](InferContext& c) { c.outputs[0] = TypeInfo::of(constant_of(c.node)); };
  add(r, "Constant", 1, {0, 0}, infer_constant, inferred, {"value"});
  add(r, "Constant", 11, {0, 0}, infer_constant, inferred, {"value", "sparse_value"});
  add(r, "Constant", 12, {0, 0}, infer_constant, inferred,
      {"value", "sparse_value", "value_float", "value_floats", "value_int", "value_ints", "value_string",
       "value_strings"});
  add(r, "ConstantOfShape", 9, kOne, infer_constant_of_shape, evaluate_constant_of_shape, {"value"});
  add(r, "EyeLike", 9, kOne, infer_eye_like, evaluate_eye_like, {"dtype", "k"});
  add(r, "Range", 11, {3, 3}, infer_range, evaluate_range);
  add(r, "Range", 27, {3, 3}, infer_range, evaluate_range, {"stash_type"});
  add(r, "Shape", 1, kOne, infer_shape, inferred);
  add(r, "Shape", 15, kOne, infer_shape, inferred, {"start", "end"});
  add(r, "Size", 1, kOne, infer_size, inferred);
}

}  // namespace tessera::ops
