// SPDX-License-Identifier: Apache-2.0
// The command line of `tessera` as values, and what the commands make of it: options of a compilation, of a session,
// the files that it names. Errors are tessera::Error.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "compiler/pipeline/model.h"
#include "isa/program/artifact.h"
#include "tessera/command/board.h"
#include "tessera/session.h"

namespace CLI {
class App;
}

namespace tessera {

struct Arguments {
  std::string model, output, config, device, stats, trace, source, wave;
  std::vector<std::string> shapes, inputs, outputs, layouts, device_options, schedules;
  std::vector<std::string> plugins, print_ir_after;
  std::shared_ptr<std::vector<std::string>> steps = std::make_shared<std::vector<std::string>>();  // of compiling, seen
  std::vector<uint32_t> cores;
  std::string dump_dir;
  std::string html, model_explorer, explore;
  std::vector<std::string> compare;
  compiler::CompileOptions compile;  // the flags of the option table
  bool quiet = false, check_races = false, as_json = false, brief = false, print_ir = false, print_search = false,
       time_passes = false;
  std::vector<std::string> shape_ranges;  // of compile --shapes
  int64_t poison = -1, random_seed = -1;
  std::string base_address, xclbin;
  std::optional<std::string> trusted_keys;
  std::string key;
  std::string calibrate, engine, preprocess;      // of a float model that is quantised first
  bool bare_metal = false, library_math = false;  // of export
  std::string target, rom, ram;
  BoardCommand board;
  const CLI::App* command = nullptr;  // that was given

  /// Whether the flag stands on the command line.
  bool given(const std::string& flag) const;
  /// The flags on the command line that are none of these.
  std::vector<std::string> given_besides(const std::set<std::string>& flags) const;
};

/// Throws what is wrong with the command line or a file that it names.
[[noreturn]] void refuse(const std::string& message);

/// The bytes of a file. Throws kIo.
std::string read_text(const std::string& path);
/// Writes a file, or standard output for an empty path or "-". Throws kIo.
void write_text(const std::string& path, const std::string& text);

/// Whether the bytes of `a.model` are an artifact and no ONNX file.
bool holds_artifact(const Arguments& a, const std::string& bytes);
/// The artifact in `bytes`; with --trusted-keys its signature is looked at before it.
program::Artifact artifact_of(const Arguments& a, const std::string& bytes);
/// The same for a command that would compile a model. Refuses options that only compiling could heed, but for those
/// named in `heeded`.
program::Artifact compiled_artifact_of(const Arguments& a, const std::string& bytes,
                                       const std::set<std::string>& heeded = {});

inline std::span<const uint8_t> span_of(const std::string& bytes) {
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

compiler::ImportOptions import_options(const Arguments& a);
SessionOptions session_options(const Arguments& a);

}  // namespace tessera
