// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/values/walk.h"

#include <iterator>

namespace tessera::npu {

int64_t Walk::size() const {
  int64_t all = 1;
  for (const int64_t n : extent) all *= n;
  return all;
}

std::optional<LoopParts> even_parts(int64_t extent, const std::function<std::optional<int64_t>(int64_t)>& offset) {
  LoopParts parts;
  for (int64_t done = 1; done < extent;) {  // iterations of the loops so far
    const auto step = offset(done);
    if (!step) return std::nullopt;
    int64_t count = 2;
    for (; done * count < extent; ++count) {
      const auto at = offset(done * count);
      if (!at) return std::nullopt;
      if (*at != *step * count) break;
    }
    done *= count;
    if (extent % done != 0) return std::nullopt;
    parts.insert(parts.begin(), {count, *step});
  }
  return parts;
}

Loops loops_of(isa::Alu& alu, Strides& moves) {
  Loops loops{&alu.extent, {&moves}, &alu.reduce, &alu.param_loop};
  for (Strides* strides : {&alu.src_stride, &alu.dst_stride, &alu.second_stride}) {
    if (strides != &moves) loops.strides.push_back(strides);
  }
  return loops;
}

Loops loops_of(isa::RowReduce& reduce, Strides& moves) {
  return {&reduce.extent, {&moves, &reduce.scalar_stride}, &reduce.row, nullptr};
}

Loops loops_of(isa::RowMap& map, Strides& moves) {
  Loops loops{&map.extent, {&moves}, &map.row, &map.param_loop};
  for (Strides* strides : {&map.src_stride, &map.dst_stride, &map.scalar_stride}) {
    if (strides != &moves) loops.strides.push_back(strides);
  }
  return loops;
}

bool set_loops(const Loops& loops, const NestParts& found) {
  struct Loop {
    size_t old;
    int64_t extent, times;  // iterations of the old loop in one of this
    std::optional<int64_t> stride;
  };
  std::vector<Loop> all;
  const size_t inner = loops.extent->size() - *loops.inner;
  for (size_t k = 0; k < loops.extent->size(); ++k) {
    const LoopParts& parts = found[k];
    if (parts.size() > 1 && loops.param != nullptr && *loops.param == k) return false;
    if (parts.empty()) all.push_back({k, (*loops.extent)[k], 1, std::nullopt});
    int64_t times = 1;
    for (const LoopPart& part : parts) times *= part.extent;
    for (const LoopPart& part : parts) {
      times /= part.extent;
      all.push_back({k, part.extent, times, part.stride});
    }
  }
  const auto spare = [&](const Loop& loop) {
    return loop.extent == 1 && loop.old < inner && (loops.param == nullptr || *loops.param != loop.old);
  };
  while (all.size() > loops.extent->size()) {
    const auto found_spare = std::find_if(all.begin(), all.end(), spare);
    if (found_spare == all.end()) return false;
    all.erase(found_spare);
  }
  std::vector<Strides> old;
  for (const Strides* strides : loops.strides) old.push_back(*strides);
  const auto param = loops.param == nullptr ? size_t{7} : size_t{*loops.param};
  *loops.inner = 0;
  for (size_t k = 0; k < all.size(); ++k) {
    const Loop& loop = all[k];
    (*loops.extent)[k] = static_cast<uint16_t>(loop.extent);
    for (size_t s = 0; s < old.size(); ++s)
      (*loops.strides[s])[k] =
          static_cast<int16_t>(s == 0 && loop.stride ? *loop.stride : old[s][loop.old] * loop.times);
    if (loop.old >= inner) ++*loops.inner;
    if (loop.old == param) *loops.param = static_cast<uint8_t>(k);
  }
  return true;
}

}  // namespace tessera::npu
