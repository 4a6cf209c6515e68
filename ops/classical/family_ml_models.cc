// SPDX-License-Identifier: Apache-2.0
// Models of domain ai.onnx.ml: ensembles of trees, linear classifiers and support vector machines, with labels that are
// integers or strings. Where the standard leaves the scores of two classes open, they are those of ONNX Runtime.
#include <cmath>
#include <numeric>

#include "ops/classical/trees.h"

namespace tessera::ops {

namespace {

/// The labels of the classes: strings, or else integers, of which `integers` is the attribute's name.
Tensor labels_of(const Node& node, const char* integers) {
  const std::vector<std::string> names = node.get_strings("classlabels_strings");
  return names.empty() ? Tensor::vector_i64(node.get_ints(integers)) : Tensor::vector_of_strings(names);
}

/// Labels by their indices; -1 is the label of the negative class of a model that has no labels for two.
void set_label(Tensor& out, int64_t at, const Tensor& labels, int64_t index) {
  if (labels.dtype() == DType::kString)
    out.mutable_strings()[static_cast<size_t>(at)] = labels.strings()[static_cast<size_t>(index)];
  else
    out.as_mutable<int64_t>()[static_cast<size_t>(at)] = labels.at_int64(index);
}

InferFunction infer_classifier(const char* integers, const std::function<int64_t(const Node&)>& columns) {
  return [integers, columns](InferContext& c) {
    const int64_t rows = row_count(c.node, c.input(0));
    post_transform_of(c.node);
    const Tensor labels = labels_of(c.node, integers);
    c.outputs[0] = TypeInfo::tensor(labels.dtype(), {rows});
    if (c.outputs.size() > 1) c.outputs[1] = TypeInfo::tensor(DType::kFloat, {rows, columns(c.node)});
  };
}

/// Evaluates `row` (its number -> label index and scores) for each row.
template <typename T, typename Row>
void classify(EvalContext& c, const Rows<T>& x, const Tensor& labels, int64_t columns, Row row) {
  Tensor y(labels.dtype(), {x.count}), z(DType::kFloat, {x.count, columns});
  for (int64_t i = 0; i < x.count; ++i) {
    std::vector<T> scores;
    const int64_t label = row(i, scores);
    set_label(y, i, labels, label);
    if (static_cast<int64_t>(scores.size()) != columns)
      c.node.fail(ErrorCode::kInternal, std::to_string(scores.size()) + " scores for " + std::to_string(columns));
    for (int64_t k = 0; k < columns; ++k)
      z.as_mutable<float>()[static_cast<size_t>(i * columns + k)] = static_cast<float>(scores[static_cast<size_t>(k)]);
  }
  c.outputs[0] = std::move(y);
  if (c.outputs.size() > 1) c.outputs[1] = std::move(z);
}

template <typename T>
int64_t first_maximum(const std::vector<T>& scores) {
  return std::max_element(scores.begin(), scores.end()) - scores.begin();
}

bool is_double(const EvalContext& c) { return c.input(0).dtype() == DType::kDouble; }

/// Calls f(tag) with double for features in double, else float.
template <typename F>
void with_scores(const EvalContext& c, F f) {
  if (is_double(c))
    f(kernel::Tag<double>{});
  else
    f(kernel::Tag<float>{});
}

std::vector<double> base_values(const Node& node) {
  if (const Tensor* tensor = node.get_tensor("base_values_as_tensor")) return tensor->to_doubles();
  const std::vector<float> values = node.get_floats("base_values");
  return {values.begin(), values.end()};
}

// -------------------------------------------------------------------------------------------------------------- trees

int64_t class_count(const Node& node, const char* integers) {
  const int64_t count = labels_of(node, integers).size();
  if (count < 1) node.fail(ErrorCode::kInvalidModel, "the classifier has no labels");
  return count;
}

std::function<int64_t(const Node&)> label_columns(const char* integers) {
  return [integers](const Node& node) { return class_count(node, integers); };
}

/// Whether only one of two classes has weights, and none of them is negative.
struct OneClass {
  bool binary = false, positive = true;
};
OneClass one_class_of(const Forest& forest) {
  std::set<int64_t> targets;
  OneClass result;
  for (const auto& [target, weight] : forest.weights) {
    targets.insert(target);
    result.positive = result.positive && weight >= 0;
  }
  result.binary = forest.targets == 2 && targets.size() == 1;
  return result;
}

/// Two classes: their scores and the index of the label.
template <typename T>
int64_t two_classes(const OneClass& kind, PostTransform transform, const std::vector<double>& base,
                    std::vector<std::optional<T>> given, std::vector<T>& scores) {
  bool second = given[1].has_value();
  T first = given[0].value_or(0), other = given[1].value_or(0);
  if (base.size() == 2 && second) {
    other = static_cast<T>(base[1]) + first;
    first = -other;
  } else if (base.size() == 2) {
    first += static_cast<T>(base[1]);
  } else if (base.size() == 1) {
    first += static_cast<T>(base[0]);
  }
  const T weight = second ? other : first;
  const bool probability = kind.binary && kind.positive;
  const int64_t label = weight > (probability ? T(0.5) : T(0)) ? 1 : 0;
  if (second) {
    scores = {first, other};
    transform_row(transform, scores);
  } else {
    scores = both_classes(transform, first, probability);
  }
  return label;
}

void evaluate_tree_classifier(EvalContext& c, const std::vector<TypeInfo>&) {
  const Tensor labels = labels_of(c.node, "classlabels_int64s");
  const int64_t classes = class_count(c.node, "classlabels_int64s");
  const Forest forest = forest_by_nodes(c.node, "class", classes);
  const PostTransform transform = post_transform_of(c.node);
  const std::vector<double> base = base_values(c.node);
  if (!base.empty() && static_cast<int64_t>(base.size()) != classes && !(base.size() == 1 && classes <= 2))
    c.node.fail(ErrorCode::kInvalidModel,
                std::to_string(base.size()) + " base values for " + std::to_string(classes) + " classes");
  const OneClass kind = one_class_of(forest);
  with_scores(c, [&]<typename T>(kernel::Tag<T>) {
    const Rows<T> x(c.input(0));
    const std::vector<std::optional<T>> all = forest.scores<T>(c.node, x);
    classify<T>(c, x, labels, classes, [&](int64_t i, std::vector<T>& scores) -> int64_t {
      std::vector<std::optional<T>> given(all.begin() + i * classes, all.begin() + (i + 1) * classes);
      if (classes == 2) return two_classes(kind, transform, base, std::move(given), scores);
      int64_t best = -1;
      for (size_t k = 0; k < given.size(); ++k) {
        if (!base.empty()) given[k] = given[k].value_or(0) + static_cast<T>(base[k]);
        if (given[k] && (best < 0 || *given[k] > scores[static_cast<size_t>(best)])) best = static_cast<int64_t>(k);
        scores.push_back(given[k].value_or(0));
      }
      transform_row(transform, scores);
      return std::max<int64_t>(best, 0);
    });
  });
}

void infer_tree_regressor(InferContext& c) {
  const int64_t rows = row_count(c.node, c.input(0));
  if (c.node.op_type == "TreeEnsembleRegressor") post_transform_of(c.node);
  const bool same = c.node.op_type == "TreeEnsemble";
  c.outputs[0] = TypeInfo::tensor(same ? c.input(0).dtype : DType::kFloat, {rows, c.node.get_int("n_targets", 1)});
}

void regress(EvalContext& c, const Forest& forest, PostTransform transform, const std::vector<double>& base,
             const TypeInfo& type) {
  if (!base.empty() && static_cast<int64_t>(base.size()) != forest.targets)
    c.node.fail(ErrorCode::kInvalidModel,
                std::to_string(base.size()) + " base values for " + std::to_string(forest.targets) + " targets");
  with_scores(c, [&]<typename T>(kernel::Tag<T>) {
    const Rows<T> x(c.input(0));
    const std::vector<std::optional<T>> all = forest.scores<T>(c.node, x);
    std::vector<double> out;
    for (int64_t i = 0; i < x.count; ++i) {
      std::vector<T> scores;
      for (int64_t k = 0; k < forest.targets; ++k)
        scores.push_back(all[static_cast<size_t>(i * forest.targets + k)].value_or(0) +
                         (base.empty() ? T{0} : static_cast<T>(base[scores.size()])));
      if (scores.size() > 1 || transform == PostTransform::kProbit) transform_row(transform, scores);
      out.insert(out.end(), scores.begin(), scores.end());
    }
    const Shape shape = {x.count, forest.targets};
    c.outputs[0] =
        type.dtype == DType::kDouble
            ? Tensor::of(DType::kDouble, shape, out)
            : kernel::narrow(Tensor::of(DType::kFloat, shape, std::vector<float>(out.begin(), out.end())), type.dtype);
  });
}

void evaluate_tree_regressor(EvalContext& c, const std::vector<TypeInfo>& types) {
  const int64_t targets = c.node.get_int("n_targets", 1);
  if (targets < 1 || targets > (1 << 24))
    c.node.fail(ErrorCode::kInvalidModel, "attribute 'n_targets' is out of range");
  regress(c, forest_by_nodes(c.node, "target", targets), post_transform_of(c.node), base_values(c.node), types[0]);
}

/// ONNX Runtime reads 1 as LOGISTIC and 2 as SOFTMAX, the standard the other way round.
void evaluate_tree_ensemble(EvalContext& c, const std::vector<TypeInfo>& types) {
  const int64_t transform = c.node.get_int("post_transform", 0);
  if (transform < 0 || transform > 4) c.node.fail(ErrorCode::kInvalidModel, "attribute 'post_transform' is not known");
  constexpr PostTransform kTransforms[] = {PostTransform::kNone, PostTransform::kLogistic, PostTransform::kSoftmax,
                                           PostTransform::kSoftmaxZero, PostTransform::kProbit};
  regress(c, forest_by_roots(c.node), kTransforms[transform], {}, types[0]);
}

// ---------------------------------------------------------------------------------------------------- linear
// classifier

int64_t linear_columns(const Node& node) {
  const auto intercepts = static_cast<int64_t>(node.get_floats("intercepts").size());
  return intercepts == 1 && labels_of(node, "classlabels_ints").size() == 2 ? 2 : intercepts;
}

void evaluate_linear_classifier(EvalContext& c, const std::vector<TypeInfo>&) {
  const std::vector<float> weights = c.node.get_floats("coefficients"), intercepts = c.node.get_floats("intercepts");
  const Tensor labels = labels_of(c.node, "classlabels_ints");
  const size_t classes = intercepts.size();
  const bool second = classes == 1 && labels.size() == 2;
  if (classes == 0 || weights.size() % classes != 0 || (!second && labels.size() != static_cast<int64_t>(classes)))
    c.node.fail(ErrorCode::kInvalidModel, std::to_string(weights.size()) + " coefficients, " + std::to_string(classes) +
                                              " intercepts and " + std::to_string(labels.size()) +
                                              " labels do not go together");
  const PostTransform transform = post_transform_of(c.node);
  const Rows<float> rows(c.input(0));
  const int64_t width = rows.width;
  classify<float>(c, rows, labels, linear_columns(c.node), [&](int64_t row, std::vector<float>& scores) {
    const float* const x = rows.row(row);
    if (static_cast<size_t>(width) * classes != weights.size())
      c.node.fail(ErrorCode::kInvalidModel,
                  std::to_string(weights.size()) + " coefficients for " + std::to_string(width) + " features");
    for (size_t k = 0; k < classes; ++k) {
      float sum = 0;
      for (int64_t i = 0; i < width; ++i)
        sum += x[i] * weights[k * static_cast<size_t>(width) + static_cast<size_t>(i)];
      scores.push_back(sum + intercepts[k]);
    }
    const int64_t label = classes > 1 ? first_maximum(scores) : second && scores[0] > 0 ? 1 : 0;
    if (second)
      scores = both_classes(transform, scores[0], true);
    else
      transform_row(transform, scores);
    return label;
  });
}

// ---------------------------------------------------------------------------------------------- support vector
// machines

/// Kernel of two vectors, of `kernel_type` with gamma, coef0 and degree.
struct Kernel {
  std::string type;
  float gamma = 0, coefficient = 0, degree = 0;

