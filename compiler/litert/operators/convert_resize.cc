// SPDX-License-Identifier: Apache-2.0
// RESIZE_NEAREST_NEIGHBOR, RESIZE_BILINEAR, PRELU. The nearest positions are computed here, with the rounding that
// LiteRT gives to each option, so that nothing but moves remains.
#include <algorithm>
#include <cmath>

#include "compiler/litert/conversions.h"

namespace tessera::litert {
namespace {

std::vector<int64_t> size_of(Op& op) {
  const std::vector<int64_t> size = op.integers(1, "the size");
  const ops::Shape& shape = op.input(0).shape;
  if (size.size() != 2 || size[0] < 1 || size[1] < 1 || shape.size() != 4)
    op.refuse("it takes [n, h, w, c] and a size of two extents", ErrorCode::kInvalidModel);
  if (shape[1] < 1 || shape[2] < 1) op.refuse("the image's extents are open; give them when the model is converted");
  return size;
}

std::vector<int64_t> nearest(int64_t in, int64_t out, bool align_corners, bool half_pixel) {
  const float scale = align_corners && out > 1 ? static_cast<float>(in - 1) / static_cast<float>(out - 1)
                                               : static_cast<float>(in) / static_cast<float>(out);
  const float offset = half_pixel ? 0.5F : 0.0F;
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < out; ++i) {
    const float at = (static_cast<float>(i) + offset) * scale;
    const auto whole = static_cast<int64_t>(align_corners ? std::round(at) : std::floor(at));
    positions.push_back(std::clamp<int64_t>(whole, 0, in - 1));
  }
  return positions;
}

void convert_resize_nearest(Op& op) {
  using O = ResizeNearestNeighborOptions;
  const std::vector<int64_t> size = size_of(op);
  const ops::Shape& shape = op.input(0).shape;
  std::vector<int64_t> positions[2];
  bool repeats = true;  // whole factors: each pixel several times
  for (size_t d = 0; d < 2; ++d) {
    positions[d] = nearest(shape[d + 1], size[d], op.option(O::align_corners), op.option(O::half_pixel_centers));
    for (int64_t i = 0; i < size[d]; ++i)
      repeats = repeats && size[d] % shape[d + 1] == 0 &&
                positions[d][static_cast<size_t>(i)] == i / (size[d] / shape[d + 1]);
  }
  if (repeats) {
    const int64_t rows = size[0] / shape[1], columns = size[1] / shape[2];
    const std::vector<float> scales = {1, 1, static_cast<float>(rows), static_cast<float>(columns)};
    const Value factors = op.constant(ops::Tensor::of<float>(ops::DType::kFloat, {4}, scales));
    const Attributes attributes = {{"mode", std::string("nearest")},
                                   {"nearest_mode", std::string("floor")},
                                   {"coordinate_transformation_mode", std::string("asymmetric")}};
    return op.give(0, op.channels_last(op.node("Resize", {op.channels_first(op.value(0)), "", factors}, attributes)));
  }
  Value value = op.value(0);
  for (int64_t d = 0; d < 2; ++d)
    value = op.node("Gather", {value, op.ints(positions[static_cast<size_t>(d)])}, {{"axis", d + 1}});
  op.give(0, value);
}

void convert_resize_bilinear(Op& op) {
  using O = ResizeBilinearOptions;
  const std::vector<int64_t> size = size_of(op);
  const bool align_corners = op.option(O::align_corners), half_pixel = op.option(O::half_pixel_centers);
  const TensorInfo& x = op.input(0);
  if (x.is_quantised()) {
    const bool xnnpack = op.kernels() == Kernels::kXnnpack && x.type != TensorType::kInt16;
    return op.give(0, op.node("ResizeBilinear", {op.value(0)},
                              {{"size", size},
                               {"kernel", std::string(xnnpack ? "xnnpack" : "reference")},
                               {"align_corners", int64_t{align_corners ? 1 : 0}},
                               {"half_pixel_centers", int64_t{half_pixel ? 1 : 0}}},
                              kDomain));
  }
  const Value sizes =
      op.node("Concat",
              {op.node("Slice", {op.node("Shape", {op.value(0)}), op.ints({0}), op.ints({1})}),
               op.node("Slice", {op.node("Shape", {op.value(0)}), op.ints({3}), op.ints({4})}), op.ints(size)},
              {{"axis", int64_t{0}}});
  const std::string mode = align_corners ? "align_corners" : half_pixel ? "half_pixel" : "asymmetric";
  const Value image = op.node("Resize", {op.channels_first(op.real(0)), "", "", sizes},
                              {{"mode", std::string("linear")}, {"coordinate_transformation_mode", mode}});
  op.give_real(0, op.channels_last(image));
}

void convert_prelu(Op& op) {
  const TensorInfo &x = op.input(0), &slope = op.input(1), &y = op.output();
  if (!y.is_quantised()) return op.give_real(0, op.node("PRelu", {op.real(0), op.real(1)}));
  if (x.type != y.type || slope.type != y.type || !slope.quantisation.per_tensor())
    op.refuse("operands and result must be quantised in one type, each with one scale");
  const IntegerLimits limits = limits_of(y, Activation::kNone);
  Attributes attributes = {{"kernel", std::string("reference")}, {"low", limits.low}, {"high", limits.high}};
  const std::pair<const char*, const TensorInfo*> sides[] = {{"a", &x}, {"b", &slope}, {"y", &y}};
  for (const auto& [name, tensor] : sides) {
    attributes[std::string(name) + "_scale"] = tensor->quantisation.scale();
    attributes[std::string(name) + "_zero_point"] = tensor->quantisation.zero();
  }
  op.give(0, op.node("PRelu", {op.value(0), op.value(1)}, attributes, kDomain));
}

}  // namespace

void register_resize(Conversions& conversions) {
  conversions.add(BuiltinOperator::kResizeNearestNeighbor, convert_resize_nearest);
  conversions.add(BuiltinOperator::kResizeBilinear, convert_resize_bilinear);
  conversions.add(BuiltinOperator::kPrelu, convert_prelu);
}

}  // namespace tessera::litert
