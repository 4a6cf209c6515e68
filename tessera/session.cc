// SPDX-License-Identifier: Apache-2.0
// Executables are kept by the shapes they were compiled for; the device is opened once and shared by them.
#include "tessera/session.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>
#include <set>

#include "base/error.h"
#include "compiler/litert/states.h"
#include "driver/registry.h"
#include "isa/dram.h"
#include "isa/program/signature.h"
#include "runtime/executor.h"
#include "runtime/values.h"
#include "tessera/compiled_already.h"
#include "tessera/kept_programs.h"
#include "tessera/quantised_for.h"
#include "tessera/report/run_report.h"
#include "tessera/report/statistics.h"
#include "tessera/report/trace.h"
#include "tessera/tuning/program_lengths.h"
#include "tessera/tuning/search_behind.h"
#include "tessera/tuning/tuned.h"

namespace tessera {

namespace {

constexpr size_t kKeptExecutables = 8;
constexpr int64_t kLengthSteps = 2;  // of CompileOptions::length_steps, on sysc and rtl
constexpr int64_t kLeastPast = 2;    // for which a decoder can be compiled

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
  std::string path;                             // "" when it was given as bytes
  std::optional<compiler::ModelSource> source;  // of an ONNX model
  std::vector<Port> inputs, outputs, overridable;
  std::vector<Port> shown_inputs, shown_outputs;  // without what carries states, which stands behind
  std::vector<ops::Value> states;                 // that the last run has left; empty before the first
  std::vector<program::Past> pasts;
  std::map<std::map<std::string, ops::Shape>, int64_t> added_to_pasts;  // by a run, by the shapes of inputs
  std::map<std::string, std::vector<size_t>> growing;  // dimensions of inputs for which one compilation serves
  isa::MachineConfig config;
  std::shared_ptr<driver::Device> device;
  std::shared_ptr<const program::Artifact> loaded;  // when opened from an artifact
  std::optional<KeptPrograms> programs;             // of an ONNX model on a machine
  /// What a program is made for: shapes of dynamic inputs, the initializers that are inputs, and of a decoder the
  /// maximal length.
  struct Given {
    std::map<std::string, ops::Shape> shapes;
    std::set<std::string> overrides;
    int64_t length = 0;
    bool operator==(const Given&) const = default;
    void add_to(compiler::ImportOptions& import) const {
      for (const auto& [name, shape] : shapes) import.shapes[name] = shape;
      import.overrides.insert(overrides.begin(), overrides.end());
    }
  };
  struct Entry {
    Given given;
    std::unique_ptr<compiler::Model> model;  // reference device
    std::unique_ptr<runtime::Executor> executor;
    int64_t close_candidates = 0;
    std::string unfit_scales;
    std::shared_ptr<const program::Artifact> artifact;  // that it runs
    bool quick = false;                                 // with schedules that were not searched for
    std::shared_ptr<const program::Artifact> better;    // takes its place at the next run
  };
  std::vector<std::unique_ptr<Entry>> entries;  // most recently used last
  const Entry* last = nullptr;
  double last_seconds = 0;
  std::mutex mutex;
  Given ahead;                         // what the last look ahead wished for
  std::optional<SearchBehind> behind;  // ends first: its thread knows this state

  bool reference() const { return options.device == "reference"; }

  compiler::Model import(const Given& given) const {
    compiler::ImportOptions import = options.import;
    given.add_to(import);
    return compiler::Model::from_source(*source, import);
  }

  void open_device() {
    if (device || reference()) return;
    if (options.chip == nullptr && options.cores.empty()) {
      device = open_machine(config);
      return;
    }
    // Of the chip that is given, or one of its own.
    auto chip = options.chip;
    if (chip == nullptr) chip = std::make_shared<driver::SharedChip>(open_machine(config));
    std::vector<uint32_t> cores = options.cores;
    for (uint32_t k = 0; options.cores.empty() && k < static_cast<uint32_t>(chip->config().cores); ++k)
      cores.push_back(k);
    device = chip->part(std::move(cores), options.priority);
    config = device->config();
    options.config = isa::to_toml(config);
  }

