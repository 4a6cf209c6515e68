// SPDX-License-Identifier: Apache-2.0
// Fusion on the operation graph: an elementwise operation becomes part of the output stage of the operation that makes
// its input, when nobody else reads that tensor and the stage has room. The producer moves down to the elementwise
// operation's place, where the second tensor is there.
#include <algorithm>

#include "compiler/graph/passes.h"
#include "compiler/npu/graph/plan.h"

namespace tessera::graph {
namespace {

npu::Stage& stage_of(npu::Operation& operation) {
  return std::visit([](auto& what) -> npu::Stage& { return what.stage; }, operation.what);
}
npu::TensorId output_of(const npu::Operation& operation) {
  return std::visit([](const auto& what) { return what.output; }, operation.what);
}

/// Reads of a tensor, counting views, reshapes and graph outputs as reads.
size_t reads(const npu::Graph& graph, npu::TensorId id) {
  size_t count = static_cast<size_t>(std::count(graph.outputs.begin(), graph.outputs.end(), id));
  for (const npu::Tensor& t : graph.tensors) count += (t.view_of == id) + (t.reshape_of == id);
  for (const npu::Operation& operation : graph.operations) {
    const npu::Uses used = npu::uses_of(operation);
    count += static_cast<size_t>(std::count(used.read.begin(), used.read.end(), id));
  }
  return count;
}

bool same_box(const npu::Tensor& a, const npu::Tensor& b) {
  return a.n == b.n && a.h == b.h && a.w == b.w && a.c == b.c;
}

bool passes_through(const npu::Stage& stage) {
  return !stage.convert && !stage.raw && stage.low <= -128 && stage.high >= 255 && stage.out_zero == 0;
}

npu::Table compose(const npu::Table& first, const npu::Table& then) {
  npu::Table out(256);
  for (size_t i = 0; i < 256; ++i) out[i] = then[first[i]];
  return out;
}

/// `to` followed by `then`; false when the stage has no room.
bool append(npu::Stage& to, const npu::Stage& then, bool value_unsigned) {
  if (to.raw) {
    // int32 sums that are converted at once.
    if (!then.convert || !then.bias.empty()) return false;
    std::vector<int32_t> bias = std::move(to.bias);
    to = then;
    to.bias = std::move(bias);
    return true;
  }
  if (then.convert) return false;
  if (!then.table && !then.second && !then.second_table) return true;
  if (to.second || to.second_table) {
    if (then.second || then.second_table) return false;
    if (!then.table) return false;
    to.second_table = to.second_table ? compose(*to.second_table, *then.table) : *then.table;
    return true;
  }
  if (then.table) {
    to.table = to.table ? compose(*to.table, *then.table) : *then.table;
    to.table_unsigned = then.table_unsigned;
  } else if (to.table) {
    to.table_unsigned = value_unsigned;
  }
  to.second = then.second;
  to.second_table = then.second_table;
  return true;
}

/// The producer of one of an elementwise operation's operands, whose stage may take the operation in.
struct Candidate {
  int64_t index;  // of the operation; -1: none
  npu::Stage stage;
  npu::TensorId through, seen;  // the producer's tensor, as the elementwise operation reads it
};

class StageFusion {
 public:
  explicit StageFusion(npu::Graph& graph) : graph_(graph) {}

  void run() {
    for (size_t at = 0; at < graph_.operations.size(); ++at) {
      const auto* found = std::get_if<npu::Elementwise>(&graph_.operations[at].what);
      if (!found || !joins_stages(*found)) continue;
      const npu::Elementwise e = *found;
      for (const Candidate& c : candidates_of(e)) {
        if (!merge(at, e, c)) continue;
        --at;  // the place of the operation that follows
        break;
      }
    }
  }

 private:
  const npu::Tensor& tensor(npu::TensorId id) const { return graph_.tensors[static_cast<size_t>(id)]; }
  bool is_view(npu::TensorId id) const { return tensor(id).view_of != npu::kNoTensor; }
  bool is_reshape(npu::TensorId id) const { return tensor(id).reshape_of != npu::kNoTensor; }

  int64_t producer_of(npu::TensorId id) const {
    for (size_t i = 0; i < graph_.operations.size(); ++i)
      if (output_of(graph_.operations[i]) == id) return static_cast<int64_t>(i);
    return -1;
  }

