// SPDX-License-Identifier: Apache-2.0
// What loops of token generation need beside networks: NGramRepeatBlock of com.microsoft.
#include <algorithm>
#include <limits>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

namespace generation {

using kernel::elements;
using kernel::mutable_elements;

/// Scores [N,V] of the next tokens, of the type of `scores`.
void infer_repeat_block(InferContext& c) {
  const TypeInfo &tokens = c.input(0), &scores = c.input(1);
  kernel::require_type(c.node, tokens.dtype, kernel::set_of({DType::kInt64}), "input_ids");
  kernel::require_type(c.node, scores.dtype, kernel::set_of({DType::kFloat}), "scores");
  kernel::require_rank(c.node, tokens, 2, "input_ids");
  kernel::require_rank(c.node, scores, 2, "scores");
  const int64_t size = c.node.get_int("ngram_size", 0);
  if (size < 1)
    c.node.fail(ErrorCode::kInvalidModel, "attribute 'ngram_size' = " + std::to_string(size) + " must be at least 1");
  if (tokens.ranked && scores.ranked && tokens.shape[0] >= 0 && scores.shape[0] >= 0 &&
      tokens.shape[0] != scores.shape[0])
    c.node.fail(ErrorCode::kInvalidModel, "input_ids " + to_string(tokens.shape) + " and scores " +
                                              to_string(scores.shape) + " have other numbers of rows");
  c.outputs[0] = kernel::without_constant(scores);
}

/// A token that would repeat `size` tokens that stand in the row already gets the lowest score.
void evaluate_repeat_block(EvalContext& c, const std::vector<TypeInfo>&) {
  const int64_t size = c.node.get_int("ngram_size", 0), rows = c.input(0).shape()[0], length = c.input(0).shape()[1];
  Tensor result = c.input(1);
  float* const scores = mutable_elements<float>(result);
  const int64_t words = result.shape()[1];
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t* const tokens = elements<int64_t>(c.input(0)) + row * length;
    for (int64_t at = 0; at + size <= length; ++at) {
      if (!std::equal(tokens + at, tokens + at + size - 1, tokens + length + 1 - size)) continue;
      const int64_t word = tokens[at + size - 1];
      if (word < 0 || word >= words)
        c.node.fail(ErrorCode::kInvalidArgument, "input_ids holds token " + std::to_string(word) + ", but scores has " +
                                                     std::to_string(words) + " columns; give tokens below that");
      scores[row * words + word] = -std::numeric_limits<float>::infinity();
    }
  }
  c.outputs[0] = std::move(result);
}

}  // namespace generation

}  // namespace

void register_generation(Registry& registry) {
  kernel::add(registry, "NGramRepeatBlock", 1, kernel::kTwo, generation::infer_repeat_block,
              generation::evaluate_repeat_block, {"ngram_size"}, kernel::kOne, kMicrosoft);
}

}  // namespace tessera::ops
