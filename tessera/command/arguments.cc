// SPDX-License-Identifier: Apache-2.0
#include "tessera/command/arguments.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>

#include "compiler/pipeline/plugin.h"
#include "isa/program/signature.h"
#include "isa/program/whole_file.h"
#include "tessera/compiled_already.h"
#include "tessera/kept_programs.h"
#include "tessera/report/description.h"
#include "tessera/tuning/judges.h"

namespace tessera {

bool Arguments::given(const std::string& flag) const { return command != nullptr && command->count(flag) > 0; }

std::vector<std::string> Arguments::given_besides(const std::set<std::string>& flags) const {
  std::vector<std::string> others;
  if (command == nullptr) return others;
  for (const CLI::Option* option : command->get_options()) {
    const std::string name = option->get_name();
    if (option->count() > 0 && name.starts_with("-") && !flags.count(name)) others.push_back(name);
  }
  return others;
}

void refuse(const std::string& message) { throw Error(ErrorCode::kInvalidArgument, message); }

std::string read_text(const std::string& path) { return file_content(path); }

void write_text(const std::string& path, const std::string& text) {
  if (path.empty() || path == "-") {
    std::cout << text;
    return;
  }
  program::write_whole(path, text);
}

namespace {

compiler::Progress progress(const Arguments& a) {
  if (a.quiet || !isatty(STDERR_FILENO)) return {};
  return [](const std::string& what, int64_t done, int64_t total) {
    std::fprintf(stderr, "\r\033[Ktessera: %s (%lld of %lld)%s", what.c_str(), static_cast<long long>(done),
                 static_cast<long long>(total), done + 1 >= total ? "\r\033[K" : "");
    std::fflush(stderr);
  };
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
    if (std::find(a.steps->begin(), a.steps->end(), snapshot.step) == a.steps->end()) a.steps->push_back(snapshot.step);
    for (const std::string& wanted : a.print_ir_after) {
      if (wanted != "all" && wanted != snapshot.step) continue;
      std::cout << "// ----- after " << snapshot.step << "\n" << snapshot.text(true) << "\n";
      break;
    }
  };
}

}  // namespace

bool holds_artifact(const Arguments& a, const std::string& bytes) {
  return is_artifact(bytes) || a.model.ends_with(".tsr");
}

program::Artifact artifact_of(const Arguments& a, const std::string& bytes) {
  std::optional<program::TrustedKeys> keys;
  if (a.trusted_keys) keys = program::TrustedKeys::load(*a.trusted_keys);
  return on_file(a, bytes, [&](std::span<const uint8_t> content) {
    if (keys) program::require_trusted(content, *keys);
    return program::parse(content);
  });
}

namespace {

compiler::CompileOptions compile_options(const Arguments& a) {
  register_device_judges();
  for (const std::string& plugin : a.plugins) compiler::load_plugin(plugin);
  compiler::CompileOptions options = a.compile;
  options.progress = progress(a);
  options.snapshots = snapshots(a);
  if (a.time_passes) options.times = std::make_shared<StepTimes>();
  if (a.print_search) options.search_log = [](const std::string& text) { std::cout << text; };
  for (const std::string& file : a.schedules) {
    for (auto& [layer, schedule] : schedules_from(read_text(file), "schedule file '" + file + "'"))
      options.schedules[layer] = std::move(schedule);
  }
  return options;
}

}  // namespace

program::Artifact compiled_artifact_of(const Arguments& a, const std::string& bytes,
                                       const std::set<std::string>& heeded) {
  program::Artifact artifact = artifact_of(a, bytes);
  refuse_what_only_compiling_heeds(artifact, import_options(a), compile_options(a), heeded);
  const std::string compiled_for = "'" + a.model + "' is compiled already, for '" + artifact.config.name + "'";
  if (heeded.count("config") == 0 && !a.config.empty() && isa::find_config(a.config) != artifact.config)
    refuse(compiled_for + "; compile the ONNX model for '" + a.config + "', or leave out --config");
  if (heeded.count("cores") == 0 && !a.cores.empty()) refuse(compiled_for + "; leave out --cores");
  return artifact;
}

compiler::ImportOptions import_options(const Arguments& a) {
  compiler::ImportOptions options;
  for (const std::string& text : a.shapes) compiler::parse_shape(text, options);
  return options;
}

SessionOptions session_options(const Arguments& a) {
  SessionOptions options;
  options.device = a.device.empty() ? "fsim" : a.device;
  options.config = a.config;
  options.cores = a.cores;
  options.import = import_options(a);
  options.compile = compile_options(a);
  options.import.litert_kernels = options.compile.litert_kernels;
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
  if (timed && a.given("--dram")) options.device_options["dram"] = a.compile.dram;
  if (timed && a.given("--dram-latency")) options.device_options["latency"] = std::to_string(a.compile.dram_latency);
  if (timed && a.given("--dram-bandwidth"))
    options.device_options["bandwidth"] = std::to_string(a.compile.dram_bandwidth);
  if (!a.wave.empty()) options.device_options["waves"] = a.wave;
  if (!a.xclbin.empty()) options.device_options["xclbin"] = a.xclbin;
  options.trusted_keys = a.trusted_keys;
  options.profile = !a.stats.empty() || !a.trace.empty();
  return options;
}

}  // namespace tessera
