// SPDX-License-Identifier: Apache-2.0
// Dependences by intervals, reduction by vector clocks, numbering of signals, barriers.
#include "compiler/emit/synchronise.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "isa/verify/effects.h"

namespace tessera::emit {

namespace {

/// For each engine the number of its instructions that are known to be complete. Signed: every processor takes the
/// larger of such numbers four at a time.
using Clock = std::array<int32_t, isa::kEngines>;

void merge(Clock& clock, const Clock& other) {
  for (size_t e = 0; e < clock.size(); ++e) clock[e] = std::max(clock[e], other[e]);
}

/// Who last touched each byte of one memory.
class Memory {
 public:
  /// Records an access by the number-th (from 1) instruction of an engine; raises `needed` to what must be complete
  /// before.
  void access(int64_t begin, int64_t end, bool write, size_t engine, int32_t number, Clock& needed) {
    if (begin >= end) return;
    if (write)
      this->write(begin, end, engine, number, needed);
    else
      read(begin, end, engine, number, needed);
  }

 private:
  struct Segment {
    int64_t begin = 0, end = 0;
    Clock writes{}, reads{};  // the last write has one engine; a later write has waited for it
  };
  using Block = std::vector<Segment>;
  /// A segment, by block and place in it; behind the last one: the number of blocks, 0.
  struct At {
    size_t block = 0, place = 0;
  };
  static constexpr size_t kBlock = 64;  // segments of a block at most

  void write(int64_t begin, int64_t end, size_t engine, int32_t number, Clock& needed) {
    const At first = first_from(begin);
    bool any = false, cut_last = false;
    for (At at = first; !is_end(at) && segment(at).begin < end; at = next(at)) {
      if (segment(at).end > end) {
        at = cut(at, end);
        cut_last = true;
      }
      merge(needed, segment(at).writes);
      merge(needed, segment(at).reads);
      any = true;
    }
    Segment written;
    written.begin = begin;
    written.end = end;
    written.writes[engine] = number;
    if (!any) {
      insert(first, written);
      return;
    }
    const At kept = cut_last ? first_from(begin) : first;  // a cut may have moved it
    const bool alone = segment(kept).end == end;
    segment(kept) = written;
    if (!alone) erase_between(next(kept), end);
  }

  void read(int64_t begin, int64_t end, size_t engine, int32_t number, Clock& needed) {
    At at = first_from(begin);
    for (int64_t from = begin; from < end;) {
      if (is_end(at) || segment(at).begin > from) {
        Segment gap;
        gap.begin = from;
        gap.end = is_end(at) ? end : std::min(end, segment(at).begin);
        at = insert(at, gap);
      }
      if (segment(at).end > end) at = cut(at, end);
      merge(needed, segment(at).writes);
      segment(at).reads[engine] = number;
      from = segment(at).end;
      at = next(at);
    }
  }

  Segment& segment(At at) { return blocks_[at.block][at.place]; }
  bool is_end(At at) const { return at.block == blocks_.size(); }
  At next(At at) const {
    return at.place + 1 < blocks_[at.block].size() ? At{at.block, at.place + 1} : At{at.block + 1, 0};
  }

  /// The first segment that begins there or later; one that reaches further is cut there.
  At first_from(int64_t begin) {
    const auto block = std::partition_point(blocks_.begin(), blocks_.end(),
                                            [&](const Block& one) { return one.back().begin < begin; });
    At at{static_cast<size_t>(block - blocks_.begin()), 0};
    if (!is_end(at)) {
      const auto found =
          std::partition_point(block->begin(), block->end(), [&](const Segment& one) { return one.begin < begin; });
      at.place = static_cast<size_t>(found - block->begin());
      if (found->begin == begin) return at;
    }
    if (at.block == 0 && at.place == 0) return at;
    const At before = at.place > 0 ? At{at.block, at.place - 1} : At{at.block - 1, blocks_[at.block - 1].size() - 1};
    return segment(before).end > begin ? next(cut(before, begin)) : at;
  }

