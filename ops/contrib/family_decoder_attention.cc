// SPDX-License-Identifier: Apache-2.0
// DecoderMaskedMultiHeadAttention of domain com.microsoft, the attention of one new token that loops of token
// generation run. Of itself: the new key and value go into buffers [B,N,M,H] behind `past_sequence_length` others,
// which several beams share: `cache_indirection` says for each token of a beam from which beam of its batch it came. Of
// an encoder: key and value are whole [B,N,T,H]. Scores are q k^T times the scale, plus the mask's value where it is 0,
// plus attention_bias.
#include <cmath>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

namespace decoder {

using kernel::elements;
using kernel::mutable_elements;

enum Input : size_t { kQuery, kKey, kValue, kMask, kBias, kPastKey, kPastValue, kPast, kBeams, kOrigins, kProjection };

int64_t extent(const TypeInfo& type, size_t axis) { return type.ranked ? type.shape[axis] : -1; }

void require_shape(const InferContext& c, size_t i, const Shape& wanted, const char* what) {
  const TypeInfo& t = c.input(i);
  kernel::require_rank(c.node, t, static_cast<int64_t>(wanted.size()), what);
  for (size_t d = 0; t.ranked && d < wanted.size(); ++d)
    if (wanted[d] >= 0 && t.shape[d] >= 0 && wanted[d] != t.shape[d])
      c.node.fail(ErrorCode::kInvalidModel,
                  std::string(what) + " " + to_string(t.shape) + " must have shape " + to_string(wanted));
}

int64_t head_count(const Node& node) {
  const int64_t heads = node.get_int("num_heads", 0);
  if (heads < 1) node.fail(ErrorCode::kInvalidModel, "attribute 'num_heads' must be positive");
  return heads;
}

bool is_of_itself(const InferContext& c) { return c.has(kPastKey); }

void check_buffers(const InferContext& c, int64_t batch, int64_t heads, int64_t size) {
  if (c.node.get_int("past_present_share_buffer", 0) == 0 || !c.has(kPastValue) || !c.has(kPast))
    c.node.fail(ErrorCode::kUnsupported,
                "a past needs past_present_share_buffer = 1 and past_sequence_length, as in ONNX Runtime");
  const int64_t width = size < 0 ? -1 : heads * size;
  for (size_t i : {kKey, kValue}) require_shape(c, i, {batch, 1, width}, "a new key or value");
  for (size_t i : {kPastKey, kPastValue}) require_shape(c, i, {batch, heads, -1, size}, "a buffer");
  for (size_t i : {kPast, kBeams, kOrigins})
    if (c.has(i)) kernel::require_type(c.node, c.input(i).dtype, kernel::set_of({DType::kInt32}), "a length or beam");
  if (c.has(kOrigins)) kernel::require_rank(c.node, c.input(kOrigins), 3, "cache_indirection");
}

void infer_decoder(InferContext& c) {
  const int64_t heads = head_count(c.node);
  if (!c.has(kKey) || !c.has(kValue))
    c.node.fail(ErrorCode::kUnsupported, "packed queries, keys and values are not served: give them as three inputs");
  if (c.outputs.size() > 3) c.node.fail(ErrorCode::kUnsupported, "the result qk is not served; leave it out");
  const TypeInfo& query = c.input(kQuery);
  kernel::require_type(c.node, query.dtype, kernel::set_of({DType::kFloat}), "the query");
  for (size_t i : {kKey, kValue, kBias, kPastKey, kPastValue, kProjection})
    if (c.has(i)) kernel::require_same_type(c.node, query, c.input(i));
  require_shape(c, kQuery, {-1, 1, -1}, "the query");
  const int64_t batch = extent(query, 0), width = extent(query, 2);
  if (width >= 0 && width % heads != 0)
    c.node.fail(ErrorCode::kInvalidModel,
                std::to_string(width) + " channels do not make " + std::to_string(heads) + " heads");
  const int64_t size = width < 0 ? -1 : width / heads;
  if (is_of_itself(c))
    check_buffers(c, batch, heads, size);
  else
    for (size_t i : {kKey, kValue}) require_shape(c, i, {batch, heads, -1, size}, "a key or value of an encoder");
  if (c.has(kMask)) {
    kernel::require_type(c.node, c.input(kMask).dtype, kernel::set_of({DType::kInt32}), "the mask");
    require_shape(c, kMask, {batch, -1}, "the mask");
  }
  if (c.has(kBias)) kernel::require_rank(c.node, c.input(kBias), 4, "attention_bias");
  if (c.has(kProjection)) require_shape(c, kProjection, {width < 0 ? -1 : 3 * width}, "the bias");
  c.outputs[0] = TypeInfo::tensor(query.dtype, {batch, 1, width});
  for (size_t i = 1; i < c.outputs.size(); ++i) {
    if (!is_of_itself(c)) c.node.fail(ErrorCode::kInvalidModel, "attention of an encoder has no present key or value");
    c.outputs[i] = kernel::without_constant(c.input(kPastKey + i - 1));
  }
}

/// One evaluation: one query for each batch and head.
class Decoder {
 public:
  explicit Decoder(EvalContext& c)
      : c_(c), heads_(head_count(c.node)), batch_(c.input(kQuery).shape()[0]), width_(c.input(kQuery).shape()[2]) {
    size_ = width_ / heads_;
    itself_ = c.has(kPastKey);
    room_ = c.input(itself_ ? kPastKey : kKey).shape()[2];
    const int64_t past = itself_ ? c.input(kPast).at_int64(0) : 0;
    if (past < 0 || (itself_ && past >= room_))
      c.node.fail(ErrorCode::kInvalidArgument, "past_sequence_length " + std::to_string(past) +
                                                   " leaves no place in buffers of " + std::to_string(room_));
    keys_ = itself_ ? past + 1 : room_;
    if (c.has(kMask) && c.input(kMask).shape()[1] < keys_) too_small("the mask", kMask);
  }

