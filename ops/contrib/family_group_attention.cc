// SPDX-License-Identifier: Apache-2.0
// GroupQueryAttention of domain com.microsoft, the attention of decoders that are exported for generation: several
// heads of queries share one head of keys and values, the caches of keys and values may be longer than what they hold,
// and each sequence of a batch has a length of its own. A sequence of T keys whose last S are new sees, from query s,
// the keys up to T - S + s, or all where `causal` is 0; local_window_size keeps as many of these, its own among them.
// Scores are q k^T times the scale, through softcap * tanh(scores / softcap), plus attention_bias; smooth softmax adds
// a term to the sum of each row. Caches that slide hold the last keys of the window, the oldest first. Narrow floats
// are computed in fp32.
#include <cmath>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

using kernel::elements;
using kernel::mutable_elements;

enum Input : size_t {
  kQuery,
  kKey,
  kValue,
  kPastKey,
  kPastValue,
  kLengths,
  kTotal,
  kCos,
  kSin,
  kPositions,
  kBias,
  kSink
};

/// Sizes that attributes and shapes tell; -1 where unknown.
struct Plan {
  int64_t heads = 0, groups = 0;  // of queries; of keys and values
  int64_t batch = -1, queries = -1, head_size = -1, cache = -1;
  bool packed = false;
};

/// Extent of a ranked operand, -1 where it is unknown.
int64_t extent(const TypeInfo& type, size_t axis) { return type.ranked ? type.shape.at(axis) : -1; }

void require_extent(const Node& node, int64_t have, int64_t want, const char* what) {
  if (have >= 0 && want >= 0 && have != want)
    node.fail(ErrorCode::kInvalidModel,
              std::string(what) + " is " + std::to_string(have) + " where " + std::to_string(want) + " is needed");
}

/// Whether the caches hold the last keys alone, the oldest first.
bool slides(const Node& node) { return node.get_int("sliding_window_cache", 0) != 0; }

/// What later versions of ONNX Runtime can make of a cache is known, and not all of it is served.
void require_plain_caches(const Node& node) {
  for (const char* name : {"k_quant_type", "v_quant_type"})
    if (node.get_string(name, "NONE") != "NONE")
      node.fail(ErrorCode::kUnsupported, "attribute '" + std::string(name) + "' = '" + node.get_string(name, "NONE") +
                                             "': quantised caches are not served; export it with caches of its type");
  if (slides(node) && node.get_int("local_window_size", -1) < 1)
    node.fail(ErrorCode::kInvalidModel, "sliding_window_cache needs a local_window_size");
  if (node.get_int("causal", 1) == 0 && node.get_int("local_window_size", -1) > 0)
    node.fail(ErrorCode::kInvalidModel, "local_window_size is of causal attention, and causal is 0");
}

Plan heads_of(const Node& node) {
  require_plain_caches(node);
  Plan plan;
  plan.heads = node.get_int("num_heads", 0);
  plan.groups = node.get_int("kv_num_heads", 0);
  if (plan.heads < 1 || plan.groups < 1 || plan.heads % plan.groups != 0)
    node.fail(ErrorCode::kInvalidModel, "num_heads = " + std::to_string(plan.heads) +
                                            " must be a multiple of kv_num_heads = " + std::to_string(plan.groups));
  return plan;
}

