// SPDX-License-Identifier: Apache-2.0
#include "compiler/emit/least.h"

#include <algorithm>
#include <array>
#include <queue>
#include <utility>
#include <vector>

#include "isa/generated/timing.h"

namespace tessera::emit {

namespace {

namespace timing = isa::timing;

// From a completion to the take of what waits for it.
constexpr int64_t kWait = timing::queue::kSignal + timing::queue::kCondition;
// From the last completion to the end of the program, both included.
constexpr int64_t kEnd = 2;

/// What the walk of a transfer takes at least: cycles of its engine, beats, and bursts.
struct Moved {
  int64_t groups = 0, beats = 0, bursts = 0;
};

int64_t within(int64_t value, int64_t width) { return (value % width + width) % width; }

/// Runs of steps that continue each other in DRAM and in the scratchpad, and the loops around them, outermost first.
struct Runs {
  int64_t length = 0, from = 0, to = 0;
  struct Loop {
    int64_t count = 1, dram = 0, sp = 0;
  };
  std::vector<Loop> loops;
  bool share = false;  // a run may take its first beat from the run before

  int64_t count() const {
    int64_t all = 1;
    for (const Loop& loop : loops) all *= loop.count;
    return all;
  }

  /// Calls `run` with the addresses of each run in DRAM and in the scratchpad.
  template <typename Run>
  void each(const Run& run) const {
    std::vector<int64_t> at(loops.size(), 0);
    for (int64_t dram = from, sp = to;;) {
      run(dram, sp);
      size_t k = loops.size();
      for (; k > 0; --k) {
        const Loop& loop = loops[k - 1];
        dram += loop.dram;
        sp += loop.sp;
        if (++at[k - 1] < loop.count) break;
        dram -= loop.count * loop.dram;
        sp -= loop.count * loop.sp;
        at[k - 1] = 0;
      }
      if (k == 0) return;
    }
  }

