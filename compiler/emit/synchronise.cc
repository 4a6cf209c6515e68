// SPDX-License-Identifier: Apache-2.0
// Dependences by intervals, reduction by vector clocks, numbering of signals, barriers.
#include "compiler/emit/synchronise.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "isa/effects.h"

namespace tessera::emit {

namespace {

/// For each engine the number of its instructions that are known to be complete.
using Clock = std::array<uint32_t, isa::kEngines>;

void merge(Clock& clock, const Clock& other) {
  for (size_t e = 0; e < clock.size(); ++e) clock[e] = std::max(clock[e], other[e]);
}

/// Who last touched each byte of one memory.
class Memory {
 public:
  /// Records an access by the number-th (from 1) instruction of an engine; raises `needed` to what must be complete
  /// before.
  void access(int64_t begin, int64_t end, bool write, size_t engine, uint32_t number, Clock& needed) {
    if (begin >= end) return;
    split(begin);
    split(end);
    auto it = segments_.lower_bound(begin);
    if (write) {
      while (it != segments_.end() && it->first < end) {
        merge(needed, it->second.writes);
        merge(needed, it->second.reads);
        it = segments_.erase(it);
      }
      Segment segment;
      segment.end = end;
      segment.writes[engine] = number;
      segments_.emplace_hint(it, begin, segment);
      return;
    }
    int64_t at = begin;
    while (at < end) {
      if (it == segments_.end() || it->first > at) {
        Segment gap;
        gap.end = it == segments_.end() ? end : std::min(end, it->first);
        gap.reads[engine] = number;
        const int64_t next = gap.end;
        it = segments_.emplace_hint(it, at, gap);
        ++it;
        at = next;
        continue;
      }
      merge(needed, it->second.writes);
      it->second.reads[engine] = number;
      at = it->second.end;
      ++it;
    }
  }

 private:
  struct Segment {
    int64_t end = 0;
    Clock writes{}, reads{};  // the last write has one engine; a later write has waited for it
  };

  void split(int64_t at) {
    auto it = segments_.upper_bound(at);
    if (it == segments_.begin()) return;
    --it;
    if (it->first == at || it->second.end <= at) return;
    Segment tail = it->second;
    it->second.end = at;
    segments_.emplace(at, tail);
  }

