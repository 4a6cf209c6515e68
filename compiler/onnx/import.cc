// SPDX-License-Identifier: Apache-2.0
// From the protobuf graph to nn operations. A graph is imported in two steps: structure first (sorted nodes, constants,
// regions, inlined functions) with types yet unknown, then inference over the whole function sets the types. Errors
// name node and cause.
#include "compiler/onnx/import.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"

#include "compiler/nn/expand_operators.h"
#include "compiler/nn/inference.h"
#include "compiler/onnx/node_order.h"
#include "compiler/onnx/tensor_decode.h"

namespace tessera::onnx {
namespace {

using google::protobuf::RepeatedPtrField;
using onnx_proto::AttributeProto;
using onnx_proto::FunctionProto;
using onnx_proto::GraphProto;
using onnx_proto::NodeProto;
using onnx_proto::TypeProto;

constexpr const char* kNchwcDomain = "com.microsoft.nchwc";
constexpr int kOldestOpset = 1;
constexpr int kNewestOpset = 28;
constexpr int kOverridableIr = 4;

[[noreturn]] void fail(const std::string& message) { throw Error(ErrorCode::kInvalidModel, message); }

std::string canonical_domain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

/// Up to three of `names` that share the longest part with `name`, for "did you mean".
std::string nearest(const std::string& name, const std::vector<std::string>& names) {
  std::vector<std::pair<int, std::string>> ranked;
  for (const std::string& other : names) {
    size_t same = 0;
    while (same < name.size() && same < other.size() && name[same] == other[same]) ++same;
    if (same * 2 >= name.size()) ranked.emplace_back(-static_cast<int>(same), other);
  }
  std::sort(ranked.begin(), ranked.end());
  std::string text;
  for (size_t i = 0; i < ranked.size() && i < 3; ++i) text += (i == 0 ? "'" : ", '") + ranked[i].second + "'";
  return text;
}

/// Text of a type in ONNX's notation, as the attribute `type` of Optional and SequenceEmpty-like operators carries it.
std::string type_text(const TypeProto& type, const std::string& what, int depth = 0) {
  if (depth > 4) fail(what + ": type nests too deeply");
  if (type.has_tensor_type())
    return "tensor(" + std::string(ops::to_string(to_dtype(type.tensor_type().elem_type(), what))) + ")";
  if (type.has_sequence_type()) return "seq(" + type_text(type.sequence_type().elem_type(), what, depth + 1) + ")";
  if (type.has_optional_type()) return "optional(" + type_text(type.optional_type().elem_type(), what, depth + 1) + ")";
  throw Error(ErrorCode::kUnsupported, what + ": maps, sparse tensors and opaque types are not supported");
}

/// Whether a dimension's name says only that its size is open: exporters write "?" for each such axis, so two of them
/// are two dimensions. A name of digits or signs alone ("?", "-1", "*"), and the "None" of Python, are such names.
bool is_anonymous(const std::string& dimension) {
  return dimension == "None" || std::none_of(dimension.begin(), dimension.end(),
                                             [](unsigned char c) { return std::isalpha(c) != 0 || c >= 0x80; });
}

/// How many channels a block of ONNX Runtime's layout NCHWc has in this model. A file does not say it: it is bound to
/// the machine that saved it, where the block is 16 with AVX-512 or NEON and 8 without. Weights that are filled up to 8
/// only, or with 8 channels or more, tell; where none does, this machine's block is taken, as ONNX Runtime does.
int64_t nchwc_block(const GraphProto& graph) {
  std::unordered_map<std::string, int64_t> channels_of_weights, channels_of_values;
  for (const auto& tensor : graph.initializer())
    if (tensor.dims_size() == 4) channels_of_weights[tensor.name()] = tensor.dims(0);
  for (const NodeProto& node : graph.node()) {
    if (node.domain() != kNchwcDomain || node.op_type() != "Conv" || node.input_size() < 2) continue;
    const auto found = channels_of_weights.find(node.input(1));
    if (found == channels_of_weights.end()) continue;
    if (found->second % 16 != 0) return 8;
    if (node.output_size() > 0) channels_of_values[node.output(0)] = found->second;
  }
  for (const NodeProto& node : graph.node()) {
    if (node.domain() != kNchwcDomain || node.op_type() != "ReorderOutput" || node.input_size() < 1) continue;
    const auto found = channels_of_values.find(node.input(0));
    for (const AttributeProto& attribute : node.attribute())
      if (found != channels_of_values.end() && attribute.name() == "channels" && found->second - attribute.i() >= 8)
        return 16;
  }
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") ? 16 : 8;
#else
  return 16;
#endif
}

using AttributeMap = std::unordered_map<std::string, const AttributeProto*>;

class Importer {
 public:
  Importer(mlir::MLIRContext& context, ModelFile file, const ImportOptions& options)
      : context_(context), builder_(&context), file_(std::move(file)), options_(options) {}

  mlir::OwningOpRef<mlir::ModuleOp> run();