  std::shared_ptr<driver::Device> open_machine(const isa::MachineConfig& machine) const {
    driver::DeviceOptions to;
    if (options.heap_base) to.heap_base = *options.heap_base;
    to.poison_allocations = options.poison;
    to.backend = options.device_options;
    return driver::open_device(options.device, machine, to);
  }

  /// Reads an artifact; with trusted keys its signature comes first.
  std::shared_ptr<program::Artifact> read_artifact(std::string_view content) const {
    const std::span bytes(reinterpret_cast<const uint8_t*>(content.data()), content.size());
    std::optional<program::TrustedKeys> keys;
    if (options.trusted_keys) keys = program::TrustedKeys::load(*options.trusted_keys);
    try {
      if (keys) program::require_trusted(bytes, *keys);
      return std::make_shared<program::Artifact>(program::parse(bytes));
    } catch (const Error& error) {
      if (path.empty()) throw;
      throw Error(error.code(), path + ": " + error.what());
    }
  }

  void show_ports() {
    const auto shown = [](const std::vector<Port>& ports) {
      std::vector<Port> result;
      std::copy_if(ports.begin(), ports.end(), std::back_inserter(result),
                   [](const Port& port) { return !litert::is_state(port.name); });
      return result;
    };
    shown_inputs = shown(inputs), shown_outputs = shown(outputs);
  }

  /// What an input gets that no feed gives: whether the run is the first one, or a state. States have one order among
  /// inputs and outputs.
  ops::Value state_of(size_t input) const {
    const Port& port = inputs[input];
    const bool first = states.empty();
    if (port.name != litert::kFirstRun && !first) return states[input - shown_inputs.size() - 1];
    ops::Tensor tensor(port.dtype, port.shape);
    if (port.name == litert::kFirstRun) tensor.as_mutable<bool>()[0] = first;
    return ops::Value(std::move(tensor));
  }

  void open_artifact(std::string_view bytes) {
    loaded = read_artifact(bytes);
    config = options.config.empty() ? loaded->config : isa::find_config(options.config);
    const program::Plan& plan = loaded->plans[0];
    for (int64_t id : plan.inputs) inputs.push_back(to_port(loaded->values[static_cast<size_t>(id)]));
    for (size_t i = 0; i < plan.outputs.size(); ++i) {
      Port port = to_port(loaded->values[static_cast<size_t>(plan.outputs[i])]);
      if (i < loaded->output_names.size()) port.name = loaded->output_names[i];
      if (i < loaded->output_keys.size()) port.keys = loaded->output_keys[i];
      outputs.push_back(std::move(port));
    }
    pasts = loaded->growth.pasts;
    refuse_what_only_compiling_heeds(*loaded, options.import, options.compile);
    show_ports();
    open_device();
  }

  void open(compiler::ModelSource given_model) {
    path = given_model.path();
    if (options.chip != nullptr) options.config = isa::to_toml(options.chip->config());
    if (reference() && !options.cores.empty())
      throw Error(ErrorCode::kInvalidArgument, "the reference device is an interpreter and has no cores to choose");
    if (reference() && !options.device_options.empty())
      throw Error(ErrorCode::kInvalidArgument, "the reference device is an interpreter and has no option '" +
                                                   options.device_options.begin()->first + "'");
    if (reference() && options.check_races)
      throw Error(ErrorCode::kUnsupported,
                  "the reference device is an interpreter, in which nothing races; device "
                  "fsim checks races");
    if (is_artifact(given_model.bytes()) || path.ends_with(".tsr")) {
      if (reference())
        throw Error(
            ErrorCode::kInvalidArgument,
            "the reference device interprets ONNX models; an artifact runs on a machine, for example --device fsim");
      return open_artifact(given_model.bytes());
    }
    take_quantised_for(given_model.bytes(), options);
    const bool untimed = options.device == "fsim", is_simulated = options.device == "sysc" || options.device == "rtl";
    source = std::move(given_model);
    config = isa::find_config(options.config);
    open_device();  // a wrong device name fails before the model is read
    if (reference()) {
      const compiler::Model model = import({});
      inputs = model.inputs(), outputs = model.outputs(), overridable = model.overridable(), pasts = model.pasts();
    } else {
      programs.emplace(*source, options.compile, options.import.external.get());
      Interface found = programs->interface(options.import);
      inputs = std::move(found.inputs), outputs = std::move(found.outputs);
      overridable = std::move(found.overridable), pasts = std::move(found.pasts);
      if (options.compile.max_length > 0) growing = std::move(found.growing);
    }
    show_ports();
    const auto open = [&](const Port& port) {
      const auto axes = growing.find(port.name);
      const size_t growing_axes = axes == growing.end() ? 0 : axes->second.size();
      return port.kind == program::ValueKind::kTensor && port.ranked &&
             static_cast<size_t>(std::count_if(port.shape.begin(), port.shape.end(), [](int64_t d) { return d < 0; })) >
                 growing_axes;
    };
    const bool dynamic = std::any_of(inputs.begin(), inputs.end(), open);
    if (options.compile.effort == compiler::kAutoEffort)
      options.compile.effort = dynamic && untimed ? compiler::kTieredEffort : compiler::kBestEffort;
    if (options.compile.length_steps < 0) options.compile.length_steps = is_simulated ? kLengthSteps : 0;
    if (dynamic) return;
    Given given;
    for (const Port& port : inputs)
      if (is_dynamic(port)) given.shapes[port.name] = key_of(port, port.shape);
    given.length = length_for(given, 0);
    prepare(given);
  }

