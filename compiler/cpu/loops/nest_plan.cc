// SPDX-License-Identifier: Apache-2.0
// Enters: a linalg.generic on memrefs of static shape and strides. Leaves: which of its loops becomes vectors, which is
// kept in registers, which threads share, and how the others are cut.
#include "compiler/cpu/loops/nest_plan.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "compiler/cpu/buffers.h"
#include "compiler/cpu/loops/joins.h"
#include "compiler/cpu/loops/vectors.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"

namespace tessera::cpu {

using namespace mlir;

namespace {

constexpr int64_t kRegisterTile = 8;
constexpr int64_t kSlidingTile = 4;  // rows whose terms are all written out
constexpr double kLeastWork = 1e6;   // that is worth another thread: sums of products, of which 32 take a cycle

}  // namespace

NestPlan::NestPlan(linalg::GenericOp op, linalg::GenericOp reader, int64_t vector_bytes)
    : op_(op), reader_(reader), vector_bytes_(vector_bytes) {
  read_loops();
  read_start_values();
  choose();
}

void NestPlan::read_loops() {
  body_ = op_.getBody();
  inputs_ = static_cast<size_t>(op_.getNumDpsInputs());
  outputs_ = static_cast<size_t>(op_.getNumDpsInits());
  std::vector<Linear> operands;
  for (OpOperand& operand : op_->getOpOperands()) operands.push_back(linear_address(op_, operand));
  if (reader_) {
    joined_ = joined_operand(reader_);
    const auto over = addresses_over(op_, reader_, joined_);
    TESSERA_INVARIANT(over, "a joined operation runs over the loops of its sum");
    operands.insert(operands.end(), over->begin(), over->end());
  }
  for (Operation& op : body_->without_terminator()) body_operations_.push_back(&op);
  if (reader_)
    for (Operation& op : reader_.getBody()->without_terminator()) body_operations_.push_back(&op);
  keep_loops(std::move(operands));
  reduces_ = std::any_of(loops_.begin(), loops_.end(), [](const Loop& loop) { return loop.reduction; });
  find_dependences();
}

void NestPlan::keep_loops(std::vector<Linear> operands) {
  const auto ranges = op_.getStaticLoopRanges();
  const auto iterators = op_.getIteratorTypesArray();
  std::set<unsigned> observed;
  body_->walk([&](linalg::IndexOp index) { observed.insert(static_cast<unsigned>(index.getDim())); });
  std::vector<std::vector<int64_t>> kept(operands.size());
  for (unsigned d = 0; d < ranges.size(); ++d) {
    const bool seen = observed.count(d) != 0;
    if (ranges[d] == 1 && !seen) continue;
    const bool reduction = iterators[d] == utils::IteratorType::reduction;
    bool merge = !loops_.empty() && !seen && loops_.back().dim < 0 && loops_.back().reduction == reduction;
    for (size_t k = 0; merge && k < operands.size(); ++k)
      merge = kept[k].back() == operands[k].coefficients[d] * ranges[d];
    if (merge)
      loops_.back().extent *= ranges[d];
    else
      loops_.push_back({ranges[d], reduction, seen ? static_cast<int>(d) : -1});
    for (size_t k = 0; k < operands.size(); ++k) {
      kept[k].resize(loops_.size());
      kept[k].back() = operands[k].coefficients[d];
    }
  }
  for (size_t k = 0; k < operands.size(); ++k) {
    operands[k].coefficients = std::move(kept[k]);
    addresses_.push_back(std::move(operands[k]));
  }
}

void NestPlan::find_dependences() {
  std::vector<BlockArgument> arguments(body_->args_begin(), body_->args_end());
  if (reader_) arguments.insert(arguments.end(), reader_.getBody()->args_begin(), reader_.getBody()->args_end());
  for (BlockArgument argument : arguments) {
    std::set<size_t> loops;
    const auto& c = addresses_[operand_of(argument)].coefficients;
    const bool accumulator = reduces_ && argument.getOwner() == body_ && argument.getArgNumber() >= inputs();
    for (size_t l = 0; l < loops_.size(); ++l)
      if (c[l] != 0 || (accumulator && loops_[l].reduction)) loops.insert(l);
    depends_[argument.getAsOpaquePointer()] = std::move(loops);
  }
  for (Operation* op : body_operations_) {
    const std::set<size_t> loops = loops_behind(*op);
    for (Value result : op->getResults()) depends_[result.getAsOpaquePointer()] = loops;
  }
}

std::set<size_t> NestPlan::loops_behind(Operation& op) const {
  std::set<size_t> loops;
  if (auto index = dyn_cast<linalg::IndexOp>(op)) {
    for (size_t l = 0; l < loops_.size(); ++l)
      if (loops_[l].dim == static_cast<int>(index.getDim())) loops.insert(l);
  }
  for (Value operand : op.getOperands()) {
    const auto found = depends_.find(operand.getAsOpaquePointer());
    if (found != depends_.end()) loops.insert(found->second.begin(), found->second.end());
  }
  return loops;
}

void NestPlan::read_start_values() {
  starts_.assign(outputs(), Attribute());
  if (!reduces_) return;
  for (linalg::GenericOp fill : fills_before(op_)) {
    Attribute value;
    if (!matchPattern(cast<linalg::YieldOp>(fill.getBody()->getTerminator()).getOperand(0), m_Constant(&value)))
      continue;
    for (size_t k = 0; k < outputs(); ++k)
      if (output(k) == fill.getDpsInits()[0]) starts_[k] = value;
    erased_.push_back(fill);
  }
}

int64_t NestPlan::lanes_along(int loop) const {
  int64_t widest = 1;
  bool calls = false;
  const auto see = [&](Value v) {
    if (depends(v, loop)) widest = std::max(widest, element_bytes(v.getType()));
  };
  for (BlockArgument argument : body_->getArguments())
    if (!argument.use_empty()) see(argument);
  for (Operation& op : body_->without_terminator()) {
    for (Value result : op.getResults())
      if (!result.getType().isInteger(1)) see(result);
    calls = calls || lane_by_lane(op, vector_bytes_);
  }
  const int64_t lanes = std::max<int64_t>(vector_bytes_ / widest, 1);
  return calls ? std::min<int64_t>(lanes, 8) : lanes;
}

bool NestPlan::maskable() const {
  if (vector_bytes_ < 64 || goes_lane_by_lane()) return false;
  for (size_t k = 0; k < addresses_.size(); ++k)
    if (getElementTypeOrSelf(buffer_of(k).getType()).isInteger(1)) return false;
  return std::none_of(body_operations_.begin(), body_operations_.end(), [](Operation* op) {
    return isa<arith::DivSIOp, arith::DivUIOp, arith::RemSIOp, arith::RemUIOp, arith::CeilDivSIOp, arith::CeilDivUIOp,
               arith::FloorDivSIOp>(op);
  });
}

bool NestPlan::goes_lane_by_lane() const {
  return std::any_of(body_operations_.begin(), body_operations_.end(),
                     [this](Operation* op) { return lane_by_lane(*op, vector_bytes_); });
}

double NestPlan::access_work(size_t operand, int64_t stride, double lanes) const {
  if (stride == 0 || stride == 1) return 1;
  return stride == 2 && operand < inputs() ? std::min(3.0, lanes) : lanes;
}

double NestPlan::vector_work(int loop, double lanes) const {
  double work = 0, terms = 1;  // an operation behind the sum runs once for all terms of it
  for (const Loop& l : loops_)
    if (l.reduction) terms *= static_cast<double>(l.extent);
  for (size_t k = 0; k < addresses_.size(); ++k) {
    if (unused_input(k)) continue;
    const int64_t c = coefficient(k, loop);
    work += access_work(k, c, lanes) / (k < own_operands() ? 1 : terms);
  }
  for (Operation& op : body_->without_terminator())
    work += isa<memref::LoadOp>(op)           ? lanes
            : library_function(&op).empty()   ? 1
            : lane_by_lane(op, vector_bytes_) ? 4 * lanes
                                              : lanes;
  return work;
}

void NestPlan::choose_vector_loop() {
  double best = 0;
  for (size_t l = 0; l < loops_.size(); ++l) {
    if (loops_[l].reduction || loops_[l].extent == 1) continue;
    const int loop = static_cast<int>(l);
    const auto lanes = static_cast<double>(std::min(lanes_along(loop), loops_[l].extent));
    const double cost = vector_work(loop, lanes) / lanes;
    if (vector_ >= 0 && cost > best) continue;
    vector_ = loop;
    best = cost;
  }
  if (vector_ < 0) return;
  const int64_t extent = loops_[static_cast<size_t>(vector_)].extent;
  masked_ = maskable();
  lanes_ = std::min(lanes_along(vector_), masked_ ? static_cast<int64_t>(llvm::PowerOf2Ceil(extent)) : extent);
}

std::pair<int64_t, int64_t> NestPlan::tile_reads(int loop) const {
  const int64_t rows = std::min(kRegisterTile, loops_[static_cast<size_t>(loop)].extent);
  int64_t reads = 0, separate = 0;
  for (size_t k = 0; k < inputs(); ++k) {
    if (unused_input(k)) continue;
    const int64_t along = coefficient(k, vector_);
    const auto cost =
        static_cast<int64_t>(2 * (along == 0 ? 1 : 2 * access_work(k, along, static_cast<double>(lanes_) / 2)));
    reads += coefficient(k, loop) == 0 ? cost / rows : cost;
    separate += cost;
  }
  return {reads, separate};
}

void NestPlan::choose_tile_loop() {
  int64_t least = 0;
  for (size_t l = 0; l < loops_.size(); ++l) {
    if (loops_[l].reduction || static_cast<int>(l) == vector_ || loops_[l].extent == 1) continue;
    const auto [reads, separate] = tile_reads(static_cast<int>(l));
    const bool fewer = reads < (tile_loop_ < 0 ? separate : least);
    const bool longer =
        reads == least && tile_loop_ >= 0 && loops_[l].extent > loops_[static_cast<size_t>(tile_loop_)].extent;
    if (!fewer && !longer) continue;
    tile_loop_ = static_cast<int>(l);
    least = reads;
  }
  if (tile_loop_ >= 0) tile_ = std::min(kRegisterTile, loops_[static_cast<size_t>(tile_loop_)].extent);
}

void NestPlan::choose() {
  choose_vector_loop();
  if (!reduces_ || vector_ < 0 || goes_lane_by_lane()) return;
  choose_tile_loop();
  const bool sliding = slides();
  if (sliding) tile_ = std::min(tile_, kSlidingTile);
  const int64_t registers = vector_bytes_ >= 64 && !sliding ? 2 * kRegisterTile : kRegisterTile;
  bool strided = false;
  for (size_t k = 0; k < addresses_.size(); ++k)
    strided = strided || access_work(k, coefficient(k, vector_), static_cast<double>(lanes_)) > 3;
  // With masks a last vector may be in part beyond the end.
  const int64_t extent = loops_[static_cast<size_t>(vector_)].extent + (masked_ ? lanes_ - 1 : 0);
  while (!strided && tile_ * unroll_ * 2 <= registers && lanes_ * unroll_ * 2 <= extent) unroll_ *= 2;
}

std::vector<Segment> NestPlan::vector_segments() const {
  if (vector_ < 0) return {{}};
  const int64_t extent = loops_[static_cast<size_t>(vector_)].extent;
  std::vector<Segment> segments;
  int64_t at = 0;
  for (int64_t step : {lanes_ * unroll_, lanes_}) {
    const int64_t count = (extent - at) / step;
    if (count > 0) segments.push_back({at, count, step, step});
    at += count * step;
    if (masked_ && at < extent) {
      const int64_t rest = extent - at;
      const int64_t lanes = std::min(lanes_, static_cast<int64_t>(llvm::PowerOf2Ceil(rest)));
      segments.push_back({at, 1, (rest + lanes - 1) / lanes * lanes, rest});
      return segments;
    }
  }
  if (at < extent) segments.push_back({at, 1, extent - at, extent - at});
  return segments;
}

std::vector<Segment> NestPlan::tile_segments() const {
  if (tile_loop_ < 0) return {{}};
  const int64_t extent = loops_[static_cast<size_t>(tile_loop_)].extent;
  std::vector<Segment> segments{{0, extent / tile_, tile_}};
  if (extent % tile_ != 0) segments.push_back({extent - extent % tile_, 1, extent % tile_});
  return segments;
}

Work NestPlan::choose_split(int64_t vector_items, int64_t tile_items) {
  constexpr int64_t kMany = 32;
  Work work;
  const auto offer = [&](int loop, int64_t items) {
    if (work.items >= kMany || items <= work.items) return;
    split_ = loop;
    work.items = items;
  };
  double steps = 1;
  for (size_t l = 0; l < loops_.size(); ++l) {
    const int loop = static_cast<int>(l);
    steps *= static_cast<double>(loops_[l].extent);
    if (!loops_[l].reduction && loop != vector_ && loop != tile_loop_) offer(loop, loops_[l].extent);
  }
  if (vector_ >= 0) offer(vector_, vector_items);
  if (tile_loop_ >= 0) offer(tile_loop_, tile_items);
  const double an_item = steps * work_of_a_step() / static_cast<double>(work.items);
  work.grain = static_cast<int64_t>(std::ceil(kLeastWork / an_item));
  return work;
}

double NestPlan::work_of_a_step() const {
  constexpr double kAccess = 8, kVectorCall = 60, kCall = 600;
  double work = 0;
  for (Operation& op : body_->without_terminator())
    work += library_function(&op).empty() ? 1 : lane_by_lane(op, vector_bytes_) ? kCall : kVectorCall;
  for (size_t k = 0; !reduces_ && k < own_operands(); ++k)
    if (!unused_input(k)) work += kAccess;
  return std::max(work, 1.0);
}

bool NestPlan::tile_knows(size_t loop) const {
  for (size_t k = 0; k < inputs(); ++k)
    if (is_tile_operand(k) && addresses_[k].coefficients[loop] != 0) return true;
  return false;
}

double NestPlan::time_of_rereading(bool tile_operands) const {
  constexpr double kNear = 24 << 10, kFar = 768 << 10, kNearCost = 0.2, kFarCost = 5;
  double bytes = 0, rounds = 1;
  for (size_t k = 0; k < inputs(); ++k) {
    if (unused_input(k) || is_tile_operand(k) != tile_operands) continue;
    double elements = 1, span = 1;  // windows overlap
    for (size_t l = 0; l < loops_.size(); ++l) {
      const int64_t c = addresses_[k].coefficients[l];
      if (c == 0 || !(loops_[l].reduction || !tile_knows(l) || static_cast<int>(l) == tile_loop_)) continue;
      elements *= static_cast<double>(loops_[l].extent);
      span += static_cast<double>((loops_[l].extent - 1) * std::abs(c));
    }
    bytes +=
        std::min(elements, span) * static_cast<double>(element_bytes(getElementTypeOrSelf(buffer_of(k).getType())));
  }
  for (size_t l = 0; l < loops_.size(); ++l) {
    if (loops_[l].reduction) continue;
    const bool tile = static_cast<int>(l) == tile_loop_;
    if (tile != tile_operands && (tile || !tile_knows(l)))
      rounds *= std::ceil(static_cast<double>(loops_[l].extent) / static_cast<double>(tile ? tile_
                                                                                      : static_cast<int>(l) == vector_
                                                                                          ? lanes_ * unroll_
                                                                                          : 1));
  }
  return bytes * rounds * (bytes < kNear ? kNearCost : bytes > kFar ? kFarCost : 1);
}

// A window that moves by less than its own size along the tile's loop: rows of the tile read the same elements for
// other terms.

int64_t NestPlan::terms() const {
  int64_t count = 1;
  for (const Loop& l : loops_)
    if (l.reduction) count *= l.extent;
  return count;
}

std::optional<size_t> NestPlan::sliding_operand() const {
  for (size_t k = 0; k < inputs(); ++k) {
    if (unused_input(k) || coefficient(k, vector_) == 0) continue;
    const int64_t step = coefficient(k, tile_loop_);
    for (size_t l = 0; step > 0 && l < loops_.size(); ++l) {
      const int64_t c = addresses_[k].coefficients[l];
      if (loops_[l].reduction && c > 0 && step % c == 0 && step / c < loops_[l].extent) return k;
    }
  }
  return std::nullopt;
}

bool NestPlan::slides() const {
  constexpr int64_t kTerms = 25;
  if (tile_loop_ < 0 || vector_ < 0 || outputs() != 1 || terms() > kTerms) return false;
  const auto operand = sliding_operand();
  if (!operand) return false;
  int64_t span = 0;
  for (size_t l = loops_.size(); l-- > 0;) {
    if (!loops_[l].reduction) continue;
    const int64_t c = addresses_[*operand].coefficients[l];
    if (c <= span) return false;
    span += c * (loops_[l].extent - 1);
  }
  return true;
}

}  // namespace tessera::cpu
