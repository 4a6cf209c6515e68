// SPDX-License-Identifier: Apache-2.0
// GatedDeltaNet of com.microsoft: linear attention over tokens of several sequences in one tensor, with a state for
// each head of values. For each token, of query q, key k, value v, decay g and rate b:
//
//     S = exp(g) * S;  d = b * (v - S k);  S = S + d k^T;  result = scale * S q
//
// Rule 'linear' leaves decay, rate and S k out, 'gated' the rate and S k, 'delta' the decay.
#include <algorithm>
#include <cmath>

#include "ops/kernels/elementwise_kernel.h"
#include "ops/kernels/pointwise.h"

namespace tessera::ops {

namespace {

namespace delta_net {

using kernel::elements;
using kernel::mutable_elements;

enum Operand : size_t {
  kQuery,
  kKey,
  kValue,
  kStarts,
  kDecay,
  kRate,
  kState,
  kGateFactor,
  kGateBias,
  kCaptured,
  kActive
};

constexpr float kNormGuard = 1e-12f;  // what ONNX Runtime adds to a sum of squares

bool has_decay(const Node& node) {
  const std::string rule = node.get_string("update_rule", "gated_delta");
  return rule == "gated" || rule == "gated_delta";
}
bool has_rate(const Node& node) {
  const std::string rule = node.get_string("update_rule", "gated_delta");
  return rule == "delta" || rule == "gated_delta";
}
bool has_gate(const Node& node) { return node.get_string("gate_activation", "none") != "none"; }

/// The sizes of a node's operands; -1 where one is not known.
struct Sizes {
  Shape lead;  // of the tokens: [T] or [B,S]
  int64_t tokens = -1, sequences = -1, heads = -1, value_heads = -1, depth = -1, value_depth = -1;
  bool packed = false;
  int64_t decay_width = 1;  // factors of a head: 1 or one for each of depth
};

void check_choice(const Node& node, const char* attribute, const char* fallback,
                  std::initializer_list<const char*> known) {
  const std::string given = node.get_string(attribute, fallback);
  std::string names;
  for (const char* name : known) {
    if (given == name) return;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  node.fail(ErrorCode::kInvalidModel,
            std::string("attribute '") + attribute + "' = '" + given + "' is none of " + names);
}

void check_operands(const InferContext& c) {
  const Node& node = c.node;
  check_choice(node, "update_rule", "gated_delta", {"linear", "gated", "delta", "gated_delta"});
  check_choice(node, "gate_activation", "none", {"none", "softplus", "qwen", "sigmoid", "kda"});
  check_choice(node, "beta_activation", "none", {"none", "sigmoid"});
  const auto need = [&](bool wanted, size_t i, const char* name, const std::string& cause) {
    if (c.has(i) != wanted)
      node.fail(ErrorCode::kInvalidModel,
                std::string("input '") + name + "' must be " + (wanted ? "given" : "absent") + " with " + cause);
  };
  const std::string rule = "update_rule '" + node.get_string("update_rule", "gated_delta") + "'";
  need(has_decay(node), kDecay, "decay", rule);
  need(has_rate(node), kRate, "beta", rule);
  if (has_gate(node)) {
    need(true, kGateFactor, "a_log", "a gate_activation");
    need(true, kGateBias, "dt_bias", "a gate_activation");
  }
  need(c.has(kKey), kValue, "value", c.has(kKey) ? "'key'" : "packed queries");
  const int64_t capacity = node.get_int("state_update_capacity", 0);
  if (capacity < 0 || capacity > 8)
    node.fail(ErrorCode::kInvalidModel, "attribute 'state_update_capacity' must be 0 to 8");
  need(capacity > 0, kCaptured, "capture_count", "state_update_capacity " + std::to_string(capacity));
  const kernel::TypeSet floats = kernel::set_of({DType::kFloat, DType::kFloat16, DType::kBfloat16}),
                        wide = kernel::set_of({DType::kFloat}), whole = kernel::set_of({DType::kInt32});
  for (const size_t i : {kQuery, kKey, kValue, kDecay, kRate})
    if (c.has(i)) kernel::require_type(node, c.input(i).dtype, floats, "an operand");
  for (const size_t i : {kState, kGateFactor, kGateBias})
    if (c.has(i)) kernel::require_type(node, c.input(i).dtype, wide, "the state or a gate's operand");
  for (const size_t i : {kStarts, kCaptured, kActive})
    if (c.has(i)) kernel::require_type(node, c.input(i).dtype, whole, "a count");
}

void require_shape(const InferContext& c, size_t i, const Shape& wanted, const char* name) {
  if (!c.has(i) || !c.input(i).ranked) return;
  const Shape& shape = c.input(i).shape;
  bool fits = shape.size() == wanted.size();
  for (size_t d = 0; fits && d < wanted.size(); ++d) fits = wanted[d] < 0 || shape[d] < 0 || wanted[d] == shape[d];
  if (!fits)
    c.node.fail(ErrorCode::kInvalidModel,
                std::string("input '") + name + "' " + to_string(shape) + " must be " + to_string(wanted));
}

Shape joined(Shape lead, std::initializer_list<int64_t> more) {
  lead.insert(lead.end(), more);
  return lead;
}

/// Heads and depths of three tensors, or of packed queries by the state's shape.
void read_heads(const InferContext& c, Sizes& s) {
  const Shape& query = c.input(kQuery).shape;
  s.packed = !c.has(kKey);
  const size_t inner = s.packed ? 1 : 2;
  if (query.size() != inner + 1 && query.size() != inner + 2)
    c.node.fail(ErrorCode::kInvalidModel, "input 'query' " + to_string(query) + " must have rank " +
                                              std::to_string(inner + 1) + " or " + std::to_string(inner + 2));
  s.lead.assign(query.begin(), query.end() - static_cast<int64_t>(inner));
  if (c.has(kState) && c.input(kState).ranked) {
    const Shape& state = c.input(kState).shape;
    if (state.size() != 4) c.node.fail(ErrorCode::kInvalidModel, "input 'initial_state' must have rank 4");
    s.sequences = state[0], s.value_heads = state[1], s.value_depth = state[2], s.depth = state[3];
  }
  if (s.packed) {
    if (!c.has(kState)) c.node.fail(ErrorCode::kInvalidModel, "packed queries need input 'initial_state'");
    if (query.back() >= 0 && s.value_heads >= 0 && s.value_depth >= 0 && s.depth > 0) {
      const int64_t rest = query.back() - s.value_heads * s.value_depth;
      if (rest <= 0 || rest % (2 * s.depth) != 0)
        c.node.fail(ErrorCode::kInvalidModel, "packed queries " + to_string(query) + " do not fit the state");
      s.heads = rest / (2 * s.depth);
    }
    return;
  }
  s.heads = query[query.size() - 2], s.depth = query.back();
  const TypeInfo& value = c.input(kValue);
  if (value.ranked && value.shape.size() == query.size())
    s.value_heads = value.shape[value.shape.size() - 2], s.value_depth = value.shape.back();
}

Sizes sizes_of(const InferContext& c) {
  Sizes s;
  read_heads(c, s);
  s.tokens = kernel::product(s.lead, 0, s.lead.size());
  for (const int64_t n : s.lead)
    if (n < 0) s.tokens = -1;
  if (s.lead.size() == 2) {
    if (c.has(kStarts)) c.node.fail(ErrorCode::kInvalidModel, "'cu_seqlens' needs queries of rank 3, or packed of 2");
    if (s.sequences < 0) s.sequences = s.lead[0];
  } else if (c.has(kStarts)) {
    kernel::require_rank(c.node, c.input(kStarts), 1, "cu_seqlens");
    if (s.sequences < 0 && c.input(kStarts).ranked && c.input(kStarts).shape[0] > 0)
      s.sequences = c.input(kStarts).shape[0] - 1;
  } else if (!c.has(kState)) {
    c.node.fail(ErrorCode::kInvalidModel,
                "needs input 'initial_state' or 'cu_seqlens' to tell the number of sequences");
  }
  if (s.heads >= 0 && s.value_heads >= 0 && (s.heads == 0 || s.value_heads == 0 || s.value_heads % s.heads != 0))
    c.node.fail(ErrorCode::kInvalidModel, std::to_string(s.value_heads) + " heads of values are no multiple of " +
                                              std::to_string(s.heads) + " heads of queries");
  if (c.has(kDecay) && c.input(kDecay).ranked && c.input(kDecay).shape.size() == s.lead.size() + 2)
    s.decay_width = s.depth;
  const bool wide = s.decay_width != 1;
  require_shape(c, kKey, joined(s.lead, {s.heads, s.depth}), "key");
  require_shape(c, kValue, joined(s.lead, {s.value_heads, s.value_depth}), "value");
  require_shape(c, kDecay, wide ? joined(s.lead, {s.value_heads, s.depth}) : joined(s.lead, {s.value_heads}), "decay");
  require_shape(c, kRate, joined(s.lead, {s.value_heads}), "beta");
  require_shape(c, kState, {s.sequences, s.value_heads, s.value_depth, s.depth}, "initial_state");
  require_shape(c, kStarts, {s.sequences < 0 ? -1 : s.sequences + 1}, "cu_seqlens");
  require_shape(c, kGateFactor, {s.value_heads}, "a_log");
  require_shape(c, kCaptured, {s.sequences}, "capture_count");
  require_shape(c, kActive, {1}, "state_update_active");
  return s;
}

int64_t update_width(const Node& node, const Sizes& s) {
  if (s.heads < 0 || s.value_heads < 0 || s.depth < 0 || s.value_depth < 0 || s.decay_width < 0) return -1;
  return node.get_int("state_update_capacity", 0) *
         (s.value_heads * s.decay_width + s.heads * s.depth + s.value_heads * s.value_depth);
}

void infer_delta_net(InferContext& c) {
  check_operands(c);
  const DType type = c.input(kQuery).dtype;
  for (size_t i = 0; i < c.outputs.size(); ++i) c.outputs[i] = TypeInfo::unranked(i == 0 ? type : DType::kFloat);
  if (!c.input(kQuery).ranked) return;
  const Sizes s = sizes_of(c);
  const Shape shapes[] = {joined(s.lead, {s.value_heads, s.value_depth}),
                          {s.sequences, s.value_heads, s.value_depth, s.depth},
                          {s.sequences, update_width(c.node, s)}};
  for (size_t i = 0; i < c.outputs.size(); ++i)
    c.outputs[i] = TypeInfo::tensor(i == 0 ? type : DType::kFloat, shapes[i]);
}

/// What the operands say of one token, ready for its step.
class Tokens {
 public:
  Tokens(const EvalContext& c, const Sizes& s) : node_(c.node), s_(s) {
    const auto wide = [&](size_t i) { return c.has(i) ? kernel::widen(c.input(i)) : Tensor(); };
    query_ = wide(kQuery), key_ = wide(kKey), value_ = wide(kValue), decay_ = wide(kDecay), rate_ = wide(kRate);
    factor_ = wide(kGateFactor), bias_ = wide(kGateBias);
    const int64_t width = s.value_heads * s.decay_width;
    if (has_gate(node_) && has_decay(node_) && bias_.size() != width && bias_.size() != s.value_heads)
      node_.fail(ErrorCode::kInvalidModel, "input 'dt_bias' " + to_string(bias_.shape()) + " does not fit the decay");
  }

  std::vector<float> query(int64_t token, int64_t head) const { return vector(query_, 0, token, head); }
  std::vector<float> key(int64_t token, int64_t head) const {
    return vector(s_.packed ? query_ : key_, 1, token, head);
  }
  const float* value(int64_t token, int64_t head) const {
    if (!s_.packed) return elements<float>(value_) + (token * s_.value_heads + head) * s_.value_depth;
    const int64_t keys = 2 * s_.heads * s_.depth;
    return elements<float>(query_) + token * (keys + s_.value_heads * s_.value_depth) + keys + head * s_.value_depth;
  }
  /// exp(g) of element i of a head.
  float decay(int64_t token, int64_t head, int64_t i) const {
    if (decay_.size() == 0) return 1;
    const int64_t at = s_.decay_width == 1 ? head : head * s_.depth + i;
    float g = elements<float>(decay_)[token * s_.value_heads * s_.decay_width + at];
    const std::string gate = node_.get_string("gate_activation", "none");
    if (gate != "none") {
      g += elements<float>(bias_)[bias_.size() == s_.value_heads ? head : at];
      const float factor = std::exp(elements<float>(factor_)[head]);
      if (gate == "sigmoid" || gate == "kda")
        g = node_.get_float("gate_lower_bound", -5) * scalar::sigmoid(scalar::Number<float>{factor * g}).value;
      else
        g = -factor * scalar::softplus(scalar::Number<float>{g}).value;
    }
    return std::exp(g);
  }
  float rate(int64_t token, int64_t head) const {
    if (rate_.size() == 0) return 1;
    const float b = elements<float>(rate_)[token * s_.value_heads + head];
    return node_.get_string("beta_activation", "none") == "sigmoid" ? scalar::sigmoid(scalar::Number<float>{b}).value
                                                                    : b;
  }

 private:
  /// The query (part 0) or key (part 1) of a head, of length 1 if the node says so.
  std::vector<float> vector(const Tensor& t, int64_t part, int64_t token, int64_t head) const {
    const int64_t width = s_.packed ? 2 * s_.heads * s_.depth + s_.value_heads * s_.value_depth : s_.heads * s_.depth;
    const float* from =
        elements<float>(t) + token * width + (s_.packed ? part * s_.heads * s_.depth : 0) + head * s_.depth;
    std::vector<float> x(from, from + s_.depth);
    if (node_.get_int("qk_l2_norm", 0) == 0) return x;
    float sum = 0;
    for (const float v : x) sum += v * v;
    const float inverse = 1 / std::sqrt(sum + kNormGuard);
    for (float& v : x) v *= inverse;
    return x;
  }

  const Node& node_;
  const Sizes& s_;
  Tensor query_, key_, value_, decay_, rate_, factor_, bias_;
};

/// The first tokens of a sequence whose steps a row of state_update holds: decays, then keys, then differences.
struct Capture {
  float* row = nullptr;
  int64_t capacity = 0, count = 0;
};

/// One step of one head's state [value_depth, depth].
void step(const Node& node, const Sizes& s, const Tokens& tokens, int64_t token, int64_t head, int64_t local,
          float* state, const Capture& capture, float* result) {
  const int64_t shared = head / (s.value_heads / s.heads);
  const std::vector<float> key = tokens.key(token, shared), query = tokens.query(token, shared);
  std::vector<float> decays;
  for (int64_t i = 0; i < s.depth; ++i)
    decays.push_back(i > 0 && s.decay_width == 1 ? decays[0] : tokens.decay(token, head, i));
  const float* const value = tokens.value(token, head);
  const float rate = tokens.rate(token, head), given = node.get_float("scale", 0);
  const float scale = given != 0 ? given : 1 / std::sqrt(static_cast<float>(s.depth));
  const bool retrieves = has_rate(node), captured = local < capture.count;
  float* const decay_row = captured ? capture.row + (local * s.value_heads + head) * s.decay_width : nullptr;
  float* const keys = captured ? capture.row + capture.capacity * s.value_heads * s.decay_width : nullptr;
  float* const deltas =
      captured ? keys + capture.capacity * s.heads * s.depth + (local * s.value_heads + head) * s.value_depth : nullptr;
  if (captured) {
    std::copy_n(decays.begin(), s.decay_width, decay_row);
    std::copy(key.begin(), key.end(), keys + (local * s.heads + shared) * s.depth);
  }
  for (int64_t j = 0; j < s.value_depth; ++j) {
    float* const row = state + j * s.depth;
    float found = 0, sum = 0;
    for (int64_t i = 0; i < s.depth; ++i) {
      row[i] *= decays[static_cast<size_t>(i)];
      found += row[i] * key[static_cast<size_t>(i)];
    }
    const float delta = retrieves ? rate * (value[j] - found) : value[j];
    if (captured) deltas[j] = delta;
    for (int64_t i = 0; i < s.depth; ++i) {
      row[i] += delta * key[static_cast<size_t>(i)];
      sum += row[i] * query[static_cast<size_t>(i)];
    }
    result[j] = scale * sum;
  }
}

/// Where each sequence begins, and the end of the last.
std::vector<int64_t> starts_of(const EvalContext& c, const Sizes& s) {
  std::vector<int64_t> starts;
  if (c.has(kStarts)) {
    starts = c.input(kStarts).to_int64s();
    if (starts.empty() || starts.front() != 0 || starts.back() != s.tokens ||
        !std::is_sorted(starts.begin(), starts.end()))
      c.node.fail(ErrorCode::kInvalidArgument,
                  "'cu_seqlens' must rise from 0 to the " + std::to_string(s.tokens) + " tokens");
    return starts;
  }
  if (s.sequences == 0 || s.tokens % s.sequences != 0)
    c.node.fail(ErrorCode::kInvalidArgument, std::to_string(s.tokens) + " tokens do not divide into " +
                                                 std::to_string(s.sequences) + " sequences; give 'cu_seqlens'");
  for (int64_t b = 0; b <= s.sequences; ++b) starts.push_back(b * (s.tokens / s.sequences));
  return starts;
}

void evaluate_delta_net(EvalContext& c, const std::vector<TypeInfo>& types) {
  std::vector<TypeInfo> in, out(types.size());
  for (const Value& value : c.inputs) in.push_back(kernel::type_of(value));
  const Sizes s = sizes_of(InferContext{c.node, in, out});
  const std::vector<int64_t> starts = starts_of(c, s);
  const Tokens tokens(c, s);
  Tensor result(DType::kFloat, joined(s.lead, {s.value_heads, s.value_depth}));
  Tensor state(DType::kFloat, {s.sequences, s.value_heads, s.value_depth, s.depth});
  if (c.has(kState)) state = c.input(kState);
  Tensor update(DType::kFloat, {s.sequences, update_width(c.node, s)});
  const int64_t capacity = c.node.get_int("state_update_capacity", 0);
  const bool active = capacity > 0 && !(c.has(kActive) && c.input(kActive).at_int64(0) == 0);
  for (int64_t b = 0; b < s.sequences; ++b) {
    const int64_t begin = starts[static_cast<size_t>(b)], end = starts[static_cast<size_t>(b) + 1];
    Capture capture;
    if (active)
      capture = {mutable_elements<float>(update) + b * update.shape()[1], capacity,
                 std::clamp<int64_t>(c.input(kCaptured).at_int64(b), 0, capacity)};
    for (int64_t head = 0; head < s.value_heads; ++head)
      for (int64_t token = begin; token < end; ++token)
        step(c.node, s, tokens, token, head, token - begin,
             mutable_elements<float>(state) + (b * s.value_heads + head) * s.value_depth * s.depth, capture,
             mutable_elements<float>(result) + (token * s.value_heads + head) * s.value_depth);
  }
  c.outputs[0] = kernel::narrow(std::move(result), types[0].dtype);
  if (c.outputs.size() > 1) c.outputs[1] = std::move(state);
  if (c.outputs.size() > 2) c.outputs[2] = std::move(update);
}

}  // namespace delta_net

}  // namespace

void register_delta_net(Registry& registry) {
  kernel::add(registry, "GatedDeltaNet", 1, {1, 11}, delta_net::infer_delta_net, delta_net::evaluate_delta_net,
              {"beta_activation", "chunk_size", "gate_activation", "gate_lower_bound", "qk_l2_norm", "scale",
               "state_update_capacity", "update_rule"},
              {1, 3}, kMicrosoft);
}

}  // namespace tessera::ops