  /// Cuts a segment that reaches beyond `where` in two; returns the first part.
  At cut(At at, int64_t where) {
    Segment tail = segment(at);
    tail.begin = where;
    segment(at).end = where;
    const At cut = insert({at.block, at.place + 1}, tail);
    return cut.place > 0 ? At{cut.block, cut.place - 1} : At{cut.block - 1, blocks_[cut.block - 1].size() - 1};
  }

  /// Inserts a segment in front of another; returns where it stands.
  At insert(At at, const Segment& segment) {
    if (is_end(at)) {
      if (blocks_.empty()) blocks_.emplace_back();
      at = {blocks_.size() - 1, blocks_.back().size()};
    }
    Block& block = blocks_[at.block];
    block.insert(block.begin() + static_cast<std::ptrdiff_t>(at.place), segment);
    if (block.size() <= kBlock) return at;
    const auto half = static_cast<std::ptrdiff_t>(kBlock / 2);
    Block behind(block.begin() + half, block.end());
    block.erase(block.begin() + half, block.end());
    blocks_.insert(blocks_.begin() + static_cast<std::ptrdiff_t>(at.block) + 1, std::move(behind));
    return at.place < kBlock / 2 ? at : At{at.block + 1, at.place - kBlock / 2};
  }

  /// Erases the segments from one on that begin before `end`.
  void erase_between(At at, int64_t end) {
    while (!is_end(at) && segment(at).begin < end) {
      Block& block = blocks_[at.block];
      const auto from = block.begin() + static_cast<std::ptrdiff_t>(at.place);
      const auto to = std::partition_point(from, block.end(), [&](const Segment& one) { return one.begin < end; });
      const bool more = to == block.end();
      block.erase(from, to);
      if (block.empty())
        blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(at.block));
      else if (more)
        ++at.block;
      at.place = 0;
      if (!more) return;
    }
  }

  std::vector<Block>
      blocks_;  // in order and disjoint, none of them empty: moving a block's segments costs less than nodes
};

/// What an instruction waits for and whether others wait for it.
struct Plan {
  int engine = -1;     // -1: executed by FETCH
  int32_t number = 0;  // on its engine, from 1
  Clock wait{};        // per engine: the instruction to wait for, 0: none
  bool signal = false;
};

/// Finds the plans of a stream: dependences by bytes, less those that others imply.
class Dependences {
 public:
  Dependences(size_t instructions, const std::vector<int64_t>& slides, SynchroniseSummary& summary,
              std::span<const SynchroniseOptions::Order> orders = {})
      : slides_(slides), memories_(isa::kMemories), orders_(orders), summary_(summary) {
    plans_.reserve(instructions);
  }

  void add(const Work& work) {
    Plan& plan = plans_.emplace_back();
    if (!work.engine) return;
    const auto self = static_cast<size_t>(*work.engine);
    plan.engine = static_cast<int>(self);
    plan.number = static_cast<int32_t>(queue_[self].size()) + 1;
    Clock known = started_[self].empty() ? Clock{} : started_[self].back();
    known[self] = plan.number - 1;
    Clock needed = touched(work, self, plan.number);
    const int32_t own = take_orders(self, needed);
    const Clock candidates = unknown(needed, known);
    plan.wait = without_implied(candidates);
    plan.wait[self] = own;
    for (size_t e = 0; e < candidates.size(); ++e) {
      if (candidates[e] != 0) merge(known, once_complete(e, candidates[e]));
      if (plan.wait[e] != 0) plans_[queue_[e][place_of(plan.wait[e])]].signal = true;
    }
    queue_[self].push_back(plans_.size() - 1);
    started_[self].push_back(known);
  }

  std::vector<Plan> take() { return std::move(plans_); }

  /// What must be complete, by engine, before a work that is the number-th of its engine: all that the bytes say.
  Clock demanded(const Work& work, uint32_t number) {
    return work.engine ? touched(work, static_cast<size_t>(*work.engine), number) : Clock{};
  }

