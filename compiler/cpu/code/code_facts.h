// SPDX-License-Identifier: Apache-2.0
// What compiled code needs beside itself: memory, and functions of a library.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "isa/program/artifact.h"

namespace tessera::cpu {

struct CodeFacts {
  uint64_t code_bytes = 0, constant_bytes = 0;         // of the object, as they are loaded
  std::map<std::string, std::set<std::string>> calls;  // by entry point: names of the C library ("expf")
};

/// Reads object and bitcode. Errors: kInvalidArtifact when they are damaged.
CodeFacts facts_of(const program::CpuModule& module);

}  // namespace tessera::cpu
