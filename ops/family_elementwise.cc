// SPDX-License-Identifier: Apache-2.0
// Arithmetic element by element: Add to Pow, the unary functions, the n-ary Min/Max/Sum/Mean, Clip, CumSum and CumProd.
// Operands come broadcast, results leave contiguous. Integers wrap around; integer division truncates and a zero
// divisor is an error, never a trap. fp16 and bfloat16 compute in fp32 and round once; transcendental functions are
// those of the C++ library.
#include <cmath>

#include "ops/elementwise_kernel.h"

namespace tessera::ops {

namespace {

using namespace kernel;

// ------------------------------------------------------------------------------------------------------ binary

template <typename T>
T divide(const Node& node, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) node.fail(ErrorCode::kInvalidArgument, "integer division by zero");
    if constexpr (std::is_signed_v<T>)
      if (b == T{-1}) return wrap_neg(a);  // the smallest value has no positive counterpart: wraps
    return static_cast<T>(a / b);
  } else {
    return a / b;
  }
}

/// Remainder with the sign of the divisor (Python), or of the dividend when `truncated` (C, fmod).
template <typename T>
T remainder_of(const Node& node, T a, T b, bool truncated) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) node.fail(ErrorCode::kInvalidArgument, "integer remainder of a division by zero");
    if constexpr (std::is_signed_v<T>) {
      if (b == T{-1}) return 0;
      const T r = static_cast<T>(a % b);
      return !truncated && r != 0 && ((r < 0) != (b < 0)) ? static_cast<T>(r + b) : r;
    }
    return static_cast<T>(a % b);
  } else {
    const T r = std::fmod(a, b);
    if (truncated || std::isnan(r)) return r;
    if (r == 0) return std::copysign(r, b);
    return (r < 0) != (b < 0) ? r + b : r;
  }
}

/// a^b by squaring, wrapping; for a negative exponent the true value truncated (0 or +-1; 0^-n gives 0).
template <typename T>
T integer_power(T base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    if constexpr (std::is_signed_v<T>)
      if (base == T{-1}) return exponent % 2 == 0 ? T{1} : T{-1};
    return 0;
  }
  T result = 1;
  for (uint64_t e = static_cast<uint64_t>(exponent); e != 0; e >>= 1) {
    if (e & 1) result = wrap_mul(result, base);
    base = wrap_mul(base, base);
  }
  return result;
}

