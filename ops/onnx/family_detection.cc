// SPDX-License-Identifier: Apache-2.0
// Object detection: NonMaxSuppression (greedy choice of boxes for each batch and class, by falling score, ties by
// position) and RoiAlign (bilinear samples on a regular grid in each bin of each region).
#include <cmath>
#include <numeric>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

using namespace kernel;

// ------------------------------------------------------------------------------------------- NonMaxSuppression

void infer_nms(InferContext& c) {
  const TypeInfo &boxes = c.input(0), &scores = c.input(1);
  require_type(c.node, boxes.dtype, set_of({DType::kFloat}), "boxes");
  require_type(c.node, scores.dtype, set_of({DType::kFloat}), "scores");
  require_rank(c.node, boxes, 3, "boxes");
  require_rank(c.node, scores, 3, "scores");
  const auto differ = [](int64_t a, int64_t b) { return a >= 0 && b >= 0 && a != b; };
  if (boxes.ranked && differ(boxes.shape[2], 4))
    c.node.fail(ErrorCode::kInvalidModel, "boxes must have four coordinates, not shape " + to_string(boxes.shape));
  if (boxes.ranked && scores.ranked &&
      (differ(boxes.shape[0], scores.shape[0]) || differ(boxes.shape[1], scores.shape[2])))
    c.node.fail(ErrorCode::kInvalidModel,
                "boxes " + to_string(boxes.shape) + " and scores " + to_string(scores.shape) + " do not fit");
  for (size_t i = 2; i < 5; ++i) {
    if (!c.has(i)) continue;
    require_type(c.node, c.inputs[i].dtype, i == 2 ? kInt64Set : set_of({DType::kFloat}), "a limit");
    if (c.inputs[i].is_static() && element_count(c.inputs[i].shape) != 1)
      c.node.fail(ErrorCode::kInvalidModel, "a limit must be a scalar");
  }
  const int64_t mode = c.node.get_int("center_point_box", 0);
  if (mode != 0 && mode != 1) c.node.fail(ErrorCode::kInvalidModel, "center_point_box must be 0 or 1");
  c.outputs[0] = TypeInfo::tensor(DType::kInt64, {-1, 3});
}

struct Box {
  float low[2], high[2];
};

Box read_box(const float* p, bool centre) {
  if (centre) return {{p[0] - p[2] / 2, p[1] - p[3] / 2}, {p[0] + p[2] / 2, p[1] + p[3] / 2}};  // x, y, width, height
  return {{std::min(p[0], p[2]), std::min(p[1], p[3])},
          {std::max(p[0], p[2]), std::max(p[1], p[3])}};  // any two opposite corners
}

/// Whether intersection over union exceeds the threshold; boxes without area never do.
bool overlap(const Box& a, const Box& b, float threshold) {
  float intersection = 1, area_a = 1, area_b = 1;
  for (int d = 0; d < 2; ++d) {
    const float width = std::min(a.high[d], b.high[d]) - std::max(a.low[d], b.low[d]);
    if (!(width > 0)) return false;
    intersection *= width;
    area_a *= a.high[d] - a.low[d];
    area_b *= b.high[d] - b.low[d];
  }
  const float together = area_a + area_b - intersection;
  return area_a > 0 && area_b > 0 && together > 0 && intersection / together > threshold;
}

void evaluate_nms(EvalContext& c, const std::vector<TypeInfo>&) {
  const Tensor &boxes = c.input(0), &scores = c.input(1);
  const int64_t batches = scores.shape()[0], classes = scores.shape()[1], count = boxes.shape()[1];
  const int64_t most = c.has(2) ? std::max<int64_t>(0, c.input(2).at_int64(0)) : 0;
  const float iou = c.has(3) ? elements<float>(c.input(3))[0] : 0.0f;
  if (!(iou >= 0 && iou <= 1)) c.node.fail(ErrorCode::kInvalidArgument, "iou_threshold must lie in [0, 1]");
  const bool limited = c.has(4), centre = c.node.get_int("center_point_box", 0) == 1;
  const float least = limited ? elements<float>(c.input(4))[0] : 0.0f;
  std::vector<int64_t> selected;
  for (int64_t b = 0; b < batches; ++b) {
    std::vector<Box> read;
    for (int64_t i = 0; i < count; ++i) read.push_back(read_box(elements<float>(boxes) + (b * count + i) * 4, centre));
    for (int64_t k = 0; k < classes; ++k) {
      const float* score = elements<float>(scores) + (b * classes + k) * count;
      std::vector<int64_t> order;
      for (int64_t i = 0; i < count; ++i)
        if (score[i] == score[i] && (!limited || score[i] > least)) order.push_back(i);  // a NaN is no score
      std::stable_sort(order.begin(), order.end(), [&](int64_t p, int64_t q) { return score[p] > score[q]; });
      std::vector<int64_t> kept;
      for (int64_t i : order) {
        if (static_cast<int64_t>(kept.size()) >= most) break;
        const bool suppressed = std::any_of(kept.begin(), kept.end(), [&](int64_t other) {
          return overlap(read[static_cast<size_t>(i)], read[static_cast<size_t>(other)], iou);
        });
        if (suppressed) continue;
        kept.push_back(i);
        selected.insert(selected.end(), {b, k, i});
      }
    }
  }
  c.outputs[0] = Tensor::of<int64_t>(DType::kInt64, {static_cast<int64_t>(selected.size() / 3), 3}, selected);
}

