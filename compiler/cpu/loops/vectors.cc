// SPDX-License-Identifier: Apache-2.0
#include "compiler/cpu/loops/vectors.h"

#include <algorithm>

#include "compiler/cpu/loops/addresses.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace tessera::cpu {

using namespace mlir;

void load_vector_dialect(MLIRContext& context) { context.loadDialect<vector::VectorDialect>(); }

Value VectorCode::constant(int64_t value) {
  Value& known = constants_[value];
  if (!known) {
    OpBuilder::InsertionGuard guard(builder_);
    builder_.setInsertionPointToStart(&function_.getBody().front());
    known = builder_.create<arith::ConstantIndexOp>(location_, value);
  }
  return known;
}

Value VectorCode::behind(Value at, int64_t distance) {
  return distance == 0 ? at : builder_.create<arith::AddIOp>(location_, at, constant(distance)).getResult();
}

Value VectorCode::mask(int64_t lanes, int64_t active) {
  SmallVector<bool> bits(static_cast<size_t>(lanes), false);
  std::fill_n(bits.begin(), active, true);
  return builder_.create<arith::ConstantOp>(location_, builder_.getBoolVectorAttr(bits));
}

Value VectorCode::load(VectorType type, Value buffer, Value at, int64_t stride, int64_t active) {
  if (stride == 1) return contiguous(type, buffer, at, active);
  if (stride == 2 && type.getDimSize(0) > 2) return every_second(type, buffer, at, active);
  return from_lanes(type, [&](int64_t i) -> Value {
    const int64_t inside = std::min(i, active - 1);  // a lane that does not exist repeats the last one
    return builder_.create<memref::LoadOp>(location_, buffer, behind(at, inside * stride));
  });
}

Value VectorCode::contiguous(VectorType type, Value buffer, Value at, int64_t active) {
  if (active == type.getDimSize(0)) return builder_.create<vector::LoadOp>(location_, type, buffer, at);
  Value zero = builder_.create<arith::ConstantOp>(location_, builder_.getZeroAttr(type));
  if (active <= 0) return zero;
  return builder_.create<vector::MaskedLoadOp>(location_, type, buffer, at, mask(type.getDimSize(0), active), zero);
}

/// Two vectors and a shuffle. The second vector ends at the last element that is needed, so that nothing behind it is
/// read.
Value VectorCode::every_second(VectorType type, Value buffer, Value at, int64_t active) {
  const int64_t n = type.getDimSize(0), span = 2 * active - 1;
  Value low = contiguous(type, buffer, at, std::min(n, span));
  Value high = contiguous(type, buffer, behind(at, n - 1), span - (n - 1));
  SmallVector<int64_t> order;
  for (int64_t i = 0; i < n; ++i) order.push_back(2 * i < n ? 2 * i : n + 2 * i - (n - 1));
  return builder_.create<vector::ShuffleOp>(location_, low, high, order);
}

void VectorCode::store(Value vector, Value buffer, Value at, int64_t stride, int64_t active) {
  const int64_t lanes = cast<VectorType>(vector.getType()).getDimSize(0);
  if (stride != 1) {
    for (int64_t i = 0; i < active; ++i)
      builder_.create<memref::StoreOp>(location_, lane_of(vector, i), buffer, behind(at, i * stride));
  } else if (active == lanes) {
    builder_.create<vector::StoreOp>(location_, vector, buffer, at);
  } else {
    builder_.create<vector::MaskedStoreOp>(location_, buffer, at, mask(lanes, active), vector);
  }
}

Value VectorCode::from_lanes(VectorType type, llvm::function_ref<Value(int64_t)> lane) {
  Value v = builder_.create<vector::SplatOp>(location_, type, lane(0));
  for (int64_t i = 1; i < type.getDimSize(0); ++i)
    v = builder_.create<vector::InsertOp>(location_, lane(i), v, ArrayRef<int64_t>{i});
  return v;
}

Value VectorCode::lane_of(Value v, int64_t i) {
  return isa<VectorType>(v.getType()) ? builder_.create<vector::ExtractOp>(location_, v, i).getResult() : v;
}

/// Lanes go through a place on the stack.
Value VectorCode::vector_form(const std::string& name, Value operand) {
  auto type = cast<VectorType>(operand.getType());
  const int64_t lanes = type.getDimSize(0);
  auto row = MemRefType::get({lanes}, type.getElementType());
  Value& place = places_[lanes];
  if (!place) {
    OpBuilder::InsertionGuard guard(builder_);
    builder_.setInsertionPointToStart(&function_.getBody().front());
    place = builder_.create<memref::AllocaOp>(location_, row, ValueRange{}, builder_.getI64IntegerAttr(64));
  }
  builder_.create<vector::StoreOp>(location_, operand, place, constant(0));
  const std::string form = "tessera_" + name + "_" + std::to_string(lanes);
  builder_.create<func::CallOp>(location_, declared(form, {row}, {}), place);
  return builder_.create<vector::LoadOp>(location_, type, place, constant(0));
}

Value VectorCode::call(const std::string& name, ArrayRef<Value> operands, Type result) {
  auto vector = dyn_cast<VectorType>(result);
  Type type = vector ? vector.getElementType() : result;
  if (vector && vector_bytes_ >= 32 && has_vector_form(name) && type.isF32()) {
    const int64_t lanes = vector.getDimSize(0);
    if (lanes == 4 || lanes == 8 || lanes == 16) return vector_form(name, operands[0]);
  }
  auto function = declared(name, SmallVector<Type>(operands.size(), type), {type});
  const auto one = [&](int64_t lane) -> Value {
    SmallVector<Value> arguments;
    for (Value operand : operands) arguments.push_back(lane_of(operand, lane));
    return builder_.create<func::CallOp>(location_, function, arguments).getResult(0);
  };
  return vector ? from_lanes(vector, one) : one(0);
}

func::FuncOp VectorCode::declared(const std::string& name, ArrayRef<Type> inputs, ArrayRef<Type> results) {
  auto module = function_->getParentOfType<ModuleOp>();
  auto function = module.lookupSymbol<func::FuncOp>(name);
  if (function) return function;
  OpBuilder::InsertionGuard guard(builder_);
  builder_.setInsertionPointToStart(module.getBody());
  function = builder_.create<func::FuncOp>(location_, name, builder_.getFunctionType(inputs, results));
  function.setPrivate();
  return function;
}

}  // namespace tessera::cpu
