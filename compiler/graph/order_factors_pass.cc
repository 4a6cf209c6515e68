// SPDX-License-Identifier: Apache-2.0
// A product may go on from the result that stands right in front of it without a way through DRAM. What stands between
// them and needs nothing of what goes before, as the making of the product's factor, is done first.
#include <algorithm>
#include <set>

#include "compiler/graph/passes.h"
#include "compiler/npu/graph/plan.h"
#include "compiler/npu/lowering/chain.h"

namespace tessera::graph {
namespace {

/// What is written or read where a tensor lies: tensors of one allocation, or of one cache, have the same.
int64_t place_of(const npu::Graph& graph, npu::TensorId tensor) {
  const npu::TensorId root = npu::root_of(graph, tensor);
  const int32_t cache = graph.tensors[static_cast<size_t>(root)].cache;
  return cache >= 0 ? -1 - int64_t{cache} : root;
}

/// Places that operations read and write.
struct Touched {
  std::set<int64_t> read, written;

  void add(const npu::Graph& graph, const npu::Operation& operation) {
    const npu::Uses uses = npu::uses_of(operation);
    for (const npu::TensorId id : uses.read) read.insert(place_of(graph, id));
    written.insert(place_of(graph, uses.written));
  }
};

bool independent(const npu::Graph& graph, const npu::Operation& later, const Touched& earlier) {
  const npu::Uses uses = npu::uses_of(later);
  const int64_t to = place_of(graph, uses.written);
  return !earlier.read.contains(to) && !earlier.written.contains(to) &&
         std::none_of(uses.read.begin(), uses.read.end(),
                      [&](npu::TensorId id) { return earlier.written.contains(place_of(graph, id)); });
}

npu::TensorId input_of(const npu::Operation& operation) {
  return std::visit([](const auto& op) { return op.input; }, operation.what);
}

/// The first of the operations that may go on chip into operation `end`, at most `most`.
size_t first_link(const npu::Graph& graph, size_t end, size_t most) {
  size_t first = end;
  while (first > 0 && end - first < most &&
         npu::uses_of(graph.operations[first - 1]).written == input_of(graph.operations[first]))
    --first;
  return first;
}

}  // namespace

void order_factors(npu::Graph& graph, const PassContext&) {
  std::vector<npu::Operation>& operations = graph.operations;
  for (size_t at = 0; at < operations.size(); ++at) {
    if (!std::holds_alternative<npu::Product>(operations[at].what)) continue;
    size_t made = at;  // behind the operation that makes the product's input
    while (made > 0 && npu::uses_of(operations[made - 1]).written != input_of(operations[at])) --made;
    if (made == 0 || made == at) continue;
    const size_t first = first_link(graph, made - 1, npu::kMostLinks - 2);
    Touched links;
    for (size_t k = first; k < made; ++k) links.add(graph, operations[k]);
    const auto begin = operations.begin();
    const auto free = [&](const npu::Operation& operation) { return independent(graph, operation, links); };
    if (std::all_of(begin + static_cast<std::ptrdiff_t>(made), begin + static_cast<std::ptrdiff_t>(at), free)) {
      std::rotate(begin + static_cast<std::ptrdiff_t>(first), begin + static_cast<std::ptrdiff_t>(made),
                  begin + static_cast<std::ptrdiff_t>(at));
    }
  }
}

}  // namespace tessera::graph