/// Ranks and extents of queries, keys, values and caches.
Plan plan_of(const InferContext& c) {
  Plan plan = heads_of(c.node);
  plan.packed = !c.has(kKey);
  if (plan.packed == c.has(kValue)) c.node.fail(ErrorCode::kInvalidModel, "key and value must be given together");
  const TypeInfo& query = c.input(kQuery);
  kernel::require_rank(c.node, query, 3, "the query");
  plan.batch = extent(query, 0);
  plan.queries = extent(query, 1);
  const int64_t parts = plan.packed ? plan.heads + 2 * plan.groups : plan.heads;
  const int64_t width = extent(query, 2);
  if (width >= 0 && width % parts != 0)
    c.node.fail(ErrorCode::kInvalidModel,
                std::to_string(width) + " channels do not make " + std::to_string(parts) + " heads");
  if (width >= 0) plan.head_size = width / parts;
  for (size_t i : {kKey, kValue}) {
    if (!c.has(i)) continue;
    const TypeInfo& other = c.input(i);
    kernel::require_rank(c.node, other, 3, "key and value");
    require_extent(c.node, extent(other, 0), plan.batch, "the batch of key or value");
    require_extent(c.node, extent(other, 1), plan.queries, "the length of key or value");
    require_extent(c.node, extent(other, 2), plan.head_size < 0 ? -1 : plan.groups * plan.head_size,
                   "the width of key or value");
  }
  if (c.has(kPastKey) != c.has(kPastValue))
    c.node.fail(ErrorCode::kInvalidModel, "past_key and past_value must be given together");
  plan.cache = c.has(kPastKey) ? -1 : 0;
  for (size_t i : {kPastKey, kPastValue}) {
    if (!c.has(i)) continue;
    const TypeInfo& past = c.input(i);
    kernel::require_rank(c.node, past, 4, "a cache");
    require_extent(c.node, extent(past, 0), plan.batch, "the batch of a cache");
    require_extent(c.node, extent(past, 1), plan.groups, "the heads of a cache");
    require_extent(c.node, extent(past, 3), plan.head_size, "the head size of a cache");
    if (plan.cache < 0) plan.cache = extent(past, 2);
    require_extent(c.node, extent(past, 2), plan.cache, "the length of a cache");
  }
  if (slides(c.node)) {
    const int64_t window = c.node.get_int("local_window_size", -1);
    if (!c.has(kPastKey)) c.node.fail(ErrorCode::kInvalidModel, "sliding_window_cache needs past_key and past_value");
    if (plan.cache >= 0 && plan.cache < window)
      c.node.fail(ErrorCode::kInvalidModel, "caches of " + std::to_string(plan.cache) +
                                                " keys are shorter than the window of " + std::to_string(window));
  }
  return plan;
}

void require_other_operands(const InferContext& c, const Plan& plan) {
  const TypeInfo& query = c.input(kQuery);
  kernel::require_type(c.node, query.dtype, kernel::kFloats, "the query");
  for (size_t i : {kKey, kValue, kPastKey, kPastValue, kCos, kSin, kBias, kSink})
    if (c.has(i)) kernel::require_same_type(c.node, query, c.input(i));
  for (size_t i : {kLengths, kTotal})
    kernel::require_type(c.node, c.input(i).dtype, kernel::set_of({DType::kInt32}), "a length");
  if (c.input(kLengths).is_static())
    require_extent(c.node, element_count(c.input(kLengths).shape), plan.batch, "the number of seqlens_k");
  if (c.node.get_int("do_rotary", 0) != 0) {
    for (size_t i : {kCos, kSin}) kernel::require_rank(c.node, c.input(i), 2, "cos_cache and sin_cache");
    const int64_t half = extent(c.input(kCos), 1);
    if (half >= 0 && plan.head_size >= 0 && 2 * half > plan.head_size)
      c.node.fail(ErrorCode::kInvalidModel, "cos_cache " + to_string(c.input(kCos).shape) + " turns more than a head");
  }
  if (c.has(kPositions)) {
    kernel::require_rank(c.node, c.input(kPositions), 2, "position_ids");
    require_extent(c.node, extent(c.input(kPositions), 0), plan.batch, "the batch of position_ids");
    require_extent(c.node, extent(c.input(kPositions), 1), plan.queries, "the length of position_ids");
  }
  if (c.has(kBias)) kernel::require_rank(c.node, c.input(kBias), 4, "attention_bias");
  if (c.has(kSink) && c.input(kSink).is_static())
    require_extent(c.node, element_count(c.input(kSink).shape), plan.heads, "the number of head_sink");
  if (c.outputs.size() > 3) c.node.fail(ErrorCode::kUnsupported, "the result output_qk is not served; leave it out");
}

