// SPDX-License-Identifier: Apache-2.0
// Values, nodes and names of the ONNX graph that is made of a LiteRT graph.
#include "compiler/litert/operator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "compiler/litert/conversions.h"

namespace tessera::litert {

using onnx_proto::AttributeProto;
using onnx_proto::NodeProto;
using onnx_proto::TensorProto;

namespace {

void fill(TensorProto& proto, const ops::Tensor& tensor) {
  proto.set_data_type(static_cast<int32_t>(tensor.dtype()));
  for (const int64_t extent : tensor.shape()) proto.add_dims(extent);
  if (tensor.dtype() == ops::DType::kString) {
    for (const std::string& text : tensor.strings()) proto.add_string_data(text);
    return;
  }
  const int64_t bits = ops::packed_bits(tensor.dtype());
  if (bits % 8 == 0) {
    proto.set_raw_data(tensor.data(), static_cast<size_t>(tensor.bytes()));
    return;
  }
  std::string packed(static_cast<size_t>((tensor.size() * bits + 7) / 8), '\0');
  const auto elements = tensor.as<uint8_t>();
  for (size_t i = 0; i < elements.size(); ++i) {
    const size_t first = i * static_cast<size_t>(bits);
    packed[first / 8] = static_cast<char>(packed[first / 8] | (elements[i] & ((1U << bits) - 1)) << first % 8);
  }
  proto.set_raw_data(std::move(packed));
}

void fill(AttributeProto& proto, const std::string& name, const ops::Attribute& value) {
  proto.set_name(name);
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    proto.set_type(AttributeProto::INT);
    proto.set_i(*integer);
  } else if (const auto* real = std::get_if<float>(&value)) {
    proto.set_type(AttributeProto::FLOAT);
    proto.set_f(*real);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    proto.set_type(AttributeProto::STRING);
    proto.set_s(*text);
  } else if (const auto* integers = std::get_if<std::vector<int64_t>>(&value)) {
    proto.set_type(AttributeProto::INTS);
    for (const int64_t i : *integers) proto.add_ints(i);
  } else if (const auto* reals = std::get_if<std::vector<float>>(&value)) {
    proto.set_type(AttributeProto::FLOATS);
    for (const float f : *reals) proto.add_floats(f);
  } else if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    proto.set_type(AttributeProto::STRINGS);
    for (const std::string& s : *texts) proto.add_strings(s);
  } else if (const auto* tensor = std::get_if<ops::Tensor>(&value)) {
    proto.set_type(AttributeProto::TENSOR);
    fill(*proto.mutable_t(), *tensor);
  } else {
    throw Error(ErrorCode::kInternal, "attribute '" + name + "' has a kind that a conversion cannot give");
  }
}

}  // namespace

Graph::Graph(const Model& model, size_t subgraph, Kernels kernels, onnx_proto::GraphProto& proto, std::string prefix)
    : model_(model),
      index_(subgraph),
      kernels_(kernels),
      proto_(proto),
      prefix_(std::move(prefix)),
      added_(model.subgraphs[subgraph].tensors.size()) {
  for (const TensorInfo& tensor : this->subgraph().tensors) names_.insert(prefix_ + tensor.name);
}

Value Graph::value(int32_t tensor) {
  const auto index = static_cast<size_t>(tensor);
  const TensorInfo& info = subgraph().tensors.at(index);
  if (const auto argument = arguments_.find(tensor); argument != arguments_.end()) return argument->second;
  Value name = prefix_ + info.name;
  if (added_[index]) return name;
  if (info.is_constant) {
    add_initializer(name, content_of(info));
  } else if (info.is_variable) {
    return state(tensor);
  } else {
    return name;
  }
  added_[index] = true;
  return name;
}

void Graph::add_initializer(const Value& name, const ops::Tensor& tensor) {
  TensorProto& proto = *proto_.add_initializer();
  proto.set_name(name);
  fill(proto, tensor);
}

Value Graph::fresh(const std::string& stem) {
  Value name = stem;
  for (int i = 1; !names_.insert(name).second; ++i) name = stem + "_" + std::to_string(i);
  return name;
}

void Graph::add_port(int32_t tensor, onnx_proto::ValueInfoProto& port) {
  add_port(value(tensor), subgraph().tensors.at(static_cast<size_t>(tensor)), port);
}

void Graph::add_port(const Value& name, const TensorInfo& info, onnx_proto::ValueInfoProto& port) {
  port.set_name(name);
  auto& type = *port.mutable_type()->mutable_tensor_type();
  type.set_elem_type(static_cast<int32_t>(to_dtype(info.type, "tensor '" + info.name + "'")));
  for (const int64_t extent : info.shape) {
    auto* dim = type.mutable_shape()->add_dim();
    if (extent >= 0) dim->set_dim_value(extent);
  }
  type.mutable_shape();
}

