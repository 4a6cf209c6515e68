// SPDX-License-Identifier: Apache-2.0
// Element by element what is more than one expression (pointwise.h has those that are): division, whose zero divisor of
// integers is an error and never a trap, Pow over pairs of types, Clip, running sums and products, Where and Identity.
// Integers wrap around; fp16 and bfloat16 compute in fp32 and round once.
#include <cmath>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

using namespace kernel;

// ------------------------------------------------------------------------------------------ Div, Mod, Pow

/// Kernel of a binary function on every arithmetic type, broadcast: op(const Node&, T, T) -> T.
template <typename Op>
Kernel numeric_binary(Op op) {
  return [op](EvalContext& c, const std::vector<TypeInfo>& types) {
    const Tensor a = widen(c.input(0)), b = widen(c.input(1));
    Tensor out(a.dtype(), types[0].shape);
    visit_arithmetic(c.node, a.dtype(), [&]<typename T>(Tag<T>) {
      binary_loop(out.shape(), a.shape(), b.shape(), elements<T>(a), elements<T>(b), mutable_elements<T>(out),
                  [&](T x, T y) -> T { return op(c.node, x, y); });
    });
    c.outputs[0] = narrow(std::move(out), types[0].dtype);
  };
}

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

template <typename U>
Tensor elements_as(const Node& node, const Tensor& t, DType dtype) {
  Tensor out(dtype, t.shape());
  visit_arithmetic(node, t.dtype(), [&]<typename S>(Tag<S>) {
    const S* from = elements<S>(t);
    U* to = mutable_elements<U>(out);
    for (int64_t i = 0; i < t.size(); ++i) to[i] = static_cast<U>(from[i]);
  });
  return out;
}

/// Exponents of ten types become those of three that power() takes alike, so that it is compiled for 19 pairs of types,
/// not for a hundred.
void evaluate_pow(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor a = widen(c.input(0)), b = widen(c.input(1));
  Tensor out(a.dtype(), types[0].shape);
  visit_arithmetic(c.node, a.dtype(), [&]<typename T>(Tag<T>) {
    const auto apply = [&]<typename U>(const U* exponents) {
      const auto loop = [&](auto function) {
        binary_loop(out.shape(), a.shape(), b.shape(), elements<T>(a), exponents, mutable_elements<T>(out), function);
      };
      if (element_count(b.shape()) == 1)
        loop([](T x, U y) { return power_of_scalar(x, y); });
      else
        loop([](T x, U y) { return power(x, y); });
    };
    if constexpr (std::is_integral_v<T>) {
      if (contains(kInts, b.dtype())) return apply(elements<int64_t>(elements_as<int64_t>(c.node, b, DType::kInt64)));
    } else if constexpr (std::is_same_v<T, float>) {
      if (b.dtype() == DType::kFloat) return apply(elements<float>(b));
    }
    apply(elements<double>(elements_as<double>(c.node, b, DType::kDouble)));
  });
  c.outputs[0] = narrow(std::move(out), types[0].dtype);
}

void infer_mod(InferContext& c) {
  broadcast_same(kNumeric)(c);
  if (c.node.version < 28 && c.node.get_int("fmod", 0) == 0 && contains(kFloats, c.input(0).dtype))
    c.node.fail(ErrorCode::kInvalidModel, "floating-point operands need attribute fmod = 1 before opset 28");
}

