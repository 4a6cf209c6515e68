// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/interface_types.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <vector>

#include "compiler/nn/inference.h"
#include "compiler/onnx/tensor_decode.h"

namespace tessera::onnx {
namespace {

using onnx_proto::GraphProto;
using onnx_proto::TypeProto;

/// Whether a dimension's name says only that its size is open: exporters write "?" for each such axis, so two of them
/// are two dimensions. A name of digits or signs alone ("?", "-1", "*"), and the "None" of Python, are such names.
bool is_anonymous(const std::string& dimension) {
  return dimension == "None" || std::none_of(dimension.begin(), dimension.end(),
                                             [](unsigned char c) { return std::isalpha(c) != 0 || c >= 0x80; });
}

std::string listed(const auto& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? std::string("none") : text;
}

/// Sizes of a graph's symbolic dimensions, by their names and by the shapes of inputs.
class Binding {
 public:
  explicit Binding(const GraphProto& graph) {
    for (const auto& input : graph.input()) {
      inputs_[input.name()] = &input.type();
      if (!input.type().has_tensor_type()) continue;
      for (const auto& dim : input.type().tensor_type().shape().dim()) {
        if (dim.has_dim_param() && !is_anonymous(dim.dim_param())) symbols_.insert(dim.dim_param());
      }
    }
  }

  bool has_input(const std::string& name) const { return inputs_.count(name) != 0; }

  void bind_symbol(const std::string& name, int64_t value) {
    if (symbols_.count(name)) {
      bind(name, value, "shape option");
      by_name_.insert(name);
      return;
    }
    std::vector<std::string> names;
    for (const auto& [input, type] : inputs_) names.push_back(input);
    throw Error(ErrorCode::kInvalidArgument, "shape option: the model has no input and no dimension '" + name +
                                                 "'; inputs: " + listed(names) +
                                                 "; symbolic dimensions: " + listed(symbols_));
  }

  /// A shape whose name is no input's: "batch=4" reads as a shape of one dimension, and means a symbol.
  void bind_symbol(const std::string& name, const ops::Shape& shape) {
    if (symbols_.count(name) && shape.size() != 1) {
      throw Error(ErrorCode::kInvalidArgument, "shape option: dimension '" + name + "' takes one size, " +
                                                   std::to_string(shape.size()) + " were given");
    }
    bind_symbol(name, shape.empty() ? 0 : shape[0]);
  }

  /// The symbolic dimensions of an input that has this shape.
  void bind_input(const std::string& name, const ops::Shape& shape) {
    const TypeProto& type = *inputs_.at(name);
    if (!type.has_tensor_type() || !type.tensor_type().has_shape()) return;
    const auto& dims = type.tensor_type().shape();
    if (dims.dim_size() != static_cast<int>(shape.size())) {
      throw Error(ErrorCode::kInvalidArgument, "shape option: input '" + name + "' has " +
                                                   std::to_string(dims.dim_size()) + " dimensions, " +
                                                   std::to_string(shape.size()) + " were given");
    }
    for (int i = 0; i < dims.dim_size(); ++i) {
      if (shape[static_cast<size_t>(i)] == ImportOptions::kOpen) continue;
      if (dims.dim(i).has_dim_param() && !is_anonymous(dims.dim(i).dim_param())) {
        bind(dims.dim(i).dim_param(), shape[static_cast<size_t>(i)], "shape option for '" + name + "'");
      }
    }
  }

  BoundDims finish() && {
    for (const std::string& name : ambiguous_) bound_.erase(name);
    return std::move(bound_);
  }

 private:
  void bind(const std::string& name, int64_t value, const std::string& what) {
    if (value < 0)
      throw Error(ErrorCode::kInvalidArgument, what + ": dimension " + std::to_string(value) + " is negative");
    auto [it, inserted] = bound_.emplace(name, value);
    if (!inserted && it->second != value) {
      if (!by_name_.count(name)) {
        ambiguous_.insert(name);
        return;
      }
      throw Error(ErrorCode::kInvalidArgument, what + ": dimension '" + name + "' is given as " +
                                                   std::to_string(it->second) + " and as " + std::to_string(value));
    }
  }

