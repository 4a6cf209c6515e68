// SPDX-License-Identifier: Apache-2.0
// Fusion on the operation graph: an elementwise operation becomes part of the output stage of the operation that makes
// its input, when nobody else reads that tensor and the stage has room. The producer moves down to the elementwise
// operation's place, where the second tensor is there.
#include <algorithm>

#include "compiler/graph/passes.h"
#include "compiler/npu/plan.h"

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

}  // namespace

void fuse_stages(npu::Graph& graph, const PassContext&) {
  const auto tensor = [&](npu::TensorId id) -> const npu::Tensor& { return graph.tensors[static_cast<size_t>(id)]; };
  const auto producer = [&](npu::TensorId id) {
    for (size_t i = 0; i < graph.operations.size(); ++i)
      if (output_of(graph.operations[i]) == id) return static_cast<int64_t>(i);
    return int64_t{-1};
  };
  for (size_t at = 0; at < graph.operations.size(); ++at) {
    const auto* found = std::get_if<npu::Elementwise>(&graph.operations[at].what);
    if (!found || found->repeat_h != 1 || found->repeat_w != 1 ||
        !(passes_through(found->stage) || found->stage.convert))
      continue;
    const npu::Elementwise e = *found;
    if (!e.stage.convert && !e.stage.table && !e.stage.second && tensor(e.output).view_of == npu::kNoTensor) continue;

    struct Candidate {
      int64_t index;
      npu::Stage stage;
      npu::TensorId through, seen;  // the producer's tensor, as the elementwise operation reads it
    };
    std::vector<Candidate> candidates;
    const auto offer = [&](npu::TensorId seen, const npu::Stage& stage) {
      const npu::TensorId parent = tensor(seen).reshape_of;
      const npu::TensorId through = parent != npu::kNoTensor && reads(graph, seen) == 1 ? parent : seen;
      candidates.push_back({producer(through), stage, through, seen});
    };
    offer(e.input, e.stage);
    if (e.stage.second && !e.stage.table && !e.stage.convert && e.stage.second->tensor != e.input) {
      npu::Stage swapped = e.stage;  // the second tensor's producer takes the first's place
      swapped.second->tensor = e.input;
      swapped.second->swap = !swapped.second->swap;
      offer(e.stage.second->tensor, swapped);
    }
    // The later producer first: the other operand is there anyway.
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const auto& a, const auto& b) { return a.index > b.index; });
    for (Candidate& c : candidates) {
      if (c.index < 0 || !same_box(tensor(c.seen), tensor(e.output)) || reads(graph, c.through) != 1) continue;
      if (tensor(c.through).view_of != npu::kNoTensor || tensor(c.through).reshape_of != npu::kNoTensor) continue;
      // The producer keeps its own extents: what it writes, and a second tensor of as many elements, are seen in them.
      const bool other_extents = !same_box(tensor(c.through), tensor(e.output));
      const auto dense = [&](npu::TensorId id) { return tensor(id).view_of == npu::kNoTensor; };
      const bool second_alike = c.stage.second && same_box(tensor(c.stage.second->tensor), tensor(e.output));
      if (other_extents) {
        const npu::Tensor& made = tensor(c.through);
        if (made.c != tensor(e.output).c || !dense(e.output) || tensor(e.output).reshape_of != npu::kNoTensor) continue;
        if (c.stage.second && !(second_alike && dense(c.stage.second->tensor)) &&
            tensor(c.stage.second->tensor).elements() != tensor(c.stage.second->tensor).c)
          continue;
      }
      npu::Operation merged = graph.operations[static_cast<size_t>(c.index)];
      if (std::holds_alternative<npu::Rows>(merged.what) || std::holds_alternative<npu::Kernel>(merged.what))
        continue;  // they take no stage
      if (!append(stage_of(merged), c.stage, tensor(c.through).is_unsigned)) continue;
      const auto seen_as_made = [&](npu::TensorId id) {
        npu::Tensor alias = tensor(c.through);
        const npu::Tensor& whole = tensor(id);
        alias.name = whole.name;
        alias.is_unsigned = whole.is_unsigned;
        alias.element_bytes = whole.element_bytes;
        alias.reshape_of = whole.reshape_of != npu::kNoTensor ? whole.reshape_of : id;
        return graph.add(std::move(alias));
      };
      if (other_extents && second_alike) stage_of(merged).second->tensor = seen_as_made(c.stage.second->tensor);
      const npu::TensorId output = other_extents ? seen_as_made(e.output) : e.output;
      std::visit([&](auto& what) { what.output = output; }, merged.what);
      merged.kind += "+" + graph.operations[at].kind;
      const std::vector<std::string>& names = graph.operations[at].nodes;
      merged.nodes.insert(merged.nodes.end(), names.begin(), names.end());
      graph.operations[at] = std::move(merged);
      graph.operations.erase(graph.operations.begin() + c.index);
      --at;  // the place of the operation that follows
      break;
    }
  }
}

}  // namespace tessera::graph
