// SPDX-License-Identifier: Apache-2.0
// Enters: linalg.generic on memrefs of static shape and strides. Leaves: scf.for nests over vector loads, element
// operations and stores. One parallel loop is cut into vectors; in a reduction a second one (or several vectors) is
// kept in registers, so that an operand is read once for many sums. Reduced loops are innermost and sequential: each
// element's sum has the order of the source, whatever is vectorised, and the result is that of the scalar loops bit for
// bit. A remainder becomes a nest of its own with a shorter vector. Each value of the body is computed in the outermost
// loop that knows its operands. Addresses are linear in the loops, so that loops which walk every operand without a gap
// are merged first.
#include "compiler/cpu/loops/loops.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "compiler/cpu/buffers.h"
#include "compiler/cpu/loops/addresses.h"
#include "compiler/cpu/loops/joins.h"
#include "compiler/cpu/loops/nest_plan.h"
#include "compiler/cpu/loops/vectors.h"
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

/// Numbers the steps of a loop's segments; returns how many there are.
int64_t number_items(std::vector<Segment>& segments) {
  int64_t items = 0;
  for (Segment& segment : segments) {
    segment.first_item = items;
    items += segment.count;
  }
  return items;
}

class Nest : private NestPlan {
 public:
  Nest(linalg::GenericOp op, linalg::GenericOp reader, int64_t vector_bytes, FlatBuffers& buffers)
      : NestPlan(op, reader, vector_bytes),
        buffers_(buffers),
        builder_(op),
        location_(op.getLoc()),
        code_(builder_, location_, op->getParentOfType<func::FuncOp>(), vector_bytes) {}

  /// Items of the loop that threads share come from the function's last two arguments, where it `splits`.
  Work lower(bool splits) {
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

  FlatBuffers& buffers_;
  OpBuilder builder_;
  Location location_;
  VectorCode code_;

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
