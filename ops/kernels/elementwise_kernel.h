// SPDX-License-Identifier: Apache-2.0
// What the operator families of this library share: sets of element types and their checks, dispatch from an element
// type to a C++ type, loop nests over strided operands, and registration. A kernel receives tensors and the inferred
// result types and writes results: evaluation runs the operator's own inference on the actual inputs first, so that
// every check and every result shape stands once, in inference. Narrow floats (fp16, bfloat16) are widened to fp32,
// computed there and rounded once.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/operator.h"

namespace tessera::ops {

/// The axis of `shape` that attribute 'axis' names, or `fallback`, normalised (broadcast.cc).
size_t axis_attribute(const Node& node, int64_t fallback, const Shape& shape);

namespace kernel {

// ---------------------------------------------------------------------------------------------- sets of element types

using TypeSet = uint32_t;
constexpr TypeSet set_of(std::initializer_list<DType> dtypes) {
  TypeSet set = 0;
  for (DType dtype : dtypes) set |= TypeSet{1} << static_cast<unsigned>(dtype);
  return set;
}
inline constexpr TypeSet kFloats = set_of({DType::kFloat, DType::kDouble, DType::kFloat16, DType::kBfloat16});
inline constexpr TypeSet kFloat8s =
    set_of({DType::kFloat8E4M3FN, DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2, DType::kFloat8E5M2FNUZ});
inline constexpr TypeSet kSigned = set_of({DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64});
inline constexpr TypeSet kUnsigned = set_of({DType::kUint8, DType::kUint16, DType::kUint32, DType::kUint64});
inline constexpr TypeSet kInts = kSigned | kUnsigned;
inline constexpr TypeSet kNumeric = kFloats | kInts;
inline constexpr TypeSet kBoolSet = set_of({DType::kBool});
inline constexpr TypeSet kIndex = set_of({DType::kInt32, DType::kInt64});
inline constexpr TypeSet kInt64Set = set_of({DType::kInt64});

constexpr bool contains(TypeSet set, DType dtype) { return (set >> static_cast<unsigned>(dtype)) & 1; }

/// Throws Error kInvalidModel when `dtype` is known and not in `set`; `what` names the operand.
inline void require_type(const Node& node, DType dtype, TypeSet set, const char* what) {
  if (dtype == DType::kUndefined || contains(set, dtype)) return;
  node.fail(ErrorCode::kInvalidModel, std::string(what) + " has element type " + std::string(to_string(dtype)) +
                                          ", which this operator does not accept");
}

/// Throws Error kInvalidModel when two operands that must agree have different element types.
inline void require_same_type(const Node& node, const TypeInfo& a, const TypeInfo& b) {
  if (a.dtype == b.dtype || a.dtype == DType::kUndefined || b.dtype == DType::kUndefined) return;
  node.fail(ErrorCode::kInvalidModel, "operands of element types " + std::string(to_string(a.dtype)) + " and " +
                                          std::string(to_string(b.dtype)) + " must have one type; insert a Cast");
}

/// Throws Error kInvalidModel when a ranked operand has another rank.
inline void require_rank(const Node& node, const TypeInfo& t, int64_t rank, const char* what) {
  if (!t.ranked || static_cast<int64_t>(t.shape.size()) == rank) return;
  node.fail(ErrorCode::kInvalidModel,
            std::string(what) + " must have rank " + std::to_string(rank) + ", not shape " + to_string(t.shape));
}

/// The type without its content.
inline TypeInfo without_constant(const TypeInfo& t, DType dtype = DType::kUndefined) {
  TypeInfo out;
  out.kind = t.kind;
  out.dtype = dtype == DType::kUndefined ? t.dtype : dtype;
  out.ranked = t.ranked;
  out.shape = t.shape;
  return out;
}

/// A ranked type whose dimensions are all unknown.
inline TypeInfo of_rank(DType dtype, int64_t rank) {
  if (rank > 4096)
    throw Error(ErrorCode::kInvalidModel, "a result of " + std::to_string(rank) + " dimensions is absurd");
  return TypeInfo::tensor(dtype, Shape(static_cast<size_t>(rank), -1));
}

/// Content of an integer input when it is known; empty optional otherwise (also when the input is absent).
inline std::optional<std::vector<int64_t>> known_ints(const InferContext& c, size_t i) {
  if (!c.has(i) || !c.inputs[i].constant) return std::nullopt;
  return c.inputs[i].constant->to_int64s();
}

/// Length of a 1-D (or scalar) input when it is known, -1 otherwise.
inline int64_t known_length(const InferContext& c, size_t i) {
  if (!c.has(i) || !c.inputs[i].ranked) return -1;
  const Shape& shape = c.inputs[i].shape;
  if (shape.empty()) return 1;
  return shape.size() == 1 ? shape[0] : -1;
}

/// Sizes and offsets beyond this are refused where sums of them could overflow.
inline constexpr int64_t kSizeLimit = int64_t{1} << 40;

/// Product of dims[first, last): -1 if a dimension is unknown (0 wins over unknown).
inline int64_t product(const Shape& shape, size_t first, size_t last) {
  int64_t count = 1;
  bool unknown = false;
  for (size_t i = first; i < last; ++i) {
    if (shape[i] == 0) return 0;
    if (shape[i] < 0)
      unknown = true;
    else if (__builtin_mul_overflow(count, shape[i], &count))
      throw Error(ErrorCode::kInvalidModel, "shape " + to_string(shape) + " has too many elements");
  }
  return unknown ? -1 : count;
}
inline int64_t product(const Shape& shape) { return product(shape, 0, shape.size()); }

/// Row-major element strides. Those of a shape without elements may wrap; nothing is read through them.
inline std::vector<int64_t> row_strides(const Shape& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride = static_cast<int64_t>(static_cast<uint64_t>(stride) * static_cast<uint64_t>(shape[i]));
  }
  return strides;
}

/// Normalises axes of a node and checks that none repeats.
inline std::vector<int64_t> normalise_axes(const Node& node, std::vector<int64_t> axes, int64_t rank) {
  std::vector<bool> seen(static_cast<size_t>(rank), false);
  for (int64_t& axis : axes) {
    axis = normalise_axis(node, axis, rank);
    if (seen[static_cast<size_t>(axis)])
      node.fail(ErrorCode::kInvalidModel, "axis " + std::to_string(axis) + " is given twice");
    seen[static_cast<size_t>(axis)] = true;
  }
  return axes;
}

// ------------------------------------------------------------------------------------------------------- dispatch

template <typename T>
struct Tag {
  using type = T;
};
struct Bytes16 {
  uint64_t words[2];
};

[[noreturn]] inline void unsupported_type(const Node& node, DType dtype) {
  node.fail(ErrorCode::kUnsupported, "no kernel for element type " + std::string(to_string(dtype)));
}

/// Calls f(Tag<T>) for the element types that compute natively; false for all others.
template <typename F>
bool visit_arithmetic(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat: f(Tag<float>{}); return true;
    case DType::kDouble: f(Tag<double>{}); return true;
    case DType::kInt8: f(Tag<int8_t>{}); return true;
    case DType::kInt16: f(Tag<int16_t>{}); return true;
    case DType::kInt32: f(Tag<int32_t>{}); return true;
    case DType::kInt64: f(Tag<int64_t>{}); return true;
    case DType::kUint8: f(Tag<uint8_t>{}); return true;
    case DType::kUint16: f(Tag<uint16_t>{}); return true;
    case DType::kUint32: f(Tag<uint32_t>{}); return true;
    case DType::kUint64: f(Tag<uint64_t>{}); return true;
    default: return false;
  }
}

