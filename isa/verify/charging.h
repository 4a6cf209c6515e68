// SPDX-License-Identifier: Apache-2.0
// Whose cycles are whose: one rule for cycles that were measured and for cycles that are predicted. The stretches of
// time in which engines worked enter, each of one layer; each cycle of a program leaves charged to one layer and one
// cause. Where engines work at the same time the first in the order compute (GEMM), ALU, load, store has the cycle;
// where nobody works it is lost to synchronisation and charged to the layer whose work comes next.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "isa/generated/instructions.h"

namespace tessera::isa {

/// What a cycle is charged to, in order of precedence: the work of an engine, else synchronisation.
enum class Cause : uint8_t { kCompute, kAlu, kLoad, kStore, kSync };
inline constexpr size_t kCharges = 5;
inline constexpr size_t kChargedEngines = kCharges - 1;

constexpr Cause cause_of(Engine engine) {
  switch (engine) {
    case Engine::kGemm: return Cause::kCompute;
    case Engine::kAlu: return Cause::kAlu;
    case Engine::kLoad: return Cause::kLoad;
    case Engine::kStore: return Cause::kStore;
  }
  return Cause::kSync;
}
inline constexpr uint32_t kNoLayer = std::numeric_limits<uint32_t>::max();

/// Cycles [begin, end) in which an engine worked for a layer; kNoLayer: for none.
struct Stretch {
  uint64_t begin = 0, end = 0;
  uint32_t layer = kNoLayer;
};

/// Cycles of each layer by cause. `work` is by Cause. They sum to `cycles` when there is a layer. Stretches of one
/// engine may overlap: the one that began first keeps the cycle.
std::vector<std::array<uint64_t, kCharges>> charge(std::array<std::vector<Stretch>, kChargedEngines> work,
                                                   size_t layers, uint64_t cycles);

}  // namespace tessera::isa
