// SPDX-License-Identifier: Apache-2.0
// Rows are made program by program and layer by layer; totals are sums over the rows' figures.
#include "tessera/report/statistics.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "runtime/attribution.h"

namespace tessera {

using nlohmann::json;

namespace {

/// What the instructions of a layer did.
struct Work {
  uint64_t instructions = 0, macs = 0, read = 0, written = 0;
};

/// From the profile of the run; where a device keeps none, every instruction has run once, with traffic as planned.
std::vector<Work> work_by_layer(const program::NpuProgram& npu, const driver::RunReport& run) {
  std::vector<Work> work(npu.layers.size());
  for (const driver::InstructionProfile& one : run.profile) {
    const std::vector<uint32_t>& layers = program::layers_of(npu, one.core);
    if (one.pc >= layers.size() || layers[one.pc] >= work.size()) continue;
    Work& layer = work[layers[one.pc]];
    ++layer.instructions;
    layer.macs += one.macs;
    layer.read += one.bytes_read;
    layer.written += one.bytes_written;
  }
  if (!run.profile.empty()) return work;
  for (size_t core = 0; core < program::streams_of(npu); ++core)
    for (const uint32_t layer : program::layers_of(npu, core))
      if (layer < work.size()) ++work[layer].instructions;
  for (size_t i = 0; i < work.size(); ++i) {
    work[i].read = npu.layers[i].dram_read_bytes;
    work[i].written = npu.layers[i].dram_write_bytes;
  }
  return work;
}

/// What one core of a run did.
std::vector<driver::InstructionProfile> profile_of(const driver::RunReport& run, size_t core) {
  std::vector<driver::InstructionProfile> own;
  std::copy_if(run.profile.begin(), run.profile.end(), std::back_inserter(own),
               [&](const driver::InstructionProfile& one) { return one.core == core; });
  return own;
}

/// Where the cycles of a run went: on several cores, those of the core that ends last.
std::vector<runtime::LayerCycles> cycles_by_layer(const program::NpuProgram& npu, const driver::RunReport& run) {
  if (run.cores.empty())
    return runtime::attribute_cycles(run.profile, npu.layer_of_instruction, npu.layers.size(), *run.cycles);
  const auto last = std::max_element(run.cores.begin(), run.cores.end(), [](const auto& a, const auto& b) {
    return a.cycles.value_or(0) < b.cycles.value_or(0);
  });
  const auto core = static_cast<size_t>(last - run.cores.begin());
  return runtime::attribute_cycles(profile_of(run, core), program::layers_of(npu, core), npu.layers.size(),
                                   *run.cycles);
}

class Statistics {
 public:
  Statistics(const program::Artifact& artifact, uint64_t dram_bytes_per_cycle)
      : artifact_(artifact),
        keys_(layer_keys(artifact)),
        peak_(static_cast<double>(artifact.config.peak_macs() * artifact.config.cores)),
        dram_bytes_per_cycle_(dram_bytes_per_cycle) {
    TESSERA_INVARIANT(dram_bytes_per_cycle > 0, "a DRAM that moves nothing");
  }

  void add(const runtime::ProgramReport& report) {
    const program::NpuProgram& npu = artifact_.npu_programs[static_cast<size_t>(report.program)];
    const driver::RunReport& run = report.device;
    timed_ = timed_ && run.cycles.has_value();
    const uint64_t begin = cycles_;
    cycles_ += run.cycles.value_or(0);
    instructions_ += run.counters.instructions;
    read_ += run.counters.bytes_read;
    written_ += run.counters.bytes_written;
    issued_ += run.counters.macs;
    add_cores(npu, run);
    const std::vector<Work> work = work_by_layer(npu, run);
    std::vector<runtime::LayerCycles> where;
    if (run.cycles) where = cycles_by_layer(npu, run);
    for (size_t i = 0; i < npu.layers.size(); ++i) {
      const program::Layer& layer = npu.layers[i];
      json row = planned(layer, work[i]);
      row["key"] = keys_[static_cast<size_t>(report.program)][i];
      if (!where.empty()) measured(layer, where[i], std::min(layer.macs, work[i].macs), begin, row);
      if (json schedule = json::parse(layer.schedule_json, nullptr, false); !schedule.is_discarded())
        row["schedule"] = std::move(schedule);
      row["nodes"] = layer.nodes;
      put_row({report.program, i}, std::move(row));
    }
  }

  void add(const runtime::CpuReport& report) {
    const program::Layer* layer =
        report.layer >= 0 ? &artifact_.cpu_layers[static_cast<size_t>(report.layer)] : nullptr;
    json row;
    row["name"] = layer ? layer->name : report.name;
    row["op"] = layer ? layer->op : report.op;
    row["placement"] = "cpu";
    row["macs"] = layer ? layer->macs : 0;
    row["cycles"] = nullptr;
    row["utilization"] = nullptr;
    row["seconds"] = report.seconds;
    if (layer) row["nodes"] = layer->nodes;
    layers_.push_back(std::move(row));
  }

