// SPDX-License-Identifier: Apache-2.0
// Detection as LiteRT's kernels do it: NonMaxSuppression over one class, hard or soft, and DetectionPostProcess, the
// custom operator of SSD networks, which decodes boxes from anchors and suppresses by class or by the best classes of
// each anchor. Domain litert. Unused results are zero.
#include <cmath>
#include <numeric>
#include <queue>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

using namespace kernel;

/// Corners y, x, y, x.
struct Corners {
  float v[4];
};

float overlap(const Corners& a, const Corners& b) {
  const auto low = [](const Corners& c, int d) { return std::min(c.v[d], c.v[d + 2]); };
  const auto high = [](const Corners& c, int d) { return std::max(c.v[d], c.v[d + 2]); };
  const auto area = [&](const Corners& c) { return (high(c, 0) - low(c, 0)) * (high(c, 1) - low(c, 1)); };
  const float area_a = area(a), area_b = area(b);
  if (!(area_a > 0 && area_b > 0)) return 0;
  const float height = std::max(0.0F, std::min(high(a, 0), high(b, 0)) - std::max(low(a, 0), low(b, 0))),
              width = std::max(0.0F, std::min(high(a, 1), high(b, 1)) - std::max(low(a, 1), low(b, 1)));
  const float common = height * width;
  return common / (area_a + area_b - common);
}

// ------------------------------------------------------------------------------------------- NonMaxSuppression

/// boxes [n, 4], scores [n], the number of results, thresholds of overlap and score, and sigma, 0 for hard suppression.
/// Results: indices and scores of that number, and how many of them are used.
void infer_suppression(InferContext& c) {
  const TypeInfo &boxes = c.input(0), &scores = c.input(1), &most = c.input(2);
  require_type(c.node, boxes.dtype, set_of({DType::kFloat}), "boxes");
  require_type(c.node, scores.dtype, set_of({DType::kFloat}), "scores");
  require_type(c.node, most.dtype, kInt64Set, "the number of results");
  require_rank(c.node, boxes, 2, "boxes");
  require_rank(c.node, scores, 1, "scores");
  if (boxes.is_static() && scores.is_static() && (boxes.shape[0] != scores.shape[0] || boxes.shape[1] != 4))
    c.node.fail(ErrorCode::kInvalidModel,
                "boxes " + to_string(boxes.shape) + " and scores " + to_string(scores.shape) + " do not fit");
  int64_t count = -1;
  if (most.constant && most.constant->size() == 1) count = std::max<int64_t>(0, most.constant->at_int64(0));
  c.outputs[0] = TypeInfo::tensor(DType::kInt32, {count});
  c.outputs[1] = TypeInfo::tensor(DType::kFloat, {count});
  c.outputs[2] = TypeInfo::tensor(DType::kInt32, {});
}

struct Candidate {
  int32_t index;
  float score;
  size_t seen;  // of the selected boxes, those that it was compared with
};

struct Worse {
  bool operator()(const Candidate& a, const Candidate& b) const { return a.score < b.score; }
};

struct Limits {
  float overlap, score, sigma;
};

/// Whether the candidate is gone; soft suppression lowers its score.
bool suppressed(Candidate& next, const std::vector<Candidate>& selected, const Corners* boxes, const Limits& limits) {
  for (size_t j = selected.size(); j-- > next.seen;) {
    const float common = overlap(boxes[next.index], boxes[selected[j].index]);
    if (common >= limits.overlap) return true;
    if (limits.sigma > 0) next.score *= std::exp(-0.5F / limits.sigma * common * common);
    if (next.score <= limits.score) break;
  }
  next.seen = selected.size();
  return false;
}

void evaluate_suppression(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor &boxes = c.input(0), &scores = c.input(1);
  const auto number = [&](size_t i) { return static_cast<float>(c.input(i).at_double(0)); };
  const Limits limits{number(3), number(4), number(5)};
  const auto most = static_cast<size_t>(types[0].shape[0]);
  const auto* corners = reinterpret_cast<const Corners*>(boxes.data());
  std::priority_queue<Candidate, std::vector<Candidate>, Worse> queue;
  for (int64_t i = 0; i < scores.size(); ++i)
    if (const float score = elements<float>(scores)[i]; score > limits.score)
      queue.push({static_cast<int32_t>(i), score, 0});
  std::vector<Candidate> selected;
  while (selected.size() < most && !queue.empty()) {
    Candidate next = queue.top();
    queue.pop();
    const float before = next.score;
    if (suppressed(next, selected, corners, limits)) continue;
    if (next.score == before)
      selected.push_back(next);
    else if (next.score > limits.score)
      queue.push(next);
  }
  Tensor indices(DType::kInt32, types[0].shape), kept(DType::kFloat, types[1].shape), used(DType::kInt32, {});
  for (size_t i = 0; i < selected.size(); ++i) {
    mutable_elements<int32_t>(indices)[i] = selected[i].index;
    mutable_elements<float>(kept)[i] = selected[i].score;
  }
  mutable_elements<int32_t>(used)[0] = static_cast<int32_t>(selected.size());
  c.outputs = {Value(indices), Value(kept), Value(used)};
}

