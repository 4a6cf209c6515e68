// SPDX-License-Identifier: Apache-2.0
// The addresses of an operand over its loops, and instructions of the vector unit of which one operand moves elsewhere:
// a loop that needs several steps there becomes several loops, for all operands.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "isa/generated/instructions.h"

namespace tessera::npu {

/// The addresses of one operand over a nest, outermost loop first.
struct Walk {
  std::array<int64_t, 6> extent{1, 1, 1, 1, 1, 1};
  std::array<int64_t, 6> stride{};
  int64_t first = 0;

  int64_t size() const;
  /// Calls visit(address) in order.
  template <typename Visit>
  void each(Visit&& visit) const {
    std::array<int64_t, 6> index{};
    int64_t at = first;
    for (int64_t count = size(); count > 0; --count) {
      visit(at);
      for (size_t k = extent.size(); k-- > 0;) {
        at += stride[k];
        if (++index[k] < extent[k]) break;
        at -= extent[k] * stride[k];
        index[k] = 0;
      }
    }
  }
};

/// Calls visit(address in `a`, address in `b`) of two operands of a nest, which have its extents, in order.
template <typename Visit>
void each_of_both(const Walk& a, const Walk& b, Visit&& visit) {
  std::array<int64_t, 6> index{};
  int64_t at_a = a.first, at_b = b.first;
  for (int64_t count = a.size(); count > 0; --count) {
    visit(at_a, at_b);
    for (size_t k = a.extent.size(); k-- > 0;) {
      at_a += a.stride[k];
      at_b += b.stride[k];
      if (++index[k] < a.extent[k]) break;
      at_a -= a.extent[k] * a.stride[k];
      at_b -= a.extent[k] * b.stride[k];
      index[k] = 0;
    }
  }
}

/// Calls visit(first, count) of addresses that follow each other, in order: those of the innermost loops together.
template <typename Visit>
void each_run(Walk walk, Visit&& visit) {
  int64_t count = 1;
  for (size_t k = walk.extent.size(); k-- > 0;) {
    if (walk.extent[k] == 1) continue;
    if (walk.stride[k] != count) break;
    count *= walk.extent[k];
    walk.extent[k] = 1;
  }
  walk.each([&](int64_t first) { visit(first, count); });
}

template <typename Extent, typename Stride>
Walk walk_of(const Extent& extent, const Stride& stride, int64_t first) {
  Walk walk;
  std::copy(extent.begin(), extent.end(), walk.extent.begin());
  std::copy(stride.begin(), stride.end(), walk.stride.begin());
  walk.first = first;
  return walk;
}

/// A loop as loops of even steps, the outer one first.
struct LoopPart {
  int64_t extent = 1, stride = 0;
};
using LoopParts = std::vector<LoopPart>;
/// Of each loop that moves; nothing of one that does not.
using NestParts = std::array<LoopParts, 6>;

/// The loops that take iteration i to `offset(i)`, as far as the iterations that are looked at tell; nothing where no
/// loops do, or an offset is unknown.
std::optional<LoopParts> even_parts(int64_t extent, const std::function<std::optional<int64_t>(int64_t)>& offset);

/// Calls visit(address) in the order of the walk's loops, which are in parts.
template <typename Visit>
void each_of_parts(const Walk& walk, int64_t first, const NestParts& parts, Visit&& visit) {
  std::vector<LoopPart> loops;
  for (size_t k = 0; k < parts.size(); ++k) {
    if (parts[k].empty()) loops.push_back({walk.extent[k], 0});
    loops.insert(loops.end(), parts[k].begin(), parts[k].end());
  }
  std::vector<int64_t> index(loops.size(), 0);
  int64_t at = first;
  for (int64_t count = walk.size(); count > 0; --count) {
    visit(at);
    for (size_t k = loops.size(); k-- > 0;) {
      at += loops[k].stride;
      if (++index[k] < loops[k].extent) break;
      at -= loops[k].extent * loops[k].stride;
      index[k] = 0;
    }
  }
}

using Strides = std::array<int16_t, 6>;

/// The loops of an instruction of the vector unit.
struct Loops {
  std::array<uint16_t, 6>* extent;
  std::vector<Strides*> strides;  // of all operands, that which moves first
  uint8_t* inner;                 // how many innermost loops form a row or a reduction
  uint8_t* param;                 // nothing: no loop counts parameters
};

/// `moves`: the strides of the operand that moves, a member of the instruction.
Loops loops_of(isa::Alu& alu, Strides& moves);
Loops loops_of(isa::RowReduce& reduce, Strides& moves);
Loops loops_of(isa::RowMap& map, Strides& moves);

/// Gives the operand that moves its new strides. A loop in parts becomes as many loops, for which loops of one
/// iteration make room. False: there is none.
bool set_loops(const Loops& loops, const NestParts& parts);

}  // namespace tessera::npu
