// SPDX-License-Identifier: Apache-2.0
// The `tessera` command: compile, run, export, app, quantize, explore, tune, kernel, litex, serve, console, report,
// schedule, asm, disasm, info, keygen, sign, board, doctor, completion. Every error is one line on standard error that
// names the node or file, the cause and the way out; the exit status is then 1 (2 for a wrong command line).
#include <cstdio>
#include <iostream>
#include <new>
#include <string_view>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "compiler/pipeline/command_options.h"
#include "driver/registry.h"
#include "tessera/bare_metal/bare_metal.h"
#include "tessera/board.h"
#include "tessera/command.h"
#include "tessera/commands.h"
#include "tessera/completion.h"
#include "tessera/doctor.h"
#include "tessera/message.h"
#include "tessera/quantise.h"

namespace {

using namespace tessera;

// Commands that are modules of the Python package.
constexpr std::pair<std::string_view, const char*> kInPython[] = {
    {"quantize", "tessera.quantization"}, {"app", "tessera.app"},        {"explore", "tessera.exploration"},
    {"kernel", "tessera.tile"},           {"tune", "tessera.tuning"},    {"litex", "tessera.litex"},
    {"serve", "tessera.serving"},         {"console", "tessera.console"}};

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
  const auto dividing = [&](CLI::App* command) {
    command
        ->add_option("--cores", a.cores,
                     "numbers of the cores of a chip that the model is compiled for and runs on, as 0,1; default all")
        ->delimiter(',');
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
  compile
      ->add_option("--shapes", a.shape_ranges,
                   "NAME=D0,D1,... with sizes N, FIRST-LAST or FIRST-LAST/STEP: compiles for all of them ahead, into "
                   "the cache of programs, where runs find them; writes no artifact")
      ->allow_extra_args(false);
  compile->add_flag("--time-passes", a.time_passes, "print the seconds of each step of the compilation");
  compile->add_option("--dump-dir", a.dump_dir,
                      "folder for numbered files of the graph after every pass, which tessera-opt reads");
  common(compile);
  dividing(compile);
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
  auto* run = app.add_subcommand("run", "run a model (.onnx, .tflite) or an artifact (.tsr)");
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
  dividing(run);
  loading(run);
  compiling(run);

  app.add_subcommand("quantize", "quantise a float ONNX model for the NPU; quantize --help lists its options")
      ->prefix_command();
  app.add_subcommand("app",
                     "run a Python program that uses ONNX Runtime, with its sessions on the NPU; app --help lists its "
                     "options")
      ->prefix_command();
  app.add_subcommand("explore",
                     "which machine to build: a space of machines times networks, the Pareto front; explore --help "
                     "lists its options")
      ->prefix_command();

  app.add_subcommand(
         "litex",
         "the system of an FPGA board, simulated (--simulate) or as a bitstream (--bitstream); litex --help "
         "lists its options")
      ->prefix_command();
  app.add_subcommand("tune",
                     "schedules of a model, found by measuring, into a database for --tuned; tune --help lists its "
                     "options")
      ->prefix_command();

  app.add_subcommand(
         "kernel", "operators that a Python file writes in tiles: run, check, profile; kernel --help lists its options")
      ->prefix_command();

  app.add_subcommand("serve", "devices and models for clients across the network; serve --help lists its options")
      ->prefix_command();

  app.add_subcommand("console", "talk to exported firmware over its serial line; console --help lists its options")
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
  dividing(report);
  loading(report);
  compiling(report);

  auto* schedule = app.add_subcommand("schedule", "write the schedules of all layers to a file for --schedule");
  schedule->add_option("model", a.model, "ONNX file or artifact")->required();
  schedule->add_option("-o,--output", a.output, "file to write instead of standard output");
  common(schedule);
  dividing(schedule);
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

  auto* export_ = app.add_subcommand("export", "write a model as C sources and machine code for a bare processor");
  export_->add_option("model", a.model, "ONNX file, or an artifact compiled with --cpu-target")->required();
  export_->add_flag("--bare-metal", a.bare_metal, "without an operating system, a heap or a C library");
  std::string systems;
  for (const auto& target : bare_metal::targets())
    systems += (systems.empty() ? "" : "; ") + std::string(target.name) + ": " + std::string(target.summary);
  export_->add_option("--target", a.target, systems)->default_val("generic-c");
  export_->add_option("-o,--output", a.output, "folder to write");
  export_->add_option("--rom", a.rom, "bytes of read-only memory there are (64K, 2M); refuses what does not fit");
  export_->add_option("--ram", a.ram, "bytes of memory there are; without --rom they hold the firmware too");
  export_->add_flag("--library-math", a.library_math,
                    "functions that the runtime has not (pow, sin, cos, ...) from the firmware's C library");
  common(export_);
  dividing(export_);
  loading(export_);
  compiling(export_);

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
  board->add_option("--dram", a.board.dram, "a preset of docs/dram.md: the card's memory with banks, rows and refresh");
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
    if (*export_) return export_command(a);
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
