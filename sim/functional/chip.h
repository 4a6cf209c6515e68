// SPDX-License-Identifier: Apache-2.0
// A chip of several cores in the functional simulator. Enters: a program for each core that has one, and the DRAM that
// they share. Leaves: the memories, and a fault record and counters of each core; no time. A core runs until it waits
// for a public counter, then another one does; on threads they run at once. Public counters only grow and are not
// consumed, so that a program without races gives the same bytes and records in every order.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "sim/functional/machine.h"

namespace tessera::sim {

struct ChipRequest {
  /// By core; those behind its end, and those without an instruction, have no program. Their check_races and max_races
  /// mean nothing. An observer is called on its core's thread.
  std::span<const RunRequest> cores;
  bool check_races = false;  // among all cores; needs `threads` off
  size_t max_races = 32;
  bool threads = false;  // one for each core with a program
  /// With threads: called from time to time on the caller's thread. It must not throw.
  std::function<void()> meanwhile;
  std::span<const size_t> order;  // in which cores take turns, each once; empty: ascending. For tests
};

struct ChipResult {
  std::vector<RunResult> cores;  // by number; zeros where a core has no program
  std::vector<Race> races;
};

/// As many machines as its configuration has cores. Not thread-safe; separate chips are independent.
class Chip {
 public:
  /// Throws as Machine does.
  explicit Chip(const isa::MachineConfig& config);
  Chip(const isa::MachineConfig& config, Kernels kernels);

  const isa::MachineConfig& config() const { return cores_[0].config(); }
  Machine& core(size_t number) { return cores_[number]; }

  /// Runs all programs until each has ended or waits for a counter that nobody counts any more; that is no_progress.
  /// Throws Error kInvalidArgument for more programs than cores.
  ChipResult run(const ChipRequest& request);

 private:
  std::vector<Machine> cores_;
};

}  // namespace tessera::sim
