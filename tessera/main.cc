// SPDX-License-Identifier: Apache-2.0
// The `tessera` command: compile, run, quantize, explore, tune, serve, report, schedule, asm, disasm, info, keygen,
// sign, board, doctor, completion. Every error is one line on standard error that names the node or file, the cause and
// the way out; the exit status is then 1 (2 for a wrong command line).
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <new>
#include <string_view>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "compiler/pipeline/command_options.h"
#include "compiler/pipeline/plugin.h"
#include "driver/registry.h"
#include "isa/assembler.h"
#include "isa/program/signature.h"
#include "isa/verify.h"
#include "runtime/npy.h"
#include "tessera/board.h"
#include "tessera/command.h"
#include "tessera/completion.h"
#include "tessera/description.h"
#include "tessera/doctor.h"
#include "tessera/judges.h"
#include "tessera/message.h"
#include "tessera/page.h"
#include "tessera/quantise.h"
#include "tessera/report.h"
#include "tessera/run_report.h"
#include "tessera/session.h"
#include "tessera/tuned.h"

namespace {

using namespace tessera;

// Commands that are modules of the Python package.
constexpr std::pair<std::string_view, const char*> kInPython[] = {{"quantize", "tessera.quantization"},
                                                                  {"explore", "tessera.exploration"},
                                                                  {"tune", "tessera.tuning"},
                                                                  {"serve", "tessera.serving"}};

struct Arguments {
  std::string model, output, config, device, stats, trace, layout_default, source, wave;
  std::vector<std::string> shapes, inputs, outputs, layouts, device_options, schedules;
  std::vector<std::string> plugins, print_ir_after;
  std::string dump_dir;
  std::string html, model_explorer, explore;
  std::vector<std::string> compare;
  compiler::CompileOptions compile;  // the flags of the option table
  bool quiet = false, check_races = false, as_json = false, brief = false, print_ir = false, print_search = false;
  int64_t poison = -1, random_seed = -1;
  std::string base_address, xclbin;
  std::optional<std::string> trusted_keys;
  std::string key;
  std::string calibrate, engine, preprocess;  // of a float model that is quantised first
  BoardCommand board;
  const CLI::App* command = nullptr;  // that was given

  bool given(const std::string& flag) const { return command != nullptr && command->count(flag) > 0; }
};

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::kInvalidArgument, message); }

compiler::Progress progress(const Arguments& a) {
  if (a.quiet || !isatty(STDERR_FILENO)) return {};
  return [](const std::string& what, int64_t done, int64_t total) {
    std::fprintf(stderr, "\r\033[Ktessera: %s (%lld of %lld)%s", what.c_str(), static_cast<long long>(done),
                 static_cast<long long>(total), done + 1 >= total ? "\r\033[K" : "");
    std::fflush(stderr);
  };
}

/// One line on a terminal that says how far a program elsewhere is; it goes with the object.
class RunProgress {
 public:
  explicit RunProgress(const Arguments& a)
      : wanted_(!a.quiet && isatty(STDERR_FILENO) != 0 && a.device.starts_with("remote:")) {}
  ~RunProgress() {
    if (wanted_) std::fputs("\r\033[K", stderr);
  }
  RunProgress(const RunProgress&) = delete;
  RunProgress& operator=(const RunProgress&) = delete;

  std::function<void(bool, uint64_t)> observer(const Arguments& a) const {
    if (!wanted_) return {};
    return [device = a.device](bool waiting, uint64_t instructions) {
      if (waiting)
        std::fprintf(stderr, "\r\033[Ktessera: waits for its turn on %s", device.c_str());
      else
        std::fprintf(stderr, "\r\033[Ktessera: runs on %s, %llu instructions done", device.c_str(),
                     static_cast<unsigned long long>(instructions));
    };
  }

 private:
  bool wanted_;
};

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::kIo, "cannot open '" + path + "' for reading");
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void write_text(const std::string& path, const std::string& text) {
  if (path.empty() || path == "-") {
    std::cout << text;
    return;
  }
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) throw Error(ErrorCode::kIo, "cannot write '" + path + "'");
}

/// Writes the state after each step into numbered files, and prints the wanted ones without their constants.
compiler::SnapshotObserver snapshots(const Arguments& a) {
  if (a.dump_dir.empty() && a.print_ir_after.empty()) return {};
  if (!a.dump_dir.empty()) {
    std::error_code error;
    std::filesystem::create_directories(a.dump_dir, error);
    if (error) throw Error(ErrorCode::kIo, "cannot make the folder '" + a.dump_dir + "': " + error.message());
  }
  // Shared, because the observer is copied.
  return [&a, number = std::make_shared<int>(0)](const compiler::Snapshot& snapshot) {
    if (!a.dump_dir.empty()) {
      char count[16];
      std::snprintf(count, sizeof count, "%03d", (*number)++);
      write_text(a.dump_dir + "/" + count + "." + snapshot.step + "." + snapshot.extension, snapshot.text(false));
    }
    for (const std::string& wanted : a.print_ir_after) {
      if (wanted != "all" && wanted != snapshot.step) continue;
      std::cout << "// ----- after " << snapshot.step << "\n" << snapshot.text(true) << "\n";
      break;
    }
  };
}

