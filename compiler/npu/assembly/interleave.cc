// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/assembly/interleave.h"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <optional>

#include "base/error.h"
#include "compiler/npu/graph/graph.h"
#include "isa/generated/timing.h"

namespace tessera::npu {

namespace {

constexpr size_t kBack = 256;          // instructions before one that it may overtake
constexpr int64_t kHandOver = 20;      // cycles from an engine's last step to the first one of an engine that waits
constexpr int64_t kTransferred = 120;  // of a transfer, beside its beats
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

bool conflict(const emit::Touch& a, const emit::Touch& b) {
  if (!a.write && !b.write) return false;
  // What stays from run to run may lie lower than a base register says.
  const auto last = static_cast<int16_t>(isa::kSpaces + kArenaBase);
  if (a.memory > last && b.memory > last) return true;
  return a.memory == b.memory && a.begin < b.end && b.begin < a.end;
}

bool conflict(const emit::Work& a, const emit::Work& b) {
  for (const emit::Touch& x : a.touches)
    for (const emit::Touch& y : b.touches)
      if (conflict(x, y)) return true;
  return false;
}

/// A list schedule of the engines, in the order of time.
class Turns {
 public:
  Turns(const emit::Works& works, const Positions& positions, const Choices& choices)
      : works_(works),
        positions_(positions),
        choices_{choices.loads, choices.products, choices.vectors, 1},
        before_(works.size()), end_(works.size(), kNever), rank_(works.size(), 0) {
    find_dependences();
    find_ranks();
    for (size_t i = 0; i < works.size(); ++i) queues_[engine(i)].push_back(static_cast<uint32_t>(i));
  }

  std::vector<uint32_t> run() {
    std::vector<uint32_t> order;
    order.reserve(works_.size());
    while (order.size() < works_.size()) {
      Next next;
      for (size_t e = 0; e < isa::kEngines; ++e) offer(e, next);
      TESSERA_INVARIANT(next.start != kNever, "the first instruction of a stream depends on none");
      take(next);
      order.push_back(next.instruction);
    }
    return order;
  }

 private:
  struct Next {
    int64_t start = kNever;
    size_t engine = 0, place = 0;  // in its queue
    uint32_t instruction = 0;
  };

  size_t engine(size_t i) const { return static_cast<size_t>(works_[i]->engine.value_or(isa::Engine::kLoad)); }
  int64_t cycles(size_t i) const {
    return std::max<int64_t>({works_[i]->duration.engine, works_[i]->duration.beats, 1});
  }
  static bool transfers(size_t e) {
    return e == static_cast<size_t>(isa::Engine::kLoad) || e == static_cast<size_t>(isa::Engine::kStore);
  }

  void find_dependences() {
    for (size_t i = 0; i < works_.size(); ++i) {
      const size_t first = i - std::min(i, kBack);
      for (size_t j = first; j < i; ++j)
        if (conflict(*works_[i], *works_[j])) before_[i].push_back(static_cast<uint32_t>(j));
      if (const auto own = positions_.own_part(i, first, works_)) before_[i].push_back(*own);
    }
  }

  /// Of each instruction the cycles of products from the first one on that waits for it: the more, the sooner the array
  /// needs it.
  void find_ranks() {
    int64_t products = 0;
    for (size_t i = works_.size(); i-- > 0;) {
      const bool gemm = engine(i) == static_cast<size_t>(isa::Engine::kGemm);
      static const bool own = getenv("TRANK");
      if (gemm) rank_[i] = products = std::max(rank_[i], products) + cycles(i);
      else if (own) rank_[i] += cycles(i);
      for (const uint32_t j : before_[i]) rank_[j] = std::max(rank_[j], rank_[i]);
    }
  }

  /// When all that an instruction depends on has ended; kNever: that is not known yet.
  int64_t ready(size_t i) const {
    int64_t cycle = 0;
    for (const uint32_t j : before_[i]) {
      if (end_[j] == kNever) return kNever;
      cycle = std::max(cycle, end_[j] + (engine(j) == engine(i) ? 0 : kHandOver));
    }
    return cycle;
  }

  void offer(size_t e, Next& next) const {
    const std::deque<uint32_t>& queue = queues_[e];
    Next best;
    for (size_t k = 0; k < std::min(choices_[e], queue.size()); ++k) {
      const uint32_t i = queue[k];
      if (i > oldest_ + kBack) break;
      if (!may_pass(i)) break;
      if (k > 0 && e == static_cast<size_t>(isa::Engine::kLoad) && constant(i)) continue;
      const int64_t cycle = ready(i);
      if (cycle == kNever) continue;
      const int64_t start = std::max(cycle, free_[e]);
      if (start < best.start || (start == best.start && rank_[i] > rank_[best.instruction])) best = {start, e, k, i};
    }
    if (best.start < next.start) next = best;
  }

  /// Whether an instruction fetches what nobody writes. When that is best, others have decided.
  bool constant(size_t i) const {
    return std::ranges::none_of(works_[i]->touches, [](const emit::Touch& touch) {
      return touch.memory >= isa::kSpaces && touch.memory != static_cast<int16_t>(isa::kSpaces + kConstantBase);
    });
  }

  /// Whether no transfer that must stay in front of one that waits for other cores is left.
  bool may_pass(size_t i) const {
    if (positions_.awaited[i] < 0) return true;
    static const bool strict = getenv("TSTRICT");
    for (size_t j = oldest_; j < i; ++j)
      if (end_[j] == kNever && transfers(engine(j)) && (strict || positions_.own[j] <= positions_.awaited[i])) return false;
    return true;
  }

  void take(const Next& next) {
    std::deque<uint32_t>& queue = queues_[next.engine];
    queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(next.place));
    const int64_t busy = next.start + cycles(next.instruction);
    free_[next.engine] = busy;
    end_[next.instruction] = busy + (transfers(next.engine) ? kTransferred : 0);
    while (oldest_ < end_.size() && end_[oldest_] != kNever) ++oldest_;
  }

  const emit::Works& works_;
  const Positions& positions_;
  const std::array<size_t, isa::kEngines> choices_;
  std::vector<std::vector<uint32_t>> before_;  // those that must have ended
  std::vector<int64_t> end_, rank_;
  std::array<std::deque<uint32_t>, isa::kEngines> queues_;
  std::array<int64_t, isa::kEngines> free_{};
  size_t oldest_ = 0;  // that has not been taken
};

}  // namespace

std::optional<uint32_t> Positions::own_part(size_t i, size_t first, const emit::Works& works) const {
  for (size_t j = i; awaited[i] >= 0 && j-- > first;)
    if (works[j]->engine == isa::Engine::kStore && own[j] <= awaited[i]) return static_cast<uint32_t>(j);
  return std::nullopt;
}

std::vector<uint32_t> interleaved(const emit::Works& works, const Positions& positions, const Choices& choices) {
  return Turns(works, positions, choices).run();
}

}  // namespace tessera::npu
