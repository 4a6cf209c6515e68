// SPDX-License-Identifier: Apache-2.0
// What loops of token generation decide, apart from the networks that they call: rules that change the scores of the
// next tokens, beams that compete for the best sequences, and draws from the likeliest tokens. Rows of tokens and of
// scores are those of a batch, or of each of its beams. Sources: ONNX Runtime's schemas of BeamSearch, GreedySearch,
// Sampling and WhisperBeamSearch, and its results.
#pragma once

#include <limits>
#include <random>
#include <vector>

#include "ops/operator.h"

namespace tessera::ops::generation {

using Tokens = std::vector<int32_t>;

inline constexpr float kForbidden = std::numeric_limits<float>::lowest();

/// Tokens of a speech model that the rules for time stamps name; -1: the model has no such token.
struct TimeTokens {
  int64_t end = -1, start = -1, translate = -1, transcribe = -1, start_of_lm = -1, without_times = -1, first_time = -1;
};

/// Rules that change scores, in this order. What is empty, 0 or 1 changes nothing.
struct ScoreRules {
  float repetition = 1.0f;  // penalty of tokens that a row holds already
  int64_t ngram = 0;        // tokens that would repeat so many are forbidden
  Tokens vocabulary;        // [words]: 0 forbids a token
  Tokens prefix;            // [batch * words]: the same in the first step
  int64_t least = 0;        // rows shorter than that may not end
  int64_t end = 0;
  float temperature = 1.0f;
  Tokens presence;  // [batch * words]
  float presence_penalty = 0.0f;
  bool times = false;  // whether the rules for time stamps hold
  TimeTokens time_tokens;

  /// Scores [rows.size(), words]; `first`: in the first step. Each item of the batch has `beams` rows.
  void apply(std::vector<float>& scores, const std::vector<Tokens>& rows, int64_t beams, bool first) const;
};

/// The logarithm of the softmax of each row of scores, or the softmax itself.
void softmax_rows(std::vector<float>& scores, int64_t words, bool logarithm);

/// The beams of a batch: rows that grow by a token a step, and the best rows that have ended.
class Beams {
 public:
  struct Options {
    int64_t batch = 1, beams = 1;
    float length_penalty = 1.0f;
    bool stops_early = false;
    int32_t pad = 0, end = 0;
  };

  /// `rows`: the beginning of each of the batch * beams rows.
  Beams(Options options, std::vector<Tokens> rows);

  /// Takes one step: of the sums of scores and logarithms [batch * beams, words] the best ones go on.
  void step(const std::vector<float>& log_scores);

  bool done() const;  // no item can find better rows
  const std::vector<Tokens>& rows() const { return rows_; }
  const Tokens& next() const { return next_; }        // the last token of each row
  const Tokens& parents() const { return parents_; }  // the row that each one was, one step before
  const std::vector<float>& sums() const { return sums_; }

  /// The best `count` rows of an item and their scores, the best first; rows that have not ended take part.
  struct Ended {
    Tokens tokens;
    float score = 0;
  };
  std::vector<Ended> best(int64_t item, int64_t count) const;

 private:
  struct Item {
    std::vector<Ended> ended;  // the best first, at most as many as beams
    bool done = false;
  };

  void keep(Item& item, const Tokens& row, float sum) const;
  float penalised(float sum, size_t length) const;
  void go_on(int64_t index, const std::vector<float>& all_best, const std::vector<int64_t>& places, int64_t words,
             int64_t length);

  Options options_;
  std::vector<Tokens> rows_;
  Tokens next_, parents_;
  std::vector<float> sums_;
  std::vector<Item> items_;
};

/// Draws from the likeliest tokens, whose probabilities together reach `top_p`.
struct Nucleus {
  float top_p = 0, filter = -1e20f;
  int64_t keeps = 0;  // at least so many tokens, unless `custom`
  bool custom = false;

  /// One token of each row of scores [rows, words]; scores of tokens that are left out become `filter`.
  Tokens draw(std::vector<float>& scores, int64_t words, std::minstd_rand0& generator) const;
};

/// The place of the greatest score of each row.
Tokens greatest(const std::vector<float>& scores, int64_t words);

}  // namespace tessera::ops::generation
