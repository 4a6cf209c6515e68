// SPDX-License-Identifier: Apache-2.0
// A map has no place in a tensor, and no order of its own: keys and values side by side say the same.
#include "compiler/onnx/map_inputs.h"

#include <set>

#include "base/error.h"

namespace tessera::onnx {

namespace {

using onnx_proto::GraphProto;
using onnx_proto::NodeProto;
using onnx_proto::ValueInfoProto;

std::string keys_of(const std::string& name) { return name + ".keys"; }
std::string values_of(const std::string& name) { return name + ".values"; }

ValueInfoProto vector_of(const std::string& name, const std::string& length, int32_t element) {
  ValueInfoProto value;
  value.set_name(name);
  auto* const type = value.mutable_type()->mutable_tensor_type();
  type->set_elem_type(element);
  type->mutable_shape()->add_dim()->set_dim_param(length);
  return value;
}

bool takes_map(const NodeProto& node) {
  return node.domain() == "ai.onnx.ml" && (node.op_type() == "DictVectorizer" || node.op_type() == "CastMap");
}

void read_vectors(NodeProto& node, const std::set<std::string>& maps) {
  for (const std::string& name : node.input()) {
    if (!maps.contains(name)) continue;
    if (!takes_map(node) || node.input_size() != 1)
      throw Error(ErrorCode::kUnsupported, "node '" + node.name() + "' (" + node.op_type() + "): input '" + name +
                                               "' is a map, which only DictVectorizer and CastMap take");
    const std::string keys = keys_of(name), values = values_of(name);  // `name` is the node's own
    node.set_input(0, keys);
    node.add_input(values);
    return;
  }
}

}  // namespace

void split_map_inputs(GraphProto& graph) {
  std::set<std::string> maps;
  google::protobuf::RepeatedPtrField<ValueInfoProto> inputs;
  for (ValueInfoProto& input : *graph.mutable_input()) {
    if (!input.type().has_map_type()) {
      *inputs.Add() = std::move(input);
      continue;
    }
    const auto& map = input.type().map_type();
    if (!map.value_type().has_tensor_type())
      throw Error(ErrorCode::kUnsupported, "input '" + input.name() + "' is a map whose values are no tensors");
    maps.insert(input.name());
    const std::string length = input.name() + ".length";
    *inputs.Add() = vector_of(keys_of(input.name()), length, map.key_type());
    *inputs.Add() = vector_of(values_of(input.name()), length, map.value_type().tensor_type().elem_type());
  }
  *graph.mutable_input() = std::move(inputs);
  for (NodeProto& node : *graph.mutable_node()) read_vectors(node, maps);
}

}  // namespace tessera::onnx
