// SPDX-License-Identifier: Apache-2.0
// The machine wants the factor of a product as [columns, k]. Where it stands as [k, columns] it can be fetched byte by
// byte, which costs a DRAM latency for every few bytes, or be transposed first by products with a unit matrix. The
// generator says what each takes on the machine at hand. A factor that several products read is transposed once.
#include <algorithm>

#include "compiler/graph/passes.h"

namespace tessera::graph {
namespace {

/// A product of all matrices in one image, which is how the generator is asked.
bool pays(const npu::Graph& graph, const npu::Product& product, const PassContext& context) {
  const auto tensor = [&](npu::TensorId id) -> const npu::Tensor& { return graph.tensors[static_cast<size_t>(id)]; };
  const npu::Tensor& output = tensor(product.output);
  npu::Tensor left, factor, result;
  left.h = factor.h = result.h = output.n * output.h;
  left.w = result.w = output.w;
  left.c = factor.w = tensor(product.input).c;
  factor.c = result.c = output.c;
  return npu::pays_to_transpose(left, factor, result, context.config, context.options);
}

/// The same elements in the same order, under whatever name.
bool same_elements(npu::Tensor a, const npu::Tensor& b) {
  a.name = b.name;
  return a == b;
}

}  // namespace

void transpose_factors(npu::Graph& graph, const PassContext& context) {
  std::vector<std::pair<npu::TensorId, npu::TensorId>> turned;  // factors and the same transposed
  for (size_t at = 0; at < graph.operations.size(); ++at) {
    const auto* found = std::get_if<npu::Product>(&graph.operations[at].what);
    if (!found || found->transposed || !pays(graph, *found, context)) continue;
    const npu::TensorId factor = found->factor;
    const npu::Tensor source = graph.tensors[static_cast<size_t>(factor)];
    auto known = std::find_if(turned.begin(), turned.end(), [&](const auto& pair) {
      return pair.first == factor || (source.view_of != npu::kNoTensor &&
                                      same_elements(graph.tensors[static_cast<size_t>(pair.first)], source));
    });
    if (known == turned.end()) {
      npu::Tensor target;
      target.name = source.name;
      target.n = source.n, target.h = source.h, target.w = source.c, target.c = source.w;
      target.is_unsigned = source.is_unsigned;
      npu::Transposition transposition;
      transposition.input = factor;
      transposition.output = graph.add(std::move(target));
      turned.emplace_back(factor, transposition.output);
      known = turned.end() - 1;
      npu::Operation operation;
      operation.name = graph.operations[at].name + ":copy";
      operation.kind = "Copy";
      operation.macs = npu::kNoMacs;
      operation.what = transposition;
      graph.operations.insert(graph.operations.begin() + static_cast<std::ptrdiff_t>(at), std::move(operation));
      ++at;
    }
    auto& product = std::get<npu::Product>(graph.operations[at].what);
    product.factor = known->second;
    product.transposed = true;
  }
}

}  // namespace tessera::graph
