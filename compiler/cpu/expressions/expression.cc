// SPDX-License-Identifier: Apache-2.0
// Bodies are written into a detached block while their reads are collected; then the linalg.generic is made around the
// block. The arguments of the block are the reads, each (tensor, indices) once, followed by the accumulator.
#include "compiler/cpu/expressions/expression.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace tessera::cpu {

namespace {

using mlir::arith::CmpFPredicate;
using mlir::arith::CmpIPredicate;

bool is_unsigned(DType dtype) {
  return dtype == DType::kUint8 || dtype == DType::kUint16 || dtype == DType::kUint32 || dtype == DType::kUint64;
}
bool is_int(DType dtype) { return ops::is_integer(dtype) && ops::packed_bits(dtype) >= 8; }

/// Type of a scalar inside a body: truth values are one bit.
mlir::Type scalar_type(mlir::MLIRContext* context, DType dtype) {
  return dtype == DType::kBool ? mlir::IntegerType::get(context, 1) : storage_type(context, dtype);
}

Scalar make(Scalar like, mlir::Value value) { return Scalar(&like.body(), value, like.dtype()); }

template <typename FloatOp, typename IntOp>
Scalar binary(Scalar a, Scalar b) {
  TESSERA_INVARIANT(a.dtype() == b.dtype(), "operands of one type");
  mlir::OpBuilder& builder = a.body().builder();
  if (is_real(a.dtype())) return make(a, builder.create<FloatOp>(a.body().location(), a.value(), b.value()));
  require(is_int(a.dtype()));
  return make(a, builder.create<IntOp>(a.body().location(), a.value(), b.value()));
}

template <typename Op>
Scalar bits(Scalar a, Scalar b) {
  TESSERA_INVARIANT(a.dtype() == b.dtype() && !is_real(a.dtype()), "integers of one type");
  return make(a, a.body().builder().create<Op>(a.body().location(), a.value(), b.value()));
}

Scalar compare(Scalar a, Scalar b, CmpFPredicate for_float, CmpIPredicate for_signed, CmpIPredicate for_unsigned) {
  TESSERA_INVARIANT(a.dtype() == b.dtype(), "operands of one type");
  require(is_real(a.dtype()) || is_int(a.dtype()) || a.dtype() == DType::kBool);
  mlir::OpBuilder& builder = a.body().builder();
  mlir::Value result;
  if (is_real(a.dtype())) {
    result = builder.create<mlir::arith::CmpFOp>(a.body().location(), for_float, a.value(), b.value());
  } else {
    const bool low = is_unsigned(a.dtype()) || a.dtype() == DType::kBool;
    result =
        builder.create<mlir::arith::CmpIOp>(a.body().location(), low ? for_unsigned : for_signed, a.value(), b.value());
  }
  return Scalar(&a.body(), result, DType::kBool);
}

int bit_width(DType dtype) { return dtype == DType::kBool ? 1 : static_cast<int>(8 * ops::element_bytes(dtype)); }

}  // namespace

mlir::Type storage_type(mlir::MLIRContext* context, DType dtype) {
  switch (dtype) {
    case DType::kFloat: return mlir::FloatType::getF32(context);
    case DType::kDouble: return mlir::FloatType::getF64(context);
    case DType::kBool:
    case DType::kInt8:
    case DType::kUint8: return mlir::IntegerType::get(context, 8);
    case DType::kFloat16:
    case DType::kBfloat16:
    case DType::kInt16:
    case DType::kUint16: return mlir::IntegerType::get(context, 16);
    case DType::kInt32:
    case DType::kUint32: return mlir::IntegerType::get(context, 32);
    case DType::kInt64:
    case DType::kUint64: return mlir::IntegerType::get(context, 64);
    default: throw Declined();
  }
}

Scalar Scalar::same(double number) const { return body_->number(dtype_, number); }

