// SPDX-License-Identifier: Apache-2.0
// In a cycle first the bus is stepped up to it, so that all that the cores do in a cycle is known; then the cores have
// their turns, until none of them has one left. What a core learns of another one it learns in a later cycle, or by a
// turn of its own in this one, so that the order of the cores does not matter.
#include "sim/systemc/chip.h"

#include <algorithm>
#include <string>

namespace tessera::sim::systemc {
namespace {

constexpr Cycle kQuantum = 10000;  // that the cores run ahead of SystemC
constexpr Cycle kStarted = 2;      // from the start of a program to FETCH's first request

}  // namespace

Chip::Chip(sc_core::sc_module_name name) : sc_module(name) {
  for (int k = 0; k < isa::kMostCores; ++k)
    cores_.push_back(std::make_unique<Npu>(("core" + std::to_string(k)).c_str()));
  SC_METHOD(turns);
  sensitive << start_;
  dont_initialize();
}

std::vector<TimedResult> Chip::run(std::span<Machine> functional, std::span<const TimedRequest> requests) {
  std::vector<TimedResult> results(functional.size());
  publics_.assign(functional.size(), 0);
  started_.clear();
  clocked_ = now_ = synchronised_ = 0;
  interconnect_.emplace(functional[0].config(), requests[0].timing, requests[0].memory_address);
  interconnect_->skip(kStarted);
  for (size_t k = 0; k < requests.size(); ++k) {
    if (requests[k].instruction_count == 0) continue;
    cores_[k]->begin(functional[k], requests[k], results[k],
                     {k, &*interconnect_, &publics_, [this](size_t core) { publish(core); }});
    started_.push_back(cores_[k].get());
  }
  start_.notify(sc_core::SC_ZERO_TIME);
  sc_core::sc_start();
  rest();
  for (size_t k = 0; k < requests.size(); ++k) {
    results[k].dram = interconnect_->dram_counters();
    sort_bursts(requests[k]);
  }
  return results;
}

void Chip::publish(size_t core) {
  ++publics_[core];
  for (Npu* one : started_) {
    if (one->running()) one->public_counted();
  }
}

bool Chip::bus_busy() const {
  return !interconnect_->quiet() || std::any_of(started_.begin(), started_.end(),
                                                [](Npu* core) { return core->running() && core->memory().busy(); });
}

Cycle Chip::first_offer() const {
  Cycle first = kNever;
  for (Npu* core : started_) {
    if (core->running()) first = std::min(first, core->memory().first_offer());
  }
  return first;
}

/// The next cycle in which something may happen, which may be this one; kNever: nothing can.
Cycle Chip::next() {
  Cycle at = kNever;
  bool running = false;
  for (Npu* core : started_) {
    if (!core->running()) continue;
    running = true;
    at = std::min(at, core->agenda().due() ? now_ : core->agenda().next());
  }
  if (!running) return kNever;
  if (bus_busy()) return std::min(at, now_ + 1);
  const Cycle first = first_offer();
  return first == kNever ? at : std::min(at, std::max(first, now_) + 1);
}

/// The bus's cycles before that one. Where nothing is under way, those up to the next burst or refresh pass at once.
void Chip::step_bus(Cycle before) {
  while (clocked_ < before) {
    if (!bus_busy()) {
      const Cycle until = std::min(before, first_offer());
      const Cycle idle = until > clocked_ ? std::min(until - clocked_, Cycle{interconnect_->quiet_cycles()}) : 0;
      if (idle > 0) {
        interconnect_->skip(idle);
        clocked_ += idle;
        continue;
      }
    }
    for (Npu* core : started_) {
      if (core->running()) {
        core->memory().clock(clocked_);
      } else {
        core->memory().drain();
      }
    }
    interconnect_->clock();
    ++clocked_;
  }
}

void Chip::cycle(Cycle at) {
  now_ = at;
  for (Npu* core : started_) {
    if (core->running()) core->agenda().enter(at);
  }
  step_bus(at);
  for (Npu* core : started_) {
    if (core->running() && !core->memory().busy()) core->memory().rest();
  }
  for (bool again = true; again;) {
    again = false;
    for (Npu* core : started_) again |= core->turn();
  }
}

void Chip::turns() {
  for (Cycle at = next(); at != kNever; at = next()) {
    if (at - synchronised_ > kQuantum) {
      next_trigger(sc_core::sc_time::from_value(at - synchronised_));
      synchronised_ = at;
      for (Npu* core : started_) core->agenda().synchronise(at);
      return;
    }
    cycle(at);
  }
}

/// Cores that wait: for nothing that another core could do, each since its last turn; for a public counter, since the
/// last turn of any.
void Chip::rest() {
  Cycle last = 0;
  for (Npu* core : started_) last = std::max(last, core->active());
  for (Npu* core : started_) {
    if (core->running()) core->give_up((core->awaits() ? last : core->active()) + kIdleCycles);
  }
}

}  // namespace tessera::sim::systemc
