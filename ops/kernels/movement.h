// SPDX-License-Identifier: Apache-2.0
// Operators that only move elements: the address map of each is said once, as Movements, from which the kernel here and
// the compiled loop (compiler/cpu/expressions/shape.cc) come.
#pragma once

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

/// How one result reads input 0, without looking at its elements: seen under the shape `as`, the operand has the
/// element at index i of `shape` at start[d] + step[d] * i[from[d]] along each axis d, or at start[d] where from[d] is
/// -1. The result has these elements in this order, under its own shape.
struct Movement {
  Shape as, shape;
  std::vector<int64_t> from, start, step;
  /// Whether it is the operand, element for element.
  bool is_whole() const;
};
/// A movement for each result, whose types are known. It throws through node.fail() where the content of an operand
/// that it depends on is not known.
using MoveFunction = std::function<std::vector<Movement>(const Node&, const std::vector<TypeInfo>& inputs,
                                                         const std::vector<TypeInfo>& results)>;
/// The function of an operator that was added by add_movement(); nullptr for others.
const MoveFunction* moves_of(const Node& node);

/// The whole operand in its order.
Movement whole(const Shape& shape);
/// The operand under the shape `as` with its axes permuted: axis d of the result is axis permutation[d] of the operand.
Movement permuted(const Shape& as, const std::vector<int64_t>& permutation);

/// What Pad adds in front of and behind each axis (negative: takes away): `pads` as given for `axes` (absent: all of
/// `rank`). Throws through node.fail() where they do not fit together.
std::vector<std::pair<int64_t, int64_t>> pad_amounts(const Node& node, const std::vector<int64_t>& pads,
                                                     const std::optional<std::vector<int64_t>>& axes, int64_t rank);

/// Adds an operator whose results are movements of input 0. `moves` is asked after `infer` has accepted the operands.
void add_movement(Registry& registry, const char* name, int since_version, kernel::Arity inputs, InferFunction infer,
                  MoveFunction moves, std::set<std::string> attributes = {}, kernel::Arity outputs = kernel::kOne);

}  // namespace tessera::ops