  /// Beats, groups, and runs that have beats of their own. Runs of the innermost loop lie apart; where it begins anew a
  /// run may continue the one before.
  Moved moved(int64_t width) const {
    constexpr int64_t kMostRuns = 1 << 16;
    const int64_t count = this->count(), inner = loops.empty() ? 1 : loops.back().count, again = count / inner - 1;
    const int64_t bytes = count * length / width;
    if (count > kMostRuns) return {bytes, share ? 0 : bytes, share ? 0 : count - again};
    Moved sum;
    int64_t last = -1;  // the beat in which the run before ends
    each([&](int64_t dram, int64_t sp) {
      const int64_t begin = within(dram, width), place = within(sp, width);
      const bool shares = share && dram - begin == last;
      const int64_t beats = (begin + length + width - 1) / width - (shares ? 1 : 0);
      sum.beats += beats;
      sum.groups += (place + length + width - 1) / width + (begin > place && !shares ? 1 : 0);
      sum.bursts += beats > 0 ? 1 : 0;
      last = dram + length - 1 - within(dram + length - 1, width);
    });
    if (!share) {
      sum.beats = std::max(sum.beats - again, bytes);
      sum.bursts -= again;  // STORE's
    }
    sum.groups = std::max(sum.groups - 2 * again, bytes);
    return sum;
  }
};

/// Bursts of LOAD at least: runs that continue each other in DRAM may be requested together.
int64_t requests(const isa::Load& i) {
  int64_t length = i.length, apart = 1, innermost = 0;
  bool padded_between = false;
  for (size_t k = i.extent.size(); k-- > 0;) {
    const int64_t padded = k < i.pad_before.size() ? i.pad_before[k] + i.pad_after[k] : 0;
    const int64_t without = i.extent[k] - padded;
    if (without <= 0) return 0;
    if (innermost == 0 && (without == 1 || i.dram_stride[k] == length)) {
      length *= without;
      if (padded == 0) continue;
      innermost = 1;
      padded_between = true;
      continue;
    }
    innermost = innermost == 0 ? without : innermost;
    apart *= without;
  }
  if (innermost == 0 || padded_between) return apart;
  return std::max<int64_t>(1, apart - (apart / innermost - 1));
}

/// `entry`: bytes of a WGT entry, which a step of a packed LOAD writes.
template <typename Transfer>
Moved moved(const Transfer& i, int64_t width, int64_t entry) {
  int64_t all = 1, inside = 1, written = i.length;
  if constexpr (requires { i.packed; }) written = i.packed ? entry : i.length;
  bool joins = true;
  Runs runs{i.length, static_cast<int64_t>(i.dram_offset), static_cast<int64_t>(i.sp_addr), {}};
  if constexpr (requires { i.packed; }) runs.share = !i.packed;
  for (size_t k = i.extent.size(); k-- > 0;) {
    const int64_t extent = i.extent[k];
    int64_t without = extent;
    if constexpr (requires { i.pad_before; }) {
      if (k < i.pad_before.size()) {
        without = std::max<int64_t>(0, extent - i.pad_before[k] - i.pad_after[k]);
        runs.to += i.pad_before[k] * int64_t{i.sp_stride[k]};
      }
    }
    all *= extent;
    inside *= without;
    joins = joins && (extent == 1 || (i.dram_stride[k] == runs.length && i.sp_stride[k] == written));
    if (joins) {
      runs.length *= without;
      written *= without;
    } else if (without != 1) {
      runs.loops.insert(runs.loops.begin(), {without, i.dram_stride[k], i.sp_stride[k]});
    }
    joins = joins && without == extent;
  }
  if constexpr (requires { i.fill; }) {
    if (i.fill) return {all * i.length / width, 0, 0};
  }
  const int64_t padding = (all - inside) * i.length;
  if (inside == 0) return {padding / width, 0, 0};
  Moved result = runs.moved(width);
  if constexpr (requires { i.fill; }) result.bursts = runs.share ? std::min(result.bursts, requests(i)) : requests(i);
  // The timing model may be a cycle early where padding ends.
  if (padding > 0) result.groups = std::max(result.groups, result.groups + padding / width - (i.extent[0] + 1));
  return result;
}

class Least {
 public:
  Least(std::span<const isa::Instruction> instructions, std::span<const Work* const> works,
        const isa::MachineConfig& config, const Dram& dram)
      : instructions_(instructions),
        works_(works),
        config_(config),
        latency_(dram.latency_cycles),
        bandwidth_(dram.bandwidth_bytes > 0 ? std::min<int64_t>(dram.bandwidth_bytes, config.axi_bytes)
                                            : config.axi_bytes) {}

  int64_t cycles() {
    steps_.resize(instructions_.size());
    for (size_t i = 0; i < steps_.size(); ++i) go(i);
    int64_t least = std::max(last_ + kEnd, bus());
    // Where the memory is slower than the bus an idle bus saves a part of a beat.
    if (bandwidth_ < config_.axi_bytes) least -= 4;
    return least;
  }

 private:
  static constexpr size_t kNone = ~size_t{0};

  /// An instruction. What lies between its take and its end, and between its end and its completion, is the least.
  struct Step {
    int64_t request = 0, word = 0;  // of its word: the request, and the cycle after the last beat at FETCH
    int64_t take = 0;
    int64_t first = 0;           // beat on the bus
    int64_t beats = 0;           // cycles of the bus
    int64_t lead = 0, work = 0;  // from the take to the end; from the end before to this end
    int64_t end = 0;             // behind the last step or beat
    int64_t completes = 0;       // from the end on
    int64_t behind = 0;          // from the end to that of the program
    size_t next = kNone;         // of its engine
    std::array<size_t, isa::kEngines> waits{kNone, kNone, kNone, kNone};
  };

  struct Engine {
    std::vector<size_t> signals;
    std::vector<size_t> program;
    int64_t free = 0;
    int64_t bursts = 0;                                 // that it has asked for
    std::vector<std::pair<int64_t, int64_t>> answered;  // of so many the last one ends no earlier
  };

  int64_t slots(int64_t beats) const { return beats * config_.axi_bytes / bandwidth_; }

  void fetch(size_t i) {
    Step& step = steps_[i];
    constexpr size_t kAhead = timing::fetch::kWordsAhead;
    step.request = i < kAhead ? 0 : in_register_[i - kAhead] + 1;
    const int64_t seen = step.request + timing::bus::kAddress + latency_ + timing::bus::kSeen;
    step.word = std::max(seen, i == 0 ? 0 : steps_[i - 1].word) +
                slots(std::max<int64_t>(1, timing::fetch::word_beats(config_)));
    in_register_.push_back(std::max(step.word, dispatched_));
    dispatched_ = in_register_.back() + timing::fetch::kCheck;
  }