// ------------------------------------------------------------------------------------------------ Clip and CumSum

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
  const Tensor& in = c.input(0);
  c.outputs[0] = in_numbers(c.node, in, types[0], [&]<typename T>(const T* x, T* y) {
    T low = smallest<T>(types[0].dtype), high = largest<T>(types[0].dtype);
    if (c.node.version < 11) {
      if (c.node.has("min")) low = static_cast<T>(c.node.get_float("min", 0));
      if (c.node.has("max")) high = static_cast<T>(c.node.get_float("max", 0));
    } else {
      if (c.has(1)) low = elements<T>(widen(c.input(1)))[0];
      if (c.has(2)) high = elements<T>(widen(c.input(2)))[0];
    }
    for (int64_t i = 0; i < in.size(); ++i) {
      const T raised = x[i] < low ? low : x[i];  // a NaN stays
      y[i] = raised > high ? high : raised;      // low > high gives high
    }
  });
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
  const Shape& shape = c.input(0).shape();
  const auto axis = static_cast<size_t>(normalise_axis(c.node, c.input(1).at_int64(0), c.input(0).rank()));
  const bool exclusive = c.node.get_int("exclusive", 0) != 0, reverse = c.node.get_int("reverse", 0) != 0;
  const int64_t outer = product(shape, 0, axis), length = shape[axis], inner = product(shape, axis + 1, shape.size());
  c.outputs[0] = in_numbers(c.node, c.input(0), types[0], [&]<typename T>(const T* x, T* y) {
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
  });
}

// ---------------------------------------------------------------------------------------------- Where

void infer_where(InferContext& c) {
  require_type(c.node, c.input(0).dtype, kBoolSet, "condition");
  require_same_type(c.node, c.input(1), c.input(2));
  c.outputs[0] = broadcast_types(c.node, c.input(1).dtype, {&c.inputs[0], &c.inputs[1], &c.inputs[2]});
}

void evaluate_where(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor &condition = c.input(0), &a = c.input(1), &b = c.input(2);
  Tensor out(a.dtype(), types[0].shape);
  const LoopNest<3> nest(out.shape(),
                         {broadcast_strides(condition.shape(), out.shape()), broadcast_strides(a.shape(), out.shape()),
                          broadcast_strides(b.shape(), out.shape())});
  const auto s = nest.inner();
  visit_storage(a.dtype(), [&]<typename T>(Tag<T>) {
    T* o = mutable_elements<T>(out);
    nest.for_each_row([&](const std::array<int64_t, 3>& at, int64_t count) {
      const uint8_t* p = elements<uint8_t>(condition) + at[0];
      const T* x = elements<T>(a) + at[1];
      const T* y = elements<T>(b) + at[2];
      for (int64_t i = 0; i < count; ++i) o[i] = p[i * s[0]] ? x[i * s[1]] : y[i * s[2]];
      o += count;
    });
  });
  c.outputs[0] = std::move(out);
}

}  // namespace

void register_elementwise(Registry& r) {
  add(r, "Div", 7, kTwo, broadcast_same(kNumeric),
      numeric_binary([](const Node& n, auto a, auto b) { return divide(n, a, b); }));
  add(r, "Pow", 7, kTwo, infer_pow, evaluate_pow);
  add(r, "Mod", 10, kTwo, infer_mod,
      [](EvalContext& c, const std::vector<TypeInfo>& types) {
        const bool truncated = c.node.get_int("fmod", 0) != 0;
        numeric_binary([truncated](const Node& n, auto a, auto b) { return remainder_of(n, a, b, truncated); })(c,
                                                                                                                types);
      },
      {"fmod"});
  add(r, "Clip", 6, kOne, infer_clip, evaluate_clip, {"min", "max"});
  add(r, "Clip", 11, {1, 3}, infer_clip, evaluate_clip);
  add(r, "CumSum", 11, kTwo, infer_cumulative, evaluate_cumulative, {"exclusive", "reverse"});
  add(r, "CumProd", 26, kTwo, infer_cumulative, evaluate_cumulative, {"exclusive", "reverse"});
  add(r, "Where", 9, {3, 3}, infer_where, evaluate_where);
  add(
      r, "Identity", 1, kOne, [](InferContext& c) { c.outputs[0] = c.inputs.at(0); },
      [](EvalContext& c, const std::vector<TypeInfo>&) { c.outputs[0] = c.inputs.at(0); });
}

}  // namespace tessera::ops