Scalar operator+(Scalar a, Scalar b) { return binary<mlir::arith::AddFOp, mlir::arith::AddIOp>(a, b); }
Scalar operator-(Scalar a, Scalar b) { return binary<mlir::arith::SubFOp, mlir::arith::SubIOp>(a, b); }
Scalar operator*(Scalar a, Scalar b) { return binary<mlir::arith::MulFOp, mlir::arith::MulIOp>(a, b); }
Scalar operator/(Scalar a, Scalar b) {
  return is_unsigned(a.dtype()) ? bits<mlir::arith::DivUIOp>(a, b)
                                : binary<mlir::arith::DivFOp, mlir::arith::DivSIOp>(a, b);
}
Scalar operator%(Scalar a, Scalar b) {
  return is_unsigned(a.dtype()) ? bits<mlir::arith::RemUIOp>(a, b)
                                : binary<mlir::arith::RemFOp, mlir::arith::RemSIOp>(a, b);
}
Scalar operator-(Scalar a) {
  if (is_real(a.dtype()))
    return make(a, a.body().builder().create<mlir::arith::NegFOp>(a.body().location(), a.value()));
  return a.same(0) - a;
}
Scalar operator<(Scalar a, Scalar b) {
  return compare(a, b, CmpFPredicate::OLT, CmpIPredicate::slt, CmpIPredicate::ult);
}
Scalar operator>(Scalar a, Scalar b) {
  return compare(a, b, CmpFPredicate::OGT, CmpIPredicate::sgt, CmpIPredicate::ugt);
}
Scalar operator<=(Scalar a, Scalar b) {
  return compare(a, b, CmpFPredicate::OLE, CmpIPredicate::sle, CmpIPredicate::ule);
}
Scalar operator>=(Scalar a, Scalar b) {
  return compare(a, b, CmpFPredicate::OGE, CmpIPredicate::sge, CmpIPredicate::uge);
}
Scalar operator==(Scalar a, Scalar b) {
  return compare(a, b, CmpFPredicate::OEQ, CmpIPredicate::eq, CmpIPredicate::eq);
}
Scalar operator!=(Scalar a, Scalar b) {
  return compare(a, b, CmpFPredicate::UNE, CmpIPredicate::ne, CmpIPredicate::ne);
}
Scalar operator&(Scalar a, Scalar b) { return bits<mlir::arith::AndIOp>(a, b); }
Scalar operator|(Scalar a, Scalar b) { return bits<mlir::arith::OrIOp>(a, b); }
Scalar operator^(Scalar a, Scalar b) { return bits<mlir::arith::XOrIOp>(a, b); }
Scalar operator!(Scalar a) { return a ^ a.body().integer(a.dtype(), -1); }
Scalar shift_left(Scalar a, Scalar count) { return bits<mlir::arith::ShLIOp>(a, count); }
Scalar shift_right(Scalar a, Scalar count) {
  return is_unsigned(a.dtype()) ? bits<mlir::arith::ShRUIOp>(a, count) : bits<mlir::arith::ShRSIOp>(a, count);
}

Scalar select(Scalar condition, Scalar yes, Scalar no) {
  TESSERA_INVARIANT(condition.dtype() == DType::kBool && yes.dtype() == no.dtype(), "operands of select");
  return make(yes, yes.body().builder().create<mlir::arith::SelectOp>(yes.body().location(), condition.value(),
                                                                      yes.value(), no.value()));
}
Scalar smaller(Scalar a, Scalar b) { return select(b < a, b, a); }
Scalar larger(Scalar a, Scalar b) { return select(a < b, b, a); }
Scalar nan_min(Scalar a, Scalar b) { return is_real(a.dtype()) ? select((b < a) | (b != b), b, a) : smaller(a, b); }
Scalar nan_max(Scalar a, Scalar b) { return is_real(a.dtype()) ? select((a < b) | (b != b), b, a) : larger(a, b); }
Scalar magnitude(Scalar x) {
  if (is_real(x.dtype())) return math("absf", {x});
  return is_unsigned(x.dtype()) ? x : select(x < x.same(0), -x, x);
}
Scalar lowest(Scalar like) {
  if (is_real(like.dtype())) return like.same(-INFINITY);
  const bool least_is_zero = is_unsigned(like.dtype()) || like.dtype() == DType::kBool;
  return like.body().integer(like.dtype(), least_is_zero ? 0 : int64_t{-1} << (bit_width(like.dtype()) - 1));
}
Scalar highest(Scalar like) { return is_real(like.dtype()) ? like.same(INFINITY) : !lowest(like); }
Scalar divided(Scalar a, int64_t n) {
  if (is_real(a.dtype())) return a / a.same(static_cast<double>(n));
  const DType wide = is_unsigned(a.dtype()) ? DType::kUint64 : DType::kInt64;
  return cast(cast(a, wide) / a.body().integer(wide, n), a.dtype());
}
Scalar as_float(Scalar x) { return cast(x, DType::kFloat); }
int bit_width(Scalar x) { return bit_width(x.dtype()); }
Scalar as_real(Scalar x) { return is_real(x.dtype()) ? x : cast(x, DType::kDouble); }
Scalar back(Scalar like, Scalar x) { return is_real(like.dtype()) ? x : cast(cast(x, DType::kInt64), like.dtype()); }

