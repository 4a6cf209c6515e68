// SPDX-License-Identifier: Apache-2.0
// Rows are numbered as in the statistics: the layers of each program that ran, one program after the other.
#include "tessera/report/timeline.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

namespace tessera {

using nlohmann::json;

namespace {

constexpr uint64_t kBandwidthBins = 400;

/// "load inp", "gemm depthwise", "alu": what an instruction is, in short.
std::string short_name(const isa::Instruction& instruction) {
  std::string name(isa::info_of(instruction).name);
  if (const auto* load = std::get_if<isa::Load>(&instruction)) name += " " + std::string(isa::to_string(load->space));
  if (const auto* gemm = std::get_if<isa::Gemm>(&instruction); gemm && gemm->mode != isa::GemmMode::kDense)
    name += " " + std::string(isa::to_string(gemm->mode));
  return name;
}

void add_program(const program::NpuProgram& npu, const driver::RunReport& run, size_t step, Timeline& out) {
  const TimedProgram& program = out.programs[step];
  const auto first = static_cast<int64_t>(out.instructions.size());
  uint64_t position = program.begin;
  for (const driver::InstructionProfile& one : run.profile) {
    if (one.core >= program.streams.size() || one.pc >= program.streams[one.core].size()) continue;
    TimedInstruction timed;
    timed.step = step;
    timed.pc = one.pc;
    timed.core = one.core;
    timed.unit = one.unit;
    timed.profile = &one;
    timed.instruction = &program.streams[one.core][one.pc];
    const std::vector<uint32_t>& layers = program::layers_of(npu, one.core);
    const uint32_t layer = one.pc < layers.size() ? layers[one.pc] : program::kNoLayer;
    if (layer < npu.layers.size()) timed.row = program.first_row + layer;
    if (run.cycles) {
      timed.queued = program.begin + one.queued_cycle;
      timed.taken = program.begin + one.start_cycle;
      timed.begin = program.begin + one.first_busy_cycle;
      timed.end = program.begin + one.last_busy_cycle + 1;
      timed.completed = program.begin + one.end_cycle;
    } else {
      timed.queued = timed.taken = timed.begin = position;
      timed.end = timed.completed = ++position;
    }
    out.instructions.push_back(timed);
  }
  std::sort(out.instructions.begin() + first, out.instructions.end(),
            [](const TimedInstruction& a, const TimedInstruction& b) {
              return std::pair(a.core, a.pc) < std::pair(b.core, b.pc);
            });
  std::map<std::pair<uint32_t, int64_t>, int64_t> tiles;
  for (auto at = out.instructions.begin() + first; at != out.instructions.end(); ++at) {
    int64_t& tile = tiles[{at->core, at->row}];
    at->tile = tile;
    if (at->unit == isa::Unit::kStore) ++tile;
  }
}

/// For each wait of an instruction the one whose signal it waits for: the last that carries this number modulo 2^16.
class Signals {
 public:
  explicit Signals(const std::vector<isa::Instruction>& stream) {
    for (uint32_t pc = 0; pc < stream.size(); ++pc) {
      before_.push_back(counts());
      const auto engine = isa::engine_of(stream[pc]);
      if (engine && isa::header_of(stream[pc]).signal) signals_[static_cast<size_t>(*engine)].push_back(pc);
    }
  }

  /// Its position in the program; -1 where the wait holds from the start.
  int64_t source(uint32_t pc, const isa::Wait& wait) const {
    const auto engine = static_cast<size_t>(wait.engine);
    const uint64_t sent = before_[pc][engine];
    const uint64_t late = static_cast<uint16_t>(sent - wait.count);
    return late >= sent ? -1 : static_cast<int64_t>(signals_[engine][sent - late - 1]);
  }

 private:
  std::array<uint64_t, isa::kEngines> counts() const {
    std::array<uint64_t, isa::kEngines> counts{};
    for (size_t e = 0; e < counts.size(); ++e) counts[e] = signals_[e].size();
    return counts;
  }

