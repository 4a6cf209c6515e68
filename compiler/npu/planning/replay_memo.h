// SPDX-License-Identifier: Apache-2.0
// What replays have cost, for a model that is compiled for many machines. A piece of work and its plan enter as text,
// with the machine but not the sizes of its scratchpads: another size changes a stream only where slots then begin
// somewhere else, and the log of the slots tells whether they do. So the answer is that of the replay, to the cycle.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/npu/graph/graph.h"
#include "compiler/npu/lowering/slots.h"
#include "compiler/schedule/cost_model.h"

namespace tessera::npu {

/// One thread at a time.
class ReplayMemo {
 public:
  /// The number of a piece of work: all that its stream depends on but the plan and the sizes of the scratchpads.
  uint32_t subject(const std::string& text);
  std::optional<schedule::Cost> find(uint32_t subject, const std::string& plan, const isa::MachineConfig& config);
  void keep(uint32_t subject, const std::string& plan, SlotLog slots, const schedule::Cost& cost);

  /// Replays that were found, and that were not.
  int64_t found() const { return found_; }
  int64_t missed() const { return missed_; }

 private:
  struct Known {
    SlotLog slots;
    schedule::Cost cost;
  };
  std::unordered_map<std::string, uint32_t> subjects_;
  std::unordered_map<std::string, std::vector<Known>> known_;  // by subject and plan: one for each placement of slots
  uint32_t next_ = 0;
  size_t bytes_ = 0;
  int64_t found_ = 0, missed_ = 0;
};

/// The machine and the options as far as a stream and its replay depend on them, without the sizes of scratchpads.
std::string replayed_on(const isa::MachineConfig& config, const Options& options);

}  // namespace tessera::npu