void Graph::convert() {
  for (const int32_t tensor : subgraph().inputs) add_port(tensor, *proto_.add_input());
  convert_operators();
  for (const int32_t tensor : subgraph().outputs) add_port(tensor, *proto_.add_output());
  carry_states_on();
}

namespace {

/// An error of a conversion names the operator, whoever throws it.
void convert_one(Op& op, const Conversion& conversion) {
  try {
    conversion(op);
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with("node '")) throw;
    op.refuse(error.what(), error.code());
  }
}

}  // namespace

void Graph::convert_operators() {
  for (const OperatorInfo& info : subgraph().operators) {
    Op op(*this, info);
    const Conversion* conversion = conversions().find(info);
    if (conversion != nullptr) {
      convert_one(op, *conversion);
    } else if (info.code == BuiltinOperator::kCustom) {
      op.refuse(
          "is a custom operator, which has no meaning outside of the program that registers it; cut the model "
          "before it");
    } else {
      op.refuse("is not supported; docs/litert.md lists the operators that are");
    }
  }
}

Op::Op(Graph& graph, const OperatorInfo& info) : graph_(graph), info_(info), first_node_(graph.proto_.node_size()) {
  if (info.outputs.empty()) return;
  for (const int32_t tensor : info.outputs)
    if (graph.subgraph().tensors[static_cast<size_t>(tensor)].is_constant)
      refuse("writes to a constant", ErrorCode::kInvalidModel);
}

void Op::refuse(const std::string& message, ErrorCode code) const {
  const std::string name =
      info_.outputs.empty() ? "" : graph_.subgraph().tensors[static_cast<size_t>(info_.outputs.front())].name;
  throw Error(code, "node '" + name + "' (" + info_.name + "): " + message);
}

const TensorInfo& Op::input(size_t i) const {
  if (!has(i)) refuse("operand " + std::to_string(i) + " is missing", ErrorCode::kInvalidModel);
  return graph_.subgraph().tensors[static_cast<size_t>(info_.inputs[i])];
}

const TensorInfo& Op::output(size_t i) const {
  if (i >= info_.outputs.size()) refuse("result " + std::to_string(i) + " is missing", ErrorCode::kInvalidModel);
  return graph_.subgraph().tensors[static_cast<size_t>(info_.outputs[i])];
}

std::optional<ops::Tensor> Op::content(size_t i) const {
  const TensorInfo& tensor = input(i);
  return tensor.is_constant ? std::optional(content_of(tensor)) : std::nullopt;
}

std::vector<int64_t> Op::integers(size_t i, const std::string& what) const {
  // A vector without elements has no bytes, so it looks like a value that is computed.
  const TensorInfo& tensor = input(i);
  if (tensor.shape == ops::Shape{0}) return {};
  const auto tensor_content = content(i);
  if (!tensor_content) refuse(what + " is computed; it must be constant");
  return tensor_content->to_int64s();
}

Value Op::value(size_t i) { return has(i) ? graph_.value(info_.inputs[i]) : Value(); }

Value Op::real(size_t i) {
  const TensorInfo& tensor = input(i);
  if (tensor.is_quantised()) {
    Attributes attributes;
    if (!tensor.quantisation.per_tensor()) attributes["axis"] = static_cast<int64_t>(tensor.quantisation.axis);
    return node("DequantizeLinear", {value(i), scale(tensor), zero_point(tensor)}, attributes);
  }
  return tensor.type == TensorType::kFloat32 ? value(i) : cast(value(i), ops::DType::kFloat);
}

Value Op::constant(const ops::Tensor& tensor) {
  const Value name = graph_.fresh(graph_.prefix_ + output().name + "/constant");
  graph_.add_initializer(name, tensor);
  return name;
}

Value Op::ints(const std::vector<int64_t>& values) { return constant(ops::Tensor::vector_i64(values)); }