// ---------------------------------------------------------------------------------------------------- RoiAlign

/// Samples in one bin; more are no region but a mistake in its coordinates.
constexpr double kMaxSamples = 1 << 20;

void infer_roi_align(InferContext& c) {
  const TypeInfo &in = c.input(0), &rois = c.input(1), &batch = c.input(2);
  require_type(c.node, in.dtype, kFloats, "X");
  require_same_type(c.node, in, rois);
  require_type(c.node, batch.dtype, kInt64Set, "batch_indices");
  require_rank(c.node, in, 4, "X");
  require_rank(c.node, rois, 2, "rois");
  require_rank(c.node, batch, 1, "batch_indices");
  if (rois.ranked && rois.shape[1] >= 0 && rois.shape[1] != 4)
    c.node.fail(ErrorCode::kInvalidModel, "rois must have four coordinates");
  const int64_t height = c.node.get_int("output_height", 1), width = c.node.get_int("output_width", 1);
  if (height < 1 || width < 1) c.node.fail(ErrorCode::kInvalidModel, "output_height and output_width must be positive");
  if (c.node.get_int("sampling_ratio", 0) < 0)
    c.node.fail(ErrorCode::kInvalidModel, "sampling_ratio must not be negative");
  const std::string mode = c.node.get_string("mode", "avg"),
                    transform = c.node.get_string("coordinate_transformation_mode", "half_pixel");
  if (mode != "avg" && mode != "max")
    c.node.fail(ErrorCode::kInvalidModel, "mode '" + mode + "' is neither avg nor max");
  if (transform != "half_pixel" && transform != "output_half_pixel")
    c.node.fail(ErrorCode::kInvalidModel,
                "coordinate_transformation_mode '" + transform + "' is neither half_pixel nor output_half_pixel");
  int64_t regions = rois.ranked ? rois.shape[0] : -1;
  const int64_t indices = batch.ranked ? batch.shape[0] : -1;
  if (regions >= 0 && indices >= 0 && regions != indices)
    c.node.fail(ErrorCode::kInvalidModel, "rois and batch_indices differ in number");
  if (regions < 0) regions = indices;
  c.outputs[0] = TypeInfo::tensor(in.dtype, {regions, in.ranked ? in.shape[1] : -1, height, width});
}

/// Four neighbours of a sample and their weights; no weights outside the image.
template <typename T>
struct Sample {
  int64_t at[4] = {0, 0, 0, 0};
  T weight[4] = {0, 0, 0, 0};
};

template <typename T>
Sample<T> sample_at(T y, T x, int64_t height, int64_t width) {
  Sample<T> s;
  if (!(y >= -1 && y <= static_cast<T>(height) && x >= -1 && x <= static_cast<T>(width))) return s;
  const auto neighbours = [](T& v, int64_t size, int64_t& low, int64_t& high) {
    v = std::max<T>(v, 0);
    low = static_cast<int64_t>(v);
    high = low + 1;
    if (low >= size - 1) {
      low = high = size - 1;
      v = static_cast<T>(low);
    }
  };
  int64_t y0, y1, x0, x1;
  neighbours(y, height, y0, y1);
  neighbours(x, width, x0, x1);
  const T ly = y - static_cast<T>(y0), lx = x - static_cast<T>(x0), hy = 1 - ly, hx = 1 - lx;
  s.at[0] = y0 * width + x0, s.at[1] = y0 * width + x1, s.at[2] = y1 * width + x0, s.at[3] = y1 * width + x1;
  s.weight[0] = hy * hx, s.weight[1] = hy * lx, s.weight[2] = ly * hx, s.weight[3] = ly * lx;
  return s;
}

/// A region of interest in pixels, cut into bins, each of which is sampled in a grid.
template <typename T>
struct Region {
  T x, y, bin_width, bin_height;
  int64_t samples_x, samples_y;  // of a bin

  std::vector<Sample<T>> samples(int64_t bin_y, int64_t bin_x, int64_t height, int64_t width) const {
    std::vector<Sample<T>> all;
    const auto place = [](T begin, int64_t bin, T size, int64_t sample, int64_t samples) {
      return begin + static_cast<T>(bin) * size + (static_cast<T>(sample) + T(0.5)) * size / static_cast<T>(samples);
    };
    for (int64_t i = 0; i < samples_y; ++i) {
      for (int64_t k = 0; k < samples_x; ++k)
        all.push_back(sample_at<T>(place(y, bin_y, bin_height, i, samples_y), place(x, bin_x, bin_width, k, samples_x),
                                   height, width));
    }
    return all;
  }
};

