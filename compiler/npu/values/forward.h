// SPDX-License-Identifier: Apache-2.0
// What a STORE has written and a LOAD fetches again stays on the chip where it still stands. A stream that is right
// when it runs one instruction at a time enters, of all operations; the same leaves with readers pointed at the first
// place that still holds their bytes, with LOADs replaced by copies of the vector unit where GEMM wants them in INP,
// and without LOADs, STOREs and copies whose bytes nobody reads. Each result that is read keeps its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "compiler/emit/work.h"
#include "isa/config.h"
#include "isa/generated/instructions.h"

namespace tessera::npu {

struct Streamed {
  isa::Instruction instruction;
  emit::Work work;
  bool kept = true;  // false: it is no longer part of the stream
};

/// Entries of several images (BATCH > 1) and machines whose INP and OUT entries differ in size keep their streams.
inline bool can_forward(const isa::MachineConfig& config) {
  return config.batch == 1 && config.block_in == config.block_out;
}

/// Intervals of bytes behind kArenaBase.
using ArenaBytes = std::vector<std::pair<int64_t, int64_t>>;

struct Forwarded {
  bool changed = false;
  std::set<size_t> copies;  // which of the stream's LOADs are copies now, which keep the vector unit busy
};

/// A stream whose readers point at the oldest places of what they read, which is the same for any `loads` below.
struct Pointed {
  std::vector<Streamed> stream;
  bool possible = false;                            // on this machine
  bool unread = false;                              // there was something whose bytes nobody reads
  std::vector<std::pair<size_t, Streamed>> copies;  // that may stand in place of LOADs, by these in order
};
Pointed pointed(std::vector<Streamed> stream, const ArenaBytes& results, const isa::MachineConfig& config);
/// The rest of it. `results`: what is read after the program. `loads`: LOADs that no copy replaces.
Forwarded forward(Pointed& stream, const ArenaBytes& results, const isa::MachineConfig& config,
                  const std::set<size_t>& loads);

}  // namespace tessera::npu