Value Op::scalar(ops::DType dtype, double value) {
  ops::Tensor tensor(dtype, {});
  switch (dtype) {
    case ops::DType::kFloat: tensor.as_mutable<float>()[0] = static_cast<float>(value); break;
    case ops::DType::kDouble: tensor.as_mutable<double>()[0] = value; break;
    case ops::DType::kInt8: tensor.as_mutable<int8_t>()[0] = static_cast<int8_t>(value); break;
    case ops::DType::kUint8:
    case ops::DType::kBool: tensor.as_mutable<uint8_t>()[0] = static_cast<uint8_t>(value); break;
    case ops::DType::kInt16: tensor.as_mutable<int16_t>()[0] = static_cast<int16_t>(value); break;
    case ops::DType::kUint16: tensor.as_mutable<uint16_t>()[0] = static_cast<uint16_t>(value); break;
    case ops::DType::kInt32: tensor.as_mutable<int32_t>()[0] = static_cast<int32_t>(value); break;
    case ops::DType::kUint32: tensor.as_mutable<uint32_t>()[0] = static_cast<uint32_t>(value); break;
    case ops::DType::kInt64: tensor.as_mutable<int64_t>()[0] = static_cast<int64_t>(value); break;
    default: refuse(std::string(ops::to_string(dtype)) + " is not supported here");
  }
  return constant(tensor);
}

Value Op::node(const std::string& op_type, const Values& operands, const Attributes& attributes,
               const std::string& domain) {
  return nodes(op_type, operands, attributes, 1, domain).front();
}

Values Op::nodes(const std::string& op_type, const Values& operands, const Attributes& attributes, size_t results,
                 const std::string& domain) {
  NodeProto& proto = *graph_.proto_.add_node();
  proto.set_op_type(op_type);
  proto.set_domain(domain);
  for (const Value& operand : operands) proto.add_input(operand);
  for (const auto& [name, value] : attributes) fill(*proto.add_attribute(), name, value);
  Values names;
  for (size_t i = 0; i < results; ++i) {
    names.push_back(graph_.fresh(graph_.prefix_ + output().name + "/" + op_type));
    proto.add_output(names.back());
  }
  return names;
}

Value Op::transpose(const Value& value, const std::vector<int64_t>& perm) {
  return node("Transpose", {value}, {{"perm", perm}});
}

Value Op::reshape(const Value& value, const std::vector<int64_t>& shape) {
  // A zero is an extent here, not "as before".
  Attributes attributes;
  if (std::count(shape.begin(), shape.end(), 0) > 0) attributes["allowzero"] = int64_t{1};
  return node("Reshape", {value, ints(shape)}, attributes);
}

Value Op::cast(const Value& value, ops::DType dtype) {
  return node("Cast", {value}, {{"to", static_cast<int64_t>(dtype)}});
}

Value Op::channels_first(const Value& value, size_t rank) {
  std::vector<int64_t> perm = {0, static_cast<int64_t>(rank) - 1};
  for (size_t i = 1; i + 1 < rank; ++i) perm.push_back(static_cast<int64_t>(i));
  return transpose(value, perm);
}

Value Op::channels_last(const Value& value, size_t rank) {
  std::vector<int64_t> perm = {0};
  for (size_t i = 2; i < rank; ++i) perm.push_back(static_cast<int64_t>(i));
  perm.push_back(1);
  return transpose(value, perm);
}

Value Op::scale(const TensorInfo& tensor) {
  const Quantisation& q = tensor.quantisation;
  if (!q.present()) refuse("tensor '" + tensor.name + "' has no scale", ErrorCode::kInvalidModel);
  const ops::Shape shape = q.per_tensor() ? ops::Shape{} : ops::Shape{static_cast<int64_t>(q.scales.size())};
  return constant(ops::Tensor::of<float>(ops::DType::kFloat, shape, q.scales));
}

Value Op::zero_point(const TensorInfo& tensor) {
  const Quantisation& q = tensor.quantisation;
  const ops::DType dtype = to_dtype(tensor.type, "tensor '" + tensor.name + "'");
  ops::Tensor zeros(dtype, q.per_tensor() ? ops::Shape{} : ops::Shape{static_cast<int64_t>(q.zero_points.size())});
  for (size_t i = 0; i < q.zero_points.size(); ++i) {
    switch (ops::element_bytes(dtype)) {
      case 1: zeros.as_mutable<uint8_t>()[i] = static_cast<uint8_t>(q.zero_points[i]); break;
      case 2: zeros.as_mutable<uint16_t>()[i] = static_cast<uint16_t>(q.zero_points[i]); break;
      case 4: zeros.as_mutable<uint32_t>()[i] = static_cast<uint32_t>(q.zero_points[i]); break;
      default: refuse("tensor '" + tensor.name + "' is quantised in a type of 64 bits");
    }
  }
  return constant(zeros);
}

Values Op::nodes_with_bodies(const std::string& op_type, const Values& operands,
                             std::map<std::string, onnx_proto::GraphProto> bodies, size_t results) {
  Values names = nodes(op_type, operands, {}, results);
  NodeProto& proto = *graph_.proto_.mutable_node(graph_.proto_.node_size() - 1);
  for (auto& [name, body] : bodies) {
    AttributeProto& attribute = *proto.add_attribute();
    attribute.set_name(name);
    attribute.set_type(AttributeProto::GRAPH);
    *attribute.mutable_g() = std::move(body);
  }
  return names;
}

