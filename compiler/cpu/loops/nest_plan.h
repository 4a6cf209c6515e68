// SPDX-License-Identifier: Apache-2.0
// What a nest of loops for a linalg.generic looks like before any of it is written: its loops, what each value of the
// body depends on, and which loops become vectors, registers and the share of threads.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "compiler/cpu/loops/addresses.h"
#include "compiler/cpu/loops/loops.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace tessera::cpu {

struct Loop {
  int64_t extent = 1;
  bool reduction = false;
  int dim = -1;  // of the operation, where its value is read; -1 otherwise
};

/// Iterations [start, start + count * step) of a loop, `step` elements at a time. A segment of one step may end early:
/// of its elements only `active` exist, the others are lanes under a mask.
struct Segment {
  int64_t start = 0, count = 1, step = 1, active = 1;
  int64_t first_item = 0;  // where this loop is split among threads: the number of its first step
};

/// The choices for one operation; the nest that is written follows them (loops.cc).
class NestPlan {
 public:
  /// `reader`, if any, is an element-wise operation joined to the sum `op` (joins.h).
  NestPlan(mlir::linalg::GenericOp op, mlir::linalg::GenericOp reader, int64_t vector_bytes);

 protected:
  bool depends(mlir::Value v, int loop) const {
    const auto found = depends_.find(v.getAsOpaquePointer());
    return loop >= 0 && found != depends_.end() && found->second.count(static_cast<size_t>(loop)) != 0;
  }
  int64_t coefficient(size_t operand, int loop) const {
    return addresses_[operand].coefficients[static_cast<size_t>(loop)];
  }
  bool unused_input(size_t operand) const {
    return operand < inputs() && body_->getArgument(static_cast<unsigned>(operand)).use_empty();
  }
  bool is_tile_operand(size_t k) const {
    return !unused_input(k) && coefficient(k, tile_loop_) != 0 && coefficient(k, vector_) == 0;
  }
  /// Whether operands of the tile's loop alone, such as weights, depend on a loop.
  bool tile_knows(size_t loop) const;
  bool tile_belongs_outside() const { return time_of_rereading(false) < time_of_rereading(true); }

  int64_t terms() const;
  /// The operand that a window slides over, or none.
  std::optional<size_t> sliding_operand() const;
  /// Whether all terms are written out, so that what several rows read is loaded once: few terms, which read elements
  /// in ascending order.
  bool slides() const;
  std::vector<Segment> vector_segments() const;
  std::vector<Segment> tile_segments() const;
  /// The loop that threads share: the outermost one with many items, else the one with most.
  Work choose_split(int64_t vector_items, int64_t tile_items);
  int64_t vector_stride(size_t operand) const {
    return vector_ < 0 ? 0 : addresses_[operand].coefficients[static_cast<size_t>(vector_)];
  }
  size_t inputs() const { return inputs_; }
  size_t outputs() const { return outputs_; }
  /// Operands are those of the sum, then those of the joined operation.
  size_t own_operands() const { return inputs_ + outputs_; }
  size_t operand_of(mlir::BlockArgument argument) const {
    return argument.getArgNumber() + (argument.getOwner() == body_ ? 0 : own_operands());
  }
  mlir::Value buffer_of(size_t operand) const {
    return operand < own_operands() ? op_->getOperand(static_cast<unsigned>(operand))
                                    : reader_->getOperand(static_cast<unsigned>(operand - own_operands()));
  }
  mlir::Value output(size_t k) { return op_.getDpsInits()[static_cast<unsigned>(k)]; }
  mlir::Value yielded(size_t k) { return body_->getTerminator()->getOperand(static_cast<unsigned>(k)); }
  mlir::Value accumulator(size_t k) const { return body_->getArgument(static_cast<unsigned>(inputs() + k)); }

  mlir::linalg::GenericOp op_, reader_;
  unsigned joined_ = 0;  // operand of the reader that is the sum
  int64_t vector_bytes_;
  mlir::Block* body_ = nullptr;
  size_t inputs_ = 0, outputs_ = 0;
  std::vector<mlir::Operation*> body_operations_;  // of the sum and of the reader
  std::vector<Loop> loops_;
  std::vector<Linear> addresses_;                    // of each operand
  std::map<const void*, std::set<size_t>> depends_;  // loops behind each value of the body
  std::vector<mlir::Attribute> starts_;              // of each output: a constant start, or none
  std::vector<mlir::Operation*> erased_;
  bool reduces_ = false;
  int vector_ = -1, tile_loop_ = -1, split_ = -1;
  int64_t lanes_ = 1, tile_ = 1, unroll_ = 1;
  bool masked_ = false;  // the last vector may have lanes that do not exist

 private:
  void read_loops();
  /// Loops that remain: no extent of 1, neighbours merged where every operand continues.
  void keep_loops(std::vector<Linear> operands);
  /// Which loops each value of the body depends on.
  void find_dependences();
  std::set<size_t> loops_behind(mlir::Operation& op) const;
  /// Sums that the operation just before has set to a constant start from that constant.
  void read_start_values();
  /// Elements of a vector along `loop`, bounded by the widest type that varies along it.
  int64_t lanes_along(int loop) const;
  /// Whether lanes may compute on elements that do not exist: where vectors have masks and nothing in the body can trap
  /// or goes lane by lane.
  bool maskable() const;
  bool goes_lane_by_lane() const;
  /// Steps of reading or writing `lanes` elements that are `stride` apart.
  double access_work(size_t operand, int64_t stride, double lanes) const;
  /// Work for a vector of `lanes` along a loop, where a strided access costs one step a lane.
  double vector_work(int loop, double lanes) const;
  /// The vector loop: the least work an element.
  void choose_vector_loop();
  /// Reads for a register tile along a loop, and those where every row reads for itself. An operand that stands still
  /// along the loop is read once; one that varies along the vectors too costs most.
  std::pair<int64_t, int64_t> tile_reads(int loop) const;
  /// The loop kept in registers: the one with the fewest reads for a tile.
  void choose_tile_loop();
  void choose();
  /// In the unit of kLeastWork. What is no sum spends its time in memory.
  double work_of_a_step() const;
  /// Time to read an operand again for each round of loops that it does not know, in bytes of the second-level cache.
  double time_of_rereading(bool tile_operands) const;
};

}  // namespace tessera::cpu
