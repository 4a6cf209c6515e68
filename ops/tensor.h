// SPDX-License-Identifier: Apache-2.0
// Values of an ONNX graph as plain C++: element types, dense row-major tensors, sequences and optionals, and the static
// knowledge about a value that shape inference propagates (TypeInfo). No MLIR here, so that the compiler, the reference
// interpreter, constant folding and the runtime share one meaning of every operator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::ops {

/// Element types with the numbers of ONNX TensorProto.DataType.
enum class DType : uint8_t {
  kUndefined = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUint32 = 12,
  kUint64 = 13,
  kComplex64 = 14,
  kComplex128 = 15,
  kBfloat16 = 16,
  kFloat8E4M3FN = 17,
  kFloat8E4M3FNUZ = 18,
  kFloat8E5M2 = 19,
  kFloat8E5M2FNUZ = 20,
  kUint4 = 21,
  kInt4 = 22,
  kFloat4E2M1 = 23,
  kFloat8E8M0 = 24,  // powers of two, for scales; no sign, no zero
  kUint2 = 25,
  kInt2 = 26,
  kFloat6E2M3 = 27,
  kFloat6E3M2 = 28,
};

/// The greatest of these numbers.
inline constexpr int64_t kLastDType = static_cast<int64_t>(DType::kFloat6E3M2);

/// "float32", "uint8", ...
std::string_view to_string(DType dtype);
/// Bits of one element as ONNX packs them in a file; 0 for strings.
int64_t packed_bits(DType dtype);
/// Bytes of one element in a Tensor: types of fewer than eight bits take one byte each; strings have 0.
int64_t element_bytes(DType dtype);
bool is_floating(DType dtype);  // all float formats
bool is_integer(DType dtype);   // signed and unsigned integers, not bool
bool is_signed_integer(DType dtype);

using Shape = std::vector<int64_t>;
/// "[1,3,224,?]"; -1 prints as ?.
std::string to_string(const Shape& shape);
/// Product of the dimensions; 1 for a scalar. Throws Error kInvalidModel on overflow or a negative dimension.
int64_t element_count(const Shape& shape);

/// A dense row-major tensor. Copies share storage; mutable_data() on shared storage copies first.
class Tensor {
 public:
  Tensor() = default;
  /// Zero-filled (strings empty). Errors: kInvalidModel for a negative extent, kDoesNotFit beyond ops/limits.h.
  Tensor(DType dtype, Shape shape);
  template <typename T>
  static Tensor of(DType dtype, Shape shape, const std::vector<T>& values);
  static Tensor scalar_f32(float value);
  static Tensor scalar_i64(int64_t value);
  static Tensor vector_i64(const std::vector<int64_t>& values);
  static Tensor vector_of_strings(std::vector<std::string> values);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t rank() const { return static_cast<int64_t>(shape_.size()); }
  int64_t size() const { return size_; }  // elements
  int64_t bytes() const { return size_ * element_bytes(dtype_); }
  /// Same storage under another shape of the same element count.
  Tensor reshaped(Shape shape) const;
  /// Same bytes under another element type of the same width.
  Tensor bitcast(DType dtype) const;

  const std::byte* data() const;
  std::byte* mutable_data();
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data()), static_cast<size_t>(size_)};
  }
  template <typename T>
  std::span<T> as_mutable() {
    return {reinterpret_cast<T*>(mutable_data()), static_cast<size_t>(size_)};
  }
  const std::vector<std::string>& strings() const;
  std::vector<std::string>& mutable_strings();

  /// Elements converted to the asked type, whatever the element type (floats of any width, integers, bool).
  std::vector<int64_t> to_int64s() const;
  std::vector<float> to_floats() const;
  std::vector<double> to_doubles() const;
  double at_double(int64_t index) const;
  int64_t at_int64(int64_t index) const;

  /// A view on memory owned elsewhere (kept alive by `owner`).
  static Tensor view(DType dtype, Shape shape, std::shared_ptr<const void> owner, const std::byte* data);

 private:
  DType dtype_ = DType::kUndefined;
  Shape shape_;
  int64_t size_ = 0;
  std::shared_ptr<std::vector<std::byte>> storage_;
  std::shared_ptr<const void> owner_;
  const std::byte* view_ = nullptr;
  std::shared_ptr<std::vector<std::string>> strings_;
};

/// A run-time value: a tensor, a sequence, or an absent optional.
struct Value {
  enum class Kind : uint8_t { kNone, kTensor, kSequence } kind = Kind::kNone;
  Tensor tensor;
  std::vector<Value> sequence;
  DType sequence_dtype = DType::kUndefined;  // element type of an empty sequence

  Value() = default;
  Value(Tensor t) : kind(Kind::kTensor), tensor(std::move(t)) {}  // NOLINT: implicit on purpose
  static Value make_sequence(std::vector<Value> elements);
  bool is_none() const { return kind == Kind::kNone; }
};

/// What is known about a value before running: -1 marks an unknown dimension; `constant` its content when it is known.
struct TypeInfo {
  enum class Kind : uint8_t { kTensor, kSequence, kOptional } kind = Kind::kTensor;
  DType dtype = DType::kUndefined;
  bool ranked = false;
  Shape shape;
  std::optional<Tensor> constant;
  bool present = true;  // false: an omitted optional input

  static TypeInfo tensor(DType dtype, Shape shape) {
    TypeInfo t;
    t.dtype = dtype;
    t.ranked = true;
    t.shape = std::move(shape);
    return t;
  }
  static TypeInfo unranked(DType dtype) {
    TypeInfo t;
    t.dtype = dtype;
    return t;
  }
  static TypeInfo of(const Tensor& value) {
    TypeInfo t = tensor(value.dtype(), value.shape());
    t.constant = value;
    return t;
  }
  static TypeInfo absent() {
    TypeInfo t;
    t.present = false;
    return t;
  }
  bool is_static() const;  // ranked and every dimension known
};

// fp16, bfloat16 and fp8 conversions, all round half to even.
float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);
float bfloat16_to_float(uint16_t bits);
uint16_t float_to_bfloat16(float value);
float float8_to_float(DType dtype, uint8_t bits);
uint8_t float_to_float8(DType dtype, float value, bool saturate);

/// float8e8m0: the exponent alone; 0xff is NaN. A value between two powers of two goes to the larger one (kUp), the
/// smaller one (kDown) or the nearer one; its sign is dropped. What lies beyond 2^127 becomes 2^127 where `saturate`,
/// else NaN; infinities become NaN. Source: onnx.numpy_helper.to_float8e8m0, with all bits of the fraction.
enum class PowerRounding { kUp, kDown, kNearest };
float float8e8m0_to_float(uint8_t bits);
uint8_t float_to_float8e8m0(float value, bool saturate, PowerRounding rounding);

template <typename T>
Tensor Tensor::of(DType dtype, Shape shape, const std::vector<T>& values) {
  Tensor t(dtype, std::move(shape));
  auto out = t.as_mutable<T>();
  for (size_t i = 0; i < out.size(); ++i) out[i] = values.at(i);
  return t;
}

}  // namespace tessera::ops
