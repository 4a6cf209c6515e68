// SPDX-License-Identifier: Apache-2.0
// The words in which the meaning of an element-wise operator is written once (ops/kernels/pointwise.h), as they apply
// to numbers of C++. compiler/cpu/expressions/expression.h has the same words for elements of a loop under
// construction, so that one expression is computed by the interpreter and compiled. Every operation is rounded once, in
// the order written; integers wrap. Comparisons are false with a NaN, but != is true.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops::scalar {

template <typename T>
inline constexpr bool kIsReal = std::is_floating_point_v<T>;

/// A number, or a truth value, or (for comparisons alone) a string.
template <typename T>
struct Number {
  T value;

  /// A constant of this type: truncated for integers, rounded once for float32.
  Number same(double number) const {
    if constexpr (kIsReal<T>)
      return {static_cast<T>(number)};
    else
      return {static_cast<T>(static_cast<int64_t>(number))};
  }

  friend Number operator+(Number a, Number b) { return {kernel::wrap_add(a.value, b.value)}; }
  friend Number operator-(Number a, Number b) { return {kernel::wrap_sub(a.value, b.value)}; }
  friend Number operator*(Number a, Number b) { return {kernel::wrap_mul(a.value, b.value)}; }
  /// Of floats.
  friend Number operator/(Number a, Number b) { return {a.value / b.value}; }
  friend Number operator-(Number a) {
    if constexpr (kIsReal<T>)
      return {-a.value};
    else
      return Number{0} - a;
  }
  friend Number<bool> operator<(Number a, Number b) { return {a.value < b.value}; }
  friend Number<bool> operator>(Number a, Number b) { return {a.value > b.value}; }
  friend Number<bool> operator<=(Number a, Number b) { return {a.value <= b.value}; }
  friend Number<bool> operator>=(Number a, Number b) { return {a.value >= b.value}; }
  friend Number<bool> operator==(Number a, Number b) { return {a.value == b.value}; }
  friend Number<bool> operator!=(Number a, Number b) { return {a.value != b.value}; }
  // Bitwise on integers, logical on truth values.
  friend Number operator&(Number a, Number b) { return {static_cast<T>(a.value & b.value)}; }
  friend Number operator|(Number a, Number b) { return {static_cast<T>(a.value | b.value)}; }
  friend Number operator^(Number a, Number b) { return {static_cast<T>(a.value ^ b.value)}; }
  friend Number operator!(Number a) {
    if constexpr (std::is_same_v<T, bool>)
      return {!a.value};
    else
      return {static_cast<T>(~static_cast<uint64_t>(a.value))};
  }
};

