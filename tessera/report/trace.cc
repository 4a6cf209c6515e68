// SPDX-License-Identifier: Apache-2.0
// Tracks: one for each engine's work, one for what the head of its queue waits for, two for the bus. Each core of a
// chip is a process with tracks of its own.
#include "tessera/report/trace.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <nlohmann/json.hpp>

namespace tessera {

using nlohmann::json;

namespace {

constexpr size_t kWaits = driver::kUnits, kReads = 2 * driver::kUnits, kWrites = kReads + 1;

std::string unit_name(isa::Unit unit) { return std::string(isa::to_string(unit)); }

class Trace {
 public:
  Trace(bool timed, size_t cores) {
    for (uint32_t core = 0; core < cores; ++core) name_tracks(core, timed, cores > 1);
  }

  /// Programs run one after the other.
  void add(const program::NpuProgram& npu, const driver::RunReport& run) {
    if (!run.cycles) {
      for (const driver::InstructionProfile& one : run.profile) {
        slice(one.core, static_cast<size_t>(one.unit), base_, base_ + 1, node_of(npu, one), work_of(one));
        ++base_;
      }
      return;
    }
    for (const driver::InstructionProfile& one : run.profile) add_timed(one, node_of(npu, one));
    for (const driver::BurstProfile& burst : run.bursts) add(burst);
    base_ += *run.cycles;
  }

  std::string take() {
    return json{{"traceEvents", std::move(events_)}, {"displayTimeUnit", "ns"}}.dump(-1, ' ', false,
                                                                                     json::error_handler_t::replace);
  }

 private:
  void name_tracks(uint32_t core, bool timed, bool chip) {
    if (chip)
      events_.push_back(
          {{"ph", "M"}, {"pid", core}, {"name", "process_name"}, {"args", {{"name", "core " + std::to_string(core)}}}});
    for (size_t u = 0; u < driver::kUnits; ++u) {
      const std::string unit = unit_name(static_cast<isa::Unit>(u));
      name_track(core, u, unit);
      if (timed && u < isa::kEngines) name_track(core, kWaits + u, unit + " queue");
    }
    if (!timed) return;
    name_track(core, kReads, "bus reads");
    name_track(core, kWrites, "bus writes");
  }

  void name_track(uint32_t core, size_t track, const std::string& name) {
    const auto say = [&](const char* what, json args) {
      events_.push_back({{"ph", "M"}, {"pid", core}, {"tid", track}, {"name", what}, {"args", std::move(args)}});
    };
    say("thread_name", {{"name", name}});
    say("thread_sort_index", {{"sort_index", track}});
  }

  void slice(uint32_t core, size_t track, uint64_t begin, uint64_t end, const std::string& name, json args) {
    events_.push_back({{"ph", "X"},
                       {"pid", core},
                       {"tid", track},
                       {"ts", begin},
                       {"dur", end - begin},
                       {"name", name},
                       {"args", std::move(args)}});
  }

  static std::string node_of(const program::NpuProgram& npu, const driver::InstructionProfile& one) {
    const std::vector<uint32_t>& layers = program::layers_of(npu, one.core);
    const uint32_t layer = one.pc < layers.size() ? layers[one.pc] : program::kNoLayer;
    return layer < npu.layers.size() ? npu.layers[layer].name : unit_name(one.unit);
  }

  static json work_of(const driver::InstructionProfile& one) {
    return {{"pc", one.pc},
            {"macs", one.macs},
            {"vectors", one.vectors},
            {"bytes_read", one.bytes_read},
            {"bytes_written", one.bytes_written}};
  }

  /// An instruction's work, and before it the wait of its queue's head.
  void add_timed(const driver::InstructionProfile& one, const std::string& node) {
    const auto unit = static_cast<size_t>(one.unit);
    json args = work_of(one);
    uint64_t waited = 0;
    for (size_t e = 0; e < isa::kEngines; ++e) {
      if (one.wait_cycles[e] == 0) continue;
      args["wait_" + unit_name(static_cast<isa::Unit>(e))] = one.wait_cycles[e];
      waited += one.wait_cycles[e];
    }
    args["queued"] = base_ + one.queued_cycle;
    args["taken"] = base_ + one.start_cycle;
    args["completed"] = base_ + one.end_cycle;
    args["stall_memory"] = one.stall_memory_cycles;
    args["stall_port"] = one.stall_port_cycles;
    if (waited > 0) {
      const auto most = std::max_element(one.wait_cycles.begin(), one.wait_cycles.end()) - one.wait_cycles.begin();
      const uint64_t from = one.start_cycle >= waited ? one.start_cycle - waited : 0;
      slice(one.core, kWaits + unit, base_ + from, base_ + one.start_cycle,
            "waits for " + unit_name(static_cast<isa::Unit>(most)), {{"pc", one.pc}, {"node", node}});
    }
    slice(one.core, unit, base_ + one.first_busy_cycle, base_ + one.last_busy_cycle + 1, node, std::move(args));
  }

  void add(const driver::BurstProfile& burst) {
    const uint64_t last = burst.write ? std::max(burst.first_cycle, burst.last_cycle) : burst.last_cycle;
    slice(burst.core, burst.write ? kWrites : kReads, base_ + burst.first_cycle, base_ + last + 1,
          unit_name(burst.unit),
          {{"address", burst.address}, {"bytes", burst.bytes}, {"requested", base_ + burst.address_cycle}});
  }

  json events_ = json::array();
  uint64_t base_ = 0;  // the first cycle of the program in hand
};

}  // namespace

std::string trace_json(const program::Artifact& artifact, const runtime::Report& report) {
  const bool timed = std::any_of(report.programs.begin(), report.programs.end(),
                                 [](const runtime::ProgramReport& p) { return p.device.cycles.has_value(); });
  size_t cores = 1;
  for (const runtime::ProgramReport& p : report.programs) cores = std::max(cores, p.device.cores.size());
  Trace trace(timed, cores);
  for (const runtime::ProgramReport& p : report.programs)
    trace.add(artifact.npu_programs[static_cast<size_t>(p.program)], p.device);
  return trace.take();
}

}  // namespace tessera