/// Calls f(Tag<T>) with float or double; false for all others.
template <typename F>
bool visit_float(DType dtype, F&& f) {
  if (dtype == DType::kFloat) {
    f(Tag<float>{});
    return true;
  }
  if (dtype == DType::kDouble) {
    f(Tag<double>{});
    return true;
  }
  return false;
}

/// The same, which fail for all others.
template <typename F>
void visit_arithmetic(const Node& node, DType dtype, F&& f) {
  if (!visit_arithmetic(dtype, f)) unsupported_type(node, dtype);
}
template <typename F>
void visit_float(const Node& node, DType dtype, F&& f) {
  if (!visit_float(dtype, f)) unsupported_type(node, dtype);
}

/// Calls f(Tag<T>) with a type that holds one element of any element type, for operators that only move elements.
template <typename F>
void visit_storage(DType dtype, F&& f) {
  if (dtype == DType::kString) {
    f(Tag<std::string>{});
    return;
  }
  switch (element_bytes(dtype)) {
    case 1: f(Tag<uint8_t>{}); return;
    case 2: f(Tag<uint16_t>{}); return;
    case 4: f(Tag<uint32_t>{}); return;
    case 8: f(Tag<uint64_t>{}); return;
    case 16: f(Tag<Bytes16>{}); return;
    default: throw Error(ErrorCode::kUnsupported, "element type " + std::string(to_string(dtype)) + " has no storage");
  }
}

