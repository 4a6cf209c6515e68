// SPDX-License-Identifier: Apache-2.0
// A run instruction by instruction, as the columns of the versioned report (docs/report.md): the artifact that ran and
// what the executor reports enter; JSON leaves. Where a device has no time, the unit is an instruction in place of a
// cycle.
#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "isa/program/artifact.h"
#include "runtime/executor.h"

namespace tessera {

inline constexpr int64_t kNoRow = -1;

/// One instruction that ran. Times count from the begin of the run; without time they are the position in the order of
/// completion.
struct TimedInstruction {
  size_t step = 0;  // which of Report::programs
  uint32_t pc = 0;
  uint32_t core = 0;
  isa::Unit unit = isa::Unit::kFetch;
  int64_t row = kNoRow;  // of the statistics' layers
  int64_t tile = 0;      // within its layer: a tile ends with a STORE
  uint64_t queued = 0, taken = 0, begin = 0, end = 0, completed = 0;
  const driver::InstructionProfile* profile = nullptr;
  const isa::Instruction* instruction = nullptr;
};

struct TimedProgram {
  int64_t program = 0;  // of the artifact
  uint64_t begin = 0, end = 0;
  int64_t first_row = 0;
  std::vector<std::vector<isa::Instruction>> streams;  // by core
  size_t count() const {
    size_t all = 0;
    for (const auto& stream : streams) all += stream.size();
    return all;
  }
};

/// Every instruction with its time, by program and position. `report` and `artifact` outlive it.
struct Timeline {
  bool timed = false;
  uint64_t end = 0;
  std::vector<TimedProgram> programs;
  std::vector<TimedInstruction> instructions;
};

/// Empty `instructions` where the device kept no profile.
Timeline timeline_of(const program::Artifact& artifact, const runtime::Report& report);

nlohmann::json timeline_json(const Timeline& timeline, const runtime::Report& report);

}  // namespace tessera