 private:
  /// Adds what the last work must follow by order to what it needs; the instruction of its own engine, or 0.
  int32_t take_orders(size_t self, Clock& needed) {
    int32_t own = 0;
    for (; next_order_ < orders_.size() && orders_[next_order_].later + size_t{1} == plans_.size(); ++next_order_) {
      const Plan& earlier = plans_[orders_[next_order_].earlier];
      if (earlier.engine < 0) continue;
      const auto e = static_cast<size_t>(earlier.engine);
      int32_t& number = e == self ? own : needed[e];
      number = std::max(number, earlier.number);
    }
    return own;
  }

  /// By engine: the last instruction that must be complete before this one touches what it touches; 0: none.
  Clock touched(const Work& work, size_t self, int32_t number) {
    Clock needed{};
    for (const Touch& touch : work.touches) {
      const int slide = touch.memory - isa::kSpaces - kFirstSlide;
      const bool slides = slide >= 0 && static_cast<size_t>(slide) < slides_.size();
      const int memory = slides ? isa::kSpaces + kFirstSlide - 1 : touch.memory;
      const int64_t begin = touch.begin - (slides ? slides_[static_cast<size_t>(slide)] : 0);
      memories_[static_cast<size_t>(memory)].access(begin, touch.end, touch.write, self, number, needed);
    }
    needed[self] = 0;
    return needed;
  }

  /// Those that the engine does not know to be complete anyway.
  Clock unknown(Clock needed, const Clock& known) {
    for (size_t e = 0; e < needed.size(); ++e) {
      if (needed[e] == 0) continue;
      ++summary_.dependences;
      if (needed[e] <= known[e]) needed[e] = 0;
    }
    return needed;
  }

  /// Those of the candidates that no other one implies; of two that imply each other the later one stays.
  Clock without_implied(const Clock& candidates) const {
    Clock needed = candidates;
    const auto wanted = std::count_if(needed.begin(), needed.end(), [](int32_t number) { return number != 0; });
    for (size_t e = 0; wanted > 1 && e < needed.size(); ++e) {
      for (size_t other = 0; other < needed.size() && needed[e] != 0; ++other) {
        if (other == e || needed[other] == 0) continue;
        if (started_[other][place_of(candidates[other])][e] >= needed[e]) needed[e] = 0;
      }
    }
    return needed;
  }

  static size_t place_of(int32_t number) { return static_cast<size_t>(number) - 1; }

  /// What is complete once the number-th instruction of an engine is.
  Clock once_complete(size_t engine, int32_t number) const {
    Clock clock = started_[engine][place_of(number)];
    clock[engine] = std::max(clock[engine], number);
    return clock;
  }

  static constexpr int kFirstSlide = 3;

  const std::vector<int64_t>& slides_;
  std::vector<Memory> memories_;
  const std::span<const SynchroniseOptions::Order> orders_;
  size_t next_order_ = 0;
  std::vector<Plan> plans_;
  std::array<std::vector<size_t>, isa::kEngines> queue_;   // instructions of an engine
  std::array<std::vector<Clock>, isa::kEngines> started_;  // what was known complete when each of them started
  SynchroniseSummary& summary_;
};

/// The work of what waits and signals alone: a fence of an engine, or FINISH, which FETCH executes.
const Work* work_of_fence(std::optional<isa::Engine> engine) {
  static const std::array<Work, isa::kEngines + 1> kWorks = [] {
    std::array<Work, isa::kEngines + 1> works;
    for (size_t e = 0; e < isa::kEngines; ++e) works[e].engine = static_cast<isa::Engine>(e);
    return works;
  }();
  return &kWorks[engine ? static_cast<size_t>(*engine) : isa::kEngines];
}

/// Writes the stream: counts of signals for the plans, and the barriers between them.
class Writer {
 public:
  Writer(const isa::MachineConfig& config, int64_t signals_between_barriers, size_t instructions,
         SynchroniseSummary& summary)
      : config_(config), between_(static_cast<uint64_t>(signals_between_barriers)), summary_(summary) {
    result_.headers.reserve(instructions + 1);
    result_.tags.reserve(instructions + 1);
    result_.works.reserve(instructions + 1);
    result_.sources.reserve(instructions + 1);
  }

