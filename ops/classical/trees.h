// SPDX-License-Identifier: Apache-2.0
// Ensembles of decision trees: how a row of features runs down each tree, and how the weights of the leaves that it
// reaches become scores. Scores are float32, or float64 for features in float64, summed in the order of the trees.
#pragma once

#include <optional>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

/// What becomes of scores in the end; the numbers are those of TreeEnsemble.
enum class PostTransform { kNone, kSoftmax, kLogistic, kSoftmaxZero, kProbit };
/// From the attribute's text; throws through node.fail().
PostTransform post_transform_of(const Node& node);
/// One score alone, or the scores of a row, in place.
template <typename T>
T transformed(PostTransform transform, T score);
template <typename T>
void transform_row(PostTransform transform, std::vector<T>& scores);
/// A class and its complement for the score of the second of two classes. `sums_to_one`: scores are probabilities.
template <typename T>
std::vector<T> both_classes(PostTransform transform, T score, bool sums_to_one);

/// Features [N,C] or [C] as rows of T.
template <typename T>
struct Rows {
  int64_t count = 0, width = 0;
  std::vector<T> values;
  explicit Rows(const Tensor& x);
  const T* row(int64_t i) const { return values.data() + i * width; }
};
/// Number of rows of a ranked input of rank 1 or 2, -1 while unknown; throws through node.fail() for others.
int64_t row_count(const Node& node, const TypeInfo& x);

struct Forest {
  enum class Mode : uint8_t { kLessEqual, kLess, kGreaterEqual, kGreater, kEqual, kNotEqual, kMember, kLeaf };
  /// Small, because a row of features visits many of them.
  struct TreeNode {
    double threshold = 0;
    uint32_t yes = 0, no = 0;     // indices of nodes
    uint32_t first = 0, end = 0;  // of `members` for kMember, of `weights` for leaves
    int32_t feature = 0;
    Mode mode = Mode::kLeaf;
    bool missing_is_true = false;
  };
  struct Weight {
    int64_t target = 0;
    double value = 0;
  };
  enum class Aggregate { kAverage, kSum, kMinimum, kMaximum };

  std::vector<TreeNode> nodes;
  std::vector<uint32_t> roots;
  std::vector<double> members;  // of sets, one behind the other
  std::vector<Weight> weights;  // of leaves, likewise
  int64_t targets = 1;
  Aggregate aggregate = Aggregate::kSum;

  /// Scores [rows, targets], nothing for targets that no leaf gave a weight.
  template <typename T>
  std::vector<std::optional<T>> scores(const Node& node, const Rows<T>& x) const;

 private:
  template <typename T>
  const TreeNode& leaf_of(const Node& node, uint32_t root, const T* features, int64_t width) const;
  template <typename T>
  bool takes(const TreeNode& n, T x) const;
  template <typename T>
  void add(const TreeNode& leaf, std::optional<T>* scores) const;
};

/// From the attributes of TreeEnsembleClassifier ("class") and TreeEnsembleRegressor ("target").
Forest forest_by_nodes(const Node& node, const std::string& prefix, int64_t targets);
/// From the attributes of TreeEnsemble.
Forest forest_by_roots(const Node& node);

}  // namespace tessera::ops