void Op::give(size_t i, const Value& value) {
  output(i);
  const Value name = graph_.prefix_ + output(i).name;
  auto& nodes = *graph_.proto_.mutable_node();
  for (int n = first_node_; n < nodes.size(); ++n) {
    for (std::string& result : *nodes[n].mutable_output()) {
      if (result != value) continue;
      result = name;
      for (int reader = n + 1; reader < nodes.size(); ++reader)
        for (std::string& operand : *nodes[reader].mutable_input())
          if (operand == value) operand = name;
      return;
    }
  }
  NodeProto& identity = *graph_.proto_.add_node();
  identity.set_op_type("Identity");
  identity.add_input(value);
  identity.add_output(name);
}

void Op::give_real(size_t i, const Value& value) {
  const TensorInfo& tensor = output(i);
  if (tensor.is_quantised()) return give(i, node("QuantizeLinear", {value, scale(tensor), zero_point(tensor)}));
  give(i, tensor.type == TensorType::kFloat32 ? value : cast(value, output_dtype(i)));
}

Value Op::activate(const Value& value, Activation activation) {
  const auto clip = [&](double low, double high) {
    return node("Clip", {value, scalar(ops::DType::kFloat, low), scalar(ops::DType::kFloat, high)});
  };
  switch (activation) {
    case Activation::kNone: return value;
    case Activation::kRelu: return node("Relu", {value});
    case Activation::kReluN1To1: return clip(-1, 1);
    case Activation::kRelu6: return clip(0, 6);
    case Activation::kTanh: return node("Tanh", {value});
    case Activation::kSignBit: break;
  }
  refuse("the fused activation " + std::to_string(static_cast<int>(activation)) + " is not supported");
}

Value Op::limited(const Value& value, Activation activation) {
  const IntegerLimits all = limits_of(output(), Activation::kNone), limits = limits_of(output(), activation);
  if (limits.low == all.low && limits.high == all.high) return value;
  const ops::DType dtype = output_dtype();
  return node("Clip",
              {value, scalar(dtype, static_cast<double>(limits.low)), scalar(dtype, static_cast<double>(limits.high))});
}

Value Op::lookup(const Value& value, const std::function<int64_t(int64_t)>& function) {
  const IntegerLimits from = limits_of(input(0), Activation::kNone), to = limits_of(output(), Activation::kNone);
  const int64_t count = from.high - from.low + 1;
  if (count > 65536) refuse("its operand has more than 16 bits");
  ops::Tensor table(output_dtype(), {count});
  const auto bytes = static_cast<size_t>(ops::element_bytes(table.dtype()));
  for (int64_t integer = from.low; integer <= from.high; ++integer) {
    const int64_t result = std::clamp(function(integer), to.low, to.high);
    // Indices and entries are bit patterns, negative ones behind.
    std::memcpy(table.mutable_data() + static_cast<size_t>(integer & (count - 1)) * bytes, &result, bytes);
  }
  return node("Lookup", {value}, {{"table", table}}, kDomain);
}

IntegerLimits limits_of(const TensorInfo& tensor, Activation activation) {
  const ops::DType dtype = to_dtype(tensor.type, "tensor '" + tensor.name + "'");
  IntegerLimits limits{0, 0};
  switch (dtype) {
    case ops::DType::kInt8: limits = {-128, 127}; break;
    case ops::DType::kUint8: limits = {0, 255}; break;
    case ops::DType::kInt16: limits = {-32768, 32767}; break;
    default: limits = {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
  }
  if (activation == Activation::kNone || !tensor.quantisation.present()) return limits;
  const auto quantised = [&](float real) {
    const float steps = std::round(real / tensor.quantisation.scale());  // halves away from zero, as LiteRT rounds
    return tensor.quantisation.zero() + static_cast<int64_t>(std::clamp(steps, -2147483648.0F, 2147483520.0F));
  };
  switch (activation) {
    case Activation::kRelu: limits.low = std::max(limits.low, quantised(0)); break;
    case Activation::kRelu6: limits = {std::max(limits.low, quantised(0)), std::min(limits.high, quantised(6))}; break;
    case Activation::kReluN1To1:
      limits = {std::max(limits.low, quantised(-1)), std::min(limits.high, quantised(1))};
      break;
    default: break;
  }
  return limits;
}

}  // namespace tessera::litert
