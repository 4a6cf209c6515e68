// SPDX-License-Identifier: Apache-2.0
// Long reductions that begin before their input is whole. The vector unit makes a layer's results strip by strip, and a
// pool over all of them waits for the last one, while the array computes the next strip and the vector unit waits for
// that. Such an instruction is cut into parts whose sums, or maxima, wait in ACC. Each part stands behind the
// instruction that completes its input, and the instruction itself joins what the parts have left. Where its results
// are made one after the other, parts are results; else they are parts of the window, as many as make the rest behind
// the last strip short.
#include <algorithm>
#include <cmath>
#include <span>

#include "compiler/npu/lowering/emitter.h"

namespace tessera::npu {

namespace {

constexpr int64_t kLeast = 128;         // cycles: shorter instructions stay as they are
constexpr int64_t kShare = 2000;        // and those that take less than such a part of the array's work
constexpr size_t kMostParts = 16;       // an instruction each
constexpr int64_t kMostEntries = 4000;  // of ACC, so that strides can be encoded

bool share_entries(const emit::Touch& a, const emit::Touch& b) {
  return a.memory == b.memory && a.begin < b.end && b.begin < a.end;
}

/// An instruction cut into parts: what they leave in `entries` entries of ACC, and what joins it.
struct Cut {
  std::vector<isa::Alu> parts;
  isa::Alu rest;
  int64_t entries = 0;
};

size_t loops_of(const isa::Alu& alu) { return alu.extent.size() - alu.reduce; }

/// The first loop from `first` up to `end` that has more than one iteration; `end` when there is none.
size_t outermost(const isa::Alu& alu, size_t first, size_t end) {
  while (first < end && alu.extent[first] == 1) ++first;
  return first;
}

/// Cut along one loop into `count` parts, as even as can be.
Cut cut_along(const isa::Alu& alu, size_t loop, int64_t count) {
  const size_t results = loops_of(alu);
  const bool window = loop >= results;
  const int64_t extent = alu.extent[loop], each = (extent + count - 1) / count;
  std::array<int16_t, 6> dense{};
  int64_t entries = 1;
  for (size_t k = results; k-- > 0;) {
    dense[k] = static_cast<int16_t>(entries);
    entries *= alu.extent[k];
  }
  isa::Alu part;
  part.extent = alu.extent;
  part.src_stride = alu.src_stride;
  part.dst_stride = dense;
  part.src = alu.src;
  part.src_unsigned = alu.src_unsigned;
  part.reduce = alu.reduce;
  part.reduce_op = alu.reduce_op;
  Cut cut{{}, alu, entries};
  for (int64_t first = 0, k = 0; first < extent; first += each, ++k) {
    part.extent[loop] = static_cast<uint16_t>(std::min(each, extent - first));
    part.src_addr = static_cast<uint16_t>(alu.src_addr + first * alu.src_stride[loop]);
    part.dst_addr = static_cast<uint16_t>(window ? k * entries : first * dense[loop]);
    cut.parts.push_back(part);
  }
  isa::Alu& rest = cut.rest;
  rest.src = isa::AluSpace::kAcc;
  rest.src_unsigned = false;
  rest.src_addr = 0;
  rest.src_stride = dense;
  for (size_t k = results; k < rest.extent.size(); ++k) rest.extent[k] = 1;
  if (window) {
    rest.extent.back() = static_cast<uint16_t>(cut.parts.size());
    rest.src_stride.back() = static_cast<int16_t>(entries);
    cut.entries *= static_cast<int64_t>(cut.parts.size());
  }
  return cut;
}

/// The ways to cut an instruction, the cheaper one first; none where it makes many results of few values each, as pools
/// whose windows overlap do.
std::vector<Cut> cuts_of(const isa::Alu& alu) {
  const size_t results = loops_of(alu);
  int64_t count = 1, window = 1;
  for (size_t k = 0; k < alu.extent.size(); ++k) (k < results ? count : window) *= alu.extent[k];
  constexpr int64_t kFew = 8;  // values: parts of fewer save little
  std::vector<Cut> cuts;
  if (window < kFew || count * window > kMostEntries * kFew) return cuts;
  if (const size_t loop = outermost(alu, 0, results); loop < results && count <= kMostEntries)
    cuts.push_back(cut_along(alu, loop, std::min<int64_t>(alu.extent[loop], kMostParts)));
  // The last part and what joins them take window / parts + parts steps for each result.
  const auto parts = std::min(static_cast<int64_t>(std::sqrt(window)), static_cast<int64_t>(kMostParts));
  const size_t loop = outermost(alu, results, alu.extent.size());
  if (const int64_t even = std::min<int64_t>(parts, alu.extent[loop]); even > 1 && count * even <= kMostEntries)
    cuts.push_back(cut_along(alu, loop, even));
  return cuts;
}

}  // namespace

/// The stream so far as one sequence.
struct Emitter::Sequence {
  std::vector<std::pair<size_t, size_t>> places;  // step, and instruction in it
  std::vector<const emit::Work*> works;

  explicit Sequence(const std::vector<Step>& steps) {
    for (size_t s = 0; s < steps.size(); ++s) {
      for (size_t k = 0; k < steps[s].pushed.size(); ++k) {
        places.emplace_back(s, k);
        works.push_back(steps[s].pushed[k].work);
      }
    }
  }

