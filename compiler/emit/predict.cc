// SPDX-License-Identifier: Apache-2.0
// The replay: queues, waits, engines, the bus. Engines take turns by time.
#include "compiler/emit/predict.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "compiler/emit/duration.h"
#include "compiler/emit/ledger.h"
#include "compiler/emit/predict_chip.h"
#include "compiler/emit/shared_bus.h"
#include "isa/generated/timing.h"
#include "isa/verify/charging.h"

namespace tessera::emit {

namespace {

namespace timing = isa::timing;

// Estimates of what single bursts and beats would tell, which this replay does not follow; no facts of the machine.
constexpr int64_t kBurst = 2;          // that a burst holds its place beside DRAM's latency and its beats
constexpr int64_t kReadBusy = 16;      // of DRAM's latency: the share that a read waits for the bus beside others
constexpr int64_t kWriteBusy = 24;     // the same of a write
constexpr int64_t kStoreOverlap = 8;   // that the next STORE is taken before the beats of this one have moved
constexpr int64_t kStoreResponse = 2;  // from the last beat to the completion, beside DRAM's latency
constexpr int64_t kEnd = 4;            // from the last completion to the end of the program

constexpr int64_t kBuffered = timing::interconnect::kWords;
constexpr int64_t kWordBytes = isa::kInstructionBytes;

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

struct Engine {
  std::vector<uint32_t> program;     // its instructions
  size_t dispatched = 0, taken = 0;  // how many of them
  size_t depth = 0;                  // of its queue
  std::vector<int64_t> arrivals;     // when they reach the queue
  std::vector<int64_t> takes;
  std::vector<int64_t> signals;
  int64_t free = 0;          // the earliest cycle in which the next instruction may be taken
  int64_t end = 0;           // the last cycle of work of the instruction before
  int64_t complete = 0;      // the completion of the instruction before
  int64_t ready = kUnknown;  // when the signals count that the next instruction waits for
  int64_t take = 0;          // the cycle in which the next instruction is taken
  int64_t moves = kUnknown;  // and that in which its work meets others'; unknown: it cannot be taken yet
};

constexpr uint8_t kFetch = isa::kEngines;  // in an engine's place

/// What an instruction waits for, as numbers of signals of engines, and which engine it is for.
struct Conditions {
  struct Signal {
    uint32_t number = 0;
    uint8_t engine = 0;
  };
  std::array<Signal, std::tuple_size_v<decltype(isa::Header::waits)>> waits;
  uint8_t count = 0, target = kFetch;
};

/// A word of the program: when FETCH requests it, and the cycle after its last beat.
struct Word {
  int64_t request = 0, end = 0;
};

/// The data side's work on an instruction of LOAD.
struct Moved {
  int64_t begin = 0, end = 0, runs = 0;
};

class Replay {
 public:
  Replay(std::span<const isa::Header> headers, std::span<const uint32_t> tags, std::span<const Work* const> works,
         size_t layers, const isa::MachineConfig& config, const Dram& dram, SharedBus* shared = nullptr)
      : shared_(shared),
        headers_(headers),
        tags_(tags),
        works_(works),
        layers_(layers),
        config_(config),
        latency_(dram.latency_cycles),
        read_(latency_ + latency_ / kReadBusy + kBurst),
        written_(latency_ + latency_ / kWriteBusy + kBurst),
        bandwidth_(dram.bandwidth_bytes > 0 && shared == nullptr
                       ? std::min<int64_t>(dram.bandwidth_bytes, config.axi_bytes)
                       : config.axi_bytes),
        cost_(dram.cost),
        in_flight_(std::max(1, config.reads_in_flight)),
        writes_in_flight_(std::max(1, config.writes_in_flight)),
        places_(timing::load::runs_waiting(config)) {
    number_waits();
    moved_.reserve(engine(isa::Engine::kLoad).program.size());
    words_.reserve(headers.size());
    for (int64_t k = 0; k < timing::fetch::kWordsAhead; ++k) request_word(0);
  }