/// `roi`: x1, y1, x2, y2. `ratio`: samples of a bin along each axis; 0: one for each pixel.
template <typename T>
Region<T> region_of(const Node& node, const T* roi, int64_t number, bool half_pixel, int64_t ratio, int64_t bins_y,
                    int64_t bins_x) {
  const T scale = static_cast<T>(node.get_float("spatial_scale", 1.0f)), offset = half_pixel ? T(0.5) : T(0);
  Region<T> region;
  region.x = roi[0] * scale - offset;
  region.y = roi[1] * scale - offset;
  T width = roi[2] * scale - offset - region.x, height = roi[3] * scale - offset - region.y;
  if (!half_pixel) width = std::max<T>(width, 1), height = std::max<T>(height, 1);
  region.bin_width = width / static_cast<T>(bins_x);
  region.bin_height = height / static_cast<T>(bins_y);
  const auto grid = [&](T size) {
    return ratio > 0 ? static_cast<double>(ratio) : std::max(0.0, std::ceil(static_cast<double>(size)));
  };
  const double grid_y = grid(region.bin_height), grid_x = grid(region.bin_width);
  if (!(grid_y * grid_x <= kMaxSamples))
    node.fail(ErrorCode::kInvalidArgument, "region " + std::to_string(number) + " is too large or not finite");
  region.samples_y = static_cast<int64_t>(grid_y);
  region.samples_x = static_cast<int64_t>(grid_x);
  return region;
}

template <typename T>
T pool_samples(const std::vector<Sample<T>>& samples, const T* image, bool average) {
  T result = 0;
  for (size_t s = 0; s < samples.size(); ++s) {
    T term[4];
    for (int k = 0; k < 4; ++k) term[k] = samples[s].weight[k] * image[samples[s].at[k]];
    // The standard's maximum goes over the weighted neighbours, not over the interpolated samples.
    const T most = std::max(std::max(term[0], term[1]), std::max(term[2], term[3]));
    if (average)
      result += term[0] + term[1] + term[2] + term[3];
    else
      result = s == 0 ? most : std::max(result, most);
  }
  return average ? result / static_cast<T>(std::max<int64_t>(1, static_cast<int64_t>(samples.size()))) : result;
}

template <typename T>
void align_regions(EvalContext& c, const Tensor& in, const Tensor& rois, Tensor& out) {
  const std::vector<int64_t> batch = c.input(2).to_int64s();
  const bool half_pixel =
      c.node.version >= 16 && c.node.get_string("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  const bool average = c.node.get_string("mode", "avg") == "avg";
  const int64_t ratio = c.node.get_int("sampling_ratio", 0), channels = in.shape()[1], height = in.shape()[2],
                width = in.shape()[3], bins_y = out.shape()[2], bins_x = out.shape()[3];
  for (int64_t n = 0; n < out.shape()[0]; ++n) {
    const int64_t picture = batch[static_cast<size_t>(n)];
    if (picture < 0 || picture >= in.shape()[0])
      c.node.fail(ErrorCode::kInvalidArgument, "batch index " + std::to_string(picture) + " lies outside X");
    const Region<T> region = region_of<T>(c.node, elements<T>(rois) + n * 4, n, half_pixel, ratio, bins_y, bins_x);
    for (int64_t bin = 0; bin < bins_y * bins_x; ++bin) {
      const std::vector<Sample<T>> samples = region.samples(bin / bins_x, bin % bins_x, height, width);
      for (int64_t ch = 0; ch < channels; ++ch) {
        const T* image = elements<T>(in) + (picture * channels + ch) * height * width;
        mutable_elements<T>(out)[(n * channels + ch) * bins_y * bins_x + bin] = pool_samples(samples, image, average);
      }
    }
  }
}

void evaluate_roi_align(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor in = widen(c.input(0)), rois = widen(c.input(1));
  Tensor out(in.dtype(), types[0].shape);
  if (out.size() != 0) {
    if (in.shape()[2] == 0 || in.shape()[3] == 0)
      c.node.fail(ErrorCode::kInvalidModel, "X of shape " + to_string(in.shape()) + " has no pixels");
    visit_float(in.dtype(), [&]<typename T>(Tag<T>) { align_regions<T>(c, in, rois, out); });
  }
  c.outputs[0] = narrow(std::move(out), types[0].dtype);
}

}  // namespace

void register_detection(Registry& r) {
  add(r, "NonMaxSuppression", 10, {2, 5}, infer_nms, evaluate_nms, {"center_point_box"});
  const std::set<std::string> attributes{"mode", "output_height", "output_width", "sampling_ratio", "spatial_scale"};
  add(r, "RoiAlign", 10, {3, 3}, infer_roi_align, evaluate_roi_align, attributes);
  std::set<std::string> more = attributes;
  more.insert("coordinate_transformation_mode");
  add(r, "RoiAlign", 16, {3, 3}, infer_roi_align, evaluate_roi_align, more);
}

}  // namespace tessera::ops