  explicit Kernel(const Node& node) : type(node.get_string("kernel_type", "LINEAR")) {
    const std::vector<float> parameters = node.get_floats("kernel_params");
    if (type != "LINEAR" && type != "POLY" && type != "RBF" && type != "SIGMOID")
      node.fail(ErrorCode::kInvalidModel,
                "attribute 'kernel_type' = '" + type + "' is none of LINEAR, POLY, RBF, SIGMOID");
    if (parameters.size() >= 3) {
      gamma = parameters[0];
      coefficient = parameters[1];
      degree = parameters[2];
    }
  }
  float operator()(const float* a, const float* b, int64_t count) const {
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += type == "RBF" ? (a[i] - b[i]) * (a[i] - b[i]) : a[i] * b[i];
    if (type == "RBF") return std::exp(-gamma * sum);
    if (type == "POLY") return std::pow(gamma * sum + coefficient, degree);
    if (type == "SIGMOID") return std::tanh(gamma * sum + coefficient);
    return sum;
  }
};

/// Support vectors of several classes: one decision for each pair of classes, by libsvm's layout of coefficients.
struct PairwiseMachine {
  std::vector<int64_t> per_class, starts;  // support vectors of each class, and where they begin
  std::vector<float> vectors, weights, rho, prob_a, prob_b;
  int64_t classes = 0, supports = 0;