 private:
  /// Names visible at a point. A subgraph sees its parent; a function body does not.
  struct Scope {
    const Scope* parent = nullptr;
    std::unordered_map<std::string, mlir::Value> values;
    const std::map<std::string, int>* opsets = nullptr;
    const AttributeMap* arguments = nullptr;  // attributes of a function's call
    std::string prefix;                       // of node names inside an inlined function
    int depth = 0;
  };

  std::map<std::string, int> read_opsets(const RepeatedPtrField<onnx_proto::OperatorSetIdProto>& imports,
                                         const std::string& where);
  void read_functions();
  mlir::Type argument_type(const onnx_proto::ValueInfoProto& input, llvm::SmallVectorImpl<mlir::Attribute>& dim_names);
  ops::TypeInfo type_info(const TypeProto& type, const std::string& what, int depth = 0);
  void bind_dims(const GraphProto& graph);
  void check_declared_types(const RepeatedPtrField<onnx_proto::ValueInfoProto>& declared);
  void check_maps();

  void define(Scope& scope, const std::string& name, mlir::Value value, const std::string& what);
  mlir::Value find(const Scope& scope, const std::string& name) const;
  mlir::Value require(const Scope& scope, const std::string& name, const std::string& user) const;
  void import_initializers(GraphProto& graph, Scope& scope, const std::string& where);
  void choose_overrides(const onnx_proto::ModelProto& model);
  llvm::SmallVector<mlir::DictionaryAttr> import_inputs(GraphProto& graph, mlir::func::FuncOp func, Scope& scope);
  mlir::DictionaryAttr describe_value(const std::string& name, llvm::ArrayRef<mlir::Attribute> dim_names);
  void import_nodes(RepeatedPtrField<NodeProto>& nodes, Scope& scope, const std::string& where);
  void import_node(NodeProto& node, Scope& scope);
  static void resolve_references(NodeProto& node, const Scope& scope, const std::string& what);
  static int known_version(const NodeProto& node, const std::string& domain, const Scope& scope,
                           const std::string& what);
  static std::vector<std::string> output_names(const NodeProto& node, const Scope& scope, const std::string& what);
  void import_constant(NodeProto& node, Scope& scope);
  void import_zip_map(NodeProto& node, Scope& scope, const std::string& what);
  void import_body(GraphProto& graph, mlir::Region& region, const Scope& outer, const std::string& what);
  void inline_function(const FunctionProto& function, NodeProto& node, Scope& scope);
  ops::Attribute convert_attribute(AttributeProto& attribute, const std::string& what);
  mlir::Value constant(const ops::Tensor& tensor, const std::string& name);