bool holds_artifact(const Arguments& a, const std::string& bytes) {
  return is_artifact(bytes) || a.model.ends_with(".tsr");
}

std::span<const uint8_t> span_of(const std::string& bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

/// Runs a function on the bytes of the file `a.model`; what it throws names the file.
template <typename Function>
auto on_file(const Arguments& a, const std::string& bytes, Function&& function) {
  try {
    return function(span_of(bytes));
  } catch (const Error& error) {
    throw Error(error.code(), a.model + ": " + error.what());
  }
}

/// The artifact in `bytes`; with --trusted-keys its signature is looked at before it.
program::Artifact artifact_of(const Arguments& a, const std::string& bytes) {
  std::optional<program::TrustedKeys> keys;
  if (a.trusted_keys) keys = program::TrustedKeys::load(*a.trusted_keys);
  return on_file(a, bytes, [&](std::span<const uint8_t> content) {
    if (keys) program::require_trusted(content, *keys);
    return program::parse(content);
  });
}

compiler::CompileOptions compile_options(const Arguments& a) {
  register_device_judges();
  for (const std::string& plugin : a.plugins) compiler::load_plugin(plugin);
  compiler::CompileOptions options = a.compile;
  options.progress = progress(a);
  options.snapshots = snapshots(a);
  if (a.print_search) options.search_log = [](const std::string& text) { std::cout << text; };
  for (const std::string& file : a.schedules) {
    for (auto& [layer, schedule] : schedules_from(read_text(file), "schedule file '" + file + "'"))
      options.schedules[layer] = std::move(schedule);
  }
  return options;
}

compiler::ImportOptions import_options(const Arguments& a) {
  compiler::ImportOptions options;
  for (const std::string& text : a.shapes) compiler::parse_shape(text, options);
  return options;
}

/// The options of a compilation outside of a session, with what --tuned adds.
compiler::CompileOptions tuned_options(const Arguments& a, const compiler::ImportOptions& import) {
  SessionOptions options;
  options.config = a.config;
  options.import = import;
  options.compile = compile_options(a);
  add_tuned_schedules(options.compile, a.model, true, options);
  return options.compile;
}

SessionOptions session_options(const Arguments& a) {
  SessionOptions options;
  options.device = a.device.empty() ? "fsim" : a.device;
  options.config = a.config;
  options.import = import_options(a);
  options.compile = compile_options(a);
  options.check_races = a.check_races;
  if (a.poison >= 0) options.poison = static_cast<uint64_t>(a.poison);
  if (!a.base_address.empty()) {
    size_t used = 0;
    try {
      options.heap_base = std::stoull(a.base_address, &used, 0);
    } catch (const std::exception&) {
    }
    if (used != a.base_address.size()) refuse("--base-address takes a number, got '" + a.base_address + "'");
  }
  for (const std::string& text : a.device_options) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) refuse("--device-option takes NAME=VALUE, got '" + text + "'");
    options.device_options[text.substr(0, equals)] = text.substr(equals + 1);
  }
  // The memory that the program is made for is the one it runs with.
  const bool timed = options.device != "fsim" && options.device != "reference";
  if (timed && a.given("--dram-latency")) options.device_options["latency"] = std::to_string(a.compile.dram_latency);
  if (timed && a.given("--dram-bandwidth"))
    options.device_options["bandwidth"] = std::to_string(a.compile.dram_bandwidth);
  if (!a.wave.empty()) options.device_options["waves"] = a.wave;
  if (!a.xclbin.empty()) options.device_options["xclbin"] = a.xclbin;
  options.trusted_keys = a.trusted_keys;
  options.profile = !a.stats.empty() || !a.trace.empty();
  return options;
}

/// NHWC (or N..C of any rank) to NCHW.
ops::Tensor to_channels_first(const ops::Tensor& tensor, const std::string& name) {
  if (tensor.rank() < 3)
    refuse("input '" + name + "': layout NHWC needs at least three dimensions, got " + ops::to_string(tensor.shape()));
  const auto rank = static_cast<size_t>(tensor.rank());
  ops::Shape shape = {tensor.shape()[0], tensor.shape()[rank - 1]};
  shape.insert(shape.end(), tensor.shape().begin() + 1, tensor.shape().end() - 1);
  ops::Tensor out(tensor.dtype(), shape);
  const int64_t width = ops::element_bytes(tensor.dtype()), images = shape[0], channels = shape[1];
  int64_t pixels = 1;
  for (size_t i = 2; i < rank; ++i) pixels *= shape[i];
  const std::byte* from = tensor.data();
  std::byte* to = out.mutable_data();
  for (int64_t n = 0; n < images; ++n)
    for (int64_t p = 0; p < pixels; ++p)
      for (int64_t c = 0; c < channels; ++c)
        std::copy_n(from + ((n * pixels + p) * channels + c) * width, width,
                    to + ((n * channels + c) * pixels + p) * width);
  return out;
}