// --------------------------------------------------------------------------------------- DetectionPostProcess

/// encodings [1, n, 4 or more], scores [1, n, classes, with or without one for the background], anchors [n, 4] as
/// centre y, x, height, width. Results: boxes [1, m, 4], classes [1, m], scores [1, m], and [1] how many are used, with
/// m = max_detections * max_classes_per_detection.
void infer_detection(InferContext& c) {
  const char* names[] = {"encodings", "scores", "anchors"};
  for (size_t i = 0; i < 3; ++i) {
    require_type(c.node, c.input(i).dtype, set_of({DType::kFloat}), names[i]);
    require_rank(c.node, c.input(i), i == 2 ? 2 : 3, names[i]);
  }
  const int64_t most = c.node.get_int("max_detections", 0), each = c.node.get_int("max_classes_per_detection", 1),
                classes = c.node.get_int("num_classes", 0);
  if (most < 1 || each < 1 || classes < 1 || most > kSizeLimit / each)
    c.node.fail(ErrorCode::kInvalidModel, "the numbers of detections and classes must be positive");
  const TypeInfo &encodings = c.input(0), &scores = c.input(1), &anchors = c.input(2);
  if (encodings.is_static() && scores.is_static() && anchors.is_static()) {
    const int64_t background = scores.shape[2] - classes;
    if (encodings.shape[0] != 1 || scores.shape[0] != 1 || encodings.shape[1] != scores.shape[1] ||
        anchors.shape[0] != scores.shape[1] || encodings.shape[2] < 4 || anchors.shape[1] != 4 || background < 0 ||
        background > 1)
      c.node.fail(ErrorCode::kInvalidModel, "encodings " + to_string(encodings.shape) + ", scores " +
                                                to_string(scores.shape) + " and anchors " + to_string(anchors.shape) +
                                                " do not fit");
  }
  c.outputs[0] = TypeInfo::tensor(DType::kFloat, {1, most * each, 4});
  c.outputs[1] = c.outputs[2] = TypeInfo::tensor(DType::kFloat, {1, most * each});
  c.outputs[3] = TypeInfo::tensor(DType::kFloat, {1});
}

/// The positions of the `count` largest values, the first of equal ones first.
std::vector<size_t> largest(const std::vector<float>& values, size_t count) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] > values[b]; });
  order.resize(std::min(count, order.size()));
  return order;
}

struct Detection {
  size_t anchor, label;
  float score;
};

class Detector {
 public:
  explicit Detector(EvalContext& c)
      : node_(c.node),
        scores_(elements<float>(c.input(1))),
        columns_(static_cast<size_t>(c.input(1).shape()[2])),
        classes_(static_cast<size_t>(c.node.get_int("num_classes", 0))),
        most_(static_cast<size_t>(c.node.get_int("max_detections", 0))) {
    const Tensor& encodings = c.input(0);
    const int64_t step = encodings.shape()[2];
    const auto scale = [&](const char* name) { return node_.get_float(name, 1); };
    const float y_scale = scale("y_scale"), x_scale = scale("x_scale"), h_scale = scale("h_scale"),
                w_scale = scale("w_scale");
    for (int64_t i = 0; i < c.input(2).shape()[0]; ++i) {
      const float *code = elements<float>(encodings) + i * step, *anchor = elements<float>(c.input(2)) + i * 4;
      const float y = code[0] / y_scale * anchor[2] + anchor[0], x = code[1] / x_scale * anchor[3] + anchor[1],
                  h = 0.5F * std::exp(code[2] / h_scale) * anchor[2],
                  w = 0.5F * std::exp(code[3] / w_scale) * anchor[3];
      boxes_.push_back({{y - h, x - w, y + h, x + w}});
    }
  }

