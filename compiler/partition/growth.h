// SPDX-License-Identifier: Apache-2.0
// What the NPU may compute of values that grow with the past of a decoder. It computes them at their largest extent:
// the first elements are right, and what stands behind them is anything. So an operation must keep each element's
// place along the axis, and must not mix the elements of it. Enters: an operation of the value graph and the axes of
// its values. Leaves: whether it may run on the NPU, and which value must be 0 behind its end.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "compiler/graph/value_graph.h"

namespace tessera::partition {

/// The axes of a value that grow.
using AxesOf = std::function<const std::vector<int64_t>&(graph::ValueId)>;

/// Whether the rows of this softmax lie along an axis that grows, `longest` elements at most.
bool grows_along_rows(const graph::Operation& operation, const graph::ValueGraph& values, const AxesOf& axes,
                      int64_t longest);

struct GrowthRule {
  bool fits = false;
  /// A product that sums along the axis: its left operand must hold this byte, the operand's zero point, behind its
  /// end. The host writes it there, and so does a softmax along the axis.
  std::optional<int32_t> fill;
};

/// `longest`: the extent of the past and what a run adds.
GrowthRule growth_rule(const graph::Operation& operation, const graph::ValueGraph& values, const AxesOf& axes,
                       int64_t longest);

}  // namespace tessera::partition
