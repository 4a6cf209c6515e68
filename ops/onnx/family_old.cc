// SPDX-License-Identifier: Apache-2.0
// Operators of the operator sets 1 to 6, and the experimental ones that were dropped before set 7, as expansions into
// operators of set 7. Differences: `consumed_inputs` told an allocator what it might overwrite; binary operators
// broadcast the second operand alone, from an axis on; contents that are operands today were attributes, and some the
// other way round.
#include <algorithm>

#include "ops/expansion.h"

namespace tessera::ops {

namespace {

using Operand = Expander::Operand;
using Types = std::vector<TypeInfo>;

constexpr int kRenewedVersion = 7;
/// Operator sets 6 and below of a type that set 7 knows: inputs, attributes of set 6, and those only of sets below.
struct Renewed {
  const char* name;
  kernel::Arity inputs;
  std::set<std::string> attributes;
};

/// The node's attributes without those that say nothing today.
Expander::Attributes kept(const Node& node) {
  Expander::Attributes attributes = node.attributes;
  for (const char* name : {"consumed_inputs", "broadcast", "axis", "is_test", "output_sequence"})
    attributes.erase(name);
  return attributes;
}

/// The same operator with other attributes.
Expansion renewed(const Node& node, const Types& inputs, Expander::Attributes attributes) {
  Expander e(node, inputs, kRenewedVersion);
  return e.finish(e.steps(node.op_type, e.inputs(), std::move(attributes), node.output_count));
}

std::optional<Expansion> expand_same(const Node& node, const Types& inputs) {
  return renewed(node, inputs, kept(node));
}

/// Operands that must have one shape.
void require_same_shapes(const Node& node, const Types& inputs, const char* way_out) {
  const auto differ = [](const TypeInfo& a, const TypeInfo& b) {
    if (!a.ranked || !b.ranked) return false;
    if (a.shape.size() != b.shape.size()) return true;
    for (size_t d = 0; d < a.shape.size(); ++d)
      if (a.shape[d] >= 0 && b.shape[d] >= 0 && a.shape[d] != b.shape[d]) return true;
    return false;
  };
  for (const TypeInfo& other : inputs)
    if (differ(inputs[0], other))
      node.fail(ErrorCode::kInvalidModel, "operands " + to_string(inputs[0].shape) + " and " + to_string(other.shape) +
                                              " differ in shape, which operator sets below 7 allow " + way_out);
}

// ---------------------------------------------------------------------------------------------- limited broadcasting

/// The shape for Reshape that gives the second operand trailing dimensions of one, so that its dimensions stand at
/// `axis` of the first; {} as one empty list makes a scalar of it; nothing where it stands right already.
struct Alignment {
  bool known = true;
  std::optional<std::vector<int64_t>> shape;
};

Alignment align(const Node& node, const TypeInfo& a, const TypeInfo& b) {
  Alignment result;
  const bool single = b.is_static() && element_count(b.shape) == 1;
  if (single && !b.shape.empty()) {
    result.shape.emplace();
    return result;
  }
  const bool wider = a.ranked && b.ranked && b.shape.size() > a.shape.size();  // of one element, once it is known
  if (!wider && (!node.has("axis") || single)) return result;
  if (wider || !a.ranked || !b.ranked) {
    result.known = false;
    return result;
  }
  const auto rank = static_cast<int64_t>(a.shape.size()), inner = static_cast<int64_t>(b.shape.size());
  const int64_t axis = normalise_axis(node, node.get_int("axis", 0), std::max<int64_t>(rank, 1));
  if (axis + inner > rank)
    node.fail(ErrorCode::kInvalidModel, "the second operand " + to_string(b.shape) + " does not fit into " +
                                            to_string(a.shape) + " from axis " + std::to_string(axis) + " on");
  if (axis + inner == rank) return result;
  result.shape.emplace(inner, 0);
  result.shape->resize(static_cast<size_t>(rank - axis), 1);
  return result;
}

/// Whether b broadcasts into a without widening it.
void require_contained(const Node& node, const TypeInfo& a, const TypeInfo& b) {
  if (!a.ranked || !b.ranked || (b.is_static() && element_count(b.shape) == 1)) return;
  bool fits = a.shape.size() >= b.shape.size() || !b.is_static();
  for (size_t d = 0; fits && a.shape.size() >= b.shape.size() && !node.has("axis") && d < b.shape.size(); ++d) {
    const int64_t outer = a.shape[a.shape.size() - b.shape.size() + d];
    fits = outer < 0 || b.shape[d] < 0 || b.shape[d] == 1 || outer == b.shape[d];
  }
  if (!fits)
    node.fail(ErrorCode::kInvalidModel,
              "the second operand " + to_string(b.shape) + " does not broadcast into the first " + to_string(a.shape));
}

std::optional<Expansion> expand_binary(const Node& node, const Types& inputs) {
  if (inputs.size() != 2 || !inputs[0].present || !inputs[1].present)
    node.fail(ErrorCode::kInvalidModel, "two operands are needed");
  if (node.get_int("broadcast", 0) == 0) {
    require_same_shapes(node, inputs, "with the attribute broadcast = 1 alone");
    return renewed(node, inputs, kept(node));
  }
  require_contained(node, inputs[0], inputs[1]);
  const Alignment alignment = align(node, inputs[0], inputs[1]);
  if (!alignment.known) return std::nullopt;
  Expander e(node, inputs, kRenewedVersion);
  Operand second = e.input(1);
  if (alignment.shape) second = e.step("Reshape", {second, Expander::integers(*alignment.shape)});
  return e.finish({e.step(node.op_type, {e.input(0), second}, kept(node))});
}

/// Results of a comparison are bool whatever is known.
void infer_unknown_bool(InferContext& c) { c.outputs[0] = TypeInfo::unranked(DType::kBool); }

std::optional<Expansion> expand_variadic(const Node& node, const Types& inputs) {
  require_same_shapes(node, inputs, "nowhere");
  return renewed(node, inputs, kept(node));
}

/// A slope of one dimension holds one value for each channel, which is dimension 1.
std::optional<Expansion> expand_prelu(const Node& node, const Types& inputs) {
  if (inputs.size() != 2) node.fail(ErrorCode::kInvalidModel, "two operands are needed");
  const TypeInfo &x = inputs[0], &slope = inputs[1];
  if (!slope.ranked) return std::nullopt;
  Expander e(node, inputs, kRenewedVersion);
  Operand values = e.input(1);
  if (slope.shape.size() == 1 && slope.shape[0] != 1) {
    if (!x.ranked) return std::nullopt;
    if (x.shape.size() > 2) {
      std::vector<int64_t> shape(x.shape.size() - 1, 1);
      shape[0] = 0;
      values = e.step("Reshape", {values, Expander::integers(shape)});
    }
  }
  return e.finish({e.step("PRelu", {e.input(0), values})});
}

// ------------------------------------------------------------------------------------- contents that changed places

std::optional<Expansion> expand_reshape(const Node& node, const Types& inputs) {
  Expander e(node, inputs, kRenewedVersion);
  return e.finish({e.step("Reshape", {e.input(0), Expander::integers(node.get_ints("shape"))})});
}

std::optional<Expansion> expand_concat(const Node& node, const Types& inputs) {
  return renewed(node, inputs, {{"axis", node.get_int("axis", 1)}});
}

std::optional<Expansion> expand_cast(const Node& node, const Types& inputs) {
  static const std::map<std::string, DType> types = {
      {"FLOAT", DType::kFloat},  {"UINT8", DType::kUint8},     {"INT8", DType::kInt8},     {"UINT16", DType::kUint16},
      {"INT16", DType::kInt16},  {"INT32", DType::kInt32},     {"INT64", DType::kInt64},   {"STRING", DType::kString},
      {"BOOL", DType::kBool},    {"FLOAT16", DType::kFloat16}, {"DOUBLE", DType::kDouble}, {"UINT32", DType::kUint32},
      {"UINT64", DType::kUint64}};
  std::string name = node.get_string("to", "");
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  const auto type = types.find(name);
  if (type == types.end())
    node.fail(ErrorCode::kInvalidModel, "attribute 'to' = '" + name + "' is no element type of operator set 1");
  return renewed(node, inputs, {{"to", static_cast<int64_t>(type->second)}});
}

std::optional<Expansion> expand_pad(const Node& node, const Types& inputs) {
  Expander::Attributes attributes = node.attributes;
  if (auto old = attributes.extract("paddings")) {
    old.key() = "pads";
    attributes.insert(std::move(old));
  }
  return renewed(node, inputs, std::move(attributes));
}

std::optional<Expansion> expand_upsample(const Node& node, const Types& inputs) {
  const std::string mode = node.get_string("mode", "nearest");
  const std::vector<float> scales = {1, 1, node.get_float("height_scale", 0), node.get_float("width_scale", 0)};
  return renewed(node, inputs, {{"mode", mode == "bilinear" ? "linear" : mode}, {"scales", scales}});
}

/// The second operand, lengths of the parts, became the attribute `split`.
std::optional<Expansion> expand_split(const Node& node, const Types& inputs) {
  Expander::Attributes attributes = node.attributes;
  if (inputs.size() > 1 && inputs[1].present) {
    if (!inputs[1].constant) return std::nullopt;
    attributes["split"] = inputs[1].constant->to_int64s();
  }
  Expander e(node, inputs, kRenewedVersion);
  return e.finish(e.steps("Split", {e.input(0)}, std::move(attributes), node.output_count));
}

/// How often, and along which axis, became how often along each axis.
std::optional<Expansion> expand_tile(const Node& node, const Types& inputs) {
  if (inputs.size() != 3 || !inputs[0].ranked || !inputs[1].constant || !inputs[2].constant) return std::nullopt;
  for (size_t i : {1, 2})
    if (inputs[i].constant->size() != 1)
      node.fail(ErrorCode::kInvalidModel, "input " + std::to_string(i) + " must have one element");
  std::vector<int64_t> repeats(inputs[0].shape.size(), 1);
  const int64_t axis = normalise_axis(node, inputs[2].constant->to_int64s()[0], static_cast<int64_t>(repeats.size()));
  repeats[static_cast<size_t>(axis)] = inputs[1].constant->to_int64s()[0];
  Expander e(node, inputs, kRenewedVersion);
  return e.finish({e.step("Tile", {e.input(0), Expander::integers(repeats)})});
}

std::optional<Expansion> expand_lp(const Node& node, const Types& inputs) {
  Expander::Attributes attributes = node.attributes;
  const float p = node.get_float("p", 2);
  if (p != static_cast<float>(static_cast<int64_t>(p)))
    node.fail(ErrorCode::kUnsupported, "attribute 'p' = " + std::to_string(p) + " is no integer, as later sets need");
  attributes["p"] = static_cast<int64_t>(p);
  return renewed(node, inputs, std::move(attributes));
}

std::optional<Expansion> expand_selu(const Node& node, const Types& inputs) {
  return renewed(node, inputs,
                 {{"alpha", node.get_float("alpha", 1.6732f)}, {"gamma", node.get_float("gamma", 1.0507f)}});
}

/// The matrix C broadcasts where the attribute says so.
std::optional<Expansion> expand_gemm(const Node& node, const Types& inputs) {
  return renewed(node, inputs, kept(node));
}

/// Statistics of the batch are training's.
std::optional<Expansion> expand_batch_norm(const Node& node, const Types& inputs) {
  if (node.output_count > 1 && node.get_int("is_test", 0) == 0)
    node.fail(
        ErrorCode::kUnsupported,
        "is_test is 0 and statistics of the batch are asked for: that is training; export the model for inference");
  Expander e(node, inputs, kRenewedVersion);
  Operand y = e.steps("BatchNormalization", e.inputs(), kept(node), 1)[0];
  if (node.output_count > 1) node.fail(ErrorCode::kUnsupported, "it has statistics as results, which inference lacks");
  return e.finish({y});
}

// -------------------------------------------------------------------------------------------- experimental operators

DType float_type(const Node& node, const Types& inputs) {
  if (inputs.empty() || !inputs[0].present) node.fail(ErrorCode::kInvalidModel, "input 0 is missing");
  kernel::require_type(node, inputs[0].dtype, kernel::kFloats, "input");
  return inputs[0].dtype;
}

/// alpha * x + beta.
std::optional<Expansion> expand_affine(const Node& node, const Types& inputs) {
  const DType type = float_type(node, inputs);
  Expander e(node, inputs, kRenewedVersion);
  const Operand scaled = e.step("Mul", {e.input(0), Expander::scalar(type, node.get_float("alpha", 1))});
  return e.finish({e.step("Add", {scaled, Expander::scalar(type, node.get_float("beta", 0))})});
}

/// scale * x.
std::optional<Expansion> expand_scale(const Node& node, const Types& inputs) {
  Expander e(node, inputs, kRenewedVersion);
  const Operand factor = Expander::scalar(float_type(node, inputs), node.get_float("scale", 1));
  return e.finish({e.step("Mul", {e.input(0), factor})});
}

/// alpha * tanh(beta * x).
std::optional<Expansion> expand_scaled_tanh(const Node& node, const Types& inputs) {
  const DType type = float_type(node, inputs);
  Expander e(node, inputs, kRenewedVersion);
  const Operand inner = e.step("Mul", {e.input(0), Expander::scalar(type, node.get_float("beta", 1))});
  return e.finish({e.step("Mul", {e.step("Tanh", {inner}), Expander::scalar(type, node.get_float("alpha", 1))})});
}

/// alpha * log(1 + exp(beta * x)).
std::optional<Expansion> expand_parametric_softplus(const Node& node, const Types& inputs) {
  const DType type = float_type(node, inputs);
  Expander e(node, inputs, kRenewedVersion);
  const Operand inner = e.step("Mul", {e.input(0), Expander::scalar(type, node.get_float("beta", 1))});
  return e.finish({e.step("Mul", {e.step("Softplus", {inner}), Expander::scalar(type, node.get_float("alpha", 1))})});
}

/// scale * x + bias of each channel; x is [N,C,H,W].
std::optional<Expansion> expand_image_scaler(const Node& node, const Types& inputs) {
  const DType type = float_type(node, inputs);
  kernel::require_rank(node, inputs[0], 4, "the input");
  const std::vector<float> bias = node.get_floats("bias");
  if (inputs[0].ranked && inputs[0].shape[1] >= 0 && inputs[0].shape[1] != static_cast<int64_t>(bias.size()))
    node.fail(ErrorCode::kInvalidModel, "attribute 'bias' has " + std::to_string(bias.size()) + " values for " +
                                            std::to_string(inputs[0].shape[1]) + " channels");
  Tensor addend(DType::kFloat, {1, static_cast<int64_t>(bias.size()), 1, 1});
  std::copy(bias.begin(), bias.end(), addend.as_mutable<float>().begin());
  if (type == DType::kDouble) node.fail(ErrorCode::kUnsupported, "float64 is not served");
  Expander e(node, inputs, kRenewedVersion);
  const Operand scaled = e.step("Mul", {e.input(0), Expander::scalar(type, node.get_float("scale", 1))});
  return e.finish({e.step("Add", {scaled, Expander::constant(kernel::narrow(addend, type))})});
}

/// Removes `border` (left, top, right, bottom) of [N,C,H,W]; or keeps `scale` (height, width) behind left and top.
std::optional<Expansion> expand_crop(const Node& node, const Types& inputs) {
  const std::vector<int64_t> border = node.get_ints("border"), scale = node.get_ints("scale");
  if (border.size() != 4) node.fail(ErrorCode::kInvalidModel, "attribute 'border' must have 4 values");
  if (!scale.empty() && scale.size() != 2) node.fail(ErrorCode::kInvalidModel, "attribute 'scale' must have 2 values");
  if (inputs.empty()) node.fail(ErrorCode::kInvalidModel, "input 0 is missing");
  kernel::require_rank(node, inputs[0], 4, "the input");
  for (const std::vector<int64_t>& list : {border, scale})
    for (const int64_t value : list)
      if (value < 0) node.fail(ErrorCode::kInvalidModel, "a negative value in 'border' or 'scale'");
  std::vector<int64_t> ends(2);
  for (size_t axis = 0; axis < 2; ++axis) {
    const int64_t begin = border[1 - axis], behind = border[3 - axis];
    ends[axis] = !scale.empty() ? begin + scale[axis] : behind > 0 ? -behind : INT64_MAX;
    const int64_t size = inputs[0].ranked ? inputs[0].shape[2 + axis] : -1;
    const int64_t needed = begin + (scale.empty() ? behind : scale[axis]);
    if (size >= 0 && (needed > size || (scale.empty() && needed == size)))
      node.fail(ErrorCode::kInvalidModel,
                "nothing is left of dimension " + std::to_string(2 + axis) + " of " + to_string(inputs[0].shape));
  }
  const Expander::Attributes attributes = {
      {"starts", std::vector<int64_t>{border[1], border[0]}}, {"ends", ends}, {"axes", std::vector<int64_t>{2, 3}}};
  Expander e(node, inputs, kRenewedVersion);
  return e.finish({e.step("Slice", {e.input(0)}, attributes)});
}

std::optional<Expansion> expand_dynamic_slice(const Node& node, const Types& inputs) {
  Expander e(node, inputs, 10);
  return e.finish({e.step("Slice", e.inputs())});
}

std::optional<Expansion> expand_thresholded_relu(const Node& node, const Types& inputs) {
  Expander e(node, inputs, 10);
  return e.finish({e.step("ThresholdedRelu", {e.input(0)}, {{"alpha", node.get_float("alpha", 1)}})});
}

/// (x - mean) / deviation over batch and space, with across_channels over the channels too; x is [N,C,H,W].
std::optional<Expansion> expand_mean_variance(const Node& node, const Types& inputs) {
  const DType type = float_type(node, inputs);
  kernel::require_rank(node, inputs[0], 4, "the input");
  std::vector<int64_t> axes = {0, 2, 3};
  if (node.get_int("across_channels", 0) != 0) axes = {0, 1, 2, 3};
  const Expander::Attributes over = {{"axes", axes}, {"keepdims", int64_t{1}}};
  Expander e(node, inputs, kRenewedVersion);
  const Operand centred = e.step("Sub", {e.input(0), e.step("ReduceMean", {e.input(0)}, over)});
  if (node.get_int("normalize_variance", 1) == 0) return e.finish({centred});
  const Operand variance = e.step("ReduceMean", {e.step("Mul", {centred, centred})}, over);
  const Operand inverse = e.step("Div", {Expander::scalar(type, 1), e.step("Sqrt", {variance})});
  return e.finish({e.step("Mul", {centred, inverse})});
}

/// A constant of the attributes alone, or with the operand's shape.
std::optional<Expansion> expand_given_tensor_fill(const Node& node, const Types& inputs) {
  const std::vector<float> values = node.get_floats("values");
  std::vector<int64_t> shape = node.get_ints("shape");
  if (!inputs.empty() && inputs[0].present) {
    if (node.get_int("input_as_shape", 0) != 0) {
      if (!inputs[0].constant) return std::nullopt;
      shape = inputs[0].constant->to_int64s();
    } else {
      if (!inputs[0].is_static()) return std::nullopt;
      shape = inputs[0].shape;
    }
    const std::vector<int64_t> extra = node.get_ints("extra_shape");
    shape.insert(shape.end(), extra.begin(), extra.end());
  }
  Tensor result(DType::kFloat, shape);
  if (result.size() != static_cast<int64_t>(values.size()))
    node.fail(ErrorCode::kInvalidModel,
              std::to_string(values.size()) + " values do not fill a tensor of " + to_string(shape));
  std::copy(values.begin(), values.end(), result.as_mutable<float>().begin());
  Expander e(node, inputs, kRenewedVersion);
  return e.finish({Expander::constant(std::move(result))});
}

void infer_unknown_float(InferContext& c) { c.outputs[0] = TypeInfo::unranked(DType::kFloat); }

/// Both ranges of versions: sets 1 to 5 with consumed_inputs, set 6 without it.
void add_arithmetic(Registry& registry) {
  for (const char* name : {"Add", "Sub", "Mul", "Div"}) {
    add_expansion(registry, name, 1, kernel::kTwo, expand_binary, {"axis", "broadcast", "consumed_inputs"});
    add_expansion(registry, name, 6, kernel::kTwo, expand_binary, {"axis", "broadcast"});
  }
  add_expansion(registry, "Pow", 1, kernel::kTwo, expand_binary, {"axis", "broadcast"});
  for (const char* name : {"And", "Or", "Xor", "Equal", "Greater", "Less"})
    add_expansion(registry, name, 1, kernel::kTwo, expand_binary, {"axis", "broadcast"}, kernel::kOne, "",
                  infer_unknown_bool);
  for (const char* name : {"Sum", "Mean", "Max", "Min"})
    add_expansion(registry, name, 1, {1, -1}, expand_variadic, {"consumed_inputs"});
}

void add_renewed(Registry& registry) {
  for (const char* name :
       {"Abs", "Ceil", "Exp", "Floor", "Log", "Neg", "Reciprocal", "Relu", "Sigmoid", "Sqrt", "Tanh"})
    add_expansion(registry, name, 1, kernel::kOne, expand_same, {"consumed_inputs"});
  const Renewed others[] = {{"Clip", kernel::kOne, {"max", "min"}},
                            {"Elu", kernel::kOne, {"alpha"}},
                            {"LeakyRelu", kernel::kOne, {"alpha"}},
                            {"HardSigmoid", kernel::kOne, {"alpha", "beta"}},
                            {"InstanceNormalization", {3, 3}, {"epsilon"}}};
  for (Renewed other : others) {
    other.attributes.insert("consumed_inputs");
    add_expansion(registry, other.name, 1, other.inputs, expand_same, other.attributes);
  }
  add_expansion(registry, "Selu", 1, kernel::kOne, expand_selu, {"alpha", "gamma", "consumed_inputs"});
  for (const int version : {1, 6}) {
    const auto with = [&](std::set<std::string> names) {
      if (version == 1) names.insert("consumed_inputs");
      return names;
    };
    add_expansion(registry, "PRelu", version, kernel::kTwo, expand_prelu, with({}));
    add_expansion(registry, "Dropout", version, kernel::kOne, expand_same, with({"is_test", "ratio"}), {1, 2});
    add_expansion(registry, "BatchNormalization", version, {5, 5}, expand_batch_norm,
                  with({"epsilon", "is_test", "momentum", "spatial"}), {1, 5});
  }
  const std::set<std::string> cell = {"activation_alpha", "activation_beta", "activations",    "clip",
                                      "direction",        "hidden_size",     "output_sequence"};
  const auto and_one = [](std::set<std::string> names, const char* name) {
    names.insert(name);
    return names;
  };
  add_expansion(registry, "RNN", 1, {3, 6}, expand_same, cell, {0, 2});
  add_expansion(registry, "LSTM", 1, {3, 8}, expand_same, and_one(cell, "input_forget"), {0, 3});
  add_expansion(registry, "GRU", 1, {3, 6}, expand_same, cell, {2, 2});
  add_expansion(registry, "GRU", 3, {3, 6}, expand_same, and_one(cell, "linear_before_reset"), {0, 2});
}

void add_moved(Registry& registry) {
  for (const int version : {1, 6})
    add_expansion(registry, "Gemm", version, {3, 3}, expand_gemm, {"alpha", "beta", "broadcast", "transA", "transB"});
  add_expansion(registry, "Reshape", 1, kernel::kOne, expand_reshape, {"consumed_inputs", "shape"});
  add_expansion(registry, "Concat", 1, {1, -1}, expand_concat, {"axis"});
  add_expansion(registry, "Cast", 1, kernel::kOne, expand_cast, {"to"});
  add_expansion(registry, "Pad", 1, kernel::kOne, expand_pad, {"mode", "paddings", "value"});
  add_expansion(registry, "Upsample", 1, kernel::kOne, expand_upsample, {"height_scale", "mode", "width_scale"});
  add_expansion(registry, "Split", 1, {1, 2}, expand_split, {"axis", "split"}, {1, -1});
  add_expansion(registry, "Tile", 1, {3, 3}, expand_tile);
  add_expansion(registry, "LpPool", 1, kernel::kOne, expand_lp, {"auto_pad", "kernel_shape", "p", "pads", "strides"});
  add_expansion(registry, "GlobalLpPool", 1, kernel::kOne, expand_lp, {"p"});
}

void add_experimental(Registry& registry) {
  add_expansion(registry, "Affine", 1, kernel::kOne, expand_affine, {"alpha", "beta"});
  add_expansion(registry, "Scale", 1, kernel::kOne, expand_scale, {"scale"});
  add_expansion(registry, "ScaledTanh", 1, kernel::kOne, expand_scaled_tanh, {"alpha", "beta"});
  add_expansion(registry, "ParametricSoftplus", 1, kernel::kOne, expand_parametric_softplus, {"alpha", "beta"});
  add_expansion(registry, "ImageScaler", 1, kernel::kOne, expand_image_scaler, {"bias", "scale"});
  add_expansion(registry, "Crop", 1, kernel::kOne, expand_crop, {"border", "scale"});
  add_expansion(registry, "DynamicSlice", 1, {3, 4}, expand_dynamic_slice);
  add_expansion(registry, "ThresholdedRelu", 1, kernel::kOne, expand_thresholded_relu, {"alpha"});
  add_expansion(registry, "MeanVarianceNormalization", 1, kernel::kOne, expand_mean_variance,
                {"across_channels", "normalize_variance"});
  add_expansion(registry, "GivenTensorFill", 1, {0, 1}, expand_given_tensor_fill,
                {"values", "shape", "extra_shape", "input_as_shape"}, kernel::kOne, "", infer_unknown_float);
}

}  // namespace

void register_old(Registry& registry) {
  add_arithmetic(registry);
  add_renewed(registry);
  add_moved(registry);
  add_experimental(registry);
}

}  // namespace tessera::ops