  /// Makes the stream that of a core: `publics` has the cycles from which each core's publications count.
  void share(std::span<const isa::Instruction> instructions, size_t core, std::vector<std::vector<int64_t>>& publics) {
    publics_ = &publics;
    core_ = core;
    for (size_t i = 0; i < instructions.size(); ++i) {
      const auto* fence = std::get_if<isa::Fence>(&instructions[i]);
      if (fence == nullptr || !(fence->publish || fence->await)) continue;
      fences_.emplace(static_cast<uint32_t>(i), *fence);
    }
  }

  Prediction run() {
    while (step()) {
    }
    return result();
  }

  /// Always the engine that is first in time, so that uses of the bus and of ports meet in about the order of time.
  /// False: nothing can go on.
  bool step() {
    const size_t first = first_engine();
    const int64_t moves = engines_[first].moves;
    if (dispatched_ <= moves && dispatchable()) {
      dispatch();
    } else if (moves != kUnknown) {
      take(first);
    } else {
      return false;
    }
    return true;
  }

  /// The cycle of the next step; kUnknown: nothing can go on.
  int64_t next() const {
    const int64_t moves = engines_[first_engine()].moves;
    return dispatched_ <= moves && dispatchable() ? dispatched_ : moves;
  }

  /// Another core has published.
  void heed() {
    for (size_t k = 0; k < engines_.size(); ++k) find_turn(k);
  }

  /// By transfer of LOAD the cycles in front of it in which LOAD moved no data; of a chip's core alone.
  std::vector<int64_t>& rests() { return rests_; }

  Prediction result() {
    Prediction result;
    result.cycles = last_ + kEnd;
    result.layer_cycles.assign(layers_, 0);
    const auto charges = isa::charge(std::move(work_), layers_, static_cast<uint64_t>(result.cycles));
    for (size_t layer = 0; layer < layers_; ++layer) {
      for (const uint64_t cycles : charges[layer]) result.layer_cycles[layer] += static_cast<int64_t>(cycles);
    }
    return result;
  }

 private:
  size_t first_engine() const {
    size_t first = 0;
    for (size_t k = 1; k < engines_.size(); ++k) {
      if (engines_[k].moves < engines_[first].moves) first = k;
    }
    return first;
  }

  Engine& engine(isa::Engine engine) { return engines_[static_cast<size_t>(engine)]; }

  /// Cycles of the bus that so many beats take at the memory's bandwidth.
  int64_t slots(int64_t beats) const {
    if (cost_.beat_256ths > 0) return (beats * cost_.beat_256ths + 255) / 256;
    return (beats * config_.axi_bytes + bandwidth_ - 1) / bandwidth_;
  }
  /// The same of bursts that follow one another: each leaves a bank for another, and may open a row.
  int64_t slots(int64_t beats, int64_t bursts) const { return slots(beats) + bursts * cost_.burst_cycles; }

  /// What each instruction waits for, as numbers of signals from the start: the latest counts that the 16 bits can
  /// mean, as the stream is a topological order.
  void number_waits() {
    conditions_.resize(headers_.size());
    std::array<int64_t, isa::kEngines> signals{};
    int64_t cycles = 0;  // if nothing overlapped
    for (size_t i = 0; i < headers_.size(); ++i) {
      const isa::Header& header = headers_[i];
      Conditions& conditions = conditions_[i];
      for (const isa::Wait& wait : header.waits) {
        if (!wait.enable) continue;
        const int64_t count = signals[static_cast<size_t>(wait.engine)];
        const int64_t number = std::max<int64_t>(0, count - static_cast<uint16_t>(count - wait.count));
        conditions.waits[conditions.count++] = {static_cast<uint32_t>(number), static_cast<uint8_t>(wait.engine)};
      }
      const auto target = works_[i]->engine;
      if (!target) continue;
      cycles += std::max(works_[i]->duration.engine, works_[i]->duration.beats);
      conditions.target = static_cast<uint8_t>(*target);
      engines_[conditions.target].program.push_back(static_cast<uint32_t>(i));
      if (header.signal) ++signals[conditions.target];
    }
    for (size_t k = 0; k < engines_.size(); ++k) {
      Engine& e = engines_[k];
      e.depth = static_cast<size_t>(config_.queue_depth(static_cast<isa::Engine>(k)));
      e.arrivals.reserve(e.program.size());
      e.takes.reserve(e.program.size());
      e.signals.reserve(static_cast<size_t>(signals[k]));
    }
    for (Ledger* ledger : {&bus_, &acc_, &alu_writes_, &load_writes_, &alu_reads_}) ledger->reserve(cycles);
  }

