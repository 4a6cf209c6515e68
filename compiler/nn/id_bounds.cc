// SPDX-License-Identifier: Apache-2.0
#include "compiler/nn/id_bounds.h"

#include <algorithm>

#include "compiler/nn/bridge.h"

namespace tessera::nn {
namespace {

constexpr size_t kMostValues = 64;  // that are followed from one input

/// Whether the results hold elements of operand `index`, in whatever shape.
bool moves_elements(NodeOp op, unsigned index) {
  for (const char* type : {"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand",
                           "Slice", "Tile", "Split", "DepthToSpace", "SpaceToDepth"})
    if (op.is(type)) return index == 0;
  return op.is("Concat");
}

/// The extent of an axis of an operand; 0 where it is not known.
int64_t extent_of(NodeOp op, unsigned operand, int64_t axis) {
  const mlir::Value value = input_or_null(op, operand);
  const auto shape = value ? shape_of(value) : std::nullopt;
  if (!shape) return 0;
  if (axis < 0) axis += static_cast<int64_t>(shape->size());
  if (axis < 0 || axis >= static_cast<int64_t>(shape->size())) return 0;
  return std::max<int64_t>(0, (*shape)[static_cast<size_t>(axis)]);
}

/// How many rows operand `index` chooses among; 0: it does not, or their number is not known.
int64_t rows_behind(NodeOp op, unsigned index) {
  if (index == 1 && (op.is("Gather") || op.is("GatherElements") || op.is("ScatterElements") || op.is("Scatter")))
    return extent_of(op, 0, to_node(op).get_int("axis", 0));
  if (index == 1 && (op.is("GatherND") || op.is("ScatterND"))) {
    const auto shape = shape_of(op.getInputs()[0]);
    if (!shape || shape->empty()) return 0;
    return std::max<int64_t>(0, *std::min_element(shape->begin(), shape->end()));
  }
  if (index == 1 && op.is("ArrayFeatureExtractor", "ai.onnx.ml")) return extent_of(op, 0, -1);
  if (op.is("EmbedLayerNormalization", "com.microsoft") && index < 2) return extent_of(op, index == 0 ? 2 : 4, 0);
  return 0;
}

int64_t bound_of(mlir::Value input) {
  int64_t bound = 0;
  std::vector<mlir::Value> reached{input};
  for (size_t i = 0; i < reached.size() && i < kMostValues; ++i) {
    for (mlir::OpOperand& use : reached[i].getUses()) {
      auto op = mlir::dyn_cast<NodeOp>(use.getOwner());
      if (!op) continue;
      if (const int64_t rows = rows_behind(op, use.getOperandNumber()); rows > 0)
        bound = bound == 0 ? rows : std::min(bound, rows);
      if (!moves_elements(op, use.getOperandNumber())) continue;
      for (mlir::Value result : op.getResults())
        if (std::find(reached.begin(), reached.end(), result) == reached.end()) reached.push_back(result);
    }
  }
  return bound;
}

}  // namespace

std::vector<int64_t> id_bounds(mlir::func::FuncOp function) {
  std::vector<int64_t> bounds;
  for (mlir::Value argument : function.getArguments()) bounds.push_back(bound_of(argument));
  return bounds;
}

}  // namespace tessera::nn