std::string port_list(const std::vector<Port>& ports) {
  std::string text;
  for (const Port& port : ports) text += (text.empty() ? "'" : ", '") + port.name + "'";
  return text;
}

ops::Tensor random_tensor(const Port& port, uint64_t seed) {
  ops::Shape shape = port.shape;
  for (int64_t& dim : shape)
    if (dim < 0) dim = 1;
  ops::Tensor tensor(port.dtype, shape);
  uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1;
  const auto next = [&] {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
  };
  const int64_t width = ops::element_bytes(port.dtype);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const uint64_t r = next() >> 20;
    switch (port.dtype) {
      case ops::DType::kFloat:
        tensor.as_mutable<float>()[static_cast<size_t>(i)] = static_cast<float>(r % 65536) / 32768.0f - 1.0f;
        break;
      case ops::DType::kDouble:
        tensor.as_mutable<double>()[static_cast<size_t>(i)] = static_cast<double>(r % 65536) / 32768.0 - 1.0;
        break;
      case ops::DType::kFloat16:
        tensor.as_mutable<uint16_t>()[static_cast<size_t>(i)] =
            ops::float_to_half(static_cast<float>(r % 65536) / 32768.0f - 1.0f);
        break;
      case ops::DType::kBool: tensor.as_mutable<uint8_t>()[static_cast<size_t>(i)] = r & 1; break;
      case ops::DType::kUint8:
      case ops::DType::kInt8: tensor.as_mutable<uint8_t>()[static_cast<size_t>(i)] = static_cast<uint8_t>(r); break;
      case ops::DType::kInt32:
        tensor.as_mutable<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(r % 8);
        break;
      case ops::DType::kInt64:
        tensor.as_mutable<int64_t>()[static_cast<size_t>(i)] = static_cast<int64_t>(r % 8);
        break;
      default:
        refuse("input '" + port.name + "': --random-inputs has no values of type " +
               std::string(ops::to_string(port.dtype)) + "; give a file");
    }
  }
  (void)width;
  return tensor;
}

/// What --input-layout says of an input: of its own name, or else of all.
std::string layout_of(const Arguments& a, const std::string& name) {
  std::string layout = a.layout_default;
  for (const std::string& text : a.layouts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos)
      layout = text;
    else if (text.substr(0, equals) == name)
      layout = text.substr(equals + 1);
  }
  if (!layout.empty() && layout != "NHWC" && layout != "NCHW")
    refuse("--input-layout takes NCHW or NHWC, got '" + layout + "'");
  return layout;
}

bool is_port(const std::vector<Port>& ports, const std::string& name) {
  return std::any_of(ports.begin(), ports.end(), [&](const Port& port) { return port.name == name; });
}

/// The two sides of --input NAME=FILE; without a name where the whole text is a file.
std::pair<std::string, std::string> name_and_file(const std::string& text, const std::vector<Port>& ports) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return {"", text};
  const std::string name = text.substr(0, equals);
  if (is_port(ports, name)) return {name, text.substr(equals + 1)};
  if (!std::ifstream(text)) refuse("the model has no input '" + name + "'; it takes " + port_list(ports));
  return {"", text};
}

/// The array of a file for one input: the only one, or that of the input's name.
ops::Tensor one_array(runtime::NamedTensors arrays, const std::string& file, const std::string& name) {
  if (arrays.size() == 1) return std::move(arrays[0].second);
  for (auto& [array, tensor] : arrays) {
    if (array == name) return std::move(tensor);
  }
  refuse("'" + file + "' holds several arrays and none is named '" + name + "'");
}

/// The arrays of one --input, by input.
runtime::NamedTensors read_input(const std::string& text, const std::vector<Port>& ports) {
  const auto [name, file] = name_and_file(text, ports);
  runtime::NamedTensors found;
  if (!file.ends_with(".npz")) {
    if (name.empty() && ports.size() != 1)
      refuse("the model has several inputs (" + port_list(ports) + "); give --input NAME=FILE for each");
    found.emplace_back(name.empty() ? ports[0].name : name, runtime::load_npy(file));
    return found;
  }
  auto arrays = runtime::load_npz(file);
  if (!name.empty() || (arrays.size() == 1 && ports.size() == 1)) {
    found.emplace_back(name.empty() ? ports[0].name : name, one_array(std::move(arrays), file, name));
    return found;
  }
  for (auto& [array, tensor] : arrays) {
    if (is_port(ports, array)) found.emplace_back(array, std::move(tensor));
  }
  if (found.empty()) refuse("'" + file + "' has no array named like an input; the model takes " + port_list(ports));
  return found;
}

