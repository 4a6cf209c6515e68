// SPDX-License-Identifier: Apache-2.0
// The work of each cause becomes disjoint pieces, each of one layer; then one sweep over their borders counts every
// cycle once.
#include "runtime/attribution.h"

#include <algorithm>
#include <limits>

namespace tessera::runtime {
namespace {

constexpr uint32_t kNobody = std::numeric_limits<uint32_t>::max();

/// Cycles [begin, end) of one layer.
struct Piece {
  uint64_t begin, end;
  uint32_t layer;
};

/// Sorted and disjoint: where pieces overlap the one that began first keeps the cycle.
void make_disjoint(std::vector<Piece>& pieces) {
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  uint64_t reached = 0;
  for (Piece& piece : pieces) {
    piece.begin = std::max(piece.begin, reached);
    reached = std::max(reached, piece.end);
  }
  std::erase_if(pieces, [](const Piece& piece) { return piece.begin >= piece.end; });
}

}  // namespace

std::string_view to_string(Cause cause) {
  static constexpr std::array<std::string_view, kCauses> kNames = {"compute", "alu", "load", "store", "sync"};
  return kNames[static_cast<size_t>(cause)];
}

std::vector<LayerCycles> attribute_cycles(std::span<const driver::InstructionProfile> profile,
                                          std::span<const uint32_t> layer_of_instruction, size_t layers,
                                          uint64_t cycles) {
  if (layers == 0 || profile.empty()) return {};
  std::vector<LayerCycles> result(layers);
  std::vector<bool> seen(layers);
  std::array<std::vector<Piece>, kCauses - 1> work;
  for (const driver::InstructionProfile& one : profile) {
    const bool known = one.pc < layer_of_instruction.size() && layer_of_instruction[one.pc] < layers;
    const uint32_t layer = known ? layer_of_instruction[one.pc] : kNobody;
    LayerCycles ignored;
    LayerCycles& own = known ? result[layer] : ignored;
    if (known) {
      own.begin_cycle = seen[layer] ? std::min(own.begin_cycle, one.start_cycle) : one.start_cycle;
      own.end_cycle = std::max(own.end_cycle, one.end_cycle + 1);
      seen[layer] = true;
    }
    const auto add = [&](Cause cause, uint64_t begin, uint64_t end) {
      work[static_cast<size_t>(cause)].push_back({begin, std::min(end, cycles), layer});
    };
    const uint64_t first = one.first_busy_cycle, last = one.last_busy_cycle + 1;
    switch (one.unit) {
      case isa::Unit::kGemm:
        if (one.macs == 0) break;
        add(Cause::kCompute, first, last);
        own.gemm_cycles += last - first;
        break;
      case isa::Unit::kAlu:
        if (one.vectors == 0) break;
        add(Cause::kAlu, first, last);
        own.alu_cycles += last - first;
        break;
      case isa::Unit::kLoad: add(Cause::kLoad, one.start_cycle, one.end_cycle + 1); break;
      case isa::Unit::kStore: add(Cause::kStore, one.start_cycle, one.end_cycle + 1); break;
      case isa::Unit::kFetch: break;
    }
  }
  for (auto& pieces : work) make_disjoint(pieces);

  std::array<size_t, kCauses - 1> next{};
  uint32_t current = 0;  // the layer that was charged last
  for (uint64_t now = 0; now < cycles;) {
    // The first cause that is active now, and how long nothing changes for it and those before it.
    size_t cause = 0;
    uint64_t until = cycles;
    uint32_t owner = kNobody, coming = kNobody;
    for (; cause < work.size(); ++cause) {
      auto& at = next[cause];
      while (at < work[cause].size() && work[cause][at].end <= now) ++at;
      if (at == work[cause].size()) continue;
      const Piece& piece = work[cause][at];
      if (piece.begin <= now) {
        until = std::min(until, piece.end);
        owner = piece.layer;
        break;
      }
      if (piece.begin < until) {
        until = piece.begin;
        coming = piece.layer;
      }
    }
    if (cause == work.size()) owner = coming;  // sync: charged to what is waited for
    if (owner != kNobody) current = owner;
    result[current].causes[cause] += until - now;
    result[current].cycles += until - now;
    now = until;
  }
  return result;
}

std::string_view limit_of(const LayerCycles& layer, uint64_t dram_cycles) {
  if (layer.cycles == 0) return "";
  if (10 * layer.causes[static_cast<size_t>(Cause::kCompute)] >= 9 * layer.cycles) return "compute";
  const uint64_t most = std::max({layer.gemm_cycles, dram_cycles, layer.alu_cycles});
  if (3 * most < 2 * layer.cycles) return "sync";
  return most == layer.gemm_cycles ? "compute" : most == dram_cycles ? "dram" : "alu";
}

}  // namespace tessera::runtime
