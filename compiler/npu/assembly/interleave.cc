// SPDX-License-Identifier: Apache-2.0
// A list schedule in the order of time. Of instructions that could begin in the same cycle the one goes first that has
// the longest way to the end of the stream. That the machine fetches instructions in order, and that queues are finite,
// is not counted: who asks predicts what comes out.
#include "compiler/npu/assembly/interleave.h"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>

#include "base/error.h"
#include "compiler/npu/graph/graph.h"

namespace tessera::npu {

namespace {

constexpr size_t kBack = 256;      // an instruction overtakes none that stands so many places before it
constexpr int64_t kHandOver = 20;  // cycles from an engine's last step to the first one of an engine that waits
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

bool conflict(const emit::Touch& a, const emit::Touch& b) {
  if (!a.write && !b.write) return false;
  // What stays from run to run may lie lower than a base register says.
  constexpr auto kLast = static_cast<int16_t>(isa::kSpaces + kArenaBase);
  if (a.memory > kLast && b.memory > kLast) return true;
  return a.memory == b.memory && a.begin < b.end && b.begin < a.end;
}

bool conflict(const emit::Work& a, const emit::Work& b) {
  return std::ranges::any_of(a.touches, [&](const emit::Touch& one) {
    return std::ranges::any_of(b.touches, [&](const emit::Touch& other) { return conflict(one, other); });
  });
}

bool transfers(isa::Engine engine) { return engine == isa::Engine::kLoad || engine == isa::Engine::kStore; }

class Turns {
 public:
  Turns(const emit::Works& works, const Awaits& awaits)
      : works_(works), awaits_(awaits), before_(works.size()), rank_(works.size(), 0) {
    find_dependences();
    find_ranks();
  }

  std::vector<uint32_t> run(const Choices& choices) {
    choices_ = {choices.loads, choices.products, choices.vectors, 1};
    transferred_ = choices.transferred;
    end_.assign(works_.size(), kNever);
    free_.fill(0);
    oldest_ = transfer_ = 0;
    for (size_t i = 0; i < works_.size(); ++i)
      queues_[static_cast<size_t>(engine(i))].push_back(static_cast<uint32_t>(i));
    std::vector<uint32_t> order;
    order.reserve(works_.size());
    while (order.size() < works_.size()) {
      Next next;
      for (size_t e = 0; e < queues_.size(); ++e) offer(e, next);
      TESSERA_INVARIANT(next.start != kNever, "the first instruction that is left depends on none that is left");
      take(next);
      order.push_back(next.instruction);
    }
    return order;
  }

 private:
  struct Next {
    int64_t start = kNever;
    size_t engine = 0, place = 0;  // in the engine's queue
    uint32_t instruction = 0;
  };

  isa::Engine engine(size_t i) const { return works_[i]->engine.value_or(isa::Engine::kLoad); }
  int64_t cycles(size_t i) const {
    return std::max<int64_t>({works_[i]->duration.engine, works_[i]->duration.beats, 1});
  }
  /// Whether an instruction touches no DRAM but constants. Others have decided when these are best fetched.
  bool constant(size_t i) const {
    return std::ranges::none_of(works_[i]->touches, [](const emit::Touch& touch) {
      return touch.memory >= isa::kSpaces && touch.memory != static_cast<int16_t>(isa::kSpaces + kConstantBase);
    });
  }

  void find_dependences() {
    for (size_t i = 0; i < works_.size(); ++i) {
      const size_t first = i - std::min(i, kBack);
      for (size_t j = first; j < i; ++j)
        if (conflict(*works_[i], *works_[j])) before_[i].push_back(static_cast<uint32_t>(j));
      if (awaits_[i] && *awaits_[i] >= first && *awaits_[i] < i) before_[i].push_back(*awaits_[i]);
    }
  }

  /// Cycles from an instruction's start to the end of the stream, by the dependences and the array's order.
  void find_ranks() {
    int64_t products = 0;
    for (size_t i = works_.size(); i-- > 0;) {
      if (engine(i) == isa::Engine::kGemm) products = rank_[i] = std::max(rank_[i], products) + cycles(i);
      if (engine(i) != isa::Engine::kGemm) rank_[i] += cycles(i);
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

  /// Looks for an engine's next instruction, which may begin before the one that others have offered.
  void offer(size_t e, Next& next) const {
    const std::deque<uint32_t>& queue = queues_[e];
    Next best;
    for (size_t k = 0; k < std::min(choices_[e], queue.size()); ++k) {
      const uint32_t i = queue[k];
      if (i > oldest_ + kBack || (awaits_[i] && i > transfer_)) break;
      if (k > 0 && transfers(engine(i)) && constant(i)) continue;
      const int64_t cycle = ready(i);
      if (cycle == kNever) continue;
      const int64_t start = std::max(cycle, free_[e]);
      if (start < best.start || (start == best.start && rank_[i] > rank_[best.instruction])) best = {start, e, k, i};
    }
    if (best.start < next.start) next = best;
  }

  void take(const Next& next) {
    std::deque<uint32_t>& queue = queues_[next.engine];
    queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(next.place));
    const int64_t busy = next.start + cycles(next.instruction);
    free_[next.engine] = busy;
    end_[next.instruction] = busy + (transfers(engine(next.instruction)) ? transferred_ : 0);
    while (oldest_ < end_.size() && end_[oldest_] != kNever) ++oldest_;
    while (transfer_ < end_.size() && (end_[transfer_] != kNever || !transfers(engine(transfer_)))) ++transfer_;
  }

  const emit::Works& works_;
  const Awaits& awaits_;
  std::array<size_t, isa::kEngines> choices_{};  // by engine
  int64_t transferred_ = 0;
  std::vector<std::vector<uint32_t>> before_;  // by instruction: those that must have ended
  std::vector<int64_t> end_, rank_;            // by instruction
  std::array<std::deque<uint32_t>, isa::kEngines> queues_;
  std::array<int64_t, isa::kEngines> free_{};
  size_t oldest_ = 0, transfer_ = 0;  // the first instruction, and the first transfer, that has not been taken
};

}  // namespace

std::vector<std::vector<uint32_t>> interleaved(const emit::Works& works, const Awaits& awaits,
                                               std::span<const Choices> choices) {
  Turns turns(works, awaits);
  std::vector<std::vector<uint32_t>> orders;
  for (const Choices& one : choices) orders.push_back(turns.run(one));
  return orders;
}

}  // namespace tessera::npu
