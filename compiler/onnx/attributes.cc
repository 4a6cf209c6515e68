// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/attributes.h"

#include <set>
#include <vector>

#include "compiler/onnx/tensor_decode.h"

namespace tessera::onnx {
namespace {

using onnx_proto::AttributeProto;
using onnx_proto::NodeProto;
using onnx_proto::TypeProto;

/// Text of a type in ONNX's notation, as the attribute `type` of Optional and SequenceEmpty-like operators carries it.
std::string type_text(const TypeProto& type, const std::string& what, int depth = 0) {
  if (depth > 4) fail(what + ": type nests too deeply");
  if (type.has_tensor_type())
    return "tensor(" + std::string(ops::to_string(to_dtype(type.tensor_type().elem_type(), what))) + ")";
  if (type.has_sequence_type()) return "seq(" + type_text(type.sequence_type().elem_type(), what, depth + 1) + ")";
  if (type.has_optional_type()) return "optional(" + type_text(type.optional_type().elem_type(), what, depth + 1) + ")";
  throw Error(ErrorCode::kUnsupported, what + ": maps, sparse tensors and opaque types are not supported");
}

}  // namespace

ops::Attribute convert_attribute(AttributeProto& attribute, const DataFolders& folders, const std::string& what) {
  auto type = attribute.type();
  if (type == AttributeProto::UNDEFINED) {
    // IR versions before 2 have no discriminator.
    if (attribute.has_f())
      type = AttributeProto::FLOAT;
    else if (attribute.has_i())
      type = AttributeProto::INT;
    else if (attribute.has_s())
      type = AttributeProto::STRING;
    else if (attribute.has_t())
      type = AttributeProto::TENSOR;
    else if (attribute.floats_size() > 0)
      type = AttributeProto::FLOATS;
    else if (attribute.ints_size() > 0)
      type = AttributeProto::INTS;
    else if (attribute.strings_size() > 0)
      type = AttributeProto::STRINGS;
    else
      fail(what + " has no type and no value");
  }
  auto need = [&](bool present) {
    if (!present) fail(what + " has no value of its type");
  };
  switch (type) {
    case AttributeProto::FLOAT: return attribute.f();
    case AttributeProto::INT: return static_cast<int64_t>(attribute.i());
    case AttributeProto::STRING: return attribute.s();
    case AttributeProto::TENSOR: need(attribute.has_t()); return decode_tensor(*attribute.mutable_t(), folders, what);
    case AttributeProto::SPARSE_TENSOR:
      need(attribute.has_sparse_tensor());
      return decode_sparse_tensor(*attribute.mutable_sparse_tensor(), folders, what);
    case AttributeProto::FLOATS: return std::vector<float>(attribute.floats().begin(), attribute.floats().end());
    case AttributeProto::INTS: return std::vector<int64_t>(attribute.ints().begin(), attribute.ints().end());
    case AttributeProto::STRINGS:
      return std::vector<std::string>(attribute.strings().begin(), attribute.strings().end());
    case AttributeProto::TYPE_PROTO: need(attribute.has_tp()); return type_text(attribute.tp(), what);
    default:
      throw Error(ErrorCode::kUnsupported, what + " is a list of tensors, graphs or types, which no ONNX operator has");
  }
}

ops::Tensor constant_value(NodeProto& node, const DataFolders& folders, const std::string& what) {
  if (node.input_size() != 0 || node.output_size() != 1 || node.output(0).empty())
    fail(what + ": a Constant has no inputs and one output");
  if (node.attribute_size() != 1) fail(what + ": a Constant has exactly one attribute");
  AttributeProto& proto = *node.mutable_attribute(0);
  ops::Attribute value = convert_attribute(proto, folders, what + ": attribute '" + proto.name() + "'");
  ops::Tensor tensor;
  const std::string& kind = proto.name();
  if (auto* t = std::get_if<ops::Tensor>(&value); t && (kind == "value" || kind == "sparse_value")) {
    tensor = *t;
  } else if (auto* f = std::get_if<float>(&value); f && kind == "value_float") {
    tensor = ops::Tensor::scalar_f32(*f);
  } else if (auto* i = std::get_if<int64_t>(&value); i && kind == "value_int") {
    tensor = ops::Tensor::scalar_i64(*i);
  } else if (auto* s = std::get_if<std::string>(&value); s && kind == "value_string") {
    tensor = ops::Tensor(ops::DType::kString, {});
    tensor.mutable_strings()[0] = *s;
  } else if (auto* fs = std::get_if<std::vector<float>>(&value); fs && kind == "value_floats") {
    tensor = ops::Tensor::of(ops::DType::kFloat, {static_cast<int64_t>(fs->size())}, *fs);
  } else if (auto* is = std::get_if<std::vector<int64_t>>(&value); is && kind == "value_ints") {
    tensor = ops::Tensor::vector_i64(*is);
  } else if (auto* ss = std::get_if<std::vector<std::string>>(&value); ss && kind == "value_strings") {
    tensor = ops::Tensor(ops::DType::kString, {static_cast<int64_t>(ss->size())});
    tensor.mutable_strings() = *ss;
  } else {
    fail(what + ": attribute '" + kind +
         "' is none of value, value_float(s), value_int(s), value_string(s), sparse_value, or has another type");
  }
  return tensor;
}

void resolve_references(NodeProto& node, const AttributeMap* arguments, const std::string& what) {
  std::set<std::string> seen;
  for (int i = node.attribute_size() - 1; i >= 0; --i) {
    AttributeProto* attribute = node.mutable_attribute(i);
    if (!seen.insert(attribute->name()).second) fail(what + ": attribute '" + attribute->name() + "' is given twice");
    if (attribute->name().empty()) fail(what + ": an attribute has no name");
    if (attribute->ref_attr_name().empty()) continue;
    if (!arguments)
      fail(what + ": attribute '" + attribute->name() + "' refers to a function's attribute outside of a function");
    auto it = arguments->find(attribute->ref_attr_name());
    if (it == arguments->end()) {
      node.mutable_attribute()->DeleteSubrange(i, 1);
      continue;
    }
    std::string name = attribute->name();
    *attribute = AttributeProto(*it->second);
    attribute->set_name(name);
  }
}

}  // namespace tessera::onnx
