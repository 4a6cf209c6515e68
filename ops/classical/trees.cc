// SPDX-License-Identifier: Apache-2.0
// Decision trees from the two forms in which ai.onnx.ml writes them, and their scores.
#include "ops/classical/trees.h"

#include <cmath>

namespace tessera::ops {

namespace {

using Mode = Forest::Mode;

/// An attribute as floats: a tensor where the exporter wrote one, else a list.
std::vector<double> numbers(const Node& node, const std::string& name, const std::string& tensor_name) {
  if (const Tensor* tensor = node.get_tensor(tensor_name)) return tensor->to_doubles();
  if (name == tensor_name) return {};
  const std::vector<float> values = node.get_floats(name);
  return {values.begin(), values.end()};
}
std::vector<double> numbers(const Node& node, const std::string& name) {
  return numbers(node, name, name + "_as_tensor");
}

void require_length(const Node& node, size_t have, size_t want, const std::string& what) {
  if (have != want)
    node.fail(ErrorCode::kInvalidModel, "attribute '" + what + "' has " + std::to_string(have) + " elements where " +
                                            std::to_string(want) + " are needed");
}

Forest::Aggregate aggregate_of(const Node& node) {
  const std::string name = node.get_string("aggregate_function", "SUM");
  if (name == "SUM") return Forest::Aggregate::kSum;
  if (name == "AVERAGE") return Forest::Aggregate::kAverage;
  if (name == "MIN") return Forest::Aggregate::kMinimum;
  if (name == "MAX") return Forest::Aggregate::kMaximum;
  node.fail(ErrorCode::kInvalidModel,
            "attribute 'aggregate_function' = '" + name + "' is none of SUM, AVERAGE, MIN, MAX");
}

Mode mode_of(const Node& node, const std::string& name) {
  static const std::map<std::string, Mode> modes = {{"BRANCH_LEQ", Mode::kLessEqual},
                                                    {"BRANCH_LT", Mode::kLess},
                                                    {"BRANCH_GTE", Mode::kGreaterEqual},
                                                    {"BRANCH_GT", Mode::kGreater},
                                                    {"BRANCH_EQ", Mode::kEqual},
                                                    {"BRANCH_NEQ", Mode::kNotEqual},
                                                    {"LEAF", Mode::kLeaf}};
  const auto found = modes.find(name);
  if (found == modes.end()) node.fail(ErrorCode::kInvalidModel, "mode '" + name + "' of a tree's node is not known");
  return found->second;
}

double erf_inverse(double given) {
  const float x = static_cast<float>(given), log = std::log((1 - x) * (1 + x));
  const float v = 2 / (3.14159f * 0.147f) + 0.5f * log, v2 = 1 / 0.147f * log;
  return (x < 0 ? -1 : 1) * std::sqrt(-v + std::sqrt(v * v - v2));
}

/// Whether a feature takes the branch "true".
template <typename T>
bool takes(const Forest::TreeNode& n, T x) {
  const T threshold = static_cast<T>(n.threshold);
  if (n.missing_is_true && std::isnan(x)) return true;
  switch (n.mode) {
    case Mode::kLessEqual: return x <= threshold;
    case Mode::kLess: return x < threshold;
    case Mode::kGreaterEqual: return x >= threshold;
    case Mode::kGreater: return x > threshold;
    case Mode::kEqual: return x == threshold;
    case Mode::kNotEqual: return x != threshold;
    case Mode::kMember:
      for (const double member : n.members)
        if (static_cast<T>(member) == x) return true;
      return false;
    case Mode::kLeaf: break;
  }
  return false;
}

}  // namespace

PostTransform post_transform_of(const Node& node) {
  static const std::map<std::string, PostTransform> names = {{"NONE", PostTransform::kNone},
                                                             {"SOFTMAX", PostTransform::kSoftmax},
                                                             {"LOGISTIC", PostTransform::kLogistic},
                                                             {"SOFTMAX_ZERO", PostTransform::kSoftmaxZero},
                                                             {"PROBIT", PostTransform::kProbit}};
  const std::string name = node.get_string("post_transform", "NONE");
  const auto found = names.find(name);
  if (found == names.end())
    node.fail(ErrorCode::kInvalidModel,
              "attribute 'post_transform' = '" + name + "' is none of NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO, PROBIT");
  return found->second;
}

template <typename T>
T transformed(PostTransform transform, T score) {
  if (transform == PostTransform::kProbit) return static_cast<T>(1.41421356f * erf_inverse(2 * score - 1));
  if (transform != PostTransform::kLogistic) return score;
  const T v = 1 / (1 + std::exp(-std::abs(score)));
  return score < 0 ? 1 - v : v;
}

template <typename T>
void transform_row(PostTransform transform, std::vector<T>& scores) {
  const bool zero = transform == PostTransform::kSoftmaxZero;
  if (!zero && transform != PostTransform::kSoftmax) {
    for (T& score : scores) score = transformed(transform, score);
    return;
  }
  T top = scores.empty() ? T{0} : scores[0], sum = 0;
  for (const T score : scores) top = std::max(top, score);
  for (T& score : scores) {
    if (zero && std::abs(score) <= T(0.0000001f)) {
      score *= std::exp(-top);
      continue;
    }
    score = std::exp(score - top);
    sum += score;
  }
  for (T& score : scores) score /= sum;
}

template <typename T>
std::vector<T> both_classes(PostTransform transform, T score, bool sums_to_one) {
  if (transform == PostTransform::kProbit) return {-transformed(transform, score), transformed(transform, score)};
  if (transform == PostTransform::kLogistic) return {transformed(transform, -score), transformed(transform, score)};
  return {sums_to_one ? 1 - score : -score, score};
}

template <typename T>
Rows<T>::Rows(const Tensor& x) {
  width = x.rank() == 0 ? 1 : x.shape().back();
  count = x.rank() < 2 ? 1 : x.shape()[0];
  const std::vector<double> all = x.to_doubles();
  values.assign(all.begin(), all.end());
}

int64_t row_count(const Node& node, const TypeInfo& x) {
  kernel::require_type(node, x.dtype,
                       kernel::set_of({DType::kFloat, DType::kDouble, DType::kFloat16, DType::kInt64, DType::kInt32}),
                       "the input");
  if (!x.ranked) return -1;
  if (x.shape.empty() || x.shape.size() > 2)
    node.fail(ErrorCode::kInvalidModel, "the input " + to_string(x.shape) + " must have rank 1 or 2");
  return x.shape.size() == 1 ? 1 : x.shape[0];
}

template <typename T>
const Forest::TreeNode& Forest::leaf_of(const Node& node, size_t root, const T* features, int64_t width) const {
  size_t at = root;
  for (size_t depth = 0; depth <= nodes.size(); ++depth) {
    const TreeNode& n = nodes[at];
    if (n.mode == Mode::kLeaf) return n;
    if (n.feature >= width)
      node.fail(ErrorCode::kInvalidModel,
                "a tree asks for feature " + std::to_string(n.feature) + " of " + std::to_string(width));
    at = takes(n, features[n.feature]) ? n.yes : n.no;
  }
  node.fail(ErrorCode::kInvalidModel, "a tree runs in a circle");
}

template <typename T>
std::vector<std::optional<T>> Forest::scores(const Node& node, const T* features, int64_t width) const {
  std::vector<std::optional<T>> result(static_cast<size_t>(targets));
  for (const size_t root : roots)
    for (const auto& [target, given] : leaf_of(node, root, features, width).weights) {
      std::optional<T>& score = result[static_cast<size_t>(target)];
      const T weight = static_cast<T>(given);
      if (!score)
        score = weight;
      else if (aggregate == Aggregate::kMinimum)
        score = std::min(*score, weight);
      else if (aggregate == Aggregate::kMaximum)
        score = std::max(*score, weight);
      else
        *score += weight;
    }
  if (aggregate == Aggregate::kAverage)
    for (std::optional<T>& score : result)
      if (score) *score /= static_cast<T>(roots.size());
  return result;
}

Forest forest_by_nodes(const Node& node, const std::string& prefix, int64_t targets) {
  Forest forest;
  forest.targets = targets;
  forest.aggregate = aggregate_of(node);
  const std::vector<int64_t> trees = node.get_ints("nodes_treeids"), ids = node.get_ints("nodes_nodeids"),
                             features = node.get_ints("nodes_featureids"), yes = node.get_ints("nodes_truenodeids"),
                             no = node.get_ints("nodes_falsenodeids"),
                             missing = node.get_ints("nodes_missing_value_tracks_true");
  const std::vector<std::string> modes = node.get_strings("nodes_modes");
  const std::vector<double> thresholds = numbers(node, "nodes_values");
  const size_t count = trees.size();
  for (const auto* list : {&ids, &features, &yes, &no}) require_length(node, list->size(), count, "nodes_...");
  require_length(node, modes.size(), count, "nodes_modes");
  require_length(node, thresholds.size(), count, "nodes_values");
  if (!missing.empty()) require_length(node, missing.size(), count, "nodes_missing_value_tracks_true");
  std::map<std::pair<int64_t, int64_t>, size_t> places;
  for (size_t i = 0; i < count; ++i)
    if (!places.emplace(std::make_pair(trees[i], ids[i]), i).second)
      node.fail(ErrorCode::kInvalidModel,
                "node " + std::to_string(ids[i]) + " of tree " + std::to_string(trees[i]) + " is given twice");
  const auto place = [&](int64_t tree, int64_t id) {
    const auto found = places.find({tree, id});
    if (found == places.end())
      node.fail(ErrorCode::kInvalidModel, "tree " + std::to_string(tree) + " has no node " + std::to_string(id));
    return found->second;
  };
  for (size_t i = 0; i < count; ++i) {
    Forest::TreeNode n;
    n.mode = mode_of(node, modes[i]);
    n.feature = features[i];
    n.threshold = thresholds[i];
    n.missing_is_true = !missing.empty() && missing[i] != 0;
    if (n.mode != Mode::kLeaf) {
      if (n.feature < 0) node.fail(ErrorCode::kInvalidModel, "a tree's node has a negative feature");
      n.yes = place(trees[i], yes[i]);
      n.no = place(trees[i], no[i]);
    }
    forest.nodes.push_back(std::move(n));
    if (i == 0 || trees[i] != trees[i - 1]) forest.roots.push_back(i);
  }
  const std::vector<int64_t> weight_trees = node.get_ints(prefix + "_treeids"),
                             weight_nodes = node.get_ints(prefix + "_nodeids"),
                             weight_targets = node.get_ints(prefix + "_ids");
  const std::vector<double> weights = numbers(node, prefix + "_weights");
  for (const auto* list : {&weight_trees, &weight_nodes, &weight_targets})
    require_length(node, list->size(), weights.size(), prefix + "_...");
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weight_targets[i] < 0 || weight_targets[i] >= targets)
      node.fail(ErrorCode::kInvalidModel,
                "a weight is for target " + std::to_string(weight_targets[i]) + " of " + std::to_string(targets));
    forest.nodes[place(weight_trees[i], weight_nodes[i])].weights.emplace_back(weight_targets[i], weights[i]);
  }
  return forest;
}