  /// The first cycle in which an instruction's conditions may hold, those last that hold last: the signals that it
  /// waits for count then, and the last one has been looked at.
  int64_t ready_at(size_t i) const {
    const Conditions& conditions = conditions_[i];
    int64_t ready = 0;
    for (size_t k = 0; k < conditions.count; ++k) {
      const auto [number, e] = conditions.waits[k];
      if (number < 1) continue;
      if (engines_[e].signals.size() < number) return kUnknown;
      ready = std::max(ready, engines_[e].signals[number - 1] + timing::queue::kSignal);
    }
    if (const isa::Fence* fence = fence_of(i); fence != nullptr && fence->await) {
      const std::vector<int64_t>& counted = (*publics_)[fence->await_core];
      const size_t count = fence->await_count;
      if (counted.size() < count) return kUnknown;
      if (count > 0) ready = std::max(ready, counted[count - 1] + timing::queue::kCondition);
    }
    return ready + (conditions.count > 0 ? timing::queue::kCondition : 0);
  }

  /// What the instruction is to other cores, or null.
  const isa::Fence* fence_of(size_t i) const {
    if (publics_ == nullptr) return nullptr;
    const auto found = fences_.find(static_cast<uint32_t>(i));
    return found == fences_.end() ? nullptr : &found->second;
  }

  /// Whether the next instruction's queue is known to have room.
  bool dispatchable() const {
    if (fetched_ == headers_.size()) return false;
    const uint8_t target = conditions_[fetched_].target;
    if (target == kFetch) {
      return std::all_of(engines_.begin(), engines_.end(), [](const Engine& e) { return e.taken == e.dispatched; });
    }
    const Engine& e = engines_[target];
    return e.dispatched < e.takes.size() + e.depth;
  }

  /// Books the next word of the program, which FETCH requests in cycle `at`. Words come in order.
  void request_word(int64_t at) {
    if (words_.size() == headers_.size()) return;
    const int64_t beats = std::max<int64_t>(1, timing::fetch::word_beats(config_));
    int64_t seen = at + timing::bus::kAddress + latency_ + timing::bus::kSeen;
    if (shared_ != nullptr) seen = shared_->read(seen, kWordBytes / config_.memory_bytes(), 1, 0).first;
    words_.push_back({at, bus_.move(std::max(seen, words_.empty() ? 0 : words_.back().end), slots(beats, 1))});
  }

  /// The cycle after the last word that was requested before a burst that LOAD offers in cycle `offer`: read beats come
  /// in the order of the requests, and FETCH's come first.
  int64_t behind_words(int64_t offer) const {
    // It is one of the last as a rule.
    size_t first = words_.size(), end = first;
    for (size_t step = 1; first > 0 && words_[first - 1].request > offer; step *= 2) {
      end = first;
      first -= std::min(first, step);
    }
    const auto begin = words_.begin();
    const auto later =
        std::upper_bound(begin + static_cast<std::ptrdiff_t>(first), begin + static_cast<std::ptrdiff_t>(end), offer,
                         [](int64_t at, const Word& w) { return at < w.request; });
    return later == begin ? 0 : std::prev(later)->end;
  }