void infer_group_attention(InferContext& c) {
  const Plan plan = plan_of(c);
  require_other_operands(c, plan);
  const DType type = c.input(kQuery).dtype;
  const int64_t width = plan.head_size < 0 ? -1 : plan.head_size * plan.heads;
  c.outputs[0] = TypeInfo::tensor(type, {plan.batch, plan.queries, width});
  int64_t length = -1;
  const TypeInfo& total = c.input(kTotal);
  if (slides(c.node))
    length = plan.cache;
  else if (total.constant && total.constant->size() == 1 && plan.cache >= 0)
    length = std::max(plan.cache, total.constant->at_int64(0));
  for (size_t i = 1; i < c.outputs.size(); ++i)
    c.outputs[i] = TypeInfo::tensor(type, {plan.batch, plan.groups, length, plan.head_size});
}

/// Turns the pairs of one head by the angles of a position.
template <typename T>
void rotate(T* head, const T* cos, const T* sin, int64_t half, bool interleaved) {
  for (int64_t i = 0; i < half; ++i) {
    T& a = head[interleaved ? 2 * i : i];
    T& b = head[interleaved ? 2 * i + 1 : i + half];
    const T real = a * cos[i] - b * sin[i], imaginary = b * cos[i] + a * sin[i];
    a = real;
    b = imaginary;
  }
}

/// One evaluation; operands in T, float or double.
template <typename T>
class GroupAttention {
 public:
  GroupAttention(EvalContext& c, const Plan& plan) : c_(c), plan_(plan) {
    for (size_t i = 0; i < c.inputs.size(); ++i) operands_.push_back(c.has(i) ? kernel::widen(c.input(i)) : Tensor());
    lengths_ = c.input(kLengths).to_int64s();
    total_ = c.input(kTotal).to_int64s().at(0);
    slides_ = slides(c.node);
    present_ = slides_ ? plan.cache : std::max(plan.cache, total_);
    staged_ = slides_ ? plan.cache + plan.queries : present_;
    for (int64_t& length : lengths_) {
      ++length;
      const int64_t least = first_prompt() ? 1 : plan.queries;
      if (length < least || length > total_)
        c.node.fail(ErrorCode::kInvalidModel, "seqlens_k holds " + std::to_string(length - 1) +
                                                  ", which does not fit " + std::to_string(plan.queries) +
                                                  " queries and " + std::to_string(total_) + " keys");
    }
    if (total_ < plan.queries)
      c.node.fail(ErrorCode::kInvalidModel, "total_sequence_length " + std::to_string(total_) +
                                                " is below the length of the query " + std::to_string(plan.queries));
  }

  void run(const std::vector<TypeInfo>& types) {
    const DType type = operands_[kQuery].dtype();
    const Shape cache = {plan_.batch, plan_.groups, staged_, plan_.head_size};
    Tensor y(type, types[0].shape), keys(type, cache), values(type, cache);
    Tensor queries(type, {plan_.batch, plan_.heads, plan_.queries, plan_.head_size});
    for (int64_t b = 0; b < plan_.batch; ++b) {
      for (int64_t n = 0; n < plan_.heads; ++n) gather(b, n, mutable_elements<T>(queries) + head_at(b, n), kQuery);
      for (int64_t g = 0; g < plan_.groups; ++g) {
        fill(keys, b, g, kPastKey, kKey);
        fill(values, b, g, kPastValue, kValue);
      }
      for (int64_t n = 0; n < plan_.heads; ++n)
        for (int64_t s = 0; s < plan_.queries; ++s)
          attend(elements<T>(queries) + head_at(b, n) + s * plan_.head_size, keys, values, b, n, s,
                 mutable_elements<T>(y) + ((b * plan_.queries + s) * plan_.heads + n) * plan_.head_size);
    }
    if (slides_) {
      keys = last_of(keys);
      values = last_of(values);
    }
    const Tensor* results[] = {&y, &keys, &values};
    for (size_t i = 0; i < c_.outputs.size(); ++i) c_.outputs[i] = kernel::narrow(*results[i], types[i].dtype);
  }

