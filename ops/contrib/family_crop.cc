// SPDX-License-Identifier: Apache-2.0
// CropAndResize of com.microsoft, which is TensorFlow's: regions of images, each resized to one size.
#include <cmath>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

namespace crop {

using kernel::elements;
using kernel::mutable_elements;

/// Height and width of the results, where they are known.
Shape size_of(const Node& node, const TypeInfo& crop_size) {
  kernel::require_type(node, crop_size.dtype, kernel::set_of({DType::kInt32}), "crop_size");
  kernel::require_rank(node, crop_size, 1, "crop_size");
  if (!crop_size.constant) return {-1, -1};
  const std::vector<int64_t> size = crop_size.constant->to_int64s();
  if (size.size() != 2 || size[0] < 1 || size[1] < 1)
    node.fail(ErrorCode::kInvalidModel, "crop_size must hold a height and a width of at least 1");
  return size;
}

void infer_crop(InferContext& c) {
  const TypeInfo &x = c.input(0), &regions = c.input(1), &images = c.input(2);
  for (const TypeInfo* t : {&x, &regions})
    kernel::require_type(c.node, t->dtype, kernel::set_of({DType::kFloat}), "X and the regions");
  kernel::require_type(c.node, images.dtype, kernel::set_of({DType::kInt32}), "batch_indices");
  kernel::require_rank(c.node, x, 4, "X");
  kernel::require_rank(c.node, regions, 2, "the regions");
  kernel::require_rank(c.node, images, 1, "batch_indices");
  const std::string mode = c.node.get_string("mode", "bilinear");
  if (mode != "bilinear" && mode != "nearest")
    c.node.fail(ErrorCode::kInvalidModel, "attribute 'mode' = '" + mode + "' is neither bilinear nor nearest");
  if (regions.ranked && regions.shape[1] >= 0 && regions.shape[1] != 4)
    c.node.fail(ErrorCode::kInvalidModel, "the regions must have 4 columns, not " + to_string(regions.shape));
  int64_t count = images.ranked ? images.shape[0] : -1;
  if (regions.ranked && regions.shape[0] >= 0) {
    if (count >= 0 && count != regions.shape[0])
      c.node.fail(ErrorCode::kInvalidModel, "batch_indices " + to_string(images.shape) +
                                                " do not have one image for "
                                                "each of the regions " +
                                                to_string(regions.shape));
    count = regions.shape[0];
  }
  const Shape size = size_of(c.node, c.input(3));
  c.outputs[0] = TypeInfo::tensor(DType::kFloat, {count, x.ranked ? x.shape[1] : -1, size[0], size[1]});
}

/// Where result `i` of `count` reads along an axis of `extent` elements, for a region from `begin` to `end`.
float place(float begin, float end, int64_t extent, int64_t i, int64_t count) {
  const auto last = static_cast<float>(extent - 1);
  if (count == 1) return static_cast<float>(0.5 * static_cast<double>(begin + end) * static_cast<double>(last));
  if (i == 0) return begin * last;
  if (i == count - 1) return end * last;
  return begin * last + static_cast<float>(i) * ((end - begin) * last / static_cast<float>(count - 1));
}

void evaluate_crop(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor& x = c.input(0);
  const Shape in = x.shape(), out = types[0].shape;
  const bool bilinear = c.node.get_string("mode", "bilinear") == "bilinear";
  Tensor result(DType::kFloat, out);
  float* y = mutable_elements<float>(result);
  const std::vector<int64_t> images = c.input(2).to_int64s();
  for (int64_t r = 0; r < out[0]; ++r) {
    const int64_t image = images[static_cast<size_t>(r)];
    if (image < 0 || image >= in[0])
      c.node.fail(ErrorCode::kInvalidArgument, "batch_indices has image " + std::to_string(image) + " of " +
                                                   std::to_string(in[0]) + "; give one of these");
    const float* const region = elements<float>(c.input(1)) + r * 4;  // y1, x1, y2, x2 of an image from 0 to 1
    for (int64_t channel = 0; channel < out[1]; ++channel) {
      const float* const plane = elements<float>(x) + (image * in[1] + channel) * in[2] * in[3];
      for (int64_t h = 0; h < out[2]; ++h) {
        const float v = place(region[0], region[2], in[2], h, out[2]);
        for (int64_t w = 0; w < out[3]; ++w) {
          const float u = place(region[1], region[3], in[3], w, out[3]);
          if (!(v >= 0 && v <= static_cast<float>(in[2] - 1) && u >= 0 && u <= static_cast<float>(in[3] - 1))) {
            *y++ = c.node.get_float("extrapolation_value", 0);
            continue;
          }
          const auto at = [&](float row, float column) {
            return plane[static_cast<int64_t>(row) * in[3] + static_cast<int64_t>(column)];
          };
          if (!bilinear) {
            *y++ = at(std::round(v), std::round(u));
            continue;
          }
          const float above = std::floor(v), below = std::ceil(v), left = std::floor(u), right = std::ceil(u);
          const float top = at(above, left) + (at(above, right) - at(above, left)) * (u - left);
          const float bottom = at(below, left) + (at(below, right) - at(below, left)) * (u - left);
          *y++ = top + (bottom - top) * (v - above);
        }
      }
    }
  }
  c.outputs[0] = std::move(result);
}

}  // namespace crop

}  // namespace

void register_crop(Registry& registry) {
  kernel::add(registry, "CropAndResize", 1, {4, 4}, crop::infer_crop, crop::evaluate_crop,
              {"extrapolation_value", "mode"}, kernel::kOne, kMicrosoft);
}

}  // namespace tessera::ops