  mlir::MLIRContext& context_;
  mlir::OpBuilder builder_;
  ModelFile file_;
  const ImportOptions& options_;
  std::map<std::string, int64_t> bound_dims_;
  int64_t nchwc_block_ = 16;
  std::unordered_map<std::string, mlir::Value> values_;        // of the main graph, by ONNX name
  std::unordered_map<std::string, mlir::ArrayAttr> map_keys_;  // of outputs of ZipMap, by ONNX name
  std::map<std::pair<std::string, std::string>, const FunctionProto*> functions_;
  std::vector<const FunctionProto*> call_stack_;
  std::set<std::string> overridden_, overridable_;  // initializers of the main graph that are, and may be, inputs
};

std::map<std::string, int> Importer::read_opsets(const RepeatedPtrField<onnx_proto::OperatorSetIdProto>& imports,
                                                 const std::string& where) {
  std::map<std::string, int> opsets;
  for (const auto& import : imports) {
    std::string domain = canonical_domain(import.domain());
    if (import.version() < 1 || import.version() > 1000000) {
      fail(where + " imports version " + std::to_string(import.version()) + " of operator set '" + domain +
           "', which cannot exist");
    }
    int version = static_cast<int>(import.version());
    auto [it, inserted] = opsets.emplace(domain, version);
    if (!inserted && it->second != version) fail(where + " imports operator set '" + domain + "' in two versions");
    if (!domain.empty()) continue;
    if (version < kOldestOpset || version > kNewestOpset) {
      throw Error(ErrorCode::kUnsupported, where + " uses opset " + std::to_string(version) + "; opsets " +
                                               std::to_string(kOldestOpset) + " to " + std::to_string(kNewestOpset) +
                                               " are supported. Convert it with onnx.version_converter");
    }
  }
  return opsets;
}

void Importer::read_functions() {
  for (const FunctionProto& function : file_.proto->functions()) {
    auto key = std::make_pair(canonical_domain(function.domain()), function.name());
    if (function.name().empty()) fail("a model-local function has no name");
    if (!functions_.emplace(key, &function).second)
      fail("function '" + key.first + "::" + key.second + "' is defined twice");
  }
}

ops::TypeInfo Importer::type_info(const TypeProto& type, const std::string& what, int depth) {
  if (depth > 4) fail(what + ": type nests too deeply");
  if (type.has_sequence_type()) {
    ops::TypeInfo info = type_info(type.sequence_type().elem_type(), what, depth + 1);
    info.kind = ops::TypeInfo::Kind::kSequence;
    return info;
  }
  if (type.has_optional_type()) {
    ops::TypeInfo info = type_info(type.optional_type().elem_type(), what, depth + 1);
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
      auto bound = bound_dims_.find(dim.dim_param());
      if (bound != bound_dims_.end()) value = bound->second;
    }
    info.shape.push_back(value);
  }
  return info;
}

/// Values of symbolic dimensions: those given by name, and those that a given shape of an input implies. ONNX Runtime
/// does not hold axes of one name to one size, so a name for which shapes imply several sizes has no value here, and
/// each axis keeps the size of its own shape.
void Importer::bind_dims(const GraphProto& graph) {
  std::set<std::string> symbols, by_name, ambiguous;
  std::map<std::string, const TypeProto*> inputs;
  for (const auto& input : graph.input()) {
    inputs[input.name()] = &input.type();
    if (!input.type().has_tensor_type()) continue;
    for (const auto& dim : input.type().tensor_type().shape().dim()) {
      if (dim.has_dim_param() && !is_anonymous(dim.dim_param())) symbols.insert(dim.dim_param());
    }
  }
  auto bind = [&](const std::string& name, int64_t value, const std::string& what) {
    if (value < 0)
      throw Error(ErrorCode::kInvalidArgument, what + ": dimension " + std::to_string(value) + " is negative");
    auto [it, inserted] = bound_dims_.emplace(name, value);
    if (!inserted && it->second != value) {
      if (!by_name.count(name)) {
        ambiguous.insert(name);
        return;
      }
      throw Error(ErrorCode::kInvalidArgument, what + ": dimension '" + name + "' is given as " +
                                                   std::to_string(it->second) + " and as " + std::to_string(value));
    }
  };
  auto join = [](const auto& names) {
    std::string text;
    for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
    return text.empty() ? std::string("none") : text;
  };
  std::vector<std::string> names;
  for (const auto& [name, type] : inputs) names.push_back(name);
  auto bind_symbol = [&](const std::string& name, int64_t value) {
    if (symbols.count(name)) {
      bind(name, value, "shape option");
      by_name.insert(name);
      return;
    }
    throw Error(ErrorCode::kInvalidArgument, "shape option: the model has no input and no dimension '" + name +
                                                 "'; inputs: " + join(names) +
                                                 "; symbolic dimensions: " + join(symbols));
  };
  for (const auto& [name, value] : options_.dims) bind_symbol(name, value);
  for (const auto& [name, shape] : options_.shapes) {
    if (inputs.count(name)) continue;
    // "batch=4" reads as a shape of one dimension: it means a symbol.
    if (symbols.count(name) && shape.size() != 1) {
      throw Error(ErrorCode::kInvalidArgument, "shape option: dimension '" + name + "' takes one size, " +
                                                   std::to_string(shape.size()) + " were given");
    }
    bind_symbol(name, shape.empty() ? 0 : shape[0]);
  }
  for (const auto& [name, shape] : options_.shapes) {
    auto it = inputs.find(name);
    if (it == inputs.end()) continue;
    if (!it->second->has_tensor_type() || !it->second->tensor_type().has_shape()) continue;
    const auto& dims = it->second->tensor_type().shape();
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
  for (const std::string& name : ambiguous) bound_dims_.erase(name);
}

mlir::Type Importer::argument_type(const onnx_proto::ValueInfoProto& input,
                                   llvm::SmallVectorImpl<mlir::Attribute>& dim_names) {
  std::string what = "input '" + input.name() + "'";
  if (!input.has_type()) fail(what + " has no type");
  ops::TypeInfo info = type_info(input.type(), what);
  if (auto given = options_.shapes.find(input.name());
      given != options_.shapes.end() && info.kind == ops::TypeInfo::Kind::kTensor) {
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
  if (input.type().has_tensor_type()) {
    for (const auto& dim : input.type().tensor_type().shape().dim())
      dim_names.push_back(builder_.getStringAttr(dim.dim_param()));
  }
  return nn::to_type(&context_, info);
}

void Importer::define(Scope& scope, const std::string& name, mlir::Value value, const std::string& what) {
  if (!scope.values.emplace(name, value).second)
    fail(what + ": '" + name + "' is defined already; each value has one definition");
  if (scope.depth == 0) values_[name] = value;
}

mlir::Value Importer::find(const Scope& scope, const std::string& name) const {
  for (const Scope* s = &scope; s; s = s->parent) {
    auto it = s->values.find(name);
    if (it != s->values.end()) return it->second;
  }
  return {};
}

mlir::Value Importer::require(const Scope& scope, const std::string& name, const std::string& user) const {
  if (mlir::Value value = find(scope, name)) return value;
  std::vector<std::string> names;
  for (const Scope* s = &scope; s; s = s->parent) {
    for (const auto& [other, value] : s->values) names.push_back(other);
  }
  std::string near = nearest(name, names);
  fail(user + " '" + name + "' is no input, no initializer and no output of any node" +
       (near.empty() ? "" : "; did you mean " + near));
}

mlir::Value Importer::constant(const ops::Tensor& tensor, const std::string& name) {
  return nn::create_constant(builder_, nn::make_location(&context_, name, {name}), tensor);
}

void Importer::import_initializers(GraphProto& graph, Scope& scope, const std::string& where) {
  for (auto& tensor : *graph.mutable_initializer()) {
    std::string what = "initializer '" + tensor.name() + "'";
    if (tensor.name().empty()) fail("an initializer of " + where + " has no name");
    if (scope.depth == 0 && overridden_.count(tensor.name())) continue;
    define(scope, tensor.name(), constant(decode_tensor(tensor, file_.folders, what), tensor.name()), what);
  }
  for (auto& tensor : *graph.mutable_sparse_initializer()) {
    std::string name = tensor.values().name();
    if (name.empty()) fail("a sparse initializer of " + where + " has no name");
    std::string what = "sparse initializer '" + name + "'";
    define(scope, name, constant(decode_sparse_tensor(tensor, file_.folders, what), name), what);
  }
}

ops::Attribute Importer::convert_attribute(AttributeProto& attribute, const std::string& what) {
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
    case AttributeProto::TENSOR:
      need(attribute.has_t());
      return decode_tensor(*attribute.mutable_t(), file_.folders, what);
    case AttributeProto::SPARSE_TENSOR:
      need(attribute.has_sparse_tensor());
      return decode_sparse_tensor(*attribute.mutable_sparse_tensor(), file_.folders, what);
    case AttributeProto::FLOATS: return std::vector<float>(attribute.floats().begin(), attribute.floats().end());
    case AttributeProto::INTS: return std::vector<int64_t>(attribute.ints().begin(), attribute.ints().end());
    case AttributeProto::STRINGS:
      return std::vector<std::string>(attribute.strings().begin(), attribute.strings().end());
    case AttributeProto::TYPE_PROTO: need(attribute.has_tp()); return type_text(attribute.tp(), what);
    default:
      throw Error(ErrorCode::kUnsupported, what + " is a list of tensors, graphs or types, which no ONNX operator has");
  }
}

void Importer::import_constant(NodeProto& node, Scope& scope) {
  std::string what = describe(node);
  if (node.input_size() != 0 || node.output_size() != 1 || node.output(0).empty())
    fail(what + ": a Constant has no inputs and one output");
  if (node.attribute_size() != 1) fail(what + ": a Constant has exactly one attribute");
  AttributeProto& proto = *node.mutable_attribute(0);
  ops::Attribute value = convert_attribute(proto, what + ": attribute '" + proto.name() + "'");
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
  mlir::Location location = nn::make_location(&context_, display_name(node), {node.output(0)});
  define(scope, node.output(0), nn::create_constant(builder_, location, tensor), what);
}

void Importer::import_body(GraphProto& graph, mlir::Region& region, const Scope& outer, const std::string& what) {
  mlir::OpBuilder::InsertionGuard guard(builder_);
  mlir::Block* block = builder_.createBlock(&region);
  Scope scope;
  scope.parent = &outer;
  scope.opsets = outer.opsets;
  scope.arguments = outer.arguments;
  scope.prefix = outer.prefix;
  scope.depth = outer.depth + 1;
  if (scope.depth > kMaxDepth) fail(what + ": subgraphs nest deeper than " + std::to_string(kMaxDepth));
  import_initializers(graph, scope, what);
  const mlir::Type unknown = mlir::UnrankedTensorType::get(builder_.getF32Type());
  for (const auto& input : graph.input()) {
    if (scope.values.count(input.name())) continue;
    mlir::Type type = unknown;
    if (input.has_type() && input.type().value_case() != TypeProto::VALUE_NOT_SET) {
      type = nn::to_type(&context_, type_info(input.type(), what + ": input '" + input.name() + "'"));
    }
    define(scope, input.name(), block->addArgument(type, nn::make_location(&context_, input.name(), {})), what);
  }
  import_nodes(*graph.mutable_node(), scope, what);
  llvm::SmallVector<mlir::Value> results;
  for (const auto& output : graph.output()) results.push_back(require(scope, output.name(), what + ": output"));
  builder_.create<nn::ReturnOp>(builder_.getUnknownLoc(), results);
}

void Importer::inline_function(const FunctionProto& function, NodeProto& node, Scope& scope) {
  std::string what = describe(node);
  std::string title = "function '" + canonical_domain(function.domain()) + "::" + function.name() + "'";
  if (std::find(call_stack_.begin(), call_stack_.end(), &function) != call_stack_.end())
    fail(what + ": " + title + " calls itself");
  if (scope.depth + 1 > kMaxDepth) fail(what + ": functions nest deeper than " + std::to_string(kMaxDepth));
  if (node.input_size() > function.input_size()) {
    fail(what + ": has " + std::to_string(node.input_size()) + " inputs, " + title + " takes " +
         std::to_string(function.input_size()));
  }
  if (node.output_size() > function.output_size()) {
    fail(what + ": has " + std::to_string(node.output_size()) + " outputs, " + title + " gives " +
         std::to_string(function.output_size()));
  }
  std::map<std::string, int> opsets = read_opsets(function.opset_import(), title);
  AttributeMap arguments;
  for (const AttributeProto& fallback : function.attribute_proto()) arguments[fallback.name()] = &fallback;
  for (const AttributeProto& given : node.attribute()) arguments[given.name()] = &given;
  Scope inner;
  inner.opsets = &opsets;
  inner.arguments = &arguments;
  inner.prefix = scope.prefix + display_name(node) + "/";
  inner.depth = scope.depth + 1;
  for (int i = 0; i < function.input_size(); ++i) {
    bool given = i < node.input_size() && !node.input(i).empty();
    mlir::Value value =
        given ? require(scope, node.input(i), what + ": input " + std::to_string(i))
              : nn::create_none(builder_, nn::make_location(&context_, inner.prefix + function.input(i), {}));
    define(inner, function.input(i), value, title);
  }
  call_stack_.push_back(&function);
  RepeatedPtrField<NodeProto> nodes = function.node();
  import_nodes(nodes, inner, title);
  call_stack_.pop_back();
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty()) continue;
    define(scope, node.output(i), require(inner, function.output(i), title + ": output"), what);
  }
}

