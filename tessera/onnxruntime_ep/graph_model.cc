// SPDX-License-Identifier: Apache-2.0
// Names tie nodes, values and constants together, as they do in an ONNX file.
#include "tessera/onnxruntime_ep/graph_model.h"

#include <algorithm>
#include <cstring>

#include "compiler/onnx_schema/tessera_onnx.pb.h"
#include "ops/tensor.h"
#include "tessera/onnxruntime_ep/tensors.h"

namespace tessera::ort {

namespace {

using onnx_proto::AttributeProto;
using onnx_proto::GraphProto;
using onnx_proto::NodeProto;
using onnx_proto::TensorProto;
using onnx_proto::TypeProto;

/// What `tessera quantize` has written into a model (tessera/quantised_for.h).
constexpr const char* kQuantizedFor = "tessera.quantization";

/// The number of an element type in ONNX. Errors: kUnsupported for those behind FLOAT4E2M1, which ONNX Runtime numbers
/// in another order.
int onnx_type(int dtype) {
  if (dtype > TensorProto::FLOAT4E2M1)
    throw Error(ErrorCode::kUnsupported, "element type " + std::to_string(dtype) + " of ONNX Runtime is not supported");
  return dtype;
}

std::string text_of(const char* text) { return text ? text : ""; }

/// Turns objects of the interface into messages of ONNX.
class Writer {
 public:
  explicit Writer(const Api& api) : api_(api) {}

  void write_type(const TypeInfo* info, TypeProto& type, const std::string& what) const {
    switch (api_.get<Kind>(kGetOnnxTypeFromTypeInfo, info)) {
      case Kind::kTensor: return write_tensor_type(info, *type.mutable_tensor_type());
      case Kind::kSequence: {
        TypeInfo* element = api_.get<TypeInfo*>(kGetSequenceElementType,
                                                api_.get<const SequenceInfo*>(kCastTypeInfoToSequenceInfo, info));
        write_owned(element, *type.mutable_sequence_type()->mutable_elem_type(), what);
        return;
      }
      case Kind::kOptional: {
        TypeInfo* element = api_.get<TypeInfo*>(kGetOptionalContainedType,
                                                api_.get<const OptionalInfo*>(kCastTypeInfoToOptionalInfo, info));
        write_owned(element, *type.mutable_optional_type()->mutable_elem_type(), what);
        return;
      }
      default: throw Error(ErrorCode::kUnsupported, what + " is a map, a sparse tensor or an opaque value");
    }
  }

  void write_node(const Node* from, NodeProto& node) const {
    node.set_name(text_of(api_.get<const char*>(kNodeGetName, from)));
    node.set_op_type(text_of(api_.get<const char*>(kNodeGetOperatorType, from)));
    node.set_domain(text_of(api_.get<const char*>(kNodeGetDomain, from)));
    for (const ValueInfo* value : api_.list<ValueInfo>(kNodeGetNumInputs, kNodeGetInputs, from))
      node.add_input(name_of(value));
    for (const ValueInfo* value : api_.list<ValueInfo>(kNodeGetNumOutputs, kNodeGetOutputs, from))
      node.add_output(name_of(value));
    const std::string what = "node '" + node.name() + "' (" + node.op_type() + ")";
    for (const OpAttr* attribute : api_.list<OpAttr>(kNodeGetNumAttributes, kNodeGetAttributes, from))
      if (attribute) write_attribute(attribute, node, what);
    std::vector<const Graph*> bodies(api_.get<size_t>(kNodeGetNumSubgraphs, from));
    std::vector<const char*> names(bodies.size());
    if (bodies.empty()) return;
    api_.call(kNodeGetSubgraphs, from, bodies.data(), bodies.size(), names.data());
    for (size_t i = 0; i < bodies.size(); ++i) {
      AttributeProto& attribute = *node.add_attribute();
      attribute.set_name(text_of(names[i]));
      attribute.set_type(AttributeProto::GRAPH);
      write_body(bodies[i], *attribute.mutable_g(), what);
    }
  }

  void write_constant(const std::string& name, const Value* value, TensorProto& tensor) const {
    tensor.set_name(name);
    const Described described = describe_value(api_, value);
    tensor.set_data_type(onnx_type(described.dtype));
    for (const int64_t extent : described.shape) tensor.add_dims(extent);
    if (described.dtype == TensorProto::STRING) {
      for (std::string& text : strings_of_value(api_, value, described)) tensor.add_string_data(std::move(text));
      return;
    }
    const auto bytes = api_.get<size_t>(kGetTensorSizeInBytes, value);
    const void* data = data_of(api_, value);
    tensor.set_raw_data(bytes ? std::string(static_cast<const char*>(data), bytes) : std::string());
  }