  /// Dispatches the next instruction where its queue has room. FETCH then requests one more word.
  void dispatch() {
    const uint8_t target = conditions_[fetched_].target;
    const int64_t in_register = std::max(words_[fetched_].end, dispatched_);
    request_word(in_register + 1);
    dispatched_ = in_register + timing::fetch::kCheck;
    if (target != kFetch) {
      Engine& e = engines_[target];
      if (e.dispatched >= e.depth) dispatched_ = std::max(dispatched_, e.takes[e.dispatched - e.depth] + 1);
      e.arrivals.push_back(dispatched_ + timing::queue::kVisible);
      __builtin_prefetch(works_[fetched_]);  // it is taken soon
      __builtin_prefetch(&works_[fetched_]->duration.alone);
      if (e.taken == e.dispatched++) find_turn(target);
    } else {
      const int64_t ready = ready_at(fetched_);
      last_ = std::max({last_, ready == kUnknown ? 0 : ready, dispatched_});
    }
    ++fetched_;
  }

  /// When an engine takes its next instruction.
  void find_turn(size_t k) {
    Engine& e = engines_[k];
    e.moves = kUnknown;
    if (e.taken == e.dispatched) return;
    const uint32_t i = e.program[e.taken];
    if (e.ready == kUnknown) e.ready = ready_at(i);
    if (e.ready == kUnknown) return;
    const int64_t looks = conditions_[i].count * timing::queue::kCondition;
    e.take = std::max({e.arrivals[e.taken] + looks, e.ready, e.free});
    // What LOAD takes moves later.
    e.moves = k == static_cast<size_t>(isa::Engine::kLoad) ? std::max(e.take + latency_, e.end) : e.take;
  }

  void take(size_t k) {
    Engine& e = engines_[k];
    const size_t i = e.program[e.taken++];
    e.ready = kUnknown;
    e.takes.push_back(e.take);
    const int64_t complete = work(static_cast<isa::Engine>(k), *works_[i], e.take, tags_[i]);
    if (headers_[i].signal) e.signals.push_back(complete);
    if (const isa::Fence* fence = fence_of(i); fence != nullptr && fence->publish)
      (*publics_)[core_].push_back(complete + timing::queue::kSignal);
    last_ = std::max(last_, complete);
    // Its signal may be waited for, and its work may have delayed LOAD and STORE.
    for (size_t other = 0; other < engines_.size(); ++other) find_turn(other);
  }

  /// What an instruction does that its engine takes in cycle `take`; the cycle of its completion. What engines do
  /// depends on the operands and steps of isa.toml alone; what has none of either is a FENCE.
  int64_t work(isa::Engine which, const Work& work, int64_t take, uint32_t layer) {
    Engine& e = engine(which);
    if (work.idle && which == isa::Engine::kStore) return answer_fence(e, take);
    if (work.idle) return e.free = std::max(take + 1, e.end);
    switch (which) {
      case isa::Engine::kGemm: return multiply(work, e, take, work.duration, layer);
      case isa::Engine::kAlu: return compute(work, e, take, work.duration, layer);
      case isa::Engine::kLoad: return load(work, e, take, work.duration, layer);
      case isa::Engine::kStore: return store(work, e, take, work.duration, layer);
    }
    TESSERA_INVARIANT(false, "an engine that the replay does not know");
    return take;
  }

  int64_t multiply(const Work& work, Engine& e, int64_t take, const Duration& d, uint32_t layer) {
    const int64_t first = std::max(take + timing::gemm::kStart, e.end + 1);
    e.free = std::max(take + timing::gemm::kPrepare, e.end);
    e.end = first + d.engine - 1;
    worked(isa::Engine::kGemm, first, e.end + 1, layer);
    if (work.reads_acc) read_sums(first, d);
    return e.end + work.latency_cycles;
  }

