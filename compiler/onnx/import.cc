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
#include "compiler/onnx/attributes.h"
#include "compiler/onnx/interface_types.h"
#include "compiler/onnx/map_inputs.h"
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
  void check_declared_types(const RepeatedPtrField<onnx_proto::ValueInfoProto>& declared);
  void check_maps();

  void define(Scope& scope, const std::string& name, mlir::Value value, const std::string& what);
  mlir::Value find(const Scope& scope, const std::string& name) const;
  mlir::Value require(const Scope& scope, const std::string& name, const std::string& user) const;
  void import_initializers(GraphProto& graph, Scope& scope, const std::string& where);
  void choose_overrides(const onnx_proto::ModelProto& model);
  llvm::SmallVector<mlir::DictionaryAttr> import_inputs(GraphProto& graph, mlir::func::FuncOp func, Scope& scope);
  mlir::DictionaryAttr describe_value(const onnx_proto::ValueInfoProto& value);
  void import_nodes(RepeatedPtrField<NodeProto>& nodes, Scope& scope, const std::string& where);
  void import_node(NodeProto& node, Scope& scope);
  static int known_version(const NodeProto& node, const std::string& domain, const Scope& scope,
                           const std::string& what);
  static std::vector<std::string> output_names(const NodeProto& node, const Scope& scope, const std::string& what);
  void import_zip_map(NodeProto& node, Scope& scope, const std::string& what);
  void import_body(GraphProto& graph, mlir::Region& region, const Scope& outer, const std::string& what);
  void inline_function(const FunctionProto& function, NodeProto& node, Scope& scope);
  mlir::Value constant(const ops::Tensor& tensor, const std::string& name);

  mlir::MLIRContext& context_;
  mlir::OpBuilder builder_;
  ModelFile file_;
  const ImportOptions& options_;
  BoundDims bound_;
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

/// The last initializer of each name, which is the one that counts, as in ONNX Runtime: quantisers write a bias once
/// for each of its readers. Those before must agree in type and shape.
std::unordered_map<std::string, const onnx_proto::TensorProto*> last_initializers(const GraphProto& graph) {
  std::unordered_map<std::string, const onnx_proto::TensorProto*> last;
  for (const auto& tensor : graph.initializer()) {
    const auto [at, first] = last.emplace(tensor.name(), &tensor);
    if (!first &&
        (at->second->data_type() != tensor.data_type() ||
         !std::equal(tensor.dims().begin(), tensor.dims().end(), at->second->dims().begin(), at->second->dims().end())))
      fail("initializer '" + tensor.name() + "' is given twice, with different types or shapes");
    at->second = &tensor;
  }
  return last;
}

void Importer::import_initializers(GraphProto& graph, Scope& scope, const std::string& where) {
  const auto last = last_initializers(graph);
  for (auto& tensor : *graph.mutable_initializer()) {
    std::string what = "initializer '" + tensor.name() + "'";
    if (tensor.name().empty()) fail("an initializer of " + where + " has no name");
    if (last.at(tensor.name()) != &tensor) continue;
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
      type = nn::to_type(&context_, type_info(input.type(), bound_, what + ": input '" + input.name() + "'"));
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
    ops::Attribute value = convert_attribute(attribute, file_.folders, what + ": attribute '" + attribute.name() + "'");
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
  resolve_references(node, scope.arguments, what);
  if (auto it = functions_.find({domain, node.op_type()}); it != functions_.end())
    return inline_function(*it->second, node, scope);
  if (domain == "ai.onnx.ml" && node.op_type() == "ZipMap") return import_zip_map(node, scope, what);
  const int version = known_version(node, domain, scope, what);
  if (domain.empty() && node.op_type() == "Constant") {
    const ops::Tensor value = constant_value(node, file_.folders, what);
    const mlir::Location location = nn::make_location(&context_, display_name(node), {node.output(0)});
    return define(scope, node.output(0), nn::create_constant(builder_, location, value), what);
  }

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
      attributes[attribute.name()] =
          convert_attribute(attribute, file_.folders, what + ": attribute '" + attribute.name() + "'");
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

mlir::DictionaryAttr Importer::describe_value(const onnx_proto::ValueInfoProto& value) {
  llvm::SmallVector<mlir::NamedAttribute> named{
      builder_.getNamedAttr(nn::kNameAttr, builder_.getStringAttr(value.name()))};
  llvm::SmallVector<mlir::Attribute> dim_names;
  if (value.type().has_tensor_type()) {
    for (const auto& dim : value.type().tensor_type().shape().dim())
      dim_names.push_back(builder_.getStringAttr(dim.dim_param()));
  }
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
    const mlir::Type type = nn::to_type(&context_, input_type(input, bound_, options_));
    const mlir::Location location = nn::make_location(&context_, input.name(), {input.name()});
    define(scope, input.name(), func.getBody().front().addArgument(type, location), "input");
    attributes.push_back(describe_value(input));
  };
  for (const auto& input : graph.input()) {
    if (input.name().empty()) fail("an input of the graph has no name");
    if (!inputs.insert(input.name()).second) fail("input '" + input.name() + "' is declared twice");
    if (options_.list_overridable && overridable_.count(input.name())) {
      const mlir::Type type = nn::to_type(&context_, input_type(input, bound_, options_));
      mlir::NamedAttrList named(describe_value(input));
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
  split_map_inputs(graph);
  std::map<std::string, int> opsets = read_opsets(model.opset_import(), "the model");
  if (opsets.empty()) {
    // Operator sets were introduced with IR version 3; what is older is of set 1.
    if (model.ir_version() >= 3) fail("the model imports no operator set; it may be truncated");
    opsets[""] = 1;
  }
  read_functions();
  bound_ = bind_dims(graph, options_);
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
    mlir::NamedAttrList named(describe_value(output));
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

}  // namespace tessera::onnx