  /// Totals and rows.
  json take(const runtime::Report& report) {
    const bool timed = timed_ && !report.programs.empty();
    json out;
    out["config"] = artifact_.config.name;
    out["nodes_npu"] = artifact_.totals.nodes_npu;
    out["nodes_cpu"] = artifact_.totals.nodes_cpu;
    out["cycles"] = timed ? json(cycles_) : json(nullptr);
    if (attributed_) put_causes(causes_, out);
    out["macs"] = macs_;
    out["issued_macs"] = issued_;
    out["macs_cpu"] = artifact_.totals.macs_cpu;
    const uint64_t useful = attributed_ ? useful_ : std::min(macs_, issued_);
    out["utilization"] = timed && cycles_ ? json(utilization(useful, cycles_)) : json(nullptr);
    out["roofline_cycles"] = bound_;
    out["predicted_cycles"] = predicted_;
    for (size_t k = 0; k < streams_.size(); ++k) out["bytes"][std::string(program::kStreamNames[k])] = streams_[k];
    uint64_t arena = 0;
    for (const program::NpuProgram& npu : artifact_.npu_programs) arena = std::max(arena, npu.arena_bytes);
    out["arena_bytes"] = arena;
    out["arena_bytes_without_reuse"] = artifact_.totals.unshared_bytes;
    out["dram_read_bytes"] = read_;
    out["dram_write_bytes"] = written_;
    out["instructions"] = instructions_;
    out["seconds"] = report.seconds;
    out["transfer_seconds"] = report.transfer_seconds;
    if (!cores_.empty()) out["cores"] = std::move(cores_);
    if (bus_busy_) out["bus_busy_cycles"] = *bus_busy_;
    out["layers"] = std::move(layers_);
    return out;
  }

 private:
  /// A layer in the body of a loop runs more than once: its row has the sums of all runs, and their number.
  void put_row(std::pair<int64_t, size_t> which, json row) {
    const auto [at, fresh] = rows_.emplace(which, layers_.size());
    if (fresh) {
      layers_.push_back(std::move(row));
      return;
    }
    json& sum = layers_[at->second];
    const auto cycles = [](const json& of) { return of["cycles"].is_null() ? 0.0 : of["cycles"].get<double>(); };
    const double before = cycles(sum), now = cycles(row);
    if (before + now > 0 && sum["utilization"].is_number() && row["utilization"].is_number())
      sum["utilization"] =
          (sum["utilization"].get<double>() * before + row["utilization"].get<double>() * now) / (before + now);
    for (const auto& [key, value] : row.items()) {
      if (key == "end_cycle") sum[key] = value;
      if (!value.is_number_unsigned() || key == "end_cycle" || key == "begin_cycle") continue;
      sum[key] = sum[key].get<uint64_t>() + value.get<uint64_t>();
    }
    if (row.contains("bytes"))
      for (const auto& [key, value] : row["bytes"].items())
        sum["bytes"][key] = sum["bytes"][key].get<uint64_t>() + value.get<uint64_t>();
    sum["runs"] = sum.value("runs", uint64_t{1}) + 1;
  }

  using Causes = std::array<uint64_t, runtime::kCauses>;

  /// A row for each core of a chip: sums over the programs that have run.
  void add_cores(const program::NpuProgram& npu, const driver::RunReport& run) {
    if (run.bus_busy_cycles) bus_busy_ = bus_busy_.value_or(0) + *run.bus_busy_cycles;
    for (size_t k = 0; k < run.cores.size(); ++k) {
      if (cores_.size() <= k) cores_.push_back({{"core", k}});
      json& row = cores_[k];
      const driver::CoreReport& core = run.cores[k];
      const auto add = [&](const std::string& key, uint64_t value) { row[key] = row.value(key, uint64_t{0}) + value; };
      add("instructions", core.counters.instructions);
      add("issued_macs", core.counters.macs);
      add("dram_read_bytes", core.counters.bytes_read);
      add("dram_write_bytes", core.counters.bytes_written);
      if (!core.cycles) continue;
      add("cycles", *core.cycles);
      // An engine waits on its own timeline only at a FENCE, for another core.
      uint64_t waits = 0;
      for (const isa::Engine engine : {isa::Engine::kLoad, isa::Engine::kStore}) {
        const auto e = static_cast<size_t>(engine);
        waits += core.counters.units[e].wait_cycles[e];
      }
      add("core_wait_cycles", waits);
      if (core.bus_wait_cycles) add("bus_wait_cycles", *core.bus_wait_cycles);
      if (k >= program::streams_of(npu)) continue;
      const std::vector<driver::InstructionProfile> own = profile_of(run, k);
      const std::vector<uint32_t> one_layer(program::layers_of(npu, k).size(), 0);
      for (const runtime::LayerCycles& all : runtime::attribute_cycles(own, one_layer, 1, *core.cycles))
        for (size_t c = 0; c < runtime::kCauses; ++c) add(cause_key(c), all.causes[c]);
    }
  }