  /// GEMM's reads of sums from cycle `first` on go before those of what STORE moves from ACC, which ends later then.
  void read_sums(int64_t first, const Duration& d) {
    Engine& store = engine(isa::Engine::kStore);
    if (store.taken == 0 || store.end <= first || !works_[store.program[store.taken - 1]]->reads_acc) {
      acc_.book(first, d.engine, d.outputs);
      return;
    }
    const int64_t lost = acc_.displace(first, d.engine, d.outputs, store.end);
    if (lost == 0) return;
    const int64_t later = acc_.move(store.end, lost) - store.end;
    delay_store(later);
    store.complete += later;
    last_ = std::max(last_, store.complete);
    if (!headers_[store.program[store.taken - 1]].signal) return;
    // Who waits for it looks again.
    store.signals.back() = store.complete;
    for (Engine& e : engines_) e.ready = kUnknown;
  }

  int64_t compute(const Work& work, Engine& e, int64_t take, const Duration& d, uint32_t layer) {
    const int64_t start = std::max(take + timing::alu::kPrepare, d.alone ? e.complete + 1 : e.end);
    e.free = start;
    e.end = start + d.engine;
    if (work.reads_acc && !d.alone) e.end = std::max(e.end, acc_.move(start, d.engine));
    alu_reads_inp_ = work.reads_inp && !d.alone;
    if (alu_reads_inp_) {
      // Its own writes go first, from the first one on.
      const int64_t own = work.writes_inp && !d.alone ? std::max<int64_t>(0, d.outputs - work.latency_cycles) : 0;
      e.end = std::max(e.end, alu_reads_.behind(start, d.engine + own, load_writes_, alu_writes_));
      alu_paused_ = d.engine - d.inputs;
    }
    const bool rows_inp = work.reads_inp && d.alone;  // their reads come before LOAD's writes
    if (work.writes_inp || rows_inp) {
      if (rows_inp) alu_writes_.book(start, e.end - start, d.inputs);
      if (work.writes_inp) alu_writes_.book(start + work.latency_cycles, e.end - start, d.outputs);
      Engine& load = engine(isa::Engine::kLoad);
      const int64_t waited = store_waits(start);
      if (load.end > start)
        load.end = bus_.move(load.end, bus_.lose(start, e.end - start, load_writes_, alu_writes_, paced_));
      delay_store(store_waits(start) - waited);
    }
    worked(isa::Engine::kAlu, start + 1, e.end + 1, layer);
    if (d.alone) e.free = e.end + 1;
    return e.complete = e.end + (d.alone ? 0 : work.latency_cycles);
  }

