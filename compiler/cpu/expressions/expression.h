// SPDX-License-Identifier: Apache-2.0
// How a CPU operator is written: its result is a tensor whose element at given indices is a scalar expression
// (compute), or such an expression combined over further indices in row-major order (reduce). Enters: tensors and
// lambdas over symbolic indices. Leaves: linalg.generic operations on tensors, whose operands are affine reads; a read
// at an index that is itself computed becomes a tensor.extract inside. Arithmetic means what C++ means with
// -ffp-contract=off: every operation is rounded once, in the order written; integers wrap. A construct that cannot be
// expressed throws Declined, and the operator stays with the library of kernels.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/Builders.h"
#include "ops/scalar.h"
#include "ops/tensor.h"

namespace tessera::cpu {

using ops::DType;
using ops::Shape;

/// Thrown by lowerings and builders: this case has no compiled form.
struct Declined {};
inline void require(bool condition) {
  if (!condition) throw Declined();
}

/// Whether elements of the type are computed as floats.
inline bool is_real(DType dtype) { return dtype == DType::kFloat || dtype == DType::kDouble; }

/// A loop index, or an affine function of loop indices: i[0] * 2 + i[1].
using Index = mlir::AffineExpr;
using Indices = std::vector<Index>;

/// A dense tensor of static shape under construction. Booleans are stored as bytes, unsigned integers as signless ones.
struct Tensor {
  mlir::Value value;
  DType dtype = DType::kUndefined;
  Shape shape;

  size_t rank() const { return shape.size(); }
  int64_t size() const { return ops::element_count(shape); }
};

class Body;

/// One element: a number or a truth value inside a body.
class Scalar {
 public:
  Scalar() = default;
  Scalar(Body* body, mlir::Value value, DType dtype) : body_(body), value_(value), dtype_(dtype) {}
  DType dtype() const { return dtype_; }
  mlir::Value value() const { return value_; }
  Body& body() const { return *body_; }
  /// A constant of this element's type: truncated for integers, rounded once for float32.
  Scalar same(double number) const;

 private:
  Body* body_ = nullptr;
  mlir::Value value_;
  DType dtype_ = DType::kUndefined;
};

// Operands have one type. Division and remainder of integers truncate; the caller answers for the divisor.
Scalar operator+(Scalar a, Scalar b);
Scalar operator-(Scalar a, Scalar b);
Scalar operator*(Scalar a, Scalar b);
Scalar operator/(Scalar a, Scalar b);
Scalar operator%(Scalar a, Scalar b);
Scalar operator-(Scalar a);
// Ordered comparisons: false with a NaN, but != is true.
Scalar operator<(Scalar a, Scalar b);
Scalar operator>(Scalar a, Scalar b);
Scalar operator<=(Scalar a, Scalar b);
Scalar operator>=(Scalar a, Scalar b);
Scalar operator==(Scalar a, Scalar b);
Scalar operator!=(Scalar a, Scalar b);
// Bitwise on integers, logical on truth values.
Scalar operator&(Scalar a, Scalar b);
Scalar operator|(Scalar a, Scalar b);
Scalar operator^(Scalar a, Scalar b);
Scalar operator!(Scalar a);
Scalar select(Scalar condition, Scalar yes, Scalar no);
Scalar shift_left(Scalar a, Scalar count);
Scalar shift_right(Scalar a, Scalar count);
/// Both are computed.
template <typename Yes, typename No>
Scalar choose(Scalar condition, Yes yes, No no) {
  return select(condition, yes(), no());
}
/// b < a ? b : a and a < b ? b : a.
Scalar smaller(Scalar a, Scalar b);
Scalar larger(Scalar a, Scalar b);
/// Minimum and maximum; a NaN wins.
Scalar nan_min(Scalar a, Scalar b);
Scalar nan_max(Scalar a, Scalar b);
Scalar magnitude(Scalar x);
/// What no number of this type is below, or above.
Scalar lowest(Scalar like);
Scalar highest(Scalar like);
/// a / n, truncated for integers.
Scalar divided(Scalar a, int64_t n);
int bit_width(Scalar x);
Scalar as_float(Scalar x);
/// A float as it is, an integer as float64; and back to the type of `like`, truncated.
Scalar as_real(Scalar x);
Scalar back(Scalar like, Scalar x);
/// Conversion as ops/onnx/family_cast.cc does it, out-of-range floats included. float16 and bfloat16 convert through
/// float32 and can only be converted and moved.
Scalar cast(Scalar a, DType dtype);
/// Truncation of a float known to fit int32 (clamped before), without the checks of cast().
Scalar to_int32_unchecked(Scalar a);
/// An operation of MLIR's `math` dialect on floats. Transcendental ones call the C library.
Scalar math(const char* name, std::initializer_list<Scalar> arguments);
#define TESSERA_COMPILED_FUNCTION(name, standard, mlir) \
  inline Scalar name(Scalar x) { return math(mlir, {x}); }
TESSERA_SCALAR_FUNCTIONS(TESSERA_COMPILED_FUNCTION)
#undef TESSERA_COMPILED_FUNCTION
inline Scalar fma(Scalar a, Scalar b, Scalar c) { return math("fma", {a, b, c}); }
inline Scalar power(Scalar a, Scalar b) { return math("powf", {a, b}); }

/// The body of one compute or reduce while it is written.
class Body {
 public:
  /// Element of `tensor` at affine indices, which must be in range for every value of the loop indices.
  Scalar load(const Tensor& tensor, const Indices& at);
  /// The same with ONNX broadcasting: indices align with the tensor's last axes; axes of extent 1 read element 0.
  Scalar broadcast(const Tensor& tensor, const Indices& at);
  /// Element at indices computed at run time (int64), which must be in range.
  Scalar extract(const Tensor& tensor, const std::vector<Scalar>& at);
  /// Value of an index as int64.
  Scalar index(Index expression);
  Scalar number(DType dtype, double value);
  Scalar integer(DType dtype, int64_t value);

