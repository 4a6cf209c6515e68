// SPDX-License-Identifier: Apache-2.0
// How many cycles an ALU instruction issues for when no port is refused (isa/timing.md, "ALU"). Enters: an instruction,
// the cycle of its first issue, writes still to come. Leaves: the cycle of its last issue, and its own last writes.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "isa/generated/instructions.h"
#include "sim/systemc/types.h"

namespace tessera::sim::systemc {

struct AluForm {
  uint64_t vectors = 1;  // written
  uint64_t issues = 1;
  uint64_t vector_issues = 1;  // of each
  Cycle latency = 0;           // from a vector's end to its write
  bool second = false;
  bool split = false;  // source and second operand share OUT
};

AluForm form_of(const isa::Alu& alu);

/// What instructions follow each other through the pipeline with: writes under way and the last end.
class AluHistory {
 public:
  void reset();
  /// The cycle of the last issue when the first may be in `from`.
  Cycle last_issue(const isa::Alu& alu, const AluForm& form, Cycle from);
  /// Cycles of these that reads of INP have let writes of INP pass.
  Cycle port_stalls() const { return port_stalls_; }
  /// The instruction's last issue was in `last`.
  void issued(const isa::Alu& alu, const AluForm& form, Cycle last);

 private:
  static constexpr uint64_t kWindow = 32;  // vectors that can be under way
  struct Write {
    isa::AluSpace space;
    int32_t entry;
    Cycle at;
  };
  std::deque<Write> writes_;
  std::vector<Cycle> own_ = std::vector<Cycle>(1 << 14);  // when the instruction in hand writes an entry
  Cycle last_end_ = 0;
  Cycle last_latency_ = 0;
  Cycle port_stalls_ = 0;
};

}  // namespace tessera::sim::systemc