  explicit PairwiseMachine(const Node& node, int64_t width) {
    per_class = node.get_ints("vectors_per_class");
    vectors = node.get_floats("support_vectors");
    weights = node.get_floats("coefficients");
    rho = node.get_floats("rho");
    prob_a = node.get_floats("prob_a");
    prob_b = node.get_floats("prob_b");
    classes = static_cast<int64_t>(per_class.size());
    for (const int64_t count : per_class) {
      if (count < 0) node.fail(ErrorCode::kInvalidModel, "attribute 'vectors_per_class' has a negative element");
      starts.push_back(supports);
      supports += count;
    }
    const auto pairs = static_cast<size_t>(classes * (classes - 1) / 2);
    const bool proba = !prob_a.empty();
    if (classes < 2 || vectors.size() != static_cast<size_t>(supports * width) || rho.size() != pairs ||
        weights.size() != static_cast<size_t>(supports * (classes - 1)) || prob_a.size() != prob_b.size() ||
        (proba && prob_a.size() != pairs))
      node.fail(ErrorCode::kInvalidModel, "support vectors, coefficients, rho and prob_a do not fit " +
                                              std::to_string(classes) + " classes and " + std::to_string(width) +
                                              " features");
  }

  /// The decision of each pair of classes, and the class that most pairs decide for.
  std::vector<float> decide(const Kernel& kernel, const float* x, int64_t width, int64_t& label) const {
    std::vector<float> near, decisions;
    for (int64_t k = 0; k < supports; ++k) near.push_back(kernel(x, vectors.data() + k * width, width));
    std::vector<int64_t> votes(static_cast<size_t>(classes), 0);
    const auto part = [&](int64_t row, int64_t of) {
      float sum = 0;
      const int64_t first = starts[static_cast<size_t>(of)];
      for (int64_t k = first; k < first + per_class[static_cast<size_t>(of)]; ++k)
        sum += weights[static_cast<size_t>(row * supports + k)] * near[static_cast<size_t>(k)];
      return sum;
    };
    for (int64_t i = 0; i < classes; ++i)
      for (int64_t j = i + 1; j < classes; ++j) {
        decisions.push_back(part(j - 1, i) + part(i, j) + rho[decisions.size()]);
        ++votes[static_cast<size_t>(decisions.back() > 0 ? i : j)];
      }
    label = first_maximum(votes);
    return decisions;
  }

