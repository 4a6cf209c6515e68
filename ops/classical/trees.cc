// SPDX-License-Identifier: Apache-2.0
// Decision trees from the two forms in which ai.onnx.ml writes them, and their scores.
#include "ops/classical/trees.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_map>

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

/// A number of nodes, features or weights that a Forest can count.
uint32_t counted(const Node& node, int64_t value) {
  if (value < 0 || value >= std::numeric_limits<int32_t>::max())
    node.fail(ErrorCode::kInvalidModel, "a tree's number " + std::to_string(value) + " is out of range");
  return static_cast<uint32_t>(value);
}

int32_t feature_of(const Node& node, int64_t feature) {
  if (feature < 0) node.fail(ErrorCode::kInvalidModel, "a tree's node has a negative feature");
  return static_cast<int32_t>(counted(node, feature));
}

/// Where the node of a tree stands that has an id. Exporters write the nodes of a tree side by side and in the order of
/// their ids, so that a look is enough; others are looked for.
class Places {
 public:
  Places(const Node& node, const std::vector<int64_t>& trees, const std::vector<int64_t>& ids)
      : node_(node), trees_(trees), ids_(ids) {
    const auto key = [&](size_t i) { return std::make_pair(trees[i], ids[i]); };
    for (size_t i = 0; i < trees.size(); ++i)
      if (i == 0 || trees[i] != trees[i - 1]) starts_.emplace(trees[i], i);
    order_.resize(trees.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    const auto before = [&](size_t a, size_t b) { return key(a) < key(b); };
    if (!std::is_sorted(order_.begin(), order_.end(), before)) std::stable_sort(order_.begin(), order_.end(), before);
    for (size_t i = 1; i < order_.size(); ++i)
      if (key(order_[i]) == key(order_[i - 1]))
        node.fail(ErrorCode::kInvalidModel, "node " + std::to_string(ids[order_[i]]) + " of tree " +
                                                std::to_string(trees[order_[i]]) + " is given twice");
  }

  uint32_t operator()(int64_t tree, int64_t id) {
    if (last_ == starts_.end() || last_->first != tree) last_ = starts_.find(tree);
    if (last_ != starts_.end() && id >= 0 && id < static_cast<int64_t>(ids_.size())) {
      const size_t guess = last_->second + static_cast<size_t>(id);
      if (guess < ids_.size() && trees_[guess] == tree && ids_[guess] == id) return static_cast<uint32_t>(guess);
    }
    const auto found = std::lower_bound(
        order_.begin(), order_.end(), std::make_pair(tree, id),
        [&](size_t i, const std::pair<int64_t, int64_t>& key) { return std::make_pair(trees_[i], ids_[i]) < key; });
    if (found == order_.end() || trees_[*found] != tree || ids_[*found] != id)
      node_.fail(ErrorCode::kInvalidModel, "tree " + std::to_string(tree) + " has no node " + std::to_string(id));
    return static_cast<uint32_t>(*found);
  }

 private:
  const Node& node_;
  const std::vector<int64_t>&trees_, &ids_;
  std::unordered_map<int64_t, size_t> starts_;  // the first node of each tree
  std::unordered_map<int64_t, size_t>::const_iterator last_ = starts_.end();
  std::vector<size_t> order_;  // by tree and id
};

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

/// Whether a feature takes the branch "true".
template <typename T>
bool Forest::takes(const TreeNode& n, T x) const {
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
      return std::any_of(members.begin() + n.first, members.begin() + n.end,
                         [x](double member) { return static_cast<T>(member) == x; });
    case Mode::kLeaf: break;
  }
  return false;
}

