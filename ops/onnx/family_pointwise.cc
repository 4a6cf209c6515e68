// SPDX-License-Identifier: Apache-2.0
// Inference and kernels of the element-wise operators in the table of pointwise.h. Operands come broadcast, results
// leave contiguous. fp16 and bfloat16 are computed in fp32 and rounded once; transcendental functions are those of the
// C++ library. Booleans are one byte each, 0 or 1.
#include "ops/kernels/pointwise.h"

namespace tessera::ops {

namespace {

using namespace kernel;
using scalar::Number;

/// How elements of a tensor become numbers and back.
template <typename T>
struct Element {
  using Stored = T;
  static Number<T> load(const T& stored) { return {stored}; }
};
template <>
struct Element<bool> {
  using Stored = uint8_t;
  static Number<bool> load(uint8_t stored) { return {stored != 0}; }
};
template <>
struct Element<std::string> {
  using Stored = std::string;
  static Number<std::string_view> load(const std::string& stored) { return {stored}; }
};

template <TypeSet set, DType own, typename T, typename F>
bool offer(DType dtype, F& f) {
  if constexpr (contains(set, own))
    if (dtype == own) f(Element<T>{});
  return contains(set, own) && dtype == own;
}

/// Calls f(Element<T>) with the type in which elements of `dtype`, one of `set`, are computed.
template <TypeSet set, typename F>
void visit_elements(const Node& node, DType dtype, F&& f) {
  const bool known = offer<set, DType::kFloat, float>(dtype, f) || offer<set, DType::kDouble, double>(dtype, f) ||
                     offer<set, DType::kInt8, int8_t>(dtype, f) || offer<set, DType::kInt16, int16_t>(dtype, f) ||
                     offer<set, DType::kInt32, int32_t>(dtype, f) || offer<set, DType::kInt64, int64_t>(dtype, f) ||
                     offer<set, DType::kUint8, uint8_t>(dtype, f) || offer<set, DType::kUint16, uint16_t>(dtype, f) ||
                     offer<set, DType::kUint32, uint32_t>(dtype, f) || offer<set, DType::kUint64, uint64_t>(dtype, f) ||
                     offer<set, DType::kBool, bool>(dtype, f) || offer<set, DType::kString, std::string>(dtype, f);
  if (!known) unsupported_type(node, dtype);
}

/// f of every element, and of every pair of elements broadcast to `shape`. Truth values make a tensor of booleans.
template <TypeSet set, typename F>
Tensor map(const Node& node, const Tensor& given, F f) {
  const Tensor in = widen(given);
  Tensor y;
  visit_elements<set>(node, in.dtype(), [&](auto element) {
    using E = decltype(element);
    using R = decltype(f(E::load({})).value);
    y = Tensor(std::is_same_v<R, bool> ? DType::kBool : in.dtype(), in.shape());
    const auto* x = elements<typename E::Stored>(in);
    auto* out = mutable_elements<typename Element<R>::Stored>(y);
    const int64_t count = in.size();
    for (int64_t i = 0; i < count; ++i) out[i] = f(E::load(x[i])).value;
  });
  return y;
}

template <TypeSet set, typename F>
Tensor zip(const Node& node, const Tensor& given_a, const Tensor& given_b, const Shape& shape, F f) {
  const Tensor a = widen(given_a), b = widen(given_b);
  Tensor y;
  visit_elements<set>(node, a.dtype(), [&](auto element) {
    using E = decltype(element);
    using S = typename E::Stored;
    using R = decltype(f(E::load(std::declval<const S&>()), E::load(std::declval<const S&>())).value);
    y = Tensor(std::is_same_v<R, bool> ? DType::kBool : a.dtype(), shape);
    binary_loop(shape, a.shape(), b.shape(), elements<S>(a), elements<S>(b),
                mutable_elements<typename Element<R>::Stored>(y),
                [&](const S& p, const S& q) { return f(E::load(p), E::load(q)).value; });
  });
  return y;
}

/// Evaluates into the result's own type what `tensor` computes.
Kernel narrowed(std::function<Tensor(EvalContext&, const Shape&)> tensor) {
  return [tensor = std::move(tensor)](EvalContext& c, const std::vector<TypeInfo>& types) {
    c.outputs[0] = narrow(tensor(c, types[0].shape), types[0].dtype);
  };
}

/// The inference `rule`, then what `make` checks of the node's attributes.
template <typename Make>
InferFunction checked(Make make, InferFunction rule) {
  return [make, rule = std::move(rule)](InferContext& c) {
    rule(c);
    make(c.node);
  };
}

void infer_truth_of_first(InferContext& c) {
  require_type(c.node, c.input(0).dtype, kFloats | kFloat8s, "input");
  c.outputs[0] = without_constant(c.input(0), DType::kBool);
}

/// x, or x + bias with a bias of one element for each of the last dimension.
void infer_biased(InferContext& c) {
  const TypeInfo& x = c.input(0);
  require_type(c.node, x.dtype, kFloats, "the input");
  c.outputs[0] = without_constant(x);
  if (!c.has(1)) return;
  const TypeInfo& bias = c.input(1);
  require_same_type(c.node, x, bias);
  require_rank(c.node, bias, 1, "the bias");
  if (x.ranked && (x.shape.empty() ||
                   (bias.ranked && x.shape.back() >= 0 && bias.shape[0] >= 0 && bias.shape[0] != x.shape.back())))
    c.node.fail(ErrorCode::kInvalidModel,
                "bias " + to_string(bias.shape) + " does not fit the last dimension of " + to_string(x.shape));
}

/// Folds the operands from the left with f, each broadcast to the result; a mean is divided by their number.
template <TypeSet set, typename F>
Tensor fold(EvalContext& c, const Shape& shape, bool mean, F f) {
  const Tensor first = widen(c.input(0));
  Tensor sum = gather_strided(first, shape, 0, broadcast_strides(first.shape(), shape));
  visit_elements<set>(c.node, sum.dtype(), [&](auto element) {
    using E = decltype(element);
    using S = typename E::Stored;
    S* s = mutable_elements<S>(sum);
    for (size_t k = 1; k < c.inputs.size(); ++k) {
      const Tensor next = widen(c.input(k));
      binary_loop(shape, shape, next.shape(), s, elements<S>(next), s,
                  [&](S a, S b) { return f(E::load(a), E::load(b)).value; });
    }
    if constexpr (std::is_floating_point_v<S>)
      for (int64_t i = 0; mean && i < sum.size(); ++i) s[i] = s[i] / static_cast<S>(c.inputs.size());
  });
  return sum;
}

/// What pointwise_operators() calls: each entry of the table is registered.
struct Registration {
  Registry& r;

