// SPDX-License-Identifier: Apache-2.0
// In which cycles the ALU issues and writes (isa/timing.md, "ALU"). Enters: instructions, the cycle of their first
// issue, GEMM's use of ACC cycle by cycle, LOAD's share of INP. Leaves: issues, ends of vectors, stalls. Stretches in
// which nothing can be waited for are taken at once; the others issue by issue.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "isa/config.h"
#include "isa/generated/instructions.h"
#include "isa/generated/timing.h"
#include "sim/systemc/engines/acc_use.h"
#include "sim/systemc/ring.h"
#include "sim/systemc/types.h"

namespace tessera::sim::systemc {

struct AluForm {
  uint64_t vectors = 1;        // written
  uint64_t issues = 1;         // pauses of the second operation included
  uint64_t vector_issues = 1;  // of each
  uint64_t pause = 0;          // of these, in front of each vector
  Cycle latency = 0;           // from a vector's end to its write
  bool second = false;
  bool split = false;  // source and second operand share OUT
};

/// What the issue stage sees: a nest, a source, a destination and another operand, in the fields of an ALU instruction,
/// and how long they take.
struct AluWork {
  isa::Alu alu;
  AluForm form;
};
AluWork work_of(const isa::Alu& alu, const isa::MachineConfig& config);

/// Vectors written in one share of the cycles: [from, to).
struct AluStretch {
  Cycle from;
  Cycle to;
  double share;
};

/// The issue stage and what is under way behind it: instructions follow one another through it.
class AluWalk {
 public:
  /// `acc` and `load_share`, LOAD's share of INP's second port, may change between calls.
  void reset(const isa::MachineConfig& config, const AccUse& acc);
  /// The next instruction, whose first issue may be in cycle `from`.
  void start(const isa::Alu& alu, const AluForm& form, Cycle from);
  /// Issues up to before cycle `limit`. What GEMM does with ACC must be known up to there.
  void advance(Cycle limit, double load_share);

  bool done() const { return issued_ == form_.issues; }
  /// Cycles of the first and the last issue so far.
  Cycle first() const { return first_; }
  Cycle last() const { return last_; }
  /// The last issue takes place in this cycle or later.
  Cycle last_at_least(double load_share) const;
  /// With every issue made: the cycle of the last write.
  Cycle last_write() const;
  /// GEMM's use of ACC may hold up an issue or a write.
  bool meets_gemm() const { return alu_.src == isa::AluSpace::kAcc || last_acc_write_ >= next_ || writes_acc(); }
  bool reads_inp() const { return alu_.src == isa::AluSpace::kInp; }
  /// Cycles that ports have cost since this was last asked.
  Cycle take_port_stalls() { return std::exchange(port_stalls_, 0); }
  /// Since this was last asked, in order: issues that end a vector, and cycles in which it asks for a read of OUT or
  /// ACC.
  const std::vector<AluStretch>& ends() const { return ends_; }
  const std::vector<AluStretch>& out_reads() const { return out_reads_; }
  const std::vector<AluStretch>& acc_reads() const { return acc_reads_; }
  void forget_stretches() {
    ends_.clear();
    out_reads_.clear();
    acc_reads_.clear();
  }
  /// The earliest cycle of the next issue, and what it can be followed by.
  Cycle next() const { return next_; }

 private:
  struct Write {
    isa::AluSpace space;
    int32_t entry;
    Cycle at;
  };
  bool writes_acc() const { return alu_.dst == isa::AluSpace::kAcc; }
  Cycle& written(isa::AluSpace space, int32_t entry) {
    return written_[static_cast<size_t>(space)][static_cast<size_t>(entry)];
  }
  void place();
  void move_on();
  Cycle straight(Cycle limit, double load_share) const;
  static void reads(std::vector<AluStretch>& stretches, Cycle from, Cycle last, double share);
  double out_share() const;
  double acc_share() const;
  void skip(uint64_t count);
  void cycle(double load_share);
  bool inp_refuses(Cycle at, double load_share);
  std::optional<Cycle> awaited_write(Cycle at, bool reads_source, bool reads_second);
  void issue(Cycle at, uint64_t part);
  bool refused(Cycle at);
  static void add(std::vector<AluStretch>& stretches, Cycle last, uint64_t count, uint64_t pace);
  void refused_read(Cycle from, Cycle to);
  void write(int32_t entry, Cycle at);

  const AccUse* acc_ = nullptr;
  uint64_t window_ = 0;  // writes that are remembered
  Cycle turns_ = 1;      // for which a vector occupies the second operation
  isa::Alu alu_;
  AluForm form_;
  uint64_t sources_ = 1;   // of a vector
  bool careful_ = false;   // its own reads meet its own writes
  bool early_ = false;     // the cycle just made waits for an older write, which is not asking for a read
  Cycle older_until_ = 0;  // up to here its reads may meet writes of older instructions
  Cycle next_ = 0;
  Cycle first_ = 0, last_ = 0;
  uint64_t issued_ = 0;
  bool begun_ = false;  // the first issue has been made
  Cycle occupied_ = 0;  // up to before this cycle, the second operation by the last vector with one
  // Where the walk over the nest stands, for the issue number issued_ when placed_.
  bool placed_ = false;
  std::array<uint32_t, isa::kLoops> index_{};
  int64_t source_ = 0, target_ = 0, other_ = 0;

  Ring<Write> writes_;                         // under way, in order
  std::array<std::vector<Cycle>, 3> written_;  // when the last write of an entry takes place
  Cycle last_at_ = 0;                          // of the youngest write
  Cycle last_acc_write_ = 0, last_inp_write_ = 0;
  double owed_ = 0;  // cycles that LOAD's share has not yet cost
  Cycle port_stalls_ = 0;
  std::vector<AluStretch> ends_, out_reads_, acc_reads_;
};

}  // namespace tessera::sim::systemc
