// SPDX-License-Identifier: Apache-2.0
// The operator library: for each ONNX operator (and the ONNX Runtime operators of domain com.microsoft that quantised
// models become) what it accepts, the type and shape of its results, and a scalar evaluation that is obviously right.
// Families live in one file each and register themselves through register_<family>(Registry&), called from registry.cc.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "ops/tensor.h"

namespace tessera::ops {

/// Domains of operators beside the standard's own, which is empty.
inline constexpr const char* kMicrosoft = "com.microsoft";
inline constexpr const char* kMl = "ai.onnx.ml";
inline constexpr const char* kLitert = "litert";

/// A subgraph attribute (If, Loop, Scan, SequenceMap, BeamSearch); what it is belongs to the executor, the library only
/// calls it.
struct Subgraph {
  virtual ~Subgraph() = default;
  virtual size_t input_count() const = 0;
  virtual size_t output_count() const = 0;
  /// What is known of the inputs' types: what the body declares, or what it was last inferred with.
  virtual std::vector<TypeInfo> input_types() const = 0;
  /// Runs the body; outer values are captured by the executor.
  virtual std::vector<Value> run(const std::vector<Value>& inputs) const = 0;
  /// Types of the results for given types of the inputs.
  virtual std::vector<TypeInfo> infer(const std::vector<TypeInfo>& inputs) const = 0;
};

using Attribute = std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>,
                               std::vector<std::string>, Tensor, std::shared_ptr<const Subgraph>>;

/// One operator application without its operands.
struct Node {
  std::string domain;  // "" for ai.onnx
  std::string op_type;
  int version = 0;   // opset of the domain in the model
  std::string name;  // for messages
  std::map<std::string, Attribute> attributes;
  size_t output_count = 1;

  bool has(const std::string& attribute) const { return attributes.count(attribute) != 0; }
  /// Value of an attribute or the default; a value of another type throws Error kInvalidModel naming node and
  /// attribute.
  int64_t get_int(const std::string& attribute, int64_t fallback) const;
  float get_float(const std::string& attribute, float fallback) const;
  std::string get_string(const std::string& attribute, const std::string& fallback) const;
  std::vector<int64_t> get_ints(const std::string& attribute, const std::vector<int64_t>& fallback = {}) const;
  std::vector<float> get_floats(const std::string& attribute, const std::vector<float>& fallback = {}) const;
  std::vector<std::string> get_strings(const std::string& attribute) const;
  const Tensor* get_tensor(const std::string& attribute) const;                      // nullptr if absent
  std::shared_ptr<const Subgraph> get_subgraph(const std::string& attribute) const;  // throws if absent
  /// Throws Error{code, "node 'name' (Op): message"}.
  [[noreturn]] void fail(ErrorCode code, const std::string& message) const;
};

struct InferContext {
  const Node& node;
  const std::vector<TypeInfo>& inputs;  // trailing absent inputs may be missing: use input()
  std::vector<TypeInfo>& outputs;       // sized node.output_count; fill

  bool has(size_t i) const { return i < inputs.size() && inputs[i].present; }
  const TypeInfo& input(size_t i) const;  // throws Error kInvalidModel when absent
};

struct EvalContext {
  const Node& node;
  const std::vector<Value>& inputs;
  std::vector<Value>& outputs;  // sized node.output_count; fill

  bool has(size_t i) const { return i < inputs.size() && !inputs[i].is_none(); }
  const Tensor& input(size_t i) const;  // throws Error kInvalidModel when absent or no tensor
};

/// Inference must accept unknown ranks and dimensions (then its results are as unknown as needed) and must check what
/// it can: counts, element types, ranks, broadcast, axes; a violation throws Error kInvalidModel through node.fail().
using InferFunction = std::function<void(InferContext&)>;
/// Evaluation: the plain meaning, scalar loops, fp32 rounded once for each operation, no reordering.
using EvalFunction = std::function<void(EvalContext&)>;

/// An operator as a small graph of other operators, in order: what it means, and what the compiler makes of it.
struct Expansion {
  /// What a step reads: an operand of the expanded node, a result of an earlier step, a constant, or nothing.
  struct Operand {
    enum class Kind : uint8_t { kNone, kInput, kStep, kConstant } kind = Kind::kNone;
    size_t index = 0;   // of the operand, or of the step
    size_t result = 0;  // of that step
    Tensor constant;
  };
  struct Step {
    Node node;
    std::vector<Operand> operands;
  };
  std::vector<Step> steps;
  std::vector<Operand> results;  // one for each result of the expanded node
};

/// The expansion of a node for operands of these types; nothing while a rank or a content that it depends on is
/// unknown. It checks what the steps do not and throws through node.fail().
using ExpandFunction = std::function<std::optional<Expansion>(const Node&, const std::vector<TypeInfo>&)>;

struct OperatorDef {
  std::string domain;
  std::string name;
  int since_version = 1;  // first opset this entry serves; the entry with the greatest since_version <= opset is used
  int min_inputs = 0, max_inputs = 0;    // max -1: any number
  int min_outputs = 1, max_outputs = 1;  // max -1: any number
  bool deterministic = true;             // false: random generators; never folded or merged
  InferFunction infer;
  EvalFunction evaluate;
  int work_bytes = 1;  // at least so many for each element of a result, where evaluate computes wider than it leaves
  std::set<std::string> attributes = {};  // known attribute names; empty: not checked
  bool checks_itself = false;             // evaluate runs infer on its operands; otherwise the library does so first
  ExpandFunction expand = {};             // set for operators that are defined by others (expansion.h)
};

class Registry {
 public:
  void add(OperatorDef def);
  /// nullptr if unknown.
  const OperatorDef* find(const std::string& domain, const std::string& name, int version) const;
  /// Names close to `name`, for messages.
  std::vector<std::string> similar(const std::string& name) const;
  std::vector<std::string> names() const;  // "domain::Name" sorted

 private:
  std::map<std::pair<std::string, std::string>, std::vector<OperatorDef>> defs_;
};

/// The process-wide registry with every family registered (thread-safe initialisation, immutable afterwards).
const Registry& registry();

/// Finds the definition, checks operand counts and attributes. Throws Error kUnsupported for an unknown operator.
const OperatorDef& lookup(const Node& node, size_t input_count);
/// Shape and type inference; when all inputs are constants and small enough the results carry `constant` too if `fold`
/// is set.
std::vector<TypeInfo> infer(const Node& node, const std::vector<TypeInfo>& inputs, bool fold = false);
std::vector<Value> evaluate(const Node& node, const std::vector<Value>& inputs);

// Shared by families (broadcast.cc).
/// Multidirectional broadcast of ONNX; throws through node.fail() naming both shapes.
Shape broadcast_shapes(const Node& node, const std::vector<Shape>& shapes);
/// The same on types with unknown ranks and dimensions.
TypeInfo broadcast_types(const Node& node, DType result, const std::vector<const TypeInfo*>& inputs);
/// Element strides of `shape` seen as `broadcast` (0 where broadcast).
std::vector<int64_t> broadcast_strides(const Shape& shape, const Shape& broadcast);
/// Normalises a possibly negative axis; throws through node.fail().
int64_t normalise_axis(const Node& node, int64_t axis, int64_t rank);
/// Calls f(flat_output_index, index_vector) over a shape in row-major order.
void for_each_index(const Shape& shape, const std::function<void(int64_t, const std::vector<int64_t>&)>& f);

}  // namespace tessera::ops