  bool has_lengths() const { return options.compile.max_length > 0 && options.compile.length_steps > 0 && programs; }

  /// The length of the program for a past; 0 where one program serves all.
  int64_t length_for(const Given& given, int64_t past) {
    if (!has_lengths()) return 0;
    auto added = added_to_pasts.find(given.shapes);
    if (added == added_to_pasts.end()) {
      compiler::ImportOptions import = options.import;
      given.add_to(import);
      added = added_to_pasts.emplace(given.shapes, programs->added_to_pasts(import)).first;
    }
    const int64_t needed = std::max<int64_t>(past, kLeastPast) + added->second;
    return program_length(needed, options.compile.max_length, options.compile.length_steps);
  }

  /// The length of the first past among values.
  int64_t past_of(const std::vector<Bound>& values) const {
    if (pasts.empty()) return 0;
    const Bound& value = values[static_cast<size_t>(pasts.front().input)];
    const auto* array = std::get_if<DeviceTensor>(&value);
    const ops::Shape& shape = array ? array->shape : std::get<ops::Value>(value).tensor.shape();
    return shape[static_cast<size_t>(pasts.front().axis)];
  }

  /// Makes the next longer program ahead, so that it is there when it is wanted.
  void look_ahead(const Given& now, int64_t past) {
    const int64_t longest = options.compile.max_length, steps = options.compile.length_steps;
    if (now.length == 0 || past < now.length / 2) return;
    Given next = now;
    next.length = next_program_length(now.length, longest, steps);
    const auto known = [&](const auto& entry) { return entry->given == next; };
    if (std::any_of(entries.begin(), entries.end(), known) || next == ahead) return;
    ahead = next;
    compiler::ImportOptions import = options.import;
    next.add_to(import);
    compiler::CompileOptions to = compile_options(next);
    if (to.effort == compiler::kTieredEffort) to.effort = compiler::kBestEffort;
    search_behind(next, import, to);
  }

  compiler::CompileOptions compile_options(const Given& given) const {
    if (options.compile.tuned.empty()) {
      compiler::CompileOptions to = options.compile;
      if (given.length > 0) to.max_length = given.length;
      return to;
    }
    SessionOptions own = options;
    given.add_to(own.import);
    add_tuned_schedules(own.compile, *source, own);
    return own.compile;
  }

  /// The program for the entry: a quick one where the best is not known and its search goes on behind.
  KeptProgram compile(const Given& given, const compiler::ImportOptions& import, Entry& entry) {
    compiler::CompileOptions to = compile_options(given);
    entry.quick = to.effort == compiler::kQuickEffort;
    if (to.effort != compiler::kTieredEffort) return programs->compile(import, config, to);
    to.effort = compiler::kBestEffort;
    if (auto kept = programs->find(import, config, to)) return std::move(*kept);
    compiler::CompileOptions quick = to;
    quick.effort = compiler::kQuickEffort;
    KeptProgram program = programs->compile(import, config, quick);
    entry.quick = true;
    search_behind(given, import, to);
    return program;
  }