  BoundDims bound_;
  std::set<std::string> symbols_, by_name_, ambiguous_;
  std::map<std::string, const TypeProto*> inputs_;
};

}  // namespace

BoundDims bind_dims(const GraphProto& graph, const ImportOptions& options) {
  Binding binding(graph);
  for (const auto& [name, value] : options.dims) binding.bind_symbol(name, value);
  for (const auto& [name, shape] : options.shapes)
    if (!binding.has_input(name)) binding.bind_symbol(name, shape);
  for (const auto& [name, shape] : options.shapes)
    if (binding.has_input(name)) binding.bind_input(name, shape);
  return std::move(binding).finish();
}

ops::TypeInfo type_info(const TypeProto& type, const BoundDims& bound, const std::string& what, int depth) {
  if (depth > 4) fail(what + ": type nests too deeply");
  if (type.has_sequence_type()) {
    ops::TypeInfo info = type_info(type.sequence_type().elem_type(), bound, what, depth + 1);
    info.kind = ops::TypeInfo::Kind::kSequence;
    return info;
  }
  if (type.has_optional_type()) {
    ops::TypeInfo info = type_info(type.optional_type().elem_type(), bound, what, depth + 1);
    if (info.kind == ops::TypeInfo::Kind::kTensor) info.kind = ops::TypeInfo::Kind::kOptional;
    return info;
  }
  if (!type.has_tensor_type()) {
    bool none = type.value_case() == TypeProto::VALUE_NOT_SET;
    throw Error(
        none ? ErrorCode::kInvalidModel : ErrorCode::kUnsupported,
        what + (none ? " has no type" : " is a map, a sparse tensor or an opaque value, which are not supported"));
  }
  ops::TypeInfo info = ops::TypeInfo::unranked(to_dtype(type.tensor_type().elem_type(), what));
  if (!type.tensor_type().has_shape()) return info;
  info.ranked = true;
  for (const auto& dim : type.tensor_type().shape().dim()) {
    int64_t value = -1;
    if (dim.has_dim_value()) {
      value = dim.dim_value();
      if (value < -1) fail(what + " has a dimension of " + std::to_string(value));
    } else if (dim.has_dim_param()) {
      const auto size = bound.find(dim.dim_param());
      if (size != bound.end()) value = size->second;
    }
    info.shape.push_back(value);
  }
  return info;
}

ops::TypeInfo input_type(const onnx_proto::ValueInfoProto& input, const BoundDims& bound,
                         const ImportOptions& options) {
  std::string what = "input '" + input.name() + "'";
  if (!input.has_type()) fail(what + " has no type");
  ops::TypeInfo info = type_info(input.type(), bound, what);
  if (auto given = options.shapes.find(input.name());
      given != options.shapes.end() && info.kind == ops::TypeInfo::Kind::kTensor) {
    if (!info.ranked) {
      info.ranked = true;
      info.shape.assign(given->second.size(), -1);
    }
    for (size_t i = 0; i < info.shape.size(); ++i) {
      int64_t value = given->second[i];
      if (value == ImportOptions::kOpen) continue;
      if (value < 0) throw Error(ErrorCode::kInvalidArgument, "shape option: a dimension of " + what + " is negative");
      if (info.shape[i] >= 0 && info.shape[i] != value) {
        throw Error(ErrorCode::kInvalidArgument, "shape option: dimension " + std::to_string(i) + " of " + what +
                                                     " is fixed at " + std::to_string(info.shape[i]) + ", " +
                                                     std::to_string(value) + " was given");
      }
      info.shape[i] = value;
    }
  }
  nn::check_size(info, what);
  return info;
}

void parse_shape_option(std::string_view text, ImportOptions& options) {
  auto refuse = [&] {
    throw Error(ErrorCode::kInvalidArgument,
                "shape option '" + std::string(text) + "' is not NAME=D0,D1,... with dimensions of at least 0");
  };
  size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0) refuse();
  std::vector<int64_t> dims;
  std::string_view rest = text.substr(equals + 1);
  while (!rest.empty()) {
    size_t comma = rest.find(',');
    std::string_view number = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    if (number.empty() || number.size() > 12 || number.find_first_not_of("0123456789") != std::string_view::npos)
      refuse();
    dims.push_back(std::stoll(std::string(number)));
    if (comma != std::string_view::npos && rest.empty()) refuse();
  }
  options.shapes[std::string(text.substr(0, equals))] = dims;
}

}  // namespace tessera::onnx