Scalar math(const char* name, std::initializer_list<Scalar> arguments) {
  const Scalar first = *arguments.begin();
  require(is_real(first.dtype()));
  llvm::SmallVector<mlir::Value> operands;
  for (Scalar argument : arguments) operands.push_back(argument.value());
  mlir::OperationState state(first.body().location(), std::string("math.") + name, operands, {first.value().getType()});
  return make(first, first.body().builder().create(state)->getResult(0));
}

Scalar to_int32_unchecked(Scalar a) {
  Body& body = a.body();
  auto type = body.builder().getI32Type();
  return Scalar(&body, body.builder().create<mlir::arith::FPToSIOp>(body.location(), type, a.value()), DType::kInt32);
}

namespace {

/// Truncation to a signed integer of 32 or 64 bits; what does not fit, and NaN, give the smallest one.
Scalar truncate(Scalar a, DType dtype) {
  Body& body = a.body();
  const double limit = std::ldexp(1.0, bit_width(dtype) - 1);
  // In float32 the open lower bound -limit - 1 is -limit itself for both widths; the value there is the smallest
  // integer either way.
  const Scalar fits =
      (a > a.same(dtype == DType::kInt32 && a.dtype() == DType::kDouble ? -limit - 1 : -limit)) & (a < a.same(limit));
  const Scalar inside = select(fits, a, a.same(0));
  const auto type = storage_type(body.builder().getContext(), dtype);
  const Scalar converted(&body, body.builder().create<mlir::arith::FPToSIOp>(body.location(), type, inside.value()),
                         dtype);
  return select(fits, converted,
                body.integer(dtype, dtype == DType::kInt32 ? std::numeric_limits<int32_t>::min()
                                                           : std::numeric_limits<int64_t>::min()));
}

Scalar resize(Scalar a, DType dtype) {
  Body& body = a.body();
  mlir::OpBuilder& builder = body.builder();
  const auto type = scalar_type(builder.getContext(), dtype);
  const int from = bit_width(a.dtype()), to = bit_width(dtype);
  mlir::Value v = a.value();
  if (to < from)
    v = builder.create<mlir::arith::TruncIOp>(body.location(), type, v);
  else if (to > from && (is_unsigned(a.dtype()) || a.dtype() == DType::kBool))
    v = builder.create<mlir::arith::ExtUIOp>(body.location(), type, v);
  else if (to > from)
    v = builder.create<mlir::arith::ExtSIOp>(body.location(), type, v);
  return Scalar(&body, v, dtype);
}

}  // namespace

