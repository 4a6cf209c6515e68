// SPDX-License-Identifier: Apache-2.0
// Which axes of which values grow with the length of the past in a decoder that is exported with past and present.
// Enters: one model imported for two lengths that differ by one, after the same passes. Leaves: for each value of the
// first module the axes that are longer there. Nothing has to be known of any operator.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/nn/bridge.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tessera::nn {

/// An input that a Concat (or the key and value of an attention with a cache) extends along `axis`; `output`: the
/// result that has both.
struct PastInput {
  unsigned input = 0, output = 0;
  int64_t axis = 0;
};

/// The pasts among the inputs whose dimensions are not all known; empty: there are none.
std::vector<PastInput> past_inputs(mlir::func::FuncOp function);

/// How many elements a run adds to the past of an input; -1: not known.
int64_t added_to(mlir::func::FuncOp function, unsigned input);

/// By the value's opaque pointer; values that do not grow are absent.
using GrowingAxes = std::map<const void*, std::vector<int64_t>>;

/// Errors: kUnsupported, naming the node, where the modules differ in more than extents by one: where the past's length
/// became a constant, or its axis was joined with another one.
GrowingAxes growing_axes(mlir::func::FuncOp longer, mlir::func::FuncOp shorter);

/// The axes of a value that grow.
inline const std::vector<int64_t>& axes_of(const GrowingAxes& axes, mlir::Value value) {
  static const std::vector<int64_t> none;
  const auto found = axes.find(value.getAsOpaquePointer());
  return found == axes.end() ? none : found->second;
}

}  // namespace tessera::nn
