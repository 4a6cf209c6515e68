// SPDX-License-Identifier: Apache-2.0
// Operators by what one element of their result is: loops, the positions at which operands are read, and what is made
// of them there. Enters: a Compute for each part of an operation. Leaves: its nest, whose pitches, strides, pads and
// broadcasts follow from the positions and the places of the tensors. Internal to compiler/npu.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "compiler/npu/tasks/task.h"

namespace tessera::npu {

/// n, h, w, c count images, rows, columns and channels of the result; y, x rows and columns of a window, and k channels
/// that are summed.
enum class Loop : uint8_t { kN, kH, kW, kC, kY, kX, kK };
inline constexpr size_t kLoops = 7;

/// A position: a number, and loops times numbers.
struct Index {
  int64_t constant = 0;
  std::array<int64_t, kLoops> factor{};

  constexpr int64_t operator[](Loop loop) const { return factor[static_cast<size_t>(loop)]; }
};
constexpr Index operator*(int64_t number, Index index) {
  index.constant *= number;
  for (int64_t& factor : index.factor) factor *= number;
  return index;
}
constexpr Index operator+(Index a, const Index& b) {
  a.constant += b.constant;
  for (size_t i = 0; i < kLoops; ++i) a.factor[i] += b.factor[i];
  return a;
}
constexpr Index at(int64_t constant) { return {constant, {}}; }
constexpr Index at(Loop loop) {
  Index index;
  index.factor[static_cast<size_t>(loop)] = 1;
  return index;
}
namespace loops {
inline constexpr Index n = at(Loop::kN), h = at(Loop::kH), w = at(Loop::kW), c = at(Loop::kC), y = at(Loop::kY),
                       x = at(Loop::kX), k = at(Loop::kK);
}  // namespace loops

/// An element of a tensor; without a tensor, of the unit matrix of BLOCK_IN rows.
struct Element {
  TensorId tensor = kNoTensor;
  std::array<Index, 4> position;  // image, row, column, channel
};

/// result = stage(computation(input, weights or factor)), for all of its loops.
struct Compute {
  schedule::Computation computation = schedule::Computation::kMap;
  Element result, input;
  std::optional<Element> factor;
  std::array<int64_t, kLoops> extent{1, 1, 1, 1, 1, 1, 1};
  std::optional<int32_t> padding;  // what stands outside of the input; nothing: all that is read is inside

  int64_t& operator[](Loop loop) { return extent[static_cast<size_t>(loop)]; }
  int64_t operator[](Loop loop) const { return extent[static_cast<size_t>(loop)]; }
};

/// What the tasks of an operation are made of, and for.
struct Maker {
  const Graph& graph;
  const std::vector<Placement>& placements;
  const isa::MachineConfig& config;
  const Options& options;
  std::vector<Task>& tasks;

  const Tensor& tensor(TensorId id) const { return graph.tensors[static_cast<size_t>(id)]; }
  const Placement& place(TensorId id) const { return placements[static_cast<size_t>(id)]; }

  /// All elements of a tensor, each at (n, h, w, c).
  Compute every(TensorId result) const;
  /// The element of another tensor that belongs to one of the result: where its extent is 1, that one.
  Element beside(TensorId tensor, const Element& result) const;
  /// All elements of op.output, and op.input at each window's positions.
  template <typename Window>
  Compute windows(const Window& op, const Index& channel) const {
    using namespace loops;
    Compute made = every(op.output);
    made[Loop::kY] = op.kernel_h;
    made[Loop::kX] = op.kernel_w;
    made.input = {op.input,
                  {n, op.stride_h * h + op.dilation_h * y + at(-op.pads.top),
                   op.stride_w * w + op.dilation_w * x + at(-op.pads.left), channel}};
    return made;
  }

  schedule::Nest nest(const Compute& made, const Stage& stage) const;
  /// Appends a task with the one nest of `made`.
  void add(const Compute& made, Task task) const;
  void add(schedule::Nest nest, Task task) const;
};

/// Extents that follow from images, channels and pixels.
void finish_nest(schedule::Nest& nest, const isa::MachineConfig& config);

/// Turns the inner of two dimensions and the outer one into a single dimension, if every operand allows it.
struct Collapse {
  int64_t schedule::Access::* outer_pitch;
  int64_t schedule::Access::* inner_pitch;
  bool schedule::Access::* outer_broadcast;
  bool schedule::Access::* inner_broadcast;
};
inline constexpr Collapse kRowsIntoColumns{&schedule::Access::pitch_h, &schedule::Access::pitch_w,
                                           &schedule::Access::broadcast_h, &schedule::Access::broadcast_w};
inline constexpr Collapse kImagesIntoColumns{&schedule::Access::pitch_n, &schedule::Access::pitch_w,
                                             &schedule::Access::broadcast_n, &schedule::Access::broadcast_w};
inline constexpr Collapse kImagesIntoRows{&schedule::Access::pitch_n, &schedule::Access::pitch_h,
                                          &schedule::Access::broadcast_n, &schedule::Access::broadcast_h};
bool collapse(schedule::Nest& nest, const Collapse& how, int64_t outer, int64_t inner);

void make(const Product& op, const Maker& maker);
void make(const Transposition& op, const Maker& maker);

}  // namespace tessera::npu
