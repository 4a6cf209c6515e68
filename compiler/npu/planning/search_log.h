// SPDX-License-Identifier: Apache-2.0
// What the search for schedules looked at: for every operation, and every chain that was possible, the candidates with
// their estimated and replayed cost, and why the winner won. The planner fills it; a command prints it as a table.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/schedule/cost_model.h"

namespace tessera::npu {

struct SearchLog {
  struct Candidate {
    std::string schedule;  // in short: schedule::in_short, or the tile of a chain
    schedule::Cost estimated;
    double estimated_score = 0;
    std::optional<schedule::Cost> replayed;  // nothing: enough others had been replayed
    double score = 0;                        // of the replay
    std::optional<double> score_in_place;    // with its neighbours: this piece and the ones before and behind
    bool chosen = false;
  };
  /// One nest of an operation, or several operations as a chain.
  struct Piece {
    std::string graph;
    size_t first = 0;  // of the operations
    std::vector<std::string> operations;
    size_t nest = 0, nests = 1;  // of the operation's
    std::vector<Candidate> candidates;
    bool chosen = false;
    std::string reason;  // why it was chosen, or not
  };
  std::string searcher, cost_model, judge;
  std::vector<Piece> pieces;  // in the order in which they were looked at
};

/// A score for people.
std::string rounded(double value);

/// A table of each piece, the best candidates first; `most`: candidates of a piece that are shown.
std::string to_text(const SearchLog& log, size_t most = 8);

}  // namespace tessera::npu
