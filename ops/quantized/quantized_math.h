// SPDX-License-Identifier: Apache-2.0
// Arithmetic shared by the quantised operators: rounding and saturation as the x86 vector units of the CPU oracle do
// them, quantisation parameters of a node (scalar, per axis), and 256-entry tables. docs/numerics.md states each
// formula; here they stand once, in scalar form, each fp32 operation rounded once (half to even), fma only where
// written.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ops/kernels/elementwise_kernel.h"
#include "ops/quantized/quantized_scalar.h"

namespace tessera::ops::quantized {

/// True for the integer types a quantised tensor may have (u8 s8 u16 s16 u4 s4 u2 s2).
bool is_quantized_integer(DType dtype);
bool is_8bit(DType dtype);
/// Range of an integer type of at most 16 bits.
Range range_of(DType dtype);

/// fp32 to int32, half to even; NaN and what does not fit give -2^31 (the "integer indefinite" of the vector
/// conversion).
int32_t round_to_int32(float value);
/// RNE(clamp(x / scale, low - zero, high - zero)) + zero; NaN gives low.
int32_t quantize(float x, float scale, int32_t zero, Range range);
/// RNE(clamp(float(accumulator) * multiplier, low - zero, high - zero)) + zero; NaN gives low.
int32_t requantize(int32_t accumulator, float multiplier, int32_t zero, Range range);
/// scale * float(x - zero).
float dequantize(int32_t x, float scale, int32_t zero);

/// Elements of an integer tensor of at most 32 bits as int32.
std::vector<int32_t> to_int32s(const Tensor& tensor);
/// A tensor of an integer type of at most 16 bits (or int32) from values in its range.
Tensor from_int32s(DType dtype, const Shape& shape, std::span<const int32_t> values);

/// Calls f(Tag<T>) with the C++ type of 8 bits.
template <typename F>
void visit_bytes(DType dtype, F&& f) {
  dtype == DType::kUint8 ? f(kernel::Tag<uint8_t>{}) : f(kernel::Tag<int8_t>{});
}

/// A tensor of 8 bits less its zero point, as int32. The zero point (nullptr: none) has one element, or broadcasts to x
/// from the shape `as`.
Tensor without_zero(const Tensor& x, const Tensor* zero, const Shape& as);

/// One fp32 quantisation scale of a node: input `index` must hold exactly one fp32 element. Throws through node.fail().
float scalar_scale(const EvalContext& context, size_t index, const char* what);
/// The zero point at input `index`, which must hold one element of type `dtype`; 0 when the input is absent.
int32_t scalar_zero(const EvalContext& context, size_t index, DType dtype, const char* what);
/// fp32 elements of input `index`; its size must be 1 or `count`. The result always has `count` elements.
std::vector<float> channel_scales(const EvalContext& context, size_t index, int64_t count, const char* what);
/// The same for zero points of type `dtype`; zeros when absent.
std::vector<int32_t> channel_zeros(const EvalContext& context, size_t index, int64_t count, DType dtype,
                                   const char* what);

/// Table t[byte of x] = Q(f(DQ(x))) over all 256 values of an 8-bit type; index and entry are the low 8 bits.
std::array<uint8_t, 256> build_table(DType dtype, float x_scale, int32_t x_zero, float y_scale, int32_t y_zero,
                                     const std::function<float(float)>& f);
Tensor apply_table(const Tensor& x, const std::array<uint8_t, 256>& table);

/// True when the innermost run of a broadcast binary operator sees `a` as one scalar. The run lies along the last axis,
/// among those both operands have, whose extent is not 1 (or along the first of these if all are 1).
bool first_is_scalar(const Shape& a, const Shape& b);

/// 1 / (1 + exp(-x)) as the oracle's vector kernel computes it: a rational approximation in fma steps.
float logistic(float x);
/// tanh(x) likewise.
float hyperbolic_tangent(float x);

/// Parameters of dynamic quantisation to uint8 of a range that is first widened to include 0.
struct DynamicParameters {
  float scale = 1.0f;
  int32_t zero = 0;
};
DynamicParameters dynamic_parameters(std::span<const float> x);

/// One scale and zero point of a node, at inputs `scale` and scale + 1; the latter has type `dtype`.
struct Parameters {
  float scale;
  int32_t zero;
  Parameters(const EvalContext& context, size_t scale, DType dtype)
      : scale(scalar_scale(context, scale, "a scale")), zero(scalar_zero(context, scale + 1, dtype, "a zero point")) {}
};

// Inference helpers.
inline const std::vector<DType> kBytes = {DType::kUint8, DType::kInt8};
/// The type of input i where it is known, else kBytes.
std::vector<DType> bytes_as(const InferContext& context, size_t i);
/// Throws unless inputs `scale` and scale + 1 are a float32 scale and a zero point of one of `dtypes`, one element
/// each.
void expect_parameters(const InferContext& context, size_t scale, const std::vector<DType>& dtypes);
/// A tensor type with the shape of `x`, as far as it is known.
TypeInfo same_shape(const TypeInfo& x, DType dtype);
/// Throws unless input i is absent or of one of `dtypes` (an unknown element type passes).
void expect_dtype(const InferContext& context, size_t i, const std::vector<DType>& dtypes, const char* what);
/// Throws unless input i is absent or can hold exactly one element.
void expect_scalar(const InferContext& context, size_t i, const char* what);

}  // namespace tessera::ops::quantized