NamedValues read_feeds(const Arguments& a, const std::vector<Port>& ports) {
  NamedValues feeds;
  for (const std::string& text : a.inputs) {
    for (auto& [name, tensor] : read_input(text, ports)) {
      if (layout_of(a, name) == "NHWC") tensor = to_channels_first(tensor, name);
      feeds.emplace_back(name, std::move(tensor));
    }
  }
  if (a.random_seed < 0) return feeds;
  uint64_t seed = static_cast<uint64_t>(a.random_seed);
  for (const Port& port : ports) {
    if (std::none_of(feeds.begin(), feeds.end(), [&](const auto& feed) { return feed.first == port.name; }))
      feeds.emplace_back(port.name, random_tensor(port, ++seed));
  }
  return feeds;
}

int compile_command(const Arguments& a) {
  const auto config = isa::find_config(a.config.empty() ? "npu256" : a.config);
  compiler::ImportOptions import = import_options(a);
  compiler::Model model = compiler::Model::from_file(a.model, import);
  if (a.print_ir) {
    model.optimise({}, compiler::is_close(a.compile));
    write_text(a.output, model.print());
    return 0;
  }
  // A dynamic batch is 1 unless said otherwise; any other dynamic dimension must be given.
  const auto batches = compiler::batches_of_one(model);
  for (const auto& [name, shape] : batches) {
    import.shapes[name] = shape;
    if (!a.quiet)
      std::fprintf(stderr, "tessera: input '%s': compiling for batch 1 (%s); use --shape to choose another\n",
                   name.c_str(), ops::to_string(shape).c_str());
  }
  if (!batches.empty()) model = compiler::Model::from_file(a.model, import);
  const program::Artifact artifact = model.compile(config, tuned_options(a, import));
  const std::string output = a.output.empty() ? a.model.substr(0, a.model.rfind('.')) + ".tsr" : a.output;
  program::save(artifact, output);
  if (!a.quiet) std::printf("%s: %s\n", output.c_str(), description_in_short(description_json(artifact)).c_str());
  return 0;
}

/// The float model of the command line, quantised; null without --calibrate.
std::unique_ptr<QuantisedModel> quantised(const Arguments& a) {
  if (a.calibrate.empty()) {
    if (!a.engine.empty() || !a.preprocess.empty())
      refuse("--engine and --preprocess say how a model is quantised; add --calibrate DATA");
    return nullptr;
  }
  if (is_artifact(read_text(a.model)))
    refuse("'" + a.model + "' is compiled already; --calibrate takes a float ONNX model");
  std::vector<std::string> words = {"--calibrate", a.calibrate, "--part-of-run"};
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {flag, value});
  };
  add("--engine", a.engine);
  add("--preprocess", a.preprocess);
  add("--config", a.config);
  for (const std::string& shape : a.shapes) add("--shape", shape);
  if (a.quiet) words.emplace_back("--quiet");
  return std::make_unique<QuantisedModel>(a.model, words);
}

int run_command(const Arguments& a) {
  const std::unique_ptr<QuantisedModel> made = quantised(a);
  if (made && made->status() != 0) return made->status();
  SessionOptions options = session_options(a);
  const RunProgress line(a);
  options.progress = line.observer(a);
  Session session(made ? made->path() : a.model, std::move(options));
  const NamedValues feeds = read_feeds(a, session.inputs());
  const auto results = session.run(feeds, a.outputs);
  runtime::NamedTensors named;
  std::vector<std::string> names = a.outputs;
  if (names.empty())
    for (const Port& port : session.outputs()) names.push_back(port.name);
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].kind == ops::Value::Kind::kTensor) {
      named.emplace_back(names[i], results[i].tensor);
    } else if (results[i].kind == ops::Value::Kind::kSequence) {
      for (size_t k = 0; k < results[i].sequence.size(); ++k)
        named.emplace_back(names[i] + "." + std::to_string(k), results[i].sequence[k].tensor);
    }
  }
  if (!a.output.empty()) {
    if (a.output.ends_with(".npy")) {
      if (named.size() != 1)
        refuse("the model gives " + std::to_string(named.size()) +
               " tensors; write them to an .npz file or choose one with --outputs");
      runtime::save_npy(a.output, named[0].second);
    } else {
      runtime::save_npz(a.output, named);
    }
  }
  if (!a.stats.empty()) write_text(a.stats, session.stats_json(2) + "\n");
  if (!a.trace.empty()) write_text(a.trace, session.trace_json() + "\n");
  if (!a.quiet) {
    for (const auto& [name, tensor] : named)
      std::printf("%s: %s %s\n", name.c_str(), std::string(ops::to_string(tensor.dtype())).c_str(),
                  ops::to_string(tensor.shape()).c_str());
    const std::string sums = run_text(session.stats_json());
    if (!sums.empty()) std::printf("%s\n", sums.c_str());
    const std::string note = float_note(session.stats_json(), a.model);
    if (!note.empty()) std::fprintf(stderr, "tessera: %s\n", note.c_str());
  }
  return 0;
}