  void run() {
    const Tensor keys = filled(kPastKey, kKey, 1), values = filled(kPastValue, kValue, 2);
    Tensor y(DType::kFloat, {batch_, 1, width_});
    for (int64_t b = 0; b < batch_; ++b)
      for (int64_t n = 0; n < heads_; ++n)
        attend(b, n, elements<float>(keys), elements<float>(values),
               mutable_elements<float>(y) + b * width_ + n * size_);
    c_.outputs[0] = std::move(y);
    for (size_t i = 1; i < c_.outputs.size(); ++i) c_.outputs[i] = i == 1 ? keys : values;
  }

 private:
  [[noreturn]] void too_small(const char* what, size_t i) const {
    c_.node.fail(ErrorCode::kInvalidArgument, std::string(what) + " " + to_string(c_.input(i).shape()) +
                                                  " is too small for " + std::to_string(keys_) + " keys");
  }

  /// What the projection adds to a channel of queries (0), keys (1) or values (2).
  float projection(int64_t part, int64_t channel) const {
    return c_.has(kProjection) ? elements<float>(c_.input(kProjection))[part * width_ + channel] : 0.0f;
  }

  /// The buffer with the new key or value in its place; the whole ones of an encoder as they are.
  Tensor filled(size_t past, size_t fresh, int64_t part) const {
    if (!itself_) return c_.input(fresh);
    Tensor buffer = c_.input(past);
    float* const out = mutable_elements<float>(buffer);
    const float* const in = elements<float>(c_.input(fresh));
    for (int64_t b = 0; b < batch_; ++b)
      for (int64_t channel = 0; channel < width_; ++channel) {
        const int64_t n = channel / size_, i = channel % size_;
        out[((b * heads_ + n) * room_ + keys_ - 1) * size_ + i] = in[b * width_ + channel] + projection(part, channel);
      }
    return buffer;
  }

  /// The batch from whose buffer beam `b` takes token k.
  int64_t origin(int64_t b, int64_t k) const {
    const int64_t beams = c_.has(kBeams) ? c_.input(kBeams).at_int64(0) : 1;
    if (!itself_ || beams <= 1 || k == keys_ - 1) return b;
    if (!c_.has(kOrigins)) c_.node.fail(ErrorCode::kInvalidArgument, "several beams need cache_indirection");
    const Shape& shape = c_.input(kOrigins).shape();
    if (shape[0] * beams < batch_ || shape[1] != beams || shape[2] < keys_) too_small("cache_indirection", kOrigins);
    const int32_t beam = elements<int32_t>(c_.input(kOrigins))[b * shape[2] + k];
    if (beam < 0 || beam >= beams)
      c_.node.fail(ErrorCode::kInvalidArgument, "cache_indirection names beam " + std::to_string(beam) + " of " +
                                                    std::to_string(beams) + "; give one of these");
    return b / beams * beams + beam;
  }

  float addend(int64_t b, int64_t n, int64_t k) const {
    float sum = 0;
    if (c_.has(kMask) && elements<int32_t>(c_.input(kMask))[b * c_.input(kMask).shape()[1] + k] == 0)
      sum = c_.node.get_float("mask_filter_value", -10000.0f);
    if (!c_.has(kBias)) return sum;
    const Shape& shape = c_.input(kBias).shape();
    if (shape[3] < keys_ || (shape[0] != 1 && b >= shape[0]) || (shape[1] != 1 && n >= shape[1]) || shape[2] < 1)
      too_small("attention_bias", kBias);
    const int64_t row = (shape[0] == 1 ? 0 : b) * shape[1] + (shape[1] == 1 ? 0 : n);
    return sum + elements<float>(c_.input(kBias))[row * shape[2] * shape[3] + k];
  }

  void attend(int64_t b, int64_t n, const float* keys, const float* values, float* out) const {
    const float given = c_.node.get_float("scale", 0);
    const float scale = given != 0 ? given : 1.0f / std::sqrt(static_cast<float>(size_));
    const float* const query = elements<float>(c_.input(kQuery)) + b * width_ + n * size_;
    std::vector<int64_t> rows;
    std::vector<float> scores;
    float top = -std::numeric_limits<float>::infinity(), whole = 0;
    for (int64_t k = 0; k < keys_; ++k) {
      rows.push_back(((origin(b, k) * heads_ + n) * room_ + k) * size_);
      float sum = 0;
      for (int64_t i = 0; i < size_; ++i) sum += (query[i] + projection(0, n * size_ + i)) * keys[rows.back() + i];
      scores.push_back(sum * scale + addend(b, n, k));
      top = std::max(top, scores.back());
    }
    for (float& score : scores) whole += score = std::exp(score - top);
    for (size_t k = 0; k < scores.size(); ++k)
      for (int64_t i = 0; i < size_; ++i) out[i] += scores[k] / whole * values[rows[k] + i];
  }

  EvalContext& c_;
  int64_t heads_, batch_, width_, size_ = 0, room_ = 0, keys_ = 0;
  bool itself_ = false;
};

}  // namespace decoder

}  // namespace

void register_decoder_attention(Registry& registry) {
  kernel::add(
      registry, "DecoderMaskedMultiHeadAttention", 1, {3, 11}, decoder::infer_decoder,
      [](EvalContext& c, const std::vector<TypeInfo>&) { decoder::Decoder(c).run(); },
      {"mask_filter_value", "num_heads", "output_qk", "past_present_share_buffer", "scale"}, {1, 4}, kMicrosoft);
}

}  // namespace tessera::ops
