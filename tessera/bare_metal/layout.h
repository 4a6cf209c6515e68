// SPDX-License-Identifier: Apache-2.0
// Where the tensors of an exported model lie on the CPU's side: one static arena, planned once.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "isa/program/artifact.h"

namespace tessera::bare_metal {

/// Bytes from the arena's start; all are multiples of 64.
struct ArenaLayout {
  std::map<int64_t, uint64_t> values;    // of the main plan, constants aside, by value
  std::map<size_t, uint64_t> scratch;    // of compiled code, by step
  std::map<int64_t, uint64_t> constant;  // of the constants that steps read: in their own block
  uint64_t bytes = 0, constant_bytes = 0;
};

/// An input lives from the start to its last reader, an output to the end. Places are found by first fit, large ones
/// first.
ArenaLayout plan_arena(const program::Artifact& artifact);

}  // namespace tessera::bare_metal
