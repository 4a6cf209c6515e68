// SPDX-License-Identifier: Apache-2.0
// Operators of domain ai.onnx.ml that are arithmetic on tensors: preparation of features, linear regression, trees of
// regression, and the encoder of labels. What is arithmetic of the standard's operators is written as an expansion.
#include <cmath>
#include <limits>
#include <unordered_map>

#include "ops/expansion.h"

namespace tessera::ops {

namespace {

using Operand = Expander::Operand;
using Types = std::vector<TypeInfo>;

constexpr int kModelsVersion = 19;

const TypeInfo& first(const Node& node, const Types& inputs) {
  if (inputs.empty() || !inputs[0].present) node.fail(ErrorCode::kInvalidModel, "input 0 is missing");
  return inputs[0];
}

Operand floats(const std::vector<float>& values) {
  return Expander::constant(Tensor::of(DType::kFloat, {static_cast<int64_t>(values.size())}, values));
}

void infer_unknown_float(InferContext& c) { c.outputs[0] = TypeInfo::unranked(DType::kFloat); }

/// (x - offset) * scale of each feature, as float32.
std::optional<Expansion> expand_scaler(const Node& node, const Types& inputs) {
  first(node, inputs);
  Expander e(node, inputs, kModelsVersion);
  Operand y = e.cast(e.input(0), DType::kFloat);
  if (node.has("offset")) y = e.step("Sub", {y, floats(node.get_floats("offset"))});
  if (node.has("scale")) y = e.step("Mul", {y, floats(node.get_floats("scale"))});
  return e.finish({y});
}

/// 1 where x is above the threshold, else 0, of x's type.
std::optional<Expansion> expand_binarizer(const Node& node, const Types& inputs) {
  const DType type = first(node, inputs).dtype;
  Expander e(node, inputs, kModelsVersion);
  const Operand above = e.step(
      "Greater", {e.cast(e.input(0), DType::kFloat), Expander::scalar(DType::kFloat, node.get_float("threshold", 0))});
  return e.finish({e.cast(above, type)});
}

/// x over the norm of its row; rows of norm 0 stay.
std::optional<Expansion> expand_normalizer(const Node& node, const Types& inputs) {
  first(node, inputs);
  const std::string norm = node.get_string("norm", "MAX");
  if (norm != "MAX" && norm != "L1" && norm != "L2")
    node.fail(ErrorCode::kInvalidModel, "attribute 'norm' = '" + norm + "' is none of MAX, L1, L2");
  Expander e(node, inputs, kModelsVersion);
  const Operand x = e.cast(e.input(0), DType::kFloat);
  const Expander::Attributes over = {{"axes", std::vector<int64_t>{-1}}, {"keepdims", int64_t{1}}};
  const Operand size = e.steps(norm == "MAX"  ? "ReduceMax"
                               : norm == "L1" ? "ReduceL1"
                                              : "ReduceL2",
                               {x}, over, 1, "", 13)[0];
  const Operand none = e.step("Equal", {size, Expander::scalar(DType::kFloat, 0)});
  return e.finish({e.step("Div", {x, e.step("Where", {none, Expander::scalar(DType::kFloat, 1), size})})});
}

/// Features that hold replaced_value (NaN included) become those of imputed_value.
std::optional<Expansion> expand_imputer(const Node& node, const Types& inputs) {
  const DType type = first(node, inputs).dtype;
  Expander e(node, inputs, kModelsVersion);
  if (type == DType::kInt64) {
    const Operand missing =
        e.step("Equal", {e.input(0), Expander::constant(Tensor::scalar_i64(node.get_int("replaced_value_int64", 0)))});
    const Operand values = Expander::integers(node.get_ints("imputed_value_int64s"));
    return e.finish({e.step("Where", {missing, values, e.input(0)})});
  }
  if (type != DType::kFloat) node.fail(ErrorCode::kUnsupported, "the input must be float32 or int64");
  const float replaced = node.get_float("replaced_value_float", 0);
  const Operand missing = std::isnan(replaced) ? e.step("IsNaN", {e.input(0)})
                                               : e.step("Equal", {e.input(0), Expander::scalar(type, replaced)});
  return e.finish({e.step("Where", {missing, floats(node.get_floats("imputed_value_floats")), e.input(0)})});
}

/// x [N,F] times the coefficients [targets,F] plus the intercepts. With a transform these are the scores of a
/// LinearClassifier. Of the transforms ONNX Runtime applies PROBIT alone to a single target.
std::optional<Expansion> expand_linear_regressor(const Node& node, const Types& inputs) {
  kernel::require_rank(node, first(node, inputs), 2, "the input");
  const std::vector<float> coefficients = node.get_floats("coefficients"), intercepts = node.get_floats("intercepts");
  const int64_t targets = node.get_int("targets", 1);
  if (targets < 1 || coefficients.empty() || static_cast<int64_t>(coefficients.size()) % targets != 0)
    node.fail(ErrorCode::kInvalidModel, std::to_string(coefficients.size()) + " coefficients do not make " +
                                            std::to_string(targets) + " targets");
  const int64_t features = static_cast<int64_t>(coefficients.size()) / targets;
  Expander e(node, inputs, kModelsVersion);
  const std::string transform = node.get_string("post_transform", "NONE");
  if (transform != "NONE" && (targets > 1 || transform == "PROBIT")) {
    const auto count = static_cast<size_t>(targets);
    const Expander::Attributes attributes = {
        {"classlabels_ints", std::vector<int64_t>(count)},
        {"coefficients", coefficients},
        {"intercepts", intercepts.empty() ? std::vector<float>(count) : intercepts},
        {"post_transform", transform}};
    return e.finish({e.steps("LinearClassifier", {e.cast(e.input(0), DType::kFloat)}, attributes, 2, kMl, 1)[1]});
  }
  const Operand weights = Expander::constant(Tensor::of(DType::kFloat, {targets, features}, coefficients));
  const Operand turned = e.step("Transpose", {weights}, {{"perm", std::vector<int64_t>{1, 0}}});
  Operand y = e.step("MatMul", {e.cast(e.input(0), DType::kFloat), turned});
  if (!intercepts.empty()) y = e.step("Add", {y, floats(intercepts)});
  return e.finish({y});
}

/// Elements of the last dimension by their indices; a vector gives one row.
std::optional<Expansion> expand_extractor(const Node& node, const Types& inputs) {
  const TypeInfo& x = first(node, inputs);
  if (!x.ranked) return std::nullopt;
  Expander e(node, inputs, kModelsVersion);
  Operand data = e.input(0);
  if (x.shape.size() == 1) data = e.step("Unsqueeze", {data, Expander::integers({0})});
  const Operand indices = e.step("Reshape", {e.input(1), Expander::integers({-1})});
  return e.finish({e.step("Gather", {data, indices}, {{"axis", int64_t{-1}}})});
}

/// The inputs [N,C] (or [C] as one row) side by side as float32, each cut or filled with zeros to its given width.
std::optional<Expansion> expand_feature_vectorizer(const Node& node, const Types& inputs) {
  const std::vector<int64_t> widths = node.get_ints("inputdimensions");
  if (widths.size() != inputs.size())
    node.fail(ErrorCode::kInvalidModel,
              std::to_string(widths.size()) + " inputdimensions for " + std::to_string(inputs.size()) + " inputs");
  Expander e(node, inputs, kModelsVersion);
  std::vector<Operand> parts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Shape& shape = inputs[i].shape;
    if (!inputs[i].ranked || shape.empty()) return std::nullopt;
    const int64_t width = kernel::product(shape, shape.size() > 1 ? 1 : 0, shape.size());
    if (width < 0) return std::nullopt;
    Operand part = e.cast(e.input(i), DType::kFloat);
    if (shape.size() == 1) part = e.step("Unsqueeze", {part, Expander::integers({0})});
    if (shape.size() > 2) part = e.step("Flatten", {part}, {{"axis", int64_t{1}}});
    if (width > widths[i])
      part = e.step("Slice", {part, Expander::integers({0}), Expander::integers({widths[i]}), Expander::integers({1})});
    if (width < widths[i]) part = e.step("Pad", {part, Expander::integers({0, 0, 0, widths[i] - width})});
    parts.push_back(part);
  }
  return e.finish({e.step("Concat", parts, {{"axis", int64_t{1}}})});
}

// ------------------------------------------------------------------------------------- LabelEncoder, CategoryMapper

/// Keys or values as a vector: `prefix`_strings, _int64s, _floats or _tensor.
Tensor labels(const Node& node, const std::string& prefix) {
  if (const Tensor* tensor = node.get_tensor(prefix + "_tensor")) return tensor->reshaped({tensor->size()});
  if (node.has(prefix + "_strings")) return Tensor::vector_of_strings(node.get_strings(prefix + "_strings"));
  if (node.has(prefix + "_int64s")) return Tensor::vector_i64(node.get_ints(prefix + "_int64s"));
  const std::vector<float> values = node.get_floats(prefix + "_floats");
  return Tensor::of(DType::kFloat, {static_cast<int64_t>(values.size())}, values);
}

struct Dictionary {
  Tensor keys, values, fallback;
};

/// Before version 2 the list of classes goes both ways: names to places, and places to names.
Dictionary dictionary_of(const Node& node, DType input) {
  Dictionary d;
  if (node.op_type == "CategoryMapper") {
    const Tensor names = Tensor::vector_of_strings(node.get_strings("cats_strings")),
                 numbers = Tensor::vector_i64(node.get_ints("cats_int64s"));
    d.keys = input == DType::kString ? names : numbers;
    d.values = input == DType::kString ? numbers : names;
  } else if (node.version < 2) {
    const std::vector<std::string> names = node.get_strings("classes_strings");
    std::vector<int64_t> places(names.size());
    for (size_t i = 0; i < names.size(); ++i) places[i] = static_cast<int64_t>(i);
    d.keys = input == DType::kString ? Tensor::vector_of_strings(names) : Tensor::vector_i64(places);
    d.values = input == DType::kString ? Tensor::vector_i64(places) : Tensor::vector_of_strings(names);
  } else {
    d.keys = labels(node, "keys");
    d.values = labels(node, "values");
  }
  if (const Tensor* tensor = node.get_tensor("default_tensor")) {
    d.fallback = tensor->reshaped({1});
  } else if (d.values.dtype() == DType::kString) {
    d.fallback = Tensor::vector_of_strings({node.get_string("default_string", "_Unused")});
  } else if (d.values.dtype() == DType::kInt64) {
    d.fallback = Tensor::vector_i64({node.get_int("default_int64", -1)});
  } else if (d.values.dtype() == DType::kFloat) {
    d.fallback = Tensor::of<float>(DType::kFloat, {1}, {node.get_float("default_float", -0.0f)});
  } else {
    d.fallback = Tensor(d.values.dtype(), {1});
  }
  if (d.keys.size() != d.values.size() || d.fallback.dtype() != d.values.dtype())
    node.fail(ErrorCode::kInvalidModel, std::to_string(d.keys.size()) + " keys for " + std::to_string(d.values.size()) +
                                            " values, or a default of another type");
  if (d.keys.dtype() != input)
    node.fail(ErrorCode::kInvalidModel, "the input is " + std::string(to_string(input)) + ", the keys are " +
                                            std::string(to_string(d.keys.dtype())));
  return d;
}

/// Equal elements have equal texts; every NaN is one key, which ONNX Runtime finds from version 4 on.
std::string key_of(const Tensor& tensor, int64_t i) {
  if (tensor.dtype() == DType::kString) return tensor.strings()[static_cast<size_t>(i)];
  if (!is_floating(tensor.dtype())) return std::to_string(tensor.at_int64(i));
  const double value = tensor.at_double(i);
  if (std::isnan(value)) return "nan";
  const double positive = value == 0 ? 0 : value;
  return std::string(reinterpret_cast<const char*>(&positive), sizeof(positive));
}

/// One more dimension, 1 at the place of the category; all zeros for a value that is none, which attribute `zeros` = 0
/// makes an error.
void infer_one_hot(InferContext& c) {
  const TypeInfo& x = c.input(0);
  const bool text = x.dtype == DType::kString;
  const size_t categories = text ? c.node.get_strings("cats_strings").size() : c.node.get_ints("cats_int64s").size();
  if (categories == 0)
    c.node.fail(ErrorCode::kInvalidModel, std::string("has no ") + (text ? "cats_strings" : "cats_int64s") +
                                              " for an operand of " + std::string(to_string(x.dtype)));
  c.outputs[0] = TypeInfo::unranked(DType::kFloat);
  if (!x.ranked) return;
  Shape shape = x.shape;
  shape.push_back(static_cast<int64_t>(categories));
  c.outputs[0] = TypeInfo::tensor(DType::kFloat, std::move(shape));
}

void evaluate_one_hot(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor& given = c.input(0);
  const bool text = given.dtype() == DType::kString;
  const Tensor x =
      text ? given
           : evaluate({"", "Cast", 13, "", {{"to", static_cast<int64_t>(DType::kInt64)}}, 1}, {given})[0].tensor;
  const Tensor categories = text ? Tensor::vector_of_strings(c.node.get_strings("cats_strings"))
                                 : Tensor::vector_i64(c.node.get_ints("cats_int64s"));
  std::unordered_map<std::string, int64_t> places;
  for (int64_t i = 0; i < categories.size(); ++i) places[key_of(categories, i)] = i;
  Tensor out(DType::kFloat, types[0].shape);
  auto y = out.as_mutable<float>();
  const bool needed = c.node.get_int("zeros", 1) == 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    const auto found = places.find(key_of(x, i));
    if (found != places.end())
      y[static_cast<size_t>(i * categories.size() + found->second)] = 1;
    else if (needed)
      c.node.fail(
          ErrorCode::kInvalidArgument,
          "element " + std::to_string(i) + " of the operand, " +
              (text ? "'" + x.strings()[static_cast<size_t>(i)] + "'"
                    : std::to_string(x.as<int64_t>()[static_cast<size_t>(i)])) +
              ", is none of the categories, which attribute 'zeros' = 0 makes an error; give one of the categories");
  }
  c.outputs[0] = std::move(out);
}