/// Attributes that refer to the enclosing function's are replaced by what the call gives, or dropped.
void Importer::resolve_references(NodeProto& node, const Scope& scope, const std::string& what) {
  std::set<std::string> seen;
  for (int i = node.attribute_size() - 1; i >= 0; --i) {
    AttributeProto* attribute = node.mutable_attribute(i);
    if (!seen.insert(attribute->name()).second) fail(what + ": attribute '" + attribute->name() + "' is given twice");
    if (attribute->name().empty()) fail(what + ": an attribute has no name");
    if (attribute->ref_attr_name().empty()) continue;
    if (!scope.arguments)
      fail(what + ": attribute '" + attribute->name() + "' refers to a function's attribute outside of a function");
    auto it = scope.arguments->find(attribute->ref_attr_name());
    if (it == scope.arguments->end()) {
      node.mutable_attribute()->DeleteSubrange(i, 1);
      continue;
    }
    std::string name = attribute->name();
    *attribute = AttributeProto(*it->second);
    attribute->set_name(name);
  }
}

/// The version of the node's operator set, in which the operator library knows it.
int Importer::known_version(const NodeProto& node, const std::string& domain, const Scope& scope,
                            const std::string& what) {
  auto opset = scope.opsets->find(domain);
  if (opset == scope.opsets->end() && domain.empty())
    fail(what + ": the model does not import the operator set of ONNX");
  const int version = opset == scope.opsets->end() ? 1 : opset->second;
  if (ops::registry().find(domain, node.op_type(), version)) return version;
  if (domain == "ai.onnx.preview.training" || domain == "ai.onnx.training")
    throw Error(ErrorCode::kUnsupported, what +
                                             ": a training operator; Tessera compiles inference, so export the model "
                                             "without its training part");
  if (domain == "ai.onnx.ml" && (node.op_type() == "CastMap" || node.op_type() == "DictVectorizer"))
    throw Error(ErrorCode::kUnsupported, what +
                                             ": takes a map, which has no place in a tensor; export the model without "
                                             "it, so that its input is the vector of the map's values");
  std::string message = what + ": operator '" + (domain.empty() ? "" : domain + "::") + node.op_type() + "' of opset " +
                        std::to_string(version) + " is not known";
  std::string near;
  for (const std::string& name : ops::registry().similar(node.op_type())) near += (near.empty() ? "" : ", ") + name;
  if (!near.empty()) message += "; similar: " + near;
  message += domain.empty()
                 ? ". Export the model with other operators or another opset (" + std::to_string(kOldestOpset) +
                       " to " + std::to_string(kNewestOpset) + "), or add the operator to ops/"
                 : ". Replace it by standard operators, define it as a model-local function, or write a kernel for it "
                   "(docs/tile.md)";
  throw Error(ErrorCode::kUnsupported, message);
}

