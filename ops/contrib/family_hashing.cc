// SPDX-License-Identifier: Apache-2.0
// Hashes of domain com.microsoft: MurmurHash3 of numbers and texts, and NGramHashMapping, which gives the rows of an
// embedding for the last tokens up to each position. VarlenNGramHashMapping does so for requests one behind another.
#include <bit>
#include <cstring>

#include "ops/contrib/packed_batch.h"

namespace tessera::ops {

namespace {

namespace hashing {

using kernel::elements;
using kernel::mutable_elements;

// -------------------------------------------------------------------------------------------------------- MurmurHash3

/// The 32-bit variant of the algorithm for x86 (Appleby, public domain): blocks of four bytes, then what is left over.
uint32_t murmur(const unsigned char* key, size_t length, uint32_t hash) {
  const auto scrambled = [](uint32_t k) { return std::rotl(k * 0xcc9e2d51U, 15) * 0x1b873593U; };
  const size_t whole = length / 4 * 4;
  for (size_t i = 0; i < whole; i += 4) {
    uint32_t block = 0;
    std::memcpy(&block, key + i, 4);
    hash = std::rotl(hash ^ scrambled(block), 13) * 5 + 0xe6546b64U;
  }
  uint32_t rest = 0;
  for (size_t i = length; i > whole; --i) rest = rest << 8 | key[i - 1];
  if (length > whole) hash ^= scrambled(rest);
  hash ^= static_cast<uint32_t>(length);
  hash = (hash ^ hash >> 16) * 0x85ebca6bU;
  hash = (hash ^ hash >> 13) * 0xc2b2ae35U;
  return hash ^ hash >> 16;
}

void infer_murmur(InferContext& c) {
  const TypeInfo& x = c.input(0);
  kernel::require_type(c.node, x.dtype,
                       kernel::set_of({DType::kInt32, DType::kUint32, DType::kInt64, DType::kUint64, DType::kFloat,
                                       DType::kDouble, DType::kString}),
                       "the keys");
  c.outputs[0] = kernel::without_constant(x, c.node.get_int("positive", 1) != 0 ? DType::kUint32 : DType::kInt32);
}

void evaluate_murmur(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor& x = c.input(0);
  const auto seed = static_cast<uint32_t>(c.node.get_int("seed", 0));
  Tensor y(types[0].dtype, x.shape());
  auto* const out = mutable_elements<uint32_t>(y);
  const auto bytes = static_cast<size_t>(element_bytes(x.dtype()));
  for (int64_t i = 0; i < x.size(); ++i) {
    if (x.dtype() == DType::kString) {
      const std::string& text = x.strings()[static_cast<size_t>(i)];
      out[i] = murmur(reinterpret_cast<const unsigned char*>(text.data()), text.size(), seed);
    } else {
      const auto* const from = reinterpret_cast<const unsigned char*>(x.data()) + static_cast<size_t>(i) * bytes;
      out[i] = murmur(from, bytes, seed);
    }
  }
  c.outputs[0] = std::move(y);
}

// --------------------------------------------------------------------------------------------------- NGramHashMapping

/// Operands; VarlenNGramHashMapping has the borders of requests at kPast, the next ones one place later, and two more.
enum Input : size_t { kIds, kMultipliers, kSizes, kPast, kOffsets, kEnd, kSegments, kPastSegments, kCaptured };

/// Orders 2 to `most`, each with `heads` rows.
struct Orders {
  int64_t most = 0, heads = 0;
  int64_t columns() const { return (most - 1) * heads; }
};

Orders orders_of(const Node& node) {
  const Orders orders{node.get_int("max_ngram_size", 0), node.get_int("n_head_per_ngram", 0)};
  constexpr int64_t kMost = 1 << 16;
  if (orders.most < 2 || orders.most > kMost || orders.heads < 1 || orders.heads > kMost)
    node.fail(ErrorCode::kInvalidModel, "max_ngram_size must be 2 or more and n_head_per_ngram 1 or more");
  return orders;
}

void require_length(const Node& node, const TypeInfo& t, int64_t least, bool more, const char* what) {
  if (!t.is_static()) return;
  const int64_t have = element_count(t.shape);
  if (have < least || (have > least && !more))
    node.fail(ErrorCode::kInvalidModel, std::string(what) + " has " + std::to_string(have) + " elements where " +
                                            std::to_string(least) + " are needed");
}

/// Rows [B,S,columns], and the last ids [B,most-1].
void infer_ngrams(InferContext& c) {
  const TypeInfo& ids = c.input(kIds);
  kernel::require_type(c.node, ids.dtype, kernel::kIndex, "input_ids");
  kernel::require_rank(c.node, ids, 2, "input_ids");
  for (size_t i : {kMultipliers, kSizes, kPast, kOffsets, kEnd})
    if (c.has(i)) kernel::require_same_type(c.node, ids, c.input(i));
  const Orders orders = orders_of(c.node);
  require_length(c.node, c.input(kMultipliers), orders.most, true, "multipliers");
  require_length(c.node, c.input(kSizes), orders.columns(), false, "vocab_sizes");
  if (c.has(kOffsets)) require_length(c.node, c.input(kOffsets), orders.columns(), false, "head_offsets");
  if (c.has(kEnd)) require_length(c.node, c.input(kEnd), 1, false, "eos_token_id");
  const int64_t batch = ids.ranked ? ids.shape[0] : -1, length = ids.ranked ? ids.shape[1] : -1;
  if (c.has(kPast) && batch >= 0) require_length(c.node, c.input(kPast), batch * (orders.most - 1), false, "past_ids");
  if (c.has(kSegments) && batch >= 0 && length >= 0)
    require_length(c.node, c.input(kSegments), batch * length, false, "segment_ids");
  c.outputs[0] = TypeInfo::tensor(ids.dtype, {batch, length, orders.columns()});
  if (c.outputs.size() > 1) c.outputs[1] = TypeInfo::tensor(ids.dtype, {batch, orders.most - 1});
}

/// What the rows of all tokens depend on, beside the tokens themselves.
template <typename T>
struct Hashes {
  Orders orders;
  const T *multipliers, *sizes, *offsets, *end;  // no offsets and no end: null
  bool resets;
  T missing;  // stands for a token that is not seen