 private:
  bool first_prompt() const { return plan_.queries == total_; }
  /// How many keys of the cache a sequence has.
  int64_t past(int64_t b) const { return first_prompt() ? 0 : lengths_[static_cast<size_t>(b)] - plan_.queries; }
  /// How many of a sequence's first T keys a cache holds. One that slides drops as many at once as it has places beyond
  /// its window, and one more.
  int64_t held(int64_t keys) const {
    if (!slides_ || keys <= plan_.cache) return keys;
    const int64_t at_once = plan_.cache - c_.node.get_int("local_window_size", -1) + 1;
    return keys - at_once * ((keys - plan_.cache + at_once - 1) / at_once);
  }
  /// The first key that the cache of a sequence holds.
  int64_t oldest(int64_t b) const { return past(b) - held(past(b)); }
  int64_t head_at(int64_t b, int64_t n) const { return (b * plan_.heads + n) * plan_.queries * plan_.head_size; }

  /// Copies a head of all new positions to `out` [S,H]; queries and keys are turned to their positions.
  void gather(int64_t b, int64_t head, T* out, size_t which) const {
    const int64_t size = plan_.head_size, first = which == kQuery ? 0
                                                  : which == kKey ? plan_.heads
                                                                  : plan_.heads + plan_.groups;
    const int64_t row = plan_.packed ? plan_.heads + 2 * plan_.groups : which == kQuery ? plan_.heads : plan_.groups;
    const T* in = elements<T>(operands_[plan_.packed ? static_cast<size_t>(kQuery) : which]);
    for (int64_t s = 0; s < plan_.queries; ++s) {
      const T* from = in + ((b * plan_.queries + s) * row + (plan_.packed ? first : 0) + head) * size;
      std::copy(from, from + size, out + s * size);
      if (which != kValue && c_.node.get_int("do_rotary", 0) != 0) turn(out + s * size, b, s);
    }
  }

  void turn(T* head, int64_t b, int64_t s) const {
    const Tensor &cos = operands_[kCos], &sin = operands_[kSin];
    int64_t position = past(b) + s;
    if (c_.has(kPositions)) position = c_.input(kPositions).at_int64(b * plan_.queries + s);
    if (position < 0 || position >= cos.shape()[0] || sin.shape() != cos.shape())
      c_.node.fail(ErrorCode::kInvalidModel, "position " + std::to_string(position) + " is outside of cos_cache " +
                                                 to_string(cos.shape()) + " or sin_cache " + to_string(sin.shape()));
    const int64_t half = cos.shape()[1];
    rotate(head, elements<T>(cos) + position * half, elements<T>(sin) + position * half, half,
           c_.node.get_int("rotary_interleaved", 0) != 0);
  }

  /// The cache of a head: what it held, then the new positions; zeros behind.
  void fill(Tensor& cache, int64_t b, int64_t g, size_t past_input, size_t new_input) const {
    const int64_t size = plan_.head_size, before = held(past(b));
    T* out = mutable_elements<T>(cache) + (b * plan_.groups + g) * staged_ * size;
    if (before > plan_.cache)
      c_.node.fail(ErrorCode::kInvalidModel,
                   std::to_string(before) + " keys are to be in a cache of " + std::to_string(plan_.cache));
    if (before > 0) {
      const T* in = elements<T>(operands_[past_input]) + (b * plan_.groups + g) * plan_.cache * size;
      std::copy(in, in + before * size, out);
    }
    gather(b, g, out + before * size, new_input);
  }

  /// Caches [B,G,C,H] of what stays of the keys or values that were staged.
  Tensor last_of(const Tensor& staged) const {
    const int64_t size = plan_.head_size;
    Tensor last(staged.dtype(), {plan_.batch, plan_.groups, present_, size});
    for (int64_t b = 0; b < plan_.batch; ++b) {
      const int64_t length = lengths_[static_cast<size_t>(b)], kept = held(length);
      for (int64_t g = 0; g < plan_.groups; ++g) {
        const T* from = elements<T>(staged) + ((b * plan_.groups + g) * staged_ + length - kept - oldest(b)) * size;
        std::copy(from, from + kept * size, mutable_elements<T>(last) + (b * plan_.groups + g) * present_ * size);
      }
    }
    return last;
  }

