// SPDX-License-Identifier: Apache-2.0
// Counts come from the instructions and the artifact's sums.
#include "tessera/report/description.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "isa/verify/effects.h"
#include "runtime/values.h"
#include "tessera/report/statistics.h"

namespace tessera {

using nlohmann::json;

std::string schedules_json(const program::Artifact& artifact) {
  const std::vector<std::vector<std::string>> keys = layer_keys(artifact);
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (size_t p = 0; p < keys.size(); ++p)
    for (size_t i = 0; i < keys[p].size(); ++i) {
      const program::Layer& layer = artifact.npu_programs[p].layers[i];
      if (layer.schedule_json.empty()) continue;
      auto schedule = nlohmann::ordered_json::parse(layer.schedule_json, nullptr, false);
      if (schedule.is_discarded())
        throw Error(ErrorCode::kInvalidArtifact, "layer '" + layer.name + "': its schedule is not JSON");
      out[keys[p][i]] = std::move(schedule);
    }
  return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::map<std::string, std::string> schedules_from(const std::string& text, const std::string& from) {
  json all;
  try {
    all = json::parse(text);
  } catch (const json::exception& e) {
    throw Error(ErrorCode::kInvalidArgument, from + " is not JSON: " + e.what());
  }
  if (!all.is_object())
    throw Error(ErrorCode::kInvalidArgument,
                from + ": expected an object from layers to schedules, or the statistics of a run");
  std::map<std::string, std::string> out;
  const auto layers = all.find("layers");
  if (layers == all.end() || !layers->is_array()) {
    for (const auto& [key, schedule] : all.items())
      out[key] = schedule.is_string() ? schedule.get<std::string>() : schedule.dump();
    return out;
  }
  for (const json& row : *layers)
    if (row.is_object() && row.contains("key") && row["key"].is_string() && row.contains("schedule"))
      out[row["key"].get<std::string>()] = row["schedule"].dump();
  return out;
}

namespace {

json ports_of(const program::Artifact& artifact, const std::vector<int64_t>& ids,
              const std::vector<std::string>& names) {
  json ports;
  for (size_t i = 0; i < ids.size(); ++i) {
    const program::ValueInfo& info = artifact.values[static_cast<size_t>(ids[i])];
    const std::string& name = i < names.size() && !names[i].empty() ? names[i] : info.name;
    ports.push_back({{"name", name}, {"type", runtime::describe(info)}});
  }
  return ports;
}

/// Counted from the instructions: each runs exactly once, so this is what is executed.
struct Counts {
  uint64_t instructions = 0, issued_macs = 0, arena_bytes = 0, layers_with_gemm = 0;
};

Counts counts_of(const program::Artifact& artifact) {
  Counts counts;
  for (const program::NpuProgram& npu : artifact.npu_programs) {
    counts.arena_bytes = std::max(counts.arena_bytes, npu.arena_bytes);
    std::vector<bool> computes(npu.layers.size(), false);
    for (size_t core = 0; core < program::streams_of(npu); ++core) {
      const auto decoded = program::instructions_of(npu, core);
      const std::vector<uint32_t>& layers = program::layers_of(npu, core);
      counts.instructions += decoded.size();
      for (size_t i = 0; i < decoded.size(); ++i) {
        const int64_t macs = isa::effects(decoded[i], artifact.config).macs;
        if (macs == 0) continue;
        counts.issued_macs += static_cast<uint64_t>(macs);
        if (i < layers.size() && layers[i] < computes.size()) computes[layers[i]] = true;
      }
    }
    counts.layers_with_gemm += static_cast<uint64_t>(std::count(computes.begin(), computes.end(), true));
  }
  return counts;
}

}  // namespace

std::string description_json(const program::Artifact& artifact, int indent, const std::optional<std::string>& signer) {
  json out;
  out["producer"] = artifact.producer;
  out["config"] = artifact.config.name;
  const program::Plan& plan = artifact.plans[0];
  if (!plan.inputs.empty()) out["inputs"] = ports_of(artifact, plan.inputs, {});
  if (!plan.outputs.empty()) out["outputs"] = ports_of(artifact, plan.outputs, artifact.output_names);
  const Counts counts = counts_of(artifact);
  const uint64_t on_npu = artifact.totals.nodes_npu, on_cpu = artifact.totals.nodes_cpu;
  const uint64_t macs_npu = artifact.totals.macs_npu, macs_cpu = artifact.totals.macs_cpu;
  const auto share = [](uint64_t a, uint64_t b) {
    return a + b == 0 ? 1.0 : static_cast<double>(a) / static_cast<double>(a + b);
  };
  out["nodes_npu"] = on_npu;
  out["nodes_cpu"] = on_cpu;
  out["nodes_npu_share"] = share(on_npu, on_cpu);
  out["macs_npu"] = macs_npu;
  out["macs_cpu"] = macs_cpu;
  out["macs_npu_share"] = share(macs_npu, macs_cpu);
  out["issued_macs"] = counts.issued_macs;
  out["instructions"] = counts.instructions;
  out["programs"] = artifact.npu_programs.size();
  out["layers_with_gemm"] = counts.layers_with_gemm;
  out["device_constant_bytes"] = artifact.device_constants.size();
  out["arena_bytes"] = counts.arena_bytes;
  out["arena_bytes_without_reuse"] = artifact.totals.unshared_bytes;
  out["constant_bytes"] = artifact.constant_blob.size();
  out["cpu_code_bytes"] = artifact.cpu.object.size();
  out["cpu_triple"] = artifact.cpu.triple;
  out["machine_code"] = !artifact.cpu.object.empty() || !artifact.cpu.bitcode.empty();
  if (signer) out["signer"] = signer->empty() ? json(nullptr) : json(*signer);
  for (const program::NpuProgram& npu : artifact.npu_programs)
    for (const program::Layer& layer : npu.layers)
      out["layers"].push_back({{"name", layer.name},
                               {"op", layer.op},
                               {"placement", "npu"},
                               {"macs", layer.macs},
                               {"predicted_cycles", layer.predicted_cycles},
                               {"bound_cycles", layer.bound_cycles},
                               {"dram_read_bytes", layer.dram_read_bytes},
                               {"dram_write_bytes", layer.dram_write_bytes},
                               {"nodes", layer.nodes}});
  for (const program::Layer& layer : artifact.cpu_layers)
    out["layers"].push_back(
        {{"name", layer.name}, {"op", layer.op}, {"placement", "cpu"}, {"macs", layer.macs}, {"nodes", layer.nodes}});
  // Names come from the model, whose bytes need not be UTF-8.
  return out.dump(indent, ' ', false, json::error_handler_t::replace);
}

}  // namespace tessera
