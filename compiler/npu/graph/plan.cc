// SPDX-License-Identifier: Apache-2.0
// Lives of tensors and greedy placement by size.
#include "compiler/npu/graph/plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <type_traits>

#include "base/error.h"
#include "compiler/npu/graph/cores_memory.h"
#include "isa/verify/effects.h"

namespace tessera::npu {

namespace {

struct Life {
  int64_t begin = std::numeric_limits<int64_t>::max();
  int64_t end = -1;
  int owner = 0;
  bool used = false;
};

int64_t region_bytes(const Tensor& t) {
  return t.n * (t.h + t.border.top + t.border.bottom) * (t.w + t.border.left + t.border.right) * t.c * t.element_bytes;
}

}  // namespace

Placement dense_placement(const Tensor& t, int64_t region_offset) {
  Placement place;
  place.pixel_pitch = t.c * t.element_bytes;
  place.row_pitch = (t.w + t.border.left + t.border.right) * place.pixel_pitch;
  place.image_pitch = (t.h + t.border.top + t.border.bottom) * place.row_pitch;
  place.region_offset = region_offset;
  place.region_bytes = region_bytes(t);
  place.offset = region_offset + t.border.top * place.row_pitch + t.border.left * place.pixel_pitch;
  return place;
}

TensorId root_of(const Graph& graph, TensorId tensor) {
  for (size_t steps = 0; steps <= graph.tensors.size(); ++steps) {
    const Tensor& t = graph.tensors[static_cast<size_t>(tensor)];
    if (t.view_of != kNoTensor)
      tensor = t.view_of;
    else if (t.reshape_of != kNoTensor)
      tensor = t.reshape_of;
    else
      return tensor;
  }
  throw Error(ErrorCode::kInvalidArgument,
              "tensor '" + graph.tensors[static_cast<size_t>(tensor)].name + "' is a view of itself");
}

Uses uses_of(const Operation& operation) {
  Uses uses;
  std::visit(
      [&](const auto& op) {
        uses.read.push_back(op.input);
        if constexpr (std::is_same_v<std::decay_t<decltype(op)>, Product>) uses.read.push_back(op.factor);
        if constexpr (std::is_same_v<std::decay_t<decltype(op)>, Kernel>)
          uses.read.insert(uses.read.end(), op.more.begin(), op.more.end());
        if (op.stage.second) uses.read.push_back(op.stage.second->tensor);
      },
      operation.what);
  uses.written = written_by(operation);
  return uses;
}

TensorId written_by(const Operation& operation) {
  return std::visit([](const auto& op) { return op.output; }, operation.what);
}

namespace {

/// The life of every allocation, by the tensor that holds it.
std::vector<Life> lives_of(const Graph& graph, const std::vector<bool>& on_chip,
                           const std::vector<std::pair<int64_t, int64_t>>& when) {
  std::vector<Life> lives(graph.tensors.size());
  const auto touch = [&](TensorId id, int64_t begin, int64_t end) {
    const auto root = static_cast<size_t>(root_of(graph, id));
    if (!on_chip.empty() && on_chip[root]) return;
    Life& life = lives[root];
    life.used = true;
    life.begin = std::min(life.begin, begin);
    life.end = std::max(life.end, end);
  };
  const auto steps = static_cast<int64_t>(graph.operations.size());
  for (int64_t i = 0; i < steps; ++i) {
    const Uses uses = uses_of(graph.operations[static_cast<size_t>(i)]);
    const auto [begin, end] = when.empty() ? std::pair{i, i} : when[static_cast<size_t>(i)];
    for (const TensorId id : uses.read) touch(id, begin, end);
    touch(uses.written, begin, end);
  }
  for (const std::vector<TensorId>* list : {&graph.inputs, &graph.outputs}) {
    for (const TensorId id : *list) touch(id, -1, steps);
  }
  return lives;
}

struct Block {
  int64_t begin, end;
  Life life;
};

/// Takes the lowest offset that no block of an overlapping life occupies. `placed`: by begin.
Block take_place(std::vector<Block>& placed, int64_t size, const Life& life, bool reuse) {
  int64_t offset = 0;
  for (const Block& block : placed) {
    const bool may = reuse && block.life.owner == life.owner && life.owner >= 0;
    const bool together = !may || (block.life.begin <= life.end && life.begin <= block.life.end);
    if (!together || block.end <= offset) continue;
    if (block.begin >= offset + size) break;
    offset = block.end;
  }
  const Block block{offset, offset + size, life};
  placed.insert(std::upper_bound(placed.begin(), placed.end(), block,
                                 [](const Block& a, const Block& b) { return a.begin < b.begin; }),
                block);
  return block;
}

/// The place of a view or a reshape inside the place of its parent.
Placement inside(const Tensor& tensor, Placement place) {
  if (tensor.strided) {
    place.offset += tensor.view_start * tensor.element_bytes;
    place.image_pitch = tensor.step_n * tensor.element_bytes;
    place.row_pitch = tensor.step_h * tensor.element_bytes;
    place.pixel_pitch = tensor.step_w * tensor.element_bytes;
  } else if (tensor.view_of != kNoTensor) {
    place.offset += tensor.view_n * place.image_pitch + tensor.view_h * place.row_pitch +
                    tensor.view_w * place.pixel_pitch + tensor.view_c * tensor.element_bytes;
  } else {
    const Placement dense = dense_placement(tensor, place.offset);
    place.offset = dense.offset;
    place.image_pitch = dense.image_pitch;
    place.row_pitch = dense.row_pitch;
    place.pixel_pitch = dense.pixel_pitch;
  }
  return place;
}

/// A tensor's place from the root down the chain, so that a view of a reshape of a view resolves in order.
Placement resolve(const Graph& graph, const std::vector<Placement>& placements, size_t tensor) {
  const Tensor& t = graph.tensors[tensor];
  const TensorId parent = t.view_of != kNoTensor ? t.view_of : t.reshape_of;
  if (parent == kNoTensor) return placements[tensor];
  return inside(t, resolve(graph, placements, static_cast<size_t>(parent)));
}

/// The base register of a slide; those of one pitch share it.
uint32_t slide_base(std::vector<int64_t>& slides, int64_t pitch) {
  const auto found = std::find(slides.begin(), slides.end(), pitch);
  const auto number = static_cast<uint32_t>(found - slides.begin());
  if (found == slides.end()) slides.push_back(pitch);
  if (kFirstSlideBase + number >= kLengthTableBase)
    throw Error(ErrorCode::kDoesNotFit, "the caches have more layouts than the machine has base registers");
  return kFirstSlideBase + number;
}

}  // namespace

MemoryPlan plan_memory(const Graph& graph, const Options& options, const std::vector<bool>& on_chip,
                       const std::vector<std::pair<int64_t, int64_t>>& when) {
  return plan_memory(graph, options, on_chip, when, {});
}

MemoryPlan plan_memory(const Graph& graph, const Options& options, const std::vector<bool>& on_chip,
                       const std::vector<std::pair<int64_t, int64_t>>& when, const std::vector<int>& owners) {
  const size_t count = graph.tensors.size();
  MemoryPlan plan;
  plan.placements.resize(count);
  std::vector<Life> lives = lives_of(graph, on_chip, when);
  for (size_t i = 0; i < owners.size(); ++i) lives[i].owner = owners[i];
  std::vector<size_t> order;
  for (size_t i = 0; i < count; ++i) {
    if (lives[i].used) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return region_bytes(graph.tensors[a]) > region_bytes(graph.tensors[b]); });
  std::vector<Block> placed;
  for (const size_t i : order) {
    if (const int32_t cache = graph.tensors[i].cache; cache >= 0) {
      if (static_cast<size_t>(cache) >= options.cache_offsets.size())
        throw Error(ErrorCode::kInvalidArgument,
                    "tensor '" + graph.tensors[i].name + "' lies in a cache that has no place");
      plan.placements[i] = dense_placement(graph.tensors[i], options.cache_offsets[static_cast<size_t>(cache)]);
      plan.placements[i].base = kCacheBase;
      continue;
    }
    const int64_t size = (region_bytes(graph.tensors[i]) + kAlignment - 1) / kAlignment * kAlignment;
    plan.unshared_bytes += static_cast<uint64_t>(size);
    const Block block = take_place(placed, size, lives[i], options.reuse_memory);
    plan.placements[i] = dense_placement(graph.tensors[i], block.begin);
    plan.arena_bytes = std::max(plan.arena_bytes, static_cast<uint64_t>(block.end));
  }
  for (size_t i = 0; i < count; ++i) {
    const Tensor& t = graph.tensors[i];
    if (t.view_of != kNoTensor || t.reshape_of != kNoTensor) plan.placements[i] = resolve(graph, plan.placements, i);
    if (t.slide != 0) plan.placements[i].base = slide_base(plan.slides, t.slide);
  }
  return plan;
}

std::vector<Placement> places_apart(const Graph& graph, Options options) {
  options.reuse_memory = false;
  return plan_memory(graph, options).placements;
}

}  // namespace tessera::npu
