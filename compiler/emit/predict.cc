// SPDX-License-Identifier: Apache-2.0
// The replay: queues, waits, engines, the bus. Engines take turns by time.
#include "compiler/emit/predict.h"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <utility>

#include "compiler/emit/duration.h"
#include "isa/charging.h"
#include "isa/generated/timing.h"

namespace tessera::emit {

namespace {

namespace timing = isa::timing;

// Estimates of what single bursts and beats would tell, which this replay does not follow; no facts of the machine.
constexpr int64_t kFirstWord = 8;       // cycles before the first instruction's word moves
constexpr int64_t kReadBurst = 20;      // that a read burst holds its place beside DRAM's latency
constexpr int64_t kWriteBurst = 8;      // the same of a write burst
constexpr int64_t kStoreOverlap = 8;    // that the next STORE is taken before the beats of this one have moved
constexpr int64_t kStoreResponse = 2;   // from the last beat to the completion, beside DRAM's latency
constexpr int64_t kEnd = 4;             // from the last completion to the end of the program

/// What the bus or a port has to give, in buckets of cycles, because uses are met in the order of the stream and not of
/// time.
class Ledger {
 public:
  /// Uses that nobody delays, spread over `cycles` from `begin` on.
  void book(int64_t begin, int64_t cycles, int64_t uses) {
    for (int64_t at = begin, end = begin + std::max<int64_t>(cycles, 1); at < end;) {
      const int64_t next = std::min(end, (at / kBucket + 1) * kBucket);
      used(at / kBucket) += static_cast<int32_t>(uses * (next - at) / std::max<int64_t>(cycles, 1));
      at = next;
    }
  }

  /// Uses booked in the cycles from `begin` to `end`, in whole buckets' shares.
  int64_t uses(int64_t begin, int64_t end) {
    int64_t sum = 0;
    for (int64_t at = begin; at < end;) {
      const int64_t next = std::min(end, (at / kBucket + 1) * kBucket);
      sum += used(at / kBucket) * (next - at) / kBucket;
      at = next;
    }
    return sum;
  }

  /// Moves `beats` from cycle `begin` on where there is room; returns the cycle after the last.
  /// `holder`: uses of a port that a beat waits for, and while it waits nobody else moves either.
  int64_t move(int64_t begin, int64_t beats, Ledger* holder = nullptr) {
    int64_t at = begin;
    while (beats > 0) {
      const int64_t bucket = at / kBucket, end = (bucket + 1) * kBucket;
      if (holder != nullptr) {
        // All of them where beats fill the bucket.
        const int64_t waiting = std::max<int64_t>(0, int64_t{holder->used(bucket)} - held(bucket)), span = end - at;
        const int64_t lost = waiting * std::min(beats, span) / kBucket;
        held(bucket) += static_cast<int32_t>(lost);
        beats += lost;
      }
      // Owners that follow each other on the bus leave gaps.
      const int64_t limit = used(bucket) > 0 ? kBucket - kGaps : kBucket;
      const int64_t room = std::min(limit - int64_t{used(bucket)}, end - at);
      const int64_t now = std::clamp<int64_t>(room, 0, beats);
      used(bucket) += static_cast<int32_t>(now);
      beats -= now;
      at = beats > 0 ? end : at + now;
    }
    return at;
  }

  /// Moves `beats` where others have booked too: every second cycle belongs to them at most. Returns the cycle after
  /// the last, and how many uses of the others lose their place.
  std::pair<int64_t, int64_t> take_turns(int64_t begin, int64_t beats) {
    int64_t at = begin, pushed = 0;
    while (beats > 0) {
      const int64_t bucket = at / kBucket, end = (bucket + 1) * kBucket, span = end - at;
      const int64_t room = std::max(std::min(kBucket - int64_t{used(bucket)}, span), span / 2),
                    now = std::clamp<int64_t>(room, 0, beats);
      const int64_t over = std::max<int64_t>(0, used(bucket) + now - kBucket);
      used(bucket) += static_cast<int32_t>(now - over);
      pushed += over;
      beats -= now;
      at = beats > 0 ? end : at + (room > 0 ? span * now / room : 0);
    }
    return {at, pushed};
  }

