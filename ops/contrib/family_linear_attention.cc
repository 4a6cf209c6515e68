// SPDX-License-Identifier: Apache-2.0
// Operators with a state that a decoder carries from token to token (opset 27): CausalConvWithState, a depthwise
// convolution over the past, and LinearAttention, whose state is one matrix a head. fp16 and bfloat16 are computed in
// fp32 and rounded once at each result; an activation sees the rounded convolution, as the standard's function has it.
#include <cmath>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

using namespace kernel;

constexpr TypeSet kStateTypes = set_of({DType::kFloat, DType::kFloat16, DType::kBfloat16});

/// Throws Error kInvalidModel when a known dimension of operand `i` differs from `wanted` (-1: any).
void require_shape(const InferContext& c, size_t i, const Shape& wanted, const char* what) {
  if (!c.has(i)) return;
  const TypeInfo& t = c.input(i);
  require_rank(c.node, t, static_cast<int64_t>(wanted.size()), what);
  if (!t.ranked) return;
  for (size_t d = 0; d < wanted.size(); ++d)
    if (wanted[d] >= 0 && t.shape[d] >= 0 && wanted[d] != t.shape[d])
      c.node.fail(ErrorCode::kInvalidModel,
                  std::string(what) + " has shape " + to_string(t.shape) + ", not " + to_string(wanted));
}

int64_t extent_at(const TypeInfo& t, size_t d) { return t.ranked ? t.shape[d] : -1; }

// ---------------------------------------------------------------------------------------------- CausalConvWithState

void infer_causal_conv(InferContext& c) {
  const std::string activation = c.node.get_string("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish")
    c.node.fail(ErrorCode::kInvalidModel, "activation '" + activation + "' is none of none, silu, swish");
  const TypeInfo &x = c.input(0), &w = c.input(1);
  require_type(c.node, x.dtype, kStateTypes, "input");
  for (size_t i = 1; i < 4; ++i)
    if (c.has(i)) require_same_type(c.node, x, c.input(i));
  require_rank(c.node, x, 3, "input");
  const int64_t channels = extent_at(x, 1);
  require_shape(c, 1, {channels, 1, -1}, "weight");
  if (extent_at(w, 2) == 0) c.node.fail(ErrorCode::kInvalidModel, "weight has no elements");
  const int64_t past = extent_at(w, 2) < 0 ? -1 : extent_at(w, 2) - 1;
  require_shape(c, 2, {channels}, "bias");
  require_shape(c, 3, {extent_at(x, 0), channels, past}, "past_state");
  c.outputs[0] = without_constant(x);
  if (c.outputs.size() > 1) c.outputs[1] = TypeInfo::tensor(x.dtype, {extent_at(x, 0), channels, past});
}

/// past (or zeros) and x joined along the last axis.
Tensor behind_the_past(const EvalContext& c, int64_t past) {
  const Tensor& x = c.input(0);
  const Shape& s = x.shape();
  Tensor joined(x.dtype(), {s[0], s[1], s[2] + past});
  const int64_t width = element_bytes(x.dtype());
  for (int64_t row = 0; row < s[0] * s[1]; ++row) {
    std::byte* to = joined.mutable_data() + row * (s[2] + past) * width;
    if (c.has(3)) std::copy_n(c.input(3).data() + row * past * width, past * width, to);
    std::copy_n(x.data() + row * s[2] * width, s[2] * width, to + past * width);
  }
  return joined;
}

void evaluate_causal_conv(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Shape shape = c.input(0).shape();
  const int64_t taps = c.input(1).shape()[2], past = taps - 1, length = shape[2];
  const Tensor joined = behind_the_past(c, past);
  const Tensor wide = widen(joined), weight = widen(c.input(1));
  const std::vector<float> bias = c.has(2) ? c.input(2).to_floats() : std::vector<float>(static_cast<size_t>(shape[1]));
  Tensor y(DType::kFloat, shape);
  float* out = mutable_elements<float>(y);
  for (int64_t row = 0; row < shape[0] * shape[1]; ++row) {
    const int64_t channel = row % shape[1];
    const float* x = elements<float>(wide) + row * (length + past);
    for (int64_t t = 0; t < length; ++t) {
      float sum = 0;
      for (int64_t k = 0; k < taps; ++k) sum = std::fma(x[t + k], elements<float>(weight)[channel * taps + k], sum);
      *out++ = sum + bias[static_cast<size_t>(channel)];
    }
  }
  Tensor result = narrow(std::move(y), types[0].dtype);
  if (c.node.get_string("activation", "none") != "none") {
    Tensor activated = widen(result);
    for (float& v : activated.as_mutable<float>()) v = v / (1.0f + std::exp(-v));
    result = narrow(std::move(activated), types[0].dtype);
  }
  c.outputs[0] = std::move(result);
  if (c.outputs.size() > 1) c.outputs[1] = gather_strided(joined, types[1].shape, length, row_strides(joined.shape()));
}