namespace {

bool is_narrow(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBfloat16; }

/// The bits of a value as another type of its width.
Scalar bits_as(Scalar a, DType dtype, mlir::Type type) {
  return Scalar(&a.body(), a.body().builder().create<mlir::arith::BitcastOp>(a.body().location(), type, a.value()),
                dtype);
}

Scalar from_narrow(Scalar a) {
  Body& body = a.body();
  mlir::OpBuilder& builder = body.builder();
  if (a.dtype() == DType::kFloat16) {
    const Scalar half = bits_as(a, DType::kFloat16, builder.getF16Type());
    return Scalar(&body, builder.create<mlir::arith::ExtFOp>(body.location(), builder.getF32Type(), half.value()),
                  DType::kFloat);
  }
  const Scalar wide = resize(Scalar(&body, a.value(), DType::kUint16), DType::kUint32);
  return bits_as(shift_left(wide, wide.same(16)), DType::kFloat, builder.getF32Type());
}

Scalar to_narrow(Scalar a, DType dtype) {
  Body& body = a.body();
  mlir::OpBuilder& builder = body.builder();
  if (dtype == DType::kFloat16) {
    const Scalar half(&body, builder.create<mlir::arith::TruncFOp>(body.location(), builder.getF16Type(), a.value()),
                      DType::kFloat16);
    return bits_as(half, DType::kFloat16, builder.getI16Type());
  }
  // Half to even in integers; a NaN keeps its upper bits and becomes quiet.
  const Scalar bits = bits_as(a, DType::kUint32, builder.getI32Type()), upper = shift_right(bits, bits.same(16));
  const Scalar rounded = shift_right(bits + bits.same(0x7fff) + (upper & bits.same(1)), bits.same(16));
  return Scalar(&body, resize(select(a != a, upper | bits.same(0x40), rounded), DType::kUint16).value(), dtype);
}

}  // namespace

Scalar cast(Scalar a, DType dtype) {
  if (a.dtype() == dtype) return a;
  if (is_narrow(a.dtype())) return cast(from_narrow(a), dtype);
  if (is_narrow(dtype)) return to_narrow(cast(a, DType::kFloat), dtype);
  Body& body = a.body();
  mlir::OpBuilder& builder = body.builder();
  if (dtype == DType::kBool) return a != a.same(0);
  const bool known_from = is_real(a.dtype()) || is_int(a.dtype()) || a.dtype() == DType::kBool;
  require(known_from && (is_real(dtype) || is_int(dtype)));
  const auto type = scalar_type(builder.getContext(), dtype);
  if (is_real(a.dtype()) && is_real(dtype)) {
    mlir::Value v = dtype == DType::kDouble
                        ? builder.create<mlir::arith::ExtFOp>(body.location(), type, a.value()).getResult()
                        : builder.create<mlir::arith::TruncFOp>(body.location(), type, a.value()).getResult();
    return Scalar(&body, v, dtype);
  }
  if (is_real(dtype)) {
    const bool low = is_unsigned(a.dtype()) || a.dtype() == DType::kBool;
    mlir::Value v = low ? builder.create<mlir::arith::UIToFPOp>(body.location(), type, a.value()).getResult()
                        : builder.create<mlir::arith::SIToFPOp>(body.location(), type, a.value()).getResult();
    return Scalar(&body, v, dtype);
  }
  if (!is_real(a.dtype())) return resize(a, dtype);
  if (dtype == DType::kUint32 || dtype == DType::kUint64) {
    // Through the signed type; the upper half is moved down by half the range and its sign bit set again.
    const DType via = dtype == DType::kUint32 ? DType::kInt32 : DType::kInt64;
    const Scalar wide = cast(a, DType::kDouble);
    const Scalar half = wide.same(std::ldexp(1.0, bit_width(dtype) - 1));
    const Scalar high =
        truncate(wide - half, via) ^ body.integer(via, dtype == DType::kUint32 ? std::numeric_limits<int32_t>::min()
                                                                               : std::numeric_limits<int64_t>::min());
    return Scalar(&body, select(wide >= half, high, truncate(wide, via)).value(), dtype);
  }
  if (dtype == DType::kInt64) return truncate(a, DType::kInt64);
  return resize(truncate(a, DType::kInt32), dtype);
}

// --- bodies
// --------------------------------------------------------------------------------------------------------------------

Scalar Body::number(DType dtype, double value) {
  require(is_real(dtype) || is_int(dtype) || dtype == DType::kBool || value == 0);  // the bits of 0 are 0 in every type
  if (!is_real(dtype)) return integer(dtype, static_cast<int64_t>(value));
  const auto type = mlir::cast<mlir::FloatType>(storage_type(builder_.getContext(), dtype));
  if (dtype == DType::kFloat)
    return Scalar(
        this, builder_.create<mlir::arith::ConstantFloatOp>(location_, llvm::APFloat(static_cast<float>(value)), type),
        dtype);
  return Scalar(this, builder_.create<mlir::arith::ConstantFloatOp>(location_, llvm::APFloat(value), type), dtype);
}