/// The names of a node's outputs, empty for those that nobody asks for, without such at the end.
std::vector<std::string> Importer::output_names(const NodeProto& node, const Scope& scope, const std::string& what) {
  int outputs = node.output_size();
  while (outputs > 0 && node.output(outputs - 1).empty()) --outputs;
  if (outputs == 0) fail(what + ": has no outputs");
  std::vector<std::string> names;
  for (int i = 0; i < outputs; ++i) {
    names.push_back(node.output(i).empty() ? std::string() : scope.prefix + node.output(i));
  }
  return names;
}

/// ZipMap names the columns of a matrix. Its result is the matrix, and the output that it becomes carries the names.
void Importer::import_zip_map(NodeProto& node, Scope& scope, const std::string& what) {
  if (scope.parent != nullptr || !scope.prefix.empty())
    throw Error(ErrorCode::kUnsupported, what + ": maps are made in the main graph only");
  if (node.input_size() != 1 || node.output_size() != 1 || node.output(0).empty())
    fail(what + ": takes one input and has one output");
  llvm::SmallVector<mlir::Attribute> keys;
  for (AttributeProto& attribute : *node.mutable_attribute()) {
    ops::Attribute value = convert_attribute(attribute, what + ": attribute '" + attribute.name() + "'");
    if (auto* strings = std::get_if<std::vector<std::string>>(&value);
        strings && attribute.name() == "classlabels_strings") {
      for (const std::string& key : *strings) keys.push_back(builder_.getStringAttr(key));
    } else if (auto* ints = std::get_if<std::vector<int64_t>>(&value);
               ints && attribute.name() == "classlabels_int64s") {
      for (const int64_t key : *ints) keys.push_back(builder_.getI64IntegerAttr(key));
    } else {
      fail(what + ": attribute '" + attribute.name() + "' is none of classlabels_strings and classlabels_int64s");
    }
  }
  if (keys.empty()) fail(what + ": no labels are given");
  if (llvm::any_of(keys, [&](mlir::Attribute key) { return key.getTypeID() != keys[0].getTypeID(); }))
    fail(what + ": labels are given as strings and as integers");
  mlir::Value matrix = require(scope, node.input(0), what + ": input 0");
  const auto count = static_cast<int64_t>(keys.size());
  // A vector is the matrix of one row. Columns that are not as many as the keys are refused where they are known,
  // below, and else where they are no multiple.
  const std::string name = node.output(0);
  const mlir::Location location = nn::make_location(&context_, display_name(node), {name});
  const mlir::Value shape = constant(ops::Tensor::vector_i64({-1, count}), name + "/shape");
  auto op = builder_.create<nn::NodeOp>(location, mlir::UnrankedTensorType::get(builder_.getF32Type()),
                                        mlir::ValueRange{matrix, shape}, builder_.getStringAttr("Reshape"),
                                        builder_.getStringAttr(""), builder_.getI64IntegerAttr(13),
                                        builder_.getDictionaryAttr({}), builder_.getArrayAttr({}), 0U);
  define(scope, name, op->getResult(0), what);
  map_keys_[name] = builder_.getArrayAttr(keys);
}

