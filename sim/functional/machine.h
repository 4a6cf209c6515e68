// SPDX-License-Identifier: Apache-2.0
// The functional simulator of the NPU. Enters: a configuration, a program, base registers and DRAM. Leaves: the
// memories as isa/semantics.md defines them, a fault record and counters; no time. Instructions run one at a time: the
// oldest one whose queue and conditions allow it, which is stream order for every legal program. That makes a run
// deterministic and fast; what real concurrency could break is found by the race check, not by the order chosen here.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "isa/config.h"
#include "isa/generated/instructions.h"
#include "sim/functional/dram.h"
#include "sim/functional/engines/work.h"
#include "sim/functional/footprint.h"
#include "sim/functional/public_counters.h"
#include "sim/functional/race_checker.h"
#include "sim/functional/scratchpads.h"

namespace tessera::sim {

/// What to run. Memory that the spans and regions name stays the caller's and must outlive the run.
struct RunRequest {
  /// The program, in one of three forms: 64 bytes for each instruction; else decoded instructions; else, when both are
  /// empty, `instruction_count` instructions that FETCH reads from DRAM at `program_address`.
  std::span<const uint8_t> program;
  std::span<const isa::Instruction> instructions;
  uint64_t program_address = 0;
  uint32_t instruction_count = 0;
  std::array<uint64_t, 16> bases{};
  std::span<const DramRegion> dram;
  /// Device addresses that the memory refuses to read or to write: the instruction that touches them is an axi_error.
  /// What a refused LOAD or STORE leaves in its destination is not defined.
  std::span<const Interval> failing_reads;
  std::span<const Interval> failing_writes;
  bool check_races = false;
  /// The race check stops adding reports at this number.
  size_t max_races = 32;
  /// Called after each completed instruction, in the order of execution.
  std::function<void(const Work&)> observer;
};

struct RunResult {
  isa::FaultRecord fault;  // code kNone: the program has reached FINISH
  Counters counters;
  std::vector<Race> races;  // of check_races; empty when there are none
  bool ok() const { return fault.code == isa::Fault::kNone; }
};

/// What a core shares with the others of its chip.
struct Chipmates {
  size_t core = 0;  // its number
  PublicCounters* publics = nullptr;
  RaceChecker* races = nullptr;  // null: not checked
};

/// A run that goes on as far as other cores let it.
class CoreRun {
 public:
  virtual ~CoreRun() = default;
  /// Runs until the program has ended; false when it waits for a public counter and nothing else can go on.
  virtual bool advance() = 0;
  /// No core goes on: what waits is no_progress.
  virtual void stop() = 0;
  /// Of a run that has ended or been stopped; without `races`.
  virtual RunResult take() = 0;
};

/// One NPU, or one core of a chip. Scratchpads keep their contents from run to run. Not thread-safe: one run or access
/// at a time; separate machines are independent.
class Machine {
 public:
  /// Throws Error kInvalidArgument when the configuration is not valid, or TESSERA_KERNELS names an unknown kernel set
  /// or one that this host cannot run.
  explicit Machine(const isa::MachineConfig& config);
  Machine(const isa::MachineConfig& config, Kernels kernels);
  ~Machine();
  Machine(Machine&&) noexcept;
  Machine& operator=(Machine&&) noexcept;

  const isa::MachineConfig& config() const;
  Kernels kernels() const;

  /// Runs a program until FINISH or a fault. A program that the ISA forbids is a fault in the result, never an
  /// exception. Throws Error kInvalidArgument when `program` is no whole number of instructions.
  RunResult run(const RunRequest& request);

  /// The same for a core of a chip (sim/functional/chip.h), in pieces; nothing has run when it returns. What is named
  /// must outlive the result. `check_races` and `max_races` are the chip's.
  std::unique_ptr<CoreRun> begin(const RunRequest& request, const Chipmates& chip);

  /// Executes one instruction whose operands and scratchpad ranges have been checked, whatever its header says, with
  /// the bases and the memory of `context`: for machines that keep time themselves. Returns dram_range where its memory
  /// is not there; nothing else fails. FINISH is not executed.
  isa::Fault execute(const isa::Instruction& instruction, const RunRequest& context, Work& work);

  std::span<const uint8_t> scratchpad(isa::Space space) const;
  /// Overwrites bytes of a scratchpad. Throws Error kInvalidArgument when they leave it.
  void write_scratchpad(isa::Space space, size_t offset, std::span<const uint8_t> bytes);
  /// Fills all scratchpads with pseudo-random bytes, so that a program cannot lean on what they held before.
  void poison(uint64_t seed);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::sim