  /// The earliest take that the conditions allow.
  int64_t conditions(size_t i) {
    Step& step = steps_[i];
    int64_t ready = 0;
    for (const isa::Wait& wait : isa::header_of(instructions_[i]).waits) {
      if (!wait.enable) continue;
      const auto e = static_cast<size_t>(wait.engine);
      const auto count = static_cast<int64_t>(engines_[e].signals.size());
      const int64_t number = count - static_cast<uint16_t>(count - wait.count);
      if (number < 1) continue;
      step.waits[e] = engines_[e].signals[static_cast<size_t>(number - 1)];
      const Step& other = steps_[step.waits[e]];
      ready = std::max(ready, other.end + other.completes + kWait);
    }
    return ready;
  }

  void go(size_t i) {
    fetch(i);
    const Work& work = *works_[i];
    const int64_t ready = conditions(i);
    if (!work.engine) return;
    Step& step = steps_[i];
    Engine& engine = engines_[static_cast<size_t>(*work.engine)];
    const auto depth = static_cast<size_t>(config_.queue_depth(*work.engine));
    if (engine.program.size() >= depth)
      dispatched_ = std::max(dispatched_, steps_[engine.program[engine.program.size() - depth]].take + 1);
    step.take = std::max({dispatched_ + timing::queue::kVisible, ready, engine.free});
    Step* before = engine.program.empty() ? nullptr : &steps_[engine.program.back()];
    if (before != nullptr) before->next = i;
    take(*work.engine, work, i, before != nullptr ? before->end : 0, engine);
    engine.program.push_back(i);
    if (isa::header_of(instructions_[i]).signal) engine.signals.push_back(i);
    last_ = std::max(last_, step.end + step.completes);
  }

  void take(isa::Engine which, const Work& work, size_t i, int64_t before, Engine& engine) {
    Step& step = steps_[i];
    const Duration& d = work.duration;
    engine.free = step.take + 1;
    if (work.touches.empty()) {  // FENCE
      step.end = std::max(step.take, before);
      return;
    }
    if (which == isa::Engine::kGemm || which == isa::Engine::kAlu) {
      // Behind the last step.
      const int64_t start = which == isa::Engine::kGemm ? timing::gemm::kStart : timing::alu::kStart;
      step.work = d.engine;
      step.lead = start + d.engine;
      step.completes = d.alone ? -1 : work.latency_cycles - 1;
      step.end = std::max(step.take + step.lead, before + step.work);
      engine.free = step.take + (which == isa::Engine::kGemm ? timing::gemm::kPrepare : timing::alu::kPrepare);
      return;
    }
    engine.free = step.take + timing::transfer::kPrepare + timing::transfer::kFree;
    if (const auto* load = std::get_if<isa::Load>(&instructions_[i]))
      this->load(step, moved(*load, config_.axi_bytes, config_.wgt_entry_bytes()), before, engine);
    if (const auto* store = std::get_if<isa::Store>(&instructions_[i]))
      this->store(step, moved(*store, config_.axi_bytes, 0), before, engine);
  }

  /// The end of the last of so many bursts more, of which so many may be outstanding, each for so long; the times when
  /// some before have been answered are known. At first `from`: the earliest end of the first one.
  static int64_t last_burst(Engine& engine, int64_t bursts, int64_t places, int64_t held, int64_t from) {
    const int64_t before = engine.bursts;
    engine.bursts += bursts;
    int64_t end = from + (bursts - 1) / places * held;
    constexpr size_t kLooks = 16;
    for (size_t k = engine.answered.size(), looked = 0; k > 0 && looked < kLooks; --k, ++looked) {
      const auto& [count, at] = engine.answered[k - 1];
      end = std::max(end, at + (before + bursts - count) / places * held);
    }
    engine.answered.emplace_back(engine.bursts, end);
    return end;
  }

