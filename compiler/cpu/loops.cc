// SPDX-License-Identifier: Apache-2.0
// Enters: linalg.generic on memrefs of static shape and strides. Leaves: scf.for nests over vector loads, element
// operations and stores. One parallel loop is cut into vectors; in a reduction a second one (or several vectors) is
// kept in registers, so that an operand is read once for many sums. Reduced loops are innermost and sequential: each
// element's sum has the order of the source, whatever is vectorised, and the result is that of the scalar loops bit for
// bit. A remainder becomes a nest of its own with a shorter vector. Each value of the body is computed in the outermost
// loop that knows its operands. Addresses are linear in the loops, so that loops which walk every operand without a gap
// are merged first.
#include "compiler/cpu/loops.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "compiler/cpu/addresses.h"
#include "compiler/cpu/buffers.h"
#include "compiler/cpu/joins.h"
#include "compiler/cpu/vectors.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/PatternMatch.h"

namespace tessera::cpu {

using namespace mlir;

namespace {

/// Every buffer as a flat row of elements.
class FlatBuffers {
 public:
  Value operator()(Value root) {
    Value& flat = flat_[root.getAsOpaquePointer()];
    if (!flat) {
      auto type = cast<MemRefType>(root.getType());
      OpBuilder builder(root.getContext());
      builder.setInsertionPointAfterValue(root);
      flat = builder.create<memref::ReinterpretCastOp>(
          root.getLoc(), MemRefType::get({type.getNumElements()}, type.getElementType()), root, 0,
          ArrayRef<int64_t>{type.getNumElements()}, ArrayRef<int64_t>{1});
    }
    return flat;
  }

 private:
  std::map<const void*, Value> flat_;
};

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

/// Numbers the steps of a loop's segments; returns how many there are.
int64_t number_items(std::vector<Segment>& segments) {
  int64_t items = 0;
  for (Segment& segment : segments) {
    segment.first_item = items;
    items += segment.count;
  }
  return items;
}

constexpr int64_t kRegisterTile = 8;
constexpr int64_t kSlidingTile = 4;  // rows whose terms are all written out
constexpr double kLeastWork = 1e6;   // that is worth another thread: sums of products, of which 32 take a cycle

class Nest {
 public:
  /// `reader`, if any, is an element-wise operation joined to the sum `op` (joins.h).
  Nest(linalg::GenericOp op, linalg::GenericOp reader, int64_t vector_bytes, FlatBuffers& buffers)
      : op_(op),
        reader_(reader),
        vector_bytes_(vector_bytes),
        buffers_(buffers),
        builder_(op),
        location_(op.getLoc()),
        code_(builder_, location_, op->getParentOfType<func::FuncOp>(), vector_bytes) {}

  /// Items of the loop that threads share come from the function's last two arguments, where it `splits`.
  Work lower(bool splits) {
    read_loops();
    read_start_values();
    choose();
    std::vector<Segment> all_vectors = vector_segments(), all_tiles = tile_segments();
    const int64_t vector_items = number_items(all_vectors), tile_items = number_items(all_tiles);
    const Work work = splits ? choose_split(vector_items, tile_items) : Work();
    for (const Segment& vectors : all_vectors)
      for (const Segment& tile : all_tiles) emit(vectors, tile);
    if (reader_) reader_.erase();
    for (Operation* dead : erased_) dead->erase();
    op_.erase();
    return work;
  }

 private:
  // --- what the operation reads
  // ------------------------------------------------------------------------------------------------