template <typename T>
const T* elements(const Tensor& t) {
  if constexpr (std::is_same_v<T, std::string>)
    return t.strings().data();
  else
    return reinterpret_cast<const T*>(t.data());
}
template <typename T>
T* mutable_elements(Tensor& t) {
  if constexpr (std::is_same_v<T, std::string>)
    return t.mutable_strings().data();
  else
    return reinterpret_cast<T*>(t.mutable_data());
}

/// A tensor of `shape` with elements of the type of `given`, which f(x, y) moves from x to y without looking at them.
template <typename F>
Tensor in_storage(const Tensor& given, const Shape& shape, F f) {
  Tensor y(given.dtype(), shape);
  visit_storage(given.dtype(), [&]<typename T>(Tag<T>) { f(elements<T>(given), mutable_elements<T>(y)); });
  return y;
}

/// True for the float formats that are computed in fp32.
inline bool is_narrow_float(DType dtype) {
  return is_floating(dtype) && dtype != DType::kFloat && dtype != DType::kDouble;
}

/// fp16, bfloat16 and smaller floats as fp32; other tensors unchanged (sharing storage).
inline Tensor widen(const Tensor& t) {
  if (!is_narrow_float(t.dtype())) return t;
  Tensor out(DType::kFloat, t.shape());
  std::vector<float> values = t.to_floats();
  std::copy(values.begin(), values.end(), mutable_elements<float>(out));
  return out;
}

/// fp32 rounded to fp16 or bfloat16 (half to even); other result types unchanged.
inline Tensor narrow(Tensor t, DType dtype) {
  if (t.dtype() == dtype || t.dtype() != DType::kFloat) return t;
  Tensor out(dtype, t.shape());
  const float* in = elements<float>(t);
  if (dtype == DType::kFloat16 || dtype == DType::kBfloat16) {
    uint16_t* o = mutable_elements<uint16_t>(out);
    for (int64_t i = 0; i < t.size(); ++i)
      o[i] = dtype == DType::kFloat16 ? float_to_half(in[i]) : float_to_bfloat16(in[i]);
  } else {
    uint8_t* o = mutable_elements<uint8_t>(out);
    for (int64_t i = 0; i < t.size(); ++i) o[i] = float_to_float8(dtype, in[i], true);
  }
  return out;
}

/// A result of type `result` from `given`: f(x, y) computes elements y from x, as float or double (in_floats()) or in
/// any arithmetic type (in_numbers()). Narrow floats are widened before and rounded once behind. Fails for other types.
template <typename F>
Tensor in_floats(const Node& node, const Tensor& given, const TypeInfo& result, F f) {
  const Tensor x = widen(given);
  Tensor y(x.dtype(), result.shape);
  visit_float(node, x.dtype(), [&]<typename T>(Tag<T>) { f(elements<T>(x), mutable_elements<T>(y)); });
  return narrow(std::move(y), result.dtype);
}
template <typename F>
Tensor in_numbers(const Node& node, const Tensor& given, const TypeInfo& result, F f) {
  const Tensor x = widen(given);
  Tensor y(x.dtype(), result.shape);
  visit_arithmetic(node, x.dtype(), [&]<typename T>(Tag<T>) { f(elements<T>(x), mutable_elements<T>(y)); });
  return narrow(std::move(y), result.dtype);
}

// Integer arithmetic that wraps; floats as they are.
template <typename T>
T wrap_add(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}
template <typename T>
T wrap_sub(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
  else
    return a - b;
}
template <typename T>
T wrap_mul(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else
    return a * b;
}
template <typename T>
T wrap_neg(T a) {
  return wrap_sub<T>(T{0}, a);
}
/// Minimum and maximum; a NaN wins.
template <typename T>
T nan_min(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a) return a;
    if (b != b) return b;
  }
  return b < a ? b : a;
}
template <typename T>
T nan_max(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a) return a;
    if (b != b) return b;
  }
  return a < b ? b : a;
}

// ------------------------------------------------------------------------------------------------------ loop nests

/// A loop nest over N strided operands. Unit dimensions are dropped and neighbours that every operand walks without a
/// gap are merged, so that the innermost loop is as long as possible.
template <size_t N>
struct LoopNest {
  Shape dims;
  std::array<std::vector<int64_t>, N> strides;