Scalar Body::integer(DType dtype, int64_t value) {
  return Scalar(
      this, builder_.create<mlir::arith::ConstantIntOp>(location_, value, scalar_type(builder_.getContext(), dtype)),
      dtype);
}

Scalar Body::from_storage(mlir::Value value, DType dtype) {
  if (dtype == DType::kBool) {
    mlir::Value zero = builder_.create<mlir::arith::ConstantIntOp>(location_, 0, value.getType());
    value = builder_.create<mlir::arith::CmpIOp>(location_, CmpIPredicate::ne, value, zero);
  }
  return Scalar(this, value, dtype);
}

mlir::Value Body::to_storage(Scalar scalar, DType dtype) {
  TESSERA_INVARIANT(scalar.dtype() == dtype, "a body yields elements of its tensor's type");
  if (dtype != DType::kBool) return scalar.value();
  return builder_.create<mlir::arith::ExtUIOp>(location_, builder_.getI8Type(), scalar.value());
}

Scalar Body::load(const Tensor& tensor, const Indices& at) {
  TESSERA_INVARIANT(at.size() == tensor.rank(), "one index for each axis");
  for (const Input& input : inputs_)
    if (input.tensor == tensor.value && input.at == at) return from_storage(input.argument, tensor.dtype);
  // The accumulator stays the last argument.
  auto argument = block_->insertArgument(static_cast<unsigned>(inputs_.size()),
                                         storage_type(builder_.getContext(), tensor.dtype), location_);
  inputs_.push_back({tensor.value, at, argument, tensor.dtype});
  return from_storage(argument, tensor.dtype);
}

Scalar Body::broadcast(const Tensor& tensor, const Indices& at) {
  Indices own(at.end() - static_cast<int64_t>(tensor.rank()), at.end());
  for (size_t d = 0; d < own.size(); ++d)
    if (tensor.shape[d] == 1) own[d] = mlir::getAffineConstantExpr(0, builder_.getContext());
  return load(tensor, own);
}

Scalar Body::extract(const Tensor& tensor, const std::vector<Scalar>& at) {
  TESSERA_INVARIANT(at.size() == tensor.rank(), "one index for each axis");
  llvm::SmallVector<mlir::Value> indices;
  for (Scalar s : at) {
    TESSERA_INVARIANT(s.dtype() == DType::kInt64, "indices are int64");
    indices.push_back(builder_.create<mlir::arith::IndexCastOp>(location_, builder_.getIndexType(), s.value()));
  }
  return from_storage(builder_.create<mlir::tensor::ExtractOp>(location_, tensor.value, indices), tensor.dtype);
}

mlir::Value Body::index_value(Index expression) {
  if (auto constant = mlir::dyn_cast<mlir::AffineConstantExpr>(expression))
    return builder_.create<mlir::arith::ConstantIntOp>(location_, constant.getValue(), builder_.getI64Type());
  if (auto dim = mlir::dyn_cast<mlir::AffineDimExpr>(expression)) {
    index_values_.resize(dims_);
    mlir::Value& known = index_values_[dim.getPosition()];
    if (!known) {
      mlir::Value index = builder_.create<mlir::linalg::IndexOp>(location_, dim.getPosition());
      known = builder_.create<mlir::arith::IndexCastOp>(location_, builder_.getI64Type(), index);
    }
    return known;
  }
  auto pair = mlir::cast<mlir::AffineBinaryOpExpr>(expression);
  mlir::Value left = index_value(pair.getLHS()), right = index_value(pair.getRHS());
  if (expression.getKind() == mlir::AffineExprKind::Add)
    return builder_.create<mlir::arith::AddIOp>(location_, left, right);
  TESSERA_INVARIANT(expression.getKind() == mlir::AffineExprKind::Mul, "indices are linear");
  return builder_.create<mlir::arith::MulIOp>(location_, left, right);
}

Scalar Body::index(Index expression) { return Scalar(this, index_value(expression), DType::kInt64); }

// --- graphs
// --------------------------------------------------------------------------------------------------------------------