  /// Addresses go out as soon as the run is known and few enough runs wait for the data side; data come a latency later
  /// and behind older data. Padding in front of them is written meanwhile.
  int64_t load(const Work& work, Engine& e, int64_t take, const Duration& d, uint32_t layer) {
    const int64_t leave = run_leaves(take + timing::transfer::kLeave);
    const int64_t ready = leave + (d.beats > 0 ? timing::load::kFirstBeat + latency_ : timing::load::kStart);
    int64_t came = std::max(ready + d.border.ahead_steps,
                            d.beats > 0 ? behind_words(leave + timing::transfer::kOffer) : int64_t{0});
    // Of the master that cores share a request takes the beats that its buffer has room for. More come as it moves on.
    const int64_t at_once =
        d.shared == 0 ? 0 : std::min({d.shared, kBuffered, in_flight_ * d.shared / std::max<int64_t>(d.bursts, 1)});
    SharedBus::Moved moved;
    if (shared_ != nullptr && d.shared > 0) {
      moved = shared_->read(std::max(ready, shared_end_), at_once, d.bursts * at_once / d.shared,
                            d.bursts * at_once / d.shared);
      came = std::max(came, moved.first);
    }
    const int64_t begin = std::max(came, std::max(leave + timing::load::kStart, e.end) + d.border.ahead);
    // As many bursts may be outstanding, words of the program among them; as many runs may wait.
    const int64_t window = std::max(((d.bursts + words_before(e)) * read_ + slots(d.beats, d.bursts)) / in_flight_,
                                    d.waiting * read_ / places_);
    const int64_t busy = d.engine - d.border.ahead;
    const bool inp = work.writes_inp;
    if (publics_ != nullptr) rests_.push_back(begin - e.end);
    const int64_t waited = store_waits(begin);
    // Padding holds the bus where the data behind it have come.
    hold(std::max(came, e.end - behind_), begin);
    const int64_t between = window < busy ? held_between(d.border, begin - came) : 0;
    const int64_t span = std::max(busy, window);
    e.end = bus_.move(begin, slots(d.beats, d.bursts) + between, span, inp ? &alu_writes_ : nullptr);
    if (shared_ != nullptr && d.shared > 0) {
      if (d.shared > at_once)
        moved.end = shared_
                        ->read(std::max(moved.end, begin), d.shared - at_once, d.bursts - d.bursts * at_once / d.shared,
                               (e.end - begin) * (d.shared - at_once) / d.shared)
                        .end;
      shared_end_ = moved.end;
      e.end = std::max(e.end, moved.end);
    }
    paced_ = inp && window > busy;
    behind_ = d.border.behind + (d.beats > 0 ? 0 : behind_ + d.engine);
    delay_store(store_waits(begin) - waited);
    if (inp) {
      load_writes_.book(begin, e.end - begin, busy);
      // Each write takes a read of the vector unit its cycle, also of an instruction that was taken before, but for
      // pauses of the second operation.
      Engine& alu = engine(isa::Engine::kAlu);
      const int64_t together = std::min(e.end, alu.end) - begin;
      if (alu_reads_inp_ && together > 0) {
        const int64_t writes = busy * together / std::max<int64_t>(e.end - begin, 1);
        const int64_t pauses = std::min({alu_paused_, writes, std::max<int64_t>(0, together - writes)});
        alu_paused_ -= pauses;
        alu.end += writes - pauses;
      }
    }
    e.free = std::max(take + 1, leave);
    worked(isa::Engine::kLoad, take, e.end + 1, layer);
    moved_.push_back({begin, e.end, d.runs});
    return e.end;
  }

  /// The bus is held while data that came in cycle `came` wait for padding that is written until `begin`.
  void hold(int64_t came, int64_t begin) {
    const int64_t cycles = begin - came - timing::bus::kBeatsWaiting;
    if (cycles > 0) bus_.book(came, cycles, cycles);
  }

  /// Cycles in which padding between rows holds the bus, where the first data have waited for so long.
  static int64_t held_between(const Border& border, int64_t waited) {
    const int64_t each = std::min(border.between, waited + border.row_groups - border.row_steps);
    return border.gaps * std::max<int64_t>(0, each - timing::bus::kBeatsWaiting);
  }

  /// Words of the program from the instruction before on, for the one that the engine has just taken: its own included.
  static int64_t words_before(const Engine& e) {
    const auto own = static_cast<int64_t>(e.program[e.taken - 1]);
    return e.taken > 1 ? own - static_cast<int64_t>(e.program[e.taken - 2]) : own + 1;
  }

  /// When a run of LOAD that is ready to leave finds room behind the older ones.
  int64_t run_leaves(int64_t ready) const {
    const size_t kept = moved_.size() - std::min(moved_.size(), static_cast<size_t>(places_));
    int64_t ahead = 0;
    for (size_t k = moved_.size(); k > kept; --k) {
      const Moved& older = moved_[k - 1];
      if (ahead + older.runs > places_) {
        const int64_t rest = places_ - ahead;  // of its runs that may still wait
        return std::max(ready, older.end - (older.end - older.begin) * rest / older.runs);
      }
      ahead += older.runs;
    }
    return ready;
  }

