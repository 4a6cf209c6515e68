// SPDX-License-Identifier: Apache-2.0
// From the positions at which an element's operands are read to a nest's accesses. A loop's pitch is the sum over the
// tensor's axes of its factor there times the axis's pitch.
#include "compiler/npu/tasks/compute.h"

#include <algorithm>

namespace tessera::npu {

using schedule::Access;
using schedule::Computation;
using schedule::Dim;
using schedule::Nest;

namespace {

constexpr std::array<Loop, 3> kPixelLoops = {Loop::kN, Loop::kH, Loop::kW};
constexpr std::array<int64_t Access::*, 3> kPitches = {&Access::pitch_n, &Access::pitch_h, &Access::pitch_w};
constexpr std::array<bool Access::*, 4> kBroadcasts = {&Access::broadcast_n, &Access::broadcast_h, &Access::broadcast_w,
                                                       &Access::broadcast_c};

std::array<int64_t, 4> pitches_of(const Placement& place, const Tensor& t) {
  return {place.image_pitch, place.row_pitch, place.pixel_pitch, t.element_bytes};
}

std::array<int64_t, 4> extents_of(const Tensor& t) { return {t.n, t.h, t.w, t.c}; }

/// Bytes from one iteration of a loop to the next.
int64_t pitch_of(const Element& element, Loop loop, const std::array<int64_t, 4>& pitches) {
  int64_t sum = 0;
  for (size_t axis = 0; axis < 4; ++axis) sum += element.position[axis][loop] * pitches[axis];
  return sum;
}

int64_t offset_of(const Element& element, const Placement& place, const std::array<int64_t, 4>& pitches) {
  int64_t sum = place.offset;
  for (size_t axis = 0; axis < 4; ++axis) sum += element.position[axis].constant * pitches[axis];
  return sum;
}

bool depends(const Element& element, Loop loop) {
  return std::any_of(element.position.begin(), element.position.end(), [&](const Index& i) { return i[loop] != 0; });
}

Access access_of(const Element& element, const Compute& made, const Tensor& t, const Placement& place) {
  const auto pitches = pitches_of(place, t);
  Access access;
  access.present = true;
  access.base = place.base;
  access.offset = offset_of(element, place, pitches);
  access.element_bytes = t.element_bytes;
  access.is_unsigned = t.is_unsigned;
  access.row_end = t.h;
  access.col_end = t.w;
  for (size_t i = 0; i < kPixelLoops.size(); ++i) access.*kPitches[i] = pitch_of(element, kPixelLoops[i], pitches);
  for (const Loop loop : {Loop::kN, Loop::kH, Loop::kW, Loop::kC})
    access.*kBroadcasts[static_cast<size_t>(loop)] = made[loop] > 1 && !depends(element, loop);
  return access;
}

/// Steps and pads of the window are the nest's; the access has the tensor's own rows and columns.
void set_input(Nest& nest, const Compute& made, const Tensor& t, const Placement& place) {
  const Index &row = made.input.position[1], &column = made.input.position[2];
  nest.extent[Dim::kKh] = made[Loop::kY];
  nest.extent[Dim::kKw] = made[Loop::kX];
  nest.stride_h = std::max<int64_t>(row[Loop::kH], 1);
  nest.stride_w = std::max<int64_t>(column[Loop::kW], 1);
  nest.dilation_h = std::max<int64_t>(row[Loop::kY], 1);
  nest.dilation_w = std::max<int64_t>(column[Loop::kX], 1);
  nest.pad_top = -row.constant;
  nest.pad_left = -column.constant;
  Element first = made.input;  // of a window
  if (row[Loop::kH] != 0) first.position[1] = loops::h;
  if (column[Loop::kW] != 0) first.position[2] = loops::w;
  nest.input = access_of(first, made, t, place);
  nest.input.broadcast_c = nest.input.broadcast_c && made.computation == Computation::kMap;
  if (!made.padding) return;
  nest.pad_value = static_cast<uint8_t>(*made.padding);
  if (t.border.empty() || t.border.value != *made.padding) return;  // DRAM holds what padding would be
  nest.input.row_begin = -t.border.top;
  nest.input.row_end = t.h + t.border.bottom;
  nest.input.col_begin = -t.border.left;
  nest.input.col_end = t.w + t.border.right;
}

void set_factor(Nest& nest, const Compute& made, const Tensor& t, const Placement& place) {
  const auto pitches = pitches_of(place, t);
  const auto pitch = [&](Loop loop) { return made[loop] > 1 ? pitch_of(*made.factor, loop, pitches) : 0; };
  nest.factor = {.present = true,
                 .base = place.base,
                 .offset = offset_of(*made.factor, place, pitches),
                 .pitch_n = pitch(Loop::kN),
                 .pitch_h = pitch(Loop::kH),
                 .pitch_w = pitch(Loop::kW),
                 .pitch_k = pitch_of(*made.factor, Loop::kK, pitches),
                 .pitch_column = pitch_of(*made.factor, Loop::kC, pitches),
                 .is_unsigned = t.is_unsigned};
}

void set_channels(Nest& nest, const Compute& made, const isa::MachineConfig& config) {
  const int64_t channels = made[Loop::kC], block = config.block_out;
  switch (nest.computation) {
    case Computation::kDense:
      nest.in_channels = {made[Loop::kK], made[Loop::kK], config.block_in};
      nest.out_channels = {channels, channels, block};
      return;
    case Computation::kDepthwise:  // a block of lanes in each chunk
      nest.in_channels = {channels, config.lanes(), config.block_in};
      nest.out_channels = {channels, config.lanes(), block};
      return;
    default: break;
  }
  nest.in_channels = nest.out_channels = {channels, block, block};
  // The vector unit reads INP when an entry of INP has its lanes, else OUT.
  nest.input_space = nest.input.element_bytes == 4         ? isa::Space::kAcc
                     : config.block_in == config.block_out ? isa::Space::kInp
                                                           : isa::Space::kOut;
}

void set_stage(Nest& nest, const Stage& stage) {
  nest.raw = stage.raw;
  nest.convert = stage.convert;
  const auto varied = [](const auto& values) {
    return std::any_of(values.begin(), values.end(), [&](const auto& v) { return !(v == values.front()); });
  };
  nest.per_channel = varied(stage.bias) || varied(stage.multiplier);
  nest.bias_preload = stage.raw && std::any_of(stage.bias.begin(), stage.bias.end(), [](int32_t v) { return v != 0; });
}

}  // namespace

Compute Maker::every(TensorId result) const {
  Compute made;
  made.result = {result, {loops::n, loops::h, loops::w, loops::c}};
  std::ranges::copy(extents_of(tensor(result)), made.extent.begin());
  return made;
}

Element Maker::beside(TensorId id, const Element& result) const {
  const auto own = extents_of(tensor(id)), whole = extents_of(tensor(result.tensor));
  Element element{id, result.position};
  for (size_t axis = 0; axis < 4; ++axis)
    if (own[axis] == 1 && whole[axis] > 1) element.position[axis] = {};
  return element;
}

Nest Maker::nest(const Compute& made, const Stage& stage) const {
  const auto access = [&](const Element& e) { return access_of(e, made, tensor(e.tensor), place(e.tensor)); };
  Nest nest;
  nest.computation = made.computation;
  nest.images = made[Loop::kN];
  nest.extent[Dim::kOh] = made[Loop::kH];
  nest.extent[Dim::kOw] = made[Loop::kW];
  nest.output = access(made.result);
  if (stage.second) nest.second = access(beside(stage.second->tensor, made.result));
  set_stage(nest, stage);
  if (made.input.tensor != kNoTensor) {
    set_input(nest, made, tensor(made.input.tensor), place(made.input.tensor));
  } else {
    nest.input.present = true;
    nest.input.base = kConstantBase;
    nest.input.pitch_w = config.block_in;
    nest.input.broadcast_n = nest.input.broadcast_h = true;
  }
  if (made.factor) set_factor(nest, made, tensor(made.factor->tensor), place(made.factor->tensor));
  set_channels(nest, made, config);
  return nest;
}

void Maker::add(const Compute& made, Task task) const {
  const Stage& stage = *task.stage;
  add(nest(made, stage), std::move(task));
}

void Maker::add(Nest nest, Task task) const {
  finish_nest(nest, config);
  task.alternatives.push_back(std::move(nest));
  tasks.push_back(std::move(task));
}

bool collapse(Nest& nest, const Collapse& how, int64_t outer, int64_t inner) {
  if (outer == 1) return true;
  Access* const operands[] = {&nest.input, &nest.second, &nest.output};
  for (const Access* a : operands) {
    if (!a->present || inner == 1) continue;
    const bool both = a->*how.outer_broadcast && a->*how.inner_broadcast;
    const bool neither = !(a->*how.outer_broadcast) && !(a->*how.inner_broadcast) &&
                         a->*how.outer_pitch == inner * (a->*how.inner_pitch);
    if (!both && !neither) return false;
  }
  if (inner == 1) {
    for (Access* a : operands) {
      a->*how.inner_pitch = a->*how.outer_pitch;
      a->*how.inner_broadcast = a->*how.outer_broadcast;
    }
  }
  for (Access* a : operands) {
    a->*how.outer_pitch = 0;
    a->*how.outer_broadcast = false;
  }
  return true;
}

}  // namespace tessera::npu