/// What a session gives for the model, or the content of a file that a run has written.
std::string statistics_or_report(Arguments& a, bool versioned) {
  std::string text = read_text(a.model);
  if (!text.empty() && text[0] == '{') return text;
  if (a.device.empty()) {
    a.device = "fsim";
    for (const auto& backend : driver::backends())
      if (backend.name == "sysc") a.device = "sysc";
  }
  if (a.random_seed < 0) a.random_seed = 1;
  SessionOptions options = session_options(a);
  options.profile = true;
  Session session(a.model, std::move(options));
  session.run(read_feeds(a, session.inputs()));
  return versioned ? session.report_json() : session.stats_json();
}

int report_command(Arguments a) {
  const bool files = !a.html.empty() || !a.model_explorer.empty();
  if (a.model.empty() && a.compare.empty() && a.explore.empty())
    refuse("give a model, or the reports of runs with --compare");
  if ((!a.compare.empty() || !a.explore.empty()) && a.html.empty())
    refuse("--compare and --explore show on a page what was found before; give --html FILE too");
  std::vector<NamedReport> runs;
  std::string text;
  const std::string from = "'" + a.model + "'";
  if (!a.model.empty()) text = statistics_or_report(a, files || a.as_json);
  if (files && !a.model.empty()) runs.push_back({name_of_report(text, from), text});
  for (const std::string& file : a.compare) {
    const std::string saved = read_text(file);
    check_report(saved, "'" + file + "'");
    runs.push_back({std::filesystem::path(file).stem().string(), saved});
  }
  if (!a.html.empty()) write_text(a.html, page_html(runs, a.explore.empty() ? "" : read_text(a.explore)));
  if (!a.model_explorer.empty()) {
    if (runs.empty()) refuse("--model-explorer needs the model or its report");
    write_text(a.model_explorer, model_explorer_json(runs[0].json, from));
  }
  if (a.model.empty() || (files && !a.as_json && a.output.empty())) return 0;
  const std::string table = report_text(text, !a.brief, from);  // refuses what is no report
  write_text(a.output, a.as_json ? text : table);
  return 0;
}

int schedule_command(const Arguments& a) {
  program::Artifact artifact;
  const std::string bytes = read_text(a.model);
  if (holds_artifact(a, bytes)) {
    artifact = artifact_of(a, bytes);
  } else {
    compiler::Model model = compiler::Model::from_file(a.model, import_options(a));
    artifact =
        model.compile(isa::find_config(a.config.empty() ? "npu256" : a.config), tuned_options(a, import_options(a)));
  }
  write_text(a.output, schedules_text(schedules_json(artifact)));
  return 0;
}

int asm_command(const Arguments& a) {
  const auto program = isa::assemble(read_text(a.model), a.model);
  isa::check_program(program, isa::find_config(a.config.empty() ? "npu256" : a.config));
  std::string bytes;
  for (const isa::Instruction& instruction : program) {
    const isa::Word word = isa::encode(instruction);
    bytes.append(reinterpret_cast<const char*>(word.data()), word.size());
  }
  write_text(a.output.empty() ? a.model.substr(0, a.model.rfind('.')) + ".bin" : a.output, bytes);
  return 0;
}

int disasm_command(const Arguments& a) {
  const std::string bytes = read_text(a.model);
  std::string text;
  if (holds_artifact(a, bytes)) {
    const program::Artifact artifact = artifact_of(a, bytes);
    for (size_t p = 0; p < artifact.npu_programs.size(); ++p) {
      const program::NpuProgram& npu = artifact.npu_programs[p];
      std::vector<std::string> notes;
      for (uint32_t layer : npu.layer_of_instruction)
        notes.push_back(layer < npu.layers.size() ? npu.layers[layer].name + " (" + npu.layers[layer].op + ")" : "");
      text += "# program " + std::to_string(p) + " for " + artifact.config.name + "\n" +
              isa::listing(program::instructions_of(npu), notes);
    }
  } else {
    if (bytes.size() % 64 != 0)
      throw Error(ErrorCode::kInvalidProgram,
                  "'" + a.model + "' is no artifact and no whole number of 64-byte instructions");
    program::NpuProgram raw;
    raw.instructions.assign(bytes.begin(), bytes.end());
    text = isa::listing(program::instructions_of(raw));
  }
  write_text(a.output, text);
  return 0;
}