  /// Has the best program made; the run after that takes it.
  void search_behind(const Given& given, const compiler::ImportOptions& import, const compiler::CompileOptions& to) {
    if (!behind) behind.emplace(*source, config);
    behind->add(import, to, [this, given](KeptProgram best) {
      const std::lock_guard lock(mutex);
      const auto known =
          std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry->given == given; });
      Entry* entry = known == entries.end() ? nullptr : known->get();
      if (entry == nullptr) {
        entry = &add_entry(std::make_unique<Entry>());
        entry->given = given;
      }
      entry->close_candidates = best.close_candidates;
      entry->unfit_scales = best.unfit_scales;
      entry->better = std::make_shared<const program::Artifact>(std::move(best.artifact));
    });
  }

  Entry& add_entry(std::unique_ptr<Entry> entry) {
    // The one whose statistics may be asked for stays.
    if (entries.size() >= kKeptExecutables) entries.erase(entries.begin() + (entries.front().get() == last ? 1 : 0));
    entries.push_back(std::move(entry));
    return *entries.back();
  }

  /// Puts the better program in place of the quick one, which stays where the device has no room for the other.
  void improve(Entry& entry) {
    if (entry.better == nullptr) return;
    const std::shared_ptr<const program::Artifact> better = std::move(entry.better);
    entry.executor.reset();  // its memory first
    try {
      entry.executor = std::make_unique<runtime::Executor>(better, device);
      entry.artifact = better;
      entry.quick = false;
    } catch (const Error&) {
      if (entry.artifact == nullptr) {  // made ahead: there is no other
        entry.better = better;
        throw;
      }
      entry.executor = std::make_unique<runtime::Executor>(entry.artifact, device);
    }
  }

  Entry& prepare(const Given& given) {
    auto entry = std::make_unique<Entry>();
    entry->given = given;
    if (reference()) {
      entry->model = std::make_unique<compiler::Model>(import(given));
      entry->model->optimise({}, compiler::is_close(options.compile));
    } else {
      compiler::ImportOptions import = options.import;
      given.add_to(import);
      KeptProgram program = compile(given, import, *entry);
      entry->close_candidates = program.close_candidates;
      entry->unfit_scales = program.unfit_scales;
      entry->artifact = std::make_shared<const program::Artifact>(std::move(program.artifact));
      entry->executor = load(entry->artifact);
    }
    return add_entry(std::move(entry));
  }

  /// Where the device has no room for a program beside those that are kept, they go.
  std::unique_ptr<runtime::Executor> load(const std::shared_ptr<const program::Artifact>& artifact) {
    try {
      return std::make_unique<runtime::Executor>(artifact, device);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDoesNotFit || entries.empty()) throw;
    }
    last = nullptr;
    entries.clear();
    return std::make_unique<runtime::Executor>(artifact, device);
  }

  /// The shape for which a program is compiled: what grows stays open.
  ops::Shape key_of(const Port& port, ops::Shape shape) const {
    const auto axes = growing.find(port.name);
    if (axes == growing.end()) return shape;
    for (const size_t axis : axes->second) shape[axis] = compiler::ImportOptions::kOpen;
    return shape;
  }

  [[noreturn]] void refuse_device_memory() const {
    throw Error(ErrorCode::kUnsupported,
                "the reference device is an interpreter without memory of its own; bind to the host");
  }

  /// `ports`: the inputs and behind them the initializers that are given, one for each value.
  Entry& find(const std::vector<const Port*>& ports, const std::vector<Bound>& values) {
    Given given;
    for (size_t i = inputs.size(); i < ports.size(); ++i) given.overrides.insert(ports[i]->name);
    if (!loaded)
      for (size_t i = 0; i < ports.size(); ++i) {
        const Port& port = *ports[i];
        const auto* array = std::get_if<DeviceTensor>(&values[i]);
        const bool tensor = array || std::get<ops::Value>(values[i]).kind == ops::Value::Kind::kTensor;
        if (is_dynamic(port) || (!port.ranked && tensor))
          given.shapes[port.name] = key_of(port, array ? array->shape : std::get<ops::Value>(values[i]).tensor.shape());
      }
    if (has_lengths()) {
      const int64_t past = past_of(values);
      given.length = length_for(given, past);
      look_ahead(given, past);
    }
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i]->given != given) continue;
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
    return prepare(given);
  }
};

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}