  void add(uint32_t source, uint32_t tag, const Work* work, const Plan& plan) {
    if (barrier_due()) barrier(result_.tags.empty() ? tag : result_.tags.back());
    isa::Header header;
    if (plan.engine >= 0) {
      for (size_t e = 0; e < plan.wait.size(); ++e) {
        // A wait for an instruction before the last barrier is already served by it.
        if (plan.wait[e] > passed_[e]) wait_on(header, e, count_[e][static_cast<size_t>(plan.wait[e]) - 1]);
      }
      const auto self = static_cast<size_t>(plan.engine);
      header.signal = plan.signal;
      if (plan.signal) ++signals_[self];
      count_[self].push_back(signals_[self]);
    }
    push(header, tag, work, source);
  }

  Ordered finish() {
    push({}, result_.tags.empty() ? 0 : result_.tags.back(), work_of_fence(std::nullopt), Ordered::kAdded);
    return std::move(result_);
  }

 private:
  void push(const isa::Header& header, uint32_t tag, const Work* work, uint32_t source) {
    result_.headers.push_back(header);
    result_.tags.push_back(tag);
    result_.works.push_back(work);
    result_.sources.push_back(source);
  }
  void fence(size_t engine, const isa::Header& header, uint32_t tag) {
    push(header, tag, work_of_fence(static_cast<isa::Engine>(engine)), Ordered::kAdded);
  }

  void wait_on(isa::Header& header, size_t engine, uint64_t signals) {
    for (isa::Wait& wait : header.waits) {
      if (wait.enable) continue;
      wait = {true, static_cast<isa::Engine>(engine), static_cast<uint16_t>(signals)};
      ++summary_.waits;
      return;
    }
    TESSERA_INVARIANT(false, "more conditions than an instruction holds");
  }

  bool barrier_due() const {
    for (size_t e = 0; e < signals_.size(); ++e) {
      if (signals_[e] - at_barrier_[e] >= between_) return true;
    }
    return false;
  }

  /// All engines meet: each signals, LOAD waits for the others, and the others for LOAD.
  void barrier(uint32_t tag) {
    ++summary_.barriers;
    isa::Header signal, meet;
    signal.signal = meet.signal = true;
    for (size_t e = 1; e < signals_.size(); ++e) {
      fence(e, signal, tag);
      wait_on(meet, e, ++signals_[e]);
    }
    fence(0, meet, tag);
    ++signals_[0];
    // As many fences as a queue holds: FETCH cannot pass while an engine still has something from before the barrier,
    // which bounds how far any timeline can run ahead of a condition that is still queued.
    for (size_t e = 0; e < signals_.size(); ++e) {
      isa::Header leave;
      if (e != 0) wait_on(leave, 0, signals_[0]);
      fence(e, leave, tag);
      for (int i = 0; i < config_.queue_depth(static_cast<isa::Engine>(e)) + 1; ++i) fence(e, {}, tag);
    }
    at_barrier_ = signals_;
    for (size_t e = 0; e < passed_.size(); ++e) passed_[e] = static_cast<int32_t>(count_[e].size());
  }

  const isa::MachineConfig& config_;
  const uint64_t between_;  // signals of an engine from one barrier to the next, at most
  Ordered result_;
  std::array<uint64_t, isa::kEngines> signals_{}, at_barrier_{};
  Clock passed_{};                                          // instructions of each engine before the last barrier
  std::array<std::vector<uint64_t>, isa::kEngines> count_;  // timeline once the instruction has signalled
  SynchroniseSummary& summary_;
};

/// Waits that are given, against what the bytes demand.
class Placed {
 public:
  Placed(const Works& works, const std::vector<PlacedWaits::Wait>& waits) : works_(works), waits_(waits) {
    std::array<int32_t, isa::kEngines> count{};
    SynchroniseSummary unused;
    const std::vector<int64_t> no_slides;
    Dependences dependences(works.size(), no_slides, unused);
    for (const Work* work : works) {
      numbers_.push_back(work->engine ? ++count[static_cast<size_t>(*work->engine)] : 0);
      demands_.push_back(dependences.demanded(*work, numbers_.back()));
    }
    for (size_t e = 0; e < places_.size(); ++e) places_[e].reserve(static_cast<size_t>(count[e]));
    for (size_t i = 0; i < works.size(); ++i)
      if (works[i]->engine) places_[engine_of(i)].push_back(static_cast<uint32_t>(i));
    kept_.assign(waits.size(), true);
    for (size_t w = 0; w < waits.size(); ++w) of_instruction_[waits[w].instruction].push_back(w);
  }