  void read_loops() {
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

  /// Loops that remain: no extent of 1, neighbours merged where every operand continues.
  void keep_loops(std::vector<Linear> operands) {
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

  /// Which loops each value of the body depends on.
  void find_dependences() {
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

  std::set<size_t> loops_behind(Operation& op) const {
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

  /// Sums that the operation just before has set to a constant start from that constant.
  void read_start_values() {
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

  // --- the choice of loops
  // -----------------------------------------------------------------------------------------------------

  bool depends(Value v, int loop) const {
    const auto found = depends_.find(v.getAsOpaquePointer());
    return loop >= 0 && found != depends_.end() && found->second.count(static_cast<size_t>(loop)) != 0;
  }

  /// Elements of a vector along `loop`, bounded by the widest type that varies along it.
  int64_t lanes_along(int loop) const {
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

  /// Whether lanes may compute on elements that do not exist: where vectors have masks and nothing in the body can trap
  /// or goes lane by lane.
  bool maskable() const {
    if (vector_bytes_ < 64 || goes_lane_by_lane()) return false;
    for (size_t k = 0; k < addresses_.size(); ++k)
      if (getElementTypeOrSelf(buffer_of(k).getType()).isInteger(1)) return false;
    return std::none_of(body_operations_.begin(), body_operations_.end(), [](Operation* op) {
      return isa<arith::DivSIOp, arith::DivUIOp, arith::RemSIOp, arith::RemUIOp, arith::CeilDivSIOp, arith::CeilDivUIOp,
                 arith::FloorDivSIOp>(op);
    });
  }

  bool goes_lane_by_lane() const {
    return std::any_of(body_operations_.begin(), body_operations_.end(),
                       [this](Operation* op) { return lane_by_lane(*op, vector_bytes_); });
  }

  int64_t coefficient(size_t operand, int loop) const {
    return addresses_[operand].coefficients[static_cast<size_t>(loop)];
  }
  bool unused_input(size_t operand) const {
    return operand < inputs() && body_->getArgument(static_cast<unsigned>(operand)).use_empty();
  }

  /// Steps of reading or writing `lanes` elements that are `stride` apart.
  double access_work(size_t operand, int64_t stride, double lanes) const {
    if (stride == 0 || stride == 1) return 1;
    return stride == 2 && operand < inputs() ? std::min(3.0, lanes) : lanes;
  }

  /// Work for a vector of `lanes` along a loop, where a strided access costs one step a lane.
  double vector_work(int loop, double lanes) const {
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

  /// The vector loop: the least work an element.
  void choose_vector_loop() {
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

  /// Reads for a register tile along a loop, and those where every row reads for itself. An operand that stands still
  /// along the loop is read once; one that varies along the vectors too costs most.
  std::pair<int64_t, int64_t> tile_reads(int loop) const {
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

  /// The loop kept in registers: the one with the fewest reads for a tile.
  void choose_tile_loop() {
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

  void choose() {
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

  std::vector<Segment> vector_segments() const {
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

  std::vector<Segment> tile_segments() const {
    if (tile_loop_ < 0) return {{}};
    const int64_t extent = loops_[static_cast<size_t>(tile_loop_)].extent;
    std::vector<Segment> segments{{0, extent / tile_, tile_}};
    if (extent % tile_ != 0) segments.push_back({extent - extent % tile_, 1, extent % tile_});
    return segments;
  }

  /// The loop that threads share: the outermost one with many items, else the one with most.
  Work choose_split(int64_t vector_items, int64_t tile_items) {
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

  /// In the unit of kLeastWork. What is no sum spends its time in memory.
  double work_of_a_step() const {
    constexpr double kAccess = 8, kVectorCall = 60, kCall = 600;
    double work = 0;
    for (Operation& op : body_->without_terminator())
      work += library_function(&op).empty() ? 1 : lane_by_lane(op, vector_bytes_) ? kCall : kVectorCall;
    for (size_t k = 0; !reduces_ && k < own_operands(); ++k)
      if (!unused_input(k)) work += kAccess;
    return std::max(work, 1.0);
  }

  /// Bounds of the segment's part that this call of the function computes.
  std::pair<Value, Value> split_bounds(const Segment& segment) {
    builder_.setInsertionPoint(op_);
    auto function = op_->getParentOfType<func::FuncOp>();
    const auto bound = [&](Value item) -> Value {
      Value own = builder_.create<arith::SubIOp>(location_, item, constant(segment.first_item));
      own = builder_.create<arith::MaxSIOp>(location_, own, constant(0));
      own = builder_.create<arith::MinSIOp>(location_, own, constant(segment.count));
      own = builder_.create<arith::MulIOp>(location_, own, constant(segment.step));
      return builder_.create<arith::AddIOp>(location_, own, constant(segment.start));
    };
    const unsigned last = function.getNumArguments() - 1;
    return {bound(function.getArgument(last - 1)), bound(function.getArgument(last))};
  }

  // --- one nest
  // ----------------------------------------------------------------------------------------------------------------

  /// Copy number (row of the register tile, vector of the unrolled loop) of a value.
  using Copy = std::pair<int64_t, int64_t>;
  using Key = std::tuple<const void*, int64_t, int64_t>;

  Key key(Value v, Copy copy) const {
    return {v.getAsOpaquePointer(), depends(v, tile_loop_) ? copy.first : 0, depends(v, vector_) ? copy.second : 0};
  }

  void emit(const Segment& vectors, const Segment& tile) {
    values_.clear();
    sums_.clear();
    positions_.clear();
    ivs_.assign(loops_.size(), Value());
    shift_.assign(loops_.size(), 0);
    lanes_now_ = std::min(vectors.step, lanes_);
    active_ = vectors.active;
    rows_ = tile_loop_ < 0 ? 1 : tile.step;
    copies_ = vector_ < 0 ? 1 : vectors.step / lanes_now_;
    order_parallel_loops();
    const size_t parallel = positions_.size();
    for (size_t l = 0; l < loops_.size(); ++l)
      if (loops_[l].reduction) positions_.push_back(l);
    anchors_.assign(positions_.size() + 1, op_.getOperation());

    const auto segment_of = [&](size_t l) {
      if (static_cast<int>(l) == vector_) return vectors;
      return static_cast<int>(l) == tile_loop_ ? tile : Segment{0, loops_[l].extent, 1};
    };
    std::pair<Value, Value> shared;
    if (split_ >= 0) shared = split_bounds(segment_of(static_cast<size_t>(split_)));
    for (size_t p = 0; p < parallel; ++p) {
      const size_t l = positions_[p];
      const Segment segment = segment_of(l);
      const bool splits = static_cast<int>(l) == split_;
      if (segment.count == 1 && !splits) {
        shift_[l] = segment.start;
        continue;
      }
      Value from = splits ? shared.first : constant(segment.start);
      Value to = splits ? shared.second : constant(segment.start + segment.count * segment.step);
      builder_.setInsertionPoint(anchors_[p]);
      auto loop = builder_.create<scf::ForOp>(location_, from, to, constant(segment.step));
      ivs_[l] = loop.getInductionVar();
      open(p, loop);
      for (size_t q = p + 1; q < anchors_.size(); ++q) anchors_[q] = loop.getBody()->getTerminator();
    }
    if (reduces_)
      reduce(parallel);
    else
      store_results(parallel, [&](size_t k, Copy copy) { return get(yielded(k), copy); });
  }

  /// Vectors run inside the loops around them, and the tile in that of the vectors; or the tile goes around all loops
  /// that its own operands do not know, where that reads less from far memory.
  void order_parallel_loops() {
    const bool tile_around = tile_loop_ >= 0 && tile_belongs_outside();
    const auto is_tile = [&](size_t l) { return static_cast<int>(l) == tile_loop_; };
    const auto is_vector = [&](size_t l) { return static_cast<int>(l) == vector_; };
    for (const bool outside : {true, false}) {
      if (!outside && tile_around) positions_.push_back(static_cast<size_t>(tile_loop_));
      for (size_t l = 0; l < loops_.size(); ++l)
        if (!loops_[l].reduction && !is_tile(l) && !is_vector(l) && (!tile_around || tile_knows(l)) == outside)
          positions_.push_back(l);
    }
    if (vector_ >= 0) positions_.push_back(static_cast<size_t>(vector_));
    if (tile_loop_ >= 0 && !tile_around) positions_.push_back(static_cast<size_t>(tile_loop_));
  }

  bool is_tile_operand(size_t k) const {
    return !unused_input(k) && coefficient(k, tile_loop_) != 0 && coefficient(k, vector_) == 0;
  }

  /// Whether operands of the tile's loop alone, such as weights, depend on a loop.
  bool tile_knows(size_t loop) const {
    for (size_t k = 0; k < inputs(); ++k)
      if (is_tile_operand(k) && addresses_[k].coefficients[loop] != 0) return true;
    return false;
  }

  /// Time to read an operand again for each round of loops that it does not know, in bytes of the second-level cache.
  double time_of_rereading(bool tile_operands) const {
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

  bool tile_belongs_outside() const { return time_of_rereading(false) < time_of_rereading(true); }

  /// The loops over reduced indices with all sums of the tile as loop-carried values, and the stores behind them.
  void reduce(size_t parallel) {
    std::vector<Value> current;
    each_copy([&](size_t k, Copy copy) { current.push_back(start_value(k, copy, parallel)); });
    if (slides()) {
      loads_.clear();
      written_out_ = true;
      store_sums(slide(std::move(current)), parallel);
      written_out_ = false;
      return;
    }
    Operation* after = anchors_[parallel];
    std::vector<scf::ForOp> loops;
    for (size_t p = parallel; p < positions_.size(); ++p) {
      const size_t l = positions_[p];
      if (loops.empty())
        builder_.setInsertionPoint(anchors_[p]);
      else
        builder_.setInsertionPointToEnd(loops.back().getBody());
      auto loop = builder_.create<scf::ForOp>(location_, constant(0), constant(loops_[l].extent), constant(1), current);
      ivs_[l] = loop.getInductionVar();
      current.assign(loop.getRegionIterArgs().begin(), loop.getRegionIterArgs().end());
      if (loops.empty())
        open(p, loop);
      else
        anchors_[p] = loop;
      loops.push_back(loop);
    }
    builder_.setInsertionPointToEnd(loops.back().getBody());
    auto yield = builder_.create<scf::YieldOp>(location_, current);
    anchors_.back() = yield;
    size_t n = 0;
    each_copy([&](size_t k, Copy copy) { values_[key(accumulator(k), copy)] = current[n++]; });
    std::vector<Value> next;
    each_copy([&](size_t k, Copy copy) {
      next.push_back(widened(get(yielded(k), copy), current[next.size()].getType(), positions_.size()));
    });
    yield->setOperands(next);
    for (size_t i = loops.size() - 1; i-- > 0;) {
      builder_.setInsertionPointToEnd(loops[i].getBody());
      builder_.create<scf::YieldOp>(location_, loops[i + 1].getResults());
    }
    after_ = after;
    store_sums({loops[0].getResults().begin(), loops[0].getResults().end()}, parallel);
    after_ = nullptr;
  }

  /// Stores the sums of all copies, or what the joined operation makes of them.
  void store_sums(const std::vector<Value>& sums, size_t parallel) {
    size_t n = 0;
    if (!reader_) {
      store_results(parallel, [&](size_t, Copy) { return sums[n++]; });
      return;
    }
    Block* reader = reader_.getBody();
    each_copy([&](size_t, Copy copy) {
      values_[key(reader->getArgument(joined_), copy)] = sums[n++];
      store(own_operands() + static_cast<size_t>(reader_.getNumDpsInputs()),
            get(reader->getTerminator()->getOperand(0), copy), copy, parallel);
    });
  }

  // A window that moves by less than its own size along the tile's loop: rows of the tile read the same elements for
  // other terms.

  int64_t terms() const {
    int64_t count = 1;
    for (const Loop& l : loops_)
      if (l.reduction) count *= l.extent;
    return count;
  }

  /// The operand that a window slides over, or none.
  std::optional<size_t> sliding_operand() const {
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

  /// Whether all terms are written out, so that what several rows read is loaded once: few terms, which read elements
  /// in ascending order.
  bool slides() const {
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

  /// All terms of all sums in the order of the elements that they read; of one sum this is the order of its terms.
  std::vector<Value> slide(std::vector<Value> sums) {
    struct Term {
      int64_t element;
      std::vector<int64_t> at;
      Copy copy;
      size_t sum;
    };
    const size_t operand = *sliding_operand();
    std::vector<size_t> reduced;
    for (size_t l = 0; l < loops_.size(); ++l)
      if (loops_[l].reduction) reduced.push_back(l);
    std::vector<Term> all;
    for (int64_t t = 0; t < terms(); ++t) {
      Term term{0, std::vector<int64_t>(reduced.size()), {}, 0};
      int64_t rest = t;
      for (size_t i = reduced.size(); i-- > 0; rest /= loops_[reduced[i]].extent) {
        term.at[i] = rest % loops_[reduced[i]].extent;
        term.element += addresses_[operand].coefficients[reduced[i]] * term.at[i];
      }
      size_t n = 0;
      each_copy([&](size_t, Copy copy) {
        all.push_back(term);
        all.back().element += coefficient(operand, tile_loop_) * copy.first;
        all.back().copy = copy;
        all.back().sum = n++;
      });
    }
    std::stable_sort(all.begin(), all.end(), [](const Term& a, const Term& b) { return a.element < b.element; });
    for (const Term& term : all) {
      for (size_t i = 0; i < reduced.size(); ++i) shift_[reduced[i]] = term.at[i];
      forget_terms(term.copy);
      values_[key(accumulator(0), term.copy)] = sums[term.sum];
      sums[term.sum] = widened(get(yielded(0), term.copy), sums[term.sum].getType(), positions_.size());
    }
    return sums;
  }

  /// Values of the body that belong to one term are made anew for the next.
  void forget_terms(Copy copy) {
    const auto forget = [&](Value v) {
      const auto& loops = depends_.at(v.getAsOpaquePointer());
      if (std::any_of(loops.begin(), loops.end(), [&](size_t l) { return loops_[l].reduction; }))
        values_.erase(key(v, copy));
    };
    for (Value argument : body_->getArguments()) forget(argument);
    for (Operation& op : body_->without_terminator())
      for (Value result : op.getResults()) forget(result);
  }

  template <typename F>
  void each_copy(F&& f) {
    for (size_t k = 0; k < outputs(); ++k)
      for (int64_t r = 0; r < rows_; ++r)
        for (int64_t u = 0; u < copies_; ++u) f(k, Copy{r, u});
  }

  /// anchors_[p]: code that knows the loops before position p goes before this operation. `loop` opens at p.
  void open(size_t p, Operation* loop) {
    Operation* old = anchors_[p];
    for (size_t q = 0; q <= p; ++q)
      if (anchors_[q] == old) anchors_[q] = loop;
  }

  Value constant(int64_t value) { return code_.constant(value); }

  /// Position behind the innermost loop in `loops`.
  size_t level(const std::set<size_t>& loops) const {
    size_t level = 0;
    for (size_t p = 0; p < positions_.size(); ++p)
      if (loops.count(positions_[p])) level = p + 1;
    return level;
  }
  void at_level(size_t p) { builder_.setInsertionPoint(after_ ? after_ : anchors_[p]); }

  // --- addresses
  // ---------------------------------------------------------------------------------------------------------------

  /// Element offset of an operand for a copy, at position `limit` or wherever it is known.
  Value address(size_t operand, Copy copy, size_t limit) {
    const Linear& linear = addresses_[operand];
    int64_t offset = linear.offset;
    Value sum;
    for (size_t p = 0; p < positions_.size(); ++p) {
      const size_t l = positions_[p];
      const int64_t c = linear.coefficients[l];
      if (c == 0) continue;
      if (static_cast<int>(l) == tile_loop_) offset += c * copy.first;
      if (static_cast<int>(l) == vector_) offset += c * copy.second * lanes_now_;
      if (!ivs_[l]) {
        offset += c * shift_[l];
        continue;
      }
      Value& part = sums_[{operand, p}];
      if (!part) {
        at_level(std::min(p + 1, limit));
        Value term = c == 1 ? ivs_[l] : builder_.create<arith::MulIOp>(location_, ivs_[l], constant(c)).getResult();
        part = sum ? builder_.create<arith::AddIOp>(location_, sum, term).getResult() : term;
      }
      sum = part;
    }
    at_level(limit);
    if (!sum) return constant(offset);
    return offset == 0 ? sum : builder_.create<arith::AddIOp>(location_, sum, constant(offset)).getResult();
  }

  int64_t vector_stride(size_t operand) const {
    return vector_ < 0 ? 0 : addresses_[operand].coefficients[static_cast<size_t>(vector_)];
  }

  Value load(size_t operand, Copy copy, size_t limit) {
    if (!written_out_) return load_from(operand, copy, limit);
    Value& known = loads_[{operand, constant_offset(operand, copy)}];
    if (!known) known = load_from(operand, copy, limit);
    return known;
  }

  /// What is added to the loops' part of an address.
  int64_t constant_offset(size_t operand, Copy copy) const {
    const Linear& linear = addresses_[operand];
    int64_t offset = linear.offset;
    if (tile_loop_ >= 0) offset += coefficient(operand, tile_loop_) * copy.first;
    if (vector_ >= 0) offset += coefficient(operand, vector_) * copy.second * lanes_now_;
    for (size_t l = 0; l < loops_.size(); ++l)
      if (!ivs_[l]) offset += linear.coefficients[l] * shift_[l];
    return offset;
  }

  Value load_from(size_t operand, Copy copy, size_t limit) {
    Value buffer = buffers_(root_of(buffer_of(operand)));
    Value at = address(operand, copy, limit);
    at_level(limit);
    const int64_t stride = vector_stride(operand);
    if (stride == 0 || lanes_now_ == 1) return builder_.create<memref::LoadOp>(location_, buffer, at);
    auto type = VectorType::get({lanes_now_}, cast<MemRefType>(buffer.getType()).getElementType());
    return code_.load(type, buffer, at, stride, active_lanes(copy));
  }

  /// Lanes of a copy's vector that exist; the others are the last ones.
  int64_t active_lanes(Copy copy) const { return std::min(lanes_now_, active_ - copy.second * lanes_now_); }

  template <typename F>
  void store_results(size_t parallel, F&& value) {
    each_copy([&](size_t k, Copy copy) { store(inputs() + k, value(k, copy), copy, parallel); });
  }

  void store(size_t operand, Value v, Copy copy, size_t parallel) {
    Value buffer = buffers_(root_of(buffer_of(operand)));
    Value at = address(operand, copy, parallel);
    at_level(parallel);
    const int64_t stride = vector_stride(operand);
    if (lanes_now_ == 1 || stride == 0) {
      TESSERA_INVARIANT(!isa<VectorType>(v.getType()), "an output varies along the vector loop");
      builder_.create<memref::StoreOp>(location_, v, buffer, at);
    } else {
      code_.store(widened(v, vector_type(v.getType()), parallel), buffer, at, stride, active_lanes(copy));
    }
  }

  // --- values
  // ------------------------------------------------------------------------------------------------------------------

  size_t inputs() const { return inputs_; }
  size_t outputs() const { return outputs_; }
  /// Operands are those of the sum, then those of the joined operation.
  size_t own_operands() const { return inputs_ + outputs_; }
  size_t operand_of(BlockArgument argument) const {
    return argument.getArgNumber() + (argument.getOwner() == body_ ? 0 : own_operands());
  }
  Value buffer_of(size_t operand) const {
    return operand < own_operands() ? op_->getOperand(static_cast<unsigned>(operand))
                                    : reader_->getOperand(static_cast<unsigned>(operand - own_operands()));
  }
  Value output(size_t k) { return op_.getDpsInits()[static_cast<unsigned>(k)]; }
  Value yielded(size_t k) { return body_->getTerminator()->getOperand(static_cast<unsigned>(k)); }

  Value accumulator(size_t k) const { return body_->getArgument(static_cast<unsigned>(inputs() + k)); }

  Type vector_type(Type type) const {
    if (lanes_now_ == 1 || isa<VectorType>(type)) return type;
    return VectorType::get({lanes_now_}, type);
  }

  /// `v` as `type`: a scalar becomes a vector of equal lanes.
  Value widened(Value v, Type type, size_t limit) {
    if (v.getType() == type || !isa<VectorType>(type)) return v;
    at_level(limit);
    return builder_.create<vector::SplatOp>(location_, type, v);
  }

  Value start_value(size_t k, Copy copy, size_t parallel) {
    Type element = getElementTypeOrSelf(output(k).getType());
    const bool varies = vector_stride(inputs() + k) != 0;
    Type type = varies ? vector_type(element) : element;
    if (!starts_[k]) return widened(load(inputs() + k, copy, parallel), type, parallel);
    at_level(parallel);
    Value v = builder_.create<arith::ConstantOp>(location_, cast<TypedAttr>(starts_[k]));
    return widened(v, type, parallel);
  }

  /// A value of the body for a copy: a vector if it varies along the vector loop, else a scalar.
  Value get(Value v, Copy copy) {
    const auto known = depends_.find(v.getAsOpaquePointer());
    if (known == depends_.end()) return v;  // defined outside
    Value& made = values_[key(v, copy)];
    if (made) return made;
    const size_t limit = level(known->second);
    if (auto argument = dyn_cast<BlockArgument>(v)) {
      Value loaded = load(operand_of(argument), copy, limit);
      return values_[key(v, copy)] = loaded;
    }
    Operation* op = v.getDefiningOp();
    const bool varies = depends(v, vector_) && lanes_now_ > 1;
    if (auto index = dyn_cast<linalg::IndexOp>(op))
      return values_[key(v, copy)] = loop_value(index, copy, limit, varies);
    SmallVector<Value> operands;
    for (Value operand : op->getOperands()) {
      if (isa<MemRefType>(operand.getType()))
        operands.push_back(operand);
      else
        operands.push_back(get(operand, copy));
    }
    at_level(limit);
    Value result;
    if (isa<memref::LoadOp>(op))
      result = indirect_load(cast<memref::LoadOp>(op), operands, limit, varies);
    else if (const std::string function = library_function(op); !function.empty())
      result = code_.call(function, operands, varies ? vector_type(v.getType()) : v.getType());
    else
      result = clone(op, operands, v, varies, limit);
    return values_[key(v, copy)] = result;
  }

  Value clone(Operation* op, ArrayRef<Value> operands, Value v, bool varies, size_t limit) {
    IRMapping mapping;
    for (size_t i = 0; i < operands.size(); ++i) {
      Value operand = operands[i];
      if (varies) operand = widened(operand, vector_type(operand.getType()), limit);
      mapping.map(op->getOperand(static_cast<unsigned>(i)), operand);
    }
    at_level(limit);
    Operation* copy = builder_.clone(*op, mapping);
    if (varies) copy->getResult(0).setType(vector_type(v.getType()));
    return copy->getResult(0);
  }

  Value loop_value(linalg::IndexOp index, Copy copy, size_t limit, bool varies) {
    size_t l = 0;
    while (loops_[l].dim != static_cast<int>(index.getDim())) ++l;
    int64_t offset = shift_[l];
    if (static_cast<int>(l) == tile_loop_) offset += copy.first;
    if (static_cast<int>(l) == vector_) offset += copy.second * lanes_now_;
    at_level(limit);
    Value scalar = ivs_[l] && offset != 0
                       ? builder_.create<arith::AddIOp>(location_, ivs_[l], constant(offset)).getResult()
                   : ivs_[l] ? ivs_[l]
                             : constant(offset);
    if (!varies) return scalar;
    SmallVector<int64_t> steps;
    for (int64_t i = 0; i < lanes_now_; ++i) steps.push_back(i);
    Value ramp = builder_.create<arith::ConstantOp>(location_, builder_.getIndexVectorAttr(steps));
    return builder_.create<arith::AddIOp>(location_, widened(scalar, ramp.getType(), limit), ramp);
  }

  Value indirect_load(memref::LoadOp op, ArrayRef<Value> operands, size_t limit, bool varies) {
    auto type = cast<MemRefType>(op.getMemRef().getType());
    SmallVector<int64_t> strides;
    int64_t offset = 0;
    const auto known = getStridesAndOffset(type, strides, offset);
    TESSERA_INVARIANT(succeeded(known) && !ShapedType::isDynamic(offset), "buffers have static strides");
    Value buffer = buffers_(root_of(op.getMemRef()));
    const auto element = [&](int64_t lane) -> Value {
      Value at = constant(offset);
      for (size_t d = 0; d < strides.size(); ++d) {
        Value term =
            builder_.create<arith::MulIOp>(location_, code_.lane_of(operands[d + 1], lane), constant(strides[d]));
        at = builder_.create<arith::AddIOp>(location_, at, term);
      }
      return builder_.create<memref::LoadOp>(location_, buffer, at);
    };
    at_level(limit);
    return varies ? code_.from_lanes(VectorType::get({lanes_now_}, type.getElementType()), element) : element(0);
  }

  linalg::GenericOp op_, reader_;
  unsigned joined_ = 0;  // operand of the reader that is the sum
  int64_t vector_bytes_;
  FlatBuffers& buffers_;
  OpBuilder builder_;
  Location location_;
  VectorCode code_;
  Block* body_ = nullptr;
  size_t inputs_ = 0, outputs_ = 0;
  std::vector<Operation*> body_operations_;  // of the sum and of the reader
  std::vector<Loop> loops_;
  std::vector<Linear> addresses_;                    // of each operand
  std::map<const void*, std::set<size_t>> depends_;  // loops behind each value of the body
  std::vector<Attribute> starts_;                    // of each output: a constant start, or none
  std::vector<Operation*> erased_;
  bool reduces_ = false;
  int vector_ = -1, tile_loop_ = -1, split_ = -1;
  int64_t lanes_ = 1, tile_ = 1, unroll_ = 1;
  bool masked_ = false;  // the last vector may have lanes that do not exist

  // Of the nest being written.
  int64_t lanes_now_ = 1, active_ = 1, rows_ = 1, copies_ = 1;
  std::vector<size_t> positions_;  // loops from the outermost in
  std::vector<Operation*> anchors_;
  Operation* after_ = nullptr;
  std::vector<Value> ivs_;
  std::vector<int64_t> shift_;  // of loops that run once
  std::map<Key, Value> values_;
  bool written_out_ = false;                           // the terms of sums are, so that loads repeat
  std::map<std::pair<size_t, int64_t>, Value> loads_;  // by operand and constant offset
  std::map<std::pair<size_t, size_t>, Value> sums_;    // partial addresses by (operand, position)
};

}  // namespace

Work make_loops(func::FuncOp function, int64_t vector_bytes) {
  FlatBuffers buffers;
  const Type index = IndexType::get(function.getContext());
  for (int i = 0; i < 2; ++i)
    function.insertArgument(function.getNumArguments(), index, {}, function.getLoc());  // first item, end
  // Last first: a sum takes over the start values that the operation before it stores.
  Work work;
  int64_t nests = 0;
  for (;; ++nests) {
    linalg::GenericOp last;
    for (linalg::GenericOp op : function.getOps<linalg::GenericOp>()) last = op;
    if (!last) break;
    linalg::GenericOp reader;
    if (is_joined(last)) {
      reader = last;
      last = sum_before(reader);
    }
    const Work own = Nest(last, reader, vector_bytes, buffers).lower(/*splits=*/nests == 0);
    if (nests == 0) work = own;
  }
  if (nests > 1) work.grain = work.items;  // a start value that is stored before belongs to all
  erase_dead_views(function);
  return work;
}

}  // namespace tessera::cpu