template <typename T, typename U>
T power(T a, U b) {
  if constexpr (std::is_integral_v<T> && std::is_integral_v<U>) {
    return integer_power(a, static_cast<int64_t>(b));
  } else if constexpr (std::is_integral_v<T>) {
    // Through double; a result outside T is undefined in ONNX, here the nearest value of T.
    const double p = std::pow(static_cast<double>(a), static_cast<double>(b));
    if (std::isnan(p)) return 0;
    if (p >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
    if (p <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
    return static_cast<T>(p);
  } else if constexpr (std::is_same_v<T, float> && std::is_same_v<U, float>) {
    return std::pow(a, b);
  } else {
    return static_cast<T>(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
}

/// a^b for a single exponent of the whole tensor. ONNX Runtime multiplies for 2 and 3, which rounds otherwise than pow.
template <typename T, typename U>
T power_of_scalar(T a, U b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (b == U{2}) return a * a;
    if (b == U{3}) return a * a * a;
  }
  return power(a, b);
}

void infer_pow(InferContext& c) {
  require_type(c.node, c.input(0).dtype, kNumeric, "base");
  require_type(c.node, c.input(1).dtype, kNumeric, "exponent");
  if (c.node.version < 12) require_same_type(c.node, c.input(0), c.input(1));
  c.outputs[0] = broadcast_types(c.node, c.input(0).dtype, {&c.inputs[0], &c.inputs[1]});
}

void evaluate_pow(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor a = widen(c.input(0)), b = widen(c.input(1));
  Tensor out(a.dtype(), types[0].shape);
  bool known = false;
  visit_arithmetic(a.dtype(), [&](auto tag_a) {
    using T = typename decltype(tag_a)::type;
    known = visit_arithmetic(b.dtype(), [&](auto tag_b) {
      using U = typename decltype(tag_b)::type;
      const auto apply = [&](auto function) {
        binary_loop(out.shape(), a.shape(), b.shape(), elements<T>(a), elements<U>(b), mutable_elements<T>(out),
                    function);
      };
      if (element_count(b.shape()) == 1)
        apply([](T x, U y) { return power_of_scalar(x, y); });
      else
        apply([](T x, U y) { return power(x, y); });
    });
  });
  if (!known) unsupported_type(c.node, a.dtype());
  c.outputs[0] = narrow(std::move(out), types[0].dtype);
}

void infer_mod(InferContext& c) {
  broadcast_same(kNumeric)(c);
  if (c.node.version < 28 && c.node.get_int("fmod", 0) == 0 && contains(kFloats, c.input(0).dtype))
    c.node.fail(ErrorCode::kInvalidModel, "floating-point operands need attribute fmod = 1 before opset 28");
}

void register_binary(Registry& r) {
  for (int version : {7, 13, 14}) {
    add(r, "Add", version, kTwo, broadcast_same(kNumeric),
        numeric_binary([](const Node&, auto a, auto b) { return wrap_add(a, b); }));
    add(r, "Sub", version, kTwo, broadcast_same(kNumeric),
        numeric_binary([](const Node&, auto a, auto b) { return wrap_sub(a, b); }));
    add(r, "Mul", version, kTwo, broadcast_same(kNumeric),
        numeric_binary([](const Node&, auto a, auto b) { return wrap_mul(a, b); }));
    add(r, "Div", version, kTwo, broadcast_same(kNumeric),
        numeric_binary([](const Node& n, auto a, auto b) { return divide(n, a, b); }));
  }
  for (int version : {7, 12, 13, 15}) add(r, "Pow", version, kTwo, infer_pow, evaluate_pow);
  for (int version : {10, 13, 28})
    add(r, "Mod", version, kTwo, infer_mod,
        [](EvalContext& c, const std::vector<TypeInfo>& types) {
          const bool truncated = c.node.get_int("fmod", 0) != 0;
          numeric_binary([truncated](const Node& n, auto a, auto b) { return remainder_of(n, a, b, truncated); })(
              c, types);
        },
        {"fmod"});
}

// ------------------------------------------------------------------------------------------------------- unary

template <typename T>
T sign_of(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    if (x != x) return x;
    return x > 0 ? T{1} : x < 0 ? T{-1} : T{0};
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(x > 0 ? 1 : x < 0 ? -1 : 0);
  } else {
    return static_cast<T>(x > 0);
  }
}

template <typename T>
T magnitude(T x) {
  if constexpr (std::is_floating_point_v<T>)
    return std::fabs(x);
  else if constexpr (std::is_signed_v<T>)
    return x < 0 ? wrap_neg(x) : x;
  else
    return x;
}

void register_unary(Registry& r) {
  for (int version : {6, 13}) {
    add(r, "Neg", version, kOne, same_as_first(kFloats | kSigned), numeric_unary([](auto x) {
          if constexpr (std::is_floating_point_v<decltype(x)>)
            return -x;
          else
            return wrap_neg(x);
        }));
    add(r, "Abs", version, kOne, same_as_first(kNumeric), numeric_unary([](auto x) { return magnitude(x); }));
    add(r, "Sqrt", version, kOne, same_as_first(kFloats), float_unary([](auto x) { return std::sqrt(x); }));
    add(r, "Reciprocal", version, kOne, same_as_first(kFloats), float_unary([](auto x) { return decltype(x){1} / x; }));
    add(r, "Exp", version, kOne, same_as_first(kFloats), float_unary([](auto x) { return std::exp(x); }));
    add(r, "Log", version, kOne, same_as_first(kFloats), float_unary([](auto x) { return std::log(x); }));
    add(r, "Floor", version, kOne, same_as_first(kFloats), float_unary([](auto x) { return std::floor(x); }));
    add(r, "Ceil", version, kOne, same_as_first(kFloats), float_unary([](auto x) { return std::ceil(x); }));
    add(r, "Tanh", version, kOne, same_as_first(kFloats), float_unary([](auto x) { return std::tanh(x); }));
  }
  for (int version : {9, 13}) {
    add(r, "Sign", version, kOne, same_as_first(kNumeric), numeric_unary([](auto x) { return sign_of(x); }));
    add(r, "Erf", version, kOne, same_as_first(kNumeric), numeric_unary([](auto x) {
          using T = decltype(x);
          if constexpr (std::is_floating_point_v<T>)
            return std::erf(x);
          else
            return static_cast<T>(std::erf(static_cast<double>(x)));
        }));
  }
  for (int version : {11, 22})  // the default rounding mode is half to even
    add(r, "Round", version, kOne, same_as_first(kFloats), float_unary([](auto x) { return std::nearbyint(x); }));
  for (int version : {7, 22}) {
    add(r, "Sin", version, kOne, same_as_first(kFloats), float_unary([](auto x) { return std::sin(x); }));
    add(r, "Cos", version, kOne, same_as_first(kFloats), float_unary([](auto x) { return std::cos(x); }));
    add(r, "Tan", version, kOne, same_as_first(kFloats), float_unary([](auto x) { return std::tan(x); }));
    add(r, "Asin", version, kOne, same_as_first(kFloats), float_unary([](auto x) { return std::asin(x); }));
    add(r, "Acos", version, kOne, same_as_first(kFloats), float_unary([](auto x) { return std::acos(x); }));
    add(r, "Atan", version, kOne, same_as_first(kFloats), float_unary([](auto x) { return std::atan(x); }));
  }
  for (int version : {9, 22}) {
    add(r, "Sinh", version, kOne, same_as_first(kFloats), float_unary([](auto x) { return std::sinh(x); }));
    add(r, "Cosh", version, kOne, same_as_first(kFloats), float_unary([](auto x) { return std::cosh(x); }));
    add(r, "Asinh", version, kOne, same_as_first(kFloats), float_unary([](auto x) { return std::asinh(x); }));
    add(r, "Acosh", version, kOne, same_as_first(kFloats), float_unary([](auto x) { return std::acosh(x); }));
    add(r, "Atanh", version, kOne, same_as_first(kFloats), float_unary([](auto x) { return std::atanh(x); }));
  }
}

// ------------------------------------------------------------------------------------------------------- n-ary

/// Folds the operands from the left with op, each broadcast to the result; then `last` on every element.
template <typename Op, typename Last>
Kernel nary(Op op, Last last) {
  return [op, last](EvalContext& c, const std::vector<TypeInfo>& types) {
    const Tensor first = widen(c.input(0));
    Tensor sum = gather_strided(first, types[0].shape, 0, broadcast_strides(first.shape(), types[0].shape));
    for (size_t k = 1; k < c.inputs.size(); ++k) {
      const Tensor next = widen(c.input(k));
      if (!visit_arithmetic(sum.dtype(), [&](auto tag) {
            using T = typename decltype(tag)::type;
            T* s = mutable_elements<T>(sum);
            binary_loop(sum.shape(), sum.shape(), next.shape(), s, elements<T>(next), s,
                        [&](T a, T b) -> T { return op(a, b); });
          }))
        unsupported_type(c.node, sum.dtype());
    }
    if (!visit_arithmetic(sum.dtype(), [&](auto tag) {
          using T = typename decltype(tag)::type;
          T* s = mutable_elements<T>(sum);
          for (int64_t i = 0; i < sum.size(); ++i) s[i] = last(s[i], c.inputs.size());
        }))
      unsupported_type(c.node, sum.dtype());
    c.outputs[0] = narrow(std::move(sum), types[0].dtype);
  };
}

void register_nary(Registry& r) {
  const auto keep = [](auto x, size_t) { return x; };
  const Arity any{1, -1};
  for (int version : {6, 8, 12, 13}) {
    add(r, "Min", version, any, broadcast_same(kNumeric), nary([](auto a, auto b) { return nan_min(a, b); }, keep));
    add(r, "Max", version, any, broadcast_same(kNumeric), nary([](auto a, auto b) { return nan_max(a, b); }, keep));
  }
  for (int version : {6, 8, 13}) {
    add(r, "Sum", version, any, broadcast_same(kNumeric), nary([](auto a, auto b) { return wrap_add(a, b); }, keep));
    add(r, "Mean", version, any, broadcast_same(kFloats),
        nary([](auto a, auto b) { return wrap_add(a, b); },
             [](auto x, size_t n) { return static_cast<decltype(x)>(x / static_cast<decltype(x)>(n)); }));
  }
}

// ------------------------------------------------------------------------------------------------ Clip and CumSum

/// Limits with the defaults of the operator: the finite range of the element type.
template <typename T>
void clip(const Tensor& in, T low, T high, Tensor& out) {
  const T* x = elements<T>(in);
  T* y = mutable_elements<T>(out);
  for (int64_t i = 0; i < in.size(); ++i) {
    const T raised = x[i] < low ? low : x[i];  // a NaN stays
    y[i] = raised > high ? high : raised;      // low > high gives high
  }
}

/// Largest finite value of the stored type as a value of the computing type T.
template <typename T>
T largest(DType dtype) {
  if constexpr (std::is_same_v<T, float>) {
    if (dtype == DType::kFloat16) return 65504.0f;
    if (dtype == DType::kBfloat16) return bfloat16_to_float(0x7f7f);
  }
  return std::numeric_limits<T>::max();
}
template <typename T>
T smallest(DType dtype) {
  if constexpr (std::is_integral_v<T>)
    return std::numeric_limits<T>::min();
  else
    return -largest<T>(dtype);
}

void infer_clip(InferContext& c) {
  same_as_first(c.node.version < 11 ? kFloats : kNumeric)(c);
  for (size_t i = 1; i < 3; ++i) {
    if (!c.has(i)) continue;
    require_same_type(c.node, c.input(0), c.input(i));
    const TypeInfo& limit = c.input(i);
    if (limit.is_static() && element_count(limit.shape) != 1)
      c.node.fail(ErrorCode::kInvalidModel, "min and max must be scalars, not shape " + to_string(limit.shape));
  }
}

void evaluate_clip(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor in = widen(c.input(0));
  Tensor out(in.dtype(), in.shape());
  if (!visit_arithmetic(in.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        T low = smallest<T>(types[0].dtype), high = largest<T>(types[0].dtype);
        if (c.node.version < 11) {
          if (c.node.has("min")) low = static_cast<T>(c.node.get_float("min", 0));
          if (c.node.has("max")) high = static_cast<T>(c.node.get_float("max", 0));
        } else {
          if (c.has(1)) low = elements<T>(widen(c.input(1)))[0];
          if (c.has(2)) high = elements<T>(widen(c.input(2)))[0];
        }
        clip<T>(in, low, high, out);
      }))
    unsupported_type(c.node, in.dtype());
  c.outputs[0] = narrow(std::move(out), types[0].dtype);
}

void infer_cumulative(InferContext& c) {
  same_as_first(kNumeric)(c);
  const TypeInfo& axis = c.input(1);
  require_type(c.node, axis.dtype, kIndex, "axis");
  if (axis.is_static() && element_count(axis.shape) != 1)
    c.node.fail(ErrorCode::kInvalidModel, "axis must be a scalar, not shape " + to_string(axis.shape));
  if (axis.constant && c.input(0).ranked)
    normalise_axis(c.node, axis.constant->at_int64(0), static_cast<int64_t>(c.input(0).shape.size()));
}

/// CumSum, or CumProd.
void evaluate_cumulative(EvalContext& c, const std::vector<TypeInfo>& types) {
  const bool multiplies = c.node.op_type == "CumProd";
  const Tensor in = widen(c.input(0));
  const size_t axis = static_cast<size_t>(normalise_axis(c.node, c.input(1).at_int64(0), in.rank()));
  const bool exclusive = c.node.get_int("exclusive", 0) != 0, reverse = c.node.get_int("reverse", 0) != 0;
  const Shape& shape = in.shape();
  const int64_t outer = product(shape, 0, axis), length = shape[axis], inner = product(shape, axis + 1, shape.size());
  Tensor out(in.dtype(), shape);
  if (!visit_arithmetic(in.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        const T* x = elements<T>(in);
        T* y = mutable_elements<T>(out);
        for (int64_t o = 0; o < outer; ++o)
          for (int64_t i = 0; i < inner; ++i) {
            T total = multiplies ? 1 : 0;
            for (int64_t n = 0; n < length; ++n) {
              const int64_t at = (o * length + (reverse ? length - 1 - n : n)) * inner + i;
              const T next = multiplies ? wrap_mul(total, x[at]) : wrap_add(total, x[at]);
              y[at] = exclusive ? total : next;
              total = next;
            }
          }
      }))
    unsupported_type(c.node, in.dtype());
  c.outputs[0] = narrow(std::move(out), types[0].dtype);
}

}  // namespace

void register_elementwise(Registry& r) {
  register_binary(r);
  register_unary(r);
  register_nary(r);
  add(r, "Clip", 6, kOne, infer_clip, evaluate_clip, {"min", "max"});
  for (int version : {11, 12, 13}) add(r, "Clip", version, {1, 3}, infer_clip, evaluate_clip);
  for (int version : {11, 14})
    add(r, "CumSum", version, kTwo, infer_cumulative, evaluate_cumulative, {"exclusive", "reverse"});
  add(r, "CumProd", 26, kTwo, infer_cumulative, evaluate_cumulative, {"exclusive", "reverse"});
}

}  // namespace tessera::ops