Forest forest_by_roots(const Node& node) {
  Forest forest;
  forest.targets = node.get_int("n_targets", 1);
  const int64_t aggregate = node.get_int("aggregate_function", 1);
  if (aggregate < 0 || aggregate > 3 || forest.targets < 1 || forest.targets > (1 << 24))
    node.fail(ErrorCode::kInvalidModel, "attribute 'aggregate_function' or 'n_targets' is out of range");
  forest.aggregate = static_cast<Forest::Aggregate>(aggregate);
  const std::vector<int64_t> features = node.get_ints("nodes_featureids"), yes = node.get_ints("nodes_truenodeids"),
                             yes_leaf = node.get_ints("nodes_trueleafs"), no = node.get_ints("nodes_falsenodeids"),
                             no_leaf = node.get_ints("nodes_falseleafs"), targets = node.get_ints("leaf_targetids"),
                             missing = node.get_ints("nodes_missing_value_tracks_true");
  const std::vector<double> modes = numbers(node, "nodes_modes", "nodes_modes"),
                            splits = numbers(node, "nodes_splits", "nodes_splits"),
                            weights = numbers(node, "leaf_weights", "leaf_weights"),
                            members = numbers(node, "membership_values", "membership_values");
  const size_t count = features.size();
  for (const auto* list : {&yes, &yes_leaf, &no, &no_leaf}) require_length(node, list->size(), count, "nodes_...");
  require_length(node, modes.size(), count, "nodes_modes");
  require_length(node, splits.size(), count, "nodes_splits");
  require_length(node, targets.size(), weights.size(), "leaf_targetids");
  if (!missing.empty()) require_length(node, missing.size(), count, "nodes_missing_value_tracks_true");
  const auto place = [&](int64_t index, int64_t is_leaf) {  // leaves stand behind the nodes
    const size_t limit = is_leaf != 0 ? weights.size() : count;
    if (index < 0 || static_cast<size_t>(index) >= limit)
      node.fail(ErrorCode::kInvalidModel, "a tree has no node or leaf " + std::to_string(index));
    return static_cast<size_t>(index) + (is_leaf != 0 ? count : 0);
  };
  size_t member = 0;
  for (size_t i = 0; i < count; ++i) {
    Forest::TreeNode n;
    if (!(modes[i] >= 0 && modes[i] <= 6)) node.fail(ErrorCode::kInvalidModel, "a mode of a tree's node is not known");
    n.mode = static_cast<Mode>(static_cast<int>(modes[i]));
    n.feature = features[i];
    if (n.feature < 0) node.fail(ErrorCode::kInvalidModel, "a tree's node has a negative feature");
    n.threshold = splits[i];
    n.missing_is_true = !missing.empty() && missing[i] != 0;
    n.yes = place(yes[i], yes_leaf[i]);
    n.no = place(no[i], no_leaf[i]);
    if (n.mode == Mode::kMember) {
      for (; member < members.size() && !std::isnan(members[member]); ++member) n.members.push_back(members[member]);
      ++member;  // the NaN between two sets
    }
    forest.nodes.push_back(std::move(n));
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (targets[i] < 0 || targets[i] >= forest.targets)
      node.fail(ErrorCode::kInvalidModel,
                "a leaf is for target " + std::to_string(targets[i]) + " of " + std::to_string(forest.targets));
    Forest::TreeNode leaf;
    leaf.weights.emplace_back(targets[i], weights[i]);
    forest.nodes.push_back(std::move(leaf));
  }
  for (const int64_t root : node.get_ints("tree_roots")) forest.roots.push_back(place(root, 0));
  return forest;
}

#define TESSERA_TREES_OF(T)                                     \
  template T transformed(PostTransform, T);                     \
  template void transform_row(PostTransform, std::vector<T>&);  \
  template std::vector<T> both_classes(PostTransform, T, bool); \
  template struct Rows<T>;                                      \
  template std::vector<std::optional<T>> Forest::scores(const Node&, const T*, int64_t) const;
TESSERA_TREES_OF(float)
TESSERA_TREES_OF(double)
#undef TESSERA_TREES_OF

}  // namespace tessera::ops
