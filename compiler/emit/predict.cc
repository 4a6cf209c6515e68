// SPDX-License-Identifier: Apache-2.0
// The replay: queues, waits, engines, the bus.
#include "compiler/emit/predict.h"

#include <algorithm>
#include <array>
#include <deque>

#include "compiler/emit/duration.h"
#include "isa/charging.h"

namespace tessera::emit {

namespace {

/// What the bus or a port has to give, in buckets of cycles, because uses are met in the order of the stream and not of time.
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

  /// Moves `beats` from cycle `begin` on, at most one a cycle, where there is room beside the uses of `other` too; returns the cycle
  /// after the last.
  int64_t move(int64_t begin, int64_t beats, Ledger* other = nullptr) {
    int64_t at = begin;
    while (beats > 0) {
      const int64_t bucket = at / kBucket, end = (bucket + 1) * kBucket;
      const int64_t taken = int64_t{used(bucket)} + (other != nullptr ? other->used(bucket) : 0);
      const int64_t room = std::min(kBucket - taken, end - at), now = std::clamp<int64_t>(room, 0, beats);
      used(bucket) += static_cast<int32_t>(now);
      beats -= now;
      at = beats > 0 ? end : at + now;
    }
    return at;
  }

 private:
  static constexpr int64_t kBucket = 64;
  int32_t& used(int64_t bucket) {
    const auto index = static_cast<size_t>(bucket);
    if (index >= used_.size()) used_.resize(index + index / 4 + 64, 0);
    return used_[index];
  }
  std::vector<int32_t> used_;
};

struct Engine {
  int64_t taken = 0;      // the earliest cycle in which the next instruction may be taken
  int64_t end = 0;        // the last cycle of work of the instruction before
  std::deque<int64_t> takes;  // of those that still fill the queue
  std::vector<int64_t> signals;
};

constexpr int64_t kReadsBefore = 2048;  // cycles from which a store sees how much of the bus reads take

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
  Ledger bus, reads, acc;         // reads: their part of the bus; ACC: its port of reads
  Ledger alu_writes, load_writes;  // of INP's second port
  const int64_t word_beats = std::max<int64_t>(1, isa::kInstructionBytes / config.axi_bytes);
  const int64_t in_flight = std::max(1, config.reads_in_flight), writes_in_flight = std::max(1, config.writes_in_flight);
  std::deque<Moved> moved;  // of LOAD, newest first
  int64_t dispatched = dram_latency + 8, last = 0;
  std::array<std::vector<isa::Stretch>, isa::kChargedEngines> work;
  const auto worked = [&](size_t engine, int64_t begin, int64_t end, uint32_t layer) {
    work[engine].push_back({static_cast<uint64_t>(begin), static_cast<uint64_t>(end), layer < layers ? layer : isa::kNoLayer});
  };
  for (size_t i = 0; i < instructions.size(); ++i) {
    const isa::Instruction& instruction = instructions[i];
    const isa::Header& header = isa::header_of(instruction);
    int64_t ready = 0;
    for (const isa::Wait& wait : header.waits) {
      if (!wait.enable) continue;
      const auto& signals = engines[static_cast<size_t>(wait.engine)].signals;
      // The latest count that the 16 bits can mean; the stream is a topological order.
      const auto count = static_cast<int64_t>(signals.size());
      const int64_t behind = static_cast<uint16_t>(count - wait.count);
      if (const int64_t index = count - behind; index >= 1) ready = std::max(ready, signals[static_cast<size_t>(index - 1)] + 1);
    }
    dispatched = std::max(dispatched + 1, bus.move(dispatched - dram_latency, word_beats) + dram_latency);
    const auto engine = isa::engine_of(instruction);
    if (!engine) {
      last = std::max({last, ready, dispatched});
      continue;
    }
    Engine& e = engines[static_cast<size_t>(*engine)];
    const auto depth = static_cast<size_t>(config.queue_depth(*engine));
    while (e.takes.size() > depth) e.takes.pop_front();
    if (e.takes.size() == depth) dispatched = std::max(dispatched, e.takes.front() + 1);
    const int64_t take = std::max({dispatched + 1, ready, e.taken});
    e.takes.push_back(take);
    const Duration d = duration(instruction, config);
    int64_t complete = take + 1;
    if (std::holds_alternative<isa::Gemm>(instruction)) {
      const int64_t first = std::max(take + 8, e.end + 1);
      e.taken = std::max(take + 7, e.end);
      e.end = first + d.engine - 1;
      complete = e.end + 4;
      worked(0, first, e.end + 1, tags[i]);
      if (std::get<isa::Gemm>(instruction).accumulate) acc.book(first, d.engine, d.outputs);
    } else if (const auto* alu = std::get_if<isa::Alu>(&instruction)) {
      const int64_t start = std::max(take + 7, e.end);
      e.taken = start;
      e.end = start + d.engine;
      if (alu->src == isa::AluSpace::kAcc) e.end = std::max(e.end, acc.move(start, d.engine));
      if (alu->src == isa::AluSpace::kInp) e.end = std::max(e.end, load_writes.move(start, d.engine, &alu_writes));
      if (alu->dst == isa::AluSpace::kInp) alu_writes.book(start, e.end - start, d.outputs);
      worked(1, start + 1, e.end + 1, tags[i]);
      complete = e.end + (alu->second_op != isa::SecondOp::kNone ? 31 : !alu->convert && alu->dst == isa::AluSpace::kAcc ? 3 : 13);
    } else if (const auto* load = std::get_if<isa::Load>(&instruction)) {
      // Addresses go out as soon as the run is known and few enough runs wait for the data side; data come a latency later and behind
      // older data.
      int64_t leave = take + 7;
      for (int64_t ahead = 0; const Moved& older : moved) {
        if (ahead + older.runs > 2 * in_flight) {
          const int64_t rest = 2 * in_flight - ahead;  // of its runs that may still wait
          leave = std::max(leave, older.end - (older.end - older.begin) * rest / older.runs);
          break;
        }
        ahead += older.runs;
      }
      const int64_t begin = std::max(d.beats > 0 ? leave + 3 + dram_latency : leave + 2, e.end);
      int64_t window = d.bursts * (dram_latency + 20) / in_flight;  // as many bursts as may be outstanding
      // A write that the port refuses holds the beat, and the beat holds the bus.
      const bool inp = load->space == isa::Space::kInp;
      if (inp && window > std::max(d.beats, d.engine)) window += alu_writes.uses(begin, begin + window);
      e.end = std::max({bus.move(begin, d.beats, inp ? &alu_writes : nullptr), begin + d.engine, begin + window});
      if (inp) e.end = std::max(e.end, load_writes.move(begin, d.engine, &alu_writes));
      reads.book(begin, e.end - begin, d.beats);
      e.taken = std::max(take + 1, leave);
      complete = e.end;
      worked(2, take, complete + 1, tags[i]);
      moved.push_front({begin, e.end, d.runs});
      if (moved.size() > static_cast<size_t>(2 * in_flight)) moved.pop_back();
    } else if (std::holds_alternative<isa::Store>(instruction)) {
      const int64_t begin = std::max(take + 11, e.end);
      const int64_t window = d.bursts * (dram_latency + 8) / writes_in_flight;
      // Writes have what reads leave of the bus, half of it at least. How much that is shows the time before: later reads are not known yet.
      const int64_t before = std::min(begin, std::max<int64_t>(2 * d.beats, kReadsBefore));
      const double taken = static_cast<double>(reads.uses(begin - before, begin + d.beats)) / static_cast<double>(before + d.beats);
      e.end = begin + std::max(static_cast<int64_t>(static_cast<double>(d.beats) / (1 - std::min(taken, 0.5))), window);
      bus.book(begin, e.end - begin, d.beats);
      e.taken = std::max(take + 1, e.end - 8);
      complete = e.end + dram_latency + 2;
      worked(3, take, complete + 1, tags[i]);
    } else {
      complete = std::max(take + 1, e.end);
      e.taken = complete;
    }
    if (header.signal) e.signals.push_back(complete);
    last = std::max(last, complete);
  }
  result.cycles = last + 4;
  const auto charges = isa::charge(std::move(work), layers, static_cast<uint64_t>(result.cycles));
  for (size_t layer = 0; layer < layers; ++layer) {
    for (const uint64_t cycles : charges[layer]) result.layer_cycles[layer] += static_cast<int64_t>(cycles);
  }
  return result;
}

}  // namespace tessera::emit
