// SPDX-License-Identifier: Apache-2.0
// write_in_place(): a copy of a whole allocation into a part of another buffer goes, and the part takes the
// allocation's place. The buffer, its fill and the part then stand before whatever wrote the allocation. This needs
// that nothing else of the buffer is read or written meanwhile but parts that do not meet this one.
#include <algorithm>
#include <cmath>

#include "compiler/cpu/buffers.h"
#include "compiler/cpu/loops/addresses.h"
#include "compiler/cpu/loops/joins.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"

namespace tessera::cpu {

using namespace mlir;

namespace {

/// A box of elements of a buffer.
struct Part {
  SmallVector<int64_t> from, extent;
};

std::optional<Part> part_of(memref::SubViewOp view) {
  Part part{SmallVector<int64_t>(view.getStaticOffsets()), SmallVector<int64_t>(view.getStaticSizes())};
  const auto is_static = [](int64_t v) { return !ShapedType::isDynamic(v); };
  if (!llvm::all_of(part.from, is_static) || !llvm::all_of(part.extent, is_static)) return std::nullopt;
  if (!llvm::all_of(view.getStaticStrides(), [](int64_t step) { return step == 1; })) return std::nullopt;
  if (view.getType().getRank() != view.getSourceType().getRank()) return std::nullopt;
  return part;
}

bool meet(const Part& a, const Part& b) {
  for (size_t d = 0; d < a.from.size(); ++d)
    if (a.from[d] + a.extent[d] <= b.from[d] || b.from[d] + b.extent[d] <= a.from[d]) return false;
  return true;
}

/// A generic that sets the whole of `buffer` to a constant.
bool is_fill(Operation* op, Value buffer) {
  auto fill = dyn_cast<linalg::GenericOp>(op);
  return fill && fill.getNumDpsInputs() == 0 && fill.getNumDpsInits() == 1 && fill.getDpsInits()[0] == buffer &&
         fill.getNumReductionLoops() == 0 &&
         matchPattern(cast<linalg::YieldOp>(fill.getBody()->getTerminator()).getOperand(0), m_Constant());
}

Value written_by(Operation* op) {
  if (auto copy = dyn_cast<memref::CopyOp>(op)) return copy.getTarget();
  if (auto generic = dyn_cast<linalg::GenericOp>(op))
    if (generic.getNumDpsInits() == 1) return generic.getDpsInits()[0];
  return {};
}

/// Operations on a buffer in their order, through views as well.
std::vector<Operation*> operations_on(Value buffer) {
  std::vector<Operation*> found;
  std::vector<Value> names{buffer};
  while (!names.empty()) {
    Value name = names.back();
    names.pop_back();
    for (Operation* user : name.getUsers()) {
      if (is_view(user))
        names.push_back(user->getResult(0));
      else if (!llvm::is_contained(found, user))
        found.push_back(user);
    }
  }
  std::sort(found.begin(), found.end(), [](Operation* a, Operation* b) { return a->isBeforeInBlock(b); });
  return found;
}

/// The reads of a result's rows as vectors of their own, where the sum could have run on from row to row: the more
/// terms the sum has, the more that costs beside a copy.
bool rows_cost_more(linalg::GenericOp writer, memref::SubViewOp place, int64_t vector_bytes) {
  constexpr double kCopy = 16;  // of a vector, in terms
  linalg::GenericOp sum = is_joined(writer) ? sum_before(writer) : writer;
  auto type = place.getType();
  const int64_t rank = type.getRank();
  if (sum.getNumReductionLoops() == 0 || rank < 2) return false;
  const int64_t columns = type.getDimSize(rank - 1);
  SmallVector<int64_t> strides;
  int64_t offset = 0;
  if (failed(getStridesAndOffset(type, strides, offset))) return true;
  if (strides[static_cast<size_t>(rank - 2)] == columns) return false;
  const Linear result = linear_address(sum, *sum.getDpsInitOperand(0));
  const auto ranges = sum.getStaticLoopRanges();
  double terms = 1;
  std::optional<size_t> row, column;
  for (size_t d = 0; d < ranges.size(); ++d) {
    if (sum.getIteratorTypesArray()[d] == utils::IteratorType::reduction) terms *= static_cast<double>(ranges[d]);
    if (ranges[d] > 1 && result.coefficients[d] == 1) column = d;
    if (ranges[d] > 1 && result.coefficients[d] == columns) row = d;
  }
  if (!row || !column || ranges[*column] != columns) return false;
  for (OpOperand* input : sum.getDpsInputOperands()) {
    const Linear address = linear_address(sum, *input);
    if (address.coefficients[*row] != address.coefficients[*column] * columns) return false;
  }
  const double lanes = static_cast<double>(vector_bytes) / 4, width = static_cast<double>(columns);
  return (std::ceil(width / lanes) * lanes / width - 1) * terms > kCopy;
}

/// What moves before the first writer, in order; nothing if the buffer does not allow it.
struct Move {
  std::vector<Operation*> operations;
  bool allowed = true;
};

Move plan_move(memref::SubViewOp place, const Part& part, memref::CopyOp copy, Operation* first) {
  Move move;
  Value buffer = place.getSource();
  if (auto alloc = buffer.getDefiningOp<memref::AllocOp>())
    move.operations.push_back(alloc);
  else
    move.allowed = isa<BlockArgument>(buffer);
  for (Operation* op : operations_on(buffer)) {
    if (!move.allowed) return move;
    if (op == copy) continue;
    const bool before = op->isBeforeInBlock(copy);
    Value written = written_by(op);
    if (written && root_of(written) == buffer) {
      auto view = written.getDefiningOp<memref::SubViewOp>();
      const auto other = view && view.getSource() == buffer ? part_of(view) : std::nullopt;
      if (other && !meet(part, *other)) continue;
      if (before && is_fill(op, buffer)) {
        move.operations.push_back(op);
        continue;
      }
      move.allowed = false;
    } else if (before) {
      move.allowed = false;  // it reads what was there
    }
  }
  move.operations.push_back(place);
  return move;
}

/// Values that an operation takes from the function, inside its body as well, are constants, arguments or moved too.
bool can_stand_before(Operation* op, Operation* first, const Move& move) {
  bool can = true;
  op->walk([&](Operation* inner) {
    for (Value v : inner->getOperands()) {
      Operation* def = v.getDefiningOp();
      if (!def || op->isAncestor(def) || llvm::is_contained(move.operations, def)) continue;
      can = can && def->isBeforeInBlock(first);
    }
  });
  return can;
}

bool try_in_place(memref::CopyOp copy, int64_t vector_bytes) {
  auto alloc = copy.getSource().getDefiningOp<memref::AllocOp>();
  auto place = copy.getTarget().getDefiningOp<memref::SubViewOp>();
  if (!alloc || !place || is_name_of_sum(alloc) || place.getSource() == alloc.getResult()) return false;
  const auto part = part_of(place);
  if (!part || alloc.getType().getShape() != place.getType().getShape()) return false;
  Operation* first = copy;
  linalg::GenericOp writer;
  for (Operation* user : alloc->getUsers()) {
    if (user == copy) continue;
    auto generic = dyn_cast<linalg::GenericOp>(user);
    if (!generic) return false;
    if (user->isBeforeInBlock(first)) first = user;
    if (!llvm::is_contained(generic.getDpsInits(), alloc.getResult())) continue;
    if (copy->isBeforeInBlock(user) || generic.getNumDpsInits() != 1) return false;
    if (!writer || writer->isBeforeInBlock(user)) writer = generic;
  }
  if (!writer || rows_cost_more(writer, place, vector_bytes)) return false;
  if (is_joined(writer)) first = fills_before(sum_before(writer))[0];
  const Move move = plan_move(place, *part, copy, first);
  if (!move.allowed) return false;
  for (Operation* op : move.operations)
    if (!op->isBeforeInBlock(first) && !can_stand_before(op, first, move)) return false;
  for (Operation* op : move.operations)
    if (!op->isBeforeInBlock(first)) op->moveBefore(first);
  copy.erase();
  alloc.getResult().replaceAllUsesWith(place.getResult());
  alloc.erase();
  return true;
}

/// Of a buffer that is filled and then written in one part, fills what lies around the part.
void fill_around(linalg::GenericOp fill) {
  Value buffer = fill.getDpsInits()[0];
  if (!buffer.getDefiningOp<memref::AllocOp>() || !is_fill(fill, buffer)) return;
  const std::vector<Operation*> operations = operations_on(buffer);
  if (operations.size() < 2 || operations[0] != fill) return;
  Value written = written_by(operations[1]);
  auto view = written ? written.getDefiningOp<memref::SubViewOp>() : memref::SubViewOp();
  if (!view || view.getSource() != buffer) return;
  if (auto generic = dyn_cast<linalg::GenericOp>(operations[1]))
    if (generic.getNumReductionLoops() != 0 ||
        llvm::any_of(generic.getDpsInputs(), [&](Value v) { return root_of(v) == buffer; }))
      return;
  const auto part = part_of(view);
  if (!part) return;
  auto type = cast<MemRefType>(buffer.getType());
  SmallVector<int64_t> from(part->from.size(), 0), extent(type.getShape());
  const SmallVector<int64_t> steps(from.size(), 1);
  OpBuilder builder(fill);
  const auto slab = [&](size_t d, int64_t begin, int64_t end) {
    if (begin == end) return;
    SmallVector<int64_t> low = from, size = extent;
    low[d] = begin;
    size[d] = end - begin;
    Value around = builder.create<memref::SubViewOp>(fill.getLoc(), buffer, low, size, steps);
    cast<linalg::GenericOp>(builder.clone(*fill)).getDpsInitsMutable()[0].set(around);
  };
  for (size_t d = 0; d < from.size(); ++d) {
    slab(d, 0, part->from[d]);
    slab(d, part->from[d] + part->extent[d], extent[d]);
    from[d] = part->from[d];
    extent[d] = part->extent[d];
  }
  fill.erase();
}

}  // namespace

void write_in_place(func::FuncOp function, int64_t vector_bytes) {
  SmallVector<memref::CopyOp> copies(function.getOps<memref::CopyOp>());
  for (memref::CopyOp copy : copies) {
    if (copy.getSource() == copy.getTarget())
      copy.erase();
    else
      try_in_place(copy, vector_bytes);
  }
  SmallVector<linalg::GenericOp> operations(function.getOps<linalg::GenericOp>());
  for (linalg::GenericOp op : operations)
    if (op.getNumDpsInputs() == 0 && op.getNumDpsInits() == 1) fill_around(op);
}

}  // namespace tessera::cpu
