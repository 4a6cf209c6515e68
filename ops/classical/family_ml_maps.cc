// SPDX-License-Identifier: Apache-2.0
// Operators of domain ai.onnx.ml that take a map: DictVectorizer and CastMap. A map is two vectors here, its keys and
// its values, which the importer makes of an input (compiler/onnx/map_inputs.h). Keys that the operator does not know
// are left out, and places without a key are 0 or empty, as in ONNX Runtime.
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <unordered_map>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

namespace maps {

constexpr size_t kKeys = 0, kValues = 1;

void require_map(const InferContext& c, DType keys) {
  kernel::require_type(c.node, c.input(kKeys).dtype, kernel::set_of({keys}), "the keys of the map");
  for (size_t i : {kKeys, kValues}) kernel::require_rank(c.node, c.input(i), 1, "the keys or values of the map");
  const TypeInfo &k = c.input(kKeys), &v = c.input(kValues);
  if (k.is_static() && v.is_static() && k.shape != v.shape)
    c.node.fail(ErrorCode::kInvalidModel,
                "a map has " + std::to_string(k.shape[0]) + " keys and " + std::to_string(v.shape[0]) + " values");
}

// ----------------------------------------------------------------------------------------------------- DictVectorizer

bool has_words(const Node& node) { return node.has("string_vocabulary"); }

void infer_vector(InferContext& c) {
  const bool words = has_words(c.node);
  if (words == c.node.has("int64_vocabulary"))
    c.node.fail(ErrorCode::kInvalidModel, "one of string_vocabulary and int64_vocabulary must be given");
  require_map(c, words ? DType::kString : DType::kInt64);
  const size_t width =
      words ? c.node.get_strings("string_vocabulary").size() : c.node.get_ints("int64_vocabulary").size();
  c.outputs[0] = TypeInfo::tensor(c.input(kValues).dtype, {1, static_cast<int64_t>(width)});
}

/// For each word of the vocabulary the place of its key, the number of keys where it has none.
template <typename Key>
std::vector<int64_t> places_of(const std::vector<Key>& vocabulary, const std::vector<Key>& keys) {
  std::unordered_map<Key, int64_t> places;
  for (size_t i = 0; i < keys.size(); ++i) places[keys[i]] = static_cast<int64_t>(i);
  std::vector<int64_t> result;
  for (const Key& word : vocabulary) {
    const auto found = places.find(word);
    result.push_back(found == places.end() ? static_cast<int64_t>(keys.size()) : found->second);
  }
  return result;
}

/// The values at the given places, 0 or empty behind their end.
Tensor gathered(const Node& node, const Tensor& values, const std::vector<int64_t>& places) {
  const Node join{"", "Concat", 13, node.name, {{"axis", int64_t{0}}}, 1};
  const Node pick{"", "Gather", 13, node.name, {{"axis", int64_t{0}}}, 1};
  const Value all = evaluate(join, {values, Tensor(values.dtype(), {1})})[0];
  const Tensor picked = evaluate(pick, {all, Tensor::vector_i64(places)})[0].tensor;
  return picked.reshaped({1, static_cast<int64_t>(places.size())});
}

void evaluate_vector(EvalContext& c, const std::vector<TypeInfo>&) {
  const Tensor& keys = c.input(kKeys);
  const std::vector<int64_t> places = has_words(c.node)
                                          ? places_of(c.node.get_strings("string_vocabulary"), keys.strings())
                                          : places_of(c.node.get_ints("int64_vocabulary"), keys.to_int64s());
  c.outputs[0] = gathered(c.node, c.input(kValues), places);
}

// ------------------------------------------------------------------------------------------------------------ CastMap

bool is_sparse(const Node& node) {
  const std::string form = node.get_string("map_form", "DENSE");
  if (form != "DENSE" && form != "SPARSE")
    node.fail(ErrorCode::kInvalidModel, "attribute 'map_form' = '" + form + "' is neither DENSE nor SPARSE");
  return form == "SPARSE";
}

DType cast_type(const Node& node) {
  const std::string to = node.get_string("cast_to", "TO_FLOAT");
  if (to == "TO_FLOAT") return DType::kFloat;
  if (to == "TO_INT64") return DType::kInt64;
  if (to == "TO_STRING") return DType::kString;
  node.fail(ErrorCode::kInvalidModel, "attribute 'cast_to' = '" + to + "' is none of TO_FLOAT, TO_INT64, TO_STRING");
}

void infer_cast(InferContext& c) {
  require_map(c, DType::kInt64);
  kernel::require_type(c.node, c.input(kValues).dtype, kernel::set_of({DType::kFloat, DType::kString}),
                       "the values of the map");
  const TypeInfo& keys = c.input(kKeys);
  const int64_t width = c.node.get_int("max_map", 1);
  if (is_sparse(c.node) && (width < 1 || width > kernel::kSizeLimit))
    c.node.fail(ErrorCode::kInvalidModel, "attribute 'max_map' = " + std::to_string(width) + " is out of range");
  c.outputs[0] = TypeInfo::tensor(cast_type(c.node), {1, is_sparse(c.node) ? width : keys.ranked ? keys.shape[0] : -1});
}

/// The value as text, as printf writes a float.
std::string text_of(const Tensor& values, size_t i) {
  return values.dtype() == DType::kString ? values.strings()[i] : std::to_string(values.as<float>()[i]);
}

void put(Tensor& out, size_t at, const Tensor& values, size_t i) {
  if (out.dtype() == DType::kString) {
    out.mutable_strings()[at] = text_of(values, i);
  } else if (out.dtype() == DType::kInt64) {
    out.as_mutable<int64_t>()[at] = values.dtype() == DType::kString
                                        ? std::strtoll(values.strings()[i].c_str(), nullptr, 10)
                                        : static_cast<int64_t>(values.as<float>()[i]);
  } else {
    out.as_mutable<float>()[at] =
        values.dtype() == DType::kString ? std::strtof(values.strings()[i].c_str(), nullptr) : values.as<float>()[i];
  }
}

/// Values by ascending keys, side by side or each at the place of its key.
void evaluate_cast(EvalContext& c, const std::vector<TypeInfo>& types) {
  const std::vector<int64_t> keys = c.input(kKeys).to_int64s();
  const Tensor& values = c.input(kValues);
  Tensor out(types[0].dtype, types[0].shape);
  if (is_sparse(c.node)) {
    if (out.dtype() == DType::kString) std::ranges::fill(out.mutable_strings(), "0.f");  // as in ONNX Runtime
    for (size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] < 0)
        c.node.fail(ErrorCode::kInvalidArgument,
                    "the map has key " + std::to_string(keys[i]) + "; give keys from 0 on");
      if (keys[i] < out.size()) put(out, static_cast<size_t>(keys[i]), values, i);
    }
  } else {
    std::vector<size_t> order(keys.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, {}, [&](size_t i) { return keys[i]; });
    for (size_t at = 0; at < order.size(); ++at) put(out, at, values, order[at]);
  }
  c.outputs[0] = std::move(out);
}

}  // namespace maps

}  // namespace

void register_ml_maps(Registry& registry) {
  kernel::add(registry, "DictVectorizer", 1, kernel::kTwo, maps::infer_vector, maps::evaluate_vector,
              {"int64_vocabulary", "string_vocabulary"}, kernel::kOne, kMl);
  kernel::add(registry, "CastMap", 1, kernel::kTwo, maps::infer_cast, maps::evaluate_cast,
              {"cast_to", "map_form", "max_map"}, kernel::kOne, kMl);
}

}  // namespace tessera::ops
