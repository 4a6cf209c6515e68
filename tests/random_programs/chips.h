// SPDX-License-Identifier: Apache-2.0
// Random programs of several cores on every machine that runs chips. Enters: a configuration with cores > 1, a seed.
// Leaves: whether all machines agree, and in which byte or record they do not. The functional simulator runs in two
// orders of the cores and on threads; those are machines of their own here.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isa/config.h"
#include "sim/functional/footprint.h"
#include "sim/tests/random_chip.h"

namespace tessera::proof {

struct ChipCase {
  isa::MachineConfig config;
  uint64_t seed = 0;
  int dram_latency = 100;
  int pressure_percent = 0;
  sim::testing::RandomChip chip;            // its DRAM without the programs
  std::vector<uint64_t> program_addresses;  // by core
  std::vector<uint8_t> memory;              // the DRAM with the programs
  std::string injected;                     // what was broken on purpose; empty: legal
  bool races = false;                       // what was broken is a race: bytes are left to chance
};

/// The random case of a seed; with `faulty` one core's program faults or never ends, or two cores block each other, or
/// race.
ChipCase make_chip_case(const isa::MachineConfig& config, uint64_t seed, int instructions, bool faulty);

struct ChipOutcome {
  std::vector<isa::FaultRecord> faults;                                     // by core
  std::vector<std::array<uint64_t, isa::kEngines + 1>> executed;            // by core and isa::Unit
  std::vector<std::array<std::vector<uint8_t>, isa::kSpaces>> scratchpads;  // by core
  std::vector<uint8_t> memory;
  uint64_t cycles = 0;  // of machines with time
};

class ChipMachine {
 public:
  explicit ChipMachine(std::string name) : name_(std::move(name)) {}
  virtual ~ChipMachine() = default;
  const std::string& name() const { return name_; }
  /// Errors: kInternal when it does not stop, or when the functional simulator's race check disagrees with the case.
  virtual ChipOutcome run(const ChipCase& test) = 0;

 private:
  std::string name_;
};

using ChipMachines = std::vector<std::unique_ptr<ChipMachine>>;

/// What a core's scratchpads hold before a case.
std::array<std::vector<uint8_t>, isa::kSpaces> initial_scratchpads(const ChipCase& test, size_t core);

/// "functional", "reversed" (the cores in the other order), "threads", "systemc", and "rtl" where the build has
/// verilated that configuration.
std::vector<std::string> chip_machine_names(const isa::MachineConfig& config);
/// An "rtl" that the build does not have is verilated. Errors: kInvalidArgument for an unknown name.
std::unique_ptr<ChipMachine> make_chip_machine(std::string_view name, const isa::MachineConfig& config);

/// As difference() of compare.h; the first machine is the one the others are compared with.
std::optional<std::string> chip_difference(const ChipCase& test, const ChipMachines& machines,
                                           std::vector<uint64_t>* cycles = nullptr);

/// Writes each core's program as assembly, PATH_coreK.s.
void save_chip(const ChipCase& test, const std::string& path);

}  // namespace tessera::proof
