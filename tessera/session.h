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
#include <variant>
#include <vector>

#include "compiler/pipeline/model.h"
#include "driver/shared_chip.h"
#include "isa/program/artifact.h"
#include "ops/tensor.h"
#include "runtime/device_array.h"

namespace tessera {

using Port = compiler::Port;
using NamedValues = std::vector<std::pair<std::string, ops::Value>>;
using DeviceTensor = runtime::DeviceArray;
/// What is bound to an input or comes out of a run: on the host, or in the device's memory.
using Bound = std::variant<ops::Value, DeviceTensor>;
using NamedBounds = std::vector<std::pair<std::string, Bound>>;
/// An output by name, and whether it stays on the device.
struct WantedOutput {
  std::string name;
  bool on_device = false;
};

struct SessionOptions {
  std::string device = "fsim";     // a backend of driver/registry.h, or "reference": the interpreter
  std::string config;              // name or .toml path; empty: the artifact's own, or what the model says, or npu256
  compiler::ImportOptions import;  // shapes of dynamic inputs
  compiler::CompileOptions compile;
  std::map<std::string, std::string> device_options;
  /// The cores that the model is compiled for and runs on, by number: those of `chip`, or of `config`, which is a chip
  /// then. Empty: all.
  std::vector<uint32_t> cores;
  std::shared_ptr<driver::SharedChip> chip;  // in the place of `device`, `config` and `device_options`
  int priority = 0;                          // among the sessions of a chip that have cores in common
  bool check_races = false;
  std::optional<uint64_t> poison;           // fills scratchpads and fresh device memory from this seed
  std::optional<uint64_t> heap_base;        // first address of device memory
  std::optional<std::string> trusted_keys;  // file or folder of public keys: artifacts must be signed with one of them
  bool profile = true;                      // keep figures of each instruction, for stats and trace; makes `rtl` slower
  /// Whether a LiteRT model's variables and the states of its cells go on from one run to the next.
  bool keep_state = true;
  /// Called while a program of the NPU waits for its turn or runs (driver/device.h), on the thread of the run.
  std::function<void(bool waiting, uint64_t instructions)> progress;
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
  /// Initializers that a run may give as inputs, and that keep their value where it does not. The model is compiled
  /// again for each set of them that comes. None of an artifact.
  const std::vector<Port>& overridable() const;
  /// Whether it was opened from an artifact.
  bool loads_artifact() const;
  /// The pasts of a decoder whose past is dynamic; empty for other models.
  const std::vector<program::Past>& pasts() const;

  /// Results named in `outputs` (all when empty), in that order. A model with dynamic dimensions is compiled for the
  /// shapes that come and the result is kept for the next call. Errors: kInvalidArgument (unknown or missing names;
  /// shape or type, both sides named), kDeviceFault, compilation errors.
  std::vector<ops::Value> run(const NamedValues& feeds, const std::vector<std::string>& outputs = {});
  /// The same with tensors that are, or stay, on the device (runtime/executor.h). A device tensor may be used by any
  /// session whose device it is of, which is this one, and lives as long as anybody holds it. Errors: as run;
  /// kUnsupported on the reference device, which has no memory.
  std::vector<Bound> run_bound(const NamedBounds& feeds, const std::vector<WantedOutput>& outputs);
  /// Compiles for shapes of the dynamic inputs that will come, on a thread of its own, the first shapes first. Returns
  /// at once. Errors: kInvalidArgument for unknown or missing inputs; a shape that does not compile is dropped, and
  /// told when it is run.
  void prepare(const std::vector<std::map<std::string, ops::Shape>>& shapes);
  /// Whether a better program than one that has run is being looked for (compiler::CompileOptions::effort). It runs
  /// from the next run on after it has been found; results are the same.
  bool searching() const;
  /// Until nothing is looked for.
  void finish_search() const;
  /// Variables and states of a LiteRT model have their initial values again.
  void reset_state();
  /// Copies a tensor to the device. Errors: kDoesNotFit, kUnsupported (strings; the reference device).
  DeviceTensor to_device(const ops::Tensor& tensor) const;

  /// While what this gives lives, time stands still on the chip between two runs of this session
  /// (driver/shared_chip.h). Errors: kInvalidArgument without SessionOptions::chip.
  std::unique_ptr<driver::SharedChip::Attendance> attend() const;

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

/// Inputs and outputs that are bound once and serve for several runs, in the manner of ONNX Runtime. The session must
/// outlive it.
class IoBinding {
 public:
  explicit IoBinding(Session& session) : session_(session) {}

  /// Errors: kInvalidArgument for an unknown name, and for a type or shape that the model does not take.
  void bind_input(const std::string& name, Bound value);
  /// Errors: kInvalidArgument for an unknown name.
  void bind_output(const std::string& name, bool on_device = false);
  void bind_output_to_device(const std::string& name) { bind_output(name, true); }
  void clear_inputs() { inputs_.clear(); }
  void clear_outputs();

  /// Errors: those of Session::run_bound; kInvalidArgument when no output is bound.
  void run();
  /// Of the last run, in the order in which the outputs were bound.
  const std::vector<WantedOutput>& wanted() const { return wanted_; }
  const std::vector<Bound>& outputs() const { return outputs_; }

 private:
  Session& session_;
  NamedBounds inputs_;
  std::vector<WantedOutput> wanted_;
  std::vector<Bound> outputs_;
};

/// True if the bytes begin like an artifact.
bool is_artifact(std::string_view bytes);

}  // namespace tessera
