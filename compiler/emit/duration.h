// SPDX-License-Identifier: Apache-2.0
// How long an instruction keeps its engine and the memory bus busy when nothing holds it up. An instruction and the
// machine enter, counts of cycles leave; the closed forms are those of isa/timing.md without fill, latency and refused
// ports. The generator weighs prefetches with them and predicts cycles.
#pragma once

#include <cstdint>

#include "isa/config.h"
#include "isa/generated/instructions.h"
#include "isa/verify/effects.h"

namespace tessera::emit {

/// Padding of a LOAD, in groups, which take no beats.
struct Border {
  int64_t ahead = 0, behind = 0;  // in front of the first data, behind the last
  int64_t between = 0, gaps = 0;  // between two rows; how often
  int64_t ahead_steps = 0;        // of the nest, in front of the first data
  int64_t row_steps = 0;          // from a row's first step to that of the next
  int64_t row_groups = 0;         // that these steps write
};

struct Duration {
  int64_t engine =
      0;  // cycles of its engine: GEMM's steps, ALU's issues, groups that LOAD and STORE move in the scratchpad
  int64_t beats = 0;    // of the bus, without the instruction's own words
  int64_t bursts = 0;   // STORE: runs that do not continue each other; LOAD: that are not requested together
  int64_t shared = 0;   // beats of the master that cores share; 0: there is none
  int64_t runs = 0;     // LOAD: bursts' runs and runs of padding
  int64_t waiting = 0;  // LOAD: of these those that hold a place until data come
  int64_t outputs = 0;  // GEMM, ALU: entries written
  int64_t inputs = 0;   // ALU: issues that read, of rows the vectors read
  bool alone = false;   // ALU: nothing else is under way there meanwhile, and `engine` counts up to the completion
  Border border;        // LOAD
};

Duration duration(const isa::Instruction& instruction, const isa::MachineConfig& config);
/// The same for one whose effects are known.
Duration duration(const isa::Instruction& instruction, const isa::Effects& effects, const isa::MachineConfig& config);

}  // namespace tessera::emit