mlir::Value Graph::empty(DType dtype, const Shape& shape) {
  return builder_.create<mlir::tensor::EmptyOp>(location_, shape, storage_type(builder_.getContext(), dtype));
}

Tensor Graph::build(DType dtype, const Shape& shape, const Shape& extents, mlir::Value init,
                    const std::function<Scalar(Body&, const Indices&, Scalar)>& f) {
  mlir::MLIRContext* context = builder_.getContext();
  const size_t dims = shape.size() + extents.size();
  auto block = std::make_unique<mlir::Block>();
  mlir::Value accumulator = block->addArgument(storage_type(context, dtype), location_);
  mlir::OpBuilder inner(context);
  inner.setInsertionPointToEnd(block.get());
  Body body(inner, location_, block.get(), dims);
  Indices at;
  for (size_t d = 0; d < dims; ++d) at.push_back(mlir::getAffineDimExpr(static_cast<unsigned>(d), context));
  Scalar last;
  if (!extents.empty()) last = body.from_storage(accumulator, dtype);
  const Scalar result = f(body, at, last);
  body.builder().create<mlir::linalg::YieldOp>(location_, body.to_storage(result, dtype));

  llvm::SmallVector<mlir::Value> inputs;
  llvm::SmallVector<mlir::AffineMap> maps;
  std::vector<bool> bound(dims, false);  // a reduced index must be a whole axis of some operand
  const auto add = [&](const Indices& indices) {
    maps.push_back(mlir::AffineMap::get(static_cast<unsigned>(dims), 0, indices, context));
    for (Index index : indices)
      if (auto dim = mlir::dyn_cast<mlir::AffineDimExpr>(index)) bound[dim.getPosition()] = true;
  };
  for (const Body::Input& input : body.inputs_) {
    // Machine code looks at no bounds: an axis that a loop walks is at least as long as the loop.
    const auto type = mlir::cast<mlir::RankedTensorType>(input.tensor.getType());
    for (size_t k = 0; k < input.at.size(); ++k) {
      const auto dim = mlir::dyn_cast<mlir::AffineDimExpr>(input.at[k]);
      if (!dim) continue;
      const size_t d = dim.getPosition();
      require(type.getDimSize(static_cast<unsigned>(k)) >= (d < shape.size() ? shape[d] : extents[d - shape.size()]));
    }
    inputs.push_back(input.tensor);
    add(input.at);
  }
  Indices open;
  Shape open_extents;
  for (size_t d = shape.size(); d < dims; ++d)
    if (!bound[d]) {
      open.push_back(at[d]);
      open_extents.push_back(extents[d - shape.size()]);
    }
  if (!open.empty()) {  // an operand that is never read says how far they go
    inputs.push_back(builder_.create<mlir::tensor::EmptyOp>(location_, open_extents, builder_.getI8Type()));
    add(open);
    block->insertArgument(static_cast<unsigned>(inputs.size() - 1), builder_.getI8Type(), location_);
  }
  add(Indices(at.begin(), at.begin() + static_cast<int64_t>(shape.size())));
  llvm::SmallVector<mlir::utils::IteratorType> iterators(shape.size(), mlir::utils::IteratorType::parallel);
  iterators.resize(dims, mlir::utils::IteratorType::reduction);
  auto generic = builder_.create<mlir::linalg::GenericOp>(location_, mlir::TypeRange{init.getType()}, inputs,
                                                          mlir::ValueRange{init}, maps, iterators);
  generic.getRegion().push_back(block.release());
  return {generic.getResult(0), dtype, shape};
}

Tensor Graph::compute(DType dtype, const Shape& shape, const Element& element) {
  return build(dtype, shape, {}, empty(dtype, shape),
               [&](Body& body, const Indices& at, Scalar) { return element(body, at); });
}

Tensor Graph::reduce(DType dtype, const Shape& shape, const Shape& extents, const Start& start,
                     const Combine& combine) {
  const Tensor init = compute(dtype, shape, [&](Body& body, const Indices&) { return start(body); });
  if (extents.empty()) {
    return compute(dtype, shape, [&](Body& body, const Indices& i) { return combine(body, i, {}, start(body)); });
  }
  return build(dtype, shape, extents, init.value, [&](Body& body, const Indices& at, Scalar accumulator) {
    const auto split = at.begin() + static_cast<int64_t>(shape.size());
    return combine(body, Indices(at.begin(), split), Indices(split, at.end()), accumulator);
  });
}