  int64_t store(const Work& work, Engine& e, int64_t take, const Duration& d, uint32_t layer) {
    const int64_t begin = std::max(take + timing::transfer::kLeave + timing::store::kFirstBeat, e.end);
    Engine& load = engine(isa::Engine::kLoad);
    // Among reads a real DRAM turns for each burst, there and back.
    const int64_t turns = load.end > begin ? d.bursts * cost_.turn_cycles : 0;
    const int64_t beats = slots(d.beats, d.bursts) + turns;
    const int64_t answers = (d.bursts * written_ + beats) / writes_in_flight_;
    // Several beats may be one command of a real DRAM; they still take their cycles at the port.
    const int64_t window = cost_.beat_256ths > 0 ? std::max(answers, d.beats) : answers;
    // Where reads want the bus too, reads and writes take turns.
    const auto [end, pushed] = bus_.take_turns(begin, beats, window);
    short_runs_ = answers > beats;
    e.end = std::max(end, begin + window);
    if (shared_ != nullptr && d.shared > 0) {
      const int64_t first = std::max<int64_t>(d.beats / std::max<int64_t>(d.bursts, 1), 1) +
                            timing::interconnect::kCollect + timing::interconnect::kWriteData;
      e.end = std::max(e.end, shared_->write(begin + first, d.shared, d.bursts, e.end - begin) - first);
    }
    if (short_runs_) e.end += bus_.kept_waiting(begin, e.end);
    if (load.end > begin) load.end = bus_.move(load.end, pushed);
    if (work.reads_acc) e.end = std::max(e.end, acc_.move(begin, d.engine, e.end - begin));
    e.free = std::max(take + 1, e.end - kStoreOverlap);
    e.complete = e.end + latency_ + kStoreResponse;
    worked(isa::Engine::kStore, take, e.complete + 1, layer);
    return e.complete;
  }

  /// A FENCE has its answer behind those of the stores before it, and holds up nothing.
  static int64_t answer_fence(Engine& e, int64_t take) {
    const int64_t leave = take + timing::transfer::kFence + timing::transfer::kStep + timing::transfer::kJoin;
    e.free = std::max(take + 1, e.free);
    return e.complete = std::max(leave, e.complete) + timing::store::kFence + timing::store::kComplete;
  }

  /// Cycles from `begin` on that STORE loses because LOAD holds the bus, where it waits for answers to its short runs:
  /// the next ones leave later then. Where it waits for the bus itself, beats that take turns tell.
  int64_t store_waits(int64_t begin) {
    return short_runs_ ? bus_.kept_waiting(begin, engine(isa::Engine::kStore).end) : 0;
  }

  void delay_store(int64_t cycles) {
    Engine& store = engine(isa::Engine::kStore);
    store.end += cycles;
    store.free += cycles;
  }

  void worked(isa::Engine which, int64_t begin, int64_t end, uint32_t layer) {
    if (layers_ == 0) return;
    work_[static_cast<size_t>(isa::cause_of(which))].push_back(
        {static_cast<uint64_t>(begin), static_cast<uint64_t>(end), layer < layers_ ? layer : isa::kNoLayer});
  }

  SharedBus* const shared_;  // that of all cores, if there is more than one
  std::span<const isa::Header> headers_;
  std::span<const uint32_t> tags_;
  std::span<const Work* const> works_;
  size_t layers_;
  const isa::MachineConfig& config_;
  int64_t latency_;         // of DRAM
  int64_t read_, written_;  // how long a burst without beats holds its place
  int64_t bandwidth_;       // of DRAM
  const isa::DramCost& cost_;
  int64_t in_flight_, writes_in_flight_;
  const int64_t places_;  // of LOAD's runs that wait for data