  std::string name_of(const ValueInfo* value) const {
    return value ? text_of(api_.get<const char*>(kGetValueInfoName, value)) : "";
  }

  /// The value of an attribute that is a word.
  std::string string_of(const OpAttr* attribute) const { return read(attribute, AttrType::kString); }
  int64_t int_of(const OpAttr* attribute) const { return scalar<int64_t>(attribute, AttrType::kInt); }

 private:
  void write_owned(TypeInfo* info, TypeProto& type, const std::string& what) const {
    const Owned<TypeInfo> owner(info, [this](TypeInfo* t) { api_.raw(kReleaseTypeInfo, t); });
    write_type(info, type, what);
  }

  void write_tensor_type(const TypeInfo* info, TypeProto::Tensor& type) const {
    const auto* tensor = api_.get<const TensorInfo*>(kCastTypeInfoToTensorInfo, info);
    type.set_elem_type(onnx_type(api_.get<int>(kGetTensorElementType, tensor)));
    // An unknown rank and a scalar look the same, so a scalar's shape is left to the run.
    const auto rank = api_.get<size_t>(kGetDimensionsCount, tensor);
    if (rank == 0) return;
    std::vector<int64_t> extents(rank);
    std::vector<const char*> names(rank);
    api_.call(kGetDimensions, tensor, extents.data(), rank);
    api_.call(kGetSymbolicDimensions, tensor, names.data(), rank);
    for (size_t i = 0; i < rank; ++i) {
      auto& dimension = *type.mutable_shape()->add_dim();
      if (extents[i] >= 0)
        dimension.set_dim_value(extents[i]);
      else if (names[i] && *names[i])
        dimension.set_dim_param(names[i]);
    }
  }

  /// The bytes of an attribute that has any number of them.
  std::string read(const OpAttr* attribute, AttrType type) const {
    size_t bytes = 0;
    if (Status* too_small = api_.raw(kReadOpAttr, attribute, type, static_cast<void*>(nullptr), size_t{0}, &bytes))
      api_.raw(kReleaseStatus, too_small);
    std::string data(bytes, '\0');
    if (bytes) api_.call(kReadOpAttr, attribute, type, static_cast<void*>(data.data()), bytes, &bytes);
    return data;
  }

  template <typename T>
  T scalar(const OpAttr* attribute, AttrType type) const {
    T value{};
    size_t bytes = 0;
    api_.call(kReadOpAttr, attribute, type, static_cast<void*>(&value), sizeof(value), &bytes);
    return value;
  }

  template <typename T>
  std::vector<T> numbers(const OpAttr* attribute, AttrType type) const {
    const std::string bytes = read(attribute, type);
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
  }

  void write_attribute(const OpAttr* from, NodeProto& node, const std::string& what) const {
    const std::string name = text_of(api_.get<const char*>(kOpAttrGetName, from));
    AttrType type = AttrType::kUndefined;
    if (Status* unknown = api_.raw(kOpAttrGetType, from, &type)) api_.raw(kReleaseStatus, unknown);
    if (type == AttrType::kGraph) return;  // subgraphs have an entry of their own
    AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(name);
    switch (type) {
      case AttrType::kInt:
        attribute.set_type(AttributeProto::INT);
        attribute.set_i(int_of(from));
        break;
      case AttrType::kInts:
        attribute.set_type(AttributeProto::INTS);
        for (const int64_t value : numbers<int64_t>(from, type)) attribute.add_ints(value);
        break;
      case AttrType::kFloat:
        attribute.set_type(AttributeProto::FLOAT);
        attribute.set_f(scalar<float>(from, type));
        break;
      case AttrType::kFloats:
        attribute.set_type(AttributeProto::FLOATS);
        for (const float value : numbers<float>(from, type)) attribute.add_floats(value);
        break;
      case AttrType::kString:
        attribute.set_type(AttributeProto::STRING);
        attribute.set_s(string_of(from));
        break;
      case AttrType::kStrings: {
        attribute.set_type(AttributeProto::STRINGS);
        // Each ends with a zero.
        const std::string all = read(from, type);
        for (size_t at = 0; at < all.size();) {
          const size_t end = std::min(all.find('\0', at), all.size());
          attribute.add_strings(all.substr(at, end - at));
          at = end + 1;
        }
        break;
      }
      case AttrType::kTensor: {
        attribute.set_type(AttributeProto::TENSOR);
        const Owned<Value> value(api_.get<Value*>(kOpAttrGetTensor, from),
                                 [this](Value* v) { api_.raw(kReleaseValue, v); });
        write_constant("", value.get(), *attribute.mutable_t());
        break;
      }
      default:
        throw Error(ErrorCode::kUnsupported,
                    what + ": ONNX Runtime does not show attribute '" + name + "' to execution providers");
    }
  }

