// SPDX-License-Identifier: Apache-2.0
#include "ops/contrib/token_search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

namespace tessera::ops::generation {

namespace {

void forbid(float* scores, int64_t words, int64_t first, int64_t last) {
  std::fill(scores + std::clamp<int64_t>(first, 0, words), scores + std::clamp<int64_t>(last, 0, words), kForbidden);
}

void forbid(float* scores, int64_t words, int64_t token) { forbid(scores, words, token, token + 1); }

/// Time stamps come in pairs, but for the first one, and do not go back. `scores` are logarithms.
void keep_times(float* scores, int64_t words, const Tokens& row, const TimeTokens& t) {
  constexpr int64_t kLatestStart = 50;  // of the first time stamp, as a count of them
  const auto is_time = [&](int32_t token) { return token >= t.first_time; };
  const size_t length = row.size();
  const auto first = std::find_if(row.begin(), row.end(), is_time);
  const auto begin = static_cast<size_t>(first - row.begin()) + (first == row.end() ? 0 : 1);
  for (int64_t token : {t.without_times, t.start_of_lm})
    if (token >= 0) forbid(scores, words, token);
  if (length > begin)
    for (int64_t token : {t.start, t.translate, t.transcribe})
      if (token >= 0) forbid(scores, words, token);
  const bool last_is_time = is_time(row.back()), second_is_time = length <= begin || is_time(row[length - 2]);
  if (last_is_time && second_is_time) forbid(scores, words, t.first_time, words);
  if (last_is_time && !second_is_time) forbid(scores, words, 0, t.end);
  const auto latest = std::find_if(row.rbegin(), row.rend(), is_time);
  if (latest != row.rend())
    forbid(scores, words, t.first_time, last_is_time && !second_is_time ? *latest : *latest + 1);
  if (length == begin) forbid(scores, words, t.first_time + kLatestStart + 1, words);
  // All time stamps together may be likelier than every other token.
  const int64_t border = std::clamp<int64_t>(t.first_time, 0, words);
  double times_sum = 0;
  for (int64_t w = border; w < words; ++w) times_sum += std::exp(static_cast<double>(scores[w]));
  const float* const text = std::max_element(scores, scores + border);
  if (border > 0 && times_sum > std::exp(static_cast<double>(*text))) forbid(scores, words, 0, border);
}

/// The places of the `count` greatest of values[first, last), the greatest and then the earliest one first.
std::vector<int64_t> best_places(const std::vector<float>& values, int64_t first, int64_t last, int64_t count) {
  std::vector<int64_t> places(static_cast<size_t>(last - first));
  std::iota(places.begin(), places.end(), first);
  count = std::min(count, last - first);
  std::partial_sort(places.begin(), places.begin() + count, places.end(), [&](int64_t a, int64_t b) {
    const float x = values[static_cast<size_t>(a)], y = values[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  });
  places.resize(static_cast<size_t>(count));
  return places;
}

}  // namespace

void ScoreRules::apply(std::vector<float>& scores, const std::vector<Tokens>& rows, int64_t beams, bool first) const {
  const auto words = static_cast<int64_t>(scores.size() / rows.size());
  for (size_t r = 0; r < rows.size(); ++r) {
    float* const own = scores.data() + static_cast<int64_t>(r) * words;
    const Tokens& row = rows[r];
    const auto mask = [&](const Tokens& allowed, size_t at) {
      for (int64_t w = 0; w < words; ++w)
        if (allowed[at + static_cast<size_t>(w)] == 0) own[w] = kForbidden;
    };
    const size_t item = r / static_cast<size_t>(beams) * static_cast<size_t>(words);
    if (repetition != 1.0f)
      for (int32_t token : std::set<int32_t>(row.begin(), row.end()))
        if (token >= 0 && token < words)
          own[token] = own[token] < 0 ? own[token] * repetition : own[token] / repetition;
    if (ngram > 0 && ngram <= static_cast<int64_t>(row.size()))
      for (auto at = row.begin(); at <= row.end() - ngram; ++at)
        if (std::equal(at, at + ngram - 1, row.end() - (ngram - 1))) forbid(own, words, at[ngram - 1]);
    if (!vocabulary.empty()) mask(vocabulary, 0);
    if (!prefix.empty() && first) mask(prefix, item);
    if (static_cast<int64_t>(row.size()) < least) forbid(own, words, end);
    if (temperature != 1.0f)
      for (int64_t w = 0; w < words; ++w) own[w] /= temperature;
    if (!presence.empty())
      for (int64_t w = 0; w < words; ++w)
        own[w] -= static_cast<float>(presence[item + static_cast<size_t>(w)]) * presence_penalty;
    if (times) keep_times(own, words, row, time_tokens);
  }
}

void softmax_rows(std::vector<float>& scores, int64_t words, bool logarithm) {
  for (auto row = scores.begin(); row != scores.end(); row += words) {
    const float top = *std::max_element(row, row + words);
    float sum = 0;
    for (auto x = row; x != row + words; ++x) sum += std::exp(*x - top);
    const float log_sum = std::log(sum);
    for (auto x = row; x != row + words; ++x) *x = logarithm ? *x - top - log_sum : std::exp(*x - top) / sum;
  }
}

Tokens greatest(const std::vector<float>& scores, int64_t words) {
  Tokens tokens;
  for (auto row = scores.begin(); row != scores.end(); row += words)
    tokens.push_back(static_cast<int32_t>(std::max_element(row, row + words) - row));
  return tokens;
}

// -------------------------------------------------------------------------------------------------------------- Beams

Beams::Beams(Options options, std::vector<Tokens> rows)
    : options_(options),
      rows_(std::move(rows)),
      next_(rows_.size()),
      parents_(rows_.size()),
      sums_(rows_.size()),
      items_(static_cast<size_t>(options.batch)) {
  // All rows of an item begin alike: only the first one may choose.
  for (size_t r = 0; r < sums_.size(); ++r) sums_[r] = r % static_cast<size_t>(options_.beams) == 0 ? 0.0f : -1e9f;
}

float Beams::penalised(float sum, size_t length) const {
  return sum / std::pow(static_cast<float>(length), options_.length_penalty);
}

void Beams::keep(Item& item, const Tokens& row, float sum) const {
  const float score = penalised(sum, row.size());
  const auto at = std::upper_bound(item.ended.begin(), item.ended.end(), score,
                                   [](float s, const Ended& ended) { return s > ended.score; });
  item.ended.insert(at, {row, score});
  if (static_cast<int64_t>(item.ended.size()) > options_.beams) item.ended.pop_back();
}

bool Beams::done() const {
  return std::all_of(items_.begin(), items_.end(), [](const Item& item) { return item.done; });
}

void Beams::step(const std::vector<float>& log_scores) {
  const auto words = static_cast<int64_t>(log_scores.size() / rows_.size());
  std::vector<float> all_best;  // of all items, one after another
  std::vector<int64_t> places;
  for (int64_t item = 0; item < options_.batch; ++item) {
    const int64_t first = item * options_.beams * words;
    for (int64_t place : best_places(log_scores, first, first + options_.beams * words, 2 * options_.beams)) {
      all_best.push_back(log_scores[static_cast<size_t>(place)]);
      places.push_back(place);
    }
  }
  const auto length = static_cast<int64_t>(rows_.front().size());
  for (int64_t item = 0; item < options_.batch; ++item) go_on(item, all_best, places, words, length);
  std::vector<Tokens> rows;
  for (size_t r = 0; r < rows_.size(); ++r) {
    rows.push_back(rows_[static_cast<size_t>(parents_[r])]);
    rows.back().push_back(next_[r]);
  }
  rows_ = std::move(rows);
}

/// Item `index` of the batch: a row that ends is kept if it is among the first `beams`, others go on.
void Beams::go_on(int64_t index, const std::vector<float>& all_best, const std::vector<int64_t>& places, int64_t words,
                  int64_t length) {
  Item& item = items_[static_cast<size_t>(index)];
  const int64_t beams = options_.beams;
  const auto candidates = static_cast<int64_t>(places.size()) / options_.batch;
  int64_t beam = 0;
  if (item.done)
    for (; beam < beams; ++beam) {
      const auto row = static_cast<size_t>(index * beams + beam);
      sums_[row] = 0;
      next_[row] = options_.pad;
      parents_[row] = 0;
    }
  for (int64_t j = 0; j < candidates && beam < beams; ++j) {
    const auto at = static_cast<size_t>(index * candidates + j);
    const auto parent = static_cast<int32_t>(places[at] / words), token = static_cast<int32_t>(places[at] % words);
    if (token == options_.end) {
      if (j < beams) keep(item, rows_[static_cast<size_t>(parent)], all_best[at]);
      continue;
    }
    const auto row = static_cast<size_t>(index * beams + beam++);
    sums_[row] = all_best[at];
    next_[row] = token;
    parents_[row] = parent;
  }
  if (item.done || static_cast<int64_t>(item.ended.size()) < beams) return;
  // ONNX Runtime looks for the best sum from `beams` candidates an item on, though each item has twice as many.
  const auto from = all_best.begin() + index * beams;
  const float best = *std::max_element(from, from + candidates);
  item.done = options_.stops_early || !(item.ended.back().score < penalised(best, static_cast<size_t>(length)));
}

std::vector<Beams::Ended> Beams::best(int64_t index, int64_t count) const {
  Item item = items_[static_cast<size_t>(index)];
  if (!item.done)
    for (int64_t beam = 0; beam < options_.beams; ++beam) {
      const auto row = static_cast<size_t>(index * options_.beams + beam);
      keep(item, rows_[row], sums_[row]);
    }
  item.ended.resize(static_cast<size_t>(count));
  return item.ended;
}

// -------------------------------------------------------------------------------------------------------------- draws

Tokens Nucleus::draw(std::vector<float>& scores, int64_t words, std::minstd_rand0& generator) const {
  Tokens tokens;
  for (auto begin = scores.begin(); begin != scores.end(); begin += words) {
    float* const row = &*begin;
    std::vector<int64_t> order(static_cast<size_t>(words));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::sort(order.begin(), order.end(),
              [&](int64_t a, int64_t b) { return custom ? row[a] > row[b] : row[a] < row[b]; });
    std::vector<float> share(static_cast<size_t>(words));
    std::transform(order.begin(), order.end(), share.begin(), [&](int64_t w) { return row[w]; });
    softmax_rows(share, words, false);
    std::partial_sum(share.begin(), share.end(), share.begin());
    if (custom) {
      for (size_t i = 0; i + 1 < share.size(); ++i)
        if (share[i] > top_p) row[order[i + 1]] = filter;
    } else {
      for (size_t i = 0; i == 0 || i + static_cast<size_t>(keeps) < share.size(); ++i)
        if (share[i] <= 1 - top_p) row[order[i]] = filter;
    }
    const auto top = static_cast<double>(*std::max_element(row, row + words));
    std::vector<double> sums(static_cast<size_t>(words));
    double sum = 0;
    for (int64_t w = 0; w < words; ++w)
      sums[static_cast<size_t>(w)] = sum += std::exp(static_cast<double>(row[w]) - top);
    const double drawn = std::uniform_real_distribution<double>(0.0, 1.0)(generator) * sum;
    tokens.push_back(static_cast<int32_t>(std::upper_bound(sums.begin(), sums.end(), drawn) - sums.begin()));
  }
  return tokens;
}

}  // namespace tessera::ops::generation
