// SPDX-License-Identifier: Apache-2.0
// The commands that take a model: compile, run, report, schedule, info.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>

#include <nlohmann/json.hpp>

#include "base/step_times.h"
#include "compiler/cpu/code/target.h"
#include "driver/registry.h"
#include "isa/program/signature.h"
#include "runtime/npy.h"
#include "tessera/bare_metal/bare_metal.h"
#include "tessera/command/commands.h"
#include "tessera/command/feeds.h"
#include "tessera/command/quantise.h"
#include "tessera/kept_programs.h"
#include "tessera/message.h"
#include "tessera/quantised_for.h"
#include "tessera/report/description.h"
#include "tessera/report/page.h"
#include "tessera/report/report.h"
#include "tessera/report/run_report.h"
#include "tessera/tuning/shape_ranges.h"
#include "tessera/tuning/tuned.h"

namespace tessera {
namespace {

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

/// A sentence for a person.
void say(const std::string& sentence) {
  if (!sentence.empty()) std::fprintf(stderr, "tessera: %s\n", one_line(sentence).c_str());
}

/// The options of a session for a file, an ONNX model's machine and numerics among them, of which a person is told.
SessionOptions options_for(const Arguments& a, const std::string& model) {
  SessionOptions options = session_options(a);
  // A command runs a program once.
  if (options.compile.effort == compiler::kAutoEffort) options.compile.effort = compiler::kBestEffort;
  const std::string bytes = read_text(model);
  if (is_artifact(bytes) || model.ends_with(".tsr")) return options;
  const std::string note = take_quantised_for(bytes, options);
  if (!a.quiet) say(note);
  return options;
}

/// The options of a model that is compiled and not run: its machine is what the chosen cores make.
SessionOptions options_to_compile(const Arguments& a) {
  SessionOptions options = options_for(a, a.model);
  if (options.cores.empty()) return options;
  const isa::MachineConfig chip = isa::find_config(options.config);
  driver::require_cores(chip, options.cores);
  options.config = isa::to_toml(driver::part_of(chip, static_cast<int>(options.cores.size())));
  options.cores.clear();
  return options;
}

/// A line for each step: seconds and share.
std::string times_table(const StepTimes& times) {
  double all = 0;
  for (const auto& [step, seconds] : times.rows()) all += seconds;
  std::string text;
  const auto add = [&](const std::string& step, double seconds) {
    char numbers[32];
    std::snprintf(numbers, sizeof numbers, "%8.3f %5.1f %%  ", seconds, all > 0 ? 100 * seconds / all : 0.0);
    text += numbers + step + "\n";
  };
  for (const auto& [step, seconds] : times.rows()) add(step, seconds);
  add("all", all);
  return text;
}

/// The artifact of a model. A dynamic batch is 1 unless said otherwise; any other dynamic dimension must be given.
KeptProgram compiled(const Arguments& a) {
  const SessionOptions given = options_to_compile(a);
  const auto config = isa::find_config(given.config);
  compiler::ImportOptions import = given.import;
  compiler::CompileOptions options = given.compile;
  const auto source = compiler::ModelSource::from_file(a.model);
  KeptPrograms programs(source, options);
  const std::vector<Port> inputs =
      timed(options.times.get(), "import", [&] { return programs.interface(import); }).inputs;
  if (options.max_length == 0) {
    for (const auto& [name, shape] : quantised_shapes(source.bytes(), inputs, import)) {
      import.shapes[name] = shape;
      if (!a.quiet)
        std::fprintf(stderr,
                     "tessera: input '%s': compiling for the shape that it was quantised with, %s; use --shape "
                     "to choose another\n",
                     name.c_str(), ops::to_string(shape).c_str());
    }
  }
  for (const auto& [name, shape] : compiler::batches_of_one(inputs)) {
    import.shapes[name] = shape;
    if (!a.quiet)
      std::fprintf(stderr, "tessera: input '%s': compiling for batch 1 (%s); use --shape to choose another\n",
                   name.c_str(), ops::to_string(shape).c_str());
  }
  if (!options.tuned.empty()) {
    SessionOptions own = given;
    own.import = import;
    add_tuned_schedules(options, source, own);
  }
  KeptProgram program = programs.compile(import, config, options);
  if (options.times) std::fputs(times_table(*options.times).c_str(), stdout);
  return program;
}

/// Programs for all shapes that will come, into the cache.
int compile_ahead(const Arguments& a) {
  if (!a.output.empty()) refuse("--shapes compiles many programs into the cache; leave -o out");
  const SessionOptions given = options_to_compile(a);
  const auto config = isa::find_config(given.config);
  const auto source = compiler::ModelSource::from_file(a.model);
  KeptPrograms programs(source, given.compile);
  if (!programs.keeps()) refuse("--shapes fills the cache of programs, which is off here; name a folder with --cache");
  for (const auto& shapes : shapes_of_ranges(a.shape_ranges)) {
    SessionOptions own = given;
    std::string line;
    for (const auto& [name, shape] : shapes) {
      own.import.shapes[name] = shape;
      line += (line.empty() ? "" : ", ") + name + " " + ops::to_string(shape);
    }
    if (!own.compile.tuned.empty()) add_tuned_schedules(own.compile, source, own);
    const bool known = programs.find(own.import, config, own.compile).has_value();
    if (!known) programs.compile(own.import, config, own.compile);
    if (!a.quiet) std::printf("%s: %s\n", line.c_str(), known ? "was there" : "compiled");
  }
  return 0;
}

/// What a session gives for the model, or the content of a file that a run has written.
std::string statistics_or_report(Arguments& a, bool versioned) {
  std::string text = read_text(a.model);
  if (!text.empty() && text[0] == '{') {
    for (const std::string& flag : a.given_besides(
             {"--output", "--html", "--compare", "--explore", "--model-explorer", "--json", "--brief", "--quiet"}))
      refuse("'" + a.model + "' is the report of a run that is over; it cannot heed " + flag);
    return text;
  }
  if (a.device == "reference" && !versioned)
    refuse(
        "the reference device is an interpreter and has no layers of a machine for a table; --json and --html show "
        "what it knows");
  if (a.device.empty()) {
    a.device = "fsim";
    for (const auto& backend : driver::backends())
      if (backend.name == "sysc") a.device = "sysc";
  }
  if (a.random_seed < 0) a.random_seed = 1;
  SessionOptions options = options_for(a, a.model);
  options.profile = true;
  Session session(a.model, std::move(options));
  session.run(read_feeds(a, session, a.model));
  return versioned ? session.report_json() : session.stats_json();
}

/// Refuses a --print-ir-after that has printed nothing.
void require_printed(const Arguments& a) {
  for (const std::string& wanted : a.print_ir_after) {
    if (wanted == "all" || std::find(a.steps->begin(), a.steps->end(), wanted) != a.steps->end()) continue;
    std::string steps;
    for (const std::string& step : *a.steps) steps += (steps.empty() ? "" : ", ") + step;
    refuse("--print-ir-after '" + wanted + "' is no step of this compilation; its steps are " + steps);
  }
}

}  // namespace

int compile_command(const Arguments& a) {
  if (holds_artifact(a, read_text(a.model))) refuse("'" + a.model + "' is compiled already; give the ONNX model");
  if (a.print_ir) {
    compiler::Model model = compiler::Model::from_file(a.model, import_options(a));
    model.optimise({}, compiler::is_close(options_for(a, a.model).compile));
    write_text(a.output, model.print());
    return 0;
  }
  if (!a.shape_ranges.empty()) return compile_ahead(a);
  const auto [artifact, close_candidates, unfit_scales] = compiled(a);
  require_printed(a);
  const std::string output = a.output.empty() ? a.model.substr(0, a.model.rfind('.')) + ".tsr" : a.output;
  program::save(artifact, output);
  if (a.quiet) return 0;
  const std::string description = description_json(artifact);
  std::printf("%s: %s\n", output.c_str(), description_in_short(description).c_str());
  if (a.compile.use_npu) say(float_note(description, a.model, unfit_scales));
  say(option_note(description, close_candidates));
  return 0;
}

namespace {

/// A size in bytes, or with K or M behind it in KiB or MiB; 0 for nothing. Errors: kInvalidArgument.
uint64_t size_of(const std::string& flag, const std::string& text) {
  if (text.empty()) return 0;
  size_t used = 0;
  uint64_t size = 0;
  try {
    size = std::stoull(text, &used, 0);
  } catch (const std::exception&) {
    used = 0;
  }
  const std::string unit = text.substr(used);
  const int shift = unit == "K" ? 10 : unit == "M" ? 20 : 0;
  if (used == 0 || text[0] == '-' || (shift == 0 && !unit.empty()) || size == 0 || size > UINT32_MAX >> shift)
    refuse(flag + " takes a size below 4 GiB, such as 65536, 512K or 32M, not '" + text + "'");
  return size << shift;
}

/// What export heeds of an artifact: the processor, and with --cores the chip that the core is one of.
std::set<std::string> export_heeds(const Arguments& a) {
  if (a.cores.empty()) return {"cpu_target"};
  return {"cpu_target", "config", "cores"};
}

}  // namespace

int export_command(Arguments a) {
  if (!a.bare_metal) refuse("export makes firmware; say so with --bare-metal");
  if (a.output.empty()) refuse("give the folder to write with -o");
  const bare_metal::Target& target = bare_metal::find_target(a.target);
  std::string& processor = a.compile.cpu_target;
  if (processor == cpu::kHost) processor = target.processor;
  bare_metal::Options options;
  options.processor = cpu::find_bare_target(processor);
  if (!target.port.empty() && !options.processor.triple.starts_with("riscv"))
    refuse("firmware of target '" + a.target + "' is for RISC-V; for '" + processor +
           "' export with --target generic-c");
  options.target = target;
  options.model = std::filesystem::path(a.model).stem().string();
  options.library_math = a.library_math;
  options.rom = size_of("--rom", a.rom);
  options.ram = a.ram.empty() ? target.bytes : size_of("--ram", a.ram);
  const std::string bytes = read_text(a.model);
  const program::Artifact artifact =
      holds_artifact(a, bytes) ? compiled_artifact_of(a, bytes, export_heeds(a)) : compiled(a).artifact;
  const std::string first =
      "firmware starts one core; export for core 0 of the chip, whose registers come first: --cores 0";
  if (artifact.config.cores > 1)
    throw Error(ErrorCode::kUnsupported, "configuration '" + artifact.config.name + "' has " +
                                             std::to_string(artifact.config.cores) + " cores, and " + first);
  if (!a.cores.empty() && a.cores != std::vector<uint32_t>{0}) refuse(first);
  if (!a.cores.empty()) options.chip = isa::find_config(a.config);
  const bare_metal::Footprint needs = bare_metal::footprint(artifact, options);
  if (!a.quiet) std::fputs(bare_metal::footprint_text(needs, options).c_str(), stdout);
  bare_metal::check_room(needs, options);
  bare_metal::write_folder(artifact, options, a.output);
  if (!a.quiet) std::printf("%s: written; build it with make -C %s\n", a.output.c_str(), a.output.c_str());
  return 0;
}

namespace {

/// The endings that say how results are written. Without an ending they are an .npz file.
void check_results_file(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  if (path != "-" && (ending.empty() || ending == ".npz" || ending == ".npy")) return;
  refuse("results are written as .npz, or as .npy where there is one; --output '" + path + "' is neither");
}

}  // namespace

int run_command(const Arguments& a) {
  check_results_file(a.output);
  const std::unique_ptr<QuantisedModel> made = quantised(a);
  if (made && made->status() != 0) return made->status();
  SessionOptions options = options_for(a, made ? made->path() : a.model);
  const RunProgress line(a);
  options.progress = line.observer(a);
  Session session(made ? made->path() : a.model, std::move(options));
  const NamedValues feeds = read_feeds(a, session, made ? made->path() : a.model);
  const auto results = session.run(feeds, a.outputs);
  runtime::NamedTensors named;
  std::vector<std::string> names = a.outputs;
  if (names.empty())
    for (const Port& port : session.outputs()) names.push_back(port.name);
  for (size_t i = 0; i < results.size(); ++i) {
    if (std::find(names.begin(), names.begin() + static_cast<int64_t>(i), names[i]) !=
        names.begin() + static_cast<int64_t>(i))
      continue;  // declared twice
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
    const std::string stats = session.stats_json();
    if (a.compile.use_npu) say(float_note(stats, a.model.ends_with(".tsr") ? "MODEL" : a.model));
    say(option_note(stats, nlohmann::json::parse(stats).value("close_candidates", int64_t{0})));
  }
  return 0;
}

namespace {

/// What a run is called on the page: its file's name, or its path where another file has the same name.
std::string name_among(const std::string& file, const std::vector<std::string>& files) {
  const auto stem = [](const std::string& path) { return std::filesystem::path(path).stem().string(); };
  const auto same =
      std::count_if(files.begin(), files.end(), [&](const std::string& other) { return stem(other) == stem(file); });
  return same > 1 ? file : stem(file);
}

}  // namespace

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
    runs.push_back({name_among(file, a.compare), saved});
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
    artifact = compiled_artifact_of(a, bytes);
  } else {
    artifact = compiled(a).artifact;
  }
  write_text(a.output, schedules_text(schedules_json(artifact)));
  return 0;
}

int info_command(const Arguments& a) {
  program::Artifact artifact;
  std::optional<std::string> signer;
  const std::string bytes = read_text(a.model);
  if (holds_artifact(a, bytes)) {
    artifact = compiled_artifact_of(a, bytes);
    const auto key = on_file(a, bytes, program::signer);
    signer = key ? program::to_text(*key) : "";
  } else {
    artifact = compiled(a).artifact;
  }
  const std::string description = description_json(artifact, a.as_json ? 2 : -1, signer);
  std::cout << (a.as_json ? description + "\n" : description_text(description));
  return 0;
}

}  // namespace tessera