  void load(Step& step, const Moved& moved, int64_t before, Engine& engine) const {
    const int64_t data = timing::transfer::kLeave + timing::load::kFirstBeat + latency_;
    step.beats = slots(moved.beats);
    step.work = std::max(moved.groups, step.beats);
    step.lead = timing::transfer::kLeave + timing::load::kStart + step.work;
    step.first = step.take + data - timing::bus::kSeen;
    step.completes = 0;
    if (moved.beats > 0) step.lead = std::max(step.lead, data + step.beats);
    step.end = std::max(step.take + step.lead, before + step.work);
    if (moved.beats > 0)
      step.end = std::max(step.end, last_burst(engine, moved.bursts, std::max(1, config_.reads_in_flight),
                                               latency_ + timing::bus::kAddress, step.take + data + 1));
  }

  void store(Step& step, const Moved& moved, int64_t before, Engine& engine) const {
    step.beats = slots(moved.beats);
    step.work = step.beats;
    const int64_t data = timing::transfer::kLeave + timing::store::kFirstBeat;
    step.lead = data + step.beats;
    step.first = step.take + data;
    step.end = std::max(step.take + step.lead, before + step.work);
    step.end = std::max(step.end, last_burst(engine, moved.bursts, std::max(1, config_.writes_in_flight),
                                             latency_ + timing::bus::kWriteData, step.take + data + 1));
    step.completes = latency_ - 1 + timing::store::kComplete;
  }

  /// The least time behind each end, from the last instruction to the first.
  void look_behind() {
    for (Step& step : steps_) step.behind = step.completes + kEnd;
    for (size_t i = steps_.size(); i-- > 0;) {
      Step& step = steps_[i];
      if (step.next != kNone) {
        const Step& next = steps_[step.next];
        step.behind = std::max(step.behind, next.work + next.behind);
      }
      if (!works_[i]->engine) continue;
      for (const size_t other : step.waits) {
        if (other == kNone) continue;
        Step& of = steps_[other];
        of.behind = std::max(of.behind, of.completes + kWait + step.lead + step.behind);
      }
    }
  }

  /// All uses of the bus one after the other.
  int64_t bus() {
    look_behind();
    struct Use {
      int64_t from, beats, behind;
    };
    std::vector<Use> uses;
    uses.reserve(2 * steps_.size());
    const int64_t word = slots(std::max<int64_t>(1, timing::fetch::word_beats(config_)));
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      int64_t behind = timing::fetch::kCheck;
      if (works_[i]->engine) behind += timing::queue::kVisible + step.lead + step.behind;
      uses.push_back({step.request + timing::bus::kAddress + latency_, word, behind});
      if (step.beats > 0) uses.push_back({step.first, step.beats, step.behind});
    }
    std::sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) { return a.from < b.from; });
    const auto less = [](const Use& a, const Use& b) { return a.behind < b.behind; };
    std::priority_queue<Use, std::vector<Use>, decltype(less)> waiting(less);
    int64_t now = 0, least = 0;
    for (size_t next = 0; next < uses.size() || !waiting.empty();) {
      if (waiting.empty()) now = std::max(now, uses[next].from);
      for (; next < uses.size() && uses[next].from <= now; ++next) waiting.push(uses[next]);
      Use use = waiting.top();
      waiting.pop();
      const int64_t until = next < uses.size() ? std::min(now + use.beats, uses[next].from) : now + use.beats;
      use.beats -= until - now;
      now = until;
      if (use.beats > 0)
        waiting.push(use);
      else
        least = std::max(least, now + use.behind);
    }
    return least;
  }

  const std::span<const isa::Instruction> instructions_;
  const std::span<const Work* const> works_;
  const isa::MachineConfig& config_;
  const int64_t latency_, bandwidth_;
  std::array<Engine, isa::kEngines> engines_;
  std::vector<Step> steps_;
  std::vector<int64_t> in_register_;
  int64_t dispatched_ = 0;
  int64_t last_ = 0;  // completion
};

}  // namespace

int64_t least_cycles(std::span<const isa::Instruction> instructions, std::span<const Work* const> works,
                     const isa::MachineConfig& config, const Dram& dram) {
  return Least(instructions, works, config, dram).cycles();
}

}  // namespace tessera::emit