  /// False for what repeats or clamps its operand, and for copies into a tensor of their own.
  bool joins_stages(const npu::Elementwise& e) const {
    if (e.repeat_h != 1 || e.repeat_w != 1) return false;
    if (e.stage.convert) return true;
    return passes_through(e.stage) && (e.stage.table || e.stage.second || is_view(e.output));
  }

  /// The later producer first: the other operand is there anyway.
  std::vector<Candidate> candidates_of(const npu::Elementwise& e) const {
    std::vector<Candidate> candidates;
    const auto offer = [&](npu::TensorId seen, const npu::Stage& stage) {
      const npu::TensorId parent = tensor(seen).reshape_of;
      const npu::TensorId through = parent != npu::kNoTensor && reads(graph_, seen) == 1 ? parent : seen;
      candidates.push_back({producer_of(through), stage, through, seen});
    };
    offer(e.input, e.stage);
    if (e.stage.second && !e.stage.table && !e.stage.convert && e.stage.second->tensor != e.input) {
      npu::Stage swapped = e.stage;  // the second tensor's producer takes the first's place
      swapped.second->tensor = e.input;
      swapped.second->swap = !swapped.second->swap;
      offer(e.stage.second->tensor, swapped);
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const auto& a, const auto& b) { return a.index > b.index; });
    return candidates;
  }

  /// The producer keeps its own extents: what it writes, and a second tensor of as many elements, are seen in them.
  bool keeps_own_extents(const npu::Elementwise& e, const Candidate& c) const {
    return !same_box(tensor(c.through), tensor(e.output));
  }
  bool has_second_alike(const npu::Elementwise& e, const Candidate& c) const {
    return c.stage.second && same_box(tensor(c.stage.second->tensor), tensor(e.output));
  }

  /// Whether all that the operation reads and writes can be seen by the candidate.
  bool is_seen_by(const npu::Elementwise& e, const Candidate& c) const {
    if (c.index < 0 || !same_box(tensor(c.seen), tensor(e.output)) || reads(graph_, c.through) != 1) return false;
    if (is_view(c.through) || is_reshape(c.through)) return false;
    if (!keeps_own_extents(e, c)) return true;
    if (tensor(c.through).c != tensor(e.output).c || is_view(e.output) || is_reshape(e.output)) return false;
    if (!c.stage.second) return true;
    const npu::TensorId second = c.stage.second->tensor;
    return (has_second_alike(e, c) && !is_view(second)) || tensor(second).elements() == tensor(second).c;
  }

  /// A tensor in the extents of `made`.
  npu::TensorId seen_as(npu::TensorId made, npu::TensorId id) {
    npu::Tensor alias = tensor(made);
    const npu::Tensor& whole = tensor(id);
    alias.name = whole.name;
    alias.is_unsigned = whole.is_unsigned;
    alias.element_bytes = whole.element_bytes;
    alias.reshape_of = whole.reshape_of != npu::kNoTensor ? whole.reshape_of : id;
    return graph_.add(std::move(alias));
  }

  /// Makes operation `at` part of the candidate, which takes its place. False, and nothing changed, where it cannot.
  bool merge(size_t at, const npu::Elementwise& e, const Candidate& c) {
    if (!is_seen_by(e, c)) return false;
    npu::Operation merged = graph_.operations[static_cast<size_t>(c.index)];
    if (std::holds_alternative<npu::Rows>(merged.what) || std::holds_alternative<npu::Kernel>(merged.what))
      return false;  // they take no stage
    if (!append(stage_of(merged), c.stage, tensor(c.through).is_unsigned)) return false;
    const bool other_extents = keeps_own_extents(e, c);
    if (other_extents && has_second_alike(e, c))
      stage_of(merged).second->tensor = seen_as(c.through, c.stage.second->tensor);
    const npu::TensorId output = other_extents ? seen_as(c.through, e.output) : e.output;
    std::visit([&](auto& what) { what.output = output; }, merged.what);
    merged.kind += "+" + graph_.operations[at].kind;
    const std::vector<std::string>& names = graph_.operations[at].nodes;
    merged.nodes.insert(merged.nodes.end(), names.begin(), names.end());
    graph_.operations[at] = std::move(merged);
    graph_.operations.erase(graph_.operations.begin() + c.index);
    return true;
  }

  npu::Graph& graph_;
};

}  // namespace

void fuse_stages(npu::Graph& graph, const PassContext&) { StageFusion(graph).run(); }

}  // namespace tessera::graph
