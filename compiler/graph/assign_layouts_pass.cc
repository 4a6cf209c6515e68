// SPDX-License-Identifier: Apache-2.0
// The pass around the layout assigner: all operations in order, then the outputs.
#include "base/error.h"
#include "compiler/graph/layout_assigner.h"
#include "compiler/graph/passes.h"

namespace tessera::graph {

npu::Graph assign_layouts(const ValueGraph& values, const PassContext&) {
  LayoutAssigner assigner(values);
  for (const Operation& operation : values.operations) {
    if (assigner.add(operation)) continue;
    throw Error(ErrorCode::kUnsupported, "node '" + operation.name + "' (" + operation.kind +
                                             "): its operands cannot be arranged in the order of memory it needs");
  }
  return std::move(assigner).finish(values.outputs);
}

}  // namespace tessera::graph
