// SPDX-License-Identifier: Apache-2.0
// MoEGroupRouter of domain com.microsoft: the scores of experts that stand in groups. The groups whose best experts
// together have the highest scores are chosen first, and the best experts of these then. Where the results
// selection_scores and router_weights are asked for, nothing is chosen.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

namespace router {

using kernel::elements;
using kernel::mutable_elements;

struct Plan {
  int64_t groups = 1, chosen_groups = 1, best_of_group = 2, experts_chosen = 1, experts = -1;
};

/// Whether a result is asked for; the names of others are empty, and their types stay undefined.
bool gives_all_scores(const Node& node) { return node.output_count > 1; }

Plan plan_of(const InferContext& c) {
  const Node& node = c.node;
  Plan plan{node.get_int("n_group", 1), node.get_int("topk_group", 1), node.get_int("group_topk", 2),
            node.get_int("top_k", 0), -1};
  const TypeInfo &logits = c.input(0), &bias = c.input(1);
  kernel::require_type(node, logits.dtype, kernel::set_of({DType::kFloat, DType::kFloat16, DType::kBfloat16}),
                       "the logits");
  kernel::require_type(node, bias.dtype, kernel::set_of({DType::kFloat}), "expert_bias");
  kernel::require_rank(node, bias, 1, "expert_bias");
  if (bias.ranked) plan.experts = bias.shape[0];
  if (c.has(2)) {
    kernel::require_same_type(node, logits, c.input(2));
    kernel::require_rank(node, logits, 2, "the activations");
    kernel::require_rank(node, c.input(2), 2, "projection_weight");
    if (!gives_all_scores(node))
      node.fail(ErrorCode::kInvalidModel, "projection_weight needs the results selection_scores and router_weights");
  } else if (logits.ranked && !logits.shape.empty() && logits.shape.back() >= 0 && plan.experts >= 0 &&
             logits.shape.back() != plan.experts) {
    node.fail(ErrorCode::kInvalidModel, "logits " + to_string(logits.shape) + " and expert_bias " +
                                            to_string(bias.shape) + " differ in the number of experts");
  }
  if (plan.groups < 1 || plan.chosen_groups < 1 || plan.chosen_groups > plan.groups || plan.best_of_group < 1 ||
      plan.experts_chosen < 1 || (plan.experts >= 0 && plan.experts % plan.groups != 0) ||
      (plan.experts >= 0 && plan.experts_chosen > plan.experts / plan.groups * plan.chosen_groups))
    node.fail(ErrorCode::kInvalidModel,
              "n_group, topk_group, group_topk and top_k do not fit " + std::to_string(plan.experts) + " experts");
  return plan;
}

void infer_router(InferContext& c) {
  const Plan plan = plan_of(c);
  const TypeInfo& logits = c.input(0);
  const int64_t tokens =
      logits.ranked && !logits.shape.empty() ? kernel::product(logits.shape, 0, logits.shape.size() - 1) : -1;
  for (size_t i = 0; i < c.outputs.size(); ++i)
    c.outputs[i] = TypeInfo::tensor(i == 0 ? logits.dtype : DType::kFloat, {tokens, plan.experts});
}

float sigmoid(float x) {
  const float e = std::exp(-std::abs(x));
  return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

/// The indices of the `count` largest of the scores, the first of equal ones first.
std::vector<size_t> largest(const std::vector<float>& scores, int64_t count) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  order.resize(std::min(order.size(), static_cast<size_t>(count)));
  return order;
}

/// The experts of one token, by their scores with the bias.
std::vector<size_t> chosen(const Plan& plan, std::vector<float> scores) {
  const auto size = static_cast<int64_t>(scores.size()) / plan.groups;
  std::vector<float> sums;
  for (int64_t g = 0; g < plan.groups; ++g) {
    const std::vector<float> group(scores.begin() + g * size, scores.begin() + (g + 1) * size);
    float sum = 0;
    for (const size_t i : largest(group, plan.best_of_group)) sum += group[i];
    sums.push_back(sum);
  }
  const std::vector<size_t> groups = largest(sums, plan.chosen_groups);
  for (size_t i = 0; i < scores.size(); ++i)
    if (std::find(groups.begin(), groups.end(), i / static_cast<size_t>(size)) == groups.end())
      scores[i] = -std::numeric_limits<float>::infinity();
  return largest(scores, plan.experts_chosen);
}

/// The logits in fp32 [tokens, experts], of activations by the projection.
std::vector<float> logits_of(EvalContext& c, int64_t tokens, int64_t experts) {
  const Tensor x = kernel::widen(c.input(0));
  if (!c.has(2)) return x.to_floats();
  const Tensor weights = kernel::widen(c.input(2));
  const int64_t width = x.shape()[1];
  if (weights.shape() != Shape{experts, width})
    c.node.fail(ErrorCode::kInvalidModel, "projection_weight " + to_string(weights.shape()) + " does not fit");
  std::vector<float> logits(static_cast<size_t>(tokens * experts));
  for (int64_t i = 0; i < tokens * experts; ++i)
    for (int64_t k = 0; k < width; ++k)
      logits[static_cast<size_t>(i)] +=
          elements<float>(x)[i / experts * width + k] * elements<float>(weights)[i % experts * width + k];
  return logits;
}

void evaluate_router(EvalContext& c, const std::vector<TypeInfo>& types) {
  std::vector<TypeInfo> inputs, outputs(c.outputs.size());
  for (const Value& value : c.inputs) inputs.push_back(kernel::type_of(value));
  const Plan plan = plan_of(InferContext{c.node, inputs, outputs});
  const Shape shape = types[0].shape;
  const float* const bias = elements<float>(c.input(1));
  const std::vector<float> logits = logits_of(c, shape[0], shape[1]);
  Tensor routed(DType::kFloat, shape), scores(DType::kFloat, shape), weights(DType::kFloat, shape);
  auto all = routed.as_mutable<float>(), biased = scores.as_mutable<float>(), plain = weights.as_mutable<float>();
  std::fill(all.begin(), all.end(), c.node.get_float("router_sentinel", -10000.0f));
  for (int64_t t = 0; t < shape[0]; ++t) {
    std::vector<float> own;
    for (int64_t i = t * shape[1]; i < (t + 1) * shape[1]; ++i) {
      plain[static_cast<size_t>(i)] = sigmoid(logits[static_cast<size_t>(i)]);
      own.push_back(plain[static_cast<size_t>(i)] + bias[i % shape[1]]);
      biased[static_cast<size_t>(i)] = own.back();
    }
    if (gives_all_scores(c.node)) continue;
    for (const size_t i : chosen(plan, own)) {
      const size_t at = static_cast<size_t>(t * shape[1]) + i;
      all[at] = std::log(std::max(plain[at], 1e-20f));
    }
  }
  if (!gives_all_scores(c.node)) {
    c.outputs[0] = kernel::narrow(std::move(routed), types[0].dtype);
    return;
  }
  c.outputs[0] = kernel::narrow(std::move(routed), types[0].dtype);
  c.outputs[1] = std::move(scores);
  if (c.outputs.size() > 2) c.outputs[2] = std::move(weights);
}

}  // namespace router

}  // namespace

void register_router(Registry& registry) {
  kernel::add(registry, "MoEGroupRouter", 1, {2, 3}, router::infer_router, router::evaluate_router,
              {"group_topk", "n_group", "router_sentinel", "top_k", "topk_group"}, {1, 3}, kMicrosoft);
}

}  // namespace tessera::ops
