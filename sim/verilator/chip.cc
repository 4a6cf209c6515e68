// SPDX-License-Identifier: Apache-2.0
// The cycle of a chip, alone or on threads, and its registers.
#include "sim/verilator/chip.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <optional>
#include <thread>

#include "base/error.h"
#include "isa/generated/registers.h"
#include "sim/verilator/tracer.h"

namespace tessera::sim {
namespace {

namespace chip = isa::reg::chip;

constexpr uint64_t kAlone = 4096;           // cycles before threads begin: short programs end earlier
constexpr uint64_t kMostAlone = 1 << 20;    // behind threads that had to wait
constexpr uint64_t kLate = 8;               // waits beyond which threads end
constexpr uint64_t kLateEvery = 2000;       // where there was one in so many cycles
constexpr uint64_t kBetweenCalls = 200000;  // cycles, at most, between two calls of a source

/// Waits for what another thread will say within a cycle; false: within its next slice of time.
template <typename Condition>
bool wait_for(Condition&& condition) {
  int n = 0;
  for (; !condition(); ++n) {
    if (n >= 1 << 10) {
      std::this_thread::yield();
    } else {
#ifdef __x86_64__
      __builtin_ia32_pause();
#endif
    }
  }
  return n < 1 << 10;
}

}  // namespace

RtlChip::RtlChip(const isa::MachineConfig& config, const TesseraRtlApi& api)
    : config_(config), api_(api), interconnect_(api.interconnect->create()) {
  for (int c = 0; c < config.cores; ++c) cores_.push_back(std::make_unique<RtlCore>(config, api));
  awaited_ = {(uint32_t{1} << config.cores) - 1};
}

RtlChip::~RtlChip() { api_.interconnect->destroy(interconnect_); }

void RtlChip::set_threads(int threads) { threads_ = std::clamp(threads, 1, config_.cores); }

void RtlChip::cycle_core(size_t core, size_t turn, TesseraRtlProbe* probe) {
  const Wires& now = wires_[turn];
  Wires& next = wires_[1 - turn];
  TesseraRtlPins& pins = next.outputs[core];
  pins = now.inputs[core];
  pins.counters = now.counters.data();
  if (probe == nullptr) {
    api_.cycle(cores_[core]->model(), &pins);
  } else {
    api_.cycle_probed(cores_[core]->model(), &pins, probe);
  }
  if (pins.w_valid) {
    std::memcpy(next.data[core].bytes.data(), pins.w_data, static_cast<size_t>(config_.axi_bytes));
    pins.w_data = next.data[core].bytes.data();
  }
}

/// Also the public counters of the next cycle: with them no core waits in a cycle for another one.
void RtlChip::cycle_interconnect(size_t turn, DramModel& dram) {
  const Wires& now = wires_[turn];
  Wires& next = wires_[1 - turn];
  answer(dram, pins_);
  api_.interconnect->cycle(interconnect_, &pins_, now.outputs.data(), next.inputs.data());
  for (size_t c = 0; c < cores_.size(); ++c) {
    TESSERA_INVARIANT(now.counters[c] == now.outputs[c].counter, "a public counter is not what its core foretold");
    const bool cleared = now.inputs[c].clear || now.inputs[c].reset;
    const uint16_t counter = cleared ? 0 : now.outputs[c].next_counter;
    if (next.counters[c] != counter) next.counters[c] = counter;  // others read this line
  }
}

void RtlChip::clock(DramModel& dram) {
  cycle_interconnect(turn_, dram);
  for (size_t c = 0; c < cores_.size(); ++c) cycle_core(c, turn_);
  turn_ = 1 - turn_;
}

/// Whether all of the cores are idle, a bit each.
bool RtlChip::idle(size_t turn, uint32_t cores) const {
  const auto& outputs = wires_[turn].outputs;
  for (size_t c = 0; c < cores_.size(); ++c) {
    if ((cores >> c & 1) != 0 && outputs[c].idle == 0) return false;
  }
  return true;
}

bool RtlChip::idle(size_t turn) const {
  return std::any_of(awaited_.begin(), awaited_.end(), [&](uint32_t cores) { return idle(turn, cores); });
}

/// One cycle more than to the end, as threads make it: so the registers are written and read in the same cycle whatever
/// the host has made of the threads.
bool RtlChip::advance(uint64_t limit, DramModel& dram) {
  bool ended = false;
  for (uint64_t stretch = kAlone; limit > 0; stretch = std::min(2 * stretch, kMostAlone)) {
    for (uint64_t cycle = threads_ > 1 ? std::min(limit, stretch) : limit; cycle > 0; --cycle, --limit) {
      ended = idle(turn_);
      clock(dram);
      if (ended) return true;
    }
    if (limit > 0) limit -= advance_in_threads(limit, dram, ended);
    if (ended) return true;
  }
  return idle(turn_);
}

/// The interconnect and memory are this thread's, which has the fewest cores. No thread waits for another one's half of
/// the same cycle: cores make cycle n once the interconnect has made n - 1, and the interconnect makes it once all
/// cores have made n - 1. It has its turn between this thread's cores, so that what the others wait for has long been
/// said. That all cores are idle (`ended`) shows in the cycle behind, which is made, too. Leaves how many were made:
/// fewer where other threads have no processor of their own, since each wait for one of them would be as long as its
/// turn.
uint64_t RtlChip::advance_in_threads(uint64_t limit, DramModel& dram, bool& ended) {
  struct alignas(64) Count {
    std::atomic<uint64_t> value{0};
  };
  const auto threads = static_cast<size_t>(threads_);
  const size_t first = turn_;
  std::vector<Count> made(threads);  // cycles, by thread; the first one's are the interconnect's
  std::atomic<uint64_t> end{limit};
  const auto turn = [&](uint64_t cycle) { return (first + cycle) % 2; };
  const auto from = [&](size_t thread) { return cores_.size() * thread / threads; };
  const auto wait_until = [&](size_t thread, uint64_t cycles) {
    return wait_for([&] { return made[thread].value.load(std::memory_order_acquire) >= cycles; });
  };
  std::vector<std::thread> others;
  for (size_t thread = 1; thread < threads; ++thread) {
    others.emplace_back([&, thread] {
      for (uint64_t cycle = 0;; ++cycle) {
        wait_until(0, cycle);
        if (cycle >= end.load(std::memory_order_relaxed)) return;
        for (size_t c = from(thread); c < from(thread + 1); ++c) cycle_core(c, turn(cycle));
        made[thread].value.store(cycle + 1, std::memory_order_release);
      }
    });
  }
  uint64_t cycle = 0, late = 0;
  for (; cycle < end.load(std::memory_order_relaxed); ++cycle) {
    const size_t half = from(1) / 2;
    for (size_t c = 0; c < half; ++c) cycle_core(c, turn(cycle));
    for (size_t thread = 1; thread < threads; ++thread) late += wait_until(thread, cycle) ? 0 : 1;
    cycle_interconnect(turn(cycle), dram);
    const bool crowded = late >= kLate && late * kLateEvery > cycle;
    ended = idle(turn(cycle));
    if (ended || crowded) end.store(cycle + 1, std::memory_order_relaxed);
    made[0].value.store(cycle + 1, std::memory_order_release);
    for (size_t c = half; c < from(1); ++c) cycle_core(c, turn(cycle));
  }
  for (std::thread& other : others) other.join();
  turn_ = turn(cycle);
  return cycle;
}

/// Runs started programs to their end on this thread. Leaves a trace of each core whose request wants one.
std::vector<Trace> RtlChip::advance_traced(const RtlChipRequest& request, DramModel& dram) {
  std::vector<std::optional<Tracer>> tracers(cores_.size());
  for (size_t c = 0; c < request.cores.size(); ++c) {
    if (!request.cores[c].trace_program.empty()) tracers[c].emplace(config_, request.cores[c].trace_program);
  }
  TesseraRtlProbe probe{};
  for (uint64_t cycle = 0; !idle(turn_); ++cycle) {
    if (cycle == request.max_cycles) break;  // run() finds it
    cycle_interconnect(turn_, dram);
    for (size_t c = 0; c < cores_.size(); ++c) {
      cycle_core(c, turn_, tracers[c] ? &probe : nullptr);
      if (tracers[c]) tracers[c]->cycle(probe, wires_[turn_].outputs[c], wires_[1 - turn_].outputs[c]);
    }
    turn_ = 1 - turn_;
  }
  std::vector<Trace> traces(cores_.size());
  for (size_t c = 0; c < cores_.size(); ++c) {
    if (tracers[c]) traces[c] = tracers[c]->take();
  }
  return traces;
}

void RtlChip::reset(DramModel& dram) {
  dram.reset();
  pins_ = {};
  pins_.reset = 1;
  for (int cycle = 0; cycle < 6; ++cycle) clock(dram);
  pins_.reset = 0;
  for (int cycle = 0; cycle < 20; ++cycle) clock(dram);  // the cores clear their base registers
}

RtlRegisters RtlChip::registers(size_t core, DramModel& dram) {
  const uint32_t at = static_cast<uint32_t>(core) << chip::kCoreBits;
  return {[this, at, &dram](uint32_t offset) { return read_register(at + offset, dram); },
          [this, at, &dram](uint32_t offset, uint32_t value) { write_register(at + offset, value, dram); }};
}

void RtlChip::start(const RtlChipRequest& request, DramModel& dram) {
  if (request.cores.size() > cores_.size()) {
    throw Error(ErrorCode::kInvalidArgument, "programs for " + std::to_string(request.cores.size()) + " cores; '" +
                                                 config_.name + "' has " + std::to_string(cores_.size()));
  }
  std::vector<size_t> numbers(request.cores.size());
  std::iota(numbers.begin(), numbers.end(), size_t{0});
  const uint32_t started = write_programs(numbers, request.cores, request.window_first, request.window_last, dram);
  awaited_ = {(uint32_t{1} << config_.cores) - 1};
  dram.restart();
  write_register(chip::kPage + chip::kStart, started << chip::kStartCoresLsb | chip::kStartClearMask, dram);
}

/// Writes all that programs begin with but their start. The cores that have one, a bit each.
uint32_t RtlChip::write_programs(std::span<const size_t> numbers, std::span<const RtlChipProgram> programs,
                                 uint64_t window_first, uint64_t window_last, DramModel& dram) {
  uint32_t started = 0;
  for (size_t k = 0; k < programs.size(); ++k) {
    if (programs[k].instruction_count == 0) continue;
    started |= uint32_t{1} << numbers[k];
    RtlRequest core;
    core.program_address = programs[k].program_address;
    core.instruction_count = programs[k].instruction_count;
    core.bases = programs[k].bases;
    core.window_first = window_first;
    core.window_last = window_last;
    write_request(registers(numbers[k], dram), core);
  }
  return started;
}

void RtlChip::run_jobs(const RtlChipSource& source, uint64_t window_first, uint64_t window_last, DramModel& dram) {
  struct Running {
    RtlChipJob job;
    uint32_t started = 0;
  };
  std::vector<Running> running;
  dram.restart();
  do {
    std::vector<RtlChipEnd> ends;
    std::erase_if(running, [&](Running& one) {
      if (!idle(turn_, one.started)) return false;
      RtlChipEnd& end = ends.emplace_back();
      end.number = one.job.number;
      for (const size_t core : one.job.cores) {
        const bool ran = (one.started >> core & 1) != 0;
        end.results.push_back(ran ? read_result(registers(core, dram)) : RtlResult{});
      }
      return true;
    });
    for (RtlChipJob& job : source(std::move(ends), !running.empty())) {
      const uint32_t started = write_programs(job.cores, job.programs, window_first, window_last, dram);
      uint32_t cleared = 0;
      for (const size_t core : job.cores) cleared |= uint32_t{1} << core;
      write_register(chip::kPage + chip::kStart, started << chip::kStartCoresLsb | cleared << chip::kStartClearLsb,
                     dram);
      running.push_back({std::move(job), started});
    }
    awaited_.clear();
    for (const Running& one : running) awaited_.push_back(one.started);
    if (!running.empty()) advance(kBetweenCalls, dram);
  } while (!running.empty());
}

RtlChipResult RtlChip::run(const RtlChipRequest& request, DramModel& dram) {
  start(request, dram);
  std::vector<Trace> traces(cores_.size());
  const bool traced = std::any_of(request.cores.begin(), request.cores.end(),
                                  [](const RtlChipProgram& program) { return !program.trace_program.empty(); });
  if (traced) traces = advance_traced(request, dram);
  if (!advance(traced ? 0 : request.max_cycles, dram)) {
    throw Error(ErrorCode::kInternal,
                "the chip has not stopped after " + std::to_string(request.max_cycles) + " cycles");
  }
  const auto read64 = [&](uint32_t offset) {
    const uint64_t low = read_register(chip::kPage + offset, dram);
    return low | uint64_t{read_register(chip::kPage + offset + 4, dram)} << 32;
  };
  RtlChipResult result;
  result.moved = read64(chip::kMoved);
  for (size_t c = 0; c < cores_.size(); ++c) {
    result.waited.push_back(read64(chip::waited(static_cast<int>(c))));
    const bool ran = c < request.cores.size() && request.cores[c].instruction_count > 0;
    result.cores.push_back(ran ? read_result(registers(c, dram)) : RtlResult{});
    result.cores.back().trace = std::move(traces[c]);
    result.cycles = std::max(result.cycles, result.cores.back().cycles);
  }
  return result;
}

}  // namespace tessera::sim