  std::map<int64_t, Segment> segments_;
};

struct Plan {
  int engine = -1;      // -1: executed by FETCH
  uint32_t number = 0;  // on its engine, from 1
  Clock wait{};         // per engine: the instruction to wait for, 0: none
  bool signal = false;
};

isa::Fence make_fence(isa::Engine engine, bool signal) {
  isa::Fence fence;
  fence.engine = engine;
  fence.header.signal = signal;
  return fence;
}

}  // namespace

SynchroniseSummary synchronise(std::vector<isa::Instruction>& instructions, std::vector<uint32_t>& tags,
                               const isa::MachineConfig& config, const SynchroniseOptions& options) {
  TESSERA_INVARIANT(tags.size() == instructions.size(), "one tag for each instruction");
  TESSERA_INVARIANT(options.signals_between_barriers >= 1 && options.signals_between_barriers <= 32000,
                    "barriers too far apart");
  SynchroniseSummary summary;
  std::vector<Memory> memories(isa::kMemories);
  std::vector<Plan> plans(instructions.size());
  std::array<std::vector<size_t>, isa::kEngines> queue;   // instructions of an engine
  std::array<std::vector<Clock>, isa::kEngines> started;  // what was known complete when each of them started
  for (size_t i = 0; i < instructions.size(); ++i) {
    const auto engine = isa::engine_of(instructions[i]);
    if (!engine) continue;
    const auto self = static_cast<size_t>(*engine);
    Plan& plan = plans[i];
    plan.engine = static_cast<int>(self);
    plan.number = static_cast<uint32_t>(queue[self].size()) + 1;
    Clock needed{};
    for (const isa::Operand& operand : isa::effects(instructions[i], config).operands) {
      memories[static_cast<size_t>(operand.memory())].access(operand.begin, operand.end, operand.write, self,
                                                             plan.number, needed);
    }
    Clock known = started[self].empty() ? Clock{} : started[self].back();
    known[self] = plan.number - 1;
    // Fetching the newest knowledge first lets it imply the older.
    needed[self] = 0;
    for (size_t e = 0; e < needed.size(); ++e) {
      if (needed[e] == 0) continue;
      ++summary.dependences;
      if (needed[e] <= known[e]) needed[e] = 0;
    }
    const Clock candidates = needed;
    for (size_t e = 0; e < needed.size(); ++e) {
      for (size_t other = 0; other < needed.size() && needed[e] != 0; ++other) {
        if (other == e || candidates[other] == 0 || needed[other] == 0) continue;
        if (started[other][candidates[other] - 1][e] >= needed[e]) needed[e] = 0;
      }
    }
    for (size_t e = 0; e < needed.size(); ++e) {
      if (candidates[e] == 0) continue;
      merge(known, started[e][candidates[e] - 1]);
      known[e] = std::max(known[e], candidates[e]);
    }
    for (size_t e = 0; e < needed.size(); ++e) {
      if (needed[e] != 0) plans[queue[e][needed[e] - 1]].signal = true;
    }
    plan.wait = needed;
    queue[self].push_back(i);
    started[self].push_back(known);
  }

  // Numbers. A wait for an instruction before the last barrier is already served by it.
  std::vector<isa::Instruction> result;
  std::vector<uint32_t> result_tags;
  result.reserve(instructions.size() + 8);
  result_tags.reserve(instructions.size() + 8);
  std::array<uint64_t, isa::kEngines> signals{};
  std::array<uint64_t, isa::kEngines> at_barrier{};
  Clock passed{};  // instructions of each engine before the last barrier
  Clock issued{};
  std::array<std::vector<uint64_t>, isa::kEngines> count;  // timeline once the instruction has signalled
  const auto wait_on = [&](isa::Header& header, size_t e, uint64_t value) {
    for (isa::Wait& wait : header.waits) {
      if (wait.enable) continue;
      wait = {true, static_cast<isa::Engine>(e), static_cast<uint16_t>(value)};
      ++summary.waits;
      return;
    }
    TESSERA_INVARIANT(false, "more conditions than an instruction holds");
  };
  for (size_t i = 0; i < instructions.size(); ++i) {
    const uint32_t tag = tags[i];
    bool barrier = false;
    for (size_t e = 0; e < signals.size(); ++e) {
      barrier = barrier || signals[e] - at_barrier[e] >= static_cast<uint64_t>(options.signals_between_barriers);
    }
    if (barrier) {
      ++summary.barriers;
      const uint32_t before = result_tags.empty() ? tag : result_tags.back();
      const auto push = [&](isa::Fence fence) {
        result.push_back(fence);
        result_tags.push_back(before);
      };
      isa::Fence meet = make_fence(isa::Engine::kLoad, true);
      for (size_t e = 1; e < signals.size(); ++e) {
        push(make_fence(static_cast<isa::Engine>(e), true));
        wait_on(meet.header, e, ++signals[e]);
      }
      push(meet);
      ++signals[0];
      // As many fences as a queue holds: FETCH cannot pass while an engine still has something from before the barrier,
      // which bounds how far any timeline can run ahead of a condition that is still queued.
      for (size_t e = 0; e < signals.size(); ++e) {
        const auto engine = static_cast<isa::Engine>(e);
        isa::Fence leave = make_fence(engine, false);
        if (e != 0) wait_on(leave.header, 0, signals[0]);
        push(leave);
        for (int i = 0; i < config.queue_depth(engine) + 1; ++i) push(make_fence(engine, false));
      }
      at_barrier = signals;
      passed = issued;
    }
    const Plan& plan = plans[i];
    if (plan.engine >= 0) {
      isa::Header& header = isa::header_of(instructions[i]);
      header = {};
      for (size_t e = 0; e < plan.wait.size(); ++e) {
        if (plan.wait[e] > passed[e]) wait_on(header, e, count[e][plan.wait[e] - 1]);
      }
      const auto self = static_cast<size_t>(plan.engine);
      header.signal = plan.signal;
      if (plan.signal) ++signals[self];
      count[self].push_back(signals[self]);
      ++issued[self];
    }
    result.push_back(std::move(instructions[i]));
    result_tags.push_back(tag);
  }
  result.push_back(isa::Finish{});
  result_tags.push_back(result_tags.empty() ? 0 : result_tags.back());
  instructions = std::move(result);
  tags = std::move(result_tags);
  return summary;
}

}  // namespace tessera::emit
