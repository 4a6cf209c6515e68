// SPDX-License-Identifier: Apache-2.0
// Queues that follow the machine's own: queued, inside, bursts.
#include "sim/verilator/tracer.h"

#include <algorithm>

#include "isa/generated/timing.h"
#include "isa/verify/effects.h"

namespace tessera::sim {
namespace {

constexpr size_t kStore = static_cast<size_t>(isa::Engine::kStore);
constexpr size_t kGemm = static_cast<size_t>(isa::Engine::kGemm);

void extend(InstructionTrace& trace, uint64_t cycle) {
  if (trace.first_cycle == UINT64_MAX) trace.first_cycle = cycle;
  trace.last_cycle = cycle;
}

}  // namespace

Tracer::Tracer(const isa::MachineConfig& config, std::span<const isa::Instruction> program)
    : beat_bytes_(static_cast<uint32_t>(config.axi_bytes)), program_(program) {
  engines_[kGemm].pipeline = isa::timing::gemm::kWrite;
}

uint64_t Tracer::needs(uint32_t pc) const {
  if (pc >= program_.size()) return 0;
  return static_cast<uint64_t>(isa::effects(program_[pc]).steps);
}

void Tracer::complete(size_t e, uint32_t pc) {
  Engine& engine = engines_[e];
  if (engine.inside.empty()) return;
  InstructionTrace one = engine.inside.front();
  engine.inside.pop_front();
  one.retired_cycle = now_;
  if (e != kStore) {
    const uint64_t count = needs(pc);
    for (uint64_t taken = 0;
         !engine.busy.empty() && (count > 0 ? taken < count : engine.busy.front() + engine.pipeline <= now_); ++taken) {
      extend(one, engine.busy.front());
      engine.busy.pop_front();
    }
  }
  if (one.first_cycle == UINT64_MAX) one.first_cycle = one.last_cycle = one.issued_cycle;
  trace_.instructions.push_back(one);
}

void Tracer::bus(const TesseraRtlProbe& probe, const TesseraRtlPins& before, const TesseraRtlPins& after) {
  if (before.ar_valid && after.ar_ready) {
    BurstTrace burst;
    const bool fetch = !read_owners_.empty() && read_owners_.front();
    if (!read_owners_.empty()) read_owners_.pop_front();
    burst.unit = fetch ? isa::Unit::kFetch : isa::Unit::kLoad;
    burst.address = before.ar_address;
    burst.bytes = (before.ar_length + 1U) * beat_bytes_;
    burst.address_cycle = now_;
    burst.first_cycle = UINT64_MAX;
    reads_.push_back(trace_.bursts.size());
    read_beats_.push_back(before.ar_length + 1);
    trace_.bursts.push_back(burst);
  }
  if (after.r_valid && before.r_ready && !reads_.empty()) {
    BurstTrace& burst = trace_.bursts[reads_.front()];
    if (burst.first_cycle == UINT64_MAX) burst.first_cycle = now_;
    burst.last_cycle = now_;
    if (--read_beats_.front() == 0) {
      reads_.pop_front();
      read_beats_.pop_front();
    }
  }
  if (before.aw_valid && after.aw_ready) {
    BurstTrace burst;
    burst.unit = isa::Unit::kStore;
    burst.write = true;
    burst.address = before.aw_address;
    burst.bytes = (before.aw_length + 1U) * beat_bytes_;
    burst.address_cycle = now_;
    burst.first_cycle = UINT64_MAX;
    writes_.push_back(trace_.bursts.size());
    responses_.push_back(trace_.bursts.size());
    write_beats_.push_back(before.aw_length + 1);
    trace_.bursts.push_back(burst);
  }
  if (before.w_valid && after.w_ready && !writes_.empty()) {
    BurstTrace& burst = trace_.bursts[writes_.front()];
    if (burst.first_cycle == UINT64_MAX) burst.first_cycle = now_;
    if (--write_beats_.front() == 0) {
      writes_.pop_front();
      write_beats_.pop_front();
    }
  }
  if (after.b_valid && before.b_ready && !responses_.empty()) {
    trace_.bursts[responses_.front()].last_cycle = now_;
    responses_.pop_front();
  }
  if (probe.read_granted) read_owners_.push_back(probe.read_fetch != 0);
  if (probe.store_granted) store_bursts_.push_back({probe.store_pc, probe.store_length + 1});
}

void Tracer::cycle(const TesseraRtlProbe& probe, const TesseraRtlPins& before, const TesseraRtlPins& after) {
  if (!probe.run) return;
  bus(probe, before, after);
  for (size_t e = 0; e < engines_.size(); ++e) {
    Engine& engine = engines_[e];
    if (probe.completed >> e & 1) complete(e, probe.completed_pc[e]);
    if (!engine.queued.empty()) {
      for (size_t on = 0; on < isa::kEngines; ++on) engine.queued.front().wait_cycles[on] += probe.waiting[e] >> on & 1;
    }
    if (!engine.inside.empty()) {
      engine.inside.front().stall_memory_cycles += probe.stall_memory >> e & 1;
      engine.inside.front().stall_port_cycles += probe.stall_port >> e & 1;
    }
    if (probe.issued >> e & 1 && !engine.queued.empty()) {
      InstructionTrace one = engine.queued.front();
      engine.queued.pop_front();
      one.issued_cycle = now_;
      engine.inside.push_back(one);
    }
    if (probe.queued >> e & 1) {
      InstructionTrace one;
      one.pc = probe.queued_pc;
      one.unit = static_cast<isa::Unit>(e);
      one.queued_cycle = now_;
      one.first_cycle = UINT64_MAX;
      engine.queued.push_back(one);
    }
    if (probe.busy >> e & 1) {
      if (e != kStore) {
        engine.busy.push_back(now_);
      } else if (!store_bursts_.empty()) {
        for (InstructionTrace& one : engine.inside) {
          if (one.pc == store_bursts_.front().pc) extend(one, now_);
        }
        if (--store_bursts_.front().beats == 0) store_bursts_.pop_front();
      }
    }
  }
  if (probe.finished) {
    InstructionTrace one;
    one.pc = probe.queued_pc;
    one.unit = isa::Unit::kFetch;
    one.queued_cycle = one.issued_cycle = one.first_cycle = one.last_cycle = one.retired_cycle = now_;
    trace_.instructions.push_back(one);
  }
  ++now_;
}

Trace Tracer::take() {
  for (BurstTrace& burst : trace_.bursts) {
    if (burst.first_cycle == UINT64_MAX) burst.first_cycle = burst.last_cycle = burst.address_cycle;
  }
  return std::move(trace_);
}

}  // namespace tessera::sim