/// The matrix of a ZipMap has float elements, in as many columns as there are keys.
void Importer::check_maps() {
  for (const auto& [name, keys] : map_keys_) {
    const mlir::Value matrix = values_.at(name).getDefiningOp()->getOperand(0);
    const ops::TypeInfo info = nn::to_type_info(matrix.getType());
    const std::string what = "ZipMap with the output '" + name + "'";
    if (info.dtype != ops::DType::kFloat) fail(what + " takes float32, not " + std::string(ops::to_string(info.dtype)));
    if (!info.ranked) continue;
    if (info.shape.empty() || info.shape.size() > 2) fail(what + " takes a vector or a matrix");
    if (info.shape.back() >= 0 && info.shape.back() != static_cast<int64_t>(keys.size()))
      fail(what + " has " + std::to_string(keys.size()) + " labels for " + std::to_string(info.shape.back()) +
           " columns");
  }
}

void Importer::import_node(NodeProto& node, Scope& scope) {
  std::string what = describe(node);
  if (node.op_type().empty()) fail("node '" + display_name(node) + "' has no operator");
  std::string domain = canonical_domain(node.domain());
  resolve_references(node, scope, what);
  if (auto it = functions_.find({domain, node.op_type()}); it != functions_.end())
    return inline_function(*it->second, node, scope);
  if (domain == "ai.onnx.ml" && node.op_type() == "ZipMap") return import_zip_map(node, scope, what);
  const int version = known_version(node, domain, scope, what);
  if (domain.empty() && node.op_type() == "Constant") return import_constant(node, scope);

  llvm::SmallVector<mlir::Value> operands;
  for (int i = 0; i < node.input_size(); ++i) {
    if (map_keys_.contains(node.input(i)))
      throw Error(ErrorCode::kUnsupported, what + ": input '" + node.input(i) +
                                               "' is a sequence of maps, which only leaves a model as its output");
    operands.push_back(node.input(i).empty() ? mlir::Value()
                                             : require(scope, node.input(i), what + ": input " + std::to_string(i)));
  }
  std::map<std::string, ops::Attribute> attributes;
  llvm::SmallVector<mlir::Attribute> body_names;
  std::vector<GraphProto*> bodies;
  for (AttributeProto& attribute : *node.mutable_attribute()) {
    if (attribute.type() == AttributeProto::GRAPH ||
        (attribute.type() == AttributeProto::UNDEFINED && attribute.has_g())) {
      if (!attribute.has_g()) fail(what + ": attribute '" + attribute.name() + "' has no graph");
      body_names.push_back(builder_.getStringAttr(attribute.name()));
      bodies.push_back(attribute.mutable_g());
    } else {
      attributes[attribute.name()] = convert_attribute(attribute, what + ": attribute '" + attribute.name() + "'");
    }
  }
  if (domain == kNchwcDomain) attributes.emplace("block", nchwc_block_);
  const std::vector<std::string> names = output_names(node, scope, what);
  mlir::Location location = nn::make_location(&context_, scope.prefix + display_name(node), names);
  while (!operands.empty() && (!operands.back() || nn::is_none(operands.back()))) operands.pop_back();
  for (mlir::Value& operand : operands) {
    if (!operand) operand = nn::create_none(builder_, location);
  }
  llvm::SmallVector<mlir::Type> types(names.size(), mlir::UnrankedTensorType::get(builder_.getF32Type()));
  auto op = builder_.create<nn::NodeOp>(location, types, operands, builder_.getStringAttr(node.op_type()),
                                        builder_.getStringAttr(domain), builder_.getI64IntegerAttr(version),
                                        nn::to_dictionary(&context_, attributes), builder_.getArrayAttr(body_names),
                                        static_cast<unsigned>(bodies.size()));
  for (size_t i = 0; i < bodies.size(); ++i) {
    std::string name = llvm::cast<mlir::StringAttr>(body_names[i]).getValue().str();
    import_body(*bodies[i], op.getBodies()[i], scope, what + ", " + name);
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& output = node.output(static_cast<int>(i));
    if (!output.empty()) define(scope, output, op->getResult(static_cast<unsigned>(i)), what);
  }
}