template <typename T>
const Forest::TreeNode& Forest::leaf_of(const Node& node, uint32_t root, const T* features, int64_t width) const {
  uint32_t at = root;
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
void Forest::add(const TreeNode& leaf, std::optional<T>* scores) const {
  for (uint32_t i = leaf.first; i < leaf.end; ++i) {
    std::optional<T>& score = scores[weights[i].target];
    const T weight = static_cast<T>(weights[i].value);
    if (!score)
      score = weight;
    else if (aggregate == Aggregate::kMinimum)
      score = std::min(*score, weight);
    else if (aggregate == Aggregate::kMaximum)
      score = std::max(*score, weight);
    else
      *score += weight;
  }
}

/// Tree by tree, so that the nodes of one stay in the processor's cache. Each score has its sum in the trees' order.
template <typename T>
std::vector<std::optional<T>> Forest::scores(const Node& node, const Rows<T>& x) const {
  std::vector<std::optional<T>> result(static_cast<size_t>(x.count * targets));
  for (const uint32_t root : roots)
    for (int64_t i = 0; i < x.count; ++i) add(leaf_of(node, root, x.row(i), x.width), result.data() + i * targets);
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
  counted(node, static_cast<int64_t>(count));
  Places place(node, trees, ids);
  forest.nodes.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    Forest::TreeNode n;
    n.mode = mode_of(node, modes[i]);
    n.threshold = thresholds[i];
    n.missing_is_true = !missing.empty() && missing[i] != 0;
    if (n.mode != Mode::kLeaf) {
      n.feature = feature_of(node, features[i]);
      n.yes = place(trees[i], yes[i]);
      n.no = place(trees[i], no[i]);
    }
    forest.nodes.push_back(n);
    if (i == 0 || trees[i] != trees[i - 1]) forest.roots.push_back(static_cast<uint32_t>(i));
  }
  const std::vector<int64_t> weight_trees = node.get_ints(prefix + "_treeids"),
                             weight_nodes = node.get_ints(prefix + "_nodeids"),
                             weight_targets = node.get_ints(prefix + "_ids");
  const std::vector<double> weights = numbers(node, prefix + "_weights");
  for (const auto* list : {&weight_trees, &weight_nodes, &weight_targets})
    require_length(node, list->size(), weights.size(), prefix + "_...");
  counted(node, static_cast<int64_t>(weights.size()));
  // Each leaf's weights side by side, in the order in which they are given.
  std::vector<uint32_t> leaves;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weight_targets[i] < 0 || weight_targets[i] >= targets)
      node.fail(ErrorCode::kInvalidModel,
                "a weight is for target " + std::to_string(weight_targets[i]) + " of " + std::to_string(targets));
    leaves.push_back(place(weight_trees[i], weight_nodes[i]));
    ++forest.nodes[leaves[i]].end;
  }
  uint32_t next = 0;
  for (Forest::TreeNode& n : forest.nodes) {
    n.first = next;
    next += n.end;
    n.end = n.first;
  }
  forest.weights.resize(next);
  for (size_t i = 0; i < weights.size(); ++i)
    forest.weights[forest.nodes[leaves[i]].end++] = {weight_targets[i], weights[i]};
  // With one target ONNX Runtime takes the first weight of a leaf. scikit-learn's exporter gives a leaf of a decision
  // path the same weight once for each class.
  if (targets == 1)
    for (Forest::TreeNode& n : forest.nodes) n.end = std::min(n.end, n.first + 1);
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
    return counted(node, index + static_cast<int64_t>(is_leaf != 0 ? count : 0));
  };
  size_t member = 0;
  for (size_t i = 0; i < count; ++i) {
    Forest::TreeNode n;
    if (!(modes[i] >= 0 && modes[i] <= 6)) node.fail(ErrorCode::kInvalidModel, "a mode of a tree's node is not known");
    n.mode = static_cast<Mode>(static_cast<int>(modes[i]));
    n.feature = feature_of(node, features[i]);
    n.threshold = splits[i];
    n.missing_is_true = !missing.empty() && missing[i] != 0;
    n.yes = place(yes[i], yes_leaf[i]);
    n.no = place(no[i], no_leaf[i]);
    if (n.mode == Mode::kMember) {
      n.first = counted(node, static_cast<int64_t>(forest.members.size()));
      for (; member < members.size() && !std::isnan(members[member]); ++member)
        forest.members.push_back(members[member]);
      ++member;  // the NaN between two sets
      n.end = counted(node, static_cast<int64_t>(forest.members.size()));
    }
    forest.nodes.push_back(n);
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (targets[i] < 0 || targets[i] >= forest.targets)
      node.fail(ErrorCode::kInvalidModel,
                "a leaf is for target " + std::to_string(targets[i]) + " of " + std::to_string(forest.targets));
    Forest::TreeNode leaf;
    leaf.first = static_cast<uint32_t>(forest.weights.size());
    leaf.end = leaf.first + 1;
    forest.weights.push_back({targets[i], weights[i]});
    forest.nodes.push_back(leaf);
  }
  for (const int64_t root : node.get_ints("tree_roots")) forest.roots.push_back(place(root, 0));
  return forest;
}

#define TESSERA_TREES_OF(T)                                     \
  template T transformed(PostTransform, T);                     \
  template void transform_row(PostTransform, std::vector<T>&);  \
  template std::vector<T> both_classes(PostTransform, T, bool); \
  template struct Rows<T>;                                      \
  template std::vector<std::optional<T>> Forest::scores(const Node&, const Rows<T>&) const;
TESSERA_TREES_OF(float)
TESSERA_TREES_OF(double)
#undef TESSERA_TREES_OF

}  // namespace tessera::ops
