// SPDX-License-Identifier: Apache-2.0
// ROW_REDUCE and ROW_MAP of isa/timing.md, "Rows". Enters: an instruction whose results the functional executor has
// left in ACC, the cycle in which it starts, GEMM's use of ACC. Leaves: the cycle in which it ends. Nothing else is
// under way in the ALU meanwhile. Only reads and writes of ACC are steps; between them cycles are known, since LOAD and
// STORE wait for reads of the source.
#pragma once

#include <array>
#include <deque>
#include <utility>
#include <vector>

#include "isa/row_cycles.h"
#include "sim/functional/machine.h"
#include "sim/systemc/engines/acc_use.h"
#include "sim/systemc/engines/alu_form.h"
#include "sim/systemc/types.h"

namespace tessera::sim::systemc {

/// What an instruction of rows takes: of each row what depends on its data too.
struct RowWork {
  bool map = false;
  bool maxima = false;
  bool results = false;       // sums, and beside the next group's the results
  bool reads_scalars = true;  // of each row from ACC
  int64_t group = 1;          // rows walked together
  int64_t entries = 1;        // vectors of a row
  isa::AluSpace source = isa::AluSpace::kOut;
  isa::AluSpace destination = isa::AluSpace::kAcc;
  Cycle first = 0;                   // ROW_REDUCE: of a group's first row, beside its end
  Cycle next = 0;                    // ROW_MAP: from a row's first read to that of the next row's scalars
  std::vector<uint32_t> row_cycles;  // ROW_REDUCE: of its end; ROW_MAP: until its factor is made
  // ROW_MAP whose source is where its results go: entries of them, by vector from a row's first and by row.
  std::vector<std::array<int32_t, 2>> vectors, places;
};
RowWork row_work(const isa::RowReduce& i, const Machine& machine);
RowWork row_work(const isa::RowMap& i, const Machine& machine);

class RowWalk {
 public:
  void start(RowWork work, const isa::MachineConfig& config, Cycle from);
  /// What is certain before cycle `limit`, up to where GEMM's use of ACC is known.
  void advance(Cycle limit, const AccUse& acc);
  bool done() const { return row_ == work_.row_cycles.size(); }
  /// The next step; when done, the cycle in which the instruction ends.
  Cycle at() const { return at_; }
  const RowWork& work() const { return work_; }
  /// Vectors read.
  uint64_t vectors() const {
    return (work_.results ? 2 : 1) * work_.row_cycles.size() * static_cast<uint64_t>(work_.entries);
  }
  /// Of sums with results: how long the first group's sums take, and the share of all later cycles with a write.
  Cycle first_results() const;
  double results_share() const;
  bool reads_inp() const { return work_.source == isa::AluSpace::kInp; }
  bool reads_acc() const { return work_.source == isa::AluSpace::kAcc; }
  /// Cycles that ports have cost.
  Cycle stalls() const { return stalls_; }
  /// Since this was last asked, in order: reads of the source, ROW_MAP's softmax and normalisation excepted.
  const std::vector<AluStretch>& source_reads() const { return source_reads_; }
  void forget_stretches() { source_reads_.clear(); }

 private:
  void advance_sums(Cycle limit, const AccUse& acc);
  void advance_maxima(Cycle limit, const AccUse& acc);
  void begin_maximum();
  void read_for_maximum();
  void advance_map(Cycle limit, const AccUse& acc);
  void answer();
  void begin_row();
  Cycle own_free(Cycle at);
  void read_vector(Cycle at);
  bool refused(Cycle limit, const AccUse& acc);
  bool wait_to_write(Cycle limit, const AccUse& acc);
  void scalars();
  void rest(Cycle from);
  void read_sources(Cycle first, int64_t rows, Cycle behind);
  void next_source();
  bool source_refused(Cycle limit, const AccUse& acc);
  void walked(Cycle at);
  void keep();
  void write();

  RowWork work_;
  const isa::MachineConfig* config_ = nullptr;
  Cycle at_ = 0;
  size_t row_ = 0;  // the next one to end
  // Of ROW_REDUCE: rows that have been gathered, the first one of their group, the one behind those that are kept.
  size_t gathered_ = 0, first_ = 0, kept_ = 0;
  Cycle step_at_ = 0;         // the next row
  Cycle write_at_ = 0;        // the next result
  Cycle walked_ = 0;          // when a group's results may be kept at the earliest
  Cycle written_ = 0;         // the last result
  std::deque<Cycle> maxima_;  // from when on they may be written
  std::deque<Cycle> begins_;  // of rows to come, the earliest: their results have a place
  Cycle stalls_ = 0;
  std::vector<AluStretch> source_reads_;
  // Of ROW_MAP. Cycles are kNever where they are not known.
  size_t asked_ = 0;                                 // rows whose scalars have been read
  Cycle ask_at_ = 0, read_at_ = 0;                   // the next read of scalars, of a vector
  Cycle ready_ = 0;                                  // when the next row may begin
  Cycle free_ = 0;                                   // when the next vector may be read
  std::deque<std::pair<int32_t, Cycle>> under_way_;  // destinations, and when their vectors were read
  int64_t reads_ = 0;                                // of the row
  int64_t before_ = 0;                               // of sum_softmax: rows of the group before, whose results are made
  // Of sum_softmax whose source is ACC: the next read of a vector, in the first or the second half of a slot, of a
  // group of so many rows, and when what follows the reads comes if none of those to come is refused.
  Cycle source_at_ = kNever, behind_ = 0;
  int64_t slot_ = 0, slot_rows_ = 0;
  bool second_half_ = false;
};

}  // namespace tessera::sim::systemc
