// SPDX-License-Identifier: Apache-2.0
// Executables are kept by the shapes they were compiled for; the device is opened once and shared by them.
#include "tessera/session.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <mutex>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "driver/registry.h"
#include "isa/effects.h"
#include "runtime/executor.h"
#include "tessera/statistics.h"

namespace tessera {

using nlohmann::json;

namespace {

constexpr size_t kKeptExecutables = 8;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::kIo, "cannot open '" + path + "' for reading");
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::string known_names(const std::vector<Port>& ports) {
  std::string text;
  for (const Port& port : ports) text += (text.empty() ? "'" : ", '") + port.name + "'";
  return text.empty() ? "none" : text;
}

program::ValueInfo to_info(const Port& port) {
  program::ValueInfo info;
  info.name = port.name;
  info.kind = port.kind;
  info.dtype = static_cast<program::DType>(port.dtype);
  info.ranked = port.ranked;
  info.shape = port.shape;
  info.dim_names = port.dim_names;
  return info;
}

Port to_port(const program::ValueInfo& info) {
  Port port;
  port.name = info.name;
  port.kind = info.kind;
  port.dtype = static_cast<ops::DType>(info.dtype);
  port.ranked = info.ranked;
  port.shape = info.shape;
  port.dim_names = info.dim_names;
  return port;
}

bool is_dynamic(const Port& port) {
  return port.kind == program::ValueKind::kTensor && port.ranked &&
         std::any_of(port.shape.begin(), port.shape.end(), [](int64_t d) { return d < 0; });
}

}  // namespace

bool is_artifact(std::string_view bytes) { return bytes.substr(0, 4) == "TSR\x9a"; }

struct Session::State {
  SessionOptions options;
  std::string path, bytes;  // of the ONNX model; `bytes` when it has no path
  std::vector<Port> inputs, outputs;
  isa::MachineConfig config;
  std::shared_ptr<driver::Device> device;
  std::shared_ptr<const program::Artifact> loaded;  // when opened from an artifact
  struct Entry {
    std::map<std::string, ops::Shape> shapes;
    std::unique_ptr<compiler::Model> model;  // reference device
    std::unique_ptr<runtime::Executor> executor;
  };
  std::vector<std::unique_ptr<Entry>> entries;  // most recently used last
  const Entry* last = nullptr;
  double last_seconds = 0;
  std::mutex mutex;

  bool reference() const { return options.device == "reference"; }

  compiler::Model import(const std::map<std::string, ops::Shape>& shapes) const {
    compiler::ImportOptions import = options.import;
    for (const auto& [name, shape] : shapes) import.shapes[name] = shape;
    return path.empty() ? compiler::Model::from_bytes(bytes, import) : compiler::Model::from_file(path, import);
  }

  void open_device() {
    if (device || reference()) return;
    driver::DeviceOptions to;
    if (options.heap_base) to.heap_base = *options.heap_base;
    to.poison_allocations = options.poison;
    to.backend = options.device_options;
    device = driver::open_device(options.device, config, to);
  }

  void open(std::string content, bool from_file) {
    if (is_artifact(content) || (from_file && path.ends_with(".tsr"))) {
      if (reference())
        throw Error(
            ErrorCode::kInvalidArgument,
            "the reference device interprets ONNX models; an artifact runs on a machine, for example --device fsim");
      loaded = std::make_shared<program::Artifact>(
          program::parse(std::span(reinterpret_cast<const uint8_t*>(content.data()), content.size())));
      config = options.config.empty() ? loaded->config : isa::find_config(options.config);
      const program::Plan& plan = loaded->plans[0];
      for (int64_t id : plan.inputs) inputs.push_back(to_port(loaded->values[static_cast<size_t>(id)]));
      for (size_t i = 0; i < plan.outputs.size(); ++i) {
        Port port = to_port(loaded->values[static_cast<size_t>(plan.outputs[i])]);
        if (i < loaded->output_names.size()) port.name = loaded->output_names[i];
        outputs.push_back(std::move(port));
      }
      open_device();
      return;
    }
    if (!from_file) bytes = std::move(content);
    config = isa::find_config(options.config.empty() ? "npu256" : options.config);
    open_device();  // a wrong device name fails before the model is read
    auto model = std::make_unique<compiler::Model>(import({}));
    inputs = model->inputs();
    outputs = model->outputs();
    if (std::none_of(inputs.begin(), inputs.end(), is_dynamic)) prepare({}, std::move(model));
  }

