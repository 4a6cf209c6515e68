// SPDX-License-Identifier: Apache-2.0
// In a cycle first the bus is stepped up to it, so that all that the cores do in a cycle is known; then the cores have
// their turns, until none of them has one left. What a core learns of another one it learns in a later cycle, or by a
// turn of its own in this one, so that the order of the cores does not matter.
#include "sim/systemc/chip.h"

#include <algorithm>
#include <string>

namespace tessera::sim::systemc {
Chip::Chip(sc_core::sc_module_name name) : sc_module(name) {
  for (int k = 0; k < isa::kMostCores; ++k)
    cores_.push_back(std::make_unique<Npu>(("core" + std::to_string(k)).c_str()));
  SC_METHOD(turns);
  sensitive << start_;
  dont_initialize();
}

DramController::Counters Chip::run(std::span<Machine> functional, const DramOptions& timing, uint64_t memory_address,
                                   const TimedSource& source) {
  functional_ = functional;
  source_ = &source;
  publics_.assign(functional.size(), 0);
  started_.clear();
  running_.clear();
  clocked_ = now_ = synchronised_ = free_ = 0;
  interconnect_.emplace(functional[0].config(), timing, memory_address);
  interconnect_->skip(kStarted);
  start_.notify(sc_core::SC_ZERO_TIME);
  sc_core::sc_start();
  return interconnect_->dram_counters();
}

void Chip::begin(TimedJob job) {
  running_.push_back(std::make_unique<Running>());
  Running& one = *running_.back();
  one.job = std::move(job);
  one.results.resize(one.job.cores.size());
  const Cycle at = std::max(free_, synchronised_);
  for (size_t k = 0; k < one.job.cores.size(); ++k) {
    const size_t core = one.job.cores[k];
    publics_[core] = 0;
    one.results[k].bus_waited = interconnect_->waited(core);
    one.results[k].bus_moved = interconnect_->moved();
    if (one.job.requests[k].instruction_count == 0) continue;
    cores_[core]->begin(functional_[core], one.job.requests[k], one.results[k],
                        {core, &*interconnect_, &publics_, [this](size_t who) { publish(who); }});
    started_.push_back({cores_[core].get(), core, at});
  }
}

/// All its programs have ended, and nothing that they have asked of the bus is under way.
bool Chip::ended(const Running& one) const {
  return std::all_of(one.job.cores.begin(), one.job.cores.end(), [&](size_t core) {
    const auto own = std::find_if(started_.begin(), started_.end(), [&](const Started& s) { return s.core == core; });
    return own == started_.end() || (!own->npu->running() && interconnect_->quiet(core));
  });
}

bool Chip::any_ended() const {
  return news_ && std::any_of(running_.begin(), running_.end(), [&](const auto& one) { return ended(*one); });
}

/// Tells the source what has ended and begins what it gives. False: nothing runs.
bool Chip::exchange() {
  std::vector<TimedEnd> ends;
  std::erase_if(running_, [&](const std::unique_ptr<Running>& one) {
    if (!ended(*one)) return false;
    std::erase_if(started_, [&](const Started& s) {
      return std::find(one->job.cores.begin(), one->job.cores.end(), s.core) != one->job.cores.end();
    });
    for (const TimedRequest& request : one->job.requests) sort_bursts(request);
    for (size_t k = 0; k < one->results.size(); ++k) {
      one->results[k].bus_waited = interconnect_->waited(one->job.cores[k]) - one->results[k].bus_waited;
      one->results[k].bus_moved = interconnect_->moved() - one->results[k].bus_moved;
    }
    ends.push_back({one->job.number, std::move(one->results)});
    return true;
  });
  news_ = std::any_of(started_.begin(), started_.end(), [](const Started& s) { return !s.npu->running(); });
  for (TimedJob& job : (*source_)(std::move(ends), !running_.empty())) begin(std::move(job));
  return !running_.empty();
}

void Chip::publish(size_t core) {
  ++publics_[core];
  for (const Started& one : started_) {
    if (one.npu->running()) one.npu->public_counted();
  }
}

bool Chip::bus_busy() const {
  return !interconnect_->quiet() || std::any_of(started_.begin(), started_.end(), [](const Started& one) {
    return one.npu->running() && one.npu->memory().busy();
  });
}

Cycle Chip::first_offer() const {
  Cycle first = kNever;
  for (const Started& one : started_) {
    const Cycle offer = one.npu->running() ? one.npu->memory().first_offer() : kNever;
    if (offer != kNever) first = std::min(first, one.begun + offer);
  }
  return first;
}

/// The next cycle in which something may happen, which may be this one; kNever: nothing can.
Cycle Chip::next() {
  Cycle at = kNever;
  for (const Started& one : started_) {
    if (!one.npu->running()) continue;
    const Cycle own = one.npu->agenda().due() ? one.npu->agenda().now() : one.npu->agenda().next();
    if (own != kNever) at = std::min(at, one.begun + own);
  }
  if (started_.empty()) return kNever;
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
    for (const Started& one : started_) {
      if (one.npu->running() && one.begun <= clocked_) {
        one.npu->memory().clock(clocked_ - one.begun);
      } else {
        one.npu->memory().drain();
      }
    }
    interconnect_->clock();
    ++clocked_;
  }
}

void Chip::cycle(Cycle at) {
  now_ = at;
  free_ = at + 1;
  for (const Started& one : started_) {
    if (one.npu->running()) one.npu->agenda().enter(at - one.begun);
  }
  step_bus(at);
  for (const Started& one : started_) {
    if (one.npu->running() && !one.npu->memory().busy()) one.npu->memory().rest();
  }
  for (bool again = true; again;) {
    again = false;
    for (const Started& one : started_) {
      if (!one.npu->running()) continue;
      again |= one.npu->turn();
      news_ |= !one.npu->running();
    }
  }
}

void Chip::turns() {
  if (!exchange()) return;
  for (;;) {
    const Cycle at = next();
    if (at == kNever) {
      rest();
      if (!exchange()) return;
      continue;
    }
    if (at - synchronised_ > kQuantum) {
      next_trigger(sc_core::sc_time::from_value(at - synchronised_));
      synchronised_ = at;
      for (const Started& one : started_) one.npu->agenda().synchronise(at - one.begun);
      return;
    }
    cycle(at);
    if (any_ended()) exchange();
  }
}

/// Cores that wait: for nothing that another core could do, each since its last turn; for a public counter, since the
/// last turn of any.
void Chip::rest() {
  Cycle last = 0;
  for (const Started& one : started_) last = std::max(last, one.begun + one.npu->active());
  for (const Started& one : started_) {
    if (!one.npu->running()) continue;
    const Cycle at = (one.npu->awaits() ? last - one.begun : one.npu->active()) + kIdleCycles;
    one.npu->give_up(at);
    free_ = std::max(free_, one.begun + at + 1);
  }
}

}  // namespace tessera::sim::systemc