  const Corners& box(size_t anchor) const { return boxes_[anchor]; }

  /// How many classes the fast form gives for a box.
  size_t classes_each() const {
    return std::min(static_cast<size_t>(node_.get_int("max_classes_per_detection", 1)), classes_);
  }

  /// Suppression over the best score of each anchor; each box that stays gives its best classes.
  std::vector<Detection> fast() const {
    const size_t each = classes_each();
    std::vector<float> best;
    std::vector<std::vector<size_t>> labels;
    for (size_t anchor = 0; anchor < boxes_.size(); ++anchor) {
      std::vector<float> row;
      for (size_t label = 0; label < classes_; ++label) row.push_back(score(anchor, label));
      labels.push_back(largest(row, each));
      best.push_back(row[labels.back()[0]]);
    }
    std::vector<Detection> all;
    for (const size_t anchor : suppress(best, most_))
      for (const size_t label : labels[anchor]) all.push_back({anchor, label, score(anchor, label)});
    return all;
  }

  /// Suppression in each class; the best of all classes stay.
  std::vector<Detection> regular() const {
    const auto each = static_cast<size_t>(std::max<int64_t>(0, node_.get_int("detections_per_class", 100)));
    std::vector<Detection> all;
    for (size_t label = 0; label < classes_; ++label) {
      std::vector<float> column, values;
      for (size_t anchor = 0; anchor < boxes_.size(); ++anchor) column.push_back(score(anchor, label));
      for (const size_t anchor : suppress(column, each)) all.push_back({anchor, label, column[anchor]});
      for (const Detection& one : all) values.push_back(one.score);
      std::vector<Detection> kept;
      for (const size_t i : largest(values, most_)) kept.push_back(all[i]);
      all = std::move(kept);
    }
    return all;
  }

 private:
  float score(size_t anchor, size_t label) const { return scores_[anchor * columns_ + columns_ - classes_ + label]; }

  /// Anchors by falling score whose boxes overlap none before by more than the threshold.
  std::vector<size_t> suppress(const std::vector<float>& scores, size_t most) const {
    const float least = node_.get_float("nms_score_threshold", 0), limit = node_.get_float("nms_iou_threshold", 0);
    std::vector<size_t> selected;
    for (const size_t anchor : largest(scores, scores.size())) {
      if (selected.size() >= most || !(scores[anchor] >= least)) break;
      if (std::none_of(selected.begin(), selected.end(),
                       [&](size_t other) { return overlap(boxes_[other], boxes_[anchor]) > limit; }))
        selected.push_back(anchor);
    }
    return selected;
  }

  const Node& node_;
  const float* scores_;
  size_t columns_, classes_, most_;
  std::vector<Corners> boxes_;
};

void evaluate_detection(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Detector detector(c);
  const bool regular = c.node.get_int("use_regular_nms", 0) != 0;
  const std::vector<Detection> all = regular ? detector.regular() : detector.fast();
  Tensor boxes(DType::kFloat, types[0].shape), classes(DType::kFloat, types[1].shape),
      scores(DType::kFloat, types[2].shape), used(DType::kFloat, {1});
  const size_t count = std::min(all.size(), static_cast<size_t>(scores.size()));
  for (size_t i = 0; i < count; ++i) {
    std::copy_n(detector.box(all[i].anchor).v, 4, mutable_elements<float>(boxes) + 4 * i);
    mutable_elements<float>(classes)[i] = static_cast<float>(all[i].label);
    mutable_elements<float>(scores)[i] = all[i].score;
  }
  // The fast form counts boxes, not their classes.
  const size_t each = regular ? 1 : detector.classes_each();
  const size_t boxes_used = count / each;
  mutable_elements<float>(used)[0] = static_cast<float>(boxes_used);
  c.outputs = {Value(boxes), Value(classes), Value(scores), Value(used)};
}

}  // namespace

void register_litert_detection(Registry& r) {
  add(r, "NonMaxSuppression", 1, {6, 6}, infer_suppression, evaluate_suppression, {}, {3, 3}, kLitert);
  add(r, "DetectionPostProcess", 1, {3, 3}, infer_detection, evaluate_detection,
      {"max_detections", "max_classes_per_detection", "detections_per_class", "use_regular_nms", "nms_score_threshold",
       "nms_iou_threshold", "num_classes", "y_scale", "x_scale", "h_scale", "w_scale"},
      {4, 4}, kLitert);
}

}  // namespace tessera::ops