Session::Session(const std::string& path, SessionOptions options) : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
  state_->options.import.litert_kernels = state_->options.compile.litert_kernels;
  state_->open(compiler::ModelSource::from_file(path));
}

Session Session::from_bytes(std::string_view bytes, SessionOptions options) {
  auto state = std::make_unique<State>();
  state->options = std::move(options);
  state->options.import.litert_kernels = state->options.compile.litert_kernels;
  state->open(compiler::ModelSource::from_bytes(std::string(bytes)));
  return Session(std::move(state));
}

Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

const std::vector<Port>& Session::inputs() const { return state_->shown_inputs; }
const std::vector<Port>& Session::outputs() const { return state_->shown_outputs; }
const std::vector<Port>& Session::overridable() const { return state_->overridable; }
bool Session::loads_artifact() const { return state_->loaded != nullptr; }
const std::vector<program::Past>& Session::pasts() const { return state_->pasts; }

namespace {

/// The index of a name among ports. Errors: kInvalidArgument, saying what there is.
size_t index_of(const std::vector<Port>& ports, const std::string& name, const char* kind, const char* verb) {
  const auto found = std::find_if(ports.begin(), ports.end(), [&](const Port& port) { return port.name == name; });
  if (found == ports.end())
    throw Error(ErrorCode::kInvalidArgument,
                std::string("the model has no ") + kind + " '" + name + "'; it " + verb + " " + known_names(ports));
  return static_cast<size_t>(found - ports.begin());
}

/// The input of a name, or the initializer that may be given in its place. Errors: as index_of.
const Port& input_port(const Session& session, const std::string& name) {
  for (const Port& port : session.overridable())
    if (port.name == name) return port;
  return session.inputs()[index_of(session.inputs(), name, "input", "takes")];
}

void check_bound(const Port& port, const Bound& value) {
  std::visit([&](const auto& v) { runtime::check_input(to_info(port), v); }, value);
}

}  // namespace

std::vector<ops::Value> Session::run(const NamedValues& feeds, const std::vector<std::string>& names) {
  NamedBounds bounds;
  for (const auto& [name, value] : feeds) bounds.emplace_back(name, value);
  std::vector<WantedOutput> wanted;
  for (const std::string& name : names) wanted.push_back({name, false});
  if (names.empty())
    for (const Port& port : state_->shown_outputs) wanted.push_back({port.name, false});
  std::vector<ops::Value> results;
  for (Bound& bound : run_bound(bounds, wanted)) results.push_back(std::move(std::get<ops::Value>(bound)));
  return results;
}