  Entry& prepare(const std::map<std::string, ops::Shape>& shapes, std::unique_ptr<compiler::Model> model) {
    if (!model) model = std::make_unique<compiler::Model>(import(shapes));
    auto entry = std::make_unique<Entry>();
    entry->shapes = shapes;
    if (reference()) {
      model->optimise();
      entry->model = std::move(model);
    } else {
      auto artifact = std::make_shared<program::Artifact>(model->compile(config, options.compile));
      entry->executor = std::make_unique<runtime::Executor>(std::move(artifact), device);
    }
    if (entries.size() >= kKeptExecutables) {
      if (last == entries.front().get()) last = nullptr;
      entries.erase(entries.begin());
    }
    entries.push_back(std::move(entry));
    return *entries.back();
  }

  Entry& find(const std::vector<ops::Value>& values) {
    std::map<std::string, ops::Shape> shapes;
    if (!loaded)
      for (size_t i = 0; i < inputs.size(); ++i)
        if (is_dynamic(inputs[i]) || (!inputs[i].ranked && values[i].kind == ops::Value::Kind::kTensor))
          shapes[inputs[i].name] = values[i].tensor.shape();
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i]->shapes != shapes) continue;
      std::rotate(entries.begin() + static_cast<int64_t>(i), entries.begin() + static_cast<int64_t>(i) + 1,
                  entries.end());
      return *entries.back();
    }
    if (loaded) {
      auto entry = std::make_unique<Entry>();
      entry->executor = std::make_unique<runtime::Executor>(loaded, device);
      entries.push_back(std::move(entry));
      return *entries.back();
    }
    return prepare(shapes, nullptr);
  }
};

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}

Session::Session(const std::string& path, SessionOptions options) : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
  state_->path = path;
  state_->open(read_file(path), true);
}

Session Session::from_bytes(std::string_view bytes, SessionOptions options) {
  auto state = std::make_unique<State>();
  state->options = std::move(options);
  state->open(std::string(bytes), false);
  return Session(std::move(state));
}

Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

const std::vector<Port>& Session::inputs() const { return state_->inputs; }
const std::vector<Port>& Session::outputs() const { return state_->outputs; }

std::vector<ops::Value> Session::run(const NamedValues& feeds, const std::vector<std::string>& names) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  std::vector<ops::Value> values;
  for (const Port& port : s.inputs) {
    const auto found =
        std::find_if(feeds.begin(), feeds.end(), [&](const auto& feed) { return feed.first == port.name; });
    if (found == feeds.end())
      throw Error(ErrorCode::kInvalidArgument,
                  "input '" + port.name + "' is missing; the model takes " + known_names(s.inputs));
    runtime::check_input(to_info(port), found->second);
    values.push_back(found->second);
  }
  for (const auto& feed : feeds)
    if (std::none_of(s.inputs.begin(), s.inputs.end(), [&](const Port& port) { return port.name == feed.first; }))
      throw Error(ErrorCode::kInvalidArgument,
                  "the model has no input '" + feed.first + "'; it takes " + known_names(s.inputs));
  std::vector<size_t> chosen;
  for (const std::string& name : names) {
    const auto found =
        std::find_if(s.outputs.begin(), s.outputs.end(), [&](const Port& port) { return port.name == name; });
    if (found == s.outputs.end())
      throw Error(ErrorCode::kInvalidArgument,
                  "the model has no output '" + name + "'; it gives " + known_names(s.outputs));
    chosen.push_back(static_cast<size_t>(found - s.outputs.begin()));
  }
  State::Entry& entry = s.find(values);
  std::vector<ops::Value> results;
  if (entry.model) {
    results = entry.model->interpret(values);
  } else {
    runtime::RunOptions run;
    run.check_races = s.options.check_races;
    run.poison = s.options.poison;
    run.profile = s.options.profile;
    results = entry.executor->run(values, run);
  }
  s.last = &entry;
  if (chosen.empty()) return results;
  std::vector<ops::Value> out;
  for (size_t i : chosen) out.push_back(results[i]);
  return out;
}

const program::Artifact& Session::artifact() {
  State& s = *state_;
  if (s.reference())
    throw Error(ErrorCode::kUnsupported, "the reference device interprets the model and has no artifact");
  if (s.last) return s.last->executor->artifact();
  if (s.loaded) return *s.loaded;
  if (s.entries.empty())
    throw Error(ErrorCode::kInvalidArgument, "the model has dynamic dimensions; give their sizes or run it once");
  return s.entries.back()->executor->artifact();
}

namespace {

std::string unit_name(isa::Unit unit) { return std::string(isa::to_string(unit)); }

/// Bytes that the memory moves in a cycle, reads and writes together.
uint64_t dram_bandwidth(const SessionOptions& options, const isa::MachineConfig& config) {
  const auto width = static_cast<uint64_t>(config.axi_bytes);
  const auto given = options.device_options.find("bandwidth");
  if (given == options.device_options.end()) return width;
  const uint64_t value = std::strtoull(given->second.c_str(), nullptr, 10);
  return value == 0 ? width : std::min(value, width);
}

}  // namespace

