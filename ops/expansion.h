// SPDX-License-Identifier: Apache-2.0
// Operators that are defined by other operators: those of old operator sets by what they became, those that ONNX
// Runtime writes for its own memory layouts by the standard's operator between transpositions. Such an operator is
// written once, as an expansion. Inference and evaluation walk its steps, and the compiler puts the steps in the
// operator's place, so that no pass ever meets it.
#pragma once

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

/// Builds an Expansion. Steps are of domain "" and of the version given here unless they say otherwise.
class Expander {
 public:
  using Operand = Expansion::Operand;
  using Attributes = std::map<std::string, Attribute>;

  Expander(const Node& node, const std::vector<TypeInfo>& inputs, int version)
      : node_(node), inputs_(inputs), version_(version) {}

  /// Operand i of the node; nothing where it is absent.
  Operand input(size_t i) const;
  /// All operands of the node.
  std::vector<Operand> inputs() const;
  static Operand constant(Tensor value);
  /// A constant vector of 64-bit integers.
  static Operand integers(const std::vector<int64_t>& values) { return constant(Tensor::vector_i64(values)); }
  /// A constant scalar of a float type, rounded to it.
  static Operand scalar(DType dtype, double value);

  /// Adds a step and returns its results.
  std::vector<Operand> steps(const std::string& op, std::vector<Operand> operands, Attributes attributes,
                             size_t results, const std::string& domain = "", int version = 0);
  /// The same for a step of one result.
  Operand step(const std::string& op, std::vector<Operand> operands, Attributes attributes = {});
  /// The operand as another element type.
  Operand cast(Operand operand, DType to);
  Expansion finish(std::vector<Operand> results);

 private:
  const Node& node_;
  const std::vector<TypeInfo>& inputs_;
  int version_;
  Expansion expansion_;
};

/// Evaluates the steps of an expansion on the operands of the expanded node.
std::vector<Value> evaluate_expansion(const Expansion& expansion, const std::vector<Value>& inputs);

/// Axes for Transpose from [N,C,D...] to [N,D...,C], or back.
std::vector<int64_t> channel_permutation(size_t rank, bool to_channels_last);

/// Operator `op`, whose first operand and results have channels in dimension 1, on ones that have them last; attribute
/// `channels_last` is dropped. Nothing while the rank is unknown.
std::optional<Expansion> between_transpositions(const Node& node, const std::vector<TypeInfo>& inputs,
                                                const std::string& op, const std::string& domain, int version);

/// Adds an operator that `expand` defines. `unknown` infers its results while expand() gives nothing; by default they
/// have the first operand's element type.
void add_expansion(Registry& registry, const char* name, int since_version, kernel::Arity inputs, ExpandFunction expand,
                   std::set<std::string> attributes = {}, kernel::Arity outputs = kernel::kOne, const char* domain = "",
                   InferFunction unknown = {});

}  // namespace tessera::ops
