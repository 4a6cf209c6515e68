// SPDX-License-Identifier: Apache-2.0
// Comparisons, boolean and bitwise logic, selection and predicates: Equal to Where, BitShift, IsNaN, IsInf, Identity.
// Booleans are one byte each, 0 or 1. Results of comparisons with NaN are false. Where and Identity only move elements.
#include <cmath>

#include "ops/elementwise_kernel.h"

namespace tessera::ops {

namespace {

using namespace kernel;

/// Kernel of a comparison: op(T, T) -> bool on the arithmetic types.
template <typename Op>
Kernel comparison(Op op) {
  return [op](EvalContext& c, const std::vector<TypeInfo>& types) {
    const Tensor a = widen(c.input(0)), b = widen(c.input(1));
    Tensor out(DType::kBool, types[0].shape);
    uint8_t* o = mutable_elements<uint8_t>(out);
    const auto compare = [&](auto tag) {
      using T = typename decltype(tag)::type;
      binary_loop(out.shape(), a.shape(), b.shape(), elements<T>(a), elements<T>(b), o,
                  [&](const T& x, const T& y) -> uint8_t { return op(x, y); });
    };
    if (a.dtype() == DType::kBool)
      compare(Tag<uint8_t>{});
    else if (a.dtype() == DType::kString)
      compare(Tag<std::string>{});
    else if (!visit_arithmetic(a.dtype(), compare))
      unsupported_type(c.node, a.dtype());
    c.outputs[0] = std::move(out);
  };
}

/// Kernel of a binary function on booleans.
template <typename Op>
Kernel boolean(Op op) {
  return [op](EvalContext& c, const std::vector<TypeInfo>& types) {
    Tensor out(DType::kBool, types[0].shape);
    binary_loop(out.shape(), c.input(0).shape(), c.input(1).shape(), elements<uint8_t>(c.input(0)),
                elements<uint8_t>(c.input(1)), mutable_elements<uint8_t>(out),
                [&](uint8_t x, uint8_t y) -> uint8_t { return op(x != 0, y != 0); });
    c.outputs[0] = std::move(out);
  };
}

/// Kernel of a binary function on words, which it sees as unsigned whatever the element type.
template <typename Op>
Kernel bitwise(Op op) {
  return [op](EvalContext& c, const std::vector<TypeInfo>& types) {
    const Tensor &a = c.input(0), &b = c.input(1);
    Tensor out(a.dtype(), types[0].shape);
    visit_storage(a.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (std::is_integral_v<T>)
        binary_loop(out.shape(), a.shape(), b.shape(), elements<T>(a), elements<T>(b), mutable_elements<T>(out),
                    [&](T x, T y) -> T { return op(x, y); });
    });
    c.outputs[0] = std::move(out);
  };
}

void infer_bit_shift(InferContext& c) {
  broadcast_same(c.node.version < 28 ? kUnsigned : kInts)(c);
  const std::string direction = c.node.get_string("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    c.node.fail(ErrorCode::kInvalidModel, "attribute 'direction' must be LEFT or RIGHT");
}

void evaluate_bit_shift(EvalContext& c, const std::vector<TypeInfo>& types) {
  const bool left = c.node.get_string("direction", "") == "LEFT", is_signed = is_signed_integer(c.input(0).dtype());
  bitwise([left, is_signed](auto x, auto y) {
    using T = decltype(x);
    if constexpr (std::is_integral_v<T>) {
      const bool all = y >= static_cast<T>(8 * sizeof(T));  // every bit has left; a negative number is a large one here
      if (left) return all ? T{0} : static_cast<T>(static_cast<uint64_t>(x) << y);
      const auto value = static_cast<std::make_signed_t<T>>(x);
      if (is_signed && value < 0) return static_cast<T>(all ? -1 : value >> y);
      return all ? T{0} : static_cast<T>(x >> y);
    } else {
      return x;
    }
  })(c, types);
}

/// Kernel of a predicate on floats.
template <typename Op>
void predicate(EvalContext& c, Op op) {
  const Tensor in = widen(c.input(0));
  Tensor out(DType::kBool, in.shape());
  uint8_t* o = mutable_elements<uint8_t>(out);
  if (!visit_float(in.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        const T* x = elements<T>(in);
        for (int64_t i = 0; i < in.size(); ++i) o[i] = op(x[i]);
      }))
    unsupported_type(c.node, in.dtype());
  c.outputs[0] = std::move(out);
}

InferFunction bool_like_first(TypeSet set) {
  return [set](InferContext& c) {
    require_type(c.node, c.input(0).dtype, set, "input");
    c.outputs[0] = without_constant(c.input(0), DType::kBool);
  };
}

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
  visit_storage(a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
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

void register_logic(Registry& r) {
  const TypeSet equal_types = kNumeric | kBoolSet | set_of({DType::kString});
  for (int version : {7, 11, 13, 19})
    add(r, "Equal", version, kTwo, broadcast_same(equal_types, DType::kBool),
        comparison([](const auto& a, const auto& b) { return a == b; }));
  for (int version : {7, 9, 13}) {
    add(r, "Less", version, kTwo, broadcast_same(kNumeric, DType::kBool),
        comparison([](const auto& a, const auto& b) { return a < b; }));
    add(r, "Greater", version, kTwo, broadcast_same(kNumeric, DType::kBool),
        comparison([](const auto& a, const auto& b) { return a > b; }));
  }
  for (int version : {12, 16}) {
    add(r, "LessOrEqual", version, kTwo, broadcast_same(kNumeric, DType::kBool),
        comparison([](const auto& a, const auto& b) { return a <= b; }));
    add(r, "GreaterOrEqual", version, kTwo, broadcast_same(kNumeric, DType::kBool),
        comparison([](const auto& a, const auto& b) { return a >= b; }));
  }
  add(r, "And", 7, kTwo, broadcast_same(kBoolSet), boolean([](bool a, bool b) { return a && b; }));
  add(r, "Or", 7, kTwo, broadcast_same(kBoolSet), boolean([](bool a, bool b) { return a || b; }));
  add(r, "Xor", 7, kTwo, broadcast_same(kBoolSet), boolean([](bool a, bool b) { return a != b; }));
  add(r, "Not", 1, kOne, same_as_first(kBoolSet), [](EvalContext& c, const std::vector<TypeInfo>&) {
    Tensor out(DType::kBool, c.input(0).shape());
    const uint8_t* x = elements<uint8_t>(c.input(0));
    uint8_t* y = mutable_elements<uint8_t>(out);
    for (int64_t i = 0; i < out.size(); ++i) y[i] = x[i] == 0;
    c.outputs[0] = std::move(out);
  });
  add(r, "BitwiseAnd", 18, kTwo, broadcast_same(kInts), bitwise([](auto a, auto b) { return a & b; }));
  add(r, "BitwiseOr", 18, kTwo, broadcast_same(kInts), bitwise([](auto a, auto b) { return a | b; }));
  add(r, "BitwiseXor", 18, kTwo, broadcast_same(kInts), bitwise([](auto a, auto b) { return a ^ b; }));
  add(r, "BitwiseNot", 18, kOne, same_as_first(kInts), numeric_unary([](auto x) {
        if constexpr (std::is_integral_v<decltype(x)>)
          return static_cast<decltype(x)>(~static_cast<uint64_t>(x));
        else
          return x;  // inference accepts integers only
      }));
  for (int version : {11, 28}) add(r, "BitShift", version, kTwo, infer_bit_shift, evaluate_bit_shift, {"direction"});
  for (int version : {9, 13, 20})
    add(r, "IsNaN", version, kOne, bool_like_first(kFloats | kFloat8s),
        [](EvalContext& c, const std::vector<TypeInfo>&) { predicate(c, [](auto x) { return std::isnan(x); }); });
  for (int version : {10, 20})
    add(r, "IsInf", version, kOne, bool_like_first(kFloats | kFloat8s),
        [](EvalContext& c, const std::vector<TypeInfo>&) {
          const bool positive = c.node.get_int("detect_positive", 1) != 0,
                     negative = c.node.get_int("detect_negative", 1) != 0;
          predicate(c, [=](auto x) { return std::isinf(x) && (x > 0 ? positive : negative); });
        },
        {"detect_positive", "detect_negative"});
  for (int version : {9, 16}) add(r, "Where", version, {3, 3}, infer_where, evaluate_where);
  for (int version : {1, 13, 14, 16, 19, 21, 23, 24})
    add(
        r, "Identity", version, kOne, [](InferContext& c) { c.outputs[0] = c.inputs.at(0); },
        [](EvalContext& c, const std::vector<TypeInfo>&) { c.outputs[0] = c.inputs.at(0); });
}

}  // namespace tessera::ops
