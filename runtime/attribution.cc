// SPDX-License-Identifier: Apache-2.0
// Intervals of each cause are merged; then one sweep over the borders of intervals and layers counts every cycle once.
#include "runtime/attribution.h"

#include <algorithm>
#include <utility>

namespace tessera::runtime {
namespace {

/// Cycles [begin, end).
using Interval = std::pair<uint64_t, uint64_t>;

std::vector<Interval> merged(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::vector<Interval> out;
  for (const Interval& one : intervals) {
    if (one.first >= one.second) continue;
    if (!out.empty() && one.first <= out.back().second) {
      out.back().second = std::max(out.back().second, one.second);
    } else {
      out.push_back(one);
    }
  }
  return out;
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
  std::array<std::vector<Interval>, kCauses - 1> active;
  std::vector<uint64_t> ends(layers);
  for (const driver::InstructionProfile& one : profile) {
    if (one.pc < layer_of_instruction.size() && layer_of_instruction[one.pc] < layers) {
      uint64_t& end = ends[layer_of_instruction[one.pc]];
      end = std::max(end, one.end_cycle + 1);
    }
    const auto add = [&](Cause cause, uint64_t begin, uint64_t end) {
      active[static_cast<size_t>(cause)].emplace_back(begin, end);
    };
    switch (one.unit) {
      case isa::Unit::kGemm:
        if (one.macs > 0) add(Cause::kCompute, one.first_busy_cycle, one.last_busy_cycle + 1);
        break;
      case isa::Unit::kAlu:
        if (one.vectors > 0) add(Cause::kAlu, one.first_busy_cycle, one.last_busy_cycle + 1);
        break;
      case isa::Unit::kLoad: add(Cause::kLoad, one.start_cycle, one.end_cycle + 1); break;
      case isa::Unit::kStore: add(Cause::kStore, one.start_cycle, one.end_cycle + 1); break;
      case isa::Unit::kFetch: break;
    }
  }
  for (auto& intervals : active) intervals = merged(std::move(intervals));

  std::vector<LayerCycles> result(layers);
  std::array<size_t, kCauses - 1> next{};
  uint64_t now = 0;
  for (size_t layer = 0; layer < layers; ++layer) {
    const uint64_t end = layer + 1 == layers ? cycles : std::min(std::max(now, ends[layer]), cycles);
    while (now < end) {
      // The first cause that is active now, and how long nothing changes for it and those before it.
      size_t cause = 0;
      uint64_t until = end;
      for (; cause < active.size(); ++cause) {
        auto& at = next[cause];
        while (at < active[cause].size() && active[cause][at].second <= now) ++at;
        if (at == active[cause].size()) continue;
        if (active[cause][at].first <= now) {
          until = std::min(until, active[cause][at].second);
          break;
        }
        until = std::min(until, active[cause][at].first);
      }
      result[layer].causes[cause] += until - now;
      result[layer].cycles += until - now;
      now = until;
    }
  }
  return result;
}

}  // namespace tessera::runtime
