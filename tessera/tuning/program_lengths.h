// SPDX-License-Identifier: Apache-2.0
// For which lengths a decoder has programs of its own. A program computes attention over all of its length, so a short
// past wants a short program. Enters: how much a run needs, the longest length. Leaves: the length of its program.
#pragma once

#include <cstdint>

namespace tessera {

/// No program is shorter, as long as the longest is not.
inline constexpr int64_t kShortestProgram = 32;

/// The least length of at least `needed` that has a program: `each_doubling` (at least 1) of them from one power of two
/// to the next, evenly spaced, and `longest` the last.
int64_t program_length(int64_t needed, int64_t longest, int64_t each_doubling);

/// The length behind it; `longest` of the last one.
inline int64_t next_program_length(int64_t length, int64_t longest, int64_t each_doubling) {
  return program_length(length + 1, longest, each_doubling);
}

}  // namespace tessera
