// SPDX-License-Identifier: Apache-2.0
// Operators of domain com.microsoft that decoders with linear attention and with positions of several axes consist of,
// as expansions: LinearAttention and CausalConvWithState into the standard's operators of opset 27, their gates and
// norms into elementary ones, MRotaryEmbedding into RotaryEmbedding with tables that are gathered first.
#include <algorithm>

#include "ops/expansion.h"

namespace tessera::ops {

namespace {

namespace mixers {

using Operand = Expander::Operand;
using Types = std::vector<TypeInfo>;

constexpr int kVersion = 24;

/// Refuses an attribute that asks for a form which ONNX Runtime's CPU provider does not have, or that is not served.
void require_default(const Node& node, const char* name, int64_t value = 0) {
  const int64_t given = node.get_int(name, value);
  if (given != value)
    node.fail(ErrorCode::kUnsupported, "attribute '" + std::string(name) + "' = " + std::to_string(given) +
                                           " is not served; " + std::to_string(value) + " is");
}

int64_t extent(const TypeInfo& type, size_t axis) {
  return type.ranked && axis < type.shape.size() ? type.shape[axis] : -1;
}

/// Inputs: query [B,T,Q*D], key [B,T,K*D], value [B,T,K*V], past_state, decay, beta. With fewer query heads than key
/// heads each of them is read by several of these.
std::optional<Expansion> expand_linear_attention(const Node& node, const Types& inputs) {
  require_default(node, "state_window");
  const int64_t queries = node.get_int("q_num_heads", 0), keys = node.get_int("kv_num_heads", 0);
  Expander e(node, inputs, kVersion);
  std::vector<Operand> operands = e.inputs();
  Expander::Attributes attributes = node.attributes;
  attributes.erase("state_window");
  if (queries > 0 && keys > queries && keys % queries == 0) {
    const int64_t width = extent(inputs[0], 2);
    if (width < 0) return std::nullopt;
    if (width % queries != 0)
      node.fail(ErrorCode::kInvalidModel,
                "query " + to_string(inputs[0].shape) + " does not divide into " + std::to_string(queries) + " heads");
    const Operand parts = e.step("Reshape", {operands[0], Expander::integers({0, 0, queries, 1, width / queries})});
    const Operand all = e.step("Expand", {parts, Expander::integers({1, 1, 1, keys / queries, 1})});
    operands[0] = e.step("Reshape", {all, Expander::integers({0, 0, keys / queries * width})});
    attributes["q_num_heads"] = keys;
  }
  return e.finish(e.steps("LinearAttention", operands, attributes, node.output_count, "", 27));
}

/// Weights [C,1,K] whose taps stand `dilation` apart, the places between them zero.
Operand dilated(Expander& e, const Operand& weights, int64_t channels, int64_t taps, int64_t dilation) {
  Operand w = e.step("Reshape", {weights, Expander::integers({channels, 1, taps, 1})});
  w = e.step("Pad", {w, Expander::integers({0, 0, 0, 0, 0, 0, 0, dilation - 1})});
  w = e.step("Reshape", {w, Expander::integers({channels, 1, taps * dilation})});
  return e.step("Slice",
                {w, Expander::integers({0}), Expander::integers({(taps - 1) * dilation + 1}), Expander::integers({2})});
}

/// Inputs: x [B,C,L], weights [C,1,K], bias, past_state [B,C,(K-1)*dilation]; channels last with `channels_last`.
std::optional<Expansion> expand_causal_conv(const Node& node, const Types& inputs) {
  require_default(node, "ndim", 1);
  for (const char* name : {"state_window", "state_update_capacity", "state_length", "input_channel_offset"})
    require_default(node, name);
  require_default(node, "state_channels_last", -1);
  const int64_t channels = extent(inputs[1], 0), taps = extent(inputs[1], 2), dilation = node.get_int("dilation", 1);
  const bool last = node.get_int("channels_last", 0) != 0;
  if (channels < 0 || taps < 0 || !inputs[0].ranked) return std::nullopt;
  kernel::require_rank(node, inputs[0], 3, "the input");
  if (const int64_t given = node.get_int("input_channels", 0); given != 0 && given != channels)
    node.fail(ErrorCode::kUnsupported, "a part of the channels, attribute 'input_channels', is not served");
  if (dilation < 1 || dilation > (int64_t{1} << 20) || taps < 1)
    node.fail(ErrorCode::kInvalidModel, "dilation and the kernel's length must be 1 or more");
  Expander e(node, inputs, kVersion);
  const Expander::Attributes swap = {{"perm", std::vector<int64_t>{0, 2, 1}}};
  std::vector<Operand> operands = e.inputs();
  for (size_t i : {0, 3})
    if (last && i < inputs.size() && inputs[i].present) operands[i] = e.step("Transpose", {operands[i]}, swap);
  if (dilation > 1) operands[1] = dilated(e, operands[1], channels, taps, dilation);
  const Expander::Attributes attributes = {{"activation", node.get_string("activation", "none")}};
  std::vector<Operand> results = e.steps("CausalConvWithState", operands, attributes, node.output_count, "", 27);
  for (Operand& result : results)
    if (last) result = e.step("Transpose", {result}, swap);
  return e.finish(std::move(results));
}

/// Inputs: x, positions [3,B,S] (time, height, width), tables of cosines and sines [M,H/2]. Each column of a table is
/// read at the position of the axis that it belongs to. What is turned is multiplied by the attribute `scale`.
std::optional<Expansion> expand_rotary(const Node& node, const Types& inputs) {
  const std::vector<int64_t> sections = node.get_ints("mrope_section");
  const int64_t half = extent(inputs[2], 1), layout = node.get_int("mrope_layout", 0);
  const float scale = node.get_float("scale", 1.0f);
  if (half < 0 || !inputs[0].ranked) return std::nullopt;
  if (sections.size() != 3 || *std::min_element(sections.begin(), sections.end()) < 0 ||
      sections[0] + sections[1] + sections[2] != half)
    node.fail(ErrorCode::kInvalidModel, "mrope_section must be three numbers whose sum is the " + std::to_string(half) +
                                            " columns of the tables");
  if (layout != 0 && layout != 1)
    node.fail(ErrorCode::kInvalidModel, "attribute 'mrope_layout' = " + std::to_string(layout) + " is neither 0 nor 1");
  kernel::require_rank(node, inputs[1], 3, "the position ids");
  const auto belongs = [&](int64_t axis) {
    Tensor columns(DType::kBool, {half});
    for (int64_t i = 0; i < half; ++i) {
      const int64_t start = axis == 1 ? sections[0] : sections[0] + sections[1];
      const bool in = layout == 0 ? i >= start && i < start + sections[static_cast<size_t>(axis)]
                                  : i % 3 == axis && i < 3 * sections[static_cast<size_t>(axis)];
      columns.as_mutable<bool>()[static_cast<size_t>(i)] = in;
    }
    return Expander::constant(std::move(columns));
  };
  Expander e(node, inputs, kVersion);
  const auto gathered = [&](size_t table) {
    std::vector<Operand> rows;
    for (int64_t axis = 0; axis < 3; ++axis) {
      const Operand positions =
          e.step("Gather", {e.input(1), Expander::constant(Tensor::scalar_i64(axis))}, {{"axis", int64_t{0}}});
      rows.push_back(e.step("Gather", {e.input(table), positions}, {{"axis", int64_t{0}}}));
    }
    const Operand height = e.step("Where", {belongs(1), rows[1], rows[0]});
    const Operand all = e.step("Where", {belongs(2), rows[2], height});
    if (scale == 1.0f) return all;
    return e.step("Mul", {all, Expander::constant(kernel::narrow(Tensor::scalar_f32(scale), inputs[table].dtype))});
  };
  Expander::Attributes attributes = {{"interleaved", node.get_int("interleaved", 0)}};
  const int64_t rotated = node.get_int("rotary_embedding_dim", 0);
  attributes["rotary_embedding_dim"] = rotated;
  if (inputs[0].shape.size() == 3) {
    int64_t heads = node.get_int("num_heads", 0);
    if (heads == 0 && extent(inputs[0], 2) < 0) return std::nullopt;
    if (heads == 0) heads = half == 0 ? 0 : extent(inputs[0], 2) / (2 * half);
    attributes["num_heads"] = heads;
  }
  return e.finish({e.step("RotaryEmbedding", {e.input(0), gathered(2), gathered(3)}, attributes)});
}

/// decay = decay_scale * Softplus(a + dt_bias) in fp32, beta = Sigmoid(b). Inputs: a, dt_bias, decay_scale, b.
std::optional<Expansion> expand_gate(const Node& node, const Types& inputs) {
  Expander e(node, inputs, kVersion);
  const DType type = inputs[0].dtype;
  const Operand a = e.cast(e.input(0), DType::kFloat);
  const Operand decay = e.step("Mul", {e.input(2), e.step("Softplus", {e.step("Add", {a, e.input(1)})})});
  std::vector<Operand> results = {e.cast(decay, type)};
  if (node.output_count > 1) {
    if (inputs.size() < 4 || !inputs[3].present) node.fail(ErrorCode::kInvalidModel, "the result beta needs input b");
    results.push_back(e.step("Sigmoid", {e.input(3)}));
  }
  return e.finish(std::move(results));
}

/// X + Y * gate.
std::optional<Expansion> expand_gated_add(const Node& node, const Types& inputs) {
  if (inputs.size() > 3 && inputs[3].present) node.fail(ErrorCode::kUnsupported, "gate_weight is not served");
  Expander e(node, inputs, kVersion);
  return e.finish({e.step("Add", {e.input(0), e.step("Mul", {e.input(1), e.input(2)})})});
}

/// The normalised groups of as many elements as `scale` has, times the activated gate, in fp32.
std::optional<Expansion> expand_gated_norm(const Node& node, const Types& inputs) {
  const std::string activation = node.get_string("activation", "silu");
  if (activation != "silu" && activation != "swish" && activation != "sigmoid")
    node.fail(ErrorCode::kInvalidModel, "activation '" + activation + "' is none of silu, swish, sigmoid");
  const int64_t width = extent(inputs[1], 0);
  if (width < 0) return std::nullopt;
  Expander e(node, inputs, kVersion);
  const auto wide = [&](size_t i) { return e.cast(e.input(i), DType::kFloat); };
  const Operand groups = e.step("Reshape", {wide(0), Expander::integers({-1, width})});
  const Operand norm = e.step("RMSNormalization", {groups, wide(1)}, {{"epsilon", node.get_float("epsilon", 1e-5f)}});
  const Operand gate = wide(2);
  Operand factor = e.step("Sigmoid", {gate});
  if (activation != "sigmoid") factor = e.step("Mul", {gate, factor});
  const Operand y = e.step("Mul", {e.step("Reshape", {norm, e.step("Shape", {e.input(0)})}), factor});
  return e.finish({e.cast(y, inputs[0].dtype)});
}

}  // namespace mixers

}  // namespace

void register_mixers(Registry& registry) {
  const auto add = [&](const char* name, kernel::Arity inputs, ExpandFunction expand, std::set<std::string> attributes,
                       kernel::Arity outputs = kernel::kOne) {
    add_expansion(registry, name, 1, inputs, std::move(expand), std::move(attributes), outputs, kMicrosoft);
  };
  add("LinearAttention", {3, 6}, mixers::expand_linear_attention,
      {"chunk_size", "kv_num_heads", "q_num_heads", "scale", "state_window", "update_rule"}, {1, 2});
  add("CausalConvWithState", {2, 4}, mixers::expand_causal_conv,
      {"activation", "channels_last", "dilation", "input_channel_offset", "input_channels", "ndim",
       "state_channels_last", "state_length", "state_update_capacity", "state_window"},
      {1, 3});
  add("MRotaryEmbedding", {4, 4}, mixers::expand_rotary,
      {"interleaved", "is_packed_batching", "mrope_layout", "mrope_section", "num_heads", "rotary_embedding_dim",
       "scale"});
  add("LinearAttentionGate", {3, 4}, mixers::expand_gate, {}, {1, 2});
  add("GatedAdd", {3, 4}, mixers::expand_gated_add, {});
  add("GatedRMSNorm", {3, 3}, mixers::expand_gated_norm, {"activation", "epsilon"});
}

}  // namespace tessera::ops
