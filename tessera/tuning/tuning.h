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

#include "compiler/npu/chip_bench.h"
#include "compiler/npu/workbench.h"
#include "tessera/session.h"
#include "tessera/tuning/judges.h"

namespace tessera {

/// What the cost of a schedule depends on beside layer and machine: the version of compiler and timing models.
std::string compiler_version();

class Tuning {
 public:
  /// One operation, or neighbours that can be a chain, of one of the model's graphs. On a chip of several cores one of
  /// a core's part of the graph; the operations of core 1 follow those of core 0.
  struct Piece {
    size_t graph = 0, first = 0, count = 1;  // operations of that graph
    std::vector<std::string> layers;         // keys, as schedules are given for them; on a chip with "@core" behind
    std::vector<std::string> links;          // their names, as a chain's schedule has them
    std::string kind;                        // the first operation's, as ONNX calls it
    std::string key;                         // a digest: pieces with the same one cost the same
    std::string size;                        // points of the space, in decimal
  };
  using Placed = std::pair<size_t, std::string>;  // a piece by number, and its schedule

  /// A dynamic batch is 1. The configuration may also be text of several lines. Errors:
  /// those of import, of the passes and of an unknown configuration. On a chip the divisions are those that the options
  /// give, and of other layers the compiler's.
  Tuning(const compiler::ModelSource& model, SessionOptions options);

  const std::vector<Piece>& pieces() const { return pieces_; }
  /// Digests of the model's layers in order, and of the machine and its memory.
  const std::string& model_key() const { return model_key_; }
  const std::string& machine_key() const { return machine_key_; }

  /// `kept`: schedules that the compiler takes, by layer; on a chip alone.
  std::vector<Placed> chosen(const std::map<std::string, std::string>& kept = {}) const;
  int cores() const { return config_.cores; }
  /// On a chip the layers of each graph, in order.
  const std::vector<std::vector<std::string>>& chip_layers() const { return chip_layers_; }
  /// Other divisions of a layer of a chip, as JSON.
  std::vector<std::string> ways(const std::string& layer) const;
  /// On a chip how each layer is divided, by key, as JSON; nothing on one core.
  const std::map<std::string, std::string>& divisions() const { return divisions_; }
  std::vector<std::string> candidates(size_t piece, const std::string& searcher, size_t count) const;
  std::string sample(size_t piece, uint64_t seed) const;
  std::string mutate(size_t piece, const std::string& schedule, uint64_t seed) const;
  std::string cross(size_t piece, const std::string& a, const std::string& b, uint64_t seed) const;
  std::string obstacle(size_t piece, const std::string& schedule) const;
  /// Cycles that no schedule of a single operation can be below, with how many tiles of the space have this bound.
  std::map<int64_t, int64_t> bounds(size_t piece) const { return bench(piece).bounds(local(piece)); }
  /// A piece's schedule, perhaps of another model, with the names of this one.
  std::string named(size_t piece, const std::string& schedule) const;
  /// Schedules by layer, as JSON, of a model with this one's layers in this order, under this one's names. What has
  /// other layers stays as it is. On a chip the schedules of parts leave as those of layers with "@core" behind.
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
  /// Of pieces of one graph that follow each other; those of several cores one core after the other.
  std::pair<int64_t, int64_t> together(const std::vector<Placed>& pieces, const std::string& judge);
  /// Of pieces that are a whole graph, as it would be compiled.
  std::pair<int64_t, int64_t> whole(const std::vector<Placed>& pieces, const std::string& judge);

 private:
  /// One graph, or on a chip one core's part of it.
  struct Bench {
    npu::Workbench* bench = nullptr;
    size_t graph = 0;
    size_t begin = 0;  // of its pieces
    size_t first = 0;  // operation of the graph, as pieces count them
  };
  /// Pieces behind each other on one of the benches.
  struct OnBench {
    size_t bench = 0;
    std::vector<npu::Placed> placed;
  };

  /// `first`: of its operations in the graph, as pieces count them; `layers`: by operation.
  void add(npu::Workbench& bench, size_t graph, size_t first, const std::vector<std::string>& layers);
  void add_chip(npu::Graph graph, npu::Options npu, size_t number, const std::vector<std::string>& layers,
                const std::map<std::string, std::string>& given);
  const Piece& at(size_t piece) const;
  const Bench& of(size_t piece) const { return at(piece), benches_[bench_of_[piece]]; }
  const npu::Workbench& bench(size_t piece) const { return *of(piece).bench; }
  /// The pieces on their graph's benches.
  std::vector<OnBench> on_benches(const std::vector<Placed>& pieces) const;
  size_t local(size_t piece) const { return piece - of(piece).begin; }
  schedule::CostModel& judge(const std::string& name);

  isa::MachineConfig config_;
  std::vector<std::unique_ptr<npu::Workbench>> whole_;  // of each graph on one core
  std::vector<std::unique_ptr<npu::ChipBench>> chips_;  // of each graph on several
  std::vector<Bench> benches_;
  std::vector<Piece> pieces_;
  std::vector<size_t> bench_of_;  // by piece
  std::map<std::string, std::string> divisions_;
  std::vector<std::vector<std::string>> chip_layers_;
  std::map<std::string, std::pair<size_t, size_t>> operations_;  // on a chip, by layer: graph and operation
  std::vector<std::string> layers_;  // by name, in the order of schedules of the whole model
  std::string model_key_, machine_key_;
  std::map<std::string, std::unique_ptr<schedule::CostModel>> judges_;
  std::unique_ptr<ChipJudge> chip_judge_;
};

}  // namespace tessera