  template <typename Set, typename F>
  void unary(const char* name, int opset, Set, F f) {
    add(r, name, opset, kOne, same_as_first(Set::kSet),
        narrowed([f](EvalContext& c, const Shape&) { return map<Set::kSet>(c.node, c.input(0), f); }));
  }
  template <typename Set, typename Make>
  void attributed(const char* name, int opset, Set, std::set<std::string> names, Make make) {
    add(r, name, opset, kOne, checked(make, same_as_first(Set::kSet)),
        narrowed([make](EvalContext& c, const Shape&) { return map<Set::kSet>(c.node, c.input(0), make(c.node)); }),
        std::move(names));
  }
  template <typename Make>
  void predicate(const char* name, int opset, std::set<std::string> names, Make make) {
    add(r, name, opset, kOne, infer_truth_of_first,
        narrowed([make](EvalContext& c, const Shape&) { return map<kFloats>(c.node, c.input(0), make(c.node)); }),
        std::move(names));
  }
  template <typename Make>
  void biased(const char* name, Arity inputs, std::set<std::string> names, Make make) {
    add(r, name, 1, inputs, infer_biased, narrowed([make](EvalContext& c, const Shape& shape) {
          const auto f = make(c.node);
          if (!c.has(1)) return map<kFloats>(c.node, c.input(0), f);
          return zip<kFloats>(c.node, c.input(0), c.input(1), shape, [f](auto x, auto bias) { return f(x + bias); });
        }),
        std::move(names), kOne, "com.microsoft");
  }
  template <typename Set, typename F>
  void binary(const char* name, int opset, Set set, F f, InferFunction infer = broadcast_same(Set::kSet)) {
    attributed_binary(name, opset, set, {}, [f](const Node&) { return f; }, std::move(infer));
  }
  template <typename Set, typename F>
  void comparison(const char* name, int opset, Set set, F f) {
    binary(name, opset, set, f, broadcast_same(Set::kSet, DType::kBool));
  }
  template <typename Set, typename Make>
  void shift(const char* name, int opset, Set set, std::set<std::string> names, Make make) {
    attributed_binary(name, opset, set, std::move(names), make, checked(make, [](InferContext& c) {
                        broadcast_same(c.node.version < 28 ? kUnsigned : kInts)(c);
                      }));
  }
  template <typename Set, typename F>
  void fold(const char* name, int opset, Set, bool mean, F f) {
    add(r, name, opset, {1, -1}, broadcast_same(Set::kSet),
        narrowed([mean, f](EvalContext& c, const Shape& shape) { return ops::fold<Set::kSet>(c, shape, mean, f); }));
  }

 private:
  template <typename Set, typename Make>
  void attributed_binary(const char* name, int opset, Set, std::set<std::string> names, Make make,
                         InferFunction infer) {
    add(r, name, opset, kTwo, std::move(infer), narrowed([make](EvalContext& c, const Shape& shape) {
          return zip<Set::kSet>(c.node, c.input(0), c.input(1), shape, make(c.node));
        }),
        std::move(names));
  }
};

}  // namespace

void register_pointwise(Registry& r) {
  Registration operators{r};
  scalar::pointwise_operators(operators);
}

}  // namespace tessera::ops
