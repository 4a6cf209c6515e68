// SPDX-License-Identifier: Apache-2.0
// The table of element-wise operators: names, opsets, element types, attributes, and what each computes, as one
// expression. ops/onnx/family_pointwise.cc makes inference and kernels of it, compiler/cpu/expressions/elementwise.cc
// compiled loops. An expression takes numbers of C++ or elements of a loop under construction; scalar.h has the words.
// Forms are chosen that neither overflow nor cancel: sigmoid and softplus by the magnitude of x.
#pragma once

#include "ops/kernels/elementwise_kernel.h"
#include "ops/scalar.h"

namespace tessera::ops::scalar {

template <typename S>
S sigmoid(S x) {
  const S e = exp(-magnitude(x));
  return select(x >= x.same(0), x.same(1), e) / (x.same(1) + e);
}
template <typename S>
S softplus(S x) {
  const S tail = log1p(exp(-magnitude(x)));
  return larger(x, x.same(0)) + tail;
}
template <typename S>
S unit_clamp(S x) {
  return nan_max(x.same(0), nan_min(x.same(1), x));
}
template <typename S>
S gelu(S x) {
  return x.same(0.5) * x * (x.same(1) + erf(x * x.same(0.7071067811865476)));
}
template <typename S>
S gelu_by_tanh(S x) {
  return x.same(0.5) * x * (x.same(1) + tanh(x.same(0.7978845608028654) * (x + x.same(0.044715) * x * x * x)));
}

/// Element types that an operator takes, known to the compiler, so that an expression is made for no other.
template <kernel::TypeSet set>
struct Types {
  static constexpr kernel::TypeSet kSet = set;
};
inline constexpr Types<kernel::kFloats> kReals{};
inline constexpr Types<kernel::kInts> kIntegers{};
inline constexpr Types<kernel::kFloats | kernel::kSigned> kSignedNumbers{};
inline constexpr Types<kernel::kNumeric> kNumbers{};
inline constexpr Types<kernel::kBoolSet> kTruthValues{};
inline constexpr Types<kernel::kNumeric | kernel::kBoolSet | kernel::set_of({DType::kString})> kComparable{};

/// Calls one method of `o` for each operator:
/// - unary(name, opset, types, f): y = f(x)
/// - attributed(name, opset, types, names, make): y = f(x), f = make(node) with attributes of these names
/// - predicate(name, opset, names, make): truth value of a float
/// - biased(name, inputs, names, make): of com.microsoft, y = f(x), or f(x + bias) with a bias along the last axis
/// - binary(name, opset, types, f): y = f(a, b), broadcast
/// - shift(name, opset, types, names, make): y = f(a, b) of integers, broadcast, f = make(node)
/// - comparison(name, opset, types, f): truth value of a and b, broadcast
/// - fold(name, opset, types, mean, f): y = f(f(a, b), c) and so on, broadcast; divided by their number for a mean
template <typename Operators>
void pointwise_operators(Operators& o) {
  o.binary("Add", 7, kNumbers, [](auto a, auto b) { return a + b; });
  o.binary("Sub", 7, kNumbers, [](auto a, auto b) { return a - b; });
  o.binary("Mul", 7, kNumbers, [](auto a, auto b) { return a * b; });
  // The standard has the slope fit x; ONNX Runtime broadcasts x, too.
  o.binary("PRelu", 7, kNumbers, [](auto x, auto slope) { return select(x < x.same(0), x * slope, x); });
  o.fold("Min", 6, kNumbers, false, [](auto a, auto b) { return nan_min(a, b); });
  o.fold("Max", 6, kNumbers, false, [](auto a, auto b) { return nan_max(a, b); });
  o.fold("Sum", 6, kNumbers, false, [](auto a, auto b) { return a + b; });
  o.fold("Mean", 6, kReals, true, [](auto a, auto b) { return a + b; });

  o.comparison("Equal", 7, kComparable, [](auto a, auto b) { return a == b; });
  o.comparison("Less", 7, kNumbers, [](auto a, auto b) { return a < b; });
  o.comparison("Greater", 7, kNumbers, [](auto a, auto b) { return a > b; });
  o.comparison("LessOrEqual", 12, kNumbers, [](auto a, auto b) { return a <= b; });
  o.comparison("GreaterOrEqual", 12, kNumbers, [](auto a, auto b) { return a >= b; });
  o.binary("And", 7, kTruthValues, [](auto a, auto b) { return a & b; });
  o.binary("Or", 7, kTruthValues, [](auto a, auto b) { return a | b; });
  o.binary("Xor", 7, kTruthValues, [](auto a, auto b) { return a ^ b; });
  o.unary("Not", 1, kTruthValues, [](auto x) { return !x; });
  o.binary("BitwiseAnd", 18, kIntegers, [](auto a, auto b) { return a & b; });
  o.binary("BitwiseOr", 18, kIntegers, [](auto a, auto b) { return a | b; });
  o.binary("BitwiseXor", 18, kIntegers, [](auto a, auto b) { return a ^ b; });
  o.unary("BitwiseNot", 18, kIntegers, [](auto x) { return !x; });
  o.shift("BitShift", 11, kIntegers, {"direction"}, [](const Node& node) {
    const std::string direction = node.get_string("direction", "");
    if (direction != "LEFT" && direction != "RIGHT")
      node.fail(ErrorCode::kInvalidModel, "attribute 'direction' must be LEFT or RIGHT");
    return [left = direction == "LEFT"](auto a, auto b) {
      // By a negative count or by all bits, zeros are left, or the sign to the right.
      const auto inside = (b >= b.same(0)) & (b < b.same(bit_width(b)));
      const auto count = select(inside, b, b.same(0));
      const auto rest = left ? a.same(0) : select(a < a.same(0), a.same(-1), a.same(0));
      return select(inside, left ? shift_left(a, count) : shift_right(a, count), rest);
    };
  });
  o.predicate("IsNaN", 9, {}, [](const Node&) { return [](auto x) { return x != x; }; });
  o.predicate("IsInf", 10, {"detect_positive", "detect_negative"}, [](const Node& node) {
    const double never = NAN;  // equals nothing
    return [above = node.get_int("detect_positive", 1) != 0 ? INFINITY : never,
            below = node.get_int("detect_negative", 1) != 0 ? -INFINITY : never](auto x) {
      return (x == x.same(above)) | (x == x.same(below));
    };
  });

  o.unary("Neg", 6, kSignedNumbers, [](auto x) { return -x; });
  o.unary("Abs", 6, kNumbers, [](auto x) { return magnitude(x); });
  o.unary("Sign", 9, kNumbers, [](auto x) {  // a NaN stays
    return select(x > x.same(0), x.same(1), select(x < x.same(0), x.same(-1), select(x == x, x.same(0), x)));
  });
  o.unary("Erf", 9, kNumbers, [](auto x) { return back(x, erf(as_real(x))); });
  o.unary("Reciprocal", 6, kReals, [](auto x) { return x.same(1) / x; });
  o.unary("Sqrt", 6, kReals, [](auto x) { return sqrt(x); });
  o.unary("Exp", 6, kReals, [](auto x) { return exp(x); });
  o.unary("Log", 6, kReals, [](auto x) { return log(x); });
  o.unary("Floor", 6, kReals, [](auto x) { return floor(x); });
  o.unary("Ceil", 6, kReals, [](auto x) { return ceil(x); });
  o.unary("Round", 11, kReals, [](auto x) { return round_even(x); });
  o.unary("Sin", 7, kReals, [](auto x) { return sin(x); });
  o.unary("Cos", 7, kReals, [](auto x) { return cos(x); });
  o.unary("Tan", 7, kReals, [](auto x) { return tan(x); });
  o.unary("Asin", 7, kReals, [](auto x) { return asin(x); });
  o.unary("Acos", 7, kReals, [](auto x) { return acos(x); });
  o.unary("Atan", 7, kReals, [](auto x) { return atan(x); });
  o.unary("Sinh", 9, kReals, [](auto x) { return sinh(x); });
  o.unary("Cosh", 9, kReals, [](auto x) { return cosh(x); });
  o.unary("Tanh", 6, kReals, [](auto x) { return tanh(x); });
  o.unary("Asinh", 9, kReals, [](auto x) { return asinh(x); });
  o.unary("Acosh", 9, kReals, [](auto x) { return acosh(x); });
  o.unary("Atanh", 9, kReals, [](auto x) { return atanh(x); });

  o.unary("Relu", 6, kSignedNumbers, [](auto x) { return select(x < x.same(0), x.same(0), x); });
  o.unary("Sigmoid", 6, kReals, [](auto x) { return sigmoid(x); });
  o.unary("HardSwish", 14, kReals, [](auto x) { return x * unit_clamp(x.same(1.0f / 6.0f) * x + x.same(0.5)); });
  o.unary("Mish", 18, kReals, [](auto x) { return x * tanh(softplus(x)); });
  o.unary("Softplus", 1, kReals, [](auto x) { return softplus(x); });
  o.unary("Softsign", 1, kReals, [](auto x) { return x / (x.same(1) + magnitude(x)); });
  o.attributed("LeakyRelu", 6, kReals, {"alpha"}, [](const Node& node) {
    return [alpha = node.get_float("alpha", 0.01f)](auto x) { return select(x < x.same(0), x.same(alpha) * x, x); };
  });
  o.attributed("Elu", 6, kReals, {"alpha"}, [](const Node& node) {
    return [alpha = node.get_float("alpha", 1.0f)](auto x) {
      return choose(x < x.same(0), [&] { return x.same(alpha) * expm1(x); }, [&] { return x; });
    };
  });
  o.attributed("Celu", 12, kReals, {"alpha"}, [](const Node& node) {
    return [alpha = node.get_float("alpha", 1.0f)](auto x) {
      const auto a = x.same(alpha);
      return choose(x < x.same(0), [&] { return a * expm1(x / a); }, [&] { return x; });
    };
  });
  o.attributed("Selu", 6, kReals, {"alpha", "gamma"}, [](const Node& node) {
    return [alpha = node.get_float("alpha", 1.67326319217681884765625f),
            gamma = node.get_float("gamma", 1.05070102214813232421875f)](auto x) {
      const auto scale = x.same(gamma);
      return choose(x > x.same(0), [&] { return scale * x; }, [&] { return scale * (x.same(alpha) * expm1(x)); });
    };
  });
  o.attributed("ThresholdedRelu", 10, kReals, {"alpha"}, [](const Node& node) {
    return [alpha = node.get_float("alpha", 1.0f)](auto x) { return select(x > x.same(alpha), x, x.same(0)); };
  });
  o.attributed("HardSigmoid", 6, kReals, {"alpha", "beta"}, [](const Node& node) {
    return [alpha = node.get_float("alpha", 0.2f), beta = node.get_float("beta", 0.5f)](auto x) {
      return unit_clamp(x.same(alpha) * x + x.same(beta));
    };
  });
  o.attributed("Swish", 24, kReals, {"alpha"}, [](const Node& node) {
    return [alpha = node.get_float("alpha", 1.0f)](auto x) { return x * sigmoid(x.same(alpha) * x); };
  });
  o.attributed("Gelu", 20, kReals, {"approximate"}, [](const Node& node) {
    const std::string approximate = node.get_string("approximate", "none");
    if (approximate != "none" && approximate != "tanh")
      node.fail(ErrorCode::kInvalidModel, "attribute 'approximate' is '" + approximate + "', not none or tanh");
    return [by_tanh = approximate == "tanh"](auto x) { return by_tanh ? gelu_by_tanh(x) : gelu(x); };
  });
  o.attributed("Shrink", 9, kNumbers, {"bias", "lambd"}, [](const Node& node) {
    return [bias = node.get_float("bias", 0.0f), lambd = node.get_float("lambd", 0.5f)](auto given) {
      const auto x = as_real(given), b = x.same(bias);
      return back(given, select(x < x.same(-lambd), x + b, select(x > x.same(lambd), x - b, x.same(0))));
    };
  });

  const auto erf_form = [](const Node&) { return [](auto x) { return gelu(x); }; };
  o.biased("Gelu", {1, 1}, {}, erf_form);
  o.biased("BiasGelu", {2, 2}, {}, erf_form);
  o.biased("FastGelu", {1, 2}, {}, [](const Node&) { return [](auto x) { return gelu_by_tanh(x); }; });
  o.biased("QuickGelu", {1, 1}, {"alpha"}, [](const Node& node) {
    return [alpha = node.get_float("alpha", 1.702f)](auto x) { return x / (x.same(1) + exp(-(x * x.same(alpha)))); };
  });
}

}  // namespace tessera::ops::scalar
