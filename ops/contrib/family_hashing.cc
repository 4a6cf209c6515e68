// SPDX-License-Identifier: Apache-2.0
// Hashes of domain com.microsoft: MurmurHash3 of numbers and texts, and NGramHashMapping, which gives the rows of an
// embedding for the last tokens up to each position.
#include <bit>
#include <cstring>

#include "ops/kernels/elementwise_kernel.h"

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

enum Input : size_t { kIds, kMultipliers, kSizes, kPast, kOffsets, kEnd, kSegments };

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

/// Sums and products wrap as the ids' type does.
template <typename T>
void hash_ngrams(EvalContext& c, const std::vector<TypeInfo>& types) {
  using Bits = std::make_unsigned_t<T>;
  const Orders orders = orders_of(c.node);
  const Shape& shape = c.input(kIds).shape();
  const int64_t batch = shape[0], length = shape[1], before = orders.most - 1;
  const auto all = [&](size_t i) { return elements<T>(c.input(i)); };
  const T* const sizes = all(kSizes);
  for (int64_t k = 0; k < orders.columns(); ++k)
    if (sizes[k] < 1)
      c.node.fail(ErrorCode::kInvalidArgument,
                  "vocab_sizes holds " + std::to_string(sizes[k]) + "; give sizes of 1 or more");
  const bool resets = c.has(kEnd) && c.node.get_int("reset_on_eos", 0) != 0;
  const T missing = c.has(kEnd) ? all(kEnd)[0] : static_cast<T>(c.node.get_int("pad_id", 0));
  Tensor rows(types[0].dtype, types[0].shape), present(types[0].dtype, {batch, before});
  T* out = mutable_elements<T>(rows);
  for (int64_t b = 0; b < batch; ++b) {
    std::vector<T> ids(static_cast<size_t>(before), missing);  // of the past, then of this call
    if (c.has(kPast)) std::copy_n(all(kPast) + b * before, before, ids.begin());
    ids.insert(ids.end(), all(kIds) + b * length, all(kIds) + (b + 1) * length);
    std::copy(ids.end() - before, ids.end(), mutable_elements<T>(present) + b * before);
    const int32_t* const segments = c.has(kSegments) ? elements<int32_t>(c.input(kSegments)) + b * length : nullptr;
    for (int64_t s = 0; s < length; ++s) {
      Bits mix = 0;
      bool seen = true;  // no end and no border of segments stands between
      for (int64_t n = 0; n < orders.most; ++n) {
        const auto at = static_cast<size_t>(before + s - n);
        if (n > 0 && resets && ids[at] == all(kEnd)[0]) seen = false;
        if (n > 0 && segments && s - n + 1 > 0 && segments[s - n + 1] != segments[s - n]) seen = false;
        mix ^= static_cast<Bits>(seen ? ids[at] : missing) * static_cast<Bits>(all(kMultipliers)[n]);
        for (int64_t h = 0; n > 0 && h < orders.heads; ++h) {
          const int64_t column = (n - 1) * orders.heads + h;
          T row = static_cast<T>(static_cast<T>(mix) % sizes[column]);
          if (row < 0) row = static_cast<T>(row + sizes[column]);
          const Bits offset = c.has(kOffsets) ? static_cast<Bits>(all(kOffsets)[column]) : Bits{0};
          *out++ = static_cast<T>(static_cast<Bits>(row) + offset);
        }
      }
    }
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

}  // namespace hashing

}  // namespace

void register_hashing(Registry& registry) {
  kernel::add(registry, "MurmurHash3", 1, kernel::kOne, hashing::infer_murmur, hashing::evaluate_murmur,
              {"positive", "seed"}, kernel::kOne, kMicrosoft);
  kernel::add(registry, "NGramHashMapping", 1, {3, 7}, hashing::infer_ngrams, hashing::evaluate_ngrams,
              {"max_ngram_size", "n_head_per_ngram", "pad_id", "reset_on_eos"}, {1, 2}, kMicrosoft);
}

}  // namespace tessera::ops