  /// Probabilities of the classes from those of the pairs, by the iteration of Wu, Lin and Weng (2004) as in libsvm.
  std::vector<float> probabilities(const std::vector<float>& decisions) const {
    const auto k = static_cast<size_t>(classes);
    std::vector<std::vector<float>> r(k, std::vector<float>(k)), q(k, std::vector<float>(k));
    size_t pair = 0;
    for (size_t i = 0; i < k; ++i)
      for (size_t j = i + 1; j < k; ++j, ++pair) {
        const float p = 1 - transformed(PostTransform::kLogistic, decisions[pair] * prob_a[pair] + prob_b[pair]);
        r[i][j] = std::min(std::max(p, 1e-7f), 1 - 1e-7f);
        r[j][i] = 1 - r[i][j];
      }
    for (size_t t = 0; t < k; ++t)
      for (size_t j = 0; j < k; ++j) {
        if (j == t) continue;
        q[t][t] += r[j][t] * r[j][t];
        q[t][j] = -r[j][t] * r[t][j];
      }
    std::vector<float> p(k, 1.0f / static_cast<float>(k)), product(k);
    for (int round = 0; round < 100; ++round) {
      float whole = 0, error = 0;
      for (size_t t = 0; t < k; ++t) {
        product[t] = std::inner_product(q[t].begin(), q[t].end(), p.begin(), 0.0f);
        whole += p[t] * product[t];
      }
      for (size_t t = 0; t < k; ++t) error = std::max(error, std::abs(product[t] - whole));
      if (error < 0.005f / static_cast<float>(k)) break;
      for (size_t t = 0; t < k; ++t) {
        const float change = (whole - product[t]) / q[t][t];
        p[t] += change;
        whole = (whole + change * (change * q[t][t] + 2 * product[t])) / (1 + change) / (1 + change);
        for (size_t j = 0; j < k; ++j) {
          product[j] = (product[j] + change * q[t][j]) / (1 + change);
          p[j] /= 1 + change;
        }
      }
    }
    return p;
  }
};

int64_t svm_columns(const Node& node) {
  const int64_t classes = class_count(node, "classlabels_ints");
  const bool pairs = !node.get_ints("vectors_per_class").empty() && node.get_floats("prob_a").empty();
  return pairs && classes > 2 ? classes * (classes - 1) / 2 : classes;
}

/// Without support vectors: one vector of weights for each class.
int64_t linear_machine(const Node& node, const Kernel& kernel, const float* x, int64_t width, int64_t classes,
                       std::vector<float>& scores) {
  const std::vector<float> weights = node.get_floats("coefficients"), rho = node.get_floats("rho");
  if (static_cast<int64_t>(weights.size()) != classes * width || rho.empty())
    node.fail(ErrorCode::kInvalidModel, std::to_string(weights.size()) + " coefficients for " +
                                            std::to_string(classes) + " classes and " + std::to_string(width) +
                                            " features");
  for (int64_t k = 0; k < classes; ++k) scores.push_back(kernel(x, weights.data() + k * width, width) + rho[0]);
  // Of two classes ONNX Runtime takes the second one where any score is high enough.
  const bool positive = std::all_of(weights.begin(), weights.end(), [](float w) { return w >= 0; });
  const float top = *std::max_element(scores.begin(), scores.end());
  if (classes == 2 && (positive ? top >= 0.5f : top > 0)) return 1;
  return first_maximum(scores);
}

void evaluate_svm_classifier(EvalContext& c, const std::vector<TypeInfo>&) {
  const Node& node = c.node;
  const Tensor labels = labels_of(node, "classlabels_ints");
  const int64_t classes = class_count(node, "classlabels_ints");
  const PostTransform transform = post_transform_of(node);
  const Kernel kernel(node);
  std::optional<PairwiseMachine> machine;
  const Rows<float> rows(c.input(0));
  const int64_t width = rows.width;
  classify<float>(c, rows, labels, svm_columns(node), [&](int64_t row, std::vector<float>& scores) {
    const float* const x = rows.row(row);
    int64_t label = 0;
    if (node.get_ints("vectors_per_class").empty()) {
      label = linear_machine(node, kernel, x, width, classes, scores);
    } else {
      if (!machine) machine.emplace(node, width);
      if (machine->classes != classes)
        node.fail(ErrorCode::kInvalidModel, "vectors_per_class and the labels differ in length");
      scores = machine->decide(kernel, x, width, label);
      if (!machine->prob_a.empty()) scores = machine->probabilities(scores);
    }
    if (scores.size() == 1)
      scores = both_classes(transform, scores[0], transform != PostTransform::kNone);
    else
      transform_row(transform, scores);
    return label;
  });
}

void infer_svm_regressor(InferContext& c) {
  post_transform_of(c.node);
  c.outputs[0] = TypeInfo::tensor(DType::kFloat, {row_count(c.node, c.input(0)), 1});
}

/// ONNX Runtime reads post_transform and leaves the scores as they are.
void evaluate_svm_regressor(EvalContext& c, const std::vector<TypeInfo>&) {
  const Node& node = c.node;
  const std::vector<float> vectors = node.get_floats("support_vectors"), weights = node.get_floats("coefficients"),
                           rho = node.get_floats("rho");
  const int64_t supports = node.get_int("n_supports", 0);
  const Rows<float> x(c.input(0));
  const auto needed = static_cast<size_t>(supports > 0 ? supports : x.width);
  if (rho.empty() || weights.size() < needed ||
      (supports > 0 && vectors.size() != needed * static_cast<size_t>(x.width)))
    node.fail(ErrorCode::kInvalidModel,
              "support vectors, coefficients and rho do not fit " + std::to_string(x.width) + " features");
  const Kernel kernel(node);
  std::vector<float> out;
  for (int64_t i = 0; i < x.count; ++i) {
    float sum = rho[0];
    for (int64_t k = 0; k < supports; ++k)
      sum += weights[static_cast<size_t>(k)] * kernel(x.row(i), vectors.data() + k * x.width, x.width);
    if (supports == 0) sum += kernel(x.row(i), weights.data(), x.width);
    if (node.get_int("one_class", 0) != 0) sum = sum > 0 ? 1.0f : -1.0f;
    out.push_back(sum);
  }
  c.outputs[0] = Tensor::of(DType::kFloat, {x.count, 1}, out);
}

}  // namespace

void register_ml_models(Registry& registry) {
  const auto add = [&](const char* name, int version, InferFunction infer, kernel::Kernel kernel,
                       std::set<std::string> attributes, int results = 1) {
    kernel::add(registry, name, version, kernel::kOne, std::move(infer), std::move(kernel), std::move(attributes),
                {1, results}, kMl);
  };
  std::set<std::string> trees = {"base_values",
                                 "nodes_falsenodeids",
                                 "nodes_featureids",
                                 "nodes_hitrates",
                                 "nodes_modes",
                                 "nodes_missing_value_tracks_true",
                                 "nodes_nodeids",
                                 "nodes_treeids",
                                 "nodes_truenodeids",
                                 "nodes_values",
                                 "post_transform",
                                 "base_values_as_tensor",
                                 "nodes_hitrates_as_tensor",
                                 "nodes_values_as_tensor"};
  const auto with = [](std::set<std::string> names, std::initializer_list<const char*> more) {
    names.insert(more.begin(), more.end());
    return names;
  };
  add("TreeEnsembleClassifier", 1, infer_classifier("classlabels_int64s", label_columns("classlabels_int64s")),
      evaluate_tree_classifier,
      with(trees, {"class_ids", "class_nodeids", "class_treeids", "class_weights", "class_weights_as_tensor",
                   "classlabels_int64s", "classlabels_strings"}),
      2);
  add("TreeEnsembleRegressor", 1, infer_tree_regressor, evaluate_tree_regressor,
      with(trees, {"aggregate_function", "n_targets", "target_ids", "target_nodeids", "target_treeids",
                   "target_weights", "target_weights_as_tensor"}));
  add("TreeEnsemble", 5, infer_tree_regressor, evaluate_tree_ensemble,
      {"aggregate_function", "leaf_targetids", "leaf_weights", "membership_values", "n_targets", "nodes_falseleafs",
       "nodes_falsenodeids", "nodes_featureids", "nodes_hitrates", "nodes_missing_value_tracks_true", "nodes_modes",
       "nodes_splits", "nodes_trueleafs", "nodes_truenodeids", "post_transform", "tree_roots"});
  add("LinearClassifier", 1, infer_classifier("classlabels_ints", linear_columns), evaluate_linear_classifier,
      {"classlabels_ints", "classlabels_strings", "coefficients", "intercepts", "multi_class", "post_transform"}, 2);
  add("SVMClassifier", 1, infer_classifier("classlabels_ints", svm_columns), evaluate_svm_classifier,
      {"classlabels_ints", "classlabels_strings", "coefficients", "kernel_params", "kernel_type", "post_transform",
       "prob_a", "prob_b", "rho", "support_vectors", "vectors_per_class"},
      2);
  add("SVMRegressor", 1, infer_svm_regressor, evaluate_svm_regressor,
      {"coefficients", "kernel_params", "kernel_type", "n_supports", "one_class", "post_transform", "rho",
       "support_vectors"});
}

}  // namespace tessera::ops