std::vector<Bound> Session::run_bound(const NamedBounds& feeds, const std::vector<WantedOutput>& wanted) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  std::vector<const Port*> ports;
  std::vector<Bound> values;
  const auto take = [&](const Port& port) {
    const auto found =
        std::find_if(feeds.begin(), feeds.end(), [&](const auto& feed) { return feed.first == port.name; });
    if (found == feeds.end()) return false;
    check_bound(port, found->second);
    ports.push_back(&port);
    values.push_back(found->second);
    return true;
  };
  for (const Port& port : s.shown_inputs)
    if (!take(port))
      throw Error(ErrorCode::kInvalidArgument,
                  "input '" + port.name + "' is missing; the model takes " + known_names(s.shown_inputs));
  for (size_t i = s.shown_inputs.size(); i < s.inputs.size(); ++i) {
    ports.push_back(&s.inputs[i]);
    values.emplace_back(s.state_of(i));
  }
  for (const Port& port : s.overridable) take(port);
  for (const auto& feed : feeds) input_port(*this, feed.first);
  std::vector<size_t> chosen;
  std::vector<bool> on_device(s.outputs.size(), false);
  for (const WantedOutput& output : wanted) {
    chosen.push_back(index_of(s.shown_outputs, output.name, "output", "gives"));
    if (output.on_device) on_device[chosen.back()] = true;
  }
  State::Entry& entry = s.find(ports, values);
  s.improve(entry);
  std::vector<Bound> results;
  if (entry.model) {
    std::vector<ops::Value> host;
    for (const Bound& value : values) {
      if (!std::holds_alternative<ops::Value>(value)) s.refuse_device_memory();
      host.push_back(std::get<ops::Value>(value));
    }
    if (std::find(on_device.begin(), on_device.end(), true) != on_device.end()) s.refuse_device_memory();
    for (ops::Value& result : entry.model->interpret(host)) results.emplace_back(std::move(result));
  } else {
    runtime::RunOptions run;
    run.check_races = s.options.check_races;
    run.poison = s.options.poison;
    run.profile = s.options.profile;
    run.progress = s.options.progress;
    run.threads = s.options.compile.threads;
    results = entry.executor->run_bound(values, on_device, run);
  }
  s.last = &entry;
  s.states.clear();
  for (size_t i = s.shown_outputs.size(); s.options.keep_state && i < s.outputs.size(); ++i)
    s.states.push_back(std::get<ops::Value>(results[i]));
  std::vector<Bound> out;
  for (size_t i : chosen) out.push_back(results[i]);
  return out;
}

void Session::reset_state() {
  const std::lock_guard lock(state_->mutex);
  state_->states.clear();
}

std::unique_ptr<driver::SharedChip::Attendance> Session::attend() const {
  return std::make_unique<driver::SharedChip::Attendance>(state_->device);
}

DeviceTensor Session::to_device(const ops::Tensor& tensor) const {
  if (state_->reference()) state_->refuse_device_memory();
  return runtime::to_device(state_->device, tensor, "tensor");
}

void IoBinding::bind_input(const std::string& name, Bound value) {
  check_bound(input_port(session_, name), value);
  const auto known =
      std::find_if(inputs_.begin(), inputs_.end(), [&](const auto& input) { return input.first == name; });
  if (known != inputs_.end())
    known->second = std::move(value);
  else
    inputs_.emplace_back(name, std::move(value));
}

void IoBinding::bind_output(const std::string& name, bool on_device) {
  index_of(session_.outputs(), name, "output", "gives");
  const auto known =
      std::find_if(wanted_.begin(), wanted_.end(), [&](const auto& output) { return output.name == name; });
  if (known != wanted_.end())
    known->on_device = on_device;
  else
    wanted_.push_back({name, on_device});
}

void IoBinding::clear_outputs() {
  wanted_.clear();
  outputs_.clear();
}

void IoBinding::run() {
  if (wanted_.empty())
    throw Error(ErrorCode::kInvalidArgument, "no output is bound; the model gives " + known_names(session_.outputs()));
  outputs_ = session_.run_bound(inputs_, wanted_);
}

void Session::prepare(const std::vector<std::map<std::string, ops::Shape>>& shapes) {
  State& s = *state_;
  if (s.reference() || s.loaded != nullptr)
    throw Error(ErrorCode::kInvalidArgument, "programs are prepared of an ONNX model on a machine");
  for (auto wanted = shapes.rbegin(); wanted != shapes.rend(); ++wanted) {  // the newest wish comes first
    for (const auto& [name, shape] : *wanted) index_of(s.shown_inputs, name, "input", "takes");
    State::Given given;
    for (const Port& port : s.inputs) {
      if (!is_dynamic(port)) continue;
      const auto found = wanted->find(port.name);
      if (found == wanted->end())
        throw Error(ErrorCode::kInvalidArgument, "input '" + port.name + "' is dynamic; give its shape, too");
      given.shapes[port.name] = s.key_of(port, found->second);
    }
    given.length = s.length_for(given, 0);
    const std::lock_guard lock(s.mutex);
    const auto known = [&](const auto& entry) { return entry->given == given; };
    if (std::any_of(s.entries.begin(), s.entries.end(), known)) continue;
    compiler::ImportOptions import = s.options.import;
    given.add_to(import);
    compiler::CompileOptions to = s.compile_options(given);
    to.effort = compiler::kBestEffort;
    s.search_behind(given, import, to);
  }
}

