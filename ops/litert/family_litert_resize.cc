// SPDX-License-Identifier: Apache-2.0
// ResizeBilinear of domain litert: images [n, h, w, c] of 8 or 16 bits, each pixel a sum of four by integer weights.
// XNNPACK's weights have 11 fraction bits, the reference kernel's 10.
#include <algorithm>
#include <cmath>

#include "ops/quantized/quantized_math.h"

namespace tessera::ops {
namespace {

using namespace quantized;

/// Two neighbours along an axis and how much the second weighs.
struct Tap {
  int64_t first, second, weight;
};

/// Of XNNPACK: positions in float32.
Tap tap_xnnpack(int64_t at, int64_t in, int64_t out, bool align_corners, bool half_pixel) {
  const int64_t less = align_corners && out > 1 ? 1 : 0;
  const float scale = static_cast<float>(in - less) / static_cast<float>(out - less);
  float place = static_cast<float>(at) * scale;
  if (half_pixel && !align_corners) place += 0.5F * scale - 0.5F;
  place = std::clamp(place, 0.0F, static_cast<float>(in - 1));
  const auto first = static_cast<int64_t>(place);
  const float rest = place - static_cast<float>(first);
  return {first, std::min(first + 1, in - 1), static_cast<int64_t>(std::nearbyint(rest * 2048.0F))};
}

/// Of the reference kernel: positions with 10 fraction bits.
Tap tap_reference(int64_t at, int64_t in, int64_t out, bool align_corners, bool half_pixel) {
  const int64_t scale =
      align_corners && out > 1 ? (1024 * (in - 1) + (out - 1) / 2) / (out - 1) : (1024 * in + out / 2) / out;
  const int64_t place = at * scale + (half_pixel ? scale / 2 - 512 : 0);
  const int64_t first = std::max<int64_t>(place / 1024, 0);
  return {first, std::min((place + 1023) / 1024, in - 1), place - 1024 * first};
}

/// Of the reference kernel for uint8: float32, halves upwards.
struct FloatTap {
  int64_t first, second;
  float rest;
  FloatTap(int64_t at, int64_t in, int64_t out, bool align_corners, bool half_pixel) {
    const float scale = align_corners && out > 1 ? static_cast<float>(in - 1) / static_cast<float>(out - 1)
                                                 : static_cast<float>(in) / static_cast<float>(out);
    const float place = half_pixel ? (static_cast<float>(at) + 0.5F) * scale - 0.5F : static_cast<float>(at) * scale;
    first = std::max<int64_t>(static_cast<int64_t>(std::floor(place)), 0);
    second = std::min(static_cast<int64_t>(std::ceil(place)), in - 1);
    rest = place - static_cast<float>(first);
  }
};

void infer_resize(InferContext& context) {
  const Node& node = context.node;
  expect_dtype(context, 0, {DType::kUint8, DType::kInt8, DType::kInt16}, "X");
  const std::vector<int64_t> size = node.get_ints("size");
  if (size.size() != 2 || size[0] < 1 || size[1] < 1)
    node.fail(ErrorCode::kInvalidModel, "attribute 'size' must hold two extents");
  const TypeInfo& x = context.input(0);
  if (x.ranked && x.shape.size() != 4) node.fail(ErrorCode::kInvalidModel, "X must be [n, h, w, c]");
  Shape shape = {-1, size[0], size[1], -1};
  if (x.ranked) shape[0] = x.shape[0], shape[3] = x.shape[3];
  context.outputs[0] = TypeInfo::tensor(x.dtype, shape);
}

void evaluate_resize(EvalContext& context) {
  const Node& node = context.node;
  const Tensor& x = context.input(0);
  const std::vector<int64_t> size = node.get_ints("size");
  const bool xnnpack = node.get_string("kernel", "xnnpack") == "xnnpack", align = node.get_int("align_corners", 0) != 0,
             half = node.get_int("half_pixel_centers", 0) != 0;
  const int64_t n = x.shape()[0], h = x.shape()[1], w = x.shape()[2], c = x.shape()[3];
  if (h < 1 || w < 1) node.fail(ErrorCode::kInvalidModel, "X has no pixel");
  const auto tap = xnnpack ? tap_xnnpack : tap_reference;
  const std::vector<int32_t> from = to_int32s(x);
  std::vector<int32_t> to;
  to.reserve(static_cast<size_t>(n * size[0] * size[1] * c));
  for (int64_t image = 0; image < n; ++image)
    for (int64_t i = 0; i < size[0]; ++i) {
      const Tap row = tap(i, h, size[0], align, half);
      for (int64_t j = 0; j < size[1]; ++j) {
        const Tap column = tap(j, w, size[1], align, half);
        for (int64_t channel = 0; channel < c; ++channel) {
          const auto at = [&](int64_t r, int64_t k) {
            return int64_t{from[static_cast<size_t>(((image * h + r) * w + k) * c + channel)]};
          };
          if (!xnnpack && x.dtype() == DType::kUint8) {
            const FloatTap r(i, h, size[0], align, half), k(j, w, size[1], align, half);
            const auto pixel = [&](int64_t y, int64_t z) { return static_cast<float>(at(y, z)); };
            const float sum = pixel(r.first, k.first) * (1 - r.rest) * (1 - k.rest) +
                              pixel(r.second, k.first) * r.rest * (1 - k.rest) +
                              pixel(r.first, k.second) * (1 - r.rest) * k.rest +
                              pixel(r.second, k.second) * r.rest * k.rest;
            to.push_back(std::clamp(static_cast<int32_t>(std::floor(sum + 0.5F)), 0, 255));
            continue;
          }
          const int64_t one = xnnpack ? 2048 : 1024;
          const auto across = [&](int64_t r) {
            return at(r, column.first) * (one - column.weight) + at(r, column.second) * column.weight;
          };
          const int64_t sum = across(row.first) * (one - row.weight) + across(row.second) * row.weight;
          const int64_t half_unit = one * one / 2;
          to.push_back(static_cast<int32_t>(xnnpack ? (sum + half_unit) >> 22
                                                    : (sum + (sum > 0 ? half_unit : -half_unit)) / (one * one)));
        }
      }
    }
  context.outputs[0] = from_int32s(x.dtype(), {n, size[0], size[1], c}, to);
}

}  // namespace

void register_litert_resize(Registry& registry) {
  kernel::add_operator(registry, "litert", "ResizeBilinear", 1, {1, 1}, infer_resize, evaluate_resize,
                       {"size", "kernel", "align_corners", "half_pixel_centers"});
}

}  // namespace tessera::ops
