// SPDX-License-Identifier: Apache-2.0
// What a conversion sees: one operator of a LiteRT file, and the ONNX graph that it adds nodes to. Values are called by
// their ONNX names, so the operands of a new node are simply strings.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/litert/model.h"
#include "compiler/onnx_schema/tessera_onnx.pb.h"
#include "ops/operator.h"

namespace tessera::litert {

/// The name of a value of the ONNX graph; "" where an operand is left out.
using Value = std::string;
using Values = std::vector<Value>;
using Attributes = std::map<std::string, ops::Attribute>;

/// Operators of LiteRT that ONNX does not have stand in this domain; ops/litert/family_*.cc defines them.
inline constexpr const char* kDomain = "litert";
inline constexpr const char* kMicrosoft = "com.microsoft";

/// Which kernels of LiteRT a converted model equals where they differ.
enum class Kernels : uint8_t {
  kXnnpack,    // what an Interpreter computes that is asked for nothing: XNNPACK's, LiteRT's own where it has none
  kReference,  // the reference kernels
};

/// A value and the tensor whose type and shape it has.
struct Present {
  Value value;
  const TensorInfo* like = nullptr;
};

/// Variables of a model by name, and their present values.
struct Variables {
  std::map<std::string, Present> values;
  bool fixed = false;  // inside of a body, which may read them only
};

/// An ONNX graph under construction, of one subgraph.
class Graph {
 public:
  Graph(const Model& model, size_t subgraph, Kernels kernels, onnx_proto::GraphProto& proto, std::string prefix);

  const Model& model() const { return model_; }
  const Subgraph& subgraph() const { return model_.subgraphs[index_]; }
  Kernels kernels() const { return kernels_; }
  /// The ONNX name of a tensor; its content becomes an initializer when it is first asked for.
  Value value(int32_t tensor);
  /// Inputs, all operators in order, outputs.
  void convert();

  // subgraph.cc
  /// Adds the nodes of another subgraph to this graph; returns the values of its outputs.
  Values inline_subgraph(int32_t subgraph, const Values& arguments, const std::string& prefix);
  /// A subgraph as a branch of If, which reads its operands from around it.
  onnx_proto::GraphProto branch(int32_t subgraph, const Values& arguments, const std::string& prefix);
  /// Two subgraphs as the body of Loop: the second, then whether the first wants another turn.
  onnx_proto::GraphProto loop_body(int32_t condition, int32_t body, const std::string& prefix);
  Variables& variables() { return *variables_; }
  /// Values that variables have before a run: these in the first one, what the run before has left in others. Those
  /// that no operator assigns keep their value.
  void carry_variables();
  /// What a tensor that is a state holds behind a run.
  void set_state(int32_t tensor, const Value& value) { states_[tensor] = value; }
  /// Names of variables by the tensors that are handles to them.
  std::map<int32_t, std::string>& handles() { return handles_; }

 private:
  friend class Op;
  /// A graph whose nodes stand in `proto`, for a subgraph that this one uses; `own`: inside of a body.
  Graph inner(int32_t subgraph, onnx_proto::GraphProto& proto, const std::string& prefix, bool own);
  void convert_operators();
  /// Declares outputs of a body, each made by a node.
  void add_outputs(const std::string& condition);
  void add_port(int32_t tensor, onnx_proto::ValueInfoProto& port);
  void add_initializer(const Value& name, const ops::Tensor& tensor);
  /// What a tensor that is a state holds before the run; zeros inside of a body.
  Value state(int32_t tensor);
  /// Outputs for all states.
  void carry_states_on();
  /// An input of the model that carries a state of this name, or the value before in the first run.
  Value carried(const std::string& name, const TensorInfo& like, const Value& first);
  /// The output of the model that carries a state on.
  void carry_on(const std::string& name, const TensorInfo& like, const Value& value);
  void add_port(const Value& name, const TensorInfo& like, onnx_proto::ValueInfoProto& port);
  /// A name that no other value has.
  Value fresh(const std::string& stem);

  const Model& model_;
  size_t index_;
  Kernels kernels_;
  onnx_proto::GraphProto& proto_;
  std::string prefix_;                  // of the names inside of a body
  std::vector<bool> added_;             // constants that are initializers, by tensor
  std::set<std::string> names_;         // of all values
  std::map<int32_t, Value> arguments_;  // values that stand for the subgraph's inputs
  std::map<int32_t, std::string> handles_;
  std::map<int32_t, Value> states_;  // by tensor, what they hold now
  std::set<std::string> carried_;    // variables that runs hand on
  std::shared_ptr<Variables> variables_ = std::make_shared<Variables>();
  int depth_ = 0;  // of subgraphs that use subgraphs
};

/// What the variable is called that a VAR_HANDLE is the handle of.
std::string variable_name(const OperatorInfo& handle);

/// An operator while it is converted. Each result must be given exactly once.
class Op {
 public:
  Op(Graph& graph, const OperatorInfo& info);

