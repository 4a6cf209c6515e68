// SPDX-License-Identifier: Apache-2.0
// Compile and run together: the C++ interface behind the command line, the C API and the Python package. Enters: an
// ONNX model or an artifact and named tensors. Leaves: named tensors and statistics.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/pipeline/model.h"
#include "isa/program/artifact.h"
#include "ops/tensor.h"

namespace tessera {

using Port = compiler::Port;
using NamedValues = std::vector<std::pair<std::string, ops::Value>>;

struct SessionOptions {
  std::string device = "fsim";     // a backend of driver/registry.h, or "reference": the interpreter
  std::string config;              // name or .toml path; empty: the artifact's own, or npu256
  compiler::ImportOptions import;  // shapes of dynamic inputs
  compiler::CompileOptions compile;
  std::map<std::string, std::string> device_options;
  bool check_races = false;
  std::optional<uint64_t> poison;           // fills scratchpads and fresh device memory from this seed
  std::optional<uint64_t> heap_base;        // first address of device memory
  std::optional<std::string> trusted_keys;  // file or folder of public keys: artifacts must be signed with one of them
  bool profile = true;                      // keep figures of each instruction, for stats and trace; makes `rtl` slower
};

/// A model on a device. Thread-safe: runs of one session happen one after another.
class Session {
 public:
  /// `path` ends in .onnx or holds an artifact (.tsr); the content decides.
  /// Errors: those of import, compilation and of opening the device; kInvalidArtifact for an artifact without a trusted
  /// signature where trusted_keys are given, before anything else of it is read.
  explicit Session(const std::string& path, SessionOptions options = {});
  static Session from_bytes(std::string_view bytes, SessionOptions options = {});
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  const std::vector<Port>& inputs() const;
  const std::vector<Port>& outputs() const;

  /// Results named in `outputs` (all when empty), in that order. A model with dynamic dimensions is compiled for the
  /// shapes that come and the result is kept for the next call. Errors: kInvalidArgument (unknown or missing names;
  /// shape or type, both sides named), kDeviceFault, compilation errors.
  std::vector<ops::Value> run(const NamedValues& feeds, const std::vector<std::string>& outputs = {});

  /// Statistics of the last run as JSON, with the keys of docs/profiling.md; in one line without `indent`. Errors:
  /// kInvalidArgument before the first run.
  std::string stats_json(int indent = -1) const;
  /// Trace of the last run in the Chrome trace format. Errors: as statistics.
  std::string trace_json() const;
  /// The versioned report of the last run (docs/report.md) as JSON. Errors: as statistics.
  std::string report_json() const;
  /// The artifact of the last run, or of a static model. Errors: kUnsupported for the reference device.
  const program::Artifact& artifact();

 private:
  struct State;
  explicit Session(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// True if the bytes begin like an artifact.
bool is_artifact(std::string_view bytes);

}  // namespace tessera
