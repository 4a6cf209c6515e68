// SPDX-License-Identifier: Apache-2.0
// Attention (opset 23 on): scaled dot products of queries and keys, masked, capped, through softmax, times values, with
// key and value caches, windows and grouped heads; and RotaryEmbedding of ONNX and of domain com.microsoft. From opset
// 25 on scores are capped before they are masked, and a row that is masked altogether is zero. fp16 and bfloat16 are
// computed in fp32 throughout, whatever softmax_precision says, and rounded once at each result.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/kernels/elementwise_kernel.h"
#include "ops/kernels/gemm_kernel.h"
#include "ops/kernels/product.h"

namespace tessera::ops {

namespace {

using kernel::elements;
using kernel::mutable_elements;

bool differ(int64_t a, int64_t b) { return a >= 0 && b >= 0 && a != b; }

// -------------------------------------------------------------------------------------------------------- Attention

/// Extents of a query, key or value as [batch, heads, length, width]; -1 unknown.
struct Heads {
  int64_t batch = -1, heads = -1, length = -1, width = -1;
};

/// Reads [B, N, S, H], or [B, S, N*H] with N from the attribute.
Heads heads_of(const Node& node, const TypeInfo& t, const char* attribute, const char* what) {
  Heads result;
  result.heads = node.get_int(attribute, -1);
  if (!t.ranked) return result;
  if (t.shape.size() == 4) {
    if (node.has(attribute) && differ(result.heads, t.shape[1]))
      node.fail(ErrorCode::kInvalidModel, std::string(what) + " " + to_string(t.shape) + " does not have " +
                                              std::to_string(result.heads) + " heads");
    return {t.shape[0], t.shape[1], t.shape[2], t.shape[3]};
  }
  if (t.shape.size() != 3)
    node.fail(ErrorCode::kInvalidModel, std::string(what) + " " + to_string(t.shape) + " must have rank 3 or 4");
  if (result.heads < 1)
    node.fail(ErrorCode::kInvalidModel, std::string("operands of rank 3 need attribute '") + attribute + "'");
  if (t.shape[2] >= 0 && t.shape[2] % result.heads != 0)
    node.fail(ErrorCode::kInvalidModel, std::string(what) + " " + to_string(t.shape) + " does not divide into " +
                                            std::to_string(result.heads) + " heads");
  return {t.shape[0], result.heads, t.shape[1], t.shape[2] < 0 ? -1 : t.shape[2] / result.heads};
}

int64_t total_length(const InferContext& c, const Heads& key, size_t past) {
  if (!c.has(past)) return key.length;
  const TypeInfo& t = c.input(past);
  kernel::require_rank(c.node, t, 4, "the past state");
  return !t.ranked || t.shape[2] < 0 || key.length < 0 ? -1 : t.shape[2] + key.length;
}

void infer_attention(InferContext& c) {
  const Node& node = c.node;
  const TypeInfo &q = c.input(0), &k = c.input(1), &v = c.input(2);
  for (const TypeInfo* t : {&q, &k, &v}) kernel::require_type(node, t->dtype, kernel::kFloats, "an operand");
  kernel::require_same_type(node, q, k);
  const Heads query = heads_of(node, q, "q_num_heads", "Q"), key = heads_of(node, k, "kv_num_heads", "K"),
              value = heads_of(node, v, "kv_num_heads", "V");
  if (differ(query.width, key.width) || differ(key.length, value.length) || differ(key.heads, value.heads) ||
      differ(query.batch, key.batch) || differ(query.batch, value.batch))
    node.fail(ErrorCode::kInvalidModel,
              "Q " + to_string(q.shape) + ", K " + to_string(k.shape) + " and V " + to_string(v.shape) + " do not fit");
  if (query.heads >= 0 && key.heads >= 0 && (key.heads == 0 ? query.heads != 0 : query.heads % key.heads != 0))
    node.fail(ErrorCode::kInvalidModel, std::to_string(query.heads) + " query heads do not divide among " +
                                            std::to_string(key.heads) + " key heads");
  if (c.has(4) != c.has(5)) node.fail(ErrorCode::kInvalidModel, "past_key and past_value go together");
  const int64_t total = total_length(c, key, 4);
  if (differ(total, total_length(c, value, 5)))
    node.fail(ErrorCode::kInvalidModel, "past_key and past_value differ in length");
  if (c.has(3) && c.input(3).dtype != DType::kBool) kernel::require_same_type(node, q, c.input(3));
  if (c.has(3) && c.input(3).ranked) {
    const Shape& mask = c.input(3).shape;
    const Shape whole = {query.batch, query.heads, query.length, total};
    bool fits = mask.size() <= 4 && !mask.empty();
    for (size_t d = 0; fits && d < mask.size(); ++d) {
      const int64_t extent = whole[4 - mask.size() + d];
      // A mask may be shorter than the keys: what it does not mention is masked.
      fits = mask[d] == 1 || !differ(mask[d], extent) || (d + 1 == mask.size() && mask[d] < extent);
    }
    if (!fits)
      node.fail(ErrorCode::kInvalidModel, "mask " + to_string(mask) + " does not broadcast to " + to_string(whole));
  }
  if (c.has(6)) {
    kernel::require_type(node, c.input(6).dtype, kernel::kInt64Set, "nonpad_kv_seqlen");
    kernel::require_rank(node, c.input(6), 1, "nonpad_kv_seqlen");
    if (c.input(6).ranked && differ(c.input(6).shape[0], query.batch))
      node.fail(ErrorCode::kInvalidModel, "nonpad_kv_seqlen does not fit the batch");
  }
  TypeInfo y = TypeInfo::unranked(q.dtype);
  if (q.ranked && q.shape.size() == 4)
    y = TypeInfo::tensor(q.dtype, {query.batch, query.heads, query.length, value.width});
  else if (q.ranked)
    y = TypeInfo::tensor(
        q.dtype, {query.batch, query.length, query.heads < 0 || value.width < 0 ? -1 : query.heads * value.width});
  const TypeInfo results[] = {y, TypeInfo::tensor(k.dtype, {key.batch, key.heads, total, key.width}),
                              TypeInfo::tensor(v.dtype, {value.batch, value.heads, total, value.width}),
                              TypeInfo::tensor(q.dtype, {query.batch, query.heads, query.length, total})};
  for (size_t i = 0; i < c.outputs.size(); ++i) c.outputs[i] = results[i];
}

/// The operand as a contiguous [B, N, S, H].
Tensor split_heads(const Tensor& x, const Heads& heads) {
  if (x.rank() == 4) return x;
  return permuted(x.reshaped({heads.batch, heads.length, heads.heads, heads.width}), {0, 2, 1, 3});
}

/// past and now joined along their third dimension.
Tensor joined(const Node& node, const Tensor& past, const Tensor& now) {
  return evaluate(Node{"", "Concat", 13, node.name, {{"axis", int64_t{2}}}, 1}, {past, now})[0].tensor;
}

/// Whether and how much a score (b, n, i, j) is shifted: -infinity where masked. Query i stands at position past + i of
/// the keys; where nonpad_kv_seqlen tells the length of a cache that is kept outside, the queries are its last tokens.
class Bias {
 public:
  Bias(const EvalContext& c, const Shape& scores, int64_t past)
      : rows_(scores[2]),
        past_(past),
        at_end_(c.has(6) && !c.has(4)),
        left_(c.node.get_int("left_window_size", -1)),
        right_(c.node.get_int("right_window_size", -1)) {
    if (c.node.get_int("is_causal", 0) != 0) right_ = 0;
    if (c.has(6)) lengths_ = c.input(6).to_int64s();
    if (!c.has(3)) return;
    const Tensor& mask = c.input(3);
    boolean_ = mask.dtype() == DType::kBool;
    values_ = mask.to_doubles();
    extent_ = mask.shape().back() == 1 ? scores[3] : mask.shape().back();
    Shape broadcast = scores;
    broadcast[3] = extent_;
    strides_ = broadcast_strides(mask.shape(), broadcast);
  }
  double at(int64_t b, int64_t n, int64_t i, int64_t j) const {
    constexpr double kMasked = -std::numeric_limits<double>::infinity();
    const int64_t length = lengths_.empty() ? 0 : lengths_[static_cast<size_t>(b)];
    const int64_t position = i + (at_end_ ? length - rows_ : past_);
    if (right_ >= 0 && j - position > right_) return kMasked;
    if (left_ >= 0 && position - j > left_) return kMasked;
    if (!lengths_.empty() && j >= length) return kMasked;
    if (values_.empty()) return 0.0;
    if (j >= extent_) return kMasked;
    const double value =
        values_[static_cast<size_t>(b * strides_[0] + n * strides_[1] + i * strides_[2] + j * strides_[3])];
    return boolean_ ? (value != 0.0 ? 0.0 : kMasked) : value;
  }

