// SPDX-License-Identifier: Apache-2.0
// Places are found by first fit, large buffers first, among those alive at the same time; all operations stand in one
// block, so that a buffer lives from its first use to its last. An operation's function is keyed by its text: equal
// text, equal code.
#include "compiler/cpu/buffers.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/error.h"
#include "compiler/cpu/loops/joins.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/IRMapping.h"

namespace tessera::cpu {

using namespace mlir;

namespace {

int64_t align64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

int64_t element_bytes(Type type) { return type.isIndex() ? 8 : (type.getIntOrFloatBitWidth() + 7) / 8; }

bool is_view(Operation* op) { return isa<ViewLikeOpInterface>(op); }

Value root_of(Value v) {
  while (auto view = v.getDefiningOp<ViewLikeOpInterface>()) {
    if (isa<memref::ViewOp>(view.getOperation())) break;  // a place in the scratch area
    v = view.getViewSource();
  }
  return v;
}

std::vector<linalg::GenericOp> fills_before(linalg::GenericOp op) {
  std::vector<linalg::GenericOp> fills;
  std::set<const void*> open;
  for (Value init : op.getDpsInits()) open.insert(init.getAsOpaquePointer());
  if (op.getNumReductionLoops() == 0) return fills;
  for (Operation* before = op->getPrevNode(); before && !open.empty(); before = before->getPrevNode()) {
    if (is_view(before) || isa<arith::ConstantOp>(before)) continue;
    auto fill = dyn_cast<linalg::GenericOp>(before);
    if (!fill || fill.getNumDpsInputs() != 0 || fill.getNumDpsInits() != 1 ||
        !open.erase(fill.getDpsInits()[0].getAsOpaquePointer()))
      break;
    fills.push_back(fill);
  }
  std::reverse(fills.begin(), fills.end());
  return fills;
}

void erase_dead_views(func::FuncOp function) {
  for (bool again = true; again;) {
    again = false;
    for (Operation& op : llvm::make_early_inc_range(function.getBody().front()))
      if ((is_view(&op) || is_name_of_sum(&op)) && op.use_empty()) {
        op.erase();
        again = true;
      }
  }
}

int64_t plan_scratch(func::FuncOp function) {
  Block& block = function.getBody().front();
  std::map<Operation*, int64_t> order;
  int64_t next = 0;
  for (Operation& op : block) order[&op] = next++;
  for (auto reader : block.getOps<linalg::GenericOp>())  // a joined pair runs as one
    if (is_joined(reader)) order[sum_before(reader)] = order[reader];
  struct Place {
    memref::AllocOp op;
    int64_t bytes, first, last, offset;
  };
  std::vector<Place> places;
  for (auto alloc : block.getOps<memref::AllocOp>()) {
    if (is_name_of_sum(alloc)) continue;
    Place place{alloc, align64(alloc.getType().getNumElements() * element_bytes(alloc.getType().getElementType())),
                next, -1, 0};
    std::vector<Value> aliases{alloc.getResult()};
    while (!aliases.empty()) {
      Value v = aliases.back();
      aliases.pop_back();
      for (Operation* user : v.getUsers()) {
        if (is_view(user)) {
          aliases.push_back(user->getResult(0));
          continue;
        }
        const int64_t at = order.at(block.findAncestorOpInBlock(*user));
        place.first = std::min(place.first, at);
        place.last = std::max(place.last, at);
      }
    }
    places.push_back(place);
  }
  // Large buffers first, each at the lowest offset that no buffer alive at the same time covers.
  std::vector<size_t> by_size(places.size());
  for (size_t i = 0; i < places.size(); ++i) by_size[i] = i;
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](size_t a, size_t b) { return places[a].bytes > places[b].bytes; });
  int64_t total = 0;
  std::vector<const Place*> placed;
  for (size_t i : by_size) {
    Place& place = places[i];
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (const Place* other : placed)
      if (other->first <= place.last && place.first <= other->last)
        taken.emplace_back(other->offset, other->offset + other->bytes);
    std::sort(taken.begin(), taken.end());
    for (const auto& [begin, end] : taken) {
      if (place.offset + place.bytes <= begin) break;
      place.offset = std::max(place.offset, end);
    }
    total = std::max(total, place.offset + place.bytes);
    placed.push_back(&place);
  }
  if (places.empty() || total == 0) return 0;
  OpBuilder builder(function.getContext());
  const Location location = function.getLoc();
  const auto type = MemRefType::get({total}, builder.getI8Type());
  function.insertArgument(function.getNumArguments(), type, {}, location);
  Value scratch = function.getArguments().back();
  for (Place& place : places) {
    builder.setInsertionPoint(place.op);
    Value offset = builder.create<arith::ConstantIndexOp>(location, place.offset);
    Value view = builder.create<memref::ViewOp>(location, place.op.getType(), scratch, offset, ValueRange{});
    place.op.getResult().replaceAllUsesWith(view);
    place.op.erase();
  }
  return total;
}

