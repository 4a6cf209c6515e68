// SPDX-License-Identifier: Apache-2.0
#include "tessera/bare_metal/layout.h"

#include <algorithm>
#include <limits>

namespace tessera::bare_metal {

namespace {

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

struct Place {
  uint64_t bytes = 0;
  int64_t first = kEnd, last = -1;
  uint64_t* offset = nullptr;
};

uint64_t align64(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

bool meet(const Place& a, const Place& b) { return a.first <= b.last && b.first <= a.last; }

/// The lowest offset that no place alive at the same time covers.
uint64_t first_fit(const Place& place, const std::vector<const Place*>& placed) {
  std::vector<std::pair<uint64_t, uint64_t>> taken;
  for (const Place* other : placed)
    if (meet(place, *other)) taken.emplace_back(*other->offset, *other->offset + other->bytes);
  std::sort(taken.begin(), taken.end());
  uint64_t offset = 0;
  for (const auto& [begin, end] : taken) {
    if (offset + place.bytes <= begin) break;
    offset = std::max(offset, end);
  }
  return offset;
}

/// Calls f(value, whether it is written) for all values of a step.
template <typename F>
void each_value(const program::Step& step, F&& f) {
  if (const auto* npu = std::get_if<program::NpuStep>(&step)) {
    for (const program::DeviceTensor& d : npu->inputs) f(d.value, false);
    for (const program::DeviceTensor& d : npu->outputs) f(d.value, true);
    return;
  }
  const auto visit = [&](const auto& cpu) {
    for (const int64_t id : cpu.inputs) f(id, false);
    for (const int64_t id : cpu.outputs) f(id, true);
  };
  if (const auto* code = std::get_if<program::CodeStep>(&step))
    visit(*code);
  else
    visit(std::get<program::KernelStep>(step));
}

}  // namespace

ArenaLayout plan_arena(const program::Artifact& artifact) {
  ArenaLayout layout;
  std::map<int64_t, Place> places;
  std::vector<Place> scratch;
  const program::Plan& plan = artifact.plans[0];
  const auto touch = [&](int64_t id, int64_t at) {
    if (id < 0) return;
    const program::ValueInfo& info = artifact.values[static_cast<size_t>(id)];
    const uint64_t bytes = align64(program::tensor_bytes(info.dtype, info.shape));
    if (info.constant >= 0) {
      if (layout.constant.try_emplace(id, layout.constant_bytes).second) layout.constant_bytes += bytes;
      return;
    }
    Place& place = places[id];
    place.bytes = bytes;
    place.first = std::min(place.first, at);
    place.last = std::max(place.last, at);
    place.offset = &layout.values[id];
  };
  for (const int64_t id : plan.inputs) touch(id, -1);
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const auto at = static_cast<int64_t>(s);
    each_value(plan.steps[s], [&](int64_t id, bool) { touch(id, at); });
    const auto* code = std::get_if<program::CodeStep>(&plan.steps[s]);
    if (code && code->scratch_bytes != 0) scratch.push_back({align64(code->scratch_bytes), at, at, &layout.scratch[s]});
  }
  for (const int64_t id : plan.outputs) touch(id, kEnd);
  std::vector<const Place*> by_size, placed;
  for (const auto& [id, place] : places) by_size.push_back(&place);
  for (const Place& place : scratch) by_size.push_back(&place);
  std::stable_sort(by_size.begin(), by_size.end(), [](const Place* a, const Place* b) { return a->bytes > b->bytes; });
  for (const Place* place : by_size) {
    *place->offset = first_fit(*place, placed);
    layout.bytes = std::max(layout.bytes, *place->offset + place->bytes);
    placed.push_back(place);
  }
  return layout;
}

}  // namespace tessera::bare_metal
