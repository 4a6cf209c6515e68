// SPDX-License-Identifier: Apache-2.0
// A compiled model as a folder of C: tables, weights, instruction streams, machine code of the CPU parts and the
// runtime (runtime/bare_metal), with a Makefile. Enters: an artifact whose CPU code was made for the processor. Leaves:
// files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/cpu/code/target.h"
#include "isa/program/artifact.h"

namespace tessera::bare_metal {

/// A system that a model is exported for.
struct Target {
  std::string_view name;       // "litex-vexriscv"
  std::string_view processor;  // where nobody gives another one
  std::string_view port;       // source of the firmware's port; empty: a library without one
  uint64_t origin, bytes;      // memory of the firmware
  std::string_view summary;
};

const std::vector<Target>& targets();
/// Errors: kInvalidArgument, which lists them.
const Target& find_target(std::string_view name);

struct Options {
  Target target;
  cpu::BareTarget processor;
  std::string model;                       // its name for people
  std::optional<isa::MachineConfig> chip;  // on whose core 0 the model runs
  bool library_math = false;               // functions that the runtime has not come from the C library
  uint64_t rom = 0, ram = 0;               // bytes there are; 0: not known
};

/// What a firmware needs, in bytes.
struct Footprint {
  uint64_t instructions = 0, npu_constants = 0, cpu_constants = 0, code = 0;  // read only
  uint64_t runtime = 0;                                                       // the same, and an estimate
  uint64_t npu_arena = 0, arena = 0, stack = 0;                               // written
  bool npu = false, soft_float = false;                                       // soft_float: floats by functions
  uint64_t rom() const { return instructions + npu_constants + cpu_constants + code + runtime; }
  uint64_t ram() const { return npu_arena + arena + stack; }
};

/// Errors: kUnsupported for what has no form without an operating system, which names the node; kInvalidArtifact for
/// code of another processor.
Footprint footprint(const program::Artifact& artifact, const Options& options);

/// The footprint as a table for people.
std::string footprint_text(const Footprint& footprint, const Options& options);

/// Throws kDoesNotFit, in one line, when there is less memory than the firmware needs.
void check_room(const Footprint& footprint, const Options& options);

/// Writes the folder. Errors: as footprint and check_room; kIo.
void write_folder(const program::Artifact& artifact, const Options& options, const std::string& folder);

/// The sources of runtime/bare_metal by name, as they stand in this program.
struct Source {
  std::string_view name, text;
};
const std::vector<Source>& sources();

}  // namespace tessera::bare_metal