bool Session::searching() const { return state_->behind && state_->behind->busy(); }

void Session::finish_search() const {
  if (state_->behind) state_->behind->wait();
}

const program::Artifact& Session::artifact() {
  State& s = *state_;
  if (s.reference())
    throw Error(ErrorCode::kUnsupported, "the reference device interprets the model and has no artifact");
  if (s.last) return s.last->executor->artifact();
  if (s.loaded) return *s.loaded;
  if (s.entries.empty())
    throw Error(ErrorCode::kInvalidArgument, "the model has dynamic dimensions; give their sizes or run it once");
  const State::Entry& entry = *s.entries.back();
  return entry.artifact != nullptr ? *entry.artifact : *entry.better;
}

namespace {

/// Of a real DRAM.
std::optional<isa::DramFigures> dram_figures(const SessionOptions& options, const isa::MachineConfig& config) {
  const auto given = options.device_options.find("dram");
  if (given == options.device_options.end() || given->second == compiler::CompileOptions().dram) return std::nullopt;
  return isa::dram_figures(isa::dram_preset(given->second), config.memory_bytes());
}

/// Cycles to the first data.
int64_t dram_latency(const SessionOptions& options, const isa::MachineConfig& config) {
  if (const auto real = dram_figures(options, config)) return real->latency_cycles;
  const auto given = options.device_options.find("latency");
  return given == options.device_options.end() ? compiler::CompileOptions().dram_latency
                                               : std::strtoll(given->second.c_str(), nullptr, 10);
}

/// Bytes that the memory moves in a cycle, reads and writes together.
uint64_t dram_bandwidth(const SessionOptions& options, const isa::MachineConfig& config) {
  const auto width = static_cast<uint64_t>(config.memory_bytes());
  if (const auto real = dram_figures(options, config)) return static_cast<uint64_t>(real->bandwidth_bytes);
  const auto given = options.device_options.find("bandwidth");
  if (given == options.device_options.end()) return width;
  const uint64_t value = std::strtoull(given->second.c_str(), nullptr, 10);
  return value == 0 ? width : std::min(value, width);
}

}  // namespace

std::string Session::stats_json(int indent) const {
  const State& s = *state_;
  if (!s.last) throw Error(ErrorCode::kInvalidArgument, "statistics exist after a run");
  if (s.last->model) return statistics_json(s.options.device, indent);
  const program::Artifact& artifact = s.last->executor->artifact();
  return statistics_json(s.options.device, artifact, s.last->executor->report(),
                         dram_bandwidth(s.options, artifact.config), indent,
                         {s.last->close_candidates, s.last->unfit_scales, s.last->quick});
}

std::string Session::report_json() const {
  const State& s = *state_;
  RunFacts facts;
  facts.statistics = stats_json();
  facts.model = s.path.substr(s.path.rfind('/') + 1);
  const std::string machine = s.device ? s.device->machine() : "";
  facts.device = machine.empty() ? s.options.device : machine;
  // The graph is read again: what was compiled has become another.
  std::optional<nn::Listing> graph;
  if (!s.loaded) graph = s.import(s.last->given).listing();
  if (graph) facts.graph = &*graph;
  if (s.last->executor) {
    facts.artifact = &s.last->executor->artifact();
    facts.run = &s.last->executor->report();
    facts.dram_latency = dram_latency(s.options, facts.artifact->config);
    if (const auto real = dram_figures(s.options, facts.artifact->config)) facts.dram = real->cost.preset;
    facts.dram_bandwidth = static_cast<int64_t>(dram_bandwidth(s.options, facts.artifact->config));
  }
  return run_report_json(facts);
}

std::string Session::trace_json() const {
  const State& s = *state_;
  if (!s.last || !s.last->executor) throw Error(ErrorCode::kInvalidArgument, "a trace exists after a run on a machine");
  if (!s.device->can_profile())
    throw Error(ErrorCode::kUnsupported, "device " + s.options.device +
                                             " does not tell what single instructions do, so there is no trace; "
                                             "devices fsim, sysc and rtl do");
  return tessera::trace_json(s.last->executor->artifact(), s.last->executor->report());
}

}  // namespace tessera