  void write_body(const Graph* from, GraphProto& body, const std::string& what) const {
    body.set_name(text_of(api_.get<const char*>(kGraphGetName, from)));
    if (body.name().empty()) body.set_name("body");
    std::set<std::string> constants;
    for (const ValueInfo* info : api_.list<ValueInfo>(kGraphGetNumInitializers, kGraphGetInitializers, from)) {
      constants.insert(name_of(info));
      write_constant(name_of(info), api_.get<const Value*>(kValueInfoGetInitializerValue, info),
                     *body.add_initializer());
    }
    for (const ValueInfo* info : api_.list<ValueInfo>(kGraphGetNumInputs, kGraphGetInputs, from)) {
      if (constants.contains(name_of(info))) continue;
      auto& input = *body.add_input();
      input.set_name(name_of(info));
      write_type(api_.get<const TypeInfo*>(kGetValueInfoTypeInfo, info), *input.mutable_type(),
                 what + ": '" + input.name() + "'");
    }
    for (const ValueInfo* info : api_.list<ValueInfo>(kGraphGetNumOutputs, kGraphGetOutputs, from))
      body.add_output()->set_name(name_of(info));
    for (const Node* node : api_.list<Node>(kGraphGetNumNodes, kGraphGetNodes, from))
      write_node(node, *body.add_node());
  }