  /// The last instruction before `end` that writes what `reads` reads there; nothing when LOAD does, or nobody.
  std::optional<size_t> writer(const emit::Touch& read, size_t end) const {
    for (size_t n = end; n-- > 0;) {
      for (const emit::Touch& touch : works[n]->touches) {
        if (touch.write && share_entries(touch, read))
          return works[n]->engine == isa::Engine::kAlu ? std::optional(n) : std::nullopt;
      }
    }
    return std::nullopt;
  }

  /// So many bytes of ACC, in whole entries, that nobody uses from `first` to `end`, and whose content nobody wants
  /// behind them.
  std::optional<int64_t> unused(size_t first, size_t end, int64_t bytes, int64_t entry, int64_t depth) const {
    const auto memory = static_cast<int16_t>(isa::Space::kAcc);
    for (int64_t begin = 0; begin + bytes <= depth;) {
      const emit::Touch place{begin, begin + bytes, memory, true};
      int64_t beyond = begin;  // the end of what is used there
      for (size_t n = first; n <= end; ++n) {
        for (const emit::Touch& touch : works[n]->touches)
          if (share_entries(touch, place)) beyond = std::max(beyond, touch.end);
      }
      bool over = false;
      for (size_t n = end + 1; n < works.size() && beyond == begin && !over; ++n) {
        for (const emit::Touch& touch : works[n]->touches) {
          if (!share_entries(touch, place)) continue;
          if (!touch.write) beyond = std::max(beyond, touch.end);
          over = over || (touch.begin <= place.begin && place.end <= touch.end);
        }
      }
      if (beyond == begin) return begin;
      begin = (beyond + entry - 1) / entry * entry;
    }
    return std::nullopt;
  }
};

bool Emitter::advance_reduction(std::vector<std::pair<size_t, size_t>>& places) {
  const auto [step, k] = places.back();
  places.pop_back();
  const Sequence sequence(steps_);
  const auto at = std::find(sequence.places.begin(), sequence.places.end(), std::pair{step, k});
  const auto own = static_cast<size_t>(at - sequence.places.begin());
  const int64_t entry = config.acc_entry_bytes(), depth = entry * config.depth(isa::Space::kAcc);
  const uint32_t of_layer = steps_[step].pushed[k].layer;
  for (Cut& cut : cuts_of(std::get<isa::Alu>(steps_[step].instructions[k]))) {
    std::vector<size_t> behind;  // the instruction that completes a part's input
    for (const isa::Alu& part : cut.parts) {
      const emit::Work work = emit::work_of(part, config);
      const auto read =
          std::find_if(work.touches.begin(), work.touches.end(), [](const emit::Touch& touch) { return !touch.write; });
      const auto writer = sequence.writer(*read, own);
      if (!writer) break;
      behind.push_back(*writer);
    }
    if (behind.size() < cut.parts.size()) return false;
    const auto [first, last] = std::minmax_element(behind.begin(), behind.end());
    if (*first == *last) continue;  // all at once: another cut
    const auto place = sequence.unused(*first + 1, own, cut.entries * entry, entry, depth);
    if (!place) continue;
    const auto offset = static_cast<uint16_t>(*place / entry);
    cut.rest.src_addr = static_cast<uint16_t>(cut.rest.src_addr + offset);
    steps_[step].instructions[k] = cut.rest;
    steps_[step].pushed[k].work = pool.add(cut.rest, config);
    // From the last place to the first, so that places before stay what they are.
    std::vector<size_t> order(cut.parts.size());
    for (size_t n = 0; n < order.size(); ++n) order[n] = n;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return behind[a] < behind[b]; });
    for (size_t n = order.size(); n-- > 0;) {
      isa::Alu& part = cut.parts[order[n]];
      part.dst_addr = static_cast<uint16_t>(part.dst_addr + offset);
      const auto [to, after] = sequence.places[behind[order[n]]];
      const auto next = static_cast<std::ptrdiff_t>(after) + 1;
      steps_[to].instructions.insert(steps_[to].instructions.begin() + next, part);
      steps_[to].pushed.insert(steps_[to].pushed.begin() + next,
                               {pool.add(part, config), of_layer, Stream::kInstructions});
      for (auto& [other, place] : places) place += other == to && place > after ? 1 : 0;
    }
    return true;
  }
  return false;
}

bool Emitter::advance_reductions() {
  if (weights == WeightBytes::kWorksOnly) return false;
  int64_t products = 0;
  std::vector<std::pair<size_t, size_t>> found;
  for (size_t s = 0; s < steps_.size(); ++s) {
    for (size_t k = 0; k < steps_[s].pushed.size(); ++k) {
      const emit::Work& work = *steps_[s].pushed[k].work;
      if (work.engine == isa::Engine::kGemm) products += work.duration.engine;
      const auto* alu = std::get_if<isa::Alu>(&steps_[s].instructions[k]);
      if (alu != nullptr && alu->reduce > 0 && work.duration.engine >= kLeast) found.emplace_back(s, k);
    }
  }
  bool any = false;
  while (!found.empty()) {
    const auto [s, k] = found.back();
    if (steps_[s].pushed[k].work->duration.engine * kShare >= products)
      any = advance_reduction(found) || any;
    else
      found.pop_back();
  }
  return any;
}

}  // namespace tessera::npu