// -------------------------------------------------------------------------------------------------- LinearAttention

struct Rule {
  bool decays, corrects;
};

Rule rule_of(const Node& node) {
  const std::string rule = node.get_string("update_rule", "gated_delta");
  if (rule != "linear" && rule != "gated" && rule != "delta" && rule != "gated_delta")
    node.fail(ErrorCode::kInvalidModel, "update_rule '" + rule + "' is none of linear, gated, delta, gated_delta");
  return {rule.starts_with("gated"), rule.ends_with("delta")};
}

int64_t per_head(const Node& node, const TypeInfo& t, int64_t heads, const char* what) {
  require_rank(node, t, 3, what);
  if (extent_at(t, 2) >= 0 && extent_at(t, 2) % heads != 0)
    node.fail(ErrorCode::kInvalidModel, std::string(what) + " " + to_string(t.shape) + " does not divide into " +
                                            std::to_string(heads) + " heads");
  return extent_at(t, 2) < 0 ? -1 : extent_at(t, 2) / heads;
}

void infer_linear_attention(InferContext& c) {
  const Node& node = c.node;
  const int64_t q_heads = node.get_int("q_num_heads", 0), heads = node.get_int("kv_num_heads", 0);
  if (q_heads < 1 || heads < 1 || q_heads % heads != 0)
    node.fail(ErrorCode::kInvalidModel,
              "q_num_heads " + std::to_string(q_heads) + " is no multiple of kv_num_heads " + std::to_string(heads));
  const Rule rule = rule_of(node);
  if (rule.decays != c.has(4) || rule.corrects != c.has(5))
    node.fail(ErrorCode::kInvalidModel, "update_rule '" + node.get_string("update_rule", "gated_delta") + "' " +
                                            (rule.decays ? "needs" : "forbids") + " decay and " +
                                            (rule.corrects ? "needs" : "forbids") + " beta");
  const TypeInfo& q = c.input(0);
  for (size_t i : {0, 1, 2, 4, 5}) {
    if (!c.has(i)) continue;
    require_type(node, c.input(i).dtype, kStateTypes, "operand");
    require_same_type(node, q, c.input(i));
  }
  const int64_t width = per_head(node, q, q_heads, "query"), value = per_head(node, c.input(2), heads, "value");
  const int64_t batch = extent_at(q, 0), length = extent_at(q, 1);
  require_shape(c, 1, {batch, length, width < 0 ? -1 : width * heads}, "key");
  require_shape(c, 2, {batch, length, -1}, "value");
  require_shape(c, 3, {batch, heads, width, value}, "past_state");
  for (size_t i : {4, 5}) {
    if (!c.has(i)) continue;
    require_shape(c, i, {batch, length, -1}, i == 4 ? "decay" : "beta");
    const int64_t last = extent_at(c.input(i), 2), whole = i == 4 ? heads * width : 1;
    if (last >= 0 && last != heads && width >= 0 && last != whole)
      node.fail(ErrorCode::kInvalidModel, std::string(i == 4 ? "decay " : "beta ") + to_string(c.input(i).shape) +
                                              " must have " + std::to_string(heads) + " or " + std::to_string(whole) +
                                              " columns");
  }
  const DType state = c.has(3) ? c.input(3).dtype : q.dtype;
  require_type(node, state, kStateTypes, "past_state");
  c.outputs[0] = TypeInfo::tensor(q.dtype, {batch, length, value < 0 ? -1 : value * q_heads});
  if (c.outputs.size() > 1) c.outputs[1] = TypeInfo::tensor(state, {batch, heads, width, value});
}

/// One head of keys and values through all steps; `state` is [width, value]. Rows of the operands lie `stride` apart.
struct LinearHead {
  const float *key, *value, *decay, *beta;  // decay and beta may be absent
  int64_t width, value_width, decay_width;
  float* state;