  static std::string cause_key(size_t cause) {
    return "cycles_" + std::string(runtime::to_string(static_cast<runtime::Cause>(cause)));
  }

  double utilization(uint64_t macs, uint64_t cycles) const {
    return cycles == 0 ? 0.0 : static_cast<double>(macs) / (static_cast<double>(cycles) * peak_);
  }

  template <typename Values>
  static void put_causes(const Values& causes, json& out) {
    for (size_t c = 0; c < runtime::kCauses; ++c) out[cause_key(c)] = causes[c];
  }

  /// What the compiler knows of a layer, and what its instructions did; cycles still open.
  json planned(const program::Layer& layer, const Work& work) {
    macs_ += layer.macs;
    bound_ += layer.bound_cycles;
    predicted_ += layer.predicted_cycles;
    json row;
    row["name"] = layer.name;
    row["op"] = layer.op;
    row["placement"] = "npu";
    row["macs"] = layer.macs;
    row["issued_macs"] = work.macs;
    row["instructions"] = work.instructions;
    row["dram_read_bytes"] = work.read;
    row["dram_write_bytes"] = work.written;
    row["bound_cycles"] = layer.bound_cycles;
    row["predicted_cycles"] = layer.predicted_cycles;
    row["utilization"] = nullptr;
    row["cycles"] = nullptr;
    row["bound"] = nullptr;
    for (size_t k = 0; k < layer.stream_bytes.size() && k < streams_.size(); ++k) {
      row["bytes"][std::string(program::kStreamNames[k])] = layer.stream_bytes[k];
      streams_[k] += layer.stream_bytes[k];
    }
    return row;
  }

  /// Cycles of a layer and their causes; `useful`: products of the model that were computed, which are not all where
  /// nobody reads the others' results; `begin`: cycles of the programs before.
  void measured(const program::Layer& layer, const runtime::LayerCycles& where, uint64_t useful, uint64_t begin,
                json& row) {
    uint64_t bytes = 0;
    for (size_t k = 0; k < layer.stream_bytes.size() && k < streams_.size(); ++k) bytes += layer.stream_bytes[k];
    const uint64_t dram_cycles = (bytes + dram_bytes_per_cycle_ - 1) / dram_bytes_per_cycle_;
    const std::string_view limit = runtime::limit_of(where, dram_cycles);
    row["cycles"] = where.cycles;
    row["utilization"] = utilization(useful, where.cycles);
    useful_ += useful;
    if (!limit.empty()) row["bound"] = limit;
    row["begin_cycle"] = begin + where.begin_cycle;
    row["end_cycle"] = begin + where.end_cycle;
    row["gemm_cycles"] = where.gemm_cycles;
    row["alu_cycles"] = where.alu_cycles;
    row["dram_cycles"] = dram_cycles;
    put_causes(where.causes, row);
    for (size_t c = 0; c < runtime::kCauses; ++c) causes_[c] += where.causes[c];
    attributed_ = true;
  }

  const program::Artifact& artifact_;
  const std::vector<std::vector<std::string>> keys_;
  const double peak_;
  const uint64_t dram_bytes_per_cycle_;
  uint64_t cycles_ = 0, macs_ = 0, useful_ = 0, instructions_ = 0, read_ = 0, written_ = 0, bound_ = 0, issued_ = 0,
           predicted_ = 0;
  std::vector<uint64_t> streams_ = std::vector<uint64_t>(program::kStreamNames.size());
  bool timed_ = true;
  Causes causes_{};
  bool attributed_ = false;
  json layers_ = json::array(), cores_ = json::array();
  std::optional<uint64_t> bus_busy_;
  std::map<std::pair<int64_t, size_t>, size_t> rows_;  // of a layer of a program: where its row stands
};

}  // namespace

std::vector<std::vector<std::string>> layer_keys(const program::Artifact& artifact) {
  std::vector<std::vector<std::string>> keys;
  std::map<std::string, int64_t> seen;
  for (const program::NpuProgram& npu : artifact.npu_programs) {
    keys.emplace_back();
    for (const program::Layer& layer : npu.layers) keys.back().push_back(program::layer_key(layer.name, seen));
  }
  return keys;
}

std::string statistics_json(const std::string& device, const program::Artifact& artifact, const runtime::Report& report,
                            uint64_t dram_bytes_per_cycle, int indent, const Origin& origin) {
  Statistics statistics(artifact, dram_bytes_per_cycle);
  for (const runtime::ProgramReport& program : report.programs) statistics.add(program);
  for (const runtime::CpuReport& step : report.cpu) statistics.add(step);
  json out = statistics.take(report);
  out["device"] = device;
  if (origin.close_candidates > 0) out["close_candidates"] = origin.close_candidates;
  if (!origin.unfit_scales.empty()) out["unfit_scales"] = origin.unfit_scales;
  if (origin.quick) out["effort"] = "quick";
  return out.dump(indent, ' ', false, json::error_handler_t::replace);
}

std::string statistics_json(const std::string& device, int indent) { return json{{"device", device}}.dump(indent); }

}  // namespace tessera