  std::vector<PlacedWaits::Wait> missing() const {
    std::vector<PlacedWaits::Wait> found;
    run([&](size_t instruction, size_t engine, int32_t number) {
      found.push_back({static_cast<uint32_t>(instruction), places_[engine][static_cast<size_t>(number - 1)]});
      return true;
    });
    return found;
  }

  /// Leaves out each in turn, and keeps it out where nothing is missing then.
  std::vector<PlacedWaits::Wait> needless() {
    std::vector<PlacedWaits::Wait> found;
    if (waits_.size() * works_.size() > kMostSteps) return found;
    for (size_t w = 0; w < waits_.size(); ++w) {
      kept_[w] = false;
      bool complete = true;
      run([&](size_t, size_t, int32_t) { return complete = false; });
      if (complete)
        found.push_back(waits_[w]);
      else
        kept_[w] = true;
    }
    kept_.assign(waits_.size(), true);
    return found;
  }

  std::vector<Plan> plans() const {
    std::vector<Plan> plans(works_.size());
    for (size_t i = 0; i < works_.size(); ++i) {
      if (!works_[i]->engine) continue;
      plans[i].engine = static_cast<int>(engine_of(i));
      plans[i].number = numbers_[i];
    }
    for (const PlacedWaits::Wait& wait : waits_) {
      const size_t e = engine_of(wait.earlier);
      if (e == engine_of(wait.instruction)) continue;  // in its order anyway
      int32_t& number = plans[wait.instruction].wait[e];
      number = std::max(number, numbers_[wait.earlier]);
    }
    for (size_t i = 0; i < plans.size(); ++i)
      for (size_t e = 0; e < isa::kEngines; ++e)
        if (plans[i].wait[e] != 0) plans[places_[e][static_cast<size_t>(plans[i].wait[e] - 1)]].signal = true;
    return plans;
  }

 private:
  static constexpr size_t kMostSteps = 100'000'000;

  size_t engine_of(size_t i) const { return static_cast<size_t>(*works_[i]->engine); }

  /// Calls lacks(instruction, engine, number of its instruction) for each that is demanded and not known to be
  /// complete, until it answers false. Such a one counts as known from then on.
  template <typename Lacks>
  void run(const Lacks& lacks) const {
    std::array<Clock, isa::kEngines> latest{};
    std::vector<Clock> started(works_.size());
    for (size_t i = 0; i < works_.size(); ++i) {
      if (!works_[i]->engine) continue;
      const size_t self = engine_of(i);
      Clock known = latest[self];
      known[self] = numbers_[i] - 1;
      const auto complete = [&](size_t place) {
        Clock clock = started[place];
        clock[engine_of(place)] = std::max(clock[engine_of(place)], numbers_[place]);
        merge(known, clock);
      };
      if (const auto own = of_instruction_.find(static_cast<uint32_t>(i)); own != of_instruction_.end())
        for (const size_t w : own->second)
          if (kept_[w] && engine_of(waits_[w].earlier) != self) complete(waits_[w].earlier);
      for (size_t e = 0; e < isa::kEngines; ++e) {
        const int32_t number = demands_[i][e];
        if (e == self || number <= known[e]) continue;
        if (!lacks(i, e, number)) return;
        complete(places_[e][static_cast<size_t>(number - 1)]);
      }
      started[i] = latest[self] = known;
    }
  }

  const Works& works_;
  const std::vector<PlacedWaits::Wait>& waits_;
  std::vector<int32_t> numbers_;                             // on the engine, from 1
  std::vector<Clock> demands_;                               // by engine: what must be complete
  std::array<std::vector<uint32_t>, isa::kEngines> places_;  // by number
  std::map<uint32_t, std::vector<size_t>> of_instruction_;   // its waits
  std::vector<bool> kept_;
};

/// The instruction at a place where none of the given ones stands.
isa::Instruction added(const Work& work) {
  if (!work.engine) return isa::Finish{};
  isa::Fence fence;
  fence.engine = *work.engine;
  return fence;
}

}  // namespace