void infer_label_encoder(InferContext& c) {
  const Dictionary d = dictionary_of(c.node, c.input(0).dtype);
  c.outputs[0] = kernel::without_constant(c.input(0), d.values.dtype());
}

void evaluate_label_encoder(EvalContext& c, const std::vector<TypeInfo>&) {
  const Tensor& x = c.input(0);
  const Dictionary d = dictionary_of(c.node, x.dtype());
  std::unordered_map<std::string, int64_t> places;
  for (int64_t i = 0; i < d.keys.size(); ++i) places.emplace(key_of(d.keys, i), i);
  Tensor indices(DType::kInt64, x.shape());
  auto out = indices.as_mutable<int64_t>();
  for (int64_t i = 0; i < x.size(); ++i) {
    const bool lost = c.node.version < 4 && is_floating(x.dtype()) && std::isnan(x.at_double(i));
    const auto found = lost ? places.end() : places.find(key_of(x, i));
    out[static_cast<size_t>(i)] = found == places.end() ? d.values.size() : found->second;
  }
  const Node join{"", "Concat", 13, c.node.name, {{"axis", int64_t{0}}}, 1};
  const Node pick{"", "Gather", 13, c.node.name, {{"axis", int64_t{0}}}, 1};
  c.outputs[0] = evaluate(pick, {evaluate(join, {d.values, d.fallback})[0], indices})[0];
}

}  // namespace

