// SPDX-License-Identifier: Apache-2.0
// One function a kind of change. Graphs inside attributes (If, Loop, Scan) are chosen as often as the outer one.
#include "tests/fuzz/onnx_mutator.h"

#include <cstring>

#include "ops/operator.h"

namespace tessera::fuzz {
namespace {

using onnx_proto::AttributeProto;
using onnx_proto::GraphProto;
using onnx_proto::ModelProto;
using onnx_proto::NodeProto;
using onnx_proto::TensorProto;
using onnx_proto::ValueInfoProto;

/// Names of operators with their domain, those of the library.
const std::vector<std::pair<std::string, std::string>>& operators() {
  static const auto all = [] {
    std::vector<std::pair<std::string, std::string>> names;
    for (const std::string& name : ops::registry().names()) {
      const size_t colons = name.find("::");
      const std::string domain = name.substr(0, colons);
      names.emplace_back(domain == "ai.onnx" ? "" : domain, name.substr(colons + 2));
    }
    return names;
  }();
  return all;
}

constexpr std::string_view kAttributes[] = {
    "axis",         "axes",      "perm",      "pads",      "strides",      "dilations",
    "kernel_shape", "group",     "auto_pad",  "ceil_mode", "alpha",        "beta",
    "epsilon",      "to",        "keepdims",  "mode",      "output_shape", "transA",
    "transB",       "blocksize", "num_heads", "saturate",  "block_size",   "noop_with_empty_axes"};

GraphProto& graph_of(Random& random, ModelProto& model) {
  std::vector<GraphProto*> graphs = {model.mutable_graph()};
  for (size_t k = 0; k < graphs.size() && graphs.size() < 32; ++k) {
    for (NodeProto& node : *graphs[k]->mutable_node()) {
      for (AttributeProto& attribute : *node.mutable_attribute()) {
        if (attribute.has_g()) graphs.push_back(attribute.mutable_g());
      }
    }
  }
  return *random.of(graphs);
}

std::vector<std::string> names_in(const GraphProto& graph) {
  std::vector<std::string> names;
  for (const auto& input : graph.input()) names.push_back(input.name());
  for (const auto& constant : graph.initializer()) names.push_back(constant.name());
  for (const auto& node : graph.node()) names.insert(names.end(), node.output().begin(), node.output().end());
  if (names.empty()) names.emplace_back("x");
  return names;
}

template <typename Repeated>
auto* element(Random& random, Repeated* values) {
  return values->empty() ? nullptr
                         : values->Mutable(static_cast<int>(random.below(static_cast<size_t>(values->size()))));
}

std::string fresh(const GraphProto& graph, Random& random) {
  return "fuzz" + std::to_string(graph.node_size()) + "_" + std::to_string(random.below(1000000));
}

int extent(Random& random, int64_t old) {
  return static_cast<int>(random.chance(60) ? static_cast<int64_t>(random.below(9)) : random.integer(old));
}

// ---- constants

/// Bytes of an element; 0 for strings and for what is no type.
int64_t width_of(int32_t data_type) {
  try {
    return ops::element_bytes(static_cast<ops::DType>(data_type));
  } catch (const Error&) {
    return 0;
  }
}

void fill(Random& random, TensorProto& tensor) {
  int64_t count = 1;
  for (const int64_t d : tensor.dims()) count = std::min<int64_t>(count * std::clamp<int64_t>(d, 0, 4096), 4096);
  const auto dtype = static_cast<ops::DType>(tensor.data_type());
  const int64_t width = width_of(tensor.data_type());
  std::string bytes(static_cast<size_t>(count * width), '\0');
  for (int64_t k = 0; k < count; ++k) {
    if (dtype == ops::DType::kFloat) {
      const float value = static_cast<float>(random.below(2001)) / 1000.0f - 1.0f;
      std::memcpy(bytes.data() + k * width, &value, 4);
    } else if (width > 0) {
      bytes[static_cast<size_t>(k * width)] = static_cast<char>(random.below(dtype == ops::DType::kBool ? 2 : 8));
    }
  }
  tensor.clear_float_data();
  tensor.clear_int32_data();
  tensor.clear_int64_data();
  tensor.clear_string_data();
  tensor.clear_double_data();
  tensor.clear_uint64_data();
  tensor.set_raw_data(bytes);
}

void mutate_tensor(Random& random, TensorProto& tensor) {
  switch (random.below(7)) {
    case 0:
      tensor.set_data_type(static_cast<int32_t>(random.below(26)));
      if (random.chance(70)) fill(random, tensor);
      break;
    case 1:
      if (tensor.dims_size() > 0) {
        const int at = static_cast<int>(random.below(static_cast<size_t>(tensor.dims_size())));
        tensor.set_dims(at, extent(random, tensor.dims(at)));
      } else {
        tensor.add_dims(extent(random, 1));
      }
      if (random.chance(70)) fill(random, tensor);
      break;
    case 2: tensor.add_dims(1); break;
    case 3:
      if (tensor.dims_size() > 0) tensor.mutable_dims()->RemoveLast();
      if (random.chance(50)) fill(random, tensor);
      break;
    case 4: {
      std::string* raw = tensor.mutable_raw_data();
      if (raw->size() >= 8 && tensor.data_type() == TensorProto::INT64) {
        const size_t at = random.below(raw->size() / 8) * 8;
        int64_t value = 0;
        std::memcpy(&value, raw->data() + at, 8);
        value = random.chance(60) ? static_cast<int64_t>(random.below(9)) - 3 : random.integer(value);
        std::memcpy(raw->data() + at, &value, 8);
      } else if (raw->size() >= 4 && tensor.data_type() == TensorProto::FLOAT) {
        const size_t at = random.below(raw->size() / 4) * 4;
        float value = 0;
        std::memcpy(&value, raw->data() + at, 4);
        value = static_cast<float>(random.number(value));
        std::memcpy(raw->data() + at, &value, 4);
      } else if (!raw->empty()) {
        (*raw)[random.below(raw->size())] = static_cast<char>(random.bits());
      }
      break;
    }
    case 5: tensor.set_raw_data(random.text(tensor.raw_data(), tensor.raw_data().size() + 8)); break;
    default: fill(random, tensor);
  }
}

// ---- nodes

void mutate_attribute(Random& random, AttributeProto& attribute) {
  switch (attribute.type()) {
    case AttributeProto::INT:
      attribute.set_i(random.chance(50) ? static_cast<int64_t>(random.below(9)) - 3 : random.integer(attribute.i()));
      break;
    case AttributeProto::FLOAT: attribute.set_f(static_cast<float>(random.number(attribute.f()))); break;
    case AttributeProto::STRING:
      attribute.set_s(random.chance(40) ? random.text(attribute.s(), 32)
                                        : std::string(random.of({"SAME_UPPER", "VALID", "constant", "edge", "reflect",
                                                                 "linear", "nearest", "cubic", "none", "add"})));
      break;
    case AttributeProto::INTS:
      if (attribute.ints_size() == 0 || random.chance(20)) {
        attribute.add_ints(extent(random, 1));
      } else if (random.chance(25)) {
        attribute.mutable_ints()->RemoveLast();
      } else {
        const int at = static_cast<int>(random.below(static_cast<size_t>(attribute.ints_size())));
        attribute.set_ints(
            at, random.chance(70) ? static_cast<int64_t>(random.below(7)) - 1 : random.integer(attribute.ints(at)));
      }
      break;
    case AttributeProto::TENSOR: mutate_tensor(random, *attribute.mutable_t()); break;
    default: attribute.set_type(static_cast<AttributeProto::AttributeType>(random.below(15)));
  }
  if (random.chance(3)) attribute.set_type(static_cast<AttributeProto::AttributeType>(random.below(15)));
}

void add_attribute(Random& random, NodeProto& node) {
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(std::string(random.of(kAttributes)));
  switch (random.below(4)) {
    case 0:
      attribute.set_type(AttributeProto::INT);
      attribute.set_i(static_cast<int64_t>(random.below(6)) - 2);
      break;
    case 1:
      attribute.set_type(AttributeProto::FLOAT);
      attribute.set_f(0.5f);
      break;
    case 2:
      attribute.set_type(AttributeProto::INTS);
      for (size_t k = random.below(5); k > 0; --k) attribute.add_ints(static_cast<int64_t>(random.below(4)));
      break;
    default: attribute.set_type(AttributeProto::STRING); attribute.set_s("SAME_LOWER");
  }
}

void mutate_node(Random& random, GraphProto& graph) {
  NodeProto* node = element(random, graph.mutable_node());
  if (node == nullptr) return;
  const std::vector<std::string> names = names_in(graph);
  switch (random.below(9)) {
    case 0: {
      const auto& [domain, name] = operators()[random.below(operators().size())];
      node->set_domain(domain);
      node->set_op_type(name);
      break;
    }
    case 1:
    case 2:
      if (node->input_size() > 0) {
        const int at = static_cast<int>(random.below(static_cast<size_t>(node->input_size())));
        node->set_input(at, random.chance(10) ? "" : names[random.below(names.size())]);
      }
      break;
    case 3: node->add_input(names[random.below(names.size())]); break;
    case 4:
      if (node->input_size() > 0) node->mutable_input()->RemoveLast();
      break;
    case 5: add_attribute(random, *node); break;
    case 6:
      if (node->attribute_size() > 0) node->mutable_attribute()->RemoveLast();
      break;
    default:
      if (AttributeProto* attribute = element(random, node->mutable_attribute())) mutate_attribute(random, *attribute);
  }
}

std::string add_constant(GraphProto& graph, Random& random, int32_t dtype, const std::vector<int64_t>& dims) {
  TensorProto& tensor = *graph.add_initializer();
  tensor.set_name(fresh(graph, random) + "_c" + std::to_string(graph.initializer_size()));
  tensor.set_data_type(dtype);
  for (const int64_t d : dims) tensor.add_dims(d);
  fill(random, tensor);
  return tensor.name();
}

void add_scalar(GraphProto& graph, NodeProto& node, Random& random, float scale) {
  const std::string name = add_constant(graph, random, TensorProto::FLOAT, {});
  graph.mutable_initializer(graph.initializer_size() - 1)
      ->set_raw_data(std::string(reinterpret_cast<const char*>(&scale), 4));
  node.add_input(name);
}

/// A node between a value and one that reads it: mostly one that the value's type allows.
void insert_node(Random& random, GraphProto& graph) {
  if (graph.node_size() == 0 || graph.node_size() > 60) return;
  const int reader = static_cast<int>(random.below(static_cast<size_t>(graph.node_size())));
  if (graph.node(reader).input_size() == 0) return;
  const int operand = static_cast<int>(random.below(static_cast<size_t>(graph.node(reader).input_size())));
  const std::string value = graph.node(reader).input(operand);
  std::vector<NodeProto> made(1);
  const auto name_of = [&](const char* op) {
    made.back().set_op_type(op);
    made.back().add_input(value);
    made.back().add_output(fresh(graph, random) + op);
    made.back().set_name(made.back().output(0));
  };
  switch (random.below(6)) {
    case 0:
    case 1:
      name_of(random.of({"Relu", "Sigmoid", "Identity", "Neg", "Tanh", "Softmax", "Transpose", "Flatten", "Abs",
                         "LeakyRelu", "Clip", "Exp", "GlobalAveragePool", "HardSwish"}));
      break;
    case 2:
      name_of(random.of({"Add", "Mul", "Sub", "Max", "Concat", "MatMul", "Div", "Pow", "Min"}));
      made.back().add_input(random.chance(50) ? value : names_in(graph)[random.below(names_in(graph).size())]);
      if (made.back().op_type() == "Concat") {
        AttributeProto& axis = *made.back().add_attribute();
        axis.set_name("axis");
        axis.set_type(AttributeProto::INT);
        axis.set_i(static_cast<int64_t>(random.below(4)));
      }
      break;
    case 3: {  // a pair that quantises
      const float scale = static_cast<float>(1 + random.below(8)) / 64.0f;
      const int32_t dtype = random.chance(50) ? TensorProto::INT8 : TensorProto::UINT8;
      const std::string zero = add_constant(graph, random, dtype, {});
      name_of("QuantizeLinear");
      add_scalar(graph, made.back(), random, scale);
      made.back().add_input(zero);
      const std::string quantised = made.back().output(0);
      NodeProto back;
      back.set_op_type("DequantizeLinear");
      back.add_input(quantised);
      add_scalar(graph, back, random, scale);
      back.add_input(zero);
      back.add_output(quantised + "_d");
      made.push_back(back);
      break;
    }
    case 4: {
      name_of("Reshape");
      made.back().add_input(add_constant(graph, random, TensorProto::INT64, {static_cast<int64_t>(random.below(5))}));
      break;
    }
    default: {
      const auto& [domain, name] = operators()[random.below(operators().size())];
      name_of(name.c_str());
      made.back().set_domain(domain);
      for (size_t k = random.below(3); k > 0; --k)
        made.back().add_input(names_in(graph)[random.below(names_in(graph).size())]);
    }
  }
  graph.mutable_node(reader)->set_input(operand, made.back().output(0));
  for (NodeProto& node : made) {
    *graph.add_node() = node;  // in front of its reader: readers come after what they read
    for (int k = graph.node_size() - 1; k > reader; --k) graph.mutable_node()->SwapElements(k, k - 1);
  }
  if (made.size() == 2) graph.mutable_node()->SwapElements(reader, reader + 1);
}

/// The node goes; its readers read its first operand.
void bypass_node(Random& random, GraphProto& graph) {
  if (graph.node_size() == 0) return;
  const int at = static_cast<int>(random.below(static_cast<size_t>(graph.node_size())));
  const NodeProto gone = graph.node(at);
  graph.mutable_node()->DeleteSubrange(at, 1);
  if (gone.input_size() == 0 || gone.output_size() == 0) return;
  for (NodeProto& node : *graph.mutable_node()) {
    for (std::string& input : *node.mutable_input()) {
      if (input == gone.output(0)) input = gone.input(0);
    }
  }
  for (ValueInfoProto& output : *graph.mutable_output()) {
    if (output.name() == gone.output(0)) output.set_name(gone.input(0));
  }
}

void copy_node(Random& random, GraphProto& graph) {
  if (graph.node_size() == 0 || graph.node_size() > 60) return;
  NodeProto copy = graph.node(static_cast<int>(random.below(static_cast<size_t>(graph.node_size()))));
  for (std::string& output : *copy.mutable_output()) output = fresh(graph, random);
  if (copy.output_size() > 0 && random.chance(70)) graph.add_output()->set_name(copy.output(0));
  *graph.add_node() = copy;
}

// ---- interface

void mutate_value(Random& random, ValueInfoProto& value) {
  auto& type = *value.mutable_type()->mutable_tensor_type();
  auto& shape = *type.mutable_shape();
  switch (random.below(6)) {
    case 0: type.set_elem_type(static_cast<int32_t>(random.below(26))); break;
    case 1:
      if (auto* dim = element(random, shape.mutable_dim())) dim->set_dim_value(extent(random, dim->dim_value()));
      break;
    case 2:
      if (auto* dim = element(random, shape.mutable_dim())) dim->set_dim_param("N");
      break;
    case 3: shape.add_dim()->set_dim_value(1 + static_cast<int64_t>(random.below(4))); break;
    case 4:
      if (shape.dim_size() > 0) shape.mutable_dim()->RemoveLast();
      break;
    default: type.clear_shape();
  }
}

void mutate_interface(Random& random, GraphProto& graph) {
  switch (random.below(5)) {
    case 0:
    case 1:
      if (ValueInfoProto* input = element(random, graph.mutable_input())) mutate_value(random, *input);
      break;
    case 2:
      if (graph.output_size() < 12) graph.add_output()->set_name(names_in(graph)[random.below(names_in(graph).size())]);
      break;
    case 3:
      if (graph.output_size() > 1) graph.mutable_output()->RemoveLast();
      break;
    default:
      if (ValueInfoProto* output = element(random, graph.mutable_output())) mutate_value(random, *output);
  }
}

void mutate_model(Random& random, ModelProto& model) {
  switch (random.below(4)) {
    case 0:
      if (auto* set = element(random, model.mutable_opset_import()))
        set->set_version(random.chance(80) ? 7 + static_cast<int64_t>(random.below(18))
                                           : random.integer(set->version()));
      break;
    case 1: model.set_ir_version(random.integer(model.ir_version())); break;
    case 2: {
      auto& set = *model.add_opset_import();
      set.set_domain(std::string(random.of({"com.microsoft", "ai.onnx.ml", "elsewhere"})));
      set.set_version(1);
      break;
    }
    default: {
      GraphProto& graph = *model.mutable_graph();
      if (TensorProto* tensor = element(random, graph.mutable_initializer()))
        tensor->set_name(random.text(tensor->name(), 64));
    }
  }
}

}  // namespace

void mutate(Random& random, ModelProto& model) {
  GraphProto& graph = graph_of(random, model);
  switch (random.below(16)) {
    case 0:
    case 1:
    case 2:
    case 3: mutate_node(random, graph); break;
    case 4:
    case 5:
    case 6:
    case 7: insert_node(random, graph); break;
    case 8: bypass_node(random, graph); break;
    case 9: copy_node(random, graph); break;
    case 10:
    case 11:
    case 12:
      if (TensorProto* tensor = element(random, graph.mutable_initializer())) mutate_tensor(random, *tensor);
      break;
    case 13:
    case 14: mutate_interface(random, graph); break;
    default: mutate_model(random, model);
  }
}

}  // namespace tessera::fuzz