  /// The row of one query of one head.
  void attend(const T* query, const Tensor& keys, const Tensor& values, int64_t b, int64_t n, int64_t s, T* out) const {
    const int64_t size = plan_.head_size,
                  cache = ((b * plan_.groups + n / (plan_.heads / plan_.groups)) * staged_ - oldest(b)) * size;
    const int64_t length = lengths_[static_cast<size_t>(b)];
    const int64_t end = c_.node.get_int("causal", 1) != 0 ? std::min(past(b) + s + 1, length) : length;
    const int64_t window = c_.node.get_int("local_window_size", -1);
    const int64_t begin = window > 0 ? std::max<int64_t>(0, end - window) : 0;
    const float given = c_.node.get_float("scale", 0), cap = c_.node.get_float("softcap", 0);
    const T scale = given != 0 ? static_cast<T>(given) : T{1} / std::sqrt(static_cast<T>(size));
    std::vector<T> scores;
    for (int64_t k = begin; k < end; ++k) {
      const T* key = elements<T>(keys) + (cache + k * size);
      T sum = 0;
      for (int64_t i = 0; i < size; ++i) sum += query[i] * key[i];
      sum *= scale;
      if (cap > 0) sum = static_cast<T>(cap) * std::tanh(sum / static_cast<T>(cap));
      scores.push_back(sum + bias(b, n, s, k));
    }
    normalise(scores, n);
    std::fill(out, out + size, T{0});
    for (int64_t k = begin; k < end; ++k) {
      const T* value = elements<T>(values) + (cache + k * size);
      for (int64_t i = 0; i < size; ++i) out[i] += scores[static_cast<size_t>(k - begin)] * value[i];
    }
  }

  T bias(int64_t b, int64_t n, int64_t s, int64_t k) const {
    if (!c_.has(kBias)) return 0;
    const Shape& shape = operands_[kBias].shape();
    const auto at = [&](size_t axis, int64_t i) {
      if (shape[axis] != 1 && i >= shape[axis])
        c_.node.fail(ErrorCode::kInvalidModel, "attention_bias " + to_string(shape) + " is too small");
      return shape[axis] == 1 ? 0 : i;
    };
    return elements<T>(
        operands_[kBias])[((at(0, b) * shape[1] + at(1, n)) * shape[2] + at(2, s)) * shape[3] + at(3, k)];
  }

  /// Softmax in place; a sink, or 0 for a smooth one, is one more score whose weight nobody takes.
  void normalise(std::vector<T>& scores, int64_t n) const {
    const bool sinks = c_.has(kSink), smooth = sinks || c_.node.get_int("smooth_softmax", 0) > 0;
    const T sink = sinks ? elements<T>(operands_[kSink])[n] : T{0};
    T top = smooth ? sink : -std::numeric_limits<T>::infinity(), sum = 0;
    for (const T score : scores) top = std::max(top, score);
    for (T& score : scores) sum += score = std::exp(score - top);
    if (smooth) sum += std::exp(sink - top);
    for (T& score : scores) score /= sum;
  }

  EvalContext& c_;
  const Plan plan_;
  std::vector<Tensor> operands_;
  std::vector<int64_t> lengths_;
  int64_t total_ = 0, present_ = 0, staged_ = 0;  // staged: what the caches held and all that is new
  bool slides_ = false;
};

void evaluate_group_attention(EvalContext& c, const std::vector<TypeInfo>& types) {
  std::vector<TypeInfo> inputs, outputs(c.outputs.size());
  for (const Value& value : c.inputs) inputs.push_back(kernel::type_of(value));
  const Plan plan = plan_of(InferContext{c.node, inputs, outputs});
  const bool is_double = c.input(kQuery).dtype() == DType::kDouble;
  if (is_double)
    GroupAttention<double>(c, plan).run(types);
  else
    GroupAttention<float>(c, plan).run(types);
}

}  // namespace

void register_group_attention(Registry& registry) {
  kernel::add(registry, "GroupQueryAttention", 1, {7, 12}, infer_group_attention, evaluate_group_attention,
              {"causal", "do_rotary", "k_norm_epsilon", "k_quant_type", "kv_cache_bit_width", "kv_num_heads",
               "local_window_size", "num_heads", "q_norm_epsilon", "qk_norm_epsilon", "qk_output", "rotary_interleaved",
               "scale", "sliding_window_cache", "smooth_softmax", "softcap", "v_quant_type"},
              {1, 4}, "com.microsoft");
}

}  // namespace tessera::ops