void register_ml(Registry& registry) {
  const auto expansion = [&](const char* name, kernel::Arity inputs, ExpandFunction expand,
                             std::set<std::string> attributes, InferFunction unknown = {}) {
    add_expansion(registry, name, 1, inputs, std::move(expand), std::move(attributes), kernel::kOne, kMl,
                  std::move(unknown));
  };
  expansion("ArrayFeatureExtractor", kernel::kTwo, expand_extractor, {});
  expansion("Binarizer", kernel::kOne, expand_binarizer, {"threshold"});
  expansion("FeatureVectorizer", {1, -1}, expand_feature_vectorizer, {"inputdimensions"}, infer_unknown_float);
  expansion("Imputer", kernel::kOne, expand_imputer,
            {"imputed_value_floats", "imputed_value_int64s", "replaced_value_float", "replaced_value_int64"});
  expansion("LinearRegressor", kernel::kOne, expand_linear_regressor,
            {"coefficients", "intercepts", "post_transform", "targets"}, infer_unknown_float);
  expansion("Normalizer", kernel::kOne, expand_normalizer, {"norm"}, infer_unknown_float);
  expansion("Scaler", kernel::kOne, expand_scaler, {"offset", "scale"}, infer_unknown_float);
  kernel::add(registry, "OneHotEncoder", 1, kernel::kOne, infer_one_hot, evaluate_one_hot,
              {"cats_int64s", "cats_strings", "zeros"}, kernel::kOne, kMl);
  std::set<std::string> names = {"classes_strings", "default_int64", "default_string"};
  kernel::add(registry, "LabelEncoder", 1, kernel::kOne, infer_label_encoder, evaluate_label_encoder, names,
              kernel::kOne, kMl);
  names = {"default_float", "default_int64", "default_string", "keys_floats",   "keys_int64s",
           "keys_strings",  "values_floats", "values_int64s",  "values_strings"};
  kernel::add(registry, "LabelEncoder", 2, kernel::kOne, infer_label_encoder, evaluate_label_encoder, names,
              kernel::kOne, kMl);
  kernel::add(registry, "CategoryMapper", 1, kernel::kOne, infer_label_encoder, evaluate_label_encoder,
              {"cats_int64s", "cats_strings", "default_int64", "default_string"}, kernel::kOne, kMl);
  names.insert({"default_tensor", "keys_tensor", "values_tensor"});
  kernel::add(registry, "LabelEncoder", 4, kernel::kOne, infer_label_encoder, evaluate_label_encoder, names,
              kernel::kOne, kMl);
}

}  // namespace tessera::ops
