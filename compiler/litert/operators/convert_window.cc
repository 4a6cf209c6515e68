// SPDX-License-Identifier: Apache-2.0
// Float operators of windows beside convolutions and pools of images: CONV_3D, CONV_3D_TRANSPOSE, L2_POOL_2D; spectra;
// random numbers; constants that are stored sparse.
#include <algorithm>

#include "compiler/litert/build.h"

namespace tessera::litert {
namespace {

using ops::DType;

Activation fused(Op& op, const Field<int8_t>& field) { return static_cast<Activation>(op.option(field)); }

std::string padding_name(int8_t padding) {
  return static_cast<Padding>(padding) == Padding::kSame ? "SAME_UPPER" : "VALID";
}

/// What SAME adds on each side of the three axes, the larger half behind.
std::vector<int64_t> pads_of(Op& op, const ops::Shape& x, const ops::Shape& w, const std::vector<int64_t>& strides,
                             const std::vector<int64_t>& dilations) {
  std::vector<int64_t> pads(6, 0);
  if (static_cast<Padding>(op.option(Conv3DOptions::padding)) != Padding::kSame) return pads;
  for (size_t i = 0; i < 3; ++i) {
    if (strides[i] < 1 || dilations[i] < 1) op.refuse("strides must be positive", ErrorCode::kInvalidModel);
    const int64_t results = (x[i + 1] + strides[i] - 1) / strides[i],
                  span = sum_of(op, product_of(op, w[i] - 1, dilations[i]), 1),
                  missing = std::max<int64_t>(0, (results - 1) * strides[i] + span - x[i + 1]);
    pads[i] = missing / 2;
    pads[i + 3] = missing - pads[i];
  }
  return pads;
}

/// Images [n, d, h, w, c]; weights [d, h, w, in / group, out].
void convert_conv_3d(Op& op) {
  using O = Conv3DOptions;
  const ops::Shape &x = fixed_shape(op, 0), &w = fixed_shape(op, 1);
  if (x.size() != 5 || w.size() != 5 || w[3] < 1 || x[4] < 1 || x[4] % w[3] != 0)
    op.refuse("the channels do not divide into groups", ErrorCode::kInvalidModel);
  const std::vector<int64_t> strides = {op.option(O::stride_d), op.option(O::stride_h), op.option(O::stride_w)},
                             dilations = {op.option(O::dilation_d_factor), op.option(O::dilation_h_factor),
                                          op.option(O::dilation_w_factor)};
  const Attributes attributes = {{"strides", strides},
                                 {"dilations", dilations},
                                 {"group", x[4] / w[3]},
                                 {"pads", pads_of(op, x, w, strides, dilations)}};
  Values operands = {op.channels_first(op.real(0), 5), op.transpose(op.real(1), {4, 3, 0, 1, 2})};
  if (op.has(2)) operands.push_back(op.real(2));
  const Value y = op.channels_last(op.node("Conv", operands, attributes), 5);
  op.give_real(0, op.activate(y, fused(op, O::fused_activation_function)));
}

/// Operands: the result's shape, weights [d, h, w, out, in], images. What SAME cuts is cut in halves, the larger one
/// behind.
void convert_conv_3d_transpose(Op& op) {
  using O = Conv3DOptions;
  const std::vector<int64_t> shape = op.integers(0, "the shape of the result"),
                             strides = {op.option(O::stride_d), op.option(O::stride_h), op.option(O::stride_w)};
  const ops::Shape &w = fixed_shape(op, 1), &x = fixed_shape(op, 2);
  if (shape.size() != 5 || w.size() != 5 || x.size() != 5)
    op.refuse("images and weights must have five axes", ErrorCode::kInvalidModel);
  std::vector<int64_t> front, behind, beyond;
  for (size_t i = 0; i < 3; ++i) {
    const int64_t full = sum_of(op, product_of(op, x[i + 1] - 1, strides[i]), w[i]),
                  surplus = sum_of(op, full, product_of(op, shape[i + 1], -1));
    front.push_back(std::max<int64_t>(surplus, 0) / 2);
    behind.push_back(std::max<int64_t>(surplus, 0) - front.back());
    beyond.push_back(std::max<int64_t>(-surplus, 0));
  }
  front.insert(front.end(), behind.begin(), behind.end());
  Values operands = {op.channels_first(op.real(2), 5), op.transpose(op.real(1), {4, 3, 0, 1, 2})};
  if (op.has(3)) operands.push_back(op.real(3));
  const Attributes attributes = {{"strides", strides}, {"pads", front}, {"output_padding", beyond}};
  const Value y = op.channels_last(op.node("ConvTranspose", operands, attributes), 5);
  op.give_real(0, op.activate(y, fused(op, O::fused_activation_function)));
}

/// The root of the mean of squares.
void convert_l2_pool(Op& op) {
  using O = Pool2DOptions;
  require_window(op, op.option(O::filter_height), op.option(O::filter_width));
  const Value x = op.channels_first(op.real(0));
  const Attributes attributes = {
      {"kernel_shape", std::vector<int64_t>{op.option(O::filter_height), op.option(O::filter_width)}},
      {"strides", std::vector<int64_t>{op.option(O::stride_h), op.option(O::stride_w)}},
      {"auto_pad", padding_name(op.option(O::padding))}};
  const Value mean = op.node("AveragePool", {op.node("Mul", {x, x})}, attributes);
  const Value y = op.channels_last(op.node("Sqrt", {mean}));
  op.give_real(0, op.activate(y, fused(op, O::fused_activation_function)));
}

void convert_rfft2d(Op& op) {
  op.give(0, op.node("Rfft2d", {op.real(0)}, {{"length", op.integers(1, "the length")}}, kDomain));
}

Conversion complex_part(const char* name) {
  return [name](Op& op) { op.give(0, op.node(name, {op.value(0)}, {}, kDomain)); };
}

/// LiteRT's generator is another one, so that only the distribution is the same.
Conversion random_numbers(const char* name) {
  return [name](Op& op) {
    const Value shape = filled(op, int64_value(op, 0), op.scalar(DType::kFloat, 0));
    op.give_real(0, op.node(name, {shape}, {{"dtype", static_cast<int64_t>(DType::kFloat)}}));
  };
}

void convert_multinomial(Op& op) {
  const std::vector<int64_t> samples = op.integers(1, "the number of samples");
  if (samples.size() != 1) op.refuse("the number of samples must be a scalar", ErrorCode::kInvalidModel);
  const Attributes attributes = {{"sample_size", samples[0]}, {"dtype", static_cast<int64_t>(op.output_dtype())}};
  op.give(0, op.node("Multinomial", {op.real(0)}, attributes));
}

/// The content of a constant is dense when it is read.
void convert_densify(Op& op) { op.give(0, op.value(0)); }

}  // namespace

void register_window(Conversions& conversions) {
  using B = BuiltinOperator;
  conversions.add(B::kConv3d, convert_conv_3d);
  conversions.add(B::kConv3dTranspose, convert_conv_3d_transpose);
  conversions.add(B::kL2Pool2d, convert_l2_pool);
  conversions.add(B::kRfft2d, convert_rfft2d);
  conversions.add(B::kReal, complex_part("Real"));
  conversions.add(B::kImag, complex_part("Imag"));
  conversions.add(B::kComplexAbs, complex_part("ComplexAbs"));
  conversions.add(B::kRandomUniform, random_numbers("RandomUniformLike"));
  conversions.add(B::kRandomStandardNormal, random_numbers("RandomNormalLike"));
  conversions.add(B::kMultinomial, convert_multinomial);
  conversions.add(B::kDensify, convert_densify);
}

}  // namespace tessera::litert