 private:
  int64_t rows_, past_;
  bool at_end_, boolean_ = false;
  int64_t left_, right_;  // window around a query's position; negative: without end
  int64_t extent_ = 0;
  std::vector<int64_t> lengths_, strides_;
  std::vector<double> values_;
};

/// In place: exp(x - max) / sum; a row of -infinity becomes NaN, as the formula says.
template <typename T>
void softmax(T* row, int64_t count) {
  T highest = -std::numeric_limits<T>::infinity();
  for (int64_t j = 0; j < count; ++j) highest = kernel::nan_max(highest, row[j]);
  T sum = 0;
  for (int64_t j = 0; j < count; ++j) sum += row[j] = std::exp(row[j] - highest);
  for (int64_t j = 0; j < count; ++j) row[j] /= sum;
}

/// q [B,N,S,H], k [B,M,T,H], v [B,M,T,W] -> y [B,N,S,W], and the scores at the stage that `mode` names into `shown` (if
/// it has room).
template <typename T>
void attend(const EvalContext& c, const Tensor& q, const Tensor& k, const Tensor& v, const Bias& bias, Tensor& y,
            Tensor* shown) {
  const int64_t heads = q.shape()[1], rows = q.shape()[2], width = q.shape()[3], total = k.shape()[2],
                out_width = v.shape()[3];
  const int64_t share = heads / k.shape()[1];
  const T scale =
      c.node.has("scale") ? static_cast<T>(c.node.get_float("scale", 1.0f)) : T{1} / std::sqrt(static_cast<T>(width));
  const T root = std::sqrt(scale), cap = static_cast<T>(c.node.get_float("softcap", 0.0f));
  const int64_t mode = c.node.get_int("qk_matmul_output_mode", 0);
  std::vector<T> queries(static_cast<size_t>(rows * width)), keys(static_cast<size_t>(total * width)),
      scores(static_cast<size_t>(rows * total));
  std::vector<bool> masked(static_cast<size_t>(rows));
  for (int64_t head = 0; head < q.shape()[0] * heads; ++head) {
    const int64_t b = head / heads, n = head % heads, key_head = b * k.shape()[1] + n / share;
    const auto keep = [&](int64_t stage) {
      if (shown != nullptr && mode == stage)
        std::copy(scores.begin(), scores.end(), mutable_elements<T>(*shown) + head * rows * total);
    };
    std::transform(elements<T>(q) + head * rows * width, elements<T>(q) + (head + 1) * rows * width, queries.begin(),
                   [&](T x) { return x * root; });
    std::transform(elements<T>(k) + key_head * total * width, elements<T>(k) + (key_head + 1) * total * width,
                   keys.begin(), [&](T x) { return x * root; });
    multiply<T>(rows, total, width, {queries.data(), width, 1}, {keys.data(), 1, width}, scores.data(), total);
    keep(0);
    if (cap > 0)
      for (T& score : scores) score = std::tanh(score / cap) * cap;
    keep(1);
    std::fill(masked.begin(), masked.end(), true);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < total; ++j) {
        const T shift = static_cast<T>(bias.at(b, n, i, j));
        scores[static_cast<size_t>(i * total + j)] += shift;
        if (shift != -std::numeric_limits<T>::infinity()) masked[static_cast<size_t>(i)] = false;
      }
    keep(2);
    for (int64_t i = 0; i < rows; ++i) {
      T* row = scores.data() + i * total;
      if (masked[static_cast<size_t>(i)])
        std::fill_n(row, total, T{0});  // whatever the scores were, NaN too
      else
        softmax(row, total);
    }
    keep(3);
    multiply<T>(rows, out_width, total, {scores.data(), total, 1},
                {elements<T>(v) + key_head * total * out_width, out_width, 1},
                mutable_elements<T>(y) + head * rows * out_width, out_width);
  }
}

void evaluate_attention(EvalContext& c, const std::vector<TypeInfo>& types) {
  const auto heads = [&](size_t i, const char* attribute, const char* what) {
    return heads_of(c.node, TypeInfo::tensor(c.input(i).dtype(), c.input(i).shape()), attribute, what);
  };
  const Heads query = heads(0, "q_num_heads", "Q"), key = heads(1, "kv_num_heads", "K"),
              value = heads(2, "kv_num_heads", "V");
  Tensor k = split_heads(c.input(1), key), v = split_heads(c.input(2), value);
  const int64_t past = c.has(4) ? c.input(4).shape()[2] : 0;
  if (c.has(4)) {
    for (const auto& [state, now] : {std::pair<const Tensor&, const Tensor&>(c.input(4), k),
                                     std::pair<const Tensor&, const Tensor&>(c.input(5), v)})
      if (state.dtype() != now.dtype() || state.shape()[0] != now.shape()[0] || state.shape()[1] != now.shape()[1] ||
          state.shape()[3] != now.shape()[3])
        c.node.fail(ErrorCode::kInvalidModel,
                    "the past state " + to_string(state.shape()) + " does not continue in " + to_string(now.shape()));
    k = joined(c.node, c.input(4), k);
    v = joined(c.node, c.input(5), v);
  }
  const Tensor q = kernel::widen(split_heads(c.input(0), query));
  const Tensor wide_k = kernel::widen(k), wide_v = kernel::widen(v);
  if (wide_v.dtype() != q.dtype()) c.node.fail(ErrorCode::kUnsupported, "values of another width than the keys");
  const Shape scores = {query.batch, query.heads, query.length, k.shape()[2]};
  Tensor y(q.dtype(), {query.batch, query.heads, query.length, value.width}), shown;
  if (c.outputs.size() > 3) shown = Tensor(q.dtype(), scores);
  const Bias bias(c, scores, past);
  kernel::visit_float(q.dtype(), [&]<typename T>(kernel::Tag<T>) {
    attend<T>(c, q, wide_k, wide_v, bias, y, c.outputs.size() > 3 ? &shown : nullptr);
  });
  if (c.input(0).rank() == 3)
    y = permuted(y, {0, 2, 1, 3}).reshaped({query.batch, query.length, query.heads * value.width});
  c.outputs[0] = kernel::narrow(y, types[0].dtype);
  if (c.outputs.size() > 1) c.outputs[1] = k;
  if (c.outputs.size() > 2) c.outputs[2] = v;
  if (c.outputs.size() > 3) c.outputs[3] = kernel::narrow(shown, types[3].dtype);
}

// -------------------------------------------------------------------------------------------------- RotaryEmbedding

/// Where the operands stand: ONNX has x, cos, sin, positions; com.microsoft has x, positions, cos, sin.
struct RotaryLayout {
  size_t cosine, sine, positions;
};
RotaryLayout rotary_layout(const Node& node) {
  return node.domain == "com.microsoft" ? RotaryLayout{2, 3, 1} : RotaryLayout{1, 2, 3};
}

/// Heads of x; com.microsoft may leave num_heads out, then the tables tell the width of a head.
Heads rotary_heads(const InferContext& c) {
  const TypeInfo& x = c.input(0);
  const TypeInfo& cosine = c.input(rotary_layout(c.node).cosine);
  if (cosine.ranked && cosine.shape.empty()) c.node.fail(ErrorCode::kInvalidModel, "the tables are scalars");
  if (c.node.domain == "com.microsoft" && x.ranked && x.shape.size() == 3 && c.node.get_int("num_heads", 0) == 0) {
    const int64_t width = cosine.ranked && cosine.shape.back() > 0 ? 2 * cosine.shape.back() : -1;
    if (x.shape[2] >= 0 && width > 0 && x.shape[2] % width != 0)
      c.node.fail(ErrorCode::kInvalidModel, "the tables do not fit " + to_string(x.shape));
    return {x.shape[0], x.shape[2] < 0 || width <= 0 ? -1 : x.shape[2] / width, x.shape[1], width};
  }
  if (x.ranked && x.shape.size() == 4) return {x.shape[0], x.shape[1], x.shape[2], x.shape[3]};
  return heads_of(c.node, x, "num_heads", "the input");
}

void infer_rotary(InferContext& c) {
  const Node& node = c.node;
  const RotaryLayout at = rotary_layout(node);
  kernel::require_type(node, c.input(0).dtype, kernel::kFloats, "the input");
  const Heads heads = rotary_heads(c);
  int64_t rotated = node.get_int("rotary_embedding_dim", 0);
  if (rotated == 0) rotated = heads.width;
  if (rotated >= 0 && (rotated % 2 != 0 || (heads.width >= 0 && rotated > heads.width)))
    node.fail(ErrorCode::kInvalidModel,
              std::to_string(rotated) + " rotated elements do not fit heads of " + std::to_string(heads.width));
  for (size_t i : {at.cosine, at.sine}) {
    kernel::require_same_type(node, c.input(0), c.input(i));
    if (!c.input(i).ranked) continue;
    const Shape& shape = c.input(i).shape;
    if (shape.size() != (c.has(at.positions) ? 2u : 3u) || (rotated >= 0 && differ(shape.back(), rotated / 2)))
      node.fail(ErrorCode::kInvalidModel,
                "table " + to_string(shape) + " does not fit " + std::to_string(rotated) + " rotated elements");
  }
  if (c.has(at.positions))
    kernel::require_type(node, c.input(at.positions).dtype, kernel::kInt64Set, "the position ids");
  c.outputs[0] = kernel::without_constant(c.input(0));
}

void evaluate_rotary(EvalContext& c, const std::vector<TypeInfo>& types) {
  const RotaryLayout at = rotary_layout(c.node);
  std::vector<TypeInfo> in;
  for (const Value& value : c.inputs) in.push_back(kernel::type_of(value));
  std::vector<TypeInfo> none;
  const Heads heads = rotary_heads({c.node, in, none});
  const Tensor x = kernel::widen(c.input(0)), cosine = kernel::widen(c.input(at.cosine)),
               sine = kernel::widen(c.input(at.sine));
  int64_t rotated = c.node.get_int("rotary_embedding_dim", 0);
  if (rotated == 0) rotated = heads.width;
  const int64_t half = rotated / 2;
  const bool interleaved = c.node.get_int("interleaved", 0) != 0;
  std::vector<int64_t> positions;
  if (c.has(at.positions)) positions = c.input(at.positions).to_int64s();
  const int64_t tokens = heads.batch * heads.length;
  const bool offset = positions.size() == 1 && tokens != 1;  // com.microsoft: one number, the first position
  if (!positions.empty() && !offset && static_cast<int64_t>(positions.size()) != tokens)
    c.node.fail(ErrorCode::kInvalidModel, "position ids do not fit");
  if (positions.empty() && cosine.size() != tokens * half)
    c.node.fail(ErrorCode::kInvalidModel, "the tables do not fit batch and length");
  Tensor y = x;
  kernel::visit_float(x.dtype(), [&]<typename T>(kernel::Tag<T>) {
    T* out = mutable_elements<T>(y);
    const T* source = elements<T>(x);
    for (int64_t token = 0; token < tokens; ++token) {
      const int64_t b = token / heads.length, s = token % heads.length;
      const int64_t entry = positions.empty() ? token
                            : offset          ? positions[0] + s
                                              : positions[static_cast<size_t>(token)];
      if (entry < 0 || (entry + 1) * half > cosine.size() || (entry + 1) * half > sine.size())
        c.node.fail(ErrorCode::kInvalidModel, "position " + std::to_string(entry) + " is outside the tables");
      for (int64_t n = 0; n < heads.heads; ++n) {
        const int64_t start =
            (x.rank() == 4 ? (b * heads.heads + n) * heads.length + s : token * heads.heads + n) * heads.width;
        for (int64_t i = 0; i < half; ++i) {
          const int64_t first = start + (interleaved ? 2 * i : i),
                        second = start + (interleaved ? 2 * i + 1 : half + i);
          const T cos_value = elements<T>(cosine)[entry * half + i], sin_value = elements<T>(sine)[entry * half + i];
          out[first] = cos_value * source[first] - sin_value * source[second];
          out[second] = sin_value * source[first] + cos_value * source[second];
        }
      }
    }
  });
  c.outputs[0] = kernel::narrow(y, types[0].dtype);
}

}  // namespace

void register_attention(Registry& registry) {
  const std::set<std::string> attributes = {"is_causal", "kv_num_heads", "q_num_heads",      "qk_matmul_output_mode",
                                            "scale",     "softcap",      "softmax_precision"};
  kernel::add(registry, "Attention", 23, {3, 6}, infer_attention, evaluate_attention, attributes, {1, 4});
  kernel::add(registry, "Attention", 24, {3, 7}, infer_attention, evaluate_attention, attributes, {1, 4});
  std::set<std::string> with_window = attributes;
  with_window.insert({"left_window_size", "right_window_size"});
  kernel::add(registry, "Attention", 25, {3, 7}, infer_attention, evaluate_attention, with_window, {1, 4});
  kernel::add(registry, "RotaryEmbedding", 23, {3, 4}, infer_rotary, evaluate_rotary,
              {"interleaved", "num_heads", "rotary_embedding_dim"});
  kernel::add(registry, "RotaryEmbedding", 1, {4, 4}, infer_rotary, evaluate_rotary,
              {"interleaved", "num_heads", "rotary_embedding_dim", "is_packed_batching", "scale"}, kernel::kOne,
              "com.microsoft");
}

}  // namespace tessera::ops