void Importer::import_nodes(RepeatedPtrField<NodeProto>& nodes, Scope& scope, const std::string& where) {
  for (const NodeProto& node : nodes) {
    for (const std::string& output : node.output()) {
      if (!output.empty() && scope.values.count(output)) {
        fail(describe(node) + ": its output '" + output + "' has the name of an input or initializer of " + where +
             "; each value has one definition");
      }
    }
  }
  for (int index : sort_nodes(nodes, where)) import_node(nodes[index], scope);
}

/// The element types that the model declares must be those that the operators give.
void Importer::check_declared_types(const RepeatedPtrField<onnx_proto::ValueInfoProto>& declared) {
  for (const auto& info : declared) {
    auto it = values_.find(info.name());
    if (it == values_.end() || !info.type().has_tensor_type() || info.type().tensor_type().elem_type() == 0) continue;
    ops::DType want = to_dtype(info.type().tensor_type().elem_type(), "value '" + info.name() + "'");
    ops::DType have = nn::dtype_of(it->second);
    if (have == want) continue;
    fail("value '" + info.name() + "' is declared as " + std::string(ops::to_string(want)) + ", but " +
         (have == ops::DType::kUndefined ? "no tensor" : std::string(ops::to_string(have))) +
         " is what its producer gives");
  }
}

/// Puts expansions in the place of their operators until none is left to expand: an expansion may hold operators that
/// expand in turn, and each round knows more types. `inference` has run on `func`.
void expand_all(mlir::func::FuncOp func, nn::TypeInference& inference) {
  constexpr int kMaxRounds = 8;
  for (int round = 0; round < kMaxRounds && nn::expand_operators(func, inference); ++round) {
    inference = nn::TypeInference();
    inference.run(func);
  }
}

mlir::DictionaryAttr Importer::describe_value(const std::string& name, llvm::ArrayRef<mlir::Attribute> dim_names) {
  llvm::SmallVector<mlir::NamedAttribute> named{builder_.getNamedAttr(nn::kNameAttr, builder_.getStringAttr(name))};
  bool any = llvm::any_of(dim_names,
                          [](mlir::Attribute dim) { return !llvm::cast<mlir::StringAttr>(dim).getValue().empty(); });
  if (any) named.push_back(builder_.getNamedAttr(nn::kDimNamesAttr, builder_.getArrayAttr(dim_names)));
  return builder_.getDictionaryAttr(named);
}

/// An initializer that is listed as an input is a default value since IR version 4, and a constant before.
void Importer::choose_overrides(const onnx_proto::ModelProto& model) {
  std::map<std::string, int> initializers;
  if (model.ir_version() >= kOverridableIr)
    for (const auto& tensor : model.graph().initializer()) initializers[tensor.name()] = tensor.data_type();
  for (const auto& input : model.graph().input()) {
    const auto found = initializers.find(input.name());
    if (found != initializers.end() && input.type().has_tensor_type() &&
        input.type().tensor_type().elem_type() == found->second)
      overridable_.insert(input.name());
  }
  for (const std::string& name : options_.overrides) {
    if (overridable_.erase(name) == 0)
      throw Error(ErrorCode::kInvalidArgument,
                  "'" + name + "' is no initializer that can be given as an input; that takes IR version " +
                      std::to_string(kOverridableIr) + " or later and an input of the graph with its name");
    overridden_.insert(name);
  }
}

/// Makes arguments of the inputs: first those that have no initializer, then those whose initializer is overridden.
/// Returns their attributes.
llvm::SmallVector<mlir::DictionaryAttr> Importer::import_inputs(GraphProto& graph, mlir::func::FuncOp func,
                                                                Scope& scope) {
  std::set<std::string> inputs;
  llvm::SmallVector<mlir::DictionaryAttr> attributes;
  llvm::SmallVector<mlir::Attribute> overridable;
  auto add = [&](const onnx_proto::ValueInfoProto& input) {
    llvm::SmallVector<mlir::Attribute> dim_names;
    mlir::Type type = argument_type(input, dim_names);
    const mlir::Location location = nn::make_location(&context_, input.name(), {input.name()});
    define(scope, input.name(), func.getBody().front().addArgument(type, location), "input");
    attributes.push_back(describe_value(input.name(), dim_names));
  };
  for (const auto& input : graph.input()) {
    if (input.name().empty()) fail("an input of the graph has no name");
    if (!inputs.insert(input.name()).second) fail("input '" + input.name() + "' is declared twice");
    if (options_.list_overridable && overridable_.count(input.name())) {
      llvm::SmallVector<mlir::Attribute> dim_names;
      const mlir::Type type = argument_type(input, dim_names);
      mlir::NamedAttrList named(describe_value(input.name(), dim_names));
      named.set(kOverridableType, mlir::TypeAttr::get(type));
      overridable.push_back(named.getDictionary(&context_));
    }
    if (!scope.values.count(input.name()) && !overridden_.count(input.name())) add(input);
  }
  for (const auto& input : graph.input())
    if (overridden_.count(input.name())) add(input);
  if (!overridable.empty()) func->setAttr(kOverridableAttr, builder_.getArrayAttr(overridable));
  return attributes;
}