  LoopNest(const Shape& shape, const std::array<std::vector<int64_t>, N>& operand_strides) {
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == 1) continue;
      bool merge = !dims.empty();
      for (size_t k = 0; merge && k < N; ++k) merge = strides[k].back() == operand_strides[k][d] * shape[d];
      if (merge)
        dims.back() *= shape[d];
      else
        dims.push_back(shape[d]);
      for (size_t k = 0; k < N; ++k) {
        if (merge)
          strides[k].back() = operand_strides[k][d];
        else
          strides[k].push_back(operand_strides[k][d]);
      }
    }
    if (dims.empty()) {
      dims.push_back(1);
      for (size_t k = 0; k < N; ++k) strides[k].push_back(1);
    }
  }
  std::array<int64_t, N> inner() const {
    std::array<int64_t, N> s;
    for (size_t k = 0; k < N; ++k) s[k] = strides[k].back();
    return s;
  }
  /// Calls f(offsets, count) for every innermost row in row-major order; the operands advance by inner() inside a row.
  template <typename F>
  void for_each_row(F&& f) const {
    for (int64_t d : dims)
      if (d == 0) return;
    std::array<int64_t, N> offsets{};
    const size_t outer = dims.size() - 1;
    std::vector<int64_t> index(outer, 0);
    for (;;) {
      f(offsets, dims[outer]);
      size_t d = outer;
      for (;;) {
        if (d == 0) return;
        --d;
        for (size_t k = 0; k < N; ++k) offsets[k] += strides[k][d];
        if (++index[d] < dims[d]) break;
        for (size_t k = 0; k < N; ++k) offsets[k] -= strides[k][d] * dims[d];
        index[d] = 0;
      }
    }
  }
};

/// out[i] = op(a[i], b[i]) over a broadcast shape. `out` is contiguous.
template <typename T, typename U, typename R, typename Op>
void binary_loop(const Shape& out_shape, const Shape& a_shape, const Shape& b_shape, const T* a, const U* b, R* out,
                 Op op) {
  const LoopNest<2> nest(out_shape, {broadcast_strides(a_shape, out_shape), broadcast_strides(b_shape, out_shape)});
  const auto [sa, sb] = nest.inner();
  nest.for_each_row([&, sa = sa, sb = sb](const std::array<int64_t, 2>& at, int64_t count) {
    const T* x = a + at[0];
    const U* y = b + at[1];
    if (sa == 1 && sb == 1)
      for (int64_t i = 0; i < count; ++i) out[i] = op(x[i], y[i]);
    else if (sa == 1 && sb == 0)
      for (int64_t i = 0; i < count; ++i) out[i] = op(x[i], *y);
    else if (sa == 0 && sb == 1)
      for (int64_t i = 0; i < count; ++i) out[i] = op(*x, y[i]);
    else
      for (int64_t i = 0; i < count; ++i) out[i] = op(x[i * sa], y[i * sb]);
    out += count;
  });
}

/// Copies elements between two strided views of one shape; `in` and `out` point at the first element of each.
template <typename T>
void strided_copy(const Shape& shape, const T* in, const std::vector<int64_t>& in_strides, T* out,
                  const std::vector<int64_t>& out_strides) {
  const LoopNest<2> nest(shape, {in_strides, out_strides});
  const auto [si, so] = nest.inner();
  nest.for_each_row([&, si = si, so = so](const std::array<int64_t, 2>& at, int64_t count) {
    const T* x = in + at[0];
    T* y = out + at[1];
    if (si == 1 && so == 1)
      std::copy(x, x + count, y);
    else if (so == 1)
      for (int64_t i = 0; i < count; ++i) y[i] = x[i * si];
    else
      for (int64_t i = 0; i < count; ++i) y[i * so] = x[i * si];
  });
}

/// The tensor that reads `in` from `offset` with `in_strides`, as a contiguous tensor of `shape`.
inline Tensor gather_strided(const Tensor& in, const Shape& shape, int64_t offset,
                             const std::vector<int64_t>& in_strides) {
  Tensor out(in.dtype(), shape);
  if (out.size() == 0) return out;
  visit_storage(in.dtype(), [&]<typename T>(Tag<T>) {
    strided_copy<T>(shape, elements<T>(in) + offset, in_strides, mutable_elements<T>(out), row_strides(shape));
  });
  return out;
}

// ---------------------------------------------------------------------------------------------------- registration

/// Evaluation with the inferred types of the results.
using Kernel = std::function<void(EvalContext&, const std::vector<TypeInfo>&)>;

struct Arity {
  int min, max;
};
inline constexpr Arity kOne{1, 1};
inline constexpr Arity kTwo{2, 2};

