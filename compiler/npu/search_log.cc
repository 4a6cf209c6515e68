// SPDX-License-Identifier: Apache-2.0
// The search's table.
#include "compiler/npu/search_log.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>

namespace tessera::npu {

namespace {

std::string rounded(double value) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.0f", value);
  return text.data();
}

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

}  // namespace

std::string to_text(const SearchLog& log, size_t most) {
  std::string text = "search '" + log.searcher + "' by '" + log.cost_model + "', judged by the replay; score: cycles " +
                     "and weighted bytes\n";
  for (const SearchLog::Piece& piece : log.pieces) {
    std::string names;
    for (const std::string& name : piece.operations) names += (names.empty() ? "'" : " -> '") + name + "'";
    if (piece.nests > 1) names += ", nest " + std::to_string(piece.nest + 1) + " of " + std::to_string(piece.nests);
    text += "\n" + std::string(piece.operations.size() > 1 ? "chain " : "") + names + ": " +
            (piece.chosen ? "chosen" : "not chosen") + ", " + piece.reason + "\n";
    std::vector<size_t> order(piece.candidates.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const auto &x = piece.candidates[a], &y = piece.candidates[b];
      if (x.replayed.has_value() != y.replayed.has_value()) return x.replayed.has_value();
      return x.replayed ? x.score < y.score : x.estimated_score < y.estimated_score;
    });
    std::vector<std::vector<std::string>> rows = {{"", "estimated", "score", "replayed", "bytes", "score", "in place",
                                                   "schedule: iterations | tile | copies | layout"}};
    size_t shown = 0;
    for (const size_t i : order) {
      const SearchLog::Candidate& c = piece.candidates[i];
      if (++shown > most && !c.chosen) continue;
      rows.push_back({c.chosen ? "->" : "", std::to_string(c.estimated.cycles), rounded(c.estimated_score),
                      c.replayed ? std::to_string(c.replayed->cycles) : "-",
                      std::to_string(c.replayed ? c.replayed->bytes : c.estimated.bytes),
                      c.replayed ? rounded(c.score) : "-", c.score_in_place ? rounded(*c.score_in_place) : "-",
                      c.schedule});
    }
    text += table(rows);
    if (order.size() > most) text += "   and " + std::to_string(order.size() - most) + " more\n";
  }
  return text;
}

}  // namespace tessera::npu