namespace {

/// Buffers and constants that the operations use, in the order of their use.
std::vector<Value> values_used_by(const std::vector<linalg::GenericOp>& members) {
  std::vector<Value> outside;
  std::set<const void*> seen;
  for (linalg::GenericOp member : members)
    member->walk([&](Operation* op) {
      for (Value v : op->getOperands())
        if (!member->isAncestor(v.getParentBlock()->getParentOp()) && seen.insert(v.getAsOpaquePointer()).second)
          outside.push_back(v);
    });
  return outside;
}

/// The buffers behind `values`, each once; those of a sum that has no memory are left out.
SmallVector<Value> roots_of(const std::vector<Value>& values) {
  SmallVector<Value> roots;
  for (Value v : values) {
    if (!isa<MemRefType>(v.getType())) continue;
    Value root = root_of(v);
    if (llvm::is_contained(roots, root) || (root.getDefiningOp() && is_name_of_sum(root.getDefiningOp()))) continue;
    roots.push_back(root);
  }
  return roots;
}

/// A function at the end of the module with clones of `members`: its arguments are `roots`, and it makes the views and
/// constants among `outside` itself.
func::FuncOp make_nest(func::FuncOp function, const std::vector<linalg::GenericOp>& members,
                       const std::vector<Value>& outside, const SmallVector<Value>& roots) {
  OpBuilder builder(function.getContext());
  const Location location = function.getLoc();
  SmallVector<Type> types;
  for (Value root : roots) types.push_back(root.getType());
  builder.setInsertionPointToEnd(function->getParentOfType<ModuleOp>().getBody());
  auto nest = builder.create<func::FuncOp>(location, "nest", builder.getFunctionType(types, {}));
  nest.setPrivate();
  Block* body = nest.addEntryBlock();
  builder.setInsertionPointToStart(body);
  IRMapping mapping;
  for (size_t i = 0; i < roots.size(); ++i) mapping.map(roots[i], body->getArgument(static_cast<unsigned>(i)));
  const std::function<void(Value)> bring = [&](Value v) {
    if (mapping.contains(v)) return;
    Operation* def = v.getDefiningOp();
    TESSERA_INVARIANT(def && (is_view(def) || isa<arith::ConstantOp>(def) || is_name_of_sum(def)),
                      "an operation works on buffers and constants");
    for (Value operand : def->getOperands()) bring(operand);
    builder.clone(*def, mapping);
  };
  for (Value v : outside) bring(v);
  for (linalg::GenericOp member : members) builder.clone(*member, mapping);
  builder.create<func::ReturnOp>(location);
  return nest;
}

/// A name that tells the extents of the loops and which of them are sums.
std::string name_of_nest(linalg::GenericOp sum, size_t number) {
  std::string name = "nest_" + std::to_string(number);
  const auto kinds = sum.getIteratorTypesArray();
  for (size_t d = 0; d < kinds.size(); ++d)
    name += (kinds[d] == utils::IteratorType::reduction ? "_r" : "_") + std::to_string(sum.getStaticLoopRanges()[d]);
  return name;
}

}  // namespace

std::vector<func::FuncOp> outline(func::FuncOp function, std::map<std::string, func::FuncOp>& known) {
  std::vector<func::FuncOp> made;
  OpBuilder builder(function.getContext());
  const Location location = function.getLoc();
  for (memref::CopyOp copy : llvm::make_early_inc_range(function.getOps<memref::CopyOp>())) {
    builder.setInsertionPoint(copy);
    linalg::makeMemRefCopyOp(builder, location, copy.getSource(), copy.getTarget());
    copy.erase();
  }
  SmallVector<linalg::GenericOp> operations(function.getOps<linalg::GenericOp>());
  while (!operations.empty()) {
    linalg::GenericOp last = operations.pop_back_val();
    linalg::GenericOp sum = is_joined(last) ? sum_before(last) : last;
    std::vector<linalg::GenericOp> members = fills_before(sum);
    members.push_back(sum);
    if (sum != last) members.push_back(last);
    operations.truncate(operations.size() - (members.size() - 1));

    const std::vector<Value> outside = values_used_by(members);
    const SmallVector<Value> roots = roots_of(outside);
    func::FuncOp nest = make_nest(function, members, outside, roots);
    std::string content;
    llvm::raw_string_ostream stream(content);
    nest.print(stream, OpPrintingFlags().useLocalScope().assumeVerified());
    const auto [found, fresh] = known.try_emplace(stream.str(), nest);
    if (fresh) {
      nest.setName(name_of_nest(sum, known.size()));
      made.push_back(nest);
    } else {
      nest.erase();
    }
    builder.setInsertionPoint(last);
    builder.create<func::CallOp>(location, found->second, roots);
    for (linalg::GenericOp member : llvm::reverse(members)) member.erase();
  }
  erase_dead_views(function);
  return made;
}

}  // namespace tessera::cpu