  /// Beats' time that is lost in `cycles` from `begin` on because `others` wait for `holder`.
  int64_t lose(int64_t begin, int64_t cycles, Ledger& others, Ledger& holder) {
    int64_t lost = 0;
    for (int64_t bucket = begin / kBucket; bucket <= (begin + std::max<int64_t>(cycles, 1) - 1) / kBucket; ++bucket) {
      const int64_t waiting = std::max<int64_t>(0, int64_t{holder.used(bucket)} - held(bucket)),
                    now = std::min<int64_t>(waiting, others.used(bucket));
      held(bucket) += static_cast<int32_t>(now);
      lost += now;
    }
    return lost;
  }

  /// The cycle in which `uses` from `begin` on are done where `other` goes first.
  int64_t behind(int64_t begin, int64_t uses, Ledger& other) {
    int64_t at = begin;
    while (uses > 0) {
      const int64_t bucket = at / kBucket, end = (bucket + 1) * kBucket;
      const int64_t room = std::min(kBucket - int64_t{used(bucket)} - other.used(bucket), end - at),
                    now = std::clamp<int64_t>(room, 0, uses);
      used(bucket) += static_cast<int32_t>(now);
      uses -= now;
      at = uses > 0 ? end : at + now;
    }
    return at;
  }

 private:
  static constexpr int64_t kBucket = 64, kGaps = 8;
  int32_t& used(int64_t bucket) {
    const auto index = static_cast<size_t>(bucket);
    if (index >= used_.size()) used_.resize(index + index / 4 + 64, 0);
    return used_[index];
  }
  int32_t& held(int64_t bucket) {
    used(bucket);
    held_.resize(used_.size(), 0);
    return held_[static_cast<size_t>(bucket)];
  }
  std::vector<int32_t> used_, held_;
};

struct Engine {
  std::vector<size_t> program;       // its instructions
  size_t dispatched = 0, taken = 0;  // how many of them
  std::vector<int64_t> arrivals;     // when they reach the queue
  std::vector<int64_t> takes;
  std::vector<int64_t> signals;
  int64_t free = 0;  // the earliest cycle in which the next instruction may be taken
  int64_t end = 0;   // the last cycle of work of the instruction before
};

/// The data side's work on an instruction of LOAD.
struct Moved {
  int64_t begin = 0, end = 0, runs = 0;
};

}  // namespace

Prediction predict(std::span<const isa::Instruction> instructions, std::span<const uint32_t> tags, size_t layers,
                   const isa::MachineConfig& config, int64_t dram_latency) {
  Prediction result;
  result.layer_cycles.assign(layers, 0);
  std::array<Engine, isa::kEngines> engines;
  Ledger bus, acc;                 // ACC: its port of reads
  Ledger alu_writes, load_writes;  // of INP's second port
  const int64_t word_beats = std::max<int64_t>(1, timing::fetch::word_beats(config));
  const int64_t in_flight = std::max(1, config.reads_in_flight),
                writes_in_flight = std::max(1, config.writes_in_flight);
  std::deque<Moved> moved;  // of LOAD, newest first
  int64_t dispatched = dram_latency + kFirstWord, last = 0;
  std::array<std::vector<isa::Stretch>, isa::kChargedEngines> work;
  const auto worked = [&](size_t engine, int64_t begin, int64_t end, uint32_t layer) {
    work[engine].push_back(
        {static_cast<uint64_t>(begin), static_cast<uint64_t>(end), layer < layers ? layer : isa::kNoLayer});
  };
  // What each instruction waits for, as numbers of signals from the start: the latest counts that the 16 bits can mean,
  // as the stream is a topological order.
  std::vector<std::array<int64_t, isa::kEngines>> waits(instructions.size());
  {
    std::array<int64_t, isa::kEngines> signals{};
    for (size_t i = 0; i < instructions.size(); ++i) {
      const isa::Header& header = isa::header_of(instructions[i]);
      waits[i].fill(0);
      for (const isa::Wait& wait : header.waits) {
        if (!wait.enable) continue;
        const int64_t count = signals[static_cast<size_t>(wait.engine)];
        auto& number = waits[i][static_cast<size_t>(wait.engine)];
        number = std::max(number, count - static_cast<uint16_t>(count - wait.count));
      }
      const auto engine = isa::engine_of(instructions[i]);
      if (!engine) continue;
      engines[static_cast<size_t>(*engine)].program.push_back(i);
      if (header.signal) ++signals[static_cast<size_t>(*engine)];
    }
  }
  /// The cycle after the signals that an instruction waits for; nothing while they are not known.
  const auto ready_at = [&](size_t i) -> std::optional<int64_t> {
    int64_t ready = 0;
    for (size_t e = 0; e < engines.size(); ++e) {
      const int64_t number = waits[i][e];
      if (number < 1) continue;
      if (static_cast<int64_t>(engines[e].signals.size()) < number) return std::nullopt;
      ready = std::max(ready, engines[e].signals[static_cast<size_t>(number - 1)] + timing::queue::kSignal);
    }
    return ready;
  };
  size_t fetched = 0;
  /// Dispatches the next instruction where its queue has room. The fetch of its word is booked.
  const auto dispatch = [&] {
    const isa::Instruction& instruction = instructions[fetched];
    const auto engine = isa::engine_of(instruction);
    const int64_t word = bus.move(dispatched - dram_latency, word_beats) + dram_latency;
    dispatched = std::max(dispatched + 1, word);
    if (engine) {
      Engine& e = engines[static_cast<size_t>(*engine)];
      const auto depth = static_cast<size_t>(config.queue_depth(*engine));
      if (e.dispatched >= depth) dispatched = std::max(dispatched, e.takes[e.dispatched - depth] + 1);
      e.arrivals.push_back(dispatched + timing::queue::kVisible);
      ++e.dispatched;
    } else {
      last = std::max({last, ready_at(fetched).value_or(0), dispatched});
    }
    ++fetched;
  };
  /// Whether the next instruction's queue is known to have room.
  const auto dispatchable = [&] {
    if (fetched == instructions.size()) return false;
    const auto engine = isa::engine_of(instructions[fetched]);
    if (!engine)
      return std::all_of(engines.begin(), engines.end(), [](const Engine& e) { return e.taken == e.dispatched; });
    const Engine& e = engines[static_cast<size_t>(*engine)];
    return e.dispatched < e.takes.size() + static_cast<size_t>(config.queue_depth(*engine));
  };
  // Always the engine that is first in time, so that uses of the bus and of ports meet in about the order of time.
  while (true) {
    size_t first_engine = engines.size();
    int64_t first_take = 0, first_moves = 0;
    for (size_t k = 0; k < engines.size(); ++k) {
      const Engine& e = engines[k];
      if (e.taken == e.dispatched) continue;
      const auto ready = ready_at(e.program[e.taken]);
      if (!ready) continue;
      const int64_t take = std::max({e.arrivals[e.taken], *ready, e.free});
      // What LOAD takes moves later.
      const int64_t moves = k == static_cast<size_t>(isa::Engine::kLoad) ? std::max(take + dram_latency, e.end) : take;
      if (first_engine == engines.size() || moves < first_moves) {
        first_engine = k;
        first_take = take;
        first_moves = moves;
      }
    }
    if (dispatchable() && (first_engine == engines.size() || dispatched <= first_moves)) {
      dispatch();
      continue;
    }
    if (first_engine == engines.size()) break;
    Engine& e = engines[first_engine];
    const size_t i = e.program[e.taken++];
    const isa::Instruction& instruction = instructions[i];
    const isa::Header& header = isa::header_of(instruction);
    const int64_t take = first_take;
    e.takes.push_back(take);
    const Duration d = duration(instruction, config);
    int64_t complete = take + 1;
    if (std::holds_alternative<isa::Gemm>(instruction)) {
      const int64_t first = std::max(take + timing::gemm::kStart, e.end + 1);
      e.free = std::max(take + timing::gemm::kPrepare, e.end);
      e.end = first + d.engine - 1;
      complete = e.end + timing::gemm::kWrite;
      worked(0, first, e.end + 1, tags[i]);
      if (std::get<isa::Gemm>(instruction).accumulate) acc.book(first, d.engine, d.outputs);
    } else if (const auto* alu = std::get_if<isa::Alu>(&instruction)) {
      const int64_t start = std::max(take + timing::alu::kPrepare, e.end);
      e.free = start;
      e.end = start + d.engine;
      if (alu->src == isa::AluSpace::kAcc) e.end = std::max(e.end, acc.move(start, d.engine));
      if (alu->src == isa::AluSpace::kInp) e.end = std::max(e.end, load_writes.behind(start, d.engine, alu_writes));
      if (alu->dst == isa::AluSpace::kInp) {
        alu_writes.book(start, e.end - start, d.outputs);
        Engine& load = engines[static_cast<size_t>(isa::Engine::kLoad)];
        if (load.end > start) load.end = bus.move(load.end, bus.lose(start, e.end - start, load_writes, alu_writes));
      }
      worked(1, start + 1, e.end + 1, tags[i]);
      complete = e.end + (alu->second_op != isa::SecondOp::kNone             ? timing::alu::kSecond
                          : !alu->convert && alu->dst == isa::AluSpace::kAcc ? timing::alu::kRaw
                                                                             : timing::alu::kFirst);
    } else if (const auto* load = std::get_if<isa::Load>(&instruction)) {
      // Addresses go out as soon as the run is known and few enough runs wait for the data side; data come a latency
      // later and behind older data.
      const int64_t waiting = timing::load::runs_waiting(config);
      int64_t leave = take + timing::transfer::kLeave;
      for (int64_t ahead = 0; const Moved& older : moved) {
        if (ahead + older.runs > waiting) {
          const int64_t rest = waiting - ahead;  // of its runs that may still wait
          leave = std::max(leave, older.end - (older.end - older.begin) * rest / older.runs);
          break;
        }
        ahead += older.runs;
      }
      const int64_t begin = std::max(d.beats > 0 ? leave + timing::load::kFirstBeat + dram_latency : leave + timing::load::kStart, e.end);
      const int64_t window = d.bursts * (dram_latency + kReadBurst) / in_flight;  // as many bursts as may be outstanding
      const bool inp = load->space == isa::Space::kInp;
      e.end = std::max({bus.move(begin, d.beats, inp ? &alu_writes : nullptr), begin + d.engine, begin + window});
      if (inp) load_writes.book(begin, e.end - begin, d.engine);
      e.free = std::max(take + 1, leave);
      complete = e.end;
      worked(2, take, complete + 1, tags[i]);
      moved.push_front({begin, e.end, d.runs});
      if (moved.size() > static_cast<size_t>(waiting)) moved.pop_back();
    } else if (std::holds_alternative<isa::Store>(instruction)) {
      const int64_t begin = std::max(take + timing::transfer::kLeave + timing::store::kFirstBeat, e.end);
      const int64_t window = d.bursts * (dram_latency + kWriteBurst) / writes_in_flight;
      // Where reads want the bus too, reads and writes take turns.
      Engine& load = engines[static_cast<size_t>(isa::Engine::kLoad)];
      const auto [end, pushed] = bus.take_turns(begin, d.beats);
      e.end = std::max(end, begin + window);
      if (load.end > begin) load.end = bus.move(load.end, pushed);
      e.free = std::max(take + 1, e.end - kStoreOverlap);
      complete = e.end + dram_latency + kStoreResponse;
      worked(3, take, complete + 1, tags[i]);
    } else {
      complete = std::max(take + 1, e.end);
      e.free = complete;
    }
    if (header.signal) e.signals.push_back(complete);
    last = std::max(last, complete);
  }
  result.cycles = last + kEnd;
  const auto charges = isa::charge(std::move(work), layers, static_cast<uint64_t>(result.cycles));
  for (size_t layer = 0; layer < layers; ++layer) {
    for (const uint64_t cycles : charges[layer]) result.layer_cycles[layer] += static_cast<int64_t>(cycles);
  }
  return result;
}

}  // namespace tessera::emit
