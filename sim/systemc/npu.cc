// SPDX-License-Identifier: Apache-2.0
#include "sim/systemc/npu.h"

#include <algorithm>

#include "base/error.h"

namespace tessera::sim::systemc {
Npu::Npu(sc_core::sc_module_name name)
    : sc_module(name),
      fetch_("fetch", context_, *this),
      load_("load", context_, *this),
      gemm_("gemm", context_, *this),
      alu_("alu", context_, *this),
      store_("store", context_, *this),
      memory_("memory", context_),
      engines_{&load_, &gemm_, &alu_, &store_},
      processes_{&load_, &gemm_, &alu_, &store_, &fetch_, &memory_} {
  fetch_.socket.bind(memory_.socket);
  load_.socket.bind(memory_.socket);
  store_.socket.bind(memory_.socket);
  SC_METHOD(turns);
  sensitive << start_;
  dont_initialize();
  memory_.load_share_changed = [this] { alu_.load_share_changed(); };
}

void sort_bursts(const TimedRequest& request) {
  if (request.trace == nullptr) return;
  std::stable_sort(request.trace->bursts.begin(), request.trace->bursts.end(),
                   [](const BurstTrace& a, const BurstTrace& b) { return a.address_cycle < b.address_cycle; });
}

void Npu::prepare(Machine& functional, const TimedRequest& request, TimedResult& result) {
  context_.agenda.reset();
  context_.request = &request;
  context_.result = &result;
  context_.functional = &functional;
  context_.config = functional.config();
  context_.interconnect = place_.interconnect;
  context_.core = place_.core;
  work_.bases = request.bases;
  work_.dram = request.dram;
  context_.ports.clear();
  context_.acc_moves = false;
  timeline_ = {};
  fault_ = {};
  active_ = 0;
  memory_.reset();
  fetch_.reset();
  for (Engine* engine : engines_) engine->reset();
  running_ = true;
  fetch_.start();
}

TimedResult Npu::run(Machine& functional, const TimedRequest& request) {
  TimedResult result;
  place_ = {};
  prepare(functional, request, result);
  start_.notify(sc_core::SC_ZERO_TIME);
  sc_core::sc_start();
  if (running_) give_up(context_.agenda.now() + kIdleCycles);
  result.fault = fault_;
  result.dram = memory_.dram_counters();
  sort_bursts(request);
  return result;
}

void Npu::begin(Machine& functional, const TimedRequest& request, TimedResult& result, const Place& place) {
  place_ = place;
  prepare(functional, request, result);
}

bool Npu::turn() {
  bool any = false;
  for (; running_ && context_.agenda.due_now(); any = true) processes_[context_.agenda.begin()]->step();
  if (any) active_ = context_.agenda.now();
  return any;
}

void Npu::public_counted() {
  load_.public_counted();
  store_.public_counted();
}

bool Npu::awaits() const { return load_.awaits() || store_.awaits(); }

void Npu::give_up(Cycle at) {
  fault_ = stuck();
  stop(at);
}

/// The modules' turns up to the end of a quantum.
void Npu::turns() {
  Agenda& agenda = context_.agenda;
  while (running_) {
    if (!agenda.due()) {
      const Cycle at = agenda.next();
      if (at == kNever) return;
      if (at - agenda.synchronised() > kQuantum) {
        next_trigger(sc_core::sc_time::from_value(at - agenda.synchronised()));
        agenda.synchronise(at);
        return;
      }
    }
    processes_[agenda.begin()]->step();
  }
}

void Npu::report(isa::FaultRecord record) {
  if (!faulted() || record.pc < fault_.pc) fault_ = record;
  check_end();
}

void Npu::completed(isa::Engine engine, const Item& item) {
  if (context_.request->trace != nullptr) context_.request->trace->instructions.push_back(item.trace);
  if (item.fault != isa::Fault::kNone) {
    report({item.fault, static_cast<isa::Unit>(engine), item.pc});
    return;
  }
  ++context_.counters(static_cast<isa::Unit>(engine)).executed;
  if (barred(item.pc)) return;
  if (item.publish) place_.publish(place_.core);
  if (!item.signal) return;
  ++timeline_[static_cast<size_t>(engine)];
  for (Engine* other : engines_) other->timeline_counted(engine);
  fetch_.timeline_counted(engine);
}

void Npu::check_end() {
  if (!running_) return;
  for (Engine* engine : engines_) {
    if (!engine->idle()) return;
    if (!engine->queue_empty() && (!faulted() || engine->head_pc() < fault_.pc)) return;
  }
  if (!memory_.reads_idle() && !faulted()) return;
  if (faulted()) {
    stop(context_.agenda.now());
    return;
  }
  if (!fetch_.finish_ready()) return;
  fetch_.finish_taken();
  stop(context_.agenda.now());
}

void Npu::stop(Cycle at) {
  if (!running_) return;
  running_ = false;
  for (Engine* engine : engines_) engine->close_wait();
  fetch_.close(at);
  context_.result->cycles = at + 1;
  context_.result->fault = fault_;
  if (place_.interconnect != nullptr) return;  // others may go on
  if (sc_core::sc_is_running() && sc_core::sc_get_status() == sc_core::SC_RUNNING) sc_core::sc_pause();
}

void Npu::room(isa::Engine) { fetch_.wake_at(context_.agenda.now() + 1); }

void Npu::port_changed(Port port) {
  if (port == Port::kNone) return;
  memory_.port_changed(port);
  load_.port_changed(port);
}

isa::Fault Npu::execute(uint32_t pc, const isa::Instruction& instruction) {
  Work work;
  const isa::Fault fault = context_.functional->execute(instruction, work_, work);
  TESSERA_INVARIANT(fault == isa::Fault::kNone, "ranges have been checked");
  work.pc = pc;
  context_.result->macs += work.macs;
  if (context_.request->observer) context_.request->observer(work);
  return fault;
}

isa::FaultRecord Npu::stuck() const {
  isa::FaultRecord record = fault_;
  if (!faulted() && fetch_.held()) record = {isa::Fault::kNoProgress, isa::Unit::kFetch, fetch_.pc()};
  for (const Engine* engine : engines_) {
    if (engine->queue_empty() || (record.code != isa::Fault::kNone && engine->head_pc() >= record.pc)) continue;
    record = {isa::Fault::kNoProgress, static_cast<isa::Unit>(engine->engine()), engine->head_pc()};
  }
  TESSERA_INVARIANT(record.code != isa::Fault::kNone, "the timing model has lost an event");
  return record;
}

}  // namespace tessera::sim::systemc