/// Type of a run-time value, content included.
inline TypeInfo type_of(const Value& value) {
  if (value.kind == Value::Kind::kTensor) return TypeInfo::of(value.tensor);
  if (value.kind == Value::Kind::kNone) return TypeInfo::absent();
  TypeInfo t;
  t.kind = TypeInfo::Kind::kSequence;
  t.dtype = value.sequence.empty() ? value.sequence_dtype : value.sequence[0].tensor.dtype();
  return t;
}

/// The definition of an operator whose operands the library checks by `infer` before it evaluates; evaluation computes
/// in `work_bytes` for each element of a result.
inline OperatorDef operator_def(const std::string& domain, const std::string& name, int since_version, Arity inputs,
                                InferFunction infer, EvalFunction evaluate, std::set<std::string> attributes,
                                int work_bytes = 4, Arity outputs = kOne, ExpandFunction expand = {}) {
  return {.domain = domain,
          .name = name,
          .since_version = since_version,
          .min_inputs = inputs.min,
          .max_inputs = inputs.max,
          .min_outputs = outputs.min,
          .max_outputs = outputs.max,
          .infer = std::move(infer),
          .evaluate = std::move(evaluate),
          .work_bytes = work_bytes,
          .attributes = std::move(attributes),
          .expand = std::move(expand)};
}
inline void add_operator(Registry& registry, const std::string& domain, const std::string& name, int since_version,
                         Arity inputs, InferFunction infer, EvalFunction evaluate,
                         std::set<std::string> attributes = {}, int work_bytes = 4, Arity outputs = kOne,
                         ExpandFunction expand = {}) {
  registry.add(operator_def(domain, name, since_version, inputs, std::move(infer), std::move(evaluate),
                            std::move(attributes), work_bytes, outputs, std::move(expand)));
}

/// Adds an operator that checks its operands itself. `expand`: what else defines it (expansion.h), if anything;
/// `deterministic`: whether it may be folded and merged.
inline void add_checked(Registry& registry, const char* name, int since_version, Arity inputs, InferFunction infer,
                        EvalFunction evaluate, std::set<std::string> attributes = {}, Arity outputs = kOne,
                        const char* domain = "", ExpandFunction expand = {}, bool deterministic = true) {
  OperatorDef def = operator_def(domain, name, since_version, inputs, std::move(infer), std::move(evaluate),
                                 std::move(attributes), 1, outputs, std::move(expand));
  def.checks_itself = true;
  def.deterministic = deterministic;
  registry.add(std::move(def));
}

/// Evaluation by `kernel` after `infer` has accepted the actual inputs.
inline EvalFunction evaluation(InferFunction infer, Kernel kernel) {
  return [infer = std::move(infer), kernel = std::move(kernel)](EvalContext& c) {
    std::vector<TypeInfo> in, out(c.outputs.size());
    in.reserve(c.inputs.size());
    for (const Value& value : c.inputs) in.push_back(type_of(value));
    InferContext checks{c.node, in, out};
    infer(checks);
    kernel(c, out);
  };
}

/// Adds an operator whose evaluation is `kernel` after `infer` has accepted the actual inputs.
inline void add(Registry& registry, const char* name, int since_version, Arity inputs, InferFunction infer,
                Kernel kernel, std::set<std::string> attributes = {}, Arity outputs = kOne, const char* domain = "",
                ExpandFunction expand = {}) {
  EvalFunction evaluate = evaluation(infer, std::move(kernel));
  add_checked(registry, name, since_version, inputs, std::move(infer), std::move(evaluate), std::move(attributes),
              outputs, domain, std::move(expand));
}

/// Result type = type of the first input, which must be in `set`.
inline InferFunction same_as_first(TypeSet set) {
  return [set](InferContext& c) {
    require_type(c.node, c.input(0).dtype, set, "input");
    c.outputs[0] = without_constant(c.input(0));
  };
}

/// Inputs of one type in `set`, broadcast; result of that type or of `result`.
inline InferFunction broadcast_same(TypeSet set, DType result = DType::kUndefined) {
  return [set, result](InferContext& c) {
    std::vector<const TypeInfo*> operands;
    DType dtype = DType::kUndefined;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      const TypeInfo& t = c.input(i);
      require_type(c.node, t.dtype, set, "operand");
      require_same_type(c.node, c.input(0), t);
      if (dtype == DType::kUndefined) dtype = t.dtype;
      operands.push_back(&t);
    }
    c.outputs[0] = broadcast_types(c.node, result == DType::kUndefined ? dtype : result, operands);
  };
}

}  // namespace kernel
}  // namespace tessera::ops