template <typename T>
Number<T> select(Number<bool> condition, Number<T> yes, Number<T> no) {
  return {condition.value ? yes.value : no.value};
}
/// The same of what only one of two functions computes, where that takes time.
template <typename Yes, typename No>
auto choose(Number<bool> condition, Yes yes, No no) {
  return condition.value ? yes() : no();
}
/// By less than the number of bits; a signed number keeps its sign to the right.
template <typename T>
Number<T> shift_left(Number<T> a, Number<T> count) {
  return {static_cast<T>(static_cast<uint64_t>(a.value) << count.value)};
}
template <typename T>
Number<T> shift_right(Number<T> a, Number<T> count) {
  return {static_cast<T>(a.value >> count.value)};
}
/// b < a ? b : a and a < b ? b : a.
template <typename T>
Number<T> smaller(Number<T> a, Number<T> b) {
  return {b.value < a.value ? b.value : a.value};
}
template <typename T>
Number<T> larger(Number<T> a, Number<T> b) {
  return {a.value < b.value ? b.value : a.value};
}
/// Minimum and maximum; a NaN wins.
template <typename T>
Number<T> nan_min(Number<T> a, Number<T> b) {
  return {kernel::nan_min(a.value, b.value)};
}
template <typename T>
Number<T> nan_max(Number<T> a, Number<T> b) {
  return {kernel::nan_max(a.value, b.value)};
}
/// What no number of this type is below, or above.
template <typename T>
Number<T> lowest(Number<T>) {
  if constexpr (kIsReal<T>)
    return {-std::numeric_limits<T>::infinity()};
  else
    return {std::numeric_limits<T>::min()};
}
template <typename T>
Number<T> highest(Number<T>) {
  if constexpr (kIsReal<T>)
    return {std::numeric_limits<T>::infinity()};
  else
    return {std::numeric_limits<T>::max()};
}
/// a / n, truncated for integers, of which nothing is 0.
template <typename T>
Number<T> divided(Number<T> a, int64_t n) {
  using Wide = std::conditional_t<kIsReal<T>, T, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;
  const auto wide = static_cast<Wide>(n);
  if constexpr (!kIsReal<T>)
    if (n == 0) return {0};
  return {static_cast<T>(static_cast<Wide>(a.value) / wide)};
}
template <typename T>
int bit_width(Number<T>) {
  return static_cast<int>(8 * sizeof(T));
}
/// A float as it is, an integer as float64; and back to the type of `like`, truncated.
template <typename T>
auto as_real(Number<T> x) {
  if constexpr (kIsReal<T>)
    return x;
  else
    return Number<double>{static_cast<double>(x.value)};
}
template <typename T, typename R>
Number<T> back(Number<T>, Number<R> x) {
  if constexpr (kIsReal<T>)
    return x;
  else
    return {static_cast<T>(static_cast<int64_t>(x.value))};
}
inline Number<float> as_float(Number<int32_t> x) { return {static_cast<float>(x.value)}; }
/// Of a float known to fit, truncated.
inline Number<int32_t> to_int32_unchecked(Number<float> x) { return {static_cast<int32_t>(x.value)}; }
/// Magnitude of any number.
template <typename T>
Number<T> magnitude(Number<T> x) {
  if constexpr (kIsReal<T>)
    return {std::fabs(x.value)};
  else if constexpr (std::is_signed_v<T>)
    return x.value < 0 ? -x : x;
  else
    return x;
}

/// Functions of floats: (name here, name in <cmath>, name in MLIR's dialect math). Rounding is half to even.
#define TESSERA_SCALAR_FUNCTIONS(X)     \
  X(sqrt, sqrt, "sqrt")                 \
  X(exp, exp, "exp")                    \
  X(expm1, expm1, "expm1")              \
  X(log, log, "log")                    \
  X(log1p, log1p, "log1p")              \
  X(floor, floor, "floor")              \
  X(ceil, ceil, "ceil")                 \
  X(round_even, nearbyint, "roundeven") \
  X(erf, erf, "erf")                    \
  X(sin, sin, "sin")                    \
  X(cos, cos, "cos")                    \
  X(tan, tan, "tan")                    \
  X(asin, asin, "asin")                 \
  X(acos, acos, "acos")                 \
  X(atan, atan, "atan")                 \
  X(sinh, sinh, "sinh")                 \
  X(cosh, cosh, "cosh")                 \
  X(tanh, tanh, "tanh")                 \
  X(asinh, asinh, "asinh")              \
  X(acosh, acosh, "acosh")              \
  X(atanh, atanh, "atanh")

#define TESSERA_NUMBER_FUNCTION(name, standard, mlir) \
  template <typename T>                               \
  Number<T> name(Number<T> x) {                       \
    return {std::standard(x.value)};                  \
  }
TESSERA_SCALAR_FUNCTIONS(TESSERA_NUMBER_FUNCTION)
#undef TESSERA_NUMBER_FUNCTION

template <typename T>
Number<T> fma(Number<T> a, Number<T> b, Number<T> c) {
  return {std::fma(a.value, b.value, c.value)};
}

}  // namespace tessera::ops::scalar