  std::array<std::vector<uint32_t>, isa::kEngines> signals_;
  std::vector<std::array<uint64_t, isa::kEngines>> before_;
};

json waits_json(const Timeline& timeline) {
  json waits = {
      {"instruction", json::array()}, {"engine", json::array()}, {"cycles", json::array()}, {"source", json::array()}};
  std::vector<std::vector<Signals>> signals;
  std::vector<std::map<std::pair<uint32_t, uint32_t>, size_t>> index(timeline.programs.size());
  for (const TimedProgram& program : timeline.programs) {
    signals.emplace_back();
    for (const auto& stream : program.streams) signals.back().emplace_back(stream);
  }
  for (size_t i = 0; i < timeline.instructions.size(); ++i) {
    const TimedInstruction& one = timeline.instructions[i];
    index[one.step][{one.core, one.pc}] = i;
  }
  for (size_t i = 0; i < timeline.instructions.size(); ++i) {
    const TimedInstruction& one = timeline.instructions[i];
    for (const isa::Wait& wait : isa::header_of(*one.instruction).waits) {
      if (!wait.enable) continue;
      const int64_t source = signals[one.step][one.core].source(one.pc, wait);
      if (source < 0) continue;
      const auto found = index[one.step].find({one.core, static_cast<uint32_t>(source)});
      if (found == index[one.step].end()) continue;
      waits["instruction"].push_back(i);
      waits["engine"].push_back(static_cast<int>(wait.engine));
      waits["cycles"].push_back(one.profile->wait_cycles[static_cast<size_t>(wait.engine)]);
      waits["source"].push_back(found->second);
    }
  }
  return waits;
}

json columns_json(const Timeline& timeline) {
  constexpr const char* kColumns[] = {"program", "pc",    "engine", "op",        "layer", "tile", "queued",
                                      "taken",   "begin", "end",    "completed", "bytes", "work"};
  json columns;
  for (const char* name : kColumns) columns[name] = json::array();
  const bool several = std::any_of(timeline.programs.begin(), timeline.programs.end(),
                                   [](const TimedProgram& program) { return program.streams.size() > 1; });
  std::map<std::string, size_t> names;
  std::vector<std::string> ops;
  for (const TimedInstruction& one : timeline.instructions) {
    const auto [op, fresh] = names.try_emplace(short_name(*one.instruction), ops.size());
    if (fresh) ops.push_back(op->first);
    columns["program"].push_back(one.step);
    columns["pc"].push_back(one.pc);
    if (several) columns["core"].push_back(one.core);
    columns["engine"].push_back(static_cast<int>(one.unit));
    columns["op"].push_back(op->second);
    columns["layer"].push_back(one.row);
    columns["tile"].push_back(one.tile);
    columns["queued"].push_back(one.queued);
    columns["taken"].push_back(one.taken);
    columns["begin"].push_back(one.begin);
    columns["end"].push_back(one.end);
    columns["completed"].push_back(one.completed);
    columns["bytes"].push_back(one.profile->bytes_read + one.profile->bytes_written);
    columns["work"].push_back(one.profile->macs > 0 ? one.profile->macs : one.profile->vectors);
  }
  return {{"columns", std::move(columns)}, {"ops", ops}};
}

/// Bursts of instruction fetch one by one; the bytes of all bursts by unit and stretch of time.
void add_bursts(const Timeline& timeline, const runtime::Report& report, json& out) {
  json fetch = {{"begin", json::array()}, {"end", json::array()}, {"bytes", json::array()}};
  const uint64_t width = std::max<uint64_t>(1, (timeline.end + kBandwidthBins - 1) / kBandwidthBins);
  std::map<isa::Unit, std::vector<uint64_t>> bins;
  for (const isa::Unit unit : {isa::Unit::kLoad, isa::Unit::kStore, isa::Unit::kFetch})
    bins[unit].resize(timeline.end / width + 1);
  for (size_t step = 0; step < report.programs.size(); ++step) {
    const uint64_t base = timeline.programs[step].begin;
    for (const driver::BurstProfile& burst : report.programs[step].device.bursts) {
      // A write's last cycle is its response; of bursts whose end is not known the beginning counts.
      std::vector<uint64_t>& bin = bins[burst.unit];
      if (const uint64_t at = (base + burst.first_cycle) / width; at < bin.size()) bin[at] += burst.bytes;
      if (burst.unit != isa::Unit::kFetch) continue;
      if (report.programs[step].device.cores.size() > 1) fetch["core"].push_back(burst.core);
      fetch["begin"].push_back(base + burst.first_cycle);
      fetch["end"].push_back(base + std::max(burst.first_cycle, burst.last_cycle) + 1);
      fetch["bytes"].push_back(burst.bytes);
    }
  }
  out["fetch"] = std::move(fetch);
  out["bandwidth"] = {{"cycles_per_bin", width}};
  for (const auto& [unit, values] : bins) out["bandwidth"][std::string(isa::to_string(unit))] = values;
}

}  // namespace

Timeline timeline_of(const program::Artifact& artifact, const runtime::Report& report) {
  Timeline out;
  out.timed = std::any_of(report.programs.begin(), report.programs.end(),
                          [](const runtime::ProgramReport& p) { return p.device.cycles.has_value(); });
  int64_t row = 0;
  for (const runtime::ProgramReport& one : report.programs) {
    const program::NpuProgram& npu = artifact.npu_programs[static_cast<size_t>(one.program)];
    TimedProgram program;
    program.program = one.program;
    program.first_row = row;
    program.begin = out.end;
    for (size_t core = 0; core < program::streams_of(npu); ++core)
      program.streams.push_back(program::instructions_of(npu, core));
    out.end += one.device.cycles.value_or(out.timed ? 0 : one.device.profile.size());
    program.end = out.end;
    out.programs.push_back(std::move(program));
    row += static_cast<int64_t>(npu.layers.size());
  }
  for (size_t step = 0; step < report.programs.size(); ++step) {
    const runtime::ProgramReport& one = report.programs[step];
    add_program(artifact.npu_programs[static_cast<size_t>(one.program)], one.device, step, out);
  }
  return out;
}

json timeline_json(const Timeline& timeline, const runtime::Report& report) {
  json out;
  out["unit"] = timeline.timed ? "cycle" : "instruction";
  out["end"] = timeline.end;
  out["engines"] = json::array();
  for (size_t u = 0; u < driver::kUnits; ++u) out["engines"].push_back(isa::to_string(static_cast<isa::Unit>(u)));
  out["programs"] = json::array();
  for (const TimedProgram& program : timeline.programs)
    out["programs"].push_back({{"program", program.program},
                               {"begin", program.begin},
                               {"end", program.end},
                               {"instructions", program.count()}});
  out["instructions"] = columns_json(timeline);
  out["waits"] = waits_json(timeline);
  if (timeline.timed) add_bursts(timeline, report, out);
  return out;
}

}  // namespace tessera
