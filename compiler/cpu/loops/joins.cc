// SPDX-License-Identifier: Apache-2.0
// All operations stand in one block and buffers are distinct allocations or arguments, so that who reads and writes a
// buffer is found by its uses. A reader is joined where it walks the sum's elements in the order of their loops and
// contiguously along the same vectors, so that nothing is lost for the sum itself.
#include "compiler/cpu/loops/joins.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "compiler/cpu/buffers.h"
#include "compiler/cpu/loops/addresses.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"

namespace tessera::cpu {

using namespace mlir;

namespace {

constexpr const char* kJoined = "tessera.joined";

/// Operations that use a buffer, through views of it as well.
void users_of(Value buffer, std::vector<OpOperand*>& uses) {
  for (OpOperand& use : buffer.getUses()) {
    if (is_view(use.getOwner()))
      users_of(use.getOwner()->getResult(0), uses);
    else
      uses.push_back(&use);
  }
}

bool writes(Operation* op, Value root) {
  if (auto generic = dyn_cast<linalg::GenericOp>(op))
    return llvm::any_of(generic.getDpsInits(), [&](Value v) { return root_of(v) == root; });
  if (auto copy = dyn_cast<memref::CopyOp>(op)) return root_of(copy.getTarget()) == root;
  return !is_view(op) && !isa<arith::ConstantOp, memref::AllocOp>(op);
}

/// The sum whose result is operand `use` of `reader` and that nothing else reads, or null.
linalg::GenericOp only_source(linalg::GenericOp reader, OpOperand& use) {
  auto alloc = root_of(use.get()).getDefiningOp<memref::AllocOp>();
  if (!alloc) return {};
  std::vector<OpOperand*> uses;
  users_of(alloc.getResult(), uses);
  linalg::GenericOp sum;
  for (OpOperand* other : uses) {
    if (other->getOwner() == reader) {
      if (other != &use) return {};
      continue;
    }
    auto writer = dyn_cast<linalg::GenericOp>(other->getOwner());
    if (!writer || !writer.isDpsInit(other)) return {};
    if (writer.getNumReductionLoops() == 0) continue;  // the start value
    if (sum) return {};
    sum = writer;
  }
  return sum;
}

/// Whether the sum starts from a constant, which alone writes its buffer before it.
bool starts_constant(linalg::GenericOp sum) {
  std::vector<OpOperand*> uses;
  users_of(root_of(sum.getDpsInits()[0]), uses);
  std::vector<linalg::GenericOp> fills = fills_before(sum);
  if (fills.size() != 1) return false;
  if (!matchPattern(cast<linalg::YieldOp>(fills[0].getBody()->getTerminator()).getOperand(0), m_Constant()))
    return false;
  return llvm::all_of(uses, [&](OpOperand* use) {
    auto writer = dyn_cast<linalg::GenericOp>(use->getOwner());
    return !writer || !writer.isDpsInit(use) || writer == sum || writer == fills[0];
  });
}

/// Bytes of the widest type in a body.
int64_t widest(linalg::GenericOp op) {
  int64_t bytes = 1;
  for (Type type : op.getBody()->getArgumentTypes()) bytes = std::max(bytes, element_bytes(type));
  for (Operation& inner : op.getBody()->without_terminator())
    for (Type type : inner.getResultTypes())
      if (type.isIntOrIndexOrFloat()) bytes = std::max(bytes, element_bytes(type));
  return bytes;
}

/// Whether a loop that is summed over runs more than once; others vanish, and with them the sum.
bool sums_terms(linalg::GenericOp op) {
  const auto ranges = op.getStaticLoopRanges();
  const auto kinds = op.getIteratorTypesArray();
  for (size_t d = 0; d < ranges.size(); ++d)
    if (kinds[d] == utils::IteratorType::reduction && ranges[d] > 1) return true;
  return false;
}

bool computes_in_lanes(linalg::GenericOp op, int64_t vector_bytes) {
  return llvm::none_of(op.getBody()->without_terminator(), [&](Operation& inner) {
    return isa<linalg::IndexOp, arith::DivSIOp, arith::DivUIOp, arith::RemSIOp, arith::RemUIOp>(inner) ||
           lane_by_lane(inner, vector_bytes);
  });
}

/// Whether all that the reader touches is contiguous, or the same, along the loop in which the sums are contiguous.
bool contiguous_alike(linalg::GenericOp sum, linalg::GenericOp reader, const std::vector<Linear>& operands) {
  const Linear result = linear_address(sum, *sum.getDpsInitOperand(0));
  const auto ranges = sum.getStaticLoopRanges();
  for (size_t d = 0; d < ranges.size(); ++d) {
    if (ranges[d] == 1 || result.coefficients[d] != 1) continue;
    for (size_t k = 0; k < operands.size(); ++k) {
      const int64_t c = operands[k].coefficients[d];
      const bool output = k >= static_cast<size_t>(reader.getNumDpsInputs());
      if (c != 1 && (output || c != 0)) return false;
    }
  }
  return true;
}

/// Whether the sum can move down to the reader: nothing between writes what it reads.
bool can_move(linalg::GenericOp sum, linalg::GenericOp reader) {
  std::set<const void*> read;
  for (Value v : sum.getDpsInputs()) read.insert(root_of(v).getAsOpaquePointer());
  if (read.count(root_of(reader.getDpsInits()[0]).getAsOpaquePointer()) != 0) return false;
  for (Operation* op = sum->getNextNode(); op != reader; op = op->getNextNode())
    for (Value v : sum.getDpsInputs())
      if (writes(op, root_of(v))) return false;
  return true;
}

bool try_join(linalg::GenericOp reader, OpOperand& use, int64_t vector_bytes) {
  linalg::GenericOp sum = only_source(reader, use);
  if (!sum || sum->getBlock() != reader->getBlock() || !sum->isBeforeInBlock(reader)) return false;
  if (sum.getNumDpsInits() != 1 || !starts_constant(sum) || widest(reader) > widest(sum)) return false;
  if (!sums_terms(sum) || !computes_in_lanes(sum, vector_bytes) || !can_move(sum, reader)) return false;
  const auto operands = addresses_over(sum, reader, use.getOperandNumber());
  if (!operands || !contiguous_alike(sum, reader, *operands)) return false;
  Operation* alloc = root_of(use.get()).getDefiningOp();
  fills_before(sum)[0]->moveBefore(reader);
  sum->moveBefore(reader);
  OpBuilder builder(reader);
  reader->setAttr(kJoined, builder.getI32IntegerAttr(static_cast<int32_t>(use.getOperandNumber())));
  alloc->setAttr(kJoined, builder.getUnitAttr());
  return true;
}

}  // namespace

bool is_joined(linalg::GenericOp op) { return op->hasAttr(kJoined); }
bool is_name_of_sum(Operation* alloc) { return isa<memref::AllocOp>(alloc) && alloc->hasAttr(kJoined); }

unsigned joined_operand(linalg::GenericOp reader) {
  return static_cast<unsigned>(reader->getAttrOfType<IntegerAttr>(kJoined).getInt());
}

linalg::GenericOp sum_before(linalg::GenericOp reader) {
  for (Operation* op = reader->getPrevNode(); op; op = op->getPrevNode())
    if (auto sum = dyn_cast<linalg::GenericOp>(op)) return sum;
  TESSERA_INVARIANT(false, "a joined operation stands behind its sum");
  return {};
}

void join_readers(func::FuncOp function, int64_t vector_bytes) {
  SmallVector<linalg::GenericOp> readers(function.getOps<linalg::GenericOp>());
  for (linalg::GenericOp reader : readers) {
    if (reader.getNumReductionLoops() != 0 || reader.getNumDpsInits() != 1) continue;
    if (!computes_in_lanes(reader, vector_bytes)) continue;
    for (OpOperand* use : reader.getDpsInputOperands())
      if (isa<MemRefType>(use->get().getType()) && try_join(reader, *use, vector_bytes)) break;
  }
}

}  // namespace tessera::cpu