  void update(int64_t key_at, int64_t value_at, int64_t decay_at, int64_t beta_at, std::vector<float>& written) const {
    const float* k = key + key_at;
    if (decay != nullptr)
      for (int64_t d = 0; d < width; ++d) {
        const float factor = std::exp(decay[decay_at + (decay_width == 1 ? 0 : d)]);
        for (int64_t m = 0; m < value_width; ++m) state[d * value_width + m] *= factor;
      }
    for (int64_t m = 0; m < value_width; ++m) {
      float v = value[value_at + m];
      if (beta != nullptr) {
        float retrieved = 0;
        for (int64_t d = 0; d < width; ++d) retrieved = std::fma(state[d * value_width + m], k[d], retrieved);
        v = beta[beta_at] * (v - retrieved);
      }
      written[static_cast<size_t>(m)] = v;
    }
    for (int64_t d = 0; d < width; ++d)
      for (int64_t m = 0; m < value_width; ++m)
        state[d * value_width + m] = std::fma(k[d], written[static_cast<size_t>(m)], state[d * value_width + m]);
  }

  void read(const float* query, float scale, float* out) const {
    for (int64_t m = 0; m < value_width; ++m) {
      float sum = 0;
      for (int64_t d = 0; d < width; ++d) sum = std::fma(query[d], state[d * value_width + m], sum);
      out[m] = scale * sum;
    }
  }
};

void evaluate_linear_attention(EvalContext& c, const std::vector<TypeInfo>& types) {
  const int64_t q_heads = c.node.get_int("q_num_heads", 0), heads = c.node.get_int("kv_num_heads", 0);
  const Tensor q = widen(c.input(0)), k = widen(c.input(1)), v = widen(c.input(2));
  const Tensor decay = c.has(4) ? widen(c.input(4)) : Tensor(), beta = c.has(5) ? widen(c.input(5)) : Tensor();
  const int64_t batch = q.shape()[0], length = q.shape()[1], width = q.shape()[2] / q_heads,
                value_width = v.shape()[2] / heads, share = q_heads / heads;
  const int64_t decay_columns = c.has(4) ? decay.shape()[2] : 0, beta_columns = c.has(5) ? beta.shape()[2] : 0;
  const float given = c.node.get_float("scale", 0.0f);
  const float scale = given == 0.0f ? 1.0f / std::sqrt(static_cast<float>(width)) : given;
  Tensor state(DType::kFloat, {batch, heads, width, value_width}), y(DType::kFloat, types[0].shape);
  if (c.has(3)) {
    const std::vector<float> past = c.input(3).to_floats();
    std::copy(past.begin(), past.end(), mutable_elements<float>(state));
  }
  std::vector<float> written(static_cast<size_t>(value_width));
  const auto data = [](const Tensor& t) { return t.size() == 0 ? nullptr : elements<float>(t); };
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t decay_width = decay_columns / heads;
      const LinearHead head{
          data(k), data(v),     data(decay), data(beta),
          width,   value_width, decay_width, mutable_elements<float>(state) + (b * heads + h) * width * value_width};
      for (int64_t t = 0; t < length; ++t) {
        const int64_t row = b * length + t;
        head.update((row * heads + h) * width, (row * heads + h) * value_width, row * decay_columns + h * decay_width,
                    row * beta_columns + (beta_columns == heads ? h : 0), written);
        for (int64_t n = h * share; n < (h + 1) * share; ++n)
          head.read(elements<float>(q) + (row * q_heads + n) * width, scale,
                    mutable_elements<float>(y) + (row * q_heads + n) * value_width);
      }
    }
  c.outputs[0] = narrow(std::move(y), types[0].dtype);
  if (c.outputs.size() > 1) c.outputs[1] = narrow(std::move(state), types[1].dtype);
}

}  // namespace

void register_linear_attention(Registry& r) {
  add(r, "CausalConvWithState", 27, {2, 4}, infer_causal_conv, evaluate_causal_conv, {"activation"}, {1, 2});
  add(r, "LinearAttention", 27, {3, 6}, infer_linear_attention, evaluate_linear_attention,
      {"chunk_size", "kv_num_heads", "q_num_heads", "scale", "update_rule"}, {1, 2});
}

}  // namespace tessera::ops
