// SPDX-License-Identifier: Apache-2.0
// The `tessera` command: compile, run, export, app, quantize, explore, tune, kernel, litex, serve, console, report,
// schedule, asm, disasm, info, keygen, sign, board, doctor, completion. Every error is one line on standard error that
// names the node or file, the cause and the way out; the exit status is then 1 (2 for a wrong command line).
#include <cstdio>
#include <functional>
#include <iostream>
#include <new>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "compiler/pipeline/command_options.h"
#include "driver/registry.h"
#include "tessera/bare_metal/bare_metal.h"
#include "tessera/command/board.h"
#include "tessera/command/command.h"
#include "tessera/command/commands.h"
#include "tessera/command/completion.h"
#include "tessera/command/doctor.h"
#include "tessera/command/quantise.h"
#include "tessera/message.h"

namespace {

using namespace tessera;

/// A command that is a module of the Python package and reads its own options.
struct InPython {
  const char* name;
  const char* module;
  const char* summary;
};
constexpr InPython kInPython[] = {
    {"quantize", "tessera.quantization", "quantise a float ONNX model for the NPU; quantize --help lists its options"},
    {"app", "tessera.app",
     "run a Python program that uses ONNX Runtime, with its sessions on the NPU; app --help lists its "
     "options"},
    {"explore", "tessera.exploration",
     "which machine to build: a space of machines times networks, the Pareto front; explore --help "
     "lists its options"},
    {"litex", "tessera.litex",
     "the system of an FPGA board, simulated (--simulate) or as a bitstream (--bitstream); litex --help "
     "lists its options"},
    {"tune", "tessera.tuning",
     "schedules of a model, found by measuring, into a database for --tuned; tune --help lists its "
     "options"},
    {"kernel", "tessera.tile",
     "operators that a Python file writes in tiles: run, check, profile; kernel --help lists its options"},
    {"serve", "tessera.serving", "devices and models for clients across the network; serve --help lists its options"},
    {"console", "tessera.console", "talk to exported firmware over its serial line; console --help lists its options"},
};

/// What a number on the command line must be.
CLI::Validator at_least(int64_t low) {
  const auto wrong = [low](const std::string& text) {
    int64_t value = 0;
    const bool is_number = CLI::detail::lexical_cast(text, value);
    return is_number && value >= low ? std::string()
                                     : "takes a whole number from " + std::to_string(low) + ", not '" + text + "'";
  };
  return CLI::Validator(wrong, "");
}

/// A wrong command line in one line.
std::string wrong_line(const CLI::App* app, const CLI::Error& error) {
  std::string command = app->get_name();
  for (const CLI::App* given : app->get_subcommands()) command += " " + given->get_name();
  return "tessera: error (invalid_argument): " + one_line(error.what()) + "; `" + command +
         " --help` says what it takes\n";
}

/// The report of a bug keeps its lines.
std::string shown(const Error& error) {
  return error.code() == ErrorCode::kInternal ? std::string(error.what()) : one_line(error.what());
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
      {"export", "tessera export model.onnx --bare-metal --target litex-vexriscv --config npu64 -o firmware"},
      {"quantize", "tessera quantize model.onnx --calibrate images.npz -o model_int8.onnx"},
      {"app", "tessera app --device sysc -- python program.py"},
      {"explore", "tessera explore space.toml --network model_int8.onnx -o front.json"},
      {"kernel", "tessera kernel check examples/kernels/matmul.py"},
      {"tune", "tessera tune model_int8.onnx --config npu256 --trials 100 --db tuned.db"},
      {"litex", "tessera litex --simulate --board ulx3s --config npu64"},
      {"serve", "tessera serve --device sysc --listen 127.0.0.1:9190"},
      {"console", "tessera console --port /dev/ttyUSB0 --input image.npy"},
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

/// The names of all devices.
std::string devices() {
  std::string names = "reference";
  for (const auto& backend : driver::backends()) names += ", " + backend.name;
  return names;
}

/// The commands, their options, and what they do.
class CommandLine {
 public:
  CommandLine() {
    app_.require_subcommand(1);
    app_.failure_message(wrong_line);
    app_.set_version_flag("--version", "tessera " TESSERA_VERSION);
    add_compile();
    add_run();
    for (const InPython& one : kInPython) app_.add_subcommand(one.name, one.summary)->prefix_command();
    add_report();
    add_schedule();
    add_asm();
    add_disasm();
    add_export();
    add_info();
    add_keygen();
    add_sign();
    add_board();
    add_doctor();
    add_completion();
    for (CLI::App* command : app_.get_subcommands([](const CLI::App*) { return true; }))
      command->footer(std::string("Example:\n  ") + example_of(command->get_name()));
  }

  /// Reads the arguments; exits the program where it becomes Python. Nothing when run() may follow, else the status.
  std::optional<int> parse(int argc, char** argv) {
    // What follows "--" is another program's command line.
    for (int k = 2; k < argc && std::string_view(argv[1]) == "board"; ++k) {
      if (std::string_view(argv[k]) != "--") continue;
      a_.board.command.assign(argv + k + 1, argv + argc);
      argc = k;
    }
    try {
      // What is Python reads its own command line.
      for (const InPython& one : kInPython)
        if (argc > 1 && std::string_view(one.name) == argv[1]) become_python(one.module, {argv + 2, argv + argc});
      if (argc > 1 && argv[1][0] != '-') require_command(argv[1]);
      app_.parse(argc, argv);
    } catch (const Error& e) {
      report(e);
      return 1;
    } catch (const CLI::ParseError& e) {
      return app_.exit(e) == 0 ? 0 : 2;
    }
    a_.command = app_.get_subcommands().front();
    return std::nullopt;
  }

  /// Runs the command that has been read; leaves the exit status.
  int run() {
    try {
      for (const auto& [command, action] : actions_)
        if (*command) return arrived(action());
      invariant_failed("action", __FILE__, __LINE__, "the command '" + a_.command->get_name() + "' does nothing");
    } catch (const Error& e) {
      std::fflush(stdout);
      report(e);
    } catch (const std::bad_alloc&) {
      std::fprintf(stderr, "tessera: error (does_not_fit): the host has not enough memory for this model\n");
    } catch (const std::exception& e) {
      std::fprintf(stderr, "tessera: error (internal): %s\n", e.what());
    }
    return 1;
  }

 private:
  /// A command whose output was cut short, as by a full disk, has failed.
  static int arrived(int status) {
    std::cout.flush();
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good()) return status;
    throw Error(ErrorCode::kIo, "cannot write to the standard output; is the disk full?");
  }

  static void report(const Error& e) {
    std::fprintf(stderr, "tessera: error (%s): %s\n", std::string(to_string(e.code())).c_str(), shown(e).c_str());
  }

  void require_command(const std::string& name) const {
    std::string known;
    for (const CLI::App* command : app_.get_subcommands([](const CLI::App*) { return true; })) {
      if (command->get_name() == name) return;
      known += (known.empty() ? "" : ", ") + command->get_name();
    }
    throw CLI::ExtrasError("there is no command '" + name + "'; there are " + known, CLI::ExitCodes::ExtrasError);
  }

  /// Options of most commands.
  void common(CLI::App* command) {
    command->add_option("--config", a_.config,
                        "configuration: npu64, npu256, npu256t, npu1024 or another of hw/configs, or a .toml file");
    command->add_flag("-q,--quiet", a_.quiet, "print nothing but errors");
  }

  /// Options of commands that read artifacts.
  void dividing(CLI::App* command) {
    command
        ->add_option("--cores", a_.cores,
                     "numbers of the cores of a chip that the model is compiled for and runs on, as 0,1; default all")
        ->delimiter(',');
  }
  void loading(CLI::App* command) {
    command->add_option("--trusted-keys", a_.trusted_keys,
                        "file or folder of public keys: refuse artifacts that none of them has signed");
  }

  /// Options of commands that compile.
  void compiling(CLI::App* command) {
    command->add_option("--shape", a_.shapes, "NAME=D0,D1,...: shape of an input; DIMENSION=N: a symbolic dimension")
        ->allow_extra_args(false);
    command
        ->add_option("--schedule", a_.schedules,
                     "JSON file from layers to schedules (tessera schedule), or --stats of a run")
        ->allow_extra_args(false);
    compiler::add_options(*command, a_.compile);
    command->add_option("--plugin", a_.plugins, "shared object that adds to the compiler: passes, matchers, intrinsics")
        ->allow_extra_args(false);
  }

  /// Options of commands that run.
  void running(CLI::App* command) {
    command->add_option("--input", a_.inputs, "FILE, or NAME=FILE where there are several inputs (.npy, .npz)")
        ->allow_extra_args(false);
    command
        ->add_option("--input-layout", a_.layouts, "NHWC, or NAME=NHWC: the file's layout where the model takes NCHW")
        ->allow_extra_args(false);
    command->add_option("--random-inputs", a_.random_seed, "fill inputs without a file from this seed")
        ->check(at_least(0));
    command->add_option("--xclbin", a_.xclbin, "the image for the card; device xrt");
    command->add_option("--device-option", a_.device_options, "NAME=VALUE for the device")->allow_extra_args(false);
  }

  void add_compile() {
    auto* command = app_.add_subcommand("compile", "compile an ONNX model to an artifact (.tsr)");
    command->add_option("model", a_.model, "ONNX file")->required();
    command->add_option("-o,--output", a_.output, "artifact to write");
    command->add_flag("--print-ir", a_.print_ir, "print the graph after the passes of nn instead");
    command
        ->add_option("--print-ir-after", a_.print_ir_after,
                     "print the graph after this pass, or after every one (all), without large constants")
        ->allow_extra_args(false);
    command->add_flag("--print-search", a_.print_search,
                      "print the candidates of every layer with their estimated and replayed cost");
    command
        ->add_option("--shapes", a_.shape_ranges,
                     "NAME=D0,D1,... with sizes N, FIRST-LAST or FIRST-LAST/STEP: compiles for all of them ahead, into "
                     "the cache of programs, where runs find them; writes no artifact")
        ->allow_extra_args(false);
    command->add_flag("--time-passes", a_.time_passes,
                      "print the seconds of each step of the compilation, of all threads that do it at once");
    command->add_option("--dump-dir", a_.dump_dir,
                        "folder for numbered files of the graph after every pass, which tessera-opt reads");
    common(command);
    dividing(command);
    compiling(command);
    actions_.emplace_back(command, [this] { return compile_command(a_); });
  }

  void add_run() {
    auto* command = app_.add_subcommand("run", "run a model (.onnx, .tflite) or an artifact (.tsr)");
    command->add_option("model", a_.model, "ONNX file or artifact")->required();
    command->add_option("--device", a_.device, "where: " + devices() + "; default fsim");
    command->add_option("-o,--output", a_.output, "results (.npz, or .npy for one)");
    command->add_option("--outputs", a_.outputs, "names of the results wanted")->delimiter(',');
    command->add_option("--stats", a_.stats, "statistics as JSON (- prints them)");
    command->add_option("--trace", a_.trace, "trace in the Chrome format, for Perfetto");
    command->add_flag("--check-races", a_.check_races, "report accesses that no chain of signals orders");
    command->add_option("--poison", a_.poison, "fill scratchpads and fresh device memory from this seed");
    command->add_option("--base-address", a_.base_address, "first address of device memory");
    command->add_option("--wave", a_.wave, "waveforms of every cycle (FST); device rtl");
    command->add_option(
        "--calibrate", a_.calibrate,
        "quantise a float model first, on this data (tessera quantize --help): .npz, a folder, or random");
    command->add_option("--engine", a_.engine, "of --calibrate: nncf or onnxruntime");
    command->add_option("--preprocess", a_.preprocess, "of --calibrate, for pictures: imagenet, unit or a TOML file");
    running(command);
    common(command);
    dividing(command);
    loading(command);
    compiling(command);
    actions_.emplace_back(command, [this] { return run_command(a_); });
  }

  void add_report() {
    auto* command = app_.add_subcommand("report", "where the cycles and bytes of each layer go, as a table");
    command->add_option("model", a_.model, "ONNX file, artifact, or the JSON that report --json or run --stats wrote");
    command->add_option("--device", a_.device, "where: " + devices() + "; default sysc");
    command->add_option("-o,--output", a_.output, "file to write instead of standard output");
    command->add_option("--html", a_.html, "page for the browser to write: timeline, roofline, graph, memory, tables");
    command->add_option("--compare", a_.compare,
                        "reports of other runs (report --json) to stand beside it on the page");
    command->add_option("--explore", a_.explore, "what `tessera explore -o` wrote, to show on the page");
    command->add_option("--model-explorer", a_.model_explorer, "node data to write for the overlay of Model Explorer");
    command->add_flag("--json", a_.as_json, "the versioned report as JSON (docs/report.md) in place of the table");
    command->add_flag("--brief", a_.brief, "without the schedules");
    running(command);
    common(command);
    dividing(command);
    loading(command);
    compiling(command);
    actions_.emplace_back(command, [this] { return report_command(a_); });
  }

  void add_schedule() {
    auto* command = app_.add_subcommand("schedule", "write the schedules of all layers to a file for --schedule");
    command->add_option("model", a_.model, "ONNX file or artifact")->required();
    command->add_option("-o,--output", a_.output, "file to write instead of standard output");
    common(command);
    dividing(command);
    loading(command);
    compiling(command);
    actions_.emplace_back(command, [this] { return schedule_command(a_); });
  }

  void add_asm() {
    auto* command = app_.add_subcommand("asm", "assemble instructions");
    command->add_option("source", a_.model, "assembly")->required();
    command->add_option("-o,--output", a_.output, "instructions to write, 64 bytes each");
    common(command);
    actions_.emplace_back(command, [this] { return asm_command(a_); });
  }

  void add_disasm() {
    auto* command = app_.add_subcommand("disasm", "print the instructions of an artifact or of assembled instructions");
    command->add_option("file", a_.model, "artifact (.tsr) or instructions (.bin)")->required();
    command->add_option("-o,--output", a_.output, "file to write instead of standard output");
    loading(command);
    actions_.emplace_back(command, [this] { return disasm_command(a_); });
  }

  void add_export() {
    auto* command = app_.add_subcommand("export", "write a model as C sources and machine code for a bare processor");
    command->add_option("model", a_.model, "ONNX file, or an artifact compiled with --cpu-target")->required();
    command->add_flag("--bare-metal", a_.bare_metal, "without an operating system, a heap or a C library");
    std::string systems;
    for (const auto& target : bare_metal::targets())
      systems += (systems.empty() ? "" : "; ") + std::string(target.name) + ": " + std::string(target.summary);
    command->add_option("--target", a_.target, systems)->default_val("generic-c");
    command->add_option("-o,--output", a_.output, "folder to write");
    command->add_option("--rom", a_.rom, "bytes of read-only memory there are (64K, 2M); refuses what does not fit");
    command->add_option("--ram", a_.ram, "bytes of memory there are; without --rom they hold the firmware too");
    command->add_flag("--library-math", a_.library_math,
                      "functions that the runtime has not (pow, sin, cos, ...) from the firmware's C library");
    common(command);
    dividing(command);
    loading(command);
    compiling(command);
    actions_.emplace_back(command, [this] { return export_command(a_); });
  }

  void add_info() {
    auto* command = app_.add_subcommand("info", "what an artifact or a model consists of and where it runs");
    command->add_option("model", a_.model, "artifact or ONNX file")->required();
    command->add_flag("--json", a_.as_json, "as JSON");
    common(command);
    loading(command);
    compiling(command);
    actions_.emplace_back(command, [this] { return info_command(a_); });
  }

  void add_keygen() {
    auto* command = app_.add_subcommand("keygen", "make a key to sign artifacts with: NAME.key and NAME.pub");
    command->add_option("name", a_.output, "path of both files without their endings")->required();
    command->add_flag("-q,--quiet", a_.quiet, "print nothing but errors");
    actions_.emplace_back(command, [this] { return keygen_command(a_); });
  }

  void add_sign() {
    auto* command = app_.add_subcommand("sign", "sign an artifact, so that --trusted-keys accepts it");
    command->add_option("file", a_.model, "artifact")->required();
    command->add_option("--key", a_.key, "secret key of tessera keygen (.key)")->required();
    command->add_option("-o,--output", a_.output, "file to write instead of the artifact itself");
    command->add_flag("-q,--quiet", a_.quiet, "print nothing but errors");
    actions_.emplace_back(command, [this] { return sign_command(a_); });
  }

  void add_board() {
    auto* command = app_.add_subcommand("board",
                                        "run a command with a simulated card for device xrt: tessera board -- COMMAND; "
                                        "without one, print the environment and wait");
    command->add_option("--config", a_.board.config, "configuration of the machine on the card (default npu256)");
    command->add_option("--units", a_.board.units, "compute units, 1 to 8");
    command->add_option("--dram-latency", a_.board.latency_cycles, "cycles from a request to its first data")
        ->check(at_least(1));
    command->add_option("--dram-bandwidth", a_.board.bandwidth_bytes, "bytes a cycle, reads and writes together")
        ->check(at_least(1));
    command->add_option("--dram", a_.board.dram,
                        "a preset of docs/dram.md: the card's memory with banks, rows and refresh");
    command->add_option("--write-xclbin", a_.board.write_xclbin, "write the card's image to a file, and nothing else");
    command->add_flag("-v,--verbose", a_.board.verbose, "say which processes come and go");
    command->prefix_command();
    actions_.emplace_back(command, [this, command] {
      const std::vector<std::string> others = command->remaining();
      if (!a_.board.command.empty() && !others.empty())
        refuse("tessera board has no option '" + others.front() + "'; `tessera board --help` lists them");
      if (a_.board.command.empty()) a_.board.command = others;
      return run_board(a_.board);
    });
  }

  void add_doctor() {
    auto* command = app_.add_subcommand("doctor", "what this installation can do, and how to get what is missing");
    command->add_flag("--json", a_.as_json, "as JSON");
    actions_.emplace_back(command, [this] { return print(doctor_report(a_.as_json)); });
  }

  void add_completion() {
    auto* command = app_.add_subcommand("completion", "print a script that completes this command in a shell");
    command->add_option("shell", a_.source, "bash, zsh or fish")->required();
    actions_.emplace_back(command, [this] { return print(completion_script(app_, a_.source)); });
  }

  CLI::App app_{"Tessera: ONNX models on an open NPU", "tessera"};
  Arguments a_;
  std::vector<std::pair<CLI::App*, std::function<int()>>> actions_;
};

}  // namespace

int tessera::run_command_line(int argc, char** argv) {
  CommandLine line;
  const auto status = line.parse(argc, argv);
  return status ? *status : line.run();
}
