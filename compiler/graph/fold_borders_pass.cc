// SPDX-License-Identifier: Apache-2.0
// A first layer with few channels is packed by layout: a window's pixels stand side by side as channels, and the input
// carries a border, which the runtime writes, instead of pads. Only an input that this one convolution reads can.
#include <algorithm>

#include "compiler/graph/passes.h"
#include "compiler/npu/graph/plan.h"

namespace tessera::graph {

void fold_borders(npu::Graph& graph, const PassContext& context) {
  for (const npu::TensorId id : graph.inputs) {
    const npu::Convolution* only = nullptr;
    size_t uses = 0;
    for (const npu::Tensor& t : graph.tensors) uses += t.reshape_of == id || t.view_of == id ? 1 : 0;
    for (const npu::Operation& operation : graph.operations) {
      const npu::Uses used = npu::uses_of(operation);
      uses += static_cast<size_t>(std::count(used.read.begin(), used.read.end(), id));
      if (const auto* conv = std::get_if<npu::Convolution>(&operation.what); conv && conv->input == id) only = conv;
    }
    npu::Tensor& tensor = graph.tensors[static_cast<size_t>(id)];
    if (uses != 1 || !only || !tensor.border.empty()) continue;
    tensor.border = npu::folding_border(tensor, *only, graph.tensors[static_cast<size_t>(only->output)].c,
                                        context.config, context.options);
  }
}

}  // namespace tessera::graph