mlir::OwningOpRef<mlir::ModuleOp> Importer::run() {
  onnx_proto::ModelProto& model = *file_.proto;
  GraphProto& graph = *model.mutable_graph();
  std::map<std::string, int> opsets = read_opsets(model.opset_import(), "the model");
  if (opsets.empty()) {
    // Operator sets were introduced with IR version 3; what is older is of set 1.
    if (model.ir_version() >= 3) fail("the model imports no operator set; it may be truncated");
    opsets[""] = 1;
  }
  read_functions();
  bind_dims(graph);
  nchwc_block_ = nchwc_block(graph);
  if (graph.output_size() == 0) fail("the graph has no outputs: there is nothing to compute");

  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(builder_.getUnknownLoc());
  builder_.setInsertionPointToEnd(module->getBody());
  auto func = builder_.create<mlir::func::FuncOp>(builder_.getUnknownLoc(), "main", builder_.getFunctionType({}, {}));
  mlir::Block* block = func.addEntryBlock();
  builder_.setInsertionPointToEnd(block);

  Scope scope;
  scope.opsets = &opsets;
  std::string where = "the graph";
  choose_overrides(model);
  import_initializers(graph, scope, where);
  const llvm::SmallVector<mlir::DictionaryAttr> argument_attributes = import_inputs(graph, func, scope);
  import_nodes(*graph.mutable_node(), scope, where);

  llvm::SmallVector<mlir::Value> results;
  llvm::SmallVector<mlir::DictionaryAttr> result_attributes;
  for (const auto& output : graph.output()) {  // one may be declared twice, and is then given twice
    results.push_back(require(scope, output.name(), "graph output"));
    llvm::SmallVector<mlir::Attribute> dim_names;
    if (output.type().has_tensor_type()) {
      for (const auto& dim : output.type().tensor_type().shape().dim())
        dim_names.push_back(builder_.getStringAttr(dim.dim_param()));
    }
    const mlir::DictionaryAttr described = describe_value(output.name(), dim_names);
    mlir::NamedAttrList named(described);
    if (auto keys = map_keys_.find(output.name()); keys != map_keys_.end()) named.set(nn::kMapKeysAttr, keys->second);
    result_attributes.push_back(named.getDictionary(&context_));
  }
  builder_.create<mlir::func::ReturnOp>(builder_.getUnknownLoc(), results);

  nn::TypeInference inference;
  inference.run(func);
  check_maps();
  check_declared_types(graph.output());
  check_declared_types(graph.value_info());
  expand_all(func, inference);
  func.setAllArgAttrs(argument_attributes);
  func.setAllResultAttrs(result_attributes);

  std::string messages;
  mlir::ScopedDiagnosticHandler handler(&context_, [&](mlir::Diagnostic& diagnostic) {
    messages += (messages.empty() ? "" : "; ") + diagnostic.str();
    return mlir::success();
  });
  if (mlir::failed(mlir::verify(*module))) fail("the model breaks a rule of its operators: " + messages);
  return module;
}

mlir::OwningOpRef<mlir::ModuleOp> import_model(mlir::MLIRContext& context, ModelFile file,
                                               const ImportOptions& options) {
  context.getOrLoadDialect<nn::NNDialect>();
  context.getOrLoadDialect<mlir::func::FuncDialect>();
  try {
    return Importer(context, std::move(file), options).run();
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kDoesNotFit, "the model does not fit in the memory of this machine");
  }
}

}  // namespace

mlir::OwningOpRef<mlir::ModuleOp> import_onnx(mlir::MLIRContext& context, const ModelSource& source,
                                              const ImportOptions& options) {
  ModelFile file = load_model(source, options.directory, options.litert_reference);
  if (source.path().empty()) file.folders.memory = options.external;
  return import_model(context, std::move(file), options);
}

mlir::OwningOpRef<mlir::ModuleOp> import_onnx_file(mlir::MLIRContext& context, const std::string& path,
                                                   const ImportOptions& options) {
  return import_onnx(context, ModelSource::from_file(path), options);
}

mlir::OwningOpRef<mlir::ModuleOp> import_onnx_bytes(mlir::MLIRContext& context, std::string_view bytes,
                                                    const ImportOptions& options) {
  ModelFile file = parse_model(bytes, options.directory, options.litert_reference);
  file.folders.memory = options.external;
  return import_model(context, std::move(file), options);
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
