// SPDX-License-Identifier: Apache-2.0
#include "sim/systemc/engines/engine.h"

#include <utility>
#include <variant>

#include "base/error.h"
#include "isa/generated/timing.h"
#include "isa/verify/verify.h"
#include "sim/systemc/npu.h"

namespace tessera::sim::systemc {
namespace {

using isa::timing::queue::kCondition;
using isa::timing::queue::kSignal;
using isa::timing::queue::kVisible;

}  // namespace

Engine::Engine(sc_core::sc_module_name name, isa::Engine engine, Context& context, Npu& npu)
    : sc_module(name), context_(context), npu_(npu), engine_(engine) {}

void Engine::reset() {
  depth_ = static_cast<size_t>(context_.config.queue_depth(engine_));
  inside_ = 0;
  queue_.clear();
  completions_.clear();
  conditions_ = {};
  awaiting_ = false;
  await_held_ = kNever;
  halted_ = false;
  popped_at_ = kNever;
  waiting_on_ = -1;
  waiting_since_ = 0;
}

void Engine::push(uint32_t pc, const isa::Instruction& instruction) {
  const Cycle now = context_.agenda.now();
  Queued queued{{}, instruction, now + kVisible};
  queued.item.pc = queued.item.trace.pc = pc;
  queued.item.signal = isa::header_of(instruction).signal;
  const auto* fence = std::get_if<isa::Fence>(&instruction);
  queued.item.publish = fence != nullptr && fence->publish;
  queued.item.trace.unit = static_cast<isa::Unit>(engine_);
  queued.item.trace.queued_cycle = now;
  queue_.push_back(std::move(queued));
  if (queue_.size() == 1) wake_at(now + kVisible);
}

void Engine::timeline_counted(isa::Engine engine) {
  if (waiting_on_ == static_cast<int>(engine)) wake();
}

void Engine::watch_head(Cycle now) {
  if (waiting_on_ < 0 && (queue_.empty() || queue_.front().visible > now)) return;
  if (waiting_on_ >= 0) {
    counters().wait[static_cast<size_t>(waiting_on_)] += now - waiting_since_;
    if (!queue_.empty())
      queue_.front().item.trace.wait_cycles[static_cast<size_t>(waiting_on_)] += now - waiting_since_;
  }
  waiting_on_ = -1;
  waiting_since_ = now;
  if (queue_.empty() || queue_.front().visible > now) return;
  const isa::Instruction& head = queue_.front().instruction;
  const isa::Wait* unmet = conditions_.unmet(isa::header_of(head), npu_, now);
  if (unmet != nullptr) waiting_on_ = static_cast<int>(unmet->engine);
  if (conditions_.next() > now) wake_at(conditions_.next());
  const auto* fence = std::get_if<isa::Fence>(&head);
  if (fence == nullptr || !fence->await) return;
  awaiting_ = true;
  if (await_held_ == kNever && npu_.public_holds(*fence)) await_held_ = now;
  // Asked for at each turn: another one of the same cycle takes the place of what was asked for before.
  if (await_held_ != kNever && await_held_ + kCondition > now) wake_at(await_held_ + kCondition);
  if (unmet == nullptr && (await_held_ == kNever || now < await_held_ + kCondition))
    waiting_on_ = static_cast<int>(engine_);
}

bool Engine::awaits() const {
  if (queue_.empty()) return false;
  const auto* fence = std::get_if<isa::Fence>(&queue_.front().instruction);
  return fence != nullptr && !npu_.public_holds(*fence);
}

void Engine::close_wait() { watch_head(context_.agenda.now()); }

Queued* Engine::take(Cycle now) {
  if (halted_ || queue_.empty() || queue_.front().visible > now || npu_.barred(head_pc())) return nullptr;
  watch_head(now);
  if (waiting_on_ >= 0) return nullptr;
  taken_ = std::move(queue_.front());
  queue_.pop_front();
  conditions_ = {};
  awaiting_ = false;
  await_held_ = kNever;
  popped_at_ = now;
  if (!queue_.empty() && queue_.front().visible <= now) queue_.front().visible = now + kVisible;
  npu_.room(engine_);
  ++inside_;
  Item& item = taken_.item;
  item.trace.issued_cycle = item.trace.first_cycle = item.trace.last_cycle = now;
  if (!std::holds_alternative<isa::Fence>(taken_.instruction)) {
    if (const auto violation = isa::check_ranges(taken_.instruction, context_.config)) {
      item.fault = violation->fault;
    } else if (const auto range = isa::dram_range(taken_.instruction)) {
      const TimedRequest& request = *context_.request;
      const uint64_t base = request.bases[static_cast<size_t>(range->base)];
      const uint64_t first = base + static_cast<uint64_t>(range->lowest);
      const uint64_t last = base + static_cast<uint64_t>(range->highest);
      if (first < request.window_first || last > request.window_last || first > last ||
          !isa::dram_aligned(taken_.instruction, context_.config, first)) {
        item.fault = isa::Fault::kDramRange;
      } else if (find_dram(request.dram, first, last - first + 1) != nullptr) {
        npu_.execute(item.pc, taken_.instruction);
      }  // else the bus will answer with an error
    } else {
      npu_.execute(item.pc, taken_.instruction);
    }
    halted_ = item.fault != isa::Fault::kNone;
  }
  return &taken_;
}

void Engine::complete(const Item& item, Cycle at) {
  completions_.push_back({item, at});
  wake_at(at + kSignal);
}

void Engine::wait_less(Cycle cycles) {
  counters().stall_memory -= cycles;
  for (size_t n = completions_.size(); n > 0; --n) {
    uint64_t& waited = completions_[n - 1].item.trace.stall_memory_cycles;
    if (waited < cycles) continue;  // a FENCE behind it
    waited -= cycles;
    return;
  }
}

void Engine::step() {
  if (!npu_.running()) return;
  const Cycle now = context_.agenda.now();
  while (!completions_.empty() && completions_.front().at + kSignal <= now) {
    Completion& completion = completions_.front();
    completion.item.trace.retired_cycle = completion.at;
    --inside_;
    npu_.completed(engine_, completion.item);
    completions_.pop_front();
  }
  work(now);
  watch_head(now);
  if (!completions_.empty()) wake_at(completions_.front().at + kSignal);
  if (!queue_.empty() && queue_.front().visible > now) wake_at(queue_.front().visible);
  if (inside_ == 0) npu_.check_end();
}

}  // namespace tessera::sim::systemc
