// SPDX-License-Identifier: Apache-2.0
// Operators that compute each element by itself: of one tensor, and of two that broadcast. Real numbers are computed in
// float32. Where LiteRT's integers differ from ONNX's (division towards minus infinity, arithmetic shifts), a few
// operators of ONNX say the same.
#include <algorithm>
#include <cmath>

#include "compiler/litert/build.h"
#include "ops/litert/litert_math.h"

namespace tessera::litert {
namespace {

using ops::DType;

/// A real operand that is computed as one; what is no real number stays as it is.
Value operand(Op& op, size_t i) { return is_real(op.input(i)) ? op.real(i) : op.value(i); }

void give(Op& op, const Value& value) { is_real(op.output()) ? op.give_real(0, value) : op.give(0, value); }

/// LiteRT converts quantised operands of these by formulas of its own (convert_table.cc); here are the real ones.
void require_real(Op& op) {
  if (op.input(0).is_quantised())
    op.refuse("this operator is not supported on " + std::string(ops::to_string(op.dtype(0))));
}

Conversion unary(const char* name) {
  return [name](Op& op) { give(op, op.node(name, {operand(op, 0)})); };
}

Conversion clipped(double low, double high) {
  return [low, high](Op& op) {
    const Value least = op.scalar(DType::kFloat, low), most = op.scalar(DType::kFloat, high);
    give(op, op.node("Clip", {operand(op, 0), least, most}));
  };
}

void convert_square(Op& op) {
  const Value x = operand(op, 0);
  give(op, op.node("Mul", {x, x}));
}

void convert_rsqrt(Op& op) { give(op, op.node("Reciprocal", {op.node("Sqrt", {operand(op, 0)})})); }

void convert_gelu(Op& op) {
  const std::string form = op.option(GeluOptions::approximate) ? "tanh" : "none";
  give(op, op.node("Gelu", {operand(op, 0)}, {{"approximate", form}}));
}

/// x / max(|x|, 1e-6) along the last axis.
void convert_l2_normalization(Op& op) {
  const Value x = operand(op, 0);
  const Value length = op.node("ReduceL2", {x, op.ints({-1})}, {{"keepdims", int64_t{1}}});
  const Value y = op.node("Div", {x, op.node("Max", {length, op.scalar(DType::kFloat, 1e-6)})});
  give(op, op.activate(y, static_cast<Activation>(op.option(L2NormOptions::fused_activation_function))));
}

/// ONNX divides alpha by the number of neighbours, LiteRT does not.
void convert_local_response_normalization(Op& op) {
  using O = LocalResponseNormalizationOptions;
  const int64_t size = 2 * int64_t{op.option(O::radius)} + 1;
  if (size < 1 || size > 1 << 20) op.refuse("the radius is no radius", ErrorCode::kInvalidModel);
  const Attributes attributes = {{"size", size},
                                 {"alpha", op.option(O::alpha) * static_cast<float>(size)},
                                 {"beta", op.option(O::beta)},
                                 {"bias", op.option(O::bias)}};
  op.give_real(0, op.channels_last(op.node("LRN", {op.channels_first(op.real(0))}, attributes)));
}

/// The range is moved so that zero is one of its steps.
void convert_fake_quant(Op& op) {
  using O = FakeQuantOptions;
  const float low = op.option(O::min), high = op.option(O::max);
  const int32_t bits = op.option(O::num_bits);
  if (op.option(O::narrow_range) || bits < 2 || bits > 16 || !(low <= 0 && high >= 0 && low < high))
    op.refuse("the range must hold zero, with 2 to 16 bits and without narrow_range");
  const auto least = 0.0F, most = static_cast<float>((1 << bits) - 1);
  const float scale = (high - low) / (most - least), zero = least - low / scale;
  const float moved = zero < least ? least : zero > most ? most : std::round(zero);
  const float from = (least - moved) * scale, to = (most - moved) * scale;
  const auto number = [&](float value) { return op.scalar(DType::kFloat, value); };
  const Value inside = op.node("Clip", {op.real(0), number(from), number(to)});
  const Value steps = op.node("Mul", {op.node("Sub", {inside, number(from)}), number(1.0F / scale)});
  const Value rounded = op.node("Floor", {op.node("Add", {steps, number(0.5F)})});
  op.give_real(0, op.node("Add", {op.node("Mul", {rounded, number(scale)}), number(from)}));
}

/// Real numbers go towards zero, NaN and what lies outside as the machine converts them; anything that is not 0 is
/// true. Of a complex number the real part is taken; a real one gets an imaginary part of zero.
void convert_cast(Op& op) {
  const DType from = op.dtype(0), to = op.output_dtype();
  if (from == to || (from != DType::kComplex64 && to != DType::kComplex64)) return op.give(0, op.cast(op.value(0), to));
  if (from == DType::kComplex64) return op.give(0, op.cast(op.node("Real", {op.value(0)}, {}, kDomain), to));
  op.give(0, op.node("Complex", {op.cast(op.value(0), DType::kFloat)}, {}, kDomain));
}

void convert_bitcast(Op& op) {
  op.give(0, op.node("BitCast", {op.value(0)}, {{"to", static_cast<int64_t>(op.output_dtype())}}, kDomain));
}

void convert_logical_not(Op& op) { op.give(0, op.node("Not", {op.value(0)})); }

// ------------------------------------------------------------------------------------------------- two operands

Conversion binary(const char* name) {
  return [name](Op& op) { give(op, op.node(name, {operand(op, 0), operand(op, 1)})); };
}

template <typename Options>
Activation fused(Op& op) {
  return static_cast<Activation>(op.option(Options::fused_activation_function));
}

void convert_div(Op& op) {
  require_real(op);
  const Value quotient = op.node("Div", {operand(op, 0), operand(op, 1)});
  if (!is_real(op.output())) return op.give(0, quotient);
  op.give_real(0, op.activate(quotient, fused<DivOptions>(op)));
}

/// Integers: the quotient of what the remainder with the divisor's sign leaves.
void convert_floor_div(Op& op) {
  if (is_real(op.input(0)))
    return op.give_real(0, op.node("Floor", {op.node("Div", {operand(op, 0), operand(op, 1)})}));
  const Value a = op.cast(op.value(0), DType::kInt64), b = op.cast(op.value(1), DType::kInt64);
  const Value rest = op.node("Mod", {a, b});
  op.give(0, op.cast(op.node("Div", {op.node("Sub", {a, rest}), b}), op.output_dtype()));
}

/// Real numbers: the remainder of C, plus the divisor where their signs differ.
void convert_floor_mod(Op& op) {
  const Value a = operand(op, 0), b = operand(op, 1);
  if (!is_real(op.input(0))) return op.give(0, op.node("Mod", {a, b}));
  const Value rest = op.node("Mod", {a, b}, {{"fmod", int64_t{1}}}), zero = op.scalar(DType::kFloat, 0);
  const Value differ = op.node("Xor", {op.node("Less", {b, zero}), op.node("Less", {rest, zero})});
  const Value exact = op.node("Equal", {rest, zero});
  op.give_real(0, choose(op, op.node("And", {op.node("Not", {exact}), differ}), op.node("Add", {rest, b}), rest));
}

void convert_squared_difference(Op& op) {
  const Value difference = op.node("Sub", {operand(op, 0), operand(op, 1)});
  give(op, op.node("Mul", {difference, difference}));
}

/// Bytes of one quantisation are compared as they are.
Conversion extremum(const char* name) {
  return [name](Op& op) { op.give(0, op.node(name, {op.value(0), op.value(1)})); };
}

bool same_quantisation(const TensorInfo& a, const TensorInfo& b) {
  return a.quantisation.scales == b.quantisation.scales && a.quantisation.zero_points == b.quantisation.zero_points;
}

/// Bytes as integers of one scale, as LiteRT compares them: 256 times the distance to the zero point, by the tensor's
/// scale in fixed point.
Value scaled(Op& op, size_t i) {
  const Quantisation& q = op.input(i).quantisation;
  if (!q.present() || !q.per_tensor() || ops::element_bytes(op.dtype(i)) != 1)
    op.refuse("operands must be bytes with one scale each", ErrorCode::kInvalidModel);
  const auto factor = ops::litert::fixed_point(static_cast<double>(q.scale()));
  const int64_t least = op.input(i).type == TensorType::kInt8 ? -128 : 0;
  std::vector<int32_t> table;
  for (int64_t integer = least; integer < least + 256; ++integer)
    table.push_back(ops::litert::multiply(static_cast<int32_t>((integer - q.zero()) * 256), factor));
  const Value place =
      op.node("Sub", {op.cast(op.value(i), DType::kInt64), op.scalar(DType::kInt64, static_cast<double>(least))});
  return op.node("Gather", {op.constant(ops::Tensor::of<int32_t>(DType::kInt32, {256}, table)), place});
}

Conversion comparison(const char* name) {
  return [name](Op& op) {
    // Kernels of int16 compare what is stored, whatever its scale.
    const bool as_stored = !op.input(0).is_quantised() || op.input(0).type == TensorType::kInt16 ||
                           same_quantisation(op.input(0), op.input(1));
    const auto side = [&](size_t i) { return as_stored ? op.value(i) : scaled(op, i); };
    const Value a = side(0), b = side(1);
    const std::string wanted = name;
    op.give(0, wanted == "NotEqual" ? op.node("Not", {op.node("Equal", {a, b})}) : op.node(name, {a, b}));
  };
}

Conversion logical(const char* name) {
  return [name](Op& op) { op.give(0, op.node(name, {op.value(0), op.value(1)})); };
}

/// A shift by at least the width is one by all bits but the sign; unsigned numbers and signed ones divide by the power
/// of two, towards minus infinity.
void convert_right_shift(Op& op) {
  const int64_t bits = 8 * ops::element_bytes(op.dtype(0));
  std::vector<int64_t> powers;
  for (int64_t i = 0; i < bits; ++i) powers.push_back(int64_t{1} << i);
  const Value amounts = op.node("Clip", {op.cast(op.value(1), DType::kInt64), op.scalar(DType::kInt64, 0),
                                         op.scalar(DType::kInt64, static_cast<double>(bits - 1))});
  const Value divisor = op.node("Gather", {op.ints(powers), amounts}), x = op.cast(op.value(0), DType::kInt64);
  const Value whole = op.node("Sub", {x, op.node("Mod", {x, divisor})});
  op.give(0, op.cast(op.node("Div", {whole, divisor}), op.output_dtype()));
}

void convert_add_n(Op& op) {
  Value sum = operand(op, 0);
  for (size_t i = 1; i < op.input_count(); ++i) sum = op.node("Add", {sum, operand(op, i)});
  give(op, sum);
}

/// Integers are raised by multiplication; a negative exponent gives 0 where the base is not 1 or -1.
void convert_pow(Op& op) { give(op, op.node("Pow", {operand(op, 0), operand(op, 1)})); }

/// atan(y / x) moved into the right quadrant, with the signs of zeros.
void convert_atan2(Op& op) { op.give(0, op.node("Atan2", {op.value(0), op.value(1)}, {}, kDomain)); }

void convert_select(Op& op) {
  Value condition = op.value(0);
  const size_t rank = op.input(1).shape.size(), own = op.input(0).shape.size();
  // A vector chooses rows.
  if (op.code() == BuiltinOperator::kSelect && own == 1 && rank > 1) {
    std::vector<int64_t> axes;
    for (size_t axis = 1; axis < rank; ++axis) axes.push_back(static_cast<int64_t>(axis));
    condition = unsqueeze(op, condition, axes);
  }
  Value y = choose(op, condition, op.value(1), op.value(2));
  // Of one element each, they choose a scalar whatever their ranks.
  const auto one = [&](size_t i) {
    const ops::Shape& shape = op.input(i).shape;
    return std::all_of(shape.begin(), shape.end(), [](int64_t extent) { return extent == 1; });
  };
  if (op.output().shape.empty() && one(0) && one(1) && one(2)) y = op.reshape(y, {});
  op.give(0, y);
}

}  // namespace

void register_element(Conversions& conversions) {
  using B = BuiltinOperator;
  const auto real_only = [](Conversion conversion) {
    return [conversion = std::move(conversion)](Op& op) {
      require_real(op);
      conversion(op);
    };
  };
  for (const auto& [code, name] : std::initializer_list<std::pair<B, const char*>>{{B::kAbs, "Abs"},
                                                                                   {B::kCeil, "Ceil"},
                                                                                   {B::kFloor, "Floor"},
                                                                                   {B::kRound, "Round"},
                                                                                   {B::kExp, "Exp"},
                                                                                   {B::kLog, "Log"},
                                                                                   {B::kSin, "Sin"},
                                                                                   {B::kCos, "Cos"},
                                                                                   {B::kSqrt, "Sqrt"},
                                                                                   {B::kNeg, "Neg"},
                                                                                   {B::kSign, "Sign"},
                                                                                   {B::kElu, "Elu"}})
    conversions.add(code, real_only(unary(name)));
  conversions.add(B::kRelu0To1, real_only(clipped(0, 1)));
  conversions.add(B::kSquare, real_only(convert_square));
  conversions.add(B::kRsqrt, real_only(convert_rsqrt));
  conversions.add(B::kGelu, real_only(convert_gelu));
  conversions.add(B::kL2Normalization, real_only(convert_l2_normalization));
  conversions.add(B::kLocalResponseNormalization, convert_local_response_normalization);
  conversions.add(B::kFakeQuant, convert_fake_quant);
  conversions.add(B::kCast, convert_cast);
  conversions.add(B::kBitcast, convert_bitcast);
  conversions.add(B::kLogicalNot, convert_logical_not);
  conversions.add(B::kDiv, convert_div);
  conversions.add(B::kFloorDiv, convert_floor_div);
  conversions.add(B::kFloorMod, convert_floor_mod);
  conversions.add(B::kPow, convert_pow);
  conversions.add(B::kAtan2, convert_atan2);
  conversions.add(B::kSquaredDifference, real_only(convert_squared_difference));
  conversions.add(B::kMaximum, extremum("Max"));
  conversions.add(B::kMinimum, extremum("Min"));
  conversions.add(B::kStablehloMaximum, extremum("Max"));
  conversions.add(B::kStablehloMinimum, extremum("Min"));
  conversions.add(B::kStablehloAdd, binary("Add"));
  conversions.add(B::kStablehloMultiply, binary("Mul"));
  conversions.add(B::kEqual, comparison("Equal"));
  conversions.add(B::kNotEqual, comparison("NotEqual"));
  conversions.add(B::kLess, comparison("Less"));
  conversions.add(B::kLessEqual, comparison("LessOrEqual"));
  conversions.add(B::kGreater, comparison("Greater"));
  conversions.add(B::kGreaterEqual, comparison("GreaterOrEqual"));
  conversions.add(B::kLogicalAnd, logical("And"));
  conversions.add(B::kLogicalOr, logical("Or"));
  conversions.add(B::kBitwiseXor, logical("BitwiseXor"));
  conversions.add(B::kRightShift, convert_right_shift);
  conversions.add(B::kAddN, convert_add_n);
  conversions.add(B::kSelect, convert_select);
  conversions.add(B::kSelectV2, convert_select);
}

}  // namespace tessera::litert