  mlir::OpBuilder& builder() { return builder_; }
  mlir::MLIRContext* context() const { return builder_.getContext(); }
  mlir::Location location() const { return location_; }

 private:
  friend class Graph;
  Body(mlir::OpBuilder builder, mlir::Location location, mlir::Block* block, size_t dims)
      : builder_(builder), location_(location), block_(block), dims_(dims) {}
  mlir::Value index_value(Index expression);
  Scalar from_storage(mlir::Value value, DType dtype);
  mlir::Value to_storage(Scalar scalar, DType dtype);

  struct Input {
    mlir::Value tensor;
    Indices at;
    mlir::Value argument;
    DType dtype;
  };
  mlir::OpBuilder builder_;
  mlir::Location location_;
  mlir::Block* block_;
  size_t dims_;
  std::vector<Input> inputs_;
  std::vector<mlir::Value> index_values_;
};

using Element = std::function<Scalar(Body&, const Indices& i)>;
using Start = std::function<Scalar(Body&)>;
/// The next accumulator from the last one; i are the indices of the result, k those that are reduced.
using Combine = std::function<Scalar(Body&, const Indices& i, const Indices& k, Scalar accumulator)>;

/// The operations of one compiled function.
class Graph {
 public:
  Graph(mlir::OpBuilder builder, mlir::Location location, int64_t vector_bytes)
      : builder_(builder), location_(location), vector_bytes_(vector_bytes) {}

  /// result[i] = element(i).
  Tensor compute(DType dtype, const Shape& shape, const Element& element);
  /// result[i] = fold over k in row-major order of `extents`, beginning with `start`.
  Tensor reduce(DType dtype, const Shape& shape, const Shape& extents, const Start& start, const Combine& combine);
  /// The same elements in the same order under another shape.
  Tensor reshape(const Tensor& x, const Shape& shape);
  /// x[start + i * step], steps > 0.
  Tensor slice(const Tensor& x, const std::vector<int64_t>& start, const std::vector<int64_t>& step,
               const Shape& shape);
  /// A tensor of `shape` that holds `x` from `low` on and `value` around it.
  Tensor pad(const Tensor& x, const std::vector<int64_t>& low, const Shape& shape, const Start& value);
  Tensor concat(const std::vector<Tensor>& parts, size_t axis, const Shape& shape);
  Tensor transpose(const Tensor& x, const std::vector<int64_t>& permutation);

  mlir::OpBuilder& builder() { return builder_; }
  mlir::Location location() const { return location_; }
  /// Elements of `bytes` in a vector of the processor.
  int64_t lanes(int64_t bytes) const { return std::max<int64_t>(vector_bytes_ / bytes, 1); }

 private:
  Tensor build(DType dtype, const Shape& shape, const Shape& extents, mlir::Value init,
               const std::function<Scalar(Body&, const Indices&, Scalar)>& f);
  mlir::Value empty(DType dtype, const Shape& shape);

  mlir::OpBuilder builder_;
  mlir::Location location_;
  int64_t vector_bytes_;
};

/// Element type of a tensor in compiled code; throws Declined for types that are not compiled.
mlir::Type storage_type(mlir::MLIRContext* context, DType dtype);

}  // namespace tessera::cpu
