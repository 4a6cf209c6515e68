// SPDX-License-Identifier: Apache-2.0
// The attention operators of domain com.microsoft that ONNX Runtime's optimiser writes for transformers, and the
// product with weights of few bits, as expansions into the standard's operators. Scores are q k^T times the scale, plus
// the mask's values, plus attention_bias; what the mask hides gets mask_filter_value, what lies in the future the
// lowest number.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/expansion.h"

namespace tessera::ops {

namespace {

using Operand = Expander::Operand;
using Types = std::vector<TypeInfo>;

constexpr int kTransformerVersion = 13;

/// Heads of one attention: queries [B,N,S,H], keys [B,N,T,H], values [B,N,T,V].
struct AttentionHeads {
  Operand q, k, v;
  DType type = DType::kFloat;
  int64_t head_size = 0;
  int64_t batch = -1, queries = -1, keys = -1;  // -1: unknown
};

bool is_present(const Types& inputs, size_t i) { return i < inputs.size() && inputs[i].present; }

int64_t head_count(const Node& node) {
  const int64_t heads = node.get_int("num_heads", 0);
  if (heads < 1) node.fail(ErrorCode::kInvalidModel, "attribute 'num_heads' must be positive");
  return heads;
}

/// [B,S,N*H] to [B,N,S,H].
Operand head_parts(Expander& e, const Operand& x, int64_t heads, int64_t size) {
  const Operand parts = e.step("Reshape", {x, Expander::integers({0, 0, heads, size})});
  return e.step("Transpose", {parts}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
}

Operand filter_value(const Node& node, DType type) {
  return Expander::scalar(type, node.get_float("mask_filter_value", -10000.0f));
}

/// Truth [B,1,1,T] where a key is seen, from one dimension of integers: behind the last key that each sequence sees
/// come, perhaps, the first keys [2B], or sums of lengths [3B+2], which the CPU provider does not read.
Operand seen_keys(Expander& e, const Node& node, const TypeInfo& mask, size_t index, const AttentionHeads& heads) {
  const int64_t length = mask.shape[0], batch = heads.batch;
  if (length != batch && length != 2 * batch && length != 3 * batch + 2)
    node.fail(ErrorCode::kUnsupported, "a mask " + to_string(mask.shape) +
                                           " of one dimension must hold one, two or three numbers for each of " +
                                           std::to_string(batch) + " sequences");
  Tensor positions(DType::kInt32, {1, 1, 1, heads.keys});
  for (int64_t i = 0; i < heads.keys; ++i)
    positions.as_mutable<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(i);
  const Operand places = Expander::constant(std::move(positions));
  const auto part = [&](int64_t which) {
    Operand numbers = e.input(index);
    if (length != batch)
      numbers =
          e.step("Slice", {numbers, Expander::integers({which * batch}), Expander::integers({(which + 1) * batch})});
    return e.step("Reshape", {numbers, Expander::integers({batch, 1, 1, 1})});
  };
  const Operand before_end = e.step("Less", {places, part(0)});
  if (length != 2 * batch) return before_end;
  return e.step("And", {before_end, e.step("Not", {e.step("Less", {places, part(1)})})});
}

/// Values to add to the scores for a mask of integers: [B,T] or [B,S,T] with 0 for what is hidden, or one dimension as
/// seen_keys() reads it. Nothing while a size is unknown.
std::optional<Operand> mask_values(Expander& e, const Node& node, const TypeInfo& mask, size_t index,
                                   const AttentionHeads& heads) {
  if (!mask.ranked) return std::nullopt;
  const size_t rank = mask.shape.size();
  Operand seen;
  if (rank == 1) {
    if (heads.keys < 0 || heads.batch < 0 || mask.shape[0] < 0) return std::nullopt;
    seen = seen_keys(e, node, mask, index, heads);
  } else if (rank == 2 || rank == 3) {
    const std::vector<int64_t> axes = rank == 2 ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{1};
    const Operand shaped = e.step("Unsqueeze", {e.input(index), Expander::integers(axes)});
    seen = e.step("Greater", {shaped, Expander::constant(Tensor(mask.dtype, {}))});
  } else {
    node.fail(ErrorCode::kUnsupported, "a mask " + to_string(mask.shape) + " of rank 4 is not served");
  }
  return e.step("Where", {seen, Expander::scalar(heads.type, 0), filter_value(node, heads.type)});
}

/// 0 for keys up to the query's own, the lowest number behind. Nothing while a size is unknown.
std::optional<Operand> causal_values(const AttentionHeads& heads) {
  if (heads.queries < 0 || heads.keys < heads.queries) return std::nullopt;
  Tensor values(DType::kFloat, {1, 1, heads.queries, heads.keys});
  const int64_t past = heads.keys - heads.queries;
  const float lowest = heads.type == DType::kFloat16 ? -65504.0f : std::numeric_limits<float>::lowest();
  for (int64_t q = 0; q < heads.queries; ++q)
    for (int64_t k = past + q + 1; k < heads.keys; ++k)
      values.as_mutable<float>()[static_cast<size_t>(q * heads.keys + k)] = lowest;
  return Expander::constant(kernel::narrow(values, heads.type));
}

/// softmax(q k^T * scale + addends) v as [B,S,N*V], and the scores before their softmax. `mask`, `bias`: indices of
/// operands, those beyond the list absent.
std::optional<std::pair<Operand, Operand>> attend(Expander& e, const Node& node, const Types& inputs,
                                                  const AttentionHeads& heads, size_t mask, size_t bias) {
  const float given = node.get_float("scale", 0.0f);
  const double scale = given != 0.0f ? given : 1.0 / std::sqrt(static_cast<double>(heads.head_size));
  const Operand keys = e.step("Transpose", {heads.k}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
  Operand scores = e.step("Mul", {e.step("MatMul", {heads.q, keys}), Expander::scalar(heads.type, scale)});
  if (is_present(inputs, mask)) {
    const std::optional<Operand> values = mask_values(e, node, inputs[mask], mask, heads);
    if (!values) return std::nullopt;
    scores = e.step("Add", {scores, *values});
  }
  if (node.get_int("unidirectional", 0) != 0) {
    const std::optional<Operand> values = causal_values(heads);
    if (!values) return std::nullopt;
    scores = e.step("Add", {scores, *values});
  }
  if (is_present(inputs, bias)) scores = e.step("Add", {scores, e.input(bias)});
  const Operand weights = e.step("Softmax", {scores}, {{"axis", int64_t{-1}}});
  const Operand mixed =
      e.step("Transpose", {e.step("MatMul", {weights, heads.v})}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  return std::pair(e.step("Reshape", {mixed, Expander::integers({0, 0, -1})}), scores);
}

int64_t dimension(const TypeInfo& type, size_t axis) {
  return type.ranked && axis < type.shape.size() ? type.shape[axis] : -1;
}

void refuse_rotary(const Node& node) {
  for (const char* name : {"do_rotary", "past_present_share_buffer"})
    if (node.get_int(name, 0) != 0)
      node.fail(ErrorCode::kUnsupported, "attribute '" + std::string(name) + "' is not served");
}

// ------------------------------------------------------------------------------------------- Attention and QAttention

/// From the projection [B,S,Q+K+V] on. `past` is an operand [2,B,N,P,H], of which the second result is longer by S.
std::optional<Expansion> attend_projected(Expander& e, const Node& node, const Types& inputs, const Operand& projected,
                                          const std::vector<int64_t>& sizes, DType type, size_t mask, size_t past,
                                          size_t bias) {
  const int64_t count = head_count(node);
  for (const int64_t size : sizes)
    if (size < 1 || size % count != 0)
      node.fail(ErrorCode::kInvalidModel,
                std::to_string(size) + " channels do not make " + std::to_string(count) + " heads");
  if (sizes[0] != sizes[1]) node.fail(ErrorCode::kInvalidModel, "queries and keys differ in size");
  if (node.output_count > 1 && sizes[1] != sizes[2])
    node.fail(ErrorCode::kUnsupported, "the result present holds keys and values, which differ in size: " +
                                           std::to_string(sizes[1]) + " and " + std::to_string(sizes[2]) + " channels");
  const std::vector<Operand> parts =
      e.steps("Split", {projected, Expander::integers(sizes)}, {{"axis", int64_t{2}}}, 3);
  AttentionHeads heads{head_parts(e, parts[0], count, sizes[0] / count),
                       head_parts(e, parts[1], count, sizes[1] / count),
                       head_parts(e, parts[2], count, sizes[2] / count),
                       type,
                       sizes[0] / count,
                       dimension(inputs[0], 0),
                       dimension(inputs[0], 1),
                       dimension(inputs[0], 1)};
  if (is_present(inputs, past)) {
    const auto of_past = [&](int64_t which) {
      return e.step("Gather", {e.input(past), Expander::constant(Tensor::scalar_i64(which))}, {{"axis", int64_t{0}}});
    };
    heads.k = e.step("Concat", {of_past(0), heads.k}, {{"axis", int64_t{2}}});
    heads.v = e.step("Concat", {of_past(1), heads.v}, {{"axis", int64_t{2}}});
    const int64_t before = dimension(inputs[past], 3);
    heads.keys = before < 0 || heads.keys < 0 ? -1 : before + heads.keys;
  }
  const auto y = attend(e, node, inputs, heads, mask, bias);
  if (!y) return std::nullopt;
  std::vector<Operand> results = {y->first};
  if (node.output_count > 1) {
    const Operand axis = Expander::integers({0});
    const Operand k = e.step("Unsqueeze", {heads.k, axis}), v = e.step("Unsqueeze", {heads.v, axis});
    results.push_back(e.step("Concat", {k, v}, {{"axis", int64_t{0}}}));
  }
  return e.finish(std::move(results));
}

/// Columns of the weights [D,Q+K+V] that make queries, keys and values; nothing while they are unknown.
std::optional<std::vector<int64_t>> projection_sizes(const Node& node, const TypeInfo& weights) {
  std::vector<int64_t> sizes = node.get_ints("qkv_hidden_sizes");
  const int64_t columns = dimension(weights, 1);
  if (columns < 0) return std::nullopt;
  if (sizes.empty()) sizes.assign(3, columns / 3);
  if (sizes.size() != 3 || sizes[0] + sizes[1] + sizes[2] != columns)
    node.fail(ErrorCode::kInvalidModel,
              "weights " + to_string(weights.shape) + " do not hold queries, keys and values");
  return sizes;
}

/// Inputs: x [B,S,D], weights, bias, mask_index, past, attention_bias.
std::optional<Expansion> expand_attention(const Node& node, const Types& inputs) {
  refuse_rotary(node);
  if (!is_present(inputs, 0) || !is_present(inputs, 1)) node.fail(ErrorCode::kInvalidModel, "input or weights missing");
  kernel::require_type(node, inputs[0].dtype, kernel::kFloats, "input");
  kernel::require_rank(node, inputs[0], 3, "the input");
  kernel::require_rank(node, inputs[1], 2, "the weights");
  const auto sizes = projection_sizes(node, inputs[1]);
  if (!sizes || !inputs[0].ranked) return std::nullopt;
  Expander e(node, inputs, kTransformerVersion);
  Operand projected = e.step("MatMul", {e.input(0), e.input(1)});
  if (is_present(inputs, 2)) projected = e.step("Add", {projected, e.input(2)});
  return attend_projected(e, node, inputs, projected, *sizes, inputs[0].dtype, 3, 4, 5);
}

/// Inputs: x [B,S,D] and weights in 8 bits, bias, scale of x, of weights, mask_index, zero points of both, past.
std::optional<Expansion> expand_qattention(const Node& node, const Types& inputs) {
  refuse_rotary(node);
  for (size_t i = 0; i < 5; ++i)
    if (!is_present(inputs, i)) node.fail(ErrorCode::kInvalidModel, "input " + std::to_string(i) + " is missing");
  kernel::require_rank(node, inputs[0], 3, "the input");
  kernel::require_rank(node, inputs[1], 2, "the weights");
  const auto sizes = projection_sizes(node, inputs[1]);
  if (!sizes || !inputs[0].ranked) return std::nullopt;
  Expander e(node, inputs, kTransformerVersion);
  const Operand sum = e.steps("MatMulInteger", {e.input(0), e.input(1), e.input(6), e.input(7)}, {}, 1, "", 10)[0];
  const DType type = inputs[2].dtype;
  const Operand real = e.cast(sum, type);
  const Operand scaled = e.step("Mul", {real, e.step("Mul", {e.input(3), e.input(4)})});
  return attend_projected(e, node, inputs, e.step("Add", {scaled, e.input(2)}), *sizes, type, 5, 8, 99);
}

void infer_unknown_qattention(InferContext& c) {
  for (TypeInfo& output : c.outputs) output = TypeInfo::unranked(c.input(2).dtype);
}

// ------------------------------------------------------------------------------------------------ MultiHeadAttention

/// Inputs: query [B,S,N*H], key [B,T,N*H], value [B,T,N*V], bias, key_padding_mask, attention_bias, past key and value
/// [B,N,P,H]. Key and value may be [B,N,T,H] already.
std::optional<Expansion> expand_multi_head(const Node& node, const Types& inputs) {
  for (size_t i = 0; i < 3; ++i)
    if (!is_present(inputs, i))
      node.fail(ErrorCode::kUnsupported,
                "packed queries, keys and values are not served: input " + std::to_string(i) + " is missing");
  if (is_present(inputs, 8) || is_present(inputs, 9))
    node.fail(ErrorCode::kUnsupported, "past_sequence_length and cache_indirection are not served");
  kernel::require_type(node, inputs[0].dtype, kernel::kFloats, "query");
  kernel::require_rank(node, inputs[0], 3, "the query");
  const int64_t count = head_count(node), hidden = dimension(inputs[0], 2);
  if (hidden < 0 || !inputs[1].ranked || !inputs[2].ranked) return std::nullopt;
  const size_t rank = inputs[1].shape.size();
  if ((rank != 3 && rank != 4) || inputs[2].shape.size() != rank)
    node.fail(ErrorCode::kUnsupported, "key " + to_string(inputs[1].shape) + " and value " +
                                           to_string(inputs[2].shape) + " must have rank 3 or 4");
  const int64_t values = rank == 3 ? inputs[2].shape[2] : inputs[2].shape[3] < 0 ? -1 : inputs[2].shape[3] * count;
  if (values < 0) return std::nullopt;
  if (hidden % count != 0 || values % count != 0)
    node.fail(ErrorCode::kInvalidModel,
              std::to_string(hidden) + " channels do not make " + std::to_string(count) + " heads");
  Expander e(node, inputs, kTransformerVersion);
  std::vector<Operand> qkv = {e.input(0), e.input(1), e.input(2)};
  if (is_present(inputs, 3)) {
    const std::vector<Operand> biases =
        e.steps("Split", {e.input(3), Expander::integers({hidden, hidden, values})}, {{"axis", int64_t{0}}}, 3);
    for (size_t i = 0; i < (rank == 3 ? 3U : 1U); ++i) qkv[i] = e.step("Add", {qkv[i], biases[i]});
  }
  qkv[0] = head_parts(e, qkv[0], count, hidden / count);
  if (rank == 3) {
    qkv[1] = head_parts(e, qkv[1], count, hidden / count);
    qkv[2] = head_parts(e, qkv[2], count, values / count);
  }
  AttentionHeads heads{qkv[0],
                       qkv[1],
                       qkv[2],
                       inputs[0].dtype,
                       hidden / count,
                       dimension(inputs[0], 0),
                       dimension(inputs[0], 1),
                       dimension(inputs[1], rank == 3 ? 1 : 2)};
  if (is_present(inputs, 6) && is_present(inputs, 7)) {
    heads.k = e.step("Concat", {e.input(6), heads.k}, {{"axis", int64_t{2}}});
    heads.v = e.step("Concat", {e.input(7), heads.v}, {{"axis", int64_t{2}}});
    const int64_t before = dimension(inputs[6], 2);
    heads.keys = before < 0 || heads.keys < 0 ? -1 : before + heads.keys;
  }
  const auto y = attend(e, node, inputs, heads, 4, 5);
  if (!y) return std::nullopt;
  return e.finish({y->first, heads.k, heads.v, y->second});
}

// ------------------------------------------------------------------------------------------------------- MatMulNBits

/// The block whose scale and zero point each of the K columns has: its own, or what g_idx says. Nothing where g_idx is
/// known at run time only.
std::optional<std::vector<int64_t>> blocks_of_columns(const Node& node, const Types& inputs, int64_t depth,
                                                      int64_t block) {
  const int64_t blocks = (depth + block - 1) / block;
  std::vector<int64_t> groups;
  if (!is_present(inputs, 4)) {
    for (int64_t k = 0; k < depth; ++k) groups.push_back(k / block);
    return groups;
  }
  if (!inputs[4].constant) return std::nullopt;
  const Tensor& given = *inputs[4].constant;
  if (given.dtype() != DType::kInt32 || (given.size() != depth && given.size() != blocks * block))
    node.fail(ErrorCode::kInvalidModel,
              "g_idx " + to_string(given.shape()) + " is not int32 with a group for each of K");
  for (int64_t k = 0; k < depth; ++k) {
    groups.push_back(given.at_int64(k));
    if (groups.back() < 0 || groups.back() >= blocks)
      node.fail(ErrorCode::kInvalidModel,
                "g_idx names group " + std::to_string(groups.back()) + " of " + std::to_string(blocks));
  }
  return groups;
}

/// Weights [N,K] of a MatMulNBits: integers in blocks along K with a scale and a zero point for each block.
struct BlockWeights {
  int64_t bits = 4, rows = 0, depth = 0, block = 0, blocks = 0;
  std::vector<uint8_t> numbers;  // [rows, blocks * block]
  Tensor scales;                 // float, rows * blocks
  std::vector<double> zeros;     // likewise
  bool whole_zeros = true;       // they are integers of the weights' width
};

/// Reads what is packed from the low bits of each byte. Nothing where it is known at run time only.
std::optional<BlockWeights> block_weights(const Node& node, const Types& inputs) {
  BlockWeights w;
  w.bits = node.get_int("bits", 4), w.block = node.get_int("block_size", 0);
  w.rows = node.get_int("N", 0), w.depth = node.get_int("K", 0);
  constexpr int64_t kMost = int64_t{1} << 31, kMostBlock = int64_t{1} << 20;
  if ((w.bits != 2 && w.bits != 4 && w.bits != 8) || w.block < 1 || w.block > kMostBlock || w.rows < 1 ||
      w.rows > kMost || w.depth < 1 || w.depth > kMost)
    node.fail(ErrorCode::kUnsupported, "bits must be 2, 4 or 8, N and K 1 to 2^31, and block_size 1 to 2^20");
  for (size_t i : {1, 2})
    if (!inputs[i].constant) return std::nullopt;
  const Tensor& packed = *inputs[1].constant;
  w.scales = kernel::widen(*inputs[2].constant);
  w.blocks = (w.depth + w.block - 1) / w.block;
  const int64_t bytes = (w.block * w.bits + 7) / 8, all = w.rows * w.blocks;
  if (packed.dtype() != DType::kUint8 || packed.size() != all * bytes || w.scales.size() != all)
    node.fail(ErrorCode::kInvalidModel, "weights " + to_string(packed.shape()) + " or scales " +
                                            to_string(w.scales.shape()) + " do not fit N, K and block_size");
  const int64_t zero_bytes = (w.blocks * w.bits + 7) / 8, mask = (int64_t{1} << w.bits) - 1, per_byte = 8 / w.bits;
  if (is_present(inputs, 3)) {
    if (!inputs[3].constant) return std::nullopt;
    const Tensor& given = *inputs[3].constant;
    w.whole_zeros = given.dtype() == DType::kUint8;
    if (given.size() != w.rows * (w.whole_zeros ? zero_bytes : w.blocks))
      node.fail(ErrorCode::kInvalidModel, "zero points " + to_string(given.shape()) + " do not fit");
    for (int64_t n = 0; n < w.rows; ++n)
      for (int64_t b = 0; b < w.blocks; ++b)
        w.zeros.push_back(
            w.whole_zeros
                ? static_cast<double>((given.at_int64(n * zero_bytes + b / per_byte) >> (b % per_byte * w.bits)) & mask)
                : given.at_double(n * w.blocks + b));
  } else {
    w.zeros.assign(static_cast<size_t>(all), static_cast<double>(int64_t{1} << (w.bits - 1)));
  }
  const auto in = packed.as<uint8_t>();
  for (int64_t i = 0; i < all; ++i)
    for (int64_t k = 0; k < w.block; ++k)
      w.numbers.push_back(
          static_cast<uint8_t>((in[static_cast<size_t>(i * bytes + k / per_byte)] >> (k % per_byte * w.bits)) & mask));
  return w;
}

/// As float32 [K,N]; `groups` says the block whose scale and zero point each column has.
Tensor float_weights(const BlockWeights& w, const std::vector<int64_t>& groups) {
  Tensor weights(DType::kFloat, {w.depth, w.rows});
  auto out = weights.as_mutable<float>();
  const auto scales = w.scales.as<float>();
  for (int64_t n = 0; n < w.rows; ++n)
    for (int64_t k = 0; k < w.depth; ++k) {
      const auto at = static_cast<size_t>(n * w.blocks + groups[static_cast<size_t>(k)]);
      const auto value = static_cast<float>(w.numbers[static_cast<size_t>(n * w.blocks * w.block + k)]);
      out[static_cast<size_t>(k * w.rows + n)] = (value - static_cast<float>(w.zeros[at])) * scales[at];
    }
  return weights;
}

/// The product of integers that accuracy_level 4 asks for (docs/numerics.md, "Weights in blocks"): each block of a row
/// of A becomes int8 with a scale of its own, sums of a block are int32, and scales are applied to these. `x` is
/// [..,M,K] of rank 2 or more in float; the result is [..,M,N].
Operand block_product(Expander& e, const BlockWeights& w, Operand x, size_t rank) {
  const auto last = static_cast<int64_t>(rank);  // the axis inside of a block, once there are blocks
  if (const int64_t more = w.blocks * w.block - w.depth; more > 0) {
    std::vector<int64_t> pads(2 * rank);
    pads.back() = more;
    x = e.step("Pad", {x, Expander::integers(pads)});
  }
  std::vector<int64_t> shape(rank - 1, 0), perm(rank + 1);
  shape.insert(shape.end(), {w.blocks, w.block});
  std::iota(perm.begin(), perm.end(), int64_t{0});
  std::swap(perm[rank - 2], perm[rank - 1]);
  x = e.step("Reshape", {x, Expander::integers(shape)});  // [..,M,blocks,block]
  const Operand most = e.step("ReduceMax", {e.step("Abs", {x})}, {{"axes", std::vector<int64_t>{last}}});
  const Operand steps = Expander::constant(Tensor::scalar_f32(127)), none = Expander::constant(Tensor::scalar_f32(0));
  const Operand inverse = e.step("Where", {e.step("Greater", {most, none}), e.step("Div", {steps, most}), none});
  Operand bytes = e.cast(e.step("Round", {e.step("Mul", {x, inverse})}), DType::kInt8);
  bytes = e.step("Transpose", {bytes}, {{"perm", perm}});  // [..,blocks,M,block]
  const Operand scale = e.step("Transpose", {e.step("Div", {most, steps})}, {{"perm", perm}});
  const int64_t middle = int64_t{1} << (w.bits - 1);
  Tensor weights(DType::kInt8, {w.blocks, w.block, w.rows}), scales(DType::kFloat, {w.blocks, 1, w.rows}),
      zeros(DType::kInt32, {w.blocks, 1, w.rows});
  for (int64_t n = 0; n < w.rows; ++n)
    for (int64_t b = 0; b < w.blocks; ++b) {
      const auto from = static_cast<size_t>(n * w.blocks + b), to = static_cast<size_t>(b * w.rows + n);
      scales.as_mutable<float>()[to] = w.scales.as<float>()[from];
      zeros.as_mutable<int32_t>()[to] = static_cast<int32_t>(w.zeros[from]) - static_cast<int32_t>(middle);
      for (int64_t k = 0; k < w.block; ++k)
        weights.as_mutable<int8_t>()[static_cast<size_t>((b * w.block + k) * w.rows + n)] =
            static_cast<int8_t>(w.numbers[from * static_cast<size_t>(w.block) + static_cast<size_t>(k)] - middle);
    }
  Operand sum = e.step("MatMulInteger", {bytes, Expander::constant(weights)});  // [..,blocks,M,N]
  const auto zero_values = zeros.as<int32_t>();
  if (std::any_of(zero_values.begin(), zero_values.end(), [](int32_t zero) { return zero != 0; })) {
    const Operand wide = e.cast(bytes, DType::kInt32);
    const Operand of_rows = e.step("ReduceSum", {wide, Expander::integers({last})});
    sum = e.step("Sub", {sum, e.step("Mul", {of_rows, Expander::constant(zeros)})});
  }
  const Operand real = e.cast(sum, DType::kFloat);
  const Operand part = e.step("Mul", {real, e.step("Mul", {scale, Expander::constant(scales)})});
  return e.step("ReduceSum", {part, Expander::integers({last - 2})}, {{"keepdims", int64_t{0}}});
}

/// Whether ONNX Runtime's CPU provider sums the integers of such blocks as block_product() does. It multiplies floats
/// for other blocks of 2 bits, and beyond 256 its result is as far from these sums as from those of floats.
bool is_block_summed(const BlockWeights& w) {
  return w.bits == 2 ? w.block >= 32 && w.block <= 128 : w.block >= 16 && w.block <= 256;
}

/// The product of floats.
std::optional<Expansion> expand_float_blocks(Expander& e, const Node& node, const Types& inputs,
                                             const BlockWeights& weights) {
  const auto groups = blocks_of_columns(node, inputs, weights.depth, weights.block);
  if (!groups) return std::nullopt;
  const Tensor numbers = kernel::narrow(float_weights(weights, *groups), inputs[0].dtype);
  Operand y = e.step("MatMul", {e.input(0), Expander::constant(numbers)});
  if (is_present(inputs, 5)) y = e.step("Add", {y, e.input(5)});
  return e.finish({y});
}

/// Inputs: A [..,K], weights, scales, zero points, g_idx, bias [N].
std::optional<Expansion> expand_matmul_bits(const Node& node, const Types& inputs) {
  for (size_t i = 0; i < 3; ++i)
    if (!is_present(inputs, i)) node.fail(ErrorCode::kInvalidModel, "input " + std::to_string(i) + " is missing");
  const TypeInfo& a = inputs[0];
  if (a.dtype != DType::kFloat && a.dtype != DType::kFloat16)
    node.fail(ErrorCode::kInvalidModel, "A must be float32 or float16");
  Expander e(node, inputs, kTransformerVersion);
  if (!inputs[1].constant && node.get_int("accuracy_level", 0) != 0) {
    // ONNX Runtime prepares constant weights alone for its integer product, and multiplies floats by others.
    Expander::Attributes floats = node.attributes;
    floats.erase("accuracy_level");
    return e.finish(e.steps(node.op_type, e.inputs(), floats, 1, kMicrosoft, node.version));
  }
  const std::optional<BlockWeights> weights = block_weights(node, inputs);
  if (!weights) return std::nullopt;
  if (node.get_int("accuracy_level", 0) != 4 || !is_block_summed(*weights) || !weights->whole_zeros ||
      is_present(inputs, 4))
    return expand_float_blocks(e, node, inputs, *weights);
  if (!a.ranked) return std::nullopt;
  if (a.shape.empty() || (a.shape.back() >= 0 && a.shape.back() != weights->depth))
    node.fail(ErrorCode::kInvalidModel, "A " + to_string(a.shape) + " does not end in K");
  const auto cast = [&](const Operand& x, DType to) { return a.dtype == DType::kFloat ? x : e.cast(x, to); };
  // Known rows are those of one matrix, whose weights are then read once.
  const bool known = std::all_of(a.shape.begin(), a.shape.end(), [](int64_t n) { return n >= 0; });
  const bool flat = a.shape.size() == 1 || (known && a.shape.size() > 2);
  Shape result(a.shape.begin(), a.shape.end() - 1);
  const int64_t rows = flat ? element_count(result) : 0;
  result.push_back(weights->rows);
  Operand x = cast(e.input(0), DType::kFloat);
  if (flat) x = e.step("Reshape", {x, Expander::integers({rows, weights->depth})});
  Operand y = block_product(e, *weights, x, flat ? 2 : a.shape.size());
  if (flat) y = e.step("Reshape", {y, Expander::integers(result)});
  if (is_present(inputs, 5)) y = e.step("Add", {y, cast(e.input(5), DType::kFloat)});
  return e.finish({cast(y, a.dtype)});
}

// --------------------------------------------------------------------------------------------------------- MatMulBnb4

/// The values of the sixteen codes of 4 bits, of largest magnitude 1: floats of 4 bits, and quantiles of the normal
/// distribution (arXiv 2305.14314).
constexpr float kFloatCodes[16] = {
    0.0f,  5.208333333e-3f,  0.66666667f,  1.0f,  0.33333333f,  0.5f,  0.16666667f,  0.25f,
    -0.0f, -5.208333333e-3f, -0.66666667f, -1.0f, -0.33333333f, -0.5f, -0.16666667f, -0.25f};
constexpr float kNormalCodes[16] = {-1.0f,
                                    -0.6961928009986877f,
                                    -0.5250730514526367f,
                                    -0.39491748809814453f,
                                    -0.28444138169288635f,
                                    -0.18477343022823334f,
                                    -0.09105003625154495f,
                                    0.0f,
                                    0.07958029955625534f,
                                    0.16093020141124725f,
                                    0.24611230194568634f,
                                    0.33791524171829224f,
                                    0.44070982933044434f,
                                    0.5626170039176941f,
                                    0.7229568362236023f,
                                    1.0f};

/// Inputs: A, codes of the weights [N,K] without rows, the high half of each byte first, and the largest magnitude of
/// each block of them.
std::optional<Expansion> expand_matmul_codes(const Node& node, const Types& inputs) {
  for (size_t i = 0; i < 3; ++i)
    if (!is_present(inputs, i)) node.fail(ErrorCode::kInvalidModel, "input " + std::to_string(i) + " is missing");
  const int64_t rows = node.get_int("N", 0), depth = node.get_int("K", 0), block = node.get_int("block_size", 0),
                kind = node.get_int("quant_type", 0);
  constexpr int64_t kMost = int64_t{1} << 31;
  if (rows < 1 || rows > kMost || depth < 1 || depth > kMost || block < 1 || block > kMost || kind < 0 || kind > 1)
    node.fail(ErrorCode::kInvalidModel, "N, K and block_size must be 1 to 2^31, and quant_type 0 or 1");
  for (size_t i : {1, 2})
    if (!inputs[i].constant) return std::nullopt;
  const Tensor &codes = *inputs[1].constant, scales = kernel::widen(*inputs[2].constant);
  if (codes.dtype() != DType::kUint8 || codes.size() != (rows * depth + 1) / 2 ||
      scales.size() != (rows * depth + block - 1) / block)
    node.fail(ErrorCode::kInvalidModel, "weights " + to_string(codes.shape()) + " or absmax " +
                                            to_string(scales.shape()) + " do not fit N, K and block_size");
  const bool transposed = node.get_int("transB", 1) != 0;
  Tensor weights(DType::kFloat, transposed ? Shape{depth, rows} : Shape{rows, depth});
  for (int64_t i = 0; i < rows * depth; ++i) {
    const int code = codes.as<uint8_t>()[static_cast<size_t>(i / 2)] >> (i % 2 == 0 ? 4 : 0) & 15;
    weights.as_mutable<float>()[static_cast<size_t>(transposed ? i % depth * rows + i / depth : i)] =
        (kind == 0 ? kFloatCodes : kNormalCodes)[code] * scales.as<float>()[static_cast<size_t>(i / block)];
  }
  Expander e(node, inputs, kTransformerVersion);
  return e.finish(
      {e.step("MatMul", {e.input(0), Expander::constant(kernel::narrow(std::move(weights), inputs[0].dtype))})});
}

}  // namespace

void register_transformer(Registry& registry) {
  add_expansion(registry, "Attention", 1, {2, 7}, expand_attention,
                {"do_rotary", "mask_filter_value", "num_heads", "past_present_share_buffer", "qkv_hidden_sizes",
                 "rotary_embedding_dim", "scale", "unidirectional"},
                {1, 2}, kMicrosoft);
  add_expansion(registry, "QAttention", 1, {5, 9}, expand_qattention,
                {"do_rotary", "mask_filter_value", "num_heads", "past_present_share_buffer", "scale", "unidirectional"},
                {1, 2}, kMicrosoft, infer_unknown_qattention);
  add_expansion(registry, "MultiHeadAttention", 1, {1, 10}, expand_multi_head,
                {"mask_filter_value", "num_heads", "scale", "unidirectional"}, {1, 4}, kMicrosoft);
  add_expansion(registry, "MatMulBnb4", 1, {3, 3}, expand_matmul_codes,
                {"K", "N", "block_size", "quant_type", "training_mode", "transB"}, kernel::kOne, kMicrosoft);
  add_expansion(registry, "MatMulNBits", 1, {3, 6}, expand_matmul_bits,
                {"K", "N", "accuracy_level", "bits", "block_size"}, kernel::kOne, kMicrosoft);
}

}  // namespace tessera::ops
