// SPDX-License-Identifier: Apache-2.0
// Runs an artifact: enters an artifact and a device, tensors in the order of the model's inputs; leave the results and
// a report. NPU steps are packed, submitted and unpacked; compiled CPU code is linked once at load (cpu_code.h);
// library kernels are called through ops::evaluate. Values are freed after their last use.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "driver/device.h"
#include "isa/program/artifact.h"
#include "ops/operator.h"
#include "runtime/device_array.h"

namespace tessera::runtime {

struct RunOptions {
  bool check_races = false;                                           // Error kDeviceFault names the first race
  std::optional<uint64_t> poison;                                     // seed for the scratchpads before each program
  int64_t threads = 0;                                                // of compiled code; 0: one for each processor
  bool profile = true;                                                // keep figures of each instruction
  std::function<void(bool waiting, uint64_t instructions)> progress;  // of the NPU program that runs
};

/// What one NPU program did in the last run.
struct ProgramReport {
  int64_t program = 0;  // index in Artifact::npu_programs
  driver::RunReport device;
};

/// What one CPU step did in the last run.
struct CpuReport {
  std::string name, op;
  int64_t layer = -1;
  double seconds = 0;
};

struct Report {
  std::vector<ProgramReport> programs;
  std::vector<CpuReport> cpu;
  double seconds = 0, transfer_seconds = 0;
};

/// What a run takes or leaves: on the host, or in the device's memory.
using Bound = std::variant<ops::Value, DeviceArray>;

/// Not thread-safe: one run at a time (Session serialises).
class Executor {
 public:
  /// Places device constants and links CPU code. Errors: kInvalidArtifact, kUnsupported, kDoesNotFit (device memory).
  Executor(std::shared_ptr<const program::Artifact> artifact, std::shared_ptr<driver::Device> device);
  ~Executor();

  /// Inputs in the order of plans[0].inputs. Errors: kInvalidArgument (an input's shape or type, both named),
  /// kDeviceFault (with the fault record and the model's node), what kernels throw.
  std::vector<ops::Value> run(const std::vector<ops::Value>& inputs, const RunOptions& options = {});

  /// The same with values that stay on the device: inputs wherever they are, and outputs, in the order of
  /// plans[0].outputs, where `on_device` says so (empty: all on the host). An input that lies as a program of the NPU
  /// wants it is copied inside the device; a past that an earlier run has left on the device is extended where it is.
  /// Errors: as run, and kInvalidArgument for a device tensor that a later run has written over, or of another device.
  std::vector<Bound> run_bound(const std::vector<Bound>& inputs, const std::vector<bool>& on_device,
                               const RunOptions& options = {});

  const Report& report() const;
  const program::Artifact& artifact() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::runtime