Tensor Graph::reshape(const Tensor& x, const Shape& shape) {
  if (x.shape == shape) return x;
  const auto all = [](size_t rank) {
    llvm::SmallVector<mlir::ReassociationIndices> groups;
    if (rank == 0) return groups;
    groups.emplace_back();
    for (size_t d = 0; d < rank; ++d) groups[0].push_back(static_cast<int64_t>(d));
    return groups;
  };
  // Through one flat axis; a scalar has none.
  const auto element = storage_type(builder_.getContext(), x.dtype);
  mlir::Value v = x.value;
  const bool scalar = shape.empty() || x.shape.empty();
  if (x.rank() > 1 || (scalar && x.rank() == 1)) {
    const auto flat = mlir::RankedTensorType::get(scalar ? Shape{} : Shape{x.size()}, element);
    v = builder_.create<mlir::tensor::CollapseShapeOp>(location_, flat, v, scalar ? all(0) : all(x.rank()));
  }
  if (shape.size() > 1 || (scalar && shape.size() == 1)) {
    const auto type = mlir::RankedTensorType::get(shape, element);
    v = builder_.create<mlir::tensor::ExpandShapeOp>(location_, type, v, scalar ? all(0) : all(shape.size()));
  }
  return {v, x.dtype, shape};
}

Tensor Graph::slice(const Tensor& x, const std::vector<int64_t>& start, const std::vector<int64_t>& step,
                    const Shape& shape) {
  llvm::SmallVector<mlir::OpFoldResult> offsets, sizes, strides;
  for (size_t d = 0; d < shape.size(); ++d) {
    offsets.push_back(builder_.getIndexAttr(start[d]));
    sizes.push_back(builder_.getIndexAttr(shape[d]));
    strides.push_back(builder_.getIndexAttr(step[d]));
  }
  mlir::Value v = builder_.create<mlir::tensor::ExtractSliceOp>(location_, x.value, offsets, sizes, strides);
  return {v, x.dtype, shape};
}

namespace {

mlir::Value insert(mlir::OpBuilder& builder, mlir::Location location, const Tensor& part, mlir::Value into,
                   const std::vector<int64_t>& at) {
  llvm::SmallVector<mlir::OpFoldResult> offsets, sizes, strides;
  for (size_t d = 0; d < part.rank(); ++d) {
    offsets.push_back(builder.getIndexAttr(at[d]));
    sizes.push_back(builder.getIndexAttr(part.shape[d]));
    strides.push_back(builder.getIndexAttr(1));
  }
  return builder.create<mlir::tensor::InsertSliceOp>(location, part.value, into, offsets, sizes, strides);
}

}  // namespace

Tensor Graph::pad(const Tensor& x, const std::vector<int64_t>& low, const Shape& shape, const Start& value) {
  if (x.shape == shape) return x;
  const Tensor filled = compute(x.dtype, shape, [&](Body& body, const Indices&) { return value(body); });
  return {insert(builder_, location_, x, filled.value, low), x.dtype, shape};
}

Tensor Graph::concat(const std::vector<Tensor>& parts, size_t axis, const Shape& shape) {
  mlir::Value v = empty(parts[0].dtype, shape);
  std::vector<int64_t> at(shape.size(), 0);
  for (const Tensor& part : parts) {
    if (part.size() != 0) v = insert(builder_, location_, part, v, at);
    at[axis] += part.shape[axis];
  }
  return {v, parts[0].dtype, shape};
}

Tensor Graph::transpose(const Tensor& x, const std::vector<int64_t>& permutation) {
  Shape shape;
  for (int64_t axis : permutation) shape.push_back(x.shape[static_cast<size_t>(axis)]);
  return compute(x.dtype, shape, [&](Body& body, const Indices& i) {
    Indices at(i.size());
    for (size_t d = 0; d < i.size(); ++d) at[static_cast<size_t>(permutation[d])] = i[d];
    return body.load(x, at);
  });
}

}  // namespace tessera::cpu
