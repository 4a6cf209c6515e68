// SPDX-License-Identifier: Apache-2.0
#include "sim/systemc/engine.h"

#include <utility>
#include <variant>

#include "base/error.h"
#include "isa/verify.h"
#include "sim/systemc/npu.h"

namespace tessera::sim::systemc {

Engine::Engine(sc_core::sc_module_name name, isa::Engine engine, Context& context, Npu& npu)
    : sc_module(name), context_(context), npu_(npu), engine_(engine) {}

void Engine::reset() {
  depth_ = static_cast<size_t>(context_.config.queue_depth(engine_));
  inside_ = 0;
  queue_.clear();
  completions_.clear();
  halted_ = false;
  popped_at_ = kNever;
  waiting_on_ = -1;
  waiting_since_ = 0;
}

void Engine::push(uint32_t pc, const isa::Instruction& instruction) {
  const Cycle now = context_.agenda.now();
  Item item;
  item.pc = pc;
  item.instruction = instruction;
  item.visible = now + 1;
  item.trace.pc = pc;
  item.trace.unit = static_cast<isa::Unit>(engine_);
  item.trace.queued_cycle = now;
  queue_.push_back(std::move(item));
  if (queue_.size() == 1) wake_at(now + 1);
}

bool Engine::head_holds() const { return npu_.unmet(isa::header_of(queue_.front().instruction)) == nullptr; }

void Engine::timeline_counted(isa::Engine engine) {
  if (waiting_on_ == static_cast<int>(engine)) wake();
}

void Engine::watch_head(Cycle now) {
  if (waiting_on_ >= 0) {
    counters().wait[static_cast<size_t>(waiting_on_)] += now - waiting_since_;
    if (!queue_.empty()) queue_.front().trace.wait_cycles[static_cast<size_t>(waiting_on_)] += now - waiting_since_;
  }
  waiting_on_ = -1;
  waiting_since_ = now;
  if (queue_.empty() || queue_.front().visible > now) return;
  const isa::Wait* unmet = npu_.unmet(isa::header_of(queue_.front().instruction));
  if (unmet != nullptr) waiting_on_ = static_cast<int>(unmet->engine);
}

void Engine::close_wait() { watch_head(context_.agenda.now()); }

Item* Engine::take(Cycle now) {
  if (halted_ || queue_.empty() || queue_.front().visible > now || npu_.barred(queue_.front().pc)) return nullptr;
  watch_head(now);
  if (waiting_on_ >= 0) return nullptr;
  taken_ = std::move(queue_.front());
  queue_.pop_front();
  popped_at_ = now;
  if (!queue_.empty() && queue_.front().visible <= now) queue_.front().visible = now + 1;
  npu_.room(engine_);
  ++inside_;
  taken_.trace.issued_cycle = taken_.trace.first_cycle = taken_.trace.last_cycle = now;
  if (!std::holds_alternative<isa::Fence>(taken_.instruction)) {
    if (const auto violation = isa::check_ranges(taken_.instruction, context_.config)) {
      taken_.fault = violation->fault;
    } else if (const auto range = isa::dram_range(taken_.instruction)) {
      const TimedRequest& request = *context_.request;
      const uint64_t base = request.bases[static_cast<size_t>(range->base)];
      const uint64_t first = base + static_cast<uint64_t>(range->lowest);
      const uint64_t last = base + static_cast<uint64_t>(range->highest);
      if (first < request.window_first || last > request.window_last || first > last) {
        taken_.fault = isa::Fault::kDramRange;
      } else if (find_dram(request.dram, first, last - first + 1) != nullptr) {
        npu_.execute(taken_.pc, taken_.instruction);
      }  // else the bus will answer with an error
    } else {
      npu_.execute(taken_.pc, taken_.instruction);
    }
    halted_ = taken_.fault != isa::Fault::kNone;
  }
  return &taken_;
}

void Engine::complete(Item item, Cycle at) {
  completions_.push_back({std::move(item), at});
  wake_at(at + 1);
}

void Engine::step() {
  if (!npu_.running()) return;
  const Cycle now = context_.agenda.now();
  while (!completions_.empty() && completions_.front().at + 1 <= now) {
    Completion completion = std::move(completions_.front());
    completions_.pop_front();
    --inside_;
    completion.item.trace.retired_cycle = completion.at;
    const bool signal = isa::header_of(completion.item.instruction).signal;
    npu_.completed(engine_, completion.item, signal);
  }
  work(now);
  watch_head(now);
  if (!completions_.empty()) wake_at(completions_.front().at + 1);
  if (!queue_.empty() && queue_.front().visible > now) wake_at(queue_.front().visible);
  if (inside_ == 0) npu_.check_end();
}

}  // namespace tessera::sim::systemc