  Hashes(const EvalContext& c, size_t shift) : orders(orders_of(c.node)) {
    const auto all = [&](size_t i) { return c.has(i) ? elements<T>(c.input(i)) : nullptr; };
    multipliers = all(kMultipliers);
    sizes = all(kSizes);
    offsets = all(kOffsets + shift);
    end = all(kEnd + shift);
    resets = end && c.node.get_int("reset_on_eos", 0) != 0;
    missing = end ? *end : static_cast<T>(c.node.get_int("pad_id", 0));
    for (int64_t k = 0; k < orders.columns(); ++k)
      if (sizes[k] < 1)
        c.node.fail(ErrorCode::kInvalidArgument,
                    "vocab_sizes holds " + std::to_string(sizes[k]) + "; give sizes of 1 or more");
  }

  /// Rows of the ids behind those of the past. `segments`: of all ids, or none.
  /// Sums and products wrap as the ids' type does.
  T* rows(const std::vector<T>& ids, const std::vector<int32_t>& segments, T* out) const {
    using Bits = std::make_unsigned_t<T>;
    for (auto last = static_cast<size_t>(orders.most - 1); last < ids.size(); ++last) {
      Bits mix = 0;
      bool seen = true;  // no end and no border of segments stands between
      for (int64_t n = 0; n < orders.most; ++n) {
        const size_t at = last - static_cast<size_t>(n);
        if (n > 0 && resets && ids[at] == *end) seen = false;
        if (n > 0 && !segments.empty() && segments[at + 1] != segments[at]) seen = false;
        mix ^= static_cast<Bits>(seen ? ids[at] : missing) * static_cast<Bits>(multipliers[n]);
        for (int64_t h = 0; n > 0 && h < orders.heads; ++h) {
          const int64_t column = (n - 1) * orders.heads + h;
          T row = static_cast<T>(static_cast<T>(mix) % sizes[column]);
          if (row < 0) row = static_cast<T>(row + sizes[column]);
          *out++ = static_cast<T>(static_cast<Bits>(row) + (offsets ? static_cast<Bits>(offsets[column]) : Bits{0}));
        }
      }
    }
    return out;
  }
};

/// `before` elements of the past of item `item`, or as many times `missing`, then `count` of this call.
template <typename T>
std::vector<T> with_past(const EvalContext& c, size_t past, int64_t item, int64_t before, T missing, const T* now,
                         int64_t count) {
  std::vector<T> all(static_cast<size_t>(before), missing);
  if (c.has(past)) std::copy_n(elements<T>(c.input(past)) + item * before, before, all.begin());
  all.insert(all.end(), now, now + count);
  return all;
}

/// The segments of the ids; none where the operand is absent. A past that is not given belongs to the first segment.
constexpr size_t kNone = 99;  // no operand
std::vector<int32_t> segments_of(const EvalContext& c, size_t now, size_t past, int64_t item, int64_t before,
                                 int64_t first, int64_t count) {
  if (!c.has(now) || count == 0) return {};
  const int32_t* const own = elements<int32_t>(c.input(now)) + first;
  return with_past(c, past, item, before, *own, own, count);
}

template <typename T>
void hash_ngrams(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Hashes<T> hashes(c, 0);
  const Shape& shape = c.input(kIds).shape();
  const int64_t batch = shape[0], length = shape[1], before = hashes.orders.most - 1;
  Tensor rows(types[0].dtype, types[0].shape), present(types[0].dtype, {batch, before});
  T* out = mutable_elements<T>(rows);
  for (int64_t b = 0; b < batch; ++b) {
    const std::vector<T> ids =
        with_past(c, kPast, b, before, hashes.missing, elements<T>(c.input(kIds)) + b * length, length);
    std::copy(ids.end() - before, ids.end(), mutable_elements<T>(present) + b * before);
    out = hashes.rows(ids, segments_of(c, kSegments, kNone, b, before, b * length, length), out);
  }
  c.outputs[0] = std::move(rows);
  if (c.outputs.size() > 1) c.outputs[1] = std::move(present);
}

void evaluate_ngrams(EvalContext& c, const std::vector<TypeInfo>& types) {
  if (types[0].dtype == DType::kInt32)
    hash_ngrams<int32_t>(c, types);
  else
    hash_ngrams<int64_t>(c, types);
}

// --------------------------------------------------------------------------------------------- VarlenNGramHashMapping

constexpr size_t kBorders = 3, kShift = 1;  // operands behind the borders

/// Rows [T,columns] of the tokens of several requests, one request behind another; the last ids and segments of each
/// [B,most-1], and the last ids behind each of its first tokens [B,capacity,most-1].
void infer_packed_ngrams(InferContext& c) {
  const TypeInfo &ids = c.input(kIds), &borders = c.input(kBorders);
  kernel::require_type(c.node, ids.dtype, kernel::kIndex, "input_ids");
  kernel::require_rank(c.node, ids, 1, "input_ids");
  kernel::require_rank(c.node, borders, 1, "cumulative_sequence_length");
  for (size_t i : {size_t{kMultipliers}, size_t{kSizes}, kPast + kShift, kOffsets + kShift, kEnd + kShift})
    if (c.has(i)) kernel::require_same_type(c.node, ids, c.input(i));
  for (size_t i : {kBorders, kSegments + kShift, kPastSegments + kShift, kCaptured + kShift})
    if (c.has(i)) kernel::require_type(c.node, c.input(i).dtype, kernel::set_of({DType::kInt32}), "an operand");
  const Orders orders = orders_of(c.node);
  const int64_t tokens = ids.ranked ? ids.shape[0] : -1, capacity = c.node.get_int("state_update_capacity", 0);
  const int64_t batch = borders.ranked && borders.shape[0] >= 0 ? borders.shape[0] - 1 : -1;
  if (batch == -1 && borders.is_static()) c.node.fail(ErrorCode::kInvalidModel, "cumulative_sequence_length is empty");
  require_length(c.node, c.input(kMultipliers), orders.most, true, "multipliers");
  require_length(c.node, c.input(kSizes), orders.columns(), false, "vocab_sizes");
  const auto require = [&](size_t i, int64_t count, const char* what) {
    if (c.has(i) && count >= 0) require_length(c.node, c.input(i), count, false, what);
  };
  require(kOffsets + kShift, orders.columns(), "head_offsets");
  require(kEnd + kShift, 1, "eos_token_id");
  require(kPast + kShift, batch * (orders.most - 1), "past_ids");
  require(kSegments + kShift, tokens, "segment_ids");
  require(kPastSegments + kShift, batch * (orders.most - 1), "past_segment_ids");
  require(kCaptured + kShift, batch, "capture_count");
  if (capacity < 0 || capacity > 8 || (capacity > 0) != c.has(kCaptured + kShift))
    c.node.fail(ErrorCode::kInvalidModel, "state_update_capacity is 0 to 8, and positive where capture_count is given");
  const Shape shapes[] = {{tokens, orders.columns()},
                          {batch, orders.most - 1},
                          {batch, orders.most - 1},
                          {batch, capacity, orders.most - 1}};
  for (size_t i = 0; i < c.outputs.size(); ++i)
    c.outputs[i] = TypeInfo::tensor(i == 2 ? DType::kInt32 : ids.dtype, shapes[i]);
}

template <typename T>
void hash_packed_ngrams(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Hashes<T> hashes(c, kShift);
  const std::vector<int64_t> borders = c.input(kBorders).to_int64s();
  const int64_t before = hashes.orders.most - 1, capacity = c.node.get_int("state_update_capacity", 0);
  Tensor rows(types[0].dtype, types[0].shape);
  std::vector<T> present, updates;
  std::vector<int32_t> present_segments;
  T* out = mutable_elements<T>(rows);
  for (size_t b = 0; b + 1 < borders.size(); ++b) {
    const int64_t first = borders[b], count = borders[b + 1] - first, item = static_cast<int64_t>(b);
    const std::vector<T> ids =
        with_past(c, kPast + kShift, item, before, hashes.missing, elements<T>(c.input(kIds)) + first, count);
    const std::vector<int32_t> segments =
        segments_of(c, kSegments + kShift, kPastSegments + kShift, item, before, first, count);
    out = hashes.rows(ids, segments, out);
    present.insert(present.end(), ids.end() - before, ids.end());
    if (!segments.empty()) present_segments.insert(present_segments.end(), segments.end() - before, segments.end());
    const int64_t captured = capacity > 0 ? std::min({capacity, count, c.input(kCaptured + kShift).at_int64(item)}) : 0;
    for (int64_t k = 0; k < capacity; ++k)
      if (k < captured)
        updates.insert(updates.end(), ids.begin() + k + 1, ids.begin() + k + 1 + before);
      else
        updates.insert(updates.end(), static_cast<size_t>(before), static_cast<T>(c.node.get_int("pad_id", 0)));
  }
  c.outputs[0] = std::move(rows);
  if (c.outputs.size() > 1) c.outputs[1] = Tensor::of<T>(types[1].dtype, types[1].shape, present);
  present_segments.resize(present.size());
  if (c.outputs.size() > 2) c.outputs[2] = Tensor::of<int32_t>(DType::kInt32, types[2].shape, present_segments);
  if (c.outputs.size() > 3) c.outputs[3] = Tensor::of<T>(types[3].dtype, types[3].shape, updates);
}

void evaluate_packed_ngrams(EvalContext& c, const std::vector<TypeInfo>& types) {
  kernel::require_borders(c.node, c.input(kBorders), c.input(kIds).shape()[0]);
  if (types[0].dtype == DType::kInt32)
    hash_packed_ngrams<int32_t>(c, types);
  else
    hash_packed_ngrams<int64_t>(c, types);
}

}  // namespace hashing

}  // namespace

void register_hashing(Registry& registry) {
  kernel::add(registry, "MurmurHash3", 1, kernel::kOne, hashing::infer_murmur, hashing::evaluate_murmur,
              {"positive", "seed"}, kernel::kOne, kMicrosoft);
  kernel::add(registry, "NGramHashMapping", 1, {3, 7}, hashing::infer_ngrams, hashing::evaluate_ngrams,
              {"max_ngram_size", "n_head_per_ngram", "pad_id", "reset_on_eos"}, {1, 2}, kMicrosoft);
  kernel::add(
      registry, "VarlenNGramHashMapping", 1, {4, 10}, hashing::infer_packed_ngrams, hashing::evaluate_packed_ngrams,
      {"max_ngram_size", "n_head_per_ngram", "pad_id", "reset_on_eos", "state_update_capacity"}, {1, 4}, kMicrosoft);
}

}  // namespace tessera::ops
