// SPDX-License-Identifier: Apache-2.0
// A model on the bench of a tuner, for the Python package: its layers and chains as pieces with a number, the space of
// schedules of each, and what schedules cost by any judge. Schedules enter and leave as JSON (compiler/schedule/json).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/npu/workbench.h"
#include "tessera/session.h"

namespace tessera {

/// What the cost of a schedule depends on beside layer and machine: the version of compiler and timing models.
std::string compiler_version();

class Tuning {
 public:
  /// One operation, or neighbours that can be a chain, of one of the model's graphs.
  struct Piece {
    size_t graph = 0, first = 0, count = 1;  // operations of that graph
    std::vector<std::string> layers;         // keys, as schedules are given for them
    std::vector<std::string> links;          // their names, as a chain's schedule has them
    std::string kind;                        // the first operation's, as ONNX calls it
    std::string key;                         // a digest: pieces with the same one cost the same
    std::string size;                        // points of the space, in decimal
  };
  using Placed = std::pair<size_t, std::string>;  // a piece by number, and its schedule

  /// A dynamic batch is 1. The configuration may also be text of several lines. Errors:
  /// those of import, of the passes and of an unknown configuration.
  Tuning(const compiler::ModelSource& model, SessionOptions options);

  const std::vector<Piece>& pieces() const { return pieces_; }
  /// Digests of the model's layers in order, and of the machine and its memory.
  const std::string& model_key() const { return model_key_; }
  const std::string& machine_key() const { return machine_key_; }

  std::vector<Placed> chosen() const;
  std::vector<std::string> candidates(size_t piece, const std::string& searcher, size_t count) const;
  std::string sample(size_t piece, uint64_t seed) const;
  std::string mutate(size_t piece, const std::string& schedule, uint64_t seed) const;
  std::string cross(size_t piece, const std::string& a, const std::string& b, uint64_t seed) const;
  std::string obstacle(size_t piece, const std::string& schedule) const;
  /// Cycles that no schedule of a single operation can be below, with how many tiles of the space have this bound.
  std::map<int64_t, int64_t> bounds(size_t piece) const { return benches_[at(piece).graph]->bounds(local(piece)); }
  /// A piece's schedule, perhaps of another model, with the names of this one.
  std::string named(size_t piece, const std::string& schedule) const;
  /// Schedules by layer, as JSON, of a model with this one's layers in this order, under this one's names. What has
  /// other layers stays as it is.
  std::string renamed(const std::string& schedules) const;
  /// What closing the tiles of a single operation has come to (npu/exhaust.h). `tiles`: that are closed, those of the
  /// least bounds. `schedule`: "" where none was measured. `cut`: the least bound of a program that was not measured, 0
  /// where all were. `broken`: a bound is wrong.
  struct Closing {
    bool done = false, broken = false;
    size_t tiles = 0;
    int64_t schedules = 0, programs = 0, cycles = 0, cut = 0;
    std::string schedule;
  };
  /// Nothing for chains and operations of several nests.
  std::optional<Closing> close(size_t piece, const std::string& judge, int64_t known, double share, double seconds);
  /// (cycles, DRAM bytes).
  std::pair<int64_t, int64_t> alone(size_t piece, const std::string& schedule, const std::string& judge);
  /// Of pieces of one graph that follow each other.
  std::pair<int64_t, int64_t> together(const std::vector<Placed>& pieces, const std::string& judge);
  /// Of pieces that are a whole graph, as it would be compiled.
  std::pair<int64_t, int64_t> whole(const std::vector<Placed>& pieces, const std::string& judge);

 private:
  const Piece& at(size_t piece) const;
  /// The pieces on their graph's bench.
  std::pair<const npu::Workbench*, std::vector<npu::Placed>> on_bench(const std::vector<Placed>& pieces) const;
  size_t local(size_t piece) const { return piece - begin_[at(piece).graph]; }
  schedule::CostModel& judge(const std::string& name);

  isa::MachineConfig config_;
  std::vector<std::unique_ptr<npu::Workbench>> benches_;
  std::vector<size_t> begin_;  // of each graph's pieces
  std::vector<Piece> pieces_;
  std::string model_key_, machine_key_;
  std::map<std::string, std::unique_ptr<schedule::CostModel>> judges_;
};

}  // namespace tessera
