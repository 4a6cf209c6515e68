// SPDX-License-Identifier: Apache-2.0
// Operators of domain com.microsoft of decoders whose hidden state is several streams side by side, and of what gates
// them, as expansions into the standard's operators: BranchwiseRMSNorm, HyperConnectionPreMix, HyperConnectionPostMix,
// EngramGate and ScaledSiLU. They compute in fp32 and round once at the result, ScaledSiLU after each step.
#include <cmath>

#include "ops/expansion.h"

namespace tessera::ops {

namespace {

namespace streams {

using Operand = Expander::Operand;
using Types = std::vector<TypeInfo>;

constexpr int kVersion = 18;

Operand real(Expander& e, size_t i) { return e.cast(e.input(i), DType::kFloat); }

Operand real_scalar(double value) { return Expander::scalar(DType::kFloat, value); }

Operand unsqueezed(Expander& e, const Operand& x, int64_t axis) {
  return e.step("Unsqueeze", {x, Expander::integers({axis})});
}

Operand sum_along(Expander& e, const Operand& x, int64_t axis, bool keep) {
  return e.step("ReduceSum", {x, Expander::integers({axis})}, {{"keepdims", int64_t{keep ? 1 : 0}}});
}

/// The streams of operand 0: [..,C,H], or [..,C*H] with attribute `num_branches`.
struct Streams {
  int64_t count = 0, width = 0;
  size_t rank = 0;  // of the operand
  bool flat = false;
};

/// Nothing while an extent is unknown.
std::optional<Streams> streams_of(const Node& node, const TypeInfo& x) {
  kernel::require_type(node, x.dtype, kernel::kFloats, "the streams");
  if (!x.ranked) return std::nullopt;
  Streams s;
  s.rank = x.shape.size();
  const int64_t branches = node.get_int("num_branches", 0);
  s.flat = branches > 0;
  if (branches < 0 || s.rank < (s.flat ? 1U : 2U))
    node.fail(ErrorCode::kInvalidModel, "streams " + to_string(x.shape) + " do not hold branches and features");
  const int64_t last = x.shape.back();
  s.count = s.flat ? branches : x.shape[s.rank - 2];
  if (last < 0 || s.count < 0) return std::nullopt;
  if (s.flat && last % branches != 0)
    node.fail(ErrorCode::kInvalidModel,
              std::to_string(last) + " features do not make " + std::to_string(branches) + " branches");
  s.width = s.flat ? last / branches : last;
  return s;
}

/// A shape for Reshape that keeps the first `kept` axes and ends in `last`.
Operand ending(size_t kept, std::initializer_list<int64_t> last) {
  std::vector<int64_t> shape(kept, 0);
  shape.insert(shape.end(), last);
  return Expander::integers(shape);
}

/// Operand i as [..,C,H] in fp32.
Operand grouped(Expander& e, const Streams& s, size_t i) {
  const Operand x = real(e, i);
  return s.flat ? e.step("Reshape", {x, ending(s.rank - 1, {s.count, s.width})}) : x;
}

/// Factors of branches, operand i, as [..,C,1] or [..,C,H] in fp32. Nothing while their rank or width is unknown.
std::optional<Operand> factors(Expander& e, const Node& node, const Streams& s, const Types& inputs, size_t i) {
  const TypeInfo& given = inputs[i];
  kernel::require_type(node, given.dtype, kernel::kFloats, "the factors");
  if (!given.ranked || given.shape.empty() || given.shape.back() < 0) return std::nullopt;
  const size_t whole = s.flat ? s.rank + 1 : s.rank, rank = given.shape.size();
  const Operand x = real(e, i);
  if (rank == whole) return x;
  if (rank + 1 != whole || (given.shape.back() != s.count && given.shape.back() != s.count * s.width))
    node.fail(ErrorCode::kInvalidModel, "factors " + to_string(given.shape) + " do not fit " + std::to_string(s.count) +
                                            " branches of " + std::to_string(s.width) + " features");
  return e.step("Reshape", {x, ending(rank - 1, {s.count, given.shape.back() / s.count})});
}

/// x over the root of the mean of its squares along the last axis.
Operand over_its_root(Expander& e, const Operand& x, float epsilon) {
  const Operand squares = e.step("Mul", {x, x});
  const Operand mean = e.step("ReduceMean", {squares, Expander::integers({-1})}, {{"keepdims", int64_t{1}}});
  return e.step("Div", {x, e.step("Sqrt", {e.step("Add", {mean, real_scalar(epsilon)})})});
}

/// Inputs: streams, scale [C*H], [C,H] or [H].
std::optional<Expansion> expand_norm(const Node& node, const Types& inputs) {
  const std::optional<Streams> s = streams_of(node, inputs[0]);
  if (!s) return std::nullopt;
  Expander e(node, inputs, kVersion);
  Operand y = over_its_root(e, grouped(e, *s, 0), node.get_float("epsilon", 1e-5f));
  if (inputs.size() > 1 && inputs[1].present) {
    if (!inputs[1].is_static()) return std::nullopt;
    const int64_t size = element_count(inputs[1].shape);
    if (size != s->width && size != s->count * s->width)
      node.fail(ErrorCode::kInvalidModel, "scale " + to_string(inputs[1].shape) + " does not fit " +
                                              std::to_string(s->count) + " branches of " + std::to_string(s->width) +
                                              " features");
    y = e.step("Mul", {y, e.step("Reshape", {real(e, 1), Expander::integers({size / s->width, s->width})})});
  }
  if (s->flat) y = e.step("Reshape", {y, ending(s->rank - 1, {s->count * s->width})});
  return e.finish({e.cast(y, inputs[0].dtype)});
}

/// The sum of the branches, each times its factor, operand 1.
std::optional<Expansion> expand_pre_mix(const Node& node, const Types& inputs) {
  const std::optional<Streams> s = streams_of(node, inputs[0]);
  if (!s) return std::nullopt;
  Expander e(node, inputs, kVersion);
  const std::optional<Operand> factor = factors(e, node, *s, inputs, 1);
  if (!factor) return std::nullopt;
  Operand y = sum_along(e, e.step("Mul", {grouped(e, *s, 0), *factor}), -2, false);
  y = e.step("Mul", {y, real_scalar(node.get_float("reduction_scale", 1.0f))});
  return e.finish({e.cast(y, inputs[0].dtype)});
}

/// Streams mixed by a matrix [..,C,C], operand 3, plus the output of a block [..,H], operand 1, times the factors of
/// operand 2.
std::optional<Expansion> expand_post_mix(const Node& node, const Types& inputs) {
  const std::optional<Streams> s = streams_of(node, inputs[0]);
  if (!s) return std::nullopt;
  Expander e(node, inputs, kVersion);
  const std::optional<Operand> factor = factors(e, node, *s, inputs, 2);
  if (!factor) return std::nullopt;
  Operand mixed = grouped(e, *s, 0);
  if (inputs.size() > 3 && inputs[3].present) {
    const size_t rank = s->flat ? s->rank + 1 : s->rank;
    std::vector<int64_t> perm(rank);
    for (size_t d = 0; d < rank; ++d) perm[d] = static_cast<int64_t>(d);
    std::swap(perm[rank - 1], perm[rank - 2]);
    mixed = e.step("MatMul", {e.step("Transpose", {real(e, 3)}, {{"perm", perm}}), mixed});
  }
  Operand y = e.step("Add", {mixed, e.step("Mul", {*factor, unsqueezed(e, real(e, 1), -2)})});
  if (s->flat) y = e.step("Reshape", {y, ending(s->rank - 1, {s->count * s->width})});
  return e.finish({e.cast(y, inputs[0].dtype)});
}

/// gate = sigmoid(sign(d) * sqrt(max(|d|, 1e-6))) where d is the product of the normalised rows of key and query
/// [B,S,C,H] over the root of H. Results: gate * value [B,S,H], and that normalised. Inputs: key, query, value, the
/// scales [C,H] of the three norms.
std::optional<Expansion> expand_engram(const Node& node, const Types& inputs) {
  kernel::require_type(node, inputs[0].dtype, kernel::kFloats, "the keys");
  kernel::require_rank(node, inputs[0], 4, "the keys");
  if (!inputs[0].ranked || inputs[0].shape[3] < 1) return std::nullopt;
  const float epsilon = node.get_float("epsilon", 1e-5f);
  Expander e(node, inputs, kVersion);
  const auto norm = [&](const Operand& x, size_t scale) {
    return e.step("Mul", {over_its_root(e, x, epsilon), real(e, scale)});
  };
  Operand dot = sum_along(e, e.step("Mul", {norm(real(e, 0), 3), norm(real(e, 1), 4)}), -1, true);
  dot = e.step("Mul", {dot, real_scalar(1.0 / std::sqrt(static_cast<double>(inputs[0].shape[3])))});
  const Operand size = e.step("Sqrt", {e.step("Max", {e.step("Abs", {dot}), real_scalar(1e-6)})});
  const Operand gate = e.step("Sigmoid", {e.step("Mul", {e.step("Sign", {dot}), size})});
  const Operand y = e.step("Mul", {gate, unsqueezed(e, real(e, 2), 2)});
  std::vector<Operand> results = {e.cast(y, inputs[0].dtype)};
  if (node.output_count > 1) {
    if (inputs.size() < 6 || !inputs[5].present)
      node.fail(ErrorCode::kInvalidModel, "the result gated_value_normed needs input conv_norm_scale");
    results.push_back(e.cast(norm(y, 5), inputs[0].dtype));
  }
  return e.finish(std::move(results));
}

/// z = scale * x, then z * sigmoid(z). Operand 1 takes the place of attribute alpha.
std::optional<Expansion> expand_silu(const Node& node, const Types& inputs) {
  const DType type = inputs[0].dtype;
  kernel::require_type(node, type, kernel::kFloats, "the input");
  Expander e(node, inputs, kVersion);
  Operand scale = real_scalar(node.get_float("alpha", 1.0f));
  if (inputs.size() > 1 && inputs[1].present) scale = e.step("Reshape", {real(e, 1), Expander::integers({})});
  const Operand z = e.cast(e.step("Mul", {real(e, 0), scale}), type);
  return e.finish({e.step("Mul", {z, e.step("Sigmoid", {z})})});
}

}  // namespace streams

}  // namespace

void register_streams(Registry& registry) {
  const auto add = [&](const char* name, kernel::Arity inputs, ExpandFunction expand, std::set<std::string> attributes,
                       kernel::Arity outputs = kernel::kOne) {
    add_expansion(registry, name, 1, inputs, std::move(expand), std::move(attributes), outputs, kMicrosoft);
  };
  add("BranchwiseRMSNorm", {1, 2}, streams::expand_norm, {"epsilon", "num_branches"});
  add("HyperConnectionPreMix", {2, 2}, streams::expand_pre_mix, {"num_branches", "reduction_scale"});
  add("HyperConnectionPostMix", {3, 4}, streams::expand_post_mix, {"num_branches"});
  add("EngramGate", {5, 6}, streams::expand_engram, {"epsilon"}, {1, 2});
  add("ScaledSiLU", {1, 2}, streams::expand_silu, {"alpha"});
}

}  // namespace tessera::ops
