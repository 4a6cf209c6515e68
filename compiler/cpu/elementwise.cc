// SPDX-License-Identifier: Apache-2.0
// Element-wise operators: arithmetic, comparisons, activations, conversions. Each formula is that of
// ops/family_elementwise.cc, family_activation.cc, family_logic.cc, family_cast.cc and family_fused.cc, in the same
// order of operations.
#include <cmath>
#include <limits>

#include "compiler/cpu/lowering.h"

namespace tessera::cpu {

Scalar nan_min(Scalar a, Scalar b) {
  return ops::is_floating(a.dtype()) ? select((b < a) | (b != b), b, a) : smaller(a, b);
}
Scalar nan_max(Scalar a, Scalar b) {
  return ops::is_floating(a.dtype()) ? select((a < b) | (b != b), b, a) : larger(a, b);
}

namespace {

using Unary = std::function<Scalar(Scalar)>;
using Binary = std::function<Scalar(Scalar, Scalar)>;

bool is_real(DType dtype) { return dtype == DType::kFloat || dtype == DType::kDouble; }

void map(Operator& o, const Unary& f) {
  const Tensor x = o.in(0);
  o.yield(o.graph.compute(o.dtype(), o.shape(), [&](Body& body, const Indices& i) { return f(body.load(x, i)); }));
}

void zip(Operator& o, const Binary& f) {
  const Tensor a = o.in(0), b = o.in(1);
  o.yield(o.graph.compute(o.dtype(), o.shape(),
                          [&](Body& body, const Indices& i) { return f(body.broadcast(a, i), body.broadcast(b, i)); }));
}

Lowering unary(const Unary& f) {
  return [f](Operator& o) { map(o, f); };
}
/// A function on float32 and float64.
Lowering real(const Unary& f) {
  return [f](Operator& o) {
    require(is_real(o.in(0).dtype));
    map(o, f);
  };
}
Lowering binary(const Binary& f) {
  return [f](Operator& o) { zip(o, f); };
}

// --- integer division
// ----------------------------------------------------------------------------------------------------------

/// Integers divide by constants only: a divisor of 0 is an error, which compiled code cannot report. True if some
/// divisor is -1.
bool check_divisor(const Operator& o) {
  if (is_real(o.in(1).dtype)) return false;
  bool minus_one = false;
  for (int64_t v : o.constant(1).to_int64s()) {
    require(v != 0);
    minus_one = minus_one || v == -1;
  }
  return minus_one && ops::is_signed_integer(o.in(1).dtype);
}

void divide(Operator& o) {
  const bool guard = check_divisor(o);
  zip(o, [&](Scalar a, Scalar b) {
    if (!guard) return a / b;
    const Scalar minus = b == b.same(-1);  // the smallest integer has no positive counterpart: its negation wraps
    return select(minus, -a, a / select(minus, b.same(1), b));
  });
}

void remainder(Operator& o) {
  const bool guard = check_divisor(o), truncated = o.node.get_int("fmod", 0) != 0;
  zip(o, [&](Scalar a, Scalar b) {
    if (is_real(a.dtype())) {
      require(truncated);
      return a % b;
    }
    const Scalar minus = b == b.same(-1);
    const Scalar r = guard ? select(minus, a.same(0), a % select(minus, b.same(1), b)) : a % b;
    if (truncated || !ops::is_signed_integer(a.dtype())) return r;
    return select((r != r.same(0)) & ((r < r.same(0)) ^ (b < b.same(0))), r + b, r);
  });
}

/// A single exponent of 2 or 3 multiplies, as in ONNX Runtime: pow rounds otherwise.
void power(Operator& o) {
  require(is_real(o.in(0).dtype));
  const auto general = [](Scalar a, Scalar b) {
    if (a.dtype() == b.dtype()) return math("powf", {a, b});
    return cast(math("powf", {cast(a, DType::kDouble), cast(b, DType::kDouble)}), a.dtype());
  };
  if (ops::element_count(o.in(1).shape) != 1) return zip(o, general);
  const auto known = nn::constant_value(nn::input_or_null(o.op, 1));
  if (known.has_value()) {
    const double exponent = known->to_doubles()[0];
    if (exponent == 2) return map(o, [](Scalar a) { return a * a; });
    if (exponent == 3) return map(o, [](Scalar a) { return a * a * a; });
    return zip(o, general);
  }
  zip(o, [&](Scalar a, Scalar b) {
    return select(b == b.same(2), a * a, select(b == b.same(3), a * a * a, general(a, b)));
  });
}

void add_arithmetic(Lowerings& t) {
  t.add("Add", binary([](Scalar a, Scalar b) { return a + b; }));
  t.add("Sub", binary([](Scalar a, Scalar b) { return a - b; }));
  t.add("Mul", binary([](Scalar a, Scalar b) { return a * b; }));
  t.add("Div", divide);
  t.add("Mod", remainder);
  t.add("Pow", power);
  const auto fold = [](Binary f, bool mean) -> Lowering {
    return [f, mean](Operator& o) {
      o.yield(o.graph.compute(o.dtype(), o.shape(), [&](Body& body, const Indices& i) {
        Scalar sum = body.broadcast(o.in(0), i);
        for (size_t k = 1; k < o.inputs.size(); ++k) sum = f(sum, body.broadcast(o.in(k), i));
        return mean ? sum / sum.same(static_cast<double>(o.inputs.size())) : sum;
      }));
    };
  };
  t.add("Min", fold(nan_min, false));
  t.add("Max", fold(nan_max, false));
  t.add("Sum", fold([](Scalar a, Scalar b) { return a + b; }, false));
  t.add("Mean", fold([](Scalar a, Scalar b) { return a + b; }, true));
}

void add_functions(Lowerings& t) {
  t.add("Neg", unary([](Scalar x) { return -x; }));
  t.add("Abs", unary([](Scalar x) {
          if (is_real(x.dtype())) return math("absf", {x});
          return ops::is_signed_integer(x.dtype()) ? select(x < x.same(0), -x, x) : x;
        }));
  t.add("Sign", unary([](Scalar x) {
          const Scalar zero = x.same(0);
          if (!is_real(x.dtype()) && !ops::is_signed_integer(x.dtype())) return select(x > zero, x.same(1), zero);
          const Scalar sign = select(x > zero, x.same(1), select(x < zero, x.same(-1), zero));
          return is_real(x.dtype()) ? select(x != x, x, sign) : sign;
        }));
  t.add("Reciprocal", real([](Scalar x) { return x.same(1) / x; }));
  for (const auto& [name, function] : std::initializer_list<std::pair<const char*, const char*>>{{"Sqrt", "sqrt"},
                                                                                                 {"Exp", "exp"},
                                                                                                 {"Log", "log"},
                                                                                                 {"Floor", "floor"},
                                                                                                 {"Ceil", "ceil"},
                                                                                                 {"Round", "roundeven"},
                                                                                                 {"Tanh", "tanh"},
                                                                                                 {"Erf", "erf"},
                                                                                                 {"Sin", "sin"},
                                                                                                 {"Cos", "cos"},
                                                                                                 {"Tan", "tan"},
                                                                                                 {"Asin", "asin"},
                                                                                                 {"Acos", "acos"},
                                                                                                 {"Atan", "atan"},
                                                                                                 {"Sinh", "sinh"},
                                                                                                 {"Cosh", "cosh"},
                                                                                                 {"Asinh", "asinh"},
                                                                                                 {"Acosh", "acosh"},
                                                                                                 {"Atanh", "atanh"}})
    t.add(name, real([f = function](Scalar x) { return math(f, {x}); }));
}

// --- activations
// ---------------------------------------------------------------------------------------------------------------

/// 1 / (1 + exp(-x)) for x >= 0, exp(x) / (1 + exp(x)) below, in one exponential.
Scalar sigmoid(Scalar x) {
  const Scalar e = math("exp", {-math("absf", {x})});
  return select(x >= x.same(0), x.same(1), e) / (x.same(1) + e);
}
Scalar softplus(Scalar x) { return larger(x, x.same(0)) + math("log1p", {math("exp", {-math("absf", {x})})}); }
Scalar unit_clamp(Scalar x) { return nan_max(x.same(0), nan_min(x.same(1), x)); }
Scalar gelu_erf(Scalar x) { return x.same(0.5) * x * (x.same(1) + math("erf", {x * x.same(0.7071067811865476)})); }
Scalar gelu_tanh(Scalar x) {
  return x.same(0.5) * x *
         (x.same(1) + math("tanh", {x.same(0.7978845608028654) * (x + x.same(0.044715) * x * x * x)}));
}

/// An activation with float attributes: f(x, values), the values rounded to float32 and then to the element type.
Lowering activation(std::vector<std::pair<std::string, float>> attributes,
                    std::function<Scalar(Scalar, const std::vector<Scalar>&)> f) {
  return [attributes = std::move(attributes), f = std::move(f)](Operator& o) {
    require(is_real(o.in(0).dtype));
    map(o, [&](Scalar x) {
      std::vector<Scalar> values;
      for (const auto& [name, fallback] : attributes) values.push_back(x.same(o.node.get_float(name, fallback)));
      return f(x, values);
    });
  };
}

void add_activations(Lowerings& t) {
  using Values = const std::vector<Scalar>&;
  t.add("Relu", unary([](Scalar x) { return select(x < x.same(0), x.same(0), x); }));
  t.add("LeakyRelu",
        activation({{"alpha", 0.01f}}, [](Scalar x, Values v) { return select(x < x.same(0), v[0] * x, x); }));
  t.add("Elu", activation({{"alpha", 1.0f}},
                          [](Scalar x, Values v) { return select(x < x.same(0), v[0] * math("expm1", {x}), x); }));
  t.add("Celu", activation({{"alpha", 1.0f}}, [](Scalar x, Values v) {
          return larger(x.same(0), x) + smaller(x.same(0), v[0] * math("expm1", {x / v[0]}));
        }));
  t.add("Selu", activation({{"alpha", 1.67326319217681884765625f}, {"gamma", 1.05070102214813232421875f}},
                           [](Scalar x, Values v) {
                             return select(x > x.same(0), v[1] * x, v[1] * (v[0] * math("expm1", {x})));
                           }));
  t.add("ThresholdedRelu",
        activation({{"alpha", 1.0f}}, [](Scalar x, Values v) { return select(x > v[0], x, x.same(0)); }));
  t.add("Sigmoid", real(sigmoid));
  t.add("HardSigmoid",
        activation({{"alpha", 0.2f}, {"beta", 0.5f}}, [](Scalar x, Values v) { return unit_clamp(v[0] * x + v[1]); }));
  t.add("HardSwish", real([](Scalar x) { return x * unit_clamp(x.same(1.0f / 6.0f) * x + x.same(0.5)); }));
  t.add("Swish", activation({{"alpha", 1.0f}}, [](Scalar x, Values v) { return x * sigmoid(v[0] * x); }));
  t.add("Mish", real([](Scalar x) { return x * math("tanh", {softplus(x)}); }));
  t.add("Gelu", [](Operator& o) {
    require(is_real(o.in(0).dtype));
    map(o, o.node.get_string("approximate", "none") == "tanh" ? gelu_tanh : gelu_erf);
  });
  t.add("Softplus", real(softplus));
  t.add("Softsign", real([](Scalar x) { return x / (x.same(1) + math("absf", {x})); }));
  t.add("Shrink", activation({{"bias", 0.0f}, {"lambd", 0.5f}}, [](Scalar x, Values v) {
          return select(x < -v[1], x + v[0], select(x > v[1], x - v[0], x.same(0)));
        }));
  t.add("PRelu", binary([](Scalar x, Scalar slope) { return select(x < x.same(0), x * slope, x); }));
  t.add("Clip", [](Operator& o) {
    const Tensor x = o.in(0);
    const bool attributes = o.node.version < 11;
    o.yield(o.graph.compute(o.dtype(), o.shape(), [&](Body& body, const Indices& i) {
      Scalar y = body.load(x, i);
      const auto limit = [&](size_t input, const char* name, double fallback) -> std::optional<Scalar> {
        if (attributes) return y.same(o.node.has(name) ? o.node.get_float(name, 0) : fallback);
        if (o.has(input)) return body.load(o.in(input), only_element(body, o.in(input)));
        if (!is_real(x.dtype)) return std::nullopt;
        return y.same(fallback);
      };
      // The default limits of floats are the finite range of the stored type: they bound infinities.
      const DType stored = nn::dtype_of(o.op->getOperand(0));
      const double largest = stored == DType::kDouble     ? std::numeric_limits<double>::max()
                             : stored == DType::kFloat16  ? 65504.0
                             : stored == DType::kBfloat16 ? 0x1.fep127
                                                          : std::numeric_limits<float>::max();
      if (const auto low = limit(1, "min", -largest)) y = select(y < *low, *low, y);
      if (const auto high = limit(2, "max", largest)) y = select(y > *high, *high, y);
      return y;
    }));
  });
  // ONNX Runtime's fused forms; the bias lies along the last axis.
  const auto biased = [](Unary f) -> Lowering {
    return [f](Operator& o) {
      require(is_real(o.in(0).dtype));
      if (o.has(1))
        zip(o, [&](Scalar x, Scalar bias) { return f(x + bias); });
      else
        map(o, f);
    };
  };
  const std::string microsoft = nn::kMicrosoftDomain.str();
  t.add("Gelu", biased(gelu_erf), microsoft);
  t.add("BiasGelu", biased(gelu_erf), microsoft);
  t.add("FastGelu", biased(gelu_tanh), microsoft);
  t.add(
      "QuickGelu",
      activation({{"alpha", 1.702f}}, [](Scalar x, Values v) { return x / (x.same(1) + math("exp", {-(x * v[0])})); }),
      microsoft);
}

void add_logic(Lowerings& t) {
  t.add("Equal", binary([](Scalar a, Scalar b) { return a == b; }));
  t.add("Less", binary([](Scalar a, Scalar b) { return a < b; }));
  t.add("Greater", binary([](Scalar a, Scalar b) { return a > b; }));
  t.add("LessOrEqual", binary([](Scalar a, Scalar b) { return a <= b; }));
  t.add("GreaterOrEqual", binary([](Scalar a, Scalar b) { return a >= b; }));
  for (const char* name : {"And", "BitwiseAnd"}) t.add(name, binary([](Scalar a, Scalar b) { return a & b; }));
  for (const char* name : {"Or", "BitwiseOr"}) t.add(name, binary([](Scalar a, Scalar b) { return a | b; }));
  for (const char* name : {"Xor", "BitwiseXor"}) t.add(name, binary([](Scalar a, Scalar b) { return a ^ b; }));
  for (const char* name : {"Not", "BitwiseNot"}) t.add(name, unary([](Scalar x) { return !x; }));
  t.add("BitShift", [](Operator& o) {
    require(!ops::is_signed_integer(o.in(0).dtype));
    const bool left = o.node.get_string("direction", "") == "LEFT";
    const int64_t bits = 8 * ops::element_bytes(o.in(0).dtype);
    zip(o, [&](Scalar a, Scalar b) {
      const Scalar all = b.body().integer(b.dtype(), bits);
      const Scalar inside = select(b < all, b, b.same(0));  // every bit has left otherwise
      return select(b < all, left ? shift_left(a, inside) : shift_right(a, inside), a.same(0));
    });
  });
  t.add("IsNaN", real([](Scalar x) { return x != x; }));
  t.add("IsInf", [](Operator& o) {
    require(is_real(o.in(0).dtype));
    const bool positive = o.node.get_int("detect_positive", 1) != 0,
               negative = o.node.get_int("detect_negative", 1) != 0;
    map(o, [&](Scalar x) {
      Scalar found = x.body().integer(DType::kBool, 0);
      if (positive) found = found | (x == x.same(INFINITY));
      if (negative) found = found | (x == x.same(-INFINITY));
      return found;
    });
  });
}

}  // namespace

void add_elementwise(Lowerings& t) {
  add_arithmetic(t);
  add_functions(t);
  add_activations(t);
  add_logic(t);
}

}  // namespace tessera::cpu
