// SPDX-License-Identifier: Apache-2.0
// Where the slots of one nest after the other begin in each scratchpad. Demands enter in the order of the nests; first
// entries leave, and a log by which the same question can be asked for scratchpads of other sizes: they are the only
// thing in a lowering that the sizes decide.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "isa/config.h"

namespace tessera::npu {

/// One step of the log: so many entries were reserved from `begin` on, of which `first` were needed first; or those
/// from `begin` to `end` were found to be in use.
struct SlotStep {
  bool reserved = false;
  isa::Space space = isa::Space::kInp;
  int64_t begin = 0, end = 0;
  int64_t first = 0;
};
using SlotLog = std::vector<SlotStep>;

class Slots {
 public:
  /// A place for `total` entries of a scratchpad of `depth`, behind those still in use, so that a nest's first fetches
  /// need not wait; from 0 or up to the end where that is not possible. `first`: entries that are needed first.
  int64_t reserve(isa::Space space, int64_t depth, int64_t total, int64_t first);
  /// Entries of the space that are in use until the end of what has been emitted so far.
  void set_in_use(isa::Space space, int64_t begin, int64_t end);
  const SlotLog& log() const { return log_; }

 private:
  int64_t place(isa::Space space, int64_t depth, int64_t total, int64_t first) const;

  std::array<std::pair<int64_t, int64_t>, isa::kSpaces> in_use_{};
  SlotLog log_;
};

/// Whether the scratchpads of a machine give everything the place that it has in the log.
bool same_slots(const SlotLog& log, const isa::MachineConfig& config);

}  // namespace tessera::npu