  std::vector<int64_t> rests_;  // by transfer of LOAD
  std::array<Engine, isa::kEngines> engines_;
  std::vector<Conditions> conditions_;           // by instruction
  int64_t shared_end_ = 0;                       // of LOAD's last read of the shared master
  Ledger bus_, acc_;                             // ACC: its port of reads
  Ledger alu_writes_, load_writes_, alu_reads_;  // of INP's second port; reads by rows are among alu_writes_
  std::vector<Moved> moved_;                     // of LOAD, newest last
  int64_t behind_ = 0;                           // groups of padding behind its last data
  bool paced_ = false;                           // what LOAD works on waits for answers, and then for a port
  bool short_runs_ = false;                      // what STORE works on waits for answers
  bool alu_reads_inp_ = false;                   // what the vector unit works on
  int64_t alu_paused_ = 0;                       // cycles of it in which it reads nothing
  size_t fetched_ = 0;
  std::vector<Word> words_;  // that have been requested
  int64_t dispatched_ = 0;   // the cycle of the last dispatch
  int64_t last_ = 0;         // completion
  std::array<std::vector<isa::Stretch>, isa::kChargedEngines> work_;

  size_t core_ = 0;
  std::unordered_map<uint32_t, isa::Fence> fences_;  // that publish or await, by instruction
  std::vector<std::vector<int64_t>>* publics_ = nullptr;
};

}  // namespace

Prediction predict(std::span<const isa::Instruction> instructions, std::span<const uint32_t> tags, size_t layers,
                   const isa::MachineConfig& config, const Dram& dram) {
  WorkPool pool;
  const Works works = pool.add(instructions, config);
  return predict(instructions, tags, works, layers, config, dram);
}

Prediction predict(std::span<const isa::Instruction> instructions, std::span<const uint32_t> tags,
                   std::span<const Work* const> works, size_t layers, const isa::MachineConfig& config,
                   const Dram& dram) {
  std::vector<isa::Header> headers;
  headers.reserve(instructions.size());
  for (const isa::Instruction& instruction : instructions) headers.push_back(isa::header_of(instruction));
  return predict(headers, tags, works, layers, config, dram);
}

Prediction predict(std::span<const isa::Header> headers, std::span<const uint32_t> tags,
                   std::span<const Work* const> works, size_t layers, const isa::MachineConfig& config,
                   const Dram& dram) {
  return Replay(headers, tags, works, layers, config, dram).run();
}

std::vector<Prediction> predict(std::span<const CoreStream> cores, size_t layers, const isa::MachineConfig& config,
                                const Dram& dram, int64_t shared_bandwidth, std::vector<std::vector<int64_t>>* rests) {
  std::vector<std::vector<int64_t>> publics(cores.size());
  std::vector<std::vector<isa::Header>> headers(cores.size());
  std::optional<SharedBus> shared;
  // What a real DRAM takes is known for one core's bursts.
  if (cores.size() > 1 && dram.cost == isa::DramCost{}) shared.emplace(config, dram.latency_cycles, shared_bandwidth);
  std::vector<Replay> replays;
  replays.reserve(cores.size());
  for (size_t k = 0; k < cores.size(); ++k) {
    const CoreStream& core = cores[k];
    for (const isa::Instruction& instruction : core.instructions) headers[k].push_back(isa::header_of(instruction));
    replays.emplace_back(headers[k], core.tags, core.works, layers, config, dram, shared ? &*shared : nullptr);
    replays.back().share(core.instructions, k, publics);
  }
  for (;;) {
    size_t first = 0;
    for (size_t k = 1; k < replays.size(); ++k)
      if (replays[k].next() < replays[first].next()) first = k;
    const size_t before = publics[first].size();
    if (!replays[first].step()) break;
    if (publics[first].size() == before) continue;
    for (size_t k = 0; k < replays.size(); ++k)
      if (k != first) replays[k].heed();
  }
  std::vector<Prediction> predictions;
  for (Replay& replay : replays) {
    predictions.push_back(replay.result());
    if (rests != nullptr) rests->push_back(std::move(replay.rests()));
  }
  return predictions;
}

Prediction predict(const Ordered& stream, size_t layers, const isa::MachineConfig& config, const Dram& dram) {
  return predict(stream.headers, stream.tags, stream.works, layers, config, dram);
}

}  // namespace tessera::emit
