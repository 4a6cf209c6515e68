// SPDX-License-Identifier: Apache-2.0
// Readers come before what they read: the operations are walked from the last one to the first. Of several readers the
// one counts that reads most.
#include "compiler/npu/input/needs.h"

#include <algorithm>

#include "compiler/npu/graph/plan.h"
#include "compiler/npu/lowering/chain.h"
#include "compiler/schedule/counts.h"

namespace tessera::npu {

namespace {

using schedule::Dim;
using schedule::Lines;
using schedule::Nest;

using Bits = std::vector<bool>;

Lines whole(const Tensor& tensor) {
  return {Bits(static_cast<size_t>(tensor.h), true), Bits(static_cast<size_t>(tensor.w), true)};
}

/// The lines of a tensor of `size` lines that is read beside those results; nothing where that is not known.
Bits beside(const Bits& results, int64_t size) {
  if (results.size() == static_cast<size_t>(size)) return results;
  if (size != 1) return {};
  return {std::find(results.begin(), results.end(), true) != results.end()};
}

/// The nest of an operation whose pixels are those of its tensors.
const Nest* plain_nest(const std::vector<Task>& tasks, const Tensor& input, const Tensor& output) {
  if (tasks.size() != 1) return nullptr;
  const Nest& nest = tasks.front().alternatives.front();
  const bool same = nest.layout == schedule::InputLayout{} && nest.extent[Dim::kOh] == output.h &&
                    nest.extent[Dim::kOw] == output.w && nest.input.row_begin == 0 && nest.input.col_begin == 0 &&
                    nest.input.row_end == input.h && nest.input.col_end == input.w && !nest.input.broadcast_h &&
                    !nest.input.broadcast_w;
  return same ? &nest : nullptr;
}

class Reading {
 public:
  Reading(const Graph& graph, const std::vector<std::vector<Task>>& tasks, bool chains, bool forwards)
      : graph_(graph), tasks_(tasks), chains_(chains), forwards_(forwards), needed_(tasks.size()) {}

  std::vector<Needed> run() {
    const std::vector<bool> feeds = feeds_next(graph_);
    for (size_t i = tasks_.size(); i-- > 0;) {
      const Tensor& result = tensor(written(i));
      Needed& needed = needed_[i];
      needed.read = is_output(written(i)) ? whole(result) : read_by_others(i);
      const bool products = std::any_of(tasks_[i].begin(), tasks_[i].end(), [](const Task& task) {
        return schedule::weighted(task.alternatives.front());  // sums are never dropped
      });
      const bool part = (chains_ && feeds[i]) || (forwards_ && !products);
      needed.computed = part ? needed.read : whole(result);
      needed.all = pixels(needed.computed) == result.h * result.w;
    }
    return std::move(needed_);
  }

 private:
  const Tensor& tensor(TensorId id) const { return graph_.tensors[static_cast<size_t>(id)]; }
  TensorId written(size_t operation) const { return uses_of(graph_.operations[operation]).written; }

  bool is_output(TensorId id) const {
    return std::any_of(graph_.outputs.begin(), graph_.outputs.end(),
                       [&](TensorId output) { return root_of(graph_, output) == root_of(graph_, id); });
  }

  Lines read_by_others(size_t writer) const {
    const TensorId id = written(writer);
    const Tensor& result = tensor(id);
    Lines most;
    const auto take = [&](Lines lines) {
      if (pixels(lines) > pixels(most)) most = std::move(lines);
    };
    for (size_t reader = writer + 1; reader < tasks_.size(); ++reader) {
      for (const TensorId read : uses_of(graph_.operations[reader]).read) {
        if (read == id) take(lines_of(reader, read));
        if (result.view_of == read && !result.strided) take(part_of(lines_of(reader, read), result));
      }
    }
    return most;
  }

  /// What of a tensor an operation reads for the results that it computes.
  Lines lines_of(size_t reader, TensorId read) const {
    const Operation& operation = graph_.operations[reader];
    const TensorId input = std::visit([](const auto& op) { return op.input; }, operation.what);
    const Lines& results = needed_[reader].computed;
    const Nest* nest = plain_nest(tasks_[reader], tensor(input), tensor(written(reader)));
    if (nest == nullptr || pixels(results) == 0) return {};
    if (read == input) return schedule::lines_read(*nest, results);
    if (std::holds_alternative<Product>(operation.what)) return {};  // a factor
    return {beside(results.rows, tensor(read).h), beside(results.cols, tensor(read).w)};
  }

  static Lines part_of(const Lines& parent, const Tensor& view) {
    const auto part = [](const Bits& lines, int64_t begin, int64_t count) {
      if (lines.empty()) return Bits();
      return Bits(lines.begin() + begin, lines.begin() + begin + count);
    };
    return {part(parent.rows, view.view_h, view.h), part(parent.cols, view.view_w, view.w)};
  }

  const Graph& graph_;
  const std::vector<std::vector<Task>>& tasks_;
  const bool chains_, forwards_;
  std::vector<Needed> needed_;
};

}  // namespace

int64_t pixels(const Lines& lines) {
  return std::count(lines.rows.begin(), lines.rows.end(), true) *
         std::count(lines.cols.begin(), lines.cols.end(), true);
}

std::vector<Needed> needed_results(const Graph& graph, const std::vector<std::vector<Task>>& tasks, bool chains,
                                   bool forwards) {
  return Reading(graph, tasks, chains, forwards).run();
}

}  // namespace tessera::npu
