// SPDX-License-Identifier: Apache-2.0
// What the makers of tasks share. Internal to compiler/npu: task.cc and product.cc.
#pragma once

#include <vector>

#include "compiler/npu/task.h"

namespace tessera::npu {

schedule::Access access_of(const Tensor& t, const Placement& place);

/// The parts of a nest that every operation has: output, stage, second operand.
schedule::Nest start_nest(const Graph& graph, const Tensor& output, const Placement& place, const Stage& stage,
                          const std::vector<Placement>& placements);

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

void make(const Product& op, const Graph& graph, const std::vector<Placement>& placements,
          const isa::MachineConfig& config, const Options& options, std::vector<Task>& tasks);
void make(const Transposition& op, const Graph& graph, const std::vector<Placement>& placements,
          const isa::MachineConfig& config, const Options& options, std::vector<Task>& tasks);

}  // namespace tessera::npu