  // What the file says.
  const OperatorInfo& info() const { return info_; }
  BuiltinOperator code() const { return info_.code; }
  Kernels kernels() const { return graph_.kernels(); }
  template <typename T>
  T option(const Field<T>& field) const {
    return info_.options[field];
  }
  size_t input_count() const { return info_.inputs.size(); }
  size_t output_count() const { return info_.outputs.size(); }
  bool has(size_t i) const { return i < info_.inputs.size() && info_.inputs[i] >= 0; }
  /// Errors: an operand that is left out is one.
  const TensorInfo& input(size_t i) const;
  const TensorInfo& output(size_t i = 0) const;
  ops::DType dtype(size_t i) const { return to_dtype(input(i).type, "operand " + std::to_string(i)); }
  ops::DType output_dtype(size_t i = 0) const { return to_dtype(output(i).type, "result " + std::to_string(i)); }
  /// The content of a constant operand; nothing for others.
  std::optional<ops::Tensor> content(size_t i) const;
  /// The content of an operand that must be constant, as integers; an Error naming `what` otherwise.
  std::vector<int64_t> integers(size_t i, const std::string& what) const;

  // Values.
  /// An operand as it is; "" where it is left out.
  Value value(size_t i);
  /// An operand in float32: dequantised where it is quantised, cast where it is float16.
  Value real(size_t i);
  Value constant(const ops::Tensor& tensor);
  Value ints(const std::vector<int64_t>& values);  // a vector of int64
  Value scalar(ops::DType dtype, double value);    // of shape []

  // Nodes.
  Value node(const std::string& op_type, const Values& operands, const Attributes& attributes = {},
             const std::string& domain = "");
  Values nodes(const std::string& op_type, const Values& operands, const Attributes& attributes, size_t results,
               const std::string& domain = "");
  Value transpose(const Value& value, const std::vector<int64_t>& perm);
  Value reshape(const Value& value, const std::vector<int64_t>& shape);
  Value cast(const Value& value, ops::DType dtype);
  /// Images [n, h, w, c] as [n, c, h, w], and back; of rank 5 alike.
  Value channels_first(const Value& value, size_t rank = 4);
  Value channels_last(const Value& value, size_t rank = 4);
  /// The scale and zero point of a tensor as operands; per axis as vectors.
  Value scale(const TensorInfo& tensor);
  Value zero_point(const TensorInfo& tensor);
  Graph& graph() { return graph_; }
  /// A node with graphs as attributes.
  Values nodes_with_bodies(const std::string& op_type, const Values& operands,
                           std::map<std::string, onnx_proto::GraphProto> bodies, size_t results);

  // Results.
  /// Makes `value` what operand `i`, a state of the model, holds behind the run.
  void set_state(size_t i, const Value& value);
  /// Makes `value` the operator's result; the last node that made it gives it its name.
  void give(size_t i, const Value& value);
  /// The same for a float32 value: quantised where the result is quantised, cast where it is float16.
  void give_real(size_t i, const Value& value);
  /// A fused activation of a float32 value.
  Value activate(const Value& value, Activation activation);
  /// The same for a quantised result: its integers limited.
  Value limited(const Value& value, Activation activation);
  /// A function of one quantised value as a table: `function` gives the result's integer for the operand's integer.
  /// The operand has 8 or 16 bits.
  Value lookup(const Value& value, const std::function<int64_t(int64_t)>& function);
  /// Whether the operator computes on integers: its result is quantised.
  bool is_quantised() const { return output().is_quantised(); }

  /// "node 'name' (CONV_2D): message" as an Error.
  [[noreturn]] void refuse(const std::string& message, ErrorCode code = ErrorCode::kUnsupported) const;

 private:
  Graph& graph_;
  const OperatorInfo& info_;
  int first_node_;  // of the graph's nodes, those that this operator added
};

/// Smallest and largest integer that a fused activation leaves in a quantised tensor, as LiteRT limits them.
struct IntegerLimits {
  int64_t low, high;
};
IntegerLimits limits_of(const TensorInfo& tensor, Activation activation);

}  // namespace tessera::litert
