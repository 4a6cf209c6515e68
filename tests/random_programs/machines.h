// SPDX-License-Identifier: Apache-2.0
// Every machine behind one face for proofs: scratchpads that can be set and read, and a run. Unlike driver/device.h it
// shows the state that programs leave inside.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/random_programs/case.h"

namespace tessera::proof {

/// What a run leaves.
struct Outcome {
  isa::FaultRecord fault;
  std::array<std::vector<uint8_t>, isa::kSpaces> scratchpads;
  std::vector<uint8_t> dram;
  std::array<uint64_t, isa::kEngines + 1> executed{};  // instructions completed, by isa::Unit
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t cycles = 0;  // of machines with time
};

class Machine {
 public:
  virtual ~Machine() = default;
  const std::string& name() const { return name_; }
  const isa::MachineConfig& config() const { return config_; }

  /// Sets the scratchpads, runs the case's words to FINISH or a fault, returns what is left. The machine is not reset
  /// between runs. Errors: kInternal when it does not stop.
  virtual Outcome run(const Case& test) = 0;

 protected:
  Machine(std::string name, isa::MachineConfig config) : name_(std::move(name)), config_(std::move(config)) {}
  std::string name_;
  isa::MachineConfig config_;
};

/// What the scratchpads hold before a case: noise from its seed, and its PARAM.
std::array<std::vector<uint8_t>, isa::kSpaces> initial_scratchpads(const Case& test);

/// The machines of this build: "functional" always, "reference" (plain loops, legal programs only), "systemc", "rtl".
std::vector<std::string> machine_names();

/// Errors: kInvalidArgument for an unknown name, kUnsupported when this build has no such machine of `config`.
std::unique_ptr<Machine> make_machine(std::string_view name, const isa::MachineConfig& config);

}  // namespace tessera::proof
