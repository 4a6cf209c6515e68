// SPDX-License-Identifier: Apache-2.0
// SparseAttention of domain com.microsoft: GroupQueryAttention whose queries see blocks of keys only, those that a
// layout names in compressed rows. Heads take the layouts in turn. It is expanded into GroupQueryAttention with a bias
// that hides the others.
#include <limits>

#include "ops/expansion.h"

namespace tessera::ops {

namespace {

namespace sparse {

using Operand = Expander::Operand;
using Types = std::vector<TypeInfo>;

enum Input : size_t { kQuery, kPastKey = 3, kRows = 5, kColumns, kTotal, kLengths, kCos, kSin };

constexpr int kVersion = 18;

/// 0 where a head's query may see a key, else minus infinity: [heads, places, places].
Tensor hidden_keys(const Node& node, const Tensor& rows, const Tensor& columns, int64_t heads, int64_t block,
                   DType type) {
  const int64_t layouts = rows.shape()[0], blocks = rows.shape()[1] - 1, places = blocks * block;
  if (layouts < 1 || blocks < 1 || columns.shape()[0] != layouts || heads % layouts != 0)
    node.fail(ErrorCode::kInvalidModel, "block_row_indices " + to_string(rows.shape()) + " and block_col_indices " +
                                            to_string(columns.shape()) + " do not fit " + std::to_string(heads) +
                                            " heads");
  Tensor bias(DType::kFloat, {heads, places, places});
  auto out = bias.as_mutable<float>();
  std::fill(out.begin(), out.end(), -std::numeric_limits<float>::infinity());
  for (int64_t head = 0; head < heads; ++head) {
    const int64_t layout = head % layouts;
    for (int64_t row = 0; row < blocks; ++row) {
      const int64_t first = rows.at_int64(layout * (blocks + 1) + row),
                    end = rows.at_int64(layout * (blocks + 1) + row + 1);
      if (first < 0 || end < first || end > columns.shape()[1])
        node.fail(ErrorCode::kInvalidModel, "block_row_indices do not rise, or leave block_col_indices");
      for (int64_t i = first; i < end; ++i) {
        const int64_t column = columns.at_int64(layout * columns.shape()[1] + i);
        if (column < 0 || column >= blocks)
          node.fail(ErrorCode::kInvalidModel,
                    "block_col_indices names block " + std::to_string(column) + " of " + std::to_string(blocks));
        for (int64_t q = row * block; q < (row + 1) * block; ++q)
          std::fill_n(out.begin() + (head * places + q) * places + column * block, block, 0.0f);
      }
    }
  }
  return kernel::narrow(std::move(bias), type);
}

/// Nothing while the layouts or the number of queries are unknown.
std::optional<Expansion> expand_sparse(const Node& node, const Types& inputs) {
  const TypeInfo& query = inputs[kQuery];
  for (size_t i : {kPastKey, kRows, kColumns, kTotal, kLengths})
    if (!inputs[i].present) node.fail(ErrorCode::kInvalidModel, "input " + std::to_string(i) + " is missing");
  kernel::require_type(node, query.dtype, kernel::kFloats, "the query");
  kernel::require_rank(node, query, 3, "the query");
  const int64_t heads = node.get_int("num_heads", 0), block = node.get_int("sparse_block_size", 0);
  if (heads < 1 || block < 1 || block > 1 << 16)
    node.fail(ErrorCode::kInvalidModel, "num_heads and sparse_block_size must be positive");
  for (size_t i : {kRows, kColumns}) {
    kernel::require_rank(node, inputs[i], 2, "an index of blocks");
    if (!inputs[i].constant) return std::nullopt;
  }
  if (!query.ranked || query.shape[1] < 0) return std::nullopt;
  Expander e(node, inputs, kVersion);
  const Operand lengths = e.step("Reshape", {e.input(kLengths), Expander::integers({-1})});
  const auto number = [](int32_t value) { return Expander::constant(Tensor::of<int32_t>(DType::kInt32, {}, {value})); };
  // The place of each query: the last ones of its sequence, or the first ones of a prompt that is shorter than others.
  Tensor steps(DType::kInt32, {1, query.shape[1]});
  for (int64_t i = 0; i < query.shape[1]; ++i)
    steps.as_mutable<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(i);
  const Operand past =
      e.step("Max", {e.step("Sub", {lengths, number(static_cast<int32_t>(query.shape[1]))}), number(0)});
  const Operand places =
      e.step("Add", {e.step("Unsqueeze", {past, Expander::integers({1})}), Expander::constant(std::move(steps))});
  const Tensor hidden =
      hidden_keys(node, *inputs[kRows].constant, *inputs[kColumns].constant, heads, block, query.dtype);
  Operand bias = e.step("Gather", {Expander::constant(hidden), places}, {{"axis", int64_t{1}}});
  bias = e.step("Transpose", {bias}, {{"perm", std::vector<int64_t>{1, 0, 2, 3}}});
  std::vector<Operand> operands;
  for (size_t i = 0; i < kRows; ++i) operands.push_back(e.input(i));
  operands.push_back(e.step("Sub", {lengths, number(1)}));
  for (size_t i : {kTotal, kCos, kSin}) operands.push_back(e.input(i));
  operands.insert(operands.end(), {Operand(), bias});
  Expander::Attributes attributes = node.attributes;
  attributes.erase("sparse_block_size");
  return e.finish(
      e.steps("GroupQueryAttention", std::move(operands), std::move(attributes), node.output_count, kMicrosoft, 1));
}

}  // namespace sparse

}  // namespace

void register_sparse_attention(Registry& registry) {
  add_expansion(registry, "SparseAttention", 1, {9, 11}, sparse::expand_sparse,
                {"do_rotary", "kv_num_heads", "num_heads", "rotary_interleaved", "scale", "sparse_block_size"}, {1, 3},
                kMicrosoft);
}

}  // namespace tessera::ops
