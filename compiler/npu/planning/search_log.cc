// SPDX-License-Identifier: Apache-2.0
// The search's table.
#include "compiler/npu/planning/search_log.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace tessera::npu {

std::string rounded(double value) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.0f", value);
  return text.data();
}

namespace {

/// Right-aligned columns and a last one that is not.
std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t c = 0; c + 1 < row.size(); ++c) text += std::string(widths[c] - row[c].size(), ' ') + row[c] + "  ";
    text += row.back() + "\n";
  }
  return text;
}

std::string title(const SearchLog::Piece& piece) {
  std::string names;
  for (const std::string& name : piece.operations) names += (names.empty() ? "'" : " -> '") + name + "'";
  if (piece.nests > 1) names += ", nest " + std::to_string(piece.nest + 1) + " of " + std::to_string(piece.nests);
  return std::string(piece.operations.size() > 1 ? "chain " : "") + names + ": " +
         (piece.chosen ? "chosen" : "not chosen") + ", " + piece.reason + "\n";
}

/// Those that were replayed by their score, then the others by the estimate's.
std::vector<const SearchLog::Candidate*> best_first(const SearchLog::Piece& piece) {
  std::vector<const SearchLog::Candidate*> order;
  order.reserve(piece.candidates.size());
  for (const SearchLog::Candidate& candidate : piece.candidates) order.push_back(&candidate);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    if (a->replayed.has_value() != b->replayed.has_value()) return a->replayed.has_value();
    return a->replayed ? a->score < b->score : a->estimated_score < b->estimated_score;
  });
  return order;
}

std::vector<std::string> row(const SearchLog::Candidate& c) {
  const schedule::Cost& known = c.replayed ? *c.replayed : c.estimated;
  return {c.chosen ? "->" : "",
          std::to_string(c.estimated.cycles),
          rounded(c.estimated_score),
          c.replayed ? std::to_string(known.cycles) : "-",
          std::to_string(known.bytes),
          c.replayed ? rounded(c.score) : "-",
          c.score_in_place ? rounded(*c.score_in_place) : "-",
          c.schedule};
}

}  // namespace

std::string to_text(const SearchLog& log, size_t most) {
  std::string text = "search '" + log.searcher + "' by '" + log.cost_model + "', judged by '" + log.judge +
                     "'; score: cycles and weighted bytes\n";
  for (const SearchLog::Piece& piece : log.pieces) {
    const auto order = best_first(piece);
    std::vector<std::vector<std::string>> rows = {{"", "estimated", "score", "replayed", "bytes", "score", "in place",
                                                   "schedule: iterations | tile | copies | layout"}};
    for (size_t i = 0; i < order.size(); ++i) {
      if (i < most || order[i]->chosen) rows.push_back(row(*order[i]));
    }
    text += "\n" + title(piece) + table(rows);
    if (rows.size() - 1 < order.size()) text += "and " + std::to_string(order.size() + 1 - rows.size()) + " more\n";
  }
  return text;
}

}  // namespace tessera::npu
