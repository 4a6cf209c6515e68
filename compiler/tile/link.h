// SPDX-License-Identifier: Apache-2.0
// A kernel that was written in tiles, as a program that runs. Enters: its instructions as assembly, in the order of a
// single thread and without waits, each with the statement that it comes from; its tensors in DRAM and its constants.
// Leaves: an artifact with one step of the NPU, whose layers are the statements, so that reports, timelines and
// profiles show lines of the kernel's source. Method: every instruction is checked alone, `emit` places waits and
// signals and predicts the cycles.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isa/config.h"
#include "isa/program/artifact.h"

namespace tessera::tile {

/// A line of the kernel's source, which is a layer of the artifact.
struct Line {
  std::string where;  // "file.py:12", unique; the layer's name
  std::string what;   // "dot", the layer's operator
};

/// Instructions that an execution of a line makes.
struct Statement {
  size_t line = 0;       // number of a Line
  std::string assembly;  // one instruction a line
};

/// A tensor of DRAM that is an input or an output, dense but for the pitch of its fastest axis.
struct Argument {
  std::string name;
  program::DType dtype = program::DType::kInt8;
  std::vector<int64_t> shape;
  std::vector<int64_t> order;  // its axes in memory, slowest first; all in front of the last three as they stand
  int64_t padded = 1;   // elements from a row of the fastest axis to the next; the runtime fills those beyond the axis
  uint8_t fill = 0;     // with this byte
  uint64_t offset = 0;  // in the arena, multiple of 64
};

/// A wait that the kernel's author has placed; numbers count the instructions of all statements.
struct Wait {
  size_t instruction = 0, earlier = 0;
};

struct Kernel {
  std::string name;
  isa::MachineConfig config;
  std::vector<Line> lines;
  std::vector<Statement> statements;  // in order
  std::vector<Argument> inputs, outputs;
  std::vector<uint8_t> constants;
  uint64_t arena_bytes = 0;
  bool by_hand = false;    // the waits are these, and no others
  bool unchecked = false;  // waits that are missing are no error: for tests of who else finds them
  std::vector<Wait> waits;
};

/// An artifact, and which of the waits nothing needs.
struct Linked {
  program::Artifact artifact;
  std::vector<Wait> needless;
};

/// Errors: kInvalidArgument "WHERE: what is wrong" for an instruction that the machine refuses, and for a wait that is
/// missing; kInvalidProgram where the whole stream cannot be one, and those of program::validate.
Linked link(const Kernel& kernel);

}  // namespace tessera::tile
