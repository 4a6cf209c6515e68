// SPDX-License-Identifier: Apache-2.0
// Element-wise operators: the table ops/kernels/pointwise.h as loops, and what is more than an expression, with the
// formulas of ops/onnx/family_elementwise.cc.
#include <limits>

#include "compiler/cpu/expressions/lowering.h"
#include "ops/kernels/pointwise.h"

namespace tessera::cpu {

namespace {

void map(Operator& o, const std::function<Scalar(Scalar)>& f) {
  const Tensor x = o.in(0);
  o.yield(o.graph.compute(o.dtype(), o.shape(), [&](Body& body, const Indices& i) { return f(body.load(x, i)); }));
}

void zip(Operator& o, const std::function<Scalar(Scalar, Scalar)>& f) {
  const Tensor a = o.in(0), b = o.in(1);
  o.yield(o.graph.compute(o.dtype(), o.shape(),
                          [&](Body& body, const Indices& i) { return f(body.broadcast(a, i), body.broadcast(b, i)); }));
}

/// What pointwise_operators() calls: each entry of the table becomes a loop.
struct Loops {
  Lowerings& t;

  template <typename Set, typename F>
  void unary(const char* name, int opset, Set set, F f) {
    attributed(name, opset, set, {}, [f](const ops::Node&) { return f; });
  }
  template <typename Set, typename Make>
  void attributed(const char* name, int, Set, const std::set<std::string>&, Make make, const std::string& domain = "") {
    t.add(
        name,
        [make](Operator& o) {
          // float16 and bfloat16 come as float32; smaller floats have no compiled form.
          require(Set::kSet != ops::kernel::kFloats || is_real(o.in(0).dtype));
          const auto f = make(o.node);
          if (o.inputs.size() > 1 && o.has(1))
            zip(o, [f](Scalar x, Scalar bias) { return f(x + bias); });
          else
            map(o, f);
        },
        domain);
  }
  template <typename Make>
  void predicate(const char* name, int opset, const std::set<std::string>& names, Make make) {
    attributed(name, opset, ops::scalar::kReals, names, make);
  }
  template <typename Make>
  void biased(const char* name, ops::kernel::Arity, const std::set<std::string>& names, Make make) {
    attributed(name, 1, ops::scalar::kReals, names, make, nn::kMicrosoftDomain.str());
  }
  template <typename Set, typename F>
  void binary(const char* name, int, Set, F f) {
    t.add(name, [f](Operator& o) { zip(o, f); });
  }
  template <typename Set, typename F>
  void comparison(const char* name, int opset, Set set, F f) {
    binary(name, opset, set, f);
  }
  template <typename Set, typename Make>
  void shift(const char* name, int, Set, const std::set<std::string>&, Make make) {
    t.add(name, [make](Operator& o) { zip(o, make(o.node)); });
  }
  template <typename Set, typename F>
  void fold(const char* name, int, Set, bool mean, F f) {
    t.add(name, [mean, f](Operator& o) {
      o.yield(o.graph.compute(o.dtype(), o.shape(), [&](Body& body, const Indices& i) {
        Scalar sum = body.broadcast(o.in(0), i);
        for (size_t k = 1; k < o.inputs.size(); ++k) sum = f(sum, body.broadcast(o.in(k), i));
        return mean ? sum / sum.same(static_cast<double>(o.inputs.size())) : sum;
      }));
    });
  }
};

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
void raise(Operator& o) {
  require(is_real(o.in(0).dtype));
  const auto general = [](Scalar a, Scalar b) {
    if (a.dtype() == b.dtype()) return power(a, b);
    return cast(power(cast(a, DType::kDouble), cast(b, DType::kDouble)), a.dtype());
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

// --- limits
// --------------------------------------------------------------------------------------------------------------------

void clip(Operator& o) {
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
}

}  // namespace

void add_elementwise(Lowerings& t) {
  Loops loops{t};
  ops::scalar::pointwise_operators(loops);
  t.add("Div", divide);
  t.add("Mod", remainder);
  t.add("Pow", raise);
  t.add("Clip", clip);
}

}  // namespace tessera::cpu
