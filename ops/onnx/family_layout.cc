// SPDX-License-Identifier: Apache-2.0
// Operators that ONNX Runtime writes for its own memory layouts, as expansions into the standard's operators.
//
// Channels last: com.microsoft QLinearConv (with channels_last) and NhwcMaxPool, and the domain com.ms.internal.nhwc,
// stand between two transpositions; weights keep the standard's layout.
//
// NCHWc: the domain com.microsoft.nchwc keeps channels in blocks of 8 or 16, filled up with zeros. Only the operators
// of that domain and elementwise ones see such tensors, so here they are plain [N,C,H,W] with C filled up to the block:
// ReorderInput appends channels, ReorderOutput removes them. The weights of Conv lie in blocks in the file and are put
// back in order. The importer tells the block in the attribute `block`.
#include <algorithm>

#include "ops/expansion.h"

namespace tessera::ops {

namespace {

using Operand = Expander::Operand;
using Types = std::vector<TypeInfo>;

constexpr int kLayoutVersion = 13;
constexpr const char* kNhwc = "com.ms.internal.nhwc";
constexpr const char* kNchwc = "com.microsoft.nchwc";

const std::set<std::string> kWindow = {"auto_pad", "dilations", "kernel_shape", "pads", "strides"};

std::set<std::string> with(std::set<std::string> names, const std::set<std::string>& more) {
  names.insert(more.begin(), more.end());
  return names;
}

// ----------------------------------------------------------------------------------------------------- channels last

/// The standard's operator `op` of `version` between transpositions of its first operand and its results.
ExpandFunction channels_last(const std::string& op, int version) {
  return [op, version](const Node& node, const Types& inputs) -> std::optional<Expansion> {
    if (op == "QLinearConv" && node.domain == kMicrosoft && node.get_int("channels_last", 0) == 0) {
      Expander e(node, inputs, kLayoutVersion);
      Expander::Attributes attributes = node.attributes;
      attributes.erase("channels_last");
      return e.finish(e.steps(op, e.inputs(), std::move(attributes), node.output_count, "", version));
    }
    return between_transpositions(node, inputs, op, "", version);
  };
}

/// The element type of QLinearConv's result is that of its zero point.
void infer_unknown_qlinear_conv(InferContext& c) { c.outputs[0] = TypeInfo::unranked(c.input(7).dtype); }

void add_channels_last(Registry& registry) {
  add_expansion(registry, "QLinearConv", 1, {8, 9}, channels_last("QLinearConv", 10),
                with(kWindow, {"channels_last", "group"}), kernel::kOne, kMicrosoft, infer_unknown_qlinear_conv);
  add_expansion(registry, "NhwcMaxPool", 1, kernel::kOne, channels_last("MaxPool", 12), with(kWindow, {"ceil_mode"}),
                kernel::kOne, kMicrosoft);
  struct Entry {
    const char* name;
    int version;
    kernel::Arity inputs;
  };
  const Entry entries[] = {{"AveragePool", 11, {1, 1}},
                           {"Conv", 11, {2, 3}},
                           {"ConvTranspose", 11, {2, 3}},
                           {"DepthToSpace", 13, {1, 1}},
                           {"GlobalAveragePool", 1, {1, 1}},
                           {"GlobalLpPool", 2, {1, 1}},
                           {"GlobalMaxPool", 1, {1, 1}},
                           {"InstanceNormalization", 6, {3, 3}},
                           {"LRN", 13, {1, 1}},
                           {"LpPool", 11, {1, 1}},
                           {"MaxPool", 12, {1, 1}},
                           {"SpaceToDepth", 13, {1, 1}}};
  for (const Entry& entry : entries)
    add_expansion(registry, entry.name, 1, entry.inputs, channels_last(entry.name, entry.version), {}, kernel::kOne,
                  kNhwc);
  add_expansion(registry, "QLinearConv", 1, {8, 9}, channels_last("QLinearConv", 10), {}, kernel::kOne, kNhwc,
                infer_unknown_qlinear_conv);
}

// ------------------------------------------------------------------------------------------------------------- NCHWc

int64_t block_of(const Node& node) {
  const int64_t block = node.get_int("block", 16);
  if (block < 1 || block > 64) node.fail(ErrorCode::kInvalidModel, "a block of " + std::to_string(block) + " channels");
  return block;
}

/// Weights in blocks back to [O,I,kh,kw]. With blocks of input channels the file holds [O/b,I/b,kh,kw,b of I,b of O],
/// else [O/b,I,kh,kw,b of O].
Operand ordered_weights(Expander& e, const Node& node, const TypeInfo& weights, int64_t groups) {
  const Shape& shape = weights.shape;
  const int64_t block = block_of(node);
  if (shape[0] % block != 0)
    node.fail(ErrorCode::kInvalidModel,
              "weights " + to_string(shape) + " are not in blocks of " + std::to_string(block) + " channels");
  const bool blocked = groups > 1 ? !(shape[1] == 1 && groups == shape[0]) : shape[1] >= block;
  if (blocked && shape[1] % block != 0)
    node.fail(ErrorCode::kInvalidModel,
              "input channels of weights " + to_string(shape) + " are not in blocks of " + std::to_string(block));
  std::vector<int64_t> parts = {shape[0] / block, blocked ? shape[1] / block : shape[1], shape[2], shape[3]};
  if (blocked) parts.push_back(block);
  parts.push_back(block);
  const std::vector<int64_t> order =
      blocked ? std::vector<int64_t>{0, 5, 1, 4, 2, 3} : std::vector<int64_t>{0, 4, 1, 2, 3};
  const Operand split = e.step("Reshape", {e.input(1), Expander::integers(parts)});
  return e.step("Reshape", {e.step("Transpose", {split}, {{"perm", order}}), Expander::integers(shape)});
}

/// Operators that make a node's attribute `activation`; FusedConv has the same names and defaults.
Operand activated(Expander& e, const Node& node, Operand y) {
  const std::string name = node.get_string("activation", "");
  const std::vector<float> given = node.get_floats("activation_params");
  const auto parameter = [&](size_t i, float fallback) { return i < given.size() ? given[i] : fallback; };
  if (name.empty()) return y;
  if (name == "Relu" || name == "Tanh" || name == "Sigmoid") return e.step(name, {y});
  if (name == "LeakyRelu") return e.step(name, {y}, {{"alpha", parameter(0, 0.01f)}});
  if (name == "HardSigmoid") return e.step(name, {y}, {{"alpha", parameter(0, 0.2f)}, {"beta", parameter(1, 0.5f)}});
  if (name == "HardSwish") return e.steps(name, {y}, {}, 1, "", 14)[0];
  if (name == "Clip" && given.size() == 2)
    return e.steps(name, {y}, {{"min", given[0]}, {"max", given[1]}}, 1, "", 6)[0];
  node.fail(ErrorCode::kUnsupported, "activation '" + name + "' is not known");
}

/// Inputs: X, W in blocks, B, an addend of the result's shape.
std::optional<Expansion> expand_nchwc_conv(const Node& node, const Types& inputs) {
  if (inputs.size() < 2) node.fail(ErrorCode::kInvalidModel, "weights are missing");
  kernel::require_rank(node, inputs[1], 4, "W");
  if (!inputs[1].is_static()) return std::nullopt;
  Expander e(node, inputs, kLayoutVersion);
  Expander::Attributes attributes = node.attributes;
  for (const char* name : {"activation", "activation_params", "block"}) attributes.erase(name);
  const Operand weights = ordered_weights(e, node, inputs[1], node.get_int("group", 1));
  Operand y = e.steps("Conv", {e.input(0), weights, e.input(2)}, std::move(attributes), 1, "", 11)[0];
  if (inputs.size() > 3 && inputs[3].present) y = e.step("Add", {y, e.input(3)});
  return e.finish({activated(e, node, y)});
}

/// A pool is that of the standard: blocks do not meet.
ExpandFunction nchwc_pool(const std::string& op, int version) {
  return [op, version](const Node& node, const Types& inputs) -> std::optional<Expansion> {
    Expander e(node, inputs, kLayoutVersion);
    Expander::Attributes attributes = node.attributes;
    attributes.erase("block");
    return e.finish(e.steps(op, e.inputs(), std::move(attributes), node.output_count, "", version));
  };
}

std::optional<Expansion> expand_reorder_input(const Node& node, const Types& inputs) {
  if (inputs.empty()) node.fail(ErrorCode::kInvalidModel, "input 0 is missing");
  const TypeInfo& x = inputs[0];
  kernel::require_rank(node, x, 4, "X");
  const bool last = node.get_int("channels_last", 0) != 0;
  if (!x.ranked || x.shape[last ? 3 : 1] < 0) return std::nullopt;
  const int64_t channels = x.shape[last ? 3 : 1], block = block_of(node);
  Expander e(node, inputs, kLayoutVersion);
  Operand y = e.input(0);
  if (last) y = e.step("Transpose", {y}, {{"perm", channel_permutation(4, false)}});
  const int64_t missing = (block - channels % block) % block;
  if (missing > 0) y = e.step("Pad", {y, Expander::integers({0, 0, 0, 0, 0, missing, 0, 0})});
  if (!last && missing == 0) y = e.step("Identity", {y});
  return e.finish({y});
}

std::optional<Expansion> expand_reorder_output(const Node& node, const Types& inputs) {
  const int64_t channels = node.get_int("channels", 0);
  if (channels < 1) node.fail(ErrorCode::kInvalidModel, "attribute 'channels' must be positive");
  if (inputs.empty()) node.fail(ErrorCode::kInvalidModel, "input 0 is missing");
  const TypeInfo& x = inputs[0];
  kernel::require_rank(node, x, 4, "X");
  if (x.ranked && x.shape[1] >= 0 && x.shape[1] < channels)
    node.fail(ErrorCode::kInvalidModel,
              "attribute 'channels' = " + std::to_string(channels) + " of " + to_string(x.shape));
  Expander e(node, inputs, kLayoutVersion);
  const Operand axis = Expander::integers({1});
  Operand y = e.step("Slice", {e.input(0), Expander::integers({0}), Expander::integers({channels}), axis});
  if (node.get_int("channels_last", 0) != 0) y = e.step("Transpose", {y}, {{"perm", channel_permutation(4, true)}});
  return e.finish({y});
}

std::optional<Expansion> expand_nchwc_upsample(const Node& node, const Types& inputs) {
  const std::vector<int64_t> scales = node.get_ints("scales");
  if (scales.size() != 4) node.fail(ErrorCode::kInvalidModel, "attribute 'scales' must have 4 values");
  Tensor factors(DType::kFloat, {4});
  std::copy(scales.begin(), scales.end(), factors.as_mutable<float>().begin());
  const Expander::Attributes attributes = {
      {"mode", node.get_string("mode", "nearest")},
      {"coordinate_transformation_mode", node.get_string("coordinate_transformation_mode", "half_pixel")},
      {"nearest_mode", std::string("floor")}};
  Expander e(node, inputs, kLayoutVersion);
  return e.finish({e.step("Resize", {e.input(0), Operand(), Expander::constant(std::move(factors))}, attributes)});
}

void add_nchwc(Registry& registry) {
  add_expansion(registry, "Conv", 1, {2, 4}, expand_nchwc_conv,
                with(kWindow, {"activation", "activation_params", "group", "block"}), kernel::kOne, kNchwc);
  add_expansion(registry, "MaxPool", 1, kernel::kOne, nchwc_pool("MaxPool", 12),
                with(kWindow, {"ceil_mode", "storage_order", "block"}), kernel::kOne, kNchwc);
  add_expansion(registry, "AveragePool", 1, kernel::kOne, nchwc_pool("AveragePool", 19),
                with(kWindow, {"ceil_mode", "count_include_pad", "block"}), kernel::kOne, kNchwc);
  for (const char* name : {"GlobalMaxPool", "GlobalAveragePool"})
    add_expansion(registry, name, 1, kernel::kOne, nchwc_pool(name, 1), {"block"}, kernel::kOne, kNchwc);
  add_expansion(registry, "ReorderInput", 1, kernel::kOne, expand_reorder_input, {"channels_last", "block"},
                kernel::kOne, kNchwc);
  add_expansion(registry, "ReorderOutput", 1, kernel::kOne, expand_reorder_output,
                {"channels", "channels_last", "block"}, kernel::kOne, kNchwc);
  add_expansion(registry, "Upsample", 1, kernel::kOne, expand_nchwc_upsample,
                {"coordinate_transformation_mode", "mode", "scales", "block"}, kernel::kOne, kNchwc);
}

}  // namespace

void register_layout(Registry& registry) {
  add_channels_last(registry);
  add_nchwc(registry);
}

}  // namespace tessera::ops
