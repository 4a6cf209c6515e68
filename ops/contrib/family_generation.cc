// SPDX-License-Identifier: Apache-2.0
// What loops of token generation need beside networks, of com.microsoft: NGramRepeatBlock, BifurcationDetector, which
// accepts guessed tokens, and DynamicTimeWarping, which finds the time of tokens.
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

// ------------------------------------------------------------------------------------------------ BifurcationDetector

enum DetectorInput : size_t { kSource, kCurrent, kPrevious, kGuessed };

void infer_detector(InferContext& c) {
  for (size_t i : {kSource, kCurrent, kPrevious, kGuessed})
    if (c.has(i)) kernel::require_type(c.node, c.input(i).dtype, kernel::set_of({DType::kInt64}), "tokens");
  for (size_t i : {kSource, kCurrent}) kernel::require_rank(c.node, c.input(i), 1, "tokens");
  if (c.has(kGuessed)) kernel::require_rank(c.node, c.input(kGuessed), 1, "pred_tokens");
  const int64_t least = c.node.get_int("min_ngram_size", 1), most = c.node.get_int("max_ngram_size", 3);
  if (least < 1 || most < least)
    c.node.fail(ErrorCode::kInvalidModel, "min_ngram_size must be positive and at most max_ngram_size");
  const TypeInfo& current = c.input(kCurrent);
  const bool grows = c.has(kGuessed);
  c.outputs[0] = TypeInfo::tensor(DType::kInt64, {grows || !current.ranked ? -1 : current.shape[0]});
  if (c.outputs.size() > 1) c.outputs[1] = TypeInfo::tensor(DType::kInt64, {});
}

/// Where behind a single appearance of the last tokens the source goes on; -1 where the shortest ending that appears
/// does so more than once, or none appears.
int64_t continuation(const std::vector<int64_t>& source, const std::vector<int64_t>& tokens, int64_t least,
                     int64_t most) {
  int64_t found = -1;
  for (int64_t n = least; n <= most && n <= static_cast<int64_t>(tokens.size()); ++n) {
    const auto ending = tokens.end() - n;
    const auto first = std::search(source.begin(), source.end(), ending, tokens.end());
    if (first == source.end()) return found;
    found = first - source.begin() + n;
    if (found >= static_cast<int64_t>(source.size())) return found;
    if (std::search(first + 1, source.end(), ending, tokens.end()) == source.end()) return found;
    found = -1;
  }
  return found;
}

void evaluate_detector(EvalContext& c, const std::vector<TypeInfo>&) {
  const std::vector<int64_t> source = c.input(kSource).to_int64s();
  std::vector<int64_t> tokens = c.input(kCurrent).to_int64s();
  if (c.has(kGuessed)) {
    const std::vector<int64_t> guessed = c.input(kGuessed).to_int64s(), at = c.input(kPrevious).to_int64s();
    const auto length = static_cast<int64_t>(source.size());
    if (at.size() != 1 || at[0] < 0 || at[0] > length || static_cast<int64_t>(guessed.size()) != length + 1 - at[0])
      c.node.fail(ErrorCode::kInvalidArgument,
                  "pred_tokens must have one token more than src_tokens behind prev_suffix_match_idx");
    // Guesses up to the first that the model did not confirm, and what it said there.
    size_t same = 0;
    while (same + 1 < guessed.size() && guessed[same] == source[static_cast<size_t>(at[0]) + same]) ++same;
    tokens.insert(tokens.end(), guessed.begin(), guessed.begin() + static_cast<int64_t>(same) + 1);
  }
  const int64_t next =
      continuation(source, tokens, c.node.get_int("min_ngram_size", 1), c.node.get_int("max_ngram_size", 3));
  c.outputs[0] = Tensor::vector_i64(tokens);
  if (c.outputs.size() > 1) c.outputs[1] = Tensor::scalar_i64(next);
}

// ------------------------------------------------------------------------------------------------- DynamicTimeWarping

/// Rows and columns of the cheapest path, [2, its length].
void infer_warping(InferContext& c) {
  const TypeInfo& x = c.input(0);
  kernel::require_type(c.node, x.dtype, kernel::set_of({DType::kFloat}), "the costs");
  if (x.ranked && x.shape.size() != 2 && (x.shape.size() != 3 || x.shape[0] > 1 || x.shape[0] == 0))
    c.node.fail(ErrorCode::kInvalidModel, "costs " + to_string(x.shape) + " must be one matrix");
  c.outputs[0] = TypeInfo::tensor(DType::kInt32, {2, -1});
}

/// A path steps down, right, or both. Where no step is the cheapest alone, it steps right, as in ONNX Runtime.
void evaluate_warping(EvalContext& c, const std::vector<TypeInfo>&) {
  const Shape& shape = c.input(0).shape();
  const int64_t rows = shape[shape.size() - 2], columns = shape.back(), stride = columns + 1;
  if (rows < 1 || columns < 1) c.node.fail(ErrorCode::kInvalidArgument, "the matrix of costs is empty");
  const float* const costs = elements<float>(c.input(0));
  std::vector<float> sums(static_cast<size_t>((rows + 1) * stride), std::numeric_limits<float>::infinity());
  std::vector<int8_t> steps(sums.size(), 2);
  sums[0] = 0;
  for (int64_t column = 1; column <= columns; ++column)
    for (int64_t row = 1; row <= rows; ++row) {
      const auto at = static_cast<size_t>(row * stride + column), above = at - static_cast<size_t>(stride);
      const float both = sums[above - 1], down = sums[above], right = sums[at - 1];
      steps[at] = both < down && both < right ? 0 : down < both && down < right ? 1 : 2;
      sums[at] = (steps[at] == 0 ? both : steps[at] == 1 ? down : right) + costs[(row - 1) * columns + column - 1];
    }
  std::vector<int32_t> path[2];
  for (int64_t row = rows, column = columns; row > 0 && column > 0;) {
    path[0].push_back(static_cast<int32_t>(row - 1));
    path[1].push_back(static_cast<int32_t>(column - 1));
    const int8_t step = steps[static_cast<size_t>(row * stride + column)];
    row -= step != 2;
    column -= step != 1;
  }
  std::vector<int32_t> places(path[0].rbegin(), path[0].rend());
  places.insert(places.end(), path[1].rbegin(), path[1].rend());
  c.outputs[0] = Tensor::of(DType::kInt32, {2, static_cast<int64_t>(path[0].size())}, places);
}

}  // namespace generation

}  // namespace

void register_generation(Registry& registry) {
  kernel::add(registry, "NGramRepeatBlock", 1, kernel::kTwo, generation::infer_repeat_block,
              generation::evaluate_repeat_block, {"ngram_size"}, kernel::kOne, kMicrosoft);
  kernel::add(registry, "BifurcationDetector", 1, {3, 4}, generation::infer_detector, generation::evaluate_detector,
              {"max_ngram_size", "min_ngram_size"}, {1, 2}, kMicrosoft);
  kernel::add(registry, "DynamicTimeWarping", 1, kernel::kOne, generation::infer_warping, generation::evaluate_warping,
              {}, kernel::kOne, kMicrosoft);
}

}  // namespace tessera::ops