int info_command(const Arguments& a) {
  program::Artifact artifact;
  std::optional<std::string> signer;
  const std::string bytes = read_text(a.model);
  if (holds_artifact(a, bytes)) {
    artifact = artifact_of(a, bytes);
    const auto key = on_file(a, bytes, program::signer);
    signer = key ? program::to_text(*key) : "";
  } else {
    compiler::Model model = compiler::Model::from_file(a.model, import_options(a));
    artifact =
        model.compile(isa::find_config(a.config.empty() ? "npu256" : a.config), tuned_options(a, import_options(a)));
  }
  const std::string description = description_json(artifact, a.as_json ? 2 : -1, signer);
  std::cout << (a.as_json ? description + "\n" : description_text(description));
  return 0;
}

/// The report of a bug keeps its lines.
std::string shown(const Error& error) {
  return error.code() == ErrorCode::kInternal ? std::string(error.what()) : one_line(error.what());
}

int keygen_command(const Arguments& a) {
  const program::PublicKey key = program::make_key(a.output);
  if (!a.quiet)
    std::printf("%s.key: secret, for tessera sign --key\n%s.pub: for --trusted-keys, key %s\n", a.output.c_str(),
                a.output.c_str(), program::to_text(key).c_str());
  return 0;
}

int sign_command(const Arguments& a) {
  const std::string bytes = read_text(a.model);
  const program::SecretKey key = program::load_secret_key(a.key);
  const std::vector<uint8_t> made = on_file(a, bytes, [&](std::span<const uint8_t> content) {
    program::parse(content);  // who signs answers for a whole artifact
    return program::sign(content, key);
  });
  // The file changes at once or not at all.
  const std::string output = a.output.empty() ? a.model : a.output, beside = output + ".signing";
  write_text(beside, std::string(made.begin(), made.end()));
  std::error_code error;
  std::filesystem::rename(beside, output, error);
  if (error) throw Error(ErrorCode::kIo, "cannot write '" + output + "': " + error.message());
  if (!a.quiet) std::printf("%s: signed\n", output.c_str());
  return 0;
}

int print(const std::string& text) {
  std::cout << text;
  return 0;
}

/// A line that works as it stands on the files of the repository, or after the lines of other commands.
const char* example_of(const std::string& command) {
  constexpr std::pair<std::string_view, const char*> kExamples[] = {
      {"compile", "tessera compile model.onnx -o model.tsr --config npu256"},
      {"run", "tessera run model.onnx --device sysc --input image.npy --output result.npz --stats stats.json"},
      {"quantize", "tessera quantize model.onnx --calibrate images.npz -o model_int8.onnx"},
      {"explore", "tessera explore space.toml --network model_int8.onnx -o front.json"},
      {"tune", "tessera tune model_int8.onnx --config npu256 --trials 100 --db tuned.db"},
      {"serve", "tessera serve --device sysc --listen 127.0.0.1:9190"},
      {"report", "tessera report model.onnx --config npu64"},
      {"schedule", "tessera schedule model.onnx -o schedules.json"},
      {"asm", "tessera asm program.asm -o program.bin"},
      {"disasm", "tessera disasm model.tsr"},
      {"info", "tessera info model.tsr"},
      {"keygen", "tessera keygen release"},
      {"sign", "tessera sign model.tsr --key release.key"},
      {"board", "tessera board -- tessera run model.onnx --device xrt --random-inputs 1"},
      {"doctor", "tessera doctor"},
      {"completion", "source <(tessera completion bash)"},
  };
  for (const auto& [name, line] : kExamples) {
    if (name == command) return line;
  }
  invariant_failed("example", __FILE__, __LINE__, "the command '" + command + "' has no example");
}

}  // namespace

