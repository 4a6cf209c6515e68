// SPDX-License-Identifier: Apache-2.0
// Losses: NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss. Scores are [N, C, d1, ...], labels [N, d1, ...]. A
// label equal to ignore_index adds nothing and weighs nothing; `mean` divides by the sum of the weights.
#include <cmath>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

using namespace kernel;

void infer_loss(InferContext& c) {
  const TypeInfo &scores = c.input(0), &labels = c.input(1);
  require_type(c.node, scores.dtype, kFloats, "scores");
  require_type(c.node, labels.dtype, kIndex, "labels");
  const std::string reduction = c.node.get_string("reduction", "mean");
  if (reduction != "none" && reduction != "sum" && reduction != "mean")
    c.node.fail(ErrorCode::kInvalidModel, "reduction '" + reduction + "' is not none, sum or mean");
  Shape shape;
  bool ranked = false;
  if (scores.ranked) {
    if (scores.shape.size() < 2)
      c.node.fail(ErrorCode::kInvalidModel, "scores of shape " + to_string(scores.shape) + " have no class axis");
    shape = scores.shape;
    shape.erase(shape.begin() + 1);
    ranked = true;
  }
  if (labels.ranked) {
    if (ranked && labels.shape.size() != shape.size())
      c.node.fail(ErrorCode::kInvalidModel,
                  "labels " + to_string(labels.shape) + " do not fit scores " + to_string(scores.shape));
    if (!ranked) shape.assign(labels.shape.size(), -1);
    ranked = true;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] >= 0 && labels.shape[d] >= 0 && shape[d] != labels.shape[d])
        c.node.fail(ErrorCode::kInvalidModel,
                    "labels " + to_string(labels.shape) + " do not fit scores " + to_string(scores.shape));
      shape[d] = std::max(shape[d], labels.shape[d]);
    }
  }
  if (c.has(2)) {
    require_same_type(c.node, scores, c.inputs[2]);
    require_rank(c.node, c.inputs[2], 1, "weights");
    if (c.inputs[2].ranked && scores.ranked && c.inputs[2].shape[0] >= 0 && scores.shape[1] >= 0 &&
        c.inputs[2].shape[0] != scores.shape[1])
      c.node.fail(ErrorCode::kInvalidModel, "there must be one weight for each class");
  }
  if (reduction != "none")
    c.outputs[0] = TypeInfo::tensor(scores.dtype, {});
  else
    c.outputs[0] = ranked ? TypeInfo::tensor(scores.dtype, shape) : TypeInfo::unranked(scores.dtype);
  if (c.outputs.size() > 1) c.outputs[1] = without_constant(scores);
}

Kernel evaluate_loss(bool softmax) {
  return [softmax](EvalContext& c, const std::vector<TypeInfo>& types) {
    Tensor scores = widen(c.input(0));
    const std::vector<int64_t> labels = c.input(1).to_int64s();
    const Shape shape = scores.shape();
    const int64_t items = shape[0], classes = shape[1], inner = product(shape, 2, shape.size());
    const std::string reduction = c.node.get_string("reduction", "mean");
    const bool ignores = c.node.has("ignore_index");
    const int64_t ignored = c.node.get_int("ignore_index", 0);
    if (softmax)
      scores = evaluate(Node{"", "LogSoftmax", 13, c.node.name, {{"axis", int64_t{1}}}, 1}, {scores})[0].tensor;
    Shape losses_shape = shape;
    losses_shape.erase(losses_shape.begin() + 1);
    Tensor losses(scores.dtype(), losses_shape), total(scores.dtype(), {});
    const Tensor weights = c.has(2) ? widen(c.input(2)) : Tensor();
    visit_float(scores.dtype(), [&]<typename T>(Tag<T>) {
      T sum = 0, weight_sum = 0;
      for (int64_t n = 0; n < items; ++n)
        for (int64_t i = 0; i < inner; ++i) {
          const int64_t label = labels[static_cast<size_t>(n * inner + i)];
          if (ignores && label == ignored) continue;
          if (label < 0 || label >= classes)
            c.node.fail(ErrorCode::kInvalidArgument,
                        "label " + std::to_string(label) + " is no class of " + std::to_string(classes));
          const T weight = c.has(2) ? elements<T>(weights)[label] : T(1);
          const T loss = -elements<T>(scores)[(n * classes + label) * inner + i] * weight;
          mutable_elements<T>(losses)[n * inner + i] = loss;
          sum += loss;
          weight_sum += weight;
        }
      mutable_elements<T>(total)[0] = reduction == "mean" ? sum / weight_sum : sum;
    });
    c.outputs[0] = narrow(reduction == "none" ? std::move(losses) : std::move(total), types[0].dtype);
    if (c.outputs.size() > 1) c.outputs[1] = narrow(std::move(scores), types[1].dtype);
  };
}

}  // namespace

void register_loss(Registry& r) {
  add(r, "NegativeLogLikelihoodLoss", 12, {2, 3}, infer_loss, evaluate_loss(false), {"ignore_index", "reduction"});
  add(r, "SoftmaxCrossEntropyLoss", 12, {2, 3}, infer_loss, evaluate_loss(true), {"ignore_index", "reduction"}, {1, 2});
}

}  // namespace tessera::ops