json Session::stats() const {
  const State& s = *state_;
  if (!s.last) throw Error(ErrorCode::kInvalidArgument, "statistics exist after a run");
  json out;
  if (!s.last->model) {
    const program::Artifact& artifact = s.last->executor->artifact();
    out = statistics(artifact, s.last->executor->report(), dram_bandwidth(s.options, artifact.config));
  }
  out["device"] = s.options.device;
  return out;
}

json Session::trace() const {
  const State& s = *state_;
  if (!s.last || !s.last->executor) throw Error(ErrorCode::kInvalidArgument, "a trace exists after a run on a machine");
  const runtime::Report& report = s.last->executor->report();
  const program::Artifact& artifact = s.last->executor->artifact();
  // Tracks: one for each engine's work, one for what the head of its queue waits for, two for the bus. A microsecond of
  // the trace is a cycle; on devices without time every instruction is one.
  json events = json::array();
  constexpr size_t kWaits = driver::kUnits, kReads = 2 * driver::kUnits, kWrites = kReads + 1;
  const auto name_track = [&](size_t track, const std::string& name) {
    events.push_back({{"ph", "M"}, {"pid", 0}, {"tid", track}, {"name", "thread_name"}, {"args", {{"name", name}}}});
    events.push_back(
        {{"ph", "M"}, {"pid", 0}, {"tid", track}, {"name", "thread_sort_index"}, {"args", {{"sort_index", track}}}});
  };
  const auto slice = [&](size_t track, uint64_t begin, uint64_t end, const std::string& name, json args) {
    events.push_back({{"ph", "X"},
                      {"pid", 0},
                      {"tid", track},
                      {"ts", begin},
                      {"dur", end - begin},
                      {"name", name},
                      {"args", std::move(args)}});
  };
  const bool any_timed = std::any_of(report.programs.begin(), report.programs.end(),
                                     [](const runtime::ProgramReport& p) { return p.device.cycles.has_value(); });
  for (size_t u = 0; u < driver::kUnits; ++u) {
    name_track(u, unit_name(static_cast<isa::Unit>(u)));
    if (any_timed && u < isa::kEngines) name_track(kWaits + u, unit_name(static_cast<isa::Unit>(u)) + " queue");
  }
  if (any_timed) {
    name_track(kReads, "bus reads");
    name_track(kWrites, "bus writes");
  }
  uint64_t base = 0;
  for (const runtime::ProgramReport& p : report.programs) {
    const program::NpuProgram& npu = artifact.npu_programs[static_cast<size_t>(p.program)];
    const bool timed = p.device.cycles.has_value();
    uint64_t order = 0;
    for (const driver::InstructionProfile& one : p.device.profile) {
      const auto unit = static_cast<size_t>(one.unit);
      const uint32_t layer =
          one.pc < npu.layer_of_instruction.size() ? npu.layer_of_instruction[one.pc] : program::kNoLayer;
      const std::string name = layer < npu.layers.size() ? npu.layers[layer].name : unit_name(one.unit);
      json args = {{"pc", one.pc},
                   {"macs", one.macs},
                   {"vectors", one.vectors},
                   {"bytes_read", one.bytes_read},
                   {"bytes_written", one.bytes_written}};
      if (!timed) {
        slice(unit, base + order, base + order + 1, name, std::move(args));
        ++order;
        continue;
      }
      uint64_t waited = 0;
      for (size_t e = 0; e < isa::kEngines; ++e) {
        if (one.wait_cycles[e] == 0) continue;
        args["wait_" + unit_name(static_cast<isa::Unit>(e))] = one.wait_cycles[e];
        waited += one.wait_cycles[e];
      }
      args["queued"] = base + one.queued_cycle;
      args["taken"] = base + one.start_cycle;
      args["completed"] = base + one.end_cycle;
      args["stall_memory"] = one.stall_memory_cycles;
      args["stall_port"] = one.stall_port_cycles;
      if (waited > 0) {
        const auto most = std::max_element(one.wait_cycles.begin(), one.wait_cycles.end()) - one.wait_cycles.begin();
        const uint64_t from = one.start_cycle >= waited ? one.start_cycle - waited : 0;
        slice(kWaits + unit, base + from, base + one.start_cycle,
              "waits for " + unit_name(static_cast<isa::Unit>(most)), {{"pc", one.pc}, {"node", name}});
      }
      slice(unit, base + one.first_busy_cycle, base + one.last_busy_cycle + 1, name, std::move(args));
    }
    for (const driver::BurstProfile& burst : p.device.bursts)
      slice(burst.write ? kWrites : kReads, base + burst.first_cycle,
            base + (burst.write ? std::max(burst.first_cycle, burst.last_cycle) : burst.last_cycle) + 1,
            unit_name(burst.unit),
            {{"address", burst.address}, {"bytes", burst.bytes}, {"requested", base + burst.address_cycle}});
    base += timed ? *p.device.cycles : order;
  }
  return {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ns"}};
}

nlohmann::ordered_json schedules_of(const program::Artifact& artifact) {
  const std::vector<std::vector<std::string>> keys = layer_keys(artifact);
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (size_t p = 0; p < keys.size(); ++p)
    for (size_t i = 0; i < keys[p].size(); ++i) {
      const program::Layer& layer = artifact.npu_programs[p].layers[i];
      if (!layer.schedule_json.empty())
        out[keys[p][i]] = nlohmann::ordered_json::parse(layer.schedule_json, nullptr, false);
    }
  return out;
}

std::map<std::string, std::string> schedules_from(const json& all) {
  std::map<std::string, std::string> out;
  if (!all.is_object())
    throw Error(ErrorCode::kInvalidArgument,
                "schedules: expected an object from layers to schedules, or the statistics of a run");
  const auto layers = all.find("layers");
  if (layers == all.end() || !layers->is_array()) {
    for (const auto& [key, schedule] : all.items())
      out[key] = schedule.is_string() ? schedule.get<std::string>() : schedule.dump();
    return out;
  }
  for (const json& row : *layers)
    if (row.is_object() && row.contains("key") && row.contains("schedule"))
      out[row["key"].get<std::string>()] = row["schedule"].dump();
  return out;
}

json describe_artifact(const program::Artifact& artifact) {
  json out;
  out["producer"] = artifact.producer;
  out["config"] = artifact.config.name;
  const program::Plan& plan = artifact.plans[0];
  const auto port = [&](int64_t id, const std::string& name) {
    const program::ValueInfo& info = artifact.values[static_cast<size_t>(id)];
    return json{{"name", name.empty() ? info.name : name}, {"type", runtime::describe(info)}};
  };
  for (int64_t id : plan.inputs) out["inputs"].push_back(port(id, ""));
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    out["outputs"].push_back(port(plan.outputs[i], i < artifact.output_names.size() ? artifact.output_names[i] : ""));
  }
  // Counted from the instructions: each runs exactly once, so this is what is executed.
  uint64_t instructions = 0, issued = 0, arena = 0, gemm_layers = 0;
  for (const program::NpuProgram& npu : artifact.npu_programs) {
    const auto decoded = program::instructions_of(npu);
    instructions += decoded.size();
    arena = std::max(arena, npu.arena_bytes);
    std::vector<bool> computes(npu.layers.size(), false);
    for (size_t i = 0; i < decoded.size(); ++i) {
      const int64_t macs = isa::effects(decoded[i], artifact.config).macs;
      if (macs == 0) continue;
      issued += static_cast<uint64_t>(macs);
      if (i < npu.layer_of_instruction.size() && npu.layer_of_instruction[i] < computes.size())
        computes[npu.layer_of_instruction[i]] = true;
    }
    gemm_layers += static_cast<uint64_t>(std::count(computes.begin(), computes.end(), true));
  }
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
  out["issued_macs"] = issued;
  out["instructions"] = instructions;
  out["programs"] = artifact.npu_programs.size();
  out["layers_with_gemm"] = gemm_layers;
  out["device_constant_bytes"] = artifact.device_constants.size();
  out["arena_bytes"] = arena;
  out["arena_bytes_without_reuse"] = artifact.totals.unshared_bytes;
  out["constant_bytes"] = artifact.constant_blob.size();
  out["cpu_code_bytes"] = artifact.cpu.object.size();
  out["cpu_triple"] = artifact.cpu.triple;
  for (const program::NpuProgram& npu : artifact.npu_programs)
    for (const program::Layer& layer : npu.layers)
      out["layers"].push_back({{"name", layer.name},
                               {"op", layer.op},
                               {"placement", "npu"},
                               {"macs", layer.macs},
                               {"predicted_cycles", layer.predicted_cycles},
                               {"bound_cycles", layer.bound_cycles},
                               {"dram_read_bytes", layer.dram_read_bytes},
                               {"dram_write_bytes", layer.dram_write_bytes}});
  for (const program::Layer& layer : artifact.cpu_layers)
    out["layers"].push_back({{"name", layer.name}, {"op", layer.op}, {"placement", "cpu"}, {"macs", layer.macs}});
  return out;
}

}  // namespace tessera