int tessera::run_command_line(int argc, char** argv) {
  CLI::App app{"Tessera: ONNX models on an open NPU", "tessera"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "tessera " TESSERA_VERSION);
  Arguments a;
  const auto common = [&](CLI::App* command) {
    command->add_option("--config", a.config,
                        "configuration: npu64, npu256, npu256t, npu1024 or another of hw/configs, or a .toml file");
    command->add_flag("-q,--quiet", a.quiet, "print nothing but errors");
  };
  const auto loading = [&](CLI::App* command) {
    command->add_option("--trusted-keys", a.trusted_keys,
                        "file or folder of public keys: refuse artifacts that none of them has signed");
  };
  const auto compiling = [&](CLI::App* command) {
    command->add_option("--shape", a.shapes, "NAME=D0,D1,...: shape of an input; DIMENSION=N: a symbolic dimension")
        ->allow_extra_args(false);
    command
        ->add_option("--schedule", a.schedules,
                     "JSON file from layers to schedules (tessera schedule), or --stats of a run")
        ->allow_extra_args(false);
    compiler::add_options(*command, a.compile);
    command->add_option("--plugin", a.plugins, "shared object that adds to the compiler: passes, matchers, intrinsics")
        ->allow_extra_args(false);
  };

  auto* compile = app.add_subcommand("compile", "compile an ONNX model to an artifact (.tsr)");
  compile->add_option("model", a.model, "ONNX file")->required();
  compile->add_option("-o,--output", a.output, "artifact to write");
  compile->add_flag("--print-ir", a.print_ir, "print the graph after the passes of nn instead");
  compile
      ->add_option("--print-ir-after", a.print_ir_after,
                   "print the graph after this pass, or after every one (all), without large constants")
      ->allow_extra_args(false);
  compile->add_flag("--print-search", a.print_search,
                    "print the candidates of every layer with their estimated and replayed cost");
  compile->add_option("--dump-dir", a.dump_dir,
                      "folder for numbered files of the graph after every pass, which tessera-opt reads");
  common(compile);
  compiling(compile);

  const auto running = [&](CLI::App* command) {
    command->add_option("--input", a.inputs, "FILE, or NAME=FILE where there are several inputs (.npy, .npz)")
        ->allow_extra_args(false);
    command->add_option("--input-layout", a.layouts, "NHWC, or NAME=NHWC: the file's layout where the model takes NCHW")
        ->allow_extra_args(false);
    command->add_option("--random-inputs", a.random_seed, "fill inputs without a file from this seed");
    command->add_option("--xclbin", a.xclbin, "the image for the card; device xrt");
    command->add_option("--device-option", a.device_options, "NAME=VALUE for the device")->allow_extra_args(false);
  };
  auto* run = app.add_subcommand("run", "run a model (.onnx) or an artifact (.tsr)");
  run->add_option("model", a.model, "ONNX file or artifact")->required();
  std::string devices = "reference";
  for (const auto& backend : driver::backends()) devices += ", " + backend.name;
  run->add_option("--device", a.device, "where: " + devices + "; default fsim");
  run->add_option("-o,--output", a.output, "results (.npz, or .npy for one)");
  run->add_option("--outputs", a.outputs, "names of the results wanted")->delimiter(',');
  run->add_option("--stats", a.stats, "statistics as JSON (- prints them)");
  run->add_option("--trace", a.trace, "trace in the Chrome format, for Perfetto");
  run->add_flag("--check-races", a.check_races, "report accesses that no chain of signals orders");
  run->add_option("--poison", a.poison, "fill scratchpads and fresh device memory from this seed");
  run->add_option("--base-address", a.base_address, "first address of device memory");
  run->add_option("--wave", a.wave, "waveforms of every cycle (FST); device rtl");
  run->add_option("--calibrate", a.calibrate,
                  "quantise a float model first, on this data (tessera quantize --help): .npz, a folder, or random");
  run->add_option("--engine", a.engine, "of --calibrate: nncf or onnxruntime");
  run->add_option("--preprocess", a.preprocess, "of --calibrate, for pictures: imagenet, unit or a TOML file");
  running(run);
  common(run);
  loading(run);
  compiling(run);

  app.add_subcommand("quantize", "quantise a float ONNX model for the NPU; quantize --help lists its options")
      ->prefix_command();
  app.add_subcommand("explore",
                     "which machine to build: a space of machines times networks, the Pareto front; explore --help "
                     "lists its options")
      ->prefix_command();

  app.add_subcommand("tune",
                     "schedules of a model, found by measuring, into a database for --tuned; tune --help lists its "
                     "options")
      ->prefix_command();

  app.add_subcommand("serve", "devices and models for clients across the network; serve --help lists its options")
      ->prefix_command();

  auto* report = app.add_subcommand("report", "where the cycles and bytes of each layer go, as a table");
  report->add_option("model", a.model, "ONNX file, artifact, or the JSON that report --json or run --stats wrote");
  report->add_option("--device", a.device, "where: " + devices + "; default sysc");
  report->add_option("-o,--output", a.output, "file to write instead of standard output");
  report->add_option("--html", a.html, "page for the browser to write: timeline, roofline, graph, memory, tables");
  report->add_option("--compare", a.compare, "reports of other runs (report --json) to stand beside it on the page");
  report->add_option("--explore", a.explore, "what `tessera explore -o` wrote, to show on the page");
  report->add_option("--model-explorer", a.model_explorer, "node data to write for the overlay of Model Explorer");
  report->add_flag("--json", a.as_json, "the versioned report as JSON (docs/report.md) in place of the table");
  report->add_flag("--brief", a.brief, "without the schedules");
  running(report);
  common(report);
  loading(report);
  compiling(report);

  auto* schedule = app.add_subcommand("schedule", "write the schedules of all layers to a file for --schedule");
  schedule->add_option("model", a.model, "ONNX file or artifact")->required();
  schedule->add_option("-o,--output", a.output, "file to write instead of standard output");
  common(schedule);
  loading(schedule);
  compiling(schedule);

  auto* assemble = app.add_subcommand("asm", "assemble instructions");
  assemble->add_option("source", a.model, "assembly")->required();
  assemble->add_option("-o,--output", a.output, "instructions to write, 64 bytes each");
  common(assemble);

  auto* disassemble =
      app.add_subcommand("disasm", "print the instructions of an artifact or of assembled instructions");
  disassemble->add_option("file", a.model, "artifact (.tsr) or instructions (.bin)")->required();
  disassemble->add_option("-o,--output", a.output, "file to write instead of standard output");
  loading(disassemble);

  auto* info = app.add_subcommand("info", "what an artifact or a model consists of and where it runs");
  info->add_option("model", a.model, "artifact or ONNX file")->required();
  info->add_flag("--json", a.as_json, "as JSON");
  common(info);
  loading(info);
  compiling(info);

  auto* keygen = app.add_subcommand("keygen", "make a key to sign artifacts with: NAME.key and NAME.pub");
  keygen->add_option("name", a.output, "path of both files without their endings")->required();
  keygen->add_flag("-q,--quiet", a.quiet, "print nothing but errors");
  auto* sign = app.add_subcommand("sign", "sign an artifact, so that --trusted-keys accepts it");
  sign->add_option("file", a.model, "artifact")->required();
  sign->add_option("--key", a.key, "secret key of tessera keygen (.key)")->required();
  sign->add_option("-o,--output", a.output, "file to write instead of the artifact itself");
  sign->add_flag("-q,--quiet", a.quiet, "print nothing but errors");

  auto* board = app.add_subcommand("board",
                                   "run a command with a simulated card for device xrt: tessera board -- COMMAND; "
                                   "without one, print the environment and wait");
  board->add_option("--config", a.board.config, "configuration of the machine on the card (default npu256)");
  board->add_option("--units", a.board.units, "compute units, 1 to 8");
  board->add_option("--dram-latency", a.board.latency_cycles, "cycles from a request to its first data")
      ->check(CLI::PositiveNumber);
  board->add_option("--dram-bandwidth", a.board.bandwidth_bytes, "bytes a cycle, reads and writes together")
      ->check(CLI::PositiveNumber);
  board->add_option("--write-xclbin", a.board.write_xclbin, "write the card's image to a file, and nothing else");
  board->add_flag("-v,--verbose", a.board.verbose, "say which processes come and go");
  board->prefix_command();

  auto* doctor = app.add_subcommand("doctor", "what this installation can do, and how to get what is missing");
  doctor->add_flag("--json", a.as_json, "as JSON");

  auto* completion = app.add_subcommand("completion", "print a script that completes this command in a shell");
  completion->add_option("shell", a.source, "bash, zsh or fish")->required();

  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    command->footer(std::string("Example:\n  ") + example_of(command->get_name()));

  // What follows "--" is another program's command line.
  for (int k = 2; k < argc && std::string_view(argv[1]) == "board"; ++k) {
    if (std::string_view(argv[k]) != "--") continue;
    a.board.command.assign(argv + k + 1, argv + argc);
    argc = k;
  }
  try {
    // What is Python reads its own command line.
    for (const auto& [name, module] : kInPython)
      if (argc > 1 && name == argv[1]) become_python(module, {argv + 2, argv + argc});
    app.parse(argc, argv);
  } catch (const Error& e) {
    std::fprintf(stderr, "tessera: error (%s): %s\n", std::string(to_string(e.code())).c_str(), shown(e).c_str());
    return 1;
  } catch (const CLI::ParseError& e) {
    const int status = app.exit(e);
    return status == 0 ? 0 : 2;
  }
  a.command = app.get_subcommands().front();
  try {
    if (*compile) return compile_command(a);
    if (*run) return run_command(a);
    if (*report) return report_command(a);
    if (*schedule) return schedule_command(a);
    if (*assemble) return asm_command(a);
    if (*disassemble) return disasm_command(a);
    if (*keygen) return keygen_command(a);
    if (*sign) return sign_command(a);
    if (*doctor) return print(doctor_report(a.as_json));
    if (*completion) return print(completion_script(app, a.source));
    if (*board) {
      if (a.board.command.empty()) a.board.command = board->remaining();
      return run_board(a.board);
    }
    return info_command(a);
  } catch (const Error& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "tessera: error (%s): %s\n", std::string(to_string(e.code())).c_str(), shown(e).c_str());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "tessera: error (does_not_fit): the host has not enough memory for this model\n");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tessera: error (internal): %s\n", e.what());
  }
  return 1;
}