Ordered in_order(std::span<const Work* const> works, std::span<const uint32_t> tags, const isa::MachineConfig& config,
                 const SynchroniseOptions& options, SynchroniseSummary* summary) {
  TESSERA_INVARIANT(tags.size() == works.size(), "one tag for each work");
  TESSERA_INVARIANT(options.signals_between_barriers >= 1 && options.signals_between_barriers <= 32000,
                    "barriers too far apart");
  SynchroniseSummary own;
  SynchroniseSummary& counts = summary != nullptr ? *summary : own;
  Dependences dependences(works.size(), options.slides, counts, options.orders);
  for (const Work* work : works) dependences.add(*work);
  const std::vector<Plan> plans = dependences.take();
  Writer writer(config, options.signals_between_barriers, works.size(), counts);
  for (size_t i = 0; i < works.size(); ++i) writer.add(static_cast<uint32_t>(i), tags[i], works[i], plans[i]);
  return writer.finish();
}

SynchroniseSummary synchronise(std::vector<isa::Instruction>& instructions, std::vector<uint32_t>& tags,
                               const isa::MachineConfig& config, const SynchroniseOptions& options) {
  WorkPool pool;
  Works works = pool.add(instructions, config);
  return synchronise(instructions, tags, works, config, options);
}

namespace {

/// The given instructions in the order and with the headers of `ordered`.
void write_back(std::vector<isa::Instruction>& instructions, const Ordered& ordered, int64_t barriers) {
  if (barriers == 0) {
    instructions.emplace_back(isa::Finish{});
  } else {
    std::vector<isa::Instruction> result;
    result.reserve(ordered.sources.size());
    for (size_t i = 0; i < ordered.sources.size(); ++i) {
      const uint32_t source = ordered.sources[i];
      result.push_back(source == Ordered::kAdded ? added(*ordered.works[i]) : instructions[source]);
    }
    instructions = std::move(result);
  }
  for (size_t i = 0; i < instructions.size(); ++i) {
    // What FETCH executes keeps its own.
    if (ordered.works[i]->engine) isa::header_of(instructions[i]) = ordered.headers[i];
  }
}

}  // namespace

SynchroniseSummary synchronise(std::vector<isa::Instruction>& instructions, std::vector<uint32_t>& tags, Works& works,
                               const isa::MachineConfig& config, const SynchroniseOptions& options) {
  TESSERA_INVARIANT(works.size() == instructions.size(), "one work for each instruction");
  SynchroniseSummary summary;
  Ordered ordered = in_order(works, tags, config, options, &summary);
  write_back(instructions, ordered, summary.barriers);
  tags = std::move(ordered.tags);
  works = std::move(ordered.works);
  return summary;
}

PlacedWaits synchronise_as_placed(std::vector<isa::Instruction>& instructions, std::vector<uint32_t>& tags,
                                  const std::vector<PlacedWaits::Wait>& waits, const isa::MachineConfig& config) {
  WorkPool pool;
  const Works works = pool.add(instructions, config);
  for (const PlacedWaits::Wait& wait : waits)
    TESSERA_INVARIANT(wait.earlier < wait.instruction && wait.instruction < works.size() &&
                          works[wait.earlier]->engine && works[wait.instruction]->engine,
                      "a wait is for an earlier instruction of an engine");
  Placed placed(works, waits);
  PlacedWaits found;
  found.missing = placed.missing();
  if (found.missing.empty()) found.needless = placed.needless();
  SynchroniseSummary summary;
  const std::vector<Plan> plans = placed.plans();
  Writer writer(config, SynchroniseOptions{}.signals_between_barriers, works.size(), summary);
  for (size_t i = 0; i < works.size(); ++i) writer.add(static_cast<uint32_t>(i), tags[i], works[i], plans[i]);
  Ordered ordered = writer.finish();
  write_back(instructions, ordered, summary.barriers);
  tags = std::move(ordered.tags);
  return found;
}

}  // namespace tessera::emit
