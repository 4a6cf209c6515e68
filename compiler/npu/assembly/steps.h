// SPDX-License-Identifier: Apache-2.0
// What prefetch and hoisting know of the steps of a stream.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/npu/lowering/emitter.h"

namespace tessera::npu {

inline constexpr size_t kRunAhead = 2;  // steps by which LOAD is ahead of the engine that frees a place

/// What a step does to the bus, to WGT and to PARAM.
struct Emitter::Profile {
  int64_t bus = 0;    // cycles of its own transfers
  int64_t spare = 0;  // cycles of its computation that they leave; negative: it is bound by them
  struct Used {
    isa::Space space;
    int64_t begin, end;
    bool operator==(const Used&) const = default;
  };
  std::vector<Used> used;  // entries that the step's instructions read, or that its own LOADs write

  bool uses(const ConstantFetch& fetch) const {
    return std::any_of(used.begin(), used.end(), [&](const Used& u) {
      return u.space == fetch.space && u.begin < fetch.entry + fetch.entries && fetch.entry < u.end;
    });
  }

  /// Whether one of the steps up to `step` uses a place: not right behind the last reader, where LOAD would wait for it
  /// while the next inputs wait for LOAD.
  static bool busy_around(const std::vector<Profile>& profiles, size_t step, const ConstantFetch& fetch) {
    for (size_t ahead = 0; ahead <= std::min(kRunAhead, step); ++ahead) {
      if (profiles[step - ahead].uses(fetch)) return true;
    }
    return false;
  }
};

/// How small fetches may become: a piece costs an instruction.
struct Emitter::Pieces {
  int64_t cycles = 768;    // a piece keeps the bus busy at least so long
  int64_t smallest = 640;  // shorter fetches stay where they are
  double share = 0.9;      // of the spare time that is given away
};

}  // namespace tessera::npu
