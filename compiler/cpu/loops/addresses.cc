// SPDX-License-Identifier: Apache-2.0
#include "compiler/cpu/loops/addresses.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace tessera::cpu {

using namespace mlir;

namespace {

void add_expression(AffineExpr e, int64_t factor, Linear& to) {
  if (auto constant = dyn_cast<AffineConstantExpr>(e)) {
    to.offset += factor * constant.getValue();
  } else if (auto dim = dyn_cast<AffineDimExpr>(e)) {
    to.coefficients[dim.getPosition()] += factor;
  } else {
    auto pair = cast<AffineBinaryOpExpr>(e);
    if (e.getKind() == AffineExprKind::Add) {
      add_expression(pair.getLHS(), factor, to);
      add_expression(pair.getRHS(), factor, to);
    } else {
      TESSERA_INVARIANT(e.getKind() == AffineExprKind::Mul && isa<AffineConstantExpr>(pair.getRHS()),
                        "operands are read at linear indices");
      add_expression(pair.getLHS(), factor * cast<AffineConstantExpr>(pair.getRHS()).getValue(), to);
    }
  }
}

/// A loop that a buffer varies along.
struct Walk {
  unsigned dim;
  int64_t extent, coefficient;
};

/// The parallel loops that run more than once, from the largest step in the buffer down.
std::vector<Walk> walks(linalg::GenericOp op, const Linear& buffer) {
  std::vector<Walk> found;
  const auto ranges = op.getStaticLoopRanges();
  const auto iterators = op.getIteratorTypesArray();
  for (unsigned d = 0; d < ranges.size(); ++d)
    if (ranges[d] != 1 && iterators[d] == utils::IteratorType::parallel)
      found.push_back({d, ranges[d], buffer.coefficients[d]});
  std::sort(found.begin(), found.end(), [](const Walk& a, const Walk& b) { return a.coefficient > b.coefficient; });
  return found;
}

}  // namespace

Linear linear_address(linalg::GenericOp op, OpOperand& operand) {
  Linear address;
  address.coefficients.assign(op.getStaticLoopRanges().size(), 0);
  auto type = cast<MemRefType>(operand.get().getType());
  SmallVector<int64_t> strides;
  int64_t offset = 0;
  const auto known = getStridesAndOffset(type, strides, offset);
  TESSERA_INVARIANT(succeeded(known) && !ShapedType::isDynamic(offset), "buffers have static strides");
  address.offset = offset;
  AffineMap map = op.getMatchingIndexingMap(&operand);
  for (unsigned d = 0; d < map.getNumResults(); ++d) add_expression(map.getResult(d), strides[d], address);
  return address;
}

std::optional<std::vector<Linear>> addresses_over(linalg::GenericOp sum, linalg::GenericOp reader, unsigned number) {
  std::vector<Linear> own, moved;
  for (OpOperand& operand : reader->getOpOperands()) {
    own.push_back(linear_address(reader, operand));
    moved.push_back({own.back().offset, std::vector<int64_t>(sum.getStaticLoopRanges().size(), 0)});
  }
  const Linear result = linear_address(sum, *sum.getDpsInitOperand(0));
  if (own[number].offset != result.offset) return std::nullopt;
  const std::vector<Walk> loops = walks(sum, result);
  size_t next = 0;
  for (const Walk& walk : walks(reader, own[number])) {
    // One loop of the reader is one loop of the sum, or several from the outermost in.
    for (int64_t rest = walk.extent; rest > 1; ++next) {
      if (next == loops.size() || rest % loops[next].extent != 0) return std::nullopt;
      rest /= loops[next].extent;
      if (loops[next].coefficient == 0 || loops[next].coefficient != walk.coefficient * rest) return std::nullopt;
      for (size_t k = 0; k < own.size(); ++k)
        moved[k].coefficients[loops[next].dim] = own[k].coefficients[walk.dim] * rest;
    }
  }
  if (next != loops.size()) return std::nullopt;
  return moved;
}

std::string library_function(Operation* op) {
  static const std::map<std::string, std::string> names = {
      {"math.exp", "exp"},     {"math.expm1", "expm1"}, {"math.log", "log"},     {"math.log1p", "log1p"},
      {"math.tanh", "tanh"},   {"math.erf", "erf"},     {"math.sin", "sin"},     {"math.cos", "cos"},
      {"math.tan", "tan"},     {"math.asin", "asin"},   {"math.acos", "acos"},   {"math.atan", "atan"},
      {"math.sinh", "sinh"},   {"math.cosh", "cosh"},   {"math.asinh", "asinh"}, {"math.acosh", "acosh"},
      {"math.atanh", "atanh"}, {"math.powf", "pow"}};
  const auto found = names.find(op->getName().getStringRef().str());
  if (found != names.end()) return found->second + (op->getResult(0).getType().isF32() ? "f" : "");
  if (isa<arith::RemFOp>(op)) return op->getResult(0).getType().isF32() ? "fmodf" : "fmod";
  return "";
}

bool has_vector_form(const std::string& function) { return function == "expf" || function == "erff"; }

bool lane_by_lane(Operation& op, int64_t vector_bytes) {
  const std::string function = library_function(&op);
  return isa<memref::LoadOp>(op) || (!function.empty() && !(vector_bytes >= 32 && has_vector_form(function)));
}

}  // namespace tessera::cpu