  const Api& api_;
};

}  // namespace

std::string describe(const NodeFacts& node) {
  const std::string& name = node.name.empty() && !node.results.empty() ? node.results[0] : node.name;
  return "node '" + name + "' (" + node.op_type + ")";
}

GraphReader::GraphReader(const Api& api, const Graph* graph)
    : GraphReader(api, graph, api.list<Node>(kGraphGetNumNodes, kGraphGetNodes, graph)) {
  for (const ValueInfo* info : api.list<ValueInfo>(kGraphGetNumOutputs, kGraphGetOutputs, graph))
    outputs_.insert(Writer(api).name_of(info));
}

GraphReader::GraphReader(const Api& api, const Graph* graph, const Node* node)
    : GraphReader(api, graph, std::vector<const Node*>{node}) {
  outputs_.insert(nodes_[0].results.begin(), nodes_[0].results.end());
}

GraphReader::GraphReader(const Api& api, const Graph* graph, const std::vector<const Node*>& nodes)
    : api_(api), graph_(graph) {
  const Writer writer(api);
  std::vector<const char*> domains(api.get<size_t>(kGraphGetNumOperatorSets, graph));
  std::vector<int64_t> versions(domains.size());
  if (!domains.empty()) api.call(kGraphGetOperatorSets, graph, domains.data(), versions.data(), domains.size());
  for (size_t i = 0; i < domains.size(); ++i)
    operator_sets_[text_of(domains[i]) == "ai.onnx" ? "" : text_of(domains[i])] = versions[i];
  const auto add = [&](const ValueInfo* info, std::vector<std::string>& names) {
    const std::string name = writer.name_of(info);
    if (name.empty() || api.get<bool>(kValueInfoIsConstantInitializer, info)) return;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    if (const auto [known, is_new] = values_.try_emplace(name); is_new) known->second = {info, passes(api, info)};
  };
  for (const Node* node : nodes) {
    NodeFacts facts{node,
                    api.get<size_t>(kNodeGetId, node),
                    text_of(api.get<const char*>(kNodeGetName, node)),
                    text_of(api.get<const char*>(kNodeGetOperatorType, node)),
                    text_of(api.get<const char*>(kNodeGetDomain, node)),
                    {},
                    {},
                    {}};
    if (facts.domain == "ai.onnx") facts.domain.clear();
    for (const ValueInfo* info : api.list<ValueInfo>(kNodeGetNumInputs, kNodeGetInputs, node)) add(info, facts.uses);
    for (const ValueInfo* info : api.list<ValueInfo>(kNodeGetNumImplicitInputs, kNodeGetImplicitInputs, node)) {
      add(info, facts.captured);
      add(info, facts.uses);
    }
    for (const ValueInfo* info : api.list<ValueInfo>(kNodeGetNumOutputs, kNodeGetOutputs, node))
      add(info, facts.results);
    for (const std::string& name : facts.uses) users_[name].push_back(nodes_.size());
    nodes_.push_back(std::move(facts));
  }
}

std::string GraphReader::name() const { return text_of(api_.get<const char*>(kGraphGetName, graph_)); }
std::string GraphReader::path() const { return text_of(api_.get<const char*>(kGraphGetModelPath, graph_)); }

GraphReader::Border GraphReader::border_of(const std::vector<size_t>& nodes) const {
  const std::set<size_t> inside(nodes.begin(), nodes.end());
  Border border;
  std::set<std::string> made;
  for (const size_t index : inside) made.insert(nodes_[index].results.begin(), nodes_[index].results.end());
  for (const size_t index : inside)
    for (const std::string& name : nodes_[index].uses)
      if (!made.contains(name)) border.inputs.insert(name);
  for (const std::string& name : made) {
    const auto users = users_.find(name);
    const auto outside = [&](size_t user) { return !inside.contains(user); };
    if (is_output(name) || (users != users_.end() && std::any_of(users->second.begin(), users->second.end(), outside)))
      border.outputs.insert(name);
  }
  return border;
}

std::string GraphReader::model_of(const std::vector<size_t>& nodes, const Border& border) const {
  const Writer writer(api_);
  onnx_proto::ModelProto model;
  model.set_ir_version(std::min<int64_t>(api_.get<int64_t>(kGraphGetIrVersion, graph_), 10));
  for (const auto& [domain, version] : operator_sets_) {
    auto& import = *model.add_opset_import();
    import.set_domain(domain);
    import.set_version(version);
  }
  const Owned<ModelMetadata> metadata(api_.get<ModelMetadata*>(kGraphGetModelMetadata, graph_),
                                      [this](ModelMetadata* m) { api_.raw(kReleaseModelMetadata, m); });
  auto* allocator = api_.get<Allocator*>(kGetDefaultAllocator);
  if (char* said = api_.get<char*>(kMetadataLookup, static_cast<const ModelMetadata*>(metadata.get()), allocator,
                                   kQuantizedFor)) {
    auto& entry = *model.add_metadata_props();
    entry.set_key(kQuantizedFor);
    entry.set_value(said);
    api_.call(kAllocatorFree, allocator, static_cast<void*>(said));
  }
  GraphProto& graph = *model.mutable_graph();
  graph.set_name("partition");
  for (const std::string& name : border.inputs) {
    auto& input = *graph.add_input();
    input.set_name(name);
    writer.write_type(api_.get<const TypeInfo*>(kGetValueInfoTypeInfo, value(name).info), *input.mutable_type(),
                      "'" + name + "'");
  }
  for (const std::string& name : border.outputs) graph.add_output()->set_name(name);

  std::vector<size_t> ordered = nodes;
  std::sort(ordered.begin(), ordered.end(), [&](size_t a, size_t b) { return nodes_[a].id < nodes_[b].id; });
  size_t bytes = 0;
  std::set<std::string> constants;
  const auto add_constant = [&](const ValueInfo* info) {
    const std::string name = writer.name_of(info);
    if (name.empty() || !api_.get<bool>(kValueInfoIsConstantInitializer, info) || !constants.insert(name).second)
      return;
    writer.write_constant(name, api_.get<const Value*>(kValueInfoGetInitializerValue, info), *graph.add_initializer());
    bytes += graph.initializer(graph.initializer_size() - 1).raw_data().size();
    if (bytes > static_cast<size_t>(INT32_MAX))
      throw Error(ErrorCode::kUnsupported, "the constants exceed 2 GiB, the limit of protobuf");
  };
  for (const size_t index : ordered) {
    const Node* node = nodes_[index].node;
    for (const ValueInfo* info : api_.list<ValueInfo>(kNodeGetNumInputs, kNodeGetInputs, node)) add_constant(info);
    for (const ValueInfo* info : api_.list<ValueInfo>(kNodeGetNumImplicitInputs, kNodeGetImplicitInputs, node))
      add_constant(info);
    writer.write_node(node, *graph.add_node());
  }
  if (model.ByteSizeLong() > static_cast<size_t>(INT32_MAX))
    throw Error(ErrorCode::kUnsupported, "the nodes and their constants exceed 2 GiB, the limit of protobuf");
  return model.SerializeAsString();
}

std::map<std::string, std::string> GraphReader::strings_of(const Node* node) const {
  std::map<std::string, std::string> all;
  const Writer writer(api_);
  for (const OpAttr* attribute : api_.list<OpAttr>(kNodeGetNumAttributes, kNodeGetAttributes, node))
    if (attribute && api_.get<AttrType>(kOpAttrGetType, attribute) == AttrType::kString)
      all[text_of(api_.get<const char*>(kOpAttrGetName, attribute))] = writer.string_of(attribute);
  return all;
}

int64_t GraphReader::int_of(const Node* node, const std::string& name, int64_t otherwise) const {
  for (const OpAttr* attribute : api_.list<OpAttr>(kNodeGetNumAttributes, kNodeGetAttributes, node))
    if (attribute && text_of(api_.get<const char*>(kOpAttrGetName, attribute)) == name &&
        api_.get<AttrType>(kOpAttrGetType, attribute) == AttrType::kInt)
      return Writer(api_).int_of(attribute);
  return otherwise;
}

}  // namespace tessera::ort
