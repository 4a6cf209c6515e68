// SPDX-License-Identifier: Apache-2.0
// A kernel among the operations of a graph. Enters: its instructions, which are right when run one at a time, and the
// places of its tensors in the graph's memory. Leaves: the same instructions with these places, in the stream between
// those of its neighbours; waits are found for all of them together.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compiler/npu/graph/graph.h"
#include "compiler/npu/lowering/emitter.h"

namespace tessera::npu {

/// A kernel's instructions where the tensors stand.
struct KernelCode {
  std::vector<isa::Instruction> instructions;
  std::vector<uint32_t> layers;  // by instruction: those of lines stand behind those of all operations
  std::vector<uint8_t> constants;
  std::string key;  // tells it from other kernels and other places
};

/// Errors: kInvalidArgument for words that are no instructions or leave their tensors, and for a tensor that is not
/// dense.
std::shared_ptr<const KernelCode> kernel_code(const Graph& graph, size_t operation,
                                              const std::vector<Placement>& placements);

/// Appends the instructions.
void lower(const KernelCode& code, Emitter& emitter);

/// The number of the first layer of a kernel's lines.
size_t first_layer(const Graph& graph, size_t operation);

/// A layer for each line of each kernel, in the order of their numbers.
std::vector<LayerInfo> kernel_layers(const Graph& graph);

}  // namespace tessera::npu
