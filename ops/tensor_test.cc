// SPDX-License-Identifier: Apache-2.0
// Tensors, narrow float formats and the entry points of the library. The conversions are compared with a search over
// all codes of a format for the nearest value, which knows nothing of how the conversion works.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/operator.h"

namespace tessera::ops {
namespace {

// ------------------------------------------------------------------------------------------------------ narrow floats

/// Value of an IEEE-like code with the given field widths, from the definition.
double decode(uint32_t bits, int exponent_bits, int mantissa_bits, int bias) {
  const int mantissa = static_cast<int>(bits & ((1u << mantissa_bits) - 1));
  const int exponent = static_cast<int>((bits >> mantissa_bits) & ((1u << exponent_bits) - 1));
  const double sign = (bits >> (exponent_bits + mantissa_bits)) & 1 ? -1.0 : 1.0;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

/// Code among [0, top] whose value is nearest to x >= 0; a tie goes to the even code.
uint32_t nearest(double x, uint32_t top, int exponent_bits, int mantissa_bits, int bias) {
  uint32_t low = 0, high = top;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (decode(middle, exponent_bits, mantissa_bits, bias) <= x ? low : high) = middle;
  }
  const double below = x - decode(low, exponent_bits, mantissa_bits, bias),
               above = decode(high, exponent_bits, mantissa_bits, bias) - x;
  if (below != above) return below < above ? low : high;
  return low % 2 == 0 ? low : high;
}

/// Values at, between and just beside the codes of a format.
template <typename F>
void for_each_probe(uint32_t top, int exponent_bits, int mantissa_bits, int bias, F&& f) {
  for (uint32_t code = 0; code < top; ++code) {
    const double at = decode(code, exponent_bits, mantissa_bits, bias),
                 next = decode(code + 1, exponent_bits, mantissa_bits, bias);
    const auto middle = static_cast<float>((at + next) / 2);
    for (const float probe :
         {static_cast<float>(at), middle, std::nextafterf(middle, 0.0f), std::nextafterf(middle, INFINITY)})
      f(probe);
  }
}

TEST(NarrowFloats, HalfIsNearestEven) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    ASSERT_EQ(half_to_float(static_cast<uint16_t>(bits)), decode(bits, 5, 10, 15));
    ASSERT_EQ(half_to_float(static_cast<uint16_t>(bits | 0x8000)), -decode(bits, 5, 10, 15));
  }
  for_each_probe(0x7bff, 5, 10, 15, [](float x) {
    const uint32_t expected = nearest(x, 0x7bff, 5, 10, 15);
    ASSERT_EQ(float_to_half(x), expected) << x;
    ASSERT_EQ(float_to_half(-x), expected | 0x8000) << x;
  });
  EXPECT_EQ(float_to_half(65519.996f), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_half(-INFINITY), 0xfc00);
  EXPECT_EQ(float_to_half(1e-30f), 0);
  EXPECT_TRUE(std::isinf(half_to_float(0x7c00)));
  EXPECT_TRUE(std::isnan(half_to_float(float_to_half(NAN))));
}

TEST(NarrowFloats, Bfloat16IsNearestEven) {
  for_each_probe(0x7f7f, 8, 7, 127,
                 [](float x) { ASSERT_EQ(float_to_bfloat16(x), nearest(x, 0x7f7f, 8, 7, 127)) << x; });
  EXPECT_EQ(float_to_bfloat16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(NAN))));
  EXPECT_EQ(bfloat16_to_float(0xbf80), -1.0f);
}

struct Float8Case {
  DType dtype;
  int exponent_bits, mantissa_bits, bias;
  uint32_t top;
  double largest;
  uint8_t infinite, too_large;  // non-saturating results for infinity and for overflow
};

TEST(NarrowFloats, Float8IsNearestEvenAndSaturates) {
  const Float8Case cases[] = {
      {DType::kFloat8E4M3FN, 4, 3, 7, 0x7e, 448, 0x7f, 0x7f},
      {DType::kFloat8E4M3FNUZ, 4, 3, 8, 0x7f, 240, 0x80, 0x80},
      {DType::kFloat8E5M2, 5, 2, 15, 0x7b, 57344, 0x7c, 0x7c},
      {DType::kFloat8E5M2FNUZ, 5, 2, 16, 0x7f, 57344, 0x80, 0x80},
  };
  for (const Float8Case& each : cases) {
    EXPECT_EQ(float8_to_float(each.dtype, static_cast<uint8_t>(each.top)), each.largest);
    const bool unsigned_zero = each.infinite == 0x80;
    for (uint32_t bits = 0; bits <= each.top; ++bits) {
      ASSERT_EQ(float8_to_float(each.dtype, static_cast<uint8_t>(bits)),
                decode(bits, each.exponent_bits, each.mantissa_bits, each.bias));
      ASSERT_EQ(float_to_float8(each.dtype, float8_to_float(each.dtype, static_cast<uint8_t>(bits)), true), bits);
    }
    for_each_probe(each.top, each.exponent_bits, each.mantissa_bits, each.bias, [&](float x) {
      const uint32_t expected = nearest(x, each.top, each.exponent_bits, each.mantissa_bits, each.bias);
      ASSERT_EQ(float_to_float8(each.dtype, x, true), expected) << x;
      ASSERT_EQ(float_to_float8(each.dtype, -x, true), expected == 0 && unsigned_zero ? 0 : expected | 0x80) << x;
    });
    const auto beyond = static_cast<float>(each.largest * 2);
    EXPECT_EQ(float_to_float8(each.dtype, beyond, true), each.top);
    EXPECT_EQ(float_to_float8(each.dtype, -beyond, true), each.top | 0x80);
    EXPECT_EQ(float_to_float8(each.dtype, beyond, false), each.too_large);
    EXPECT_EQ(float_to_float8(each.dtype, INFINITY, false), each.infinite);
    EXPECT_TRUE(std::isnan(float8_to_float(each.dtype, float_to_float8(each.dtype, NAN, true))));
  }
}

// ------------------------------------------------------------------------------------------------------------ tensors

TEST(Tensor, SharesUntilWritten) {
  Tensor a = Tensor::vector_i64({1, 2, 3});
  const Tensor b = a;
  EXPECT_EQ(a.data(), b.data());
  a.as_mutable<int64_t>()[0] = 9;
  EXPECT_EQ(b.to_int64s(), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(a.to_int64s(), (std::vector<int64_t>{9, 2, 3}));
  EXPECT_EQ(a.reshaped({3, 1}).shape(), (Shape{3, 1}));
  EXPECT_THROW(a.reshaped({2}), Error);
  EXPECT_THROW(a.bitcast(DType::kFloat), Error);
}

TEST(Tensor, ViewsAndUnalignedMemory) {
  const auto bytes = std::make_shared<std::vector<std::byte>>(13);
  for (size_t i = 0; i < bytes->size(); ++i) (*bytes)[i] = std::byte{static_cast<unsigned char>(i)};
  Tensor aligned = Tensor::view(DType::kInt32, {3}, bytes, bytes->data());
  EXPECT_EQ(aligned.data(), bytes->data());
  EXPECT_EQ(aligned.at_int64(0), 0x03020100);
  EXPECT_EQ(Tensor::view(DType::kInt32, {3}, bytes, bytes->data() + 1).at_int64(0), 0x04030201);
  aligned.as_mutable<int32_t>()[0] = -1;
  EXPECT_EQ((*bytes)[0], std::byte{0});
}

TEST(Tensor, RefusesAbsurdShapes) {
  EXPECT_THROW(Tensor(DType::kFloat, {int64_t{1} << 40}), Error);
  EXPECT_THROW(Tensor(DType::kFloat, {int64_t{1} << 40, int64_t{1} << 40}), Error);
  EXPECT_THROW(Tensor(DType::kFloat, {-1}), Error);
  EXPECT_EQ(Tensor(DType::kFloat, {int64_t{1} << 40, 0}).size(), 0);
  EXPECT_EQ(Tensor(DType::kFloat, {}).size(), 1);
  EXPECT_EQ(to_string(Shape{1, -1, 3}), "[1,?,3]");
}

TEST(Tensor, ConvertsElements) {
  const Tensor half = Tensor::of<uint16_t>(DType::kFloat16, {2}, {0x3c00, 0xc100});
  EXPECT_EQ(half.to_floats(), (std::vector<float>{1.0f, -2.5f}));
  EXPECT_EQ(half.to_int64s(), (std::vector<int64_t>{1, -2}));
  EXPECT_EQ(Tensor::of<int8_t>(DType::kInt4, {2}, {-8, 7}).to_doubles(), (std::vector<double>{-8.0, 7.0}));
  const int64_t large = (int64_t{1} << 53) + 1;
  EXPECT_EQ(Tensor::scalar_i64(large).at_int64(0), large);
  EXPECT_THROW(Tensor(DType::kString, {1}).to_floats(), Error);
  EXPECT_THROW(half.at_double(2), Error);
}

// ----------------------------------------------------------------------------------------------- registry and lookup

OperatorDef named(const std::string& name, int since, int outputs = 1) {
  OperatorDef def;
  def.name = name;
  def.since_version = since;
  def.min_inputs = 1;
  def.max_inputs = 2;
  def.max_outputs = outputs;
  return def;
}

TEST(Registry, FindsTheGreatestVersionNotAbove) {
  Registry registry;
  registry.add(named("Foo", 13));
  registry.add(named("Foo", 7));
  registry.add(named("Bar", 1));
  EXPECT_EQ(registry.find("", "Foo", 6), nullptr);
  EXPECT_EQ(registry.find("", "Foo", 12)->since_version, 7);
  EXPECT_EQ(registry.find("ai.onnx", "Foo", 24)->since_version, 13);
  EXPECT_EQ(registry.find("com.microsoft", "Foo", 24), nullptr);
  EXPECT_EQ(registry.similar("foo"), (std::vector<std::string>{"Foo"}));
  EXPECT_EQ(registry.names(), (std::vector<std::string>{"ai.onnx::Bar", "ai.onnx::Foo"}));
}

Node node(const std::string& op, int version) {
  Node result;
  result.op_type = op;
  result.version = version;
  result.name = "a";
  return result;
}

TEST(Library, FoldsSmallConstants) {
  const TypeInfo a = TypeInfo::of(Tensor::of<float>(DType::kFloat, {1, 2}, {2.0f, 3.0f}));
  const TypeInfo b = TypeInfo::of(Tensor::of<float>(DType::kFloat, {2, 1}, {5.0f, 7.0f}));
  const std::vector<TypeInfo> folded = infer(node("MatMul", 13), {a, b}, true);
  ASSERT_TRUE(folded[0].constant.has_value());
  EXPECT_EQ(folded[0].constant->to_floats(), (std::vector<float>{31.0f}));
  EXPECT_FALSE(infer(node("MatMul", 13), {a, b}, false)[0].constant.has_value());
  EXPECT_FALSE(infer(node("MatMul", 13), {a, TypeInfo::tensor(DType::kFloat, {2, 1})}, true)[0].constant.has_value());
}

TEST(Library, NamesNodeAndCause) {
  const auto message = [](const Node& n, const std::vector<TypeInfo>& inputs) -> std::string {
    try {
      infer(n, inputs);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const TypeInfo x = TypeInfo::tensor(DType::kFloat, {2, 3});
  EXPECT_NE(message(node("MatMull", 13), {x, x})
                .find("node 'a' (MatMull): operator MatMull of opset 13 is not known; did you mean MatMul"),
            std::string::npos);
  EXPECT_NE(message(node("MatMul", 13), {x}).find("has 1 inputs where the operator takes 2"), std::string::npos);
  EXPECT_NE(message(node("MatMul", 13), {x, x}).find("3 columns meet 2 rows"), std::string::npos);
  Node conv = node("Conv", 13);
  conv.attributes["stride"] = std::vector<int64_t>{1};
  EXPECT_NE(message(conv, {x, x}).find("attribute 'stride' is not known"), std::string::npos);
  conv.attributes = {{"group", 1.0f}};
  EXPECT_NE(message(conv, {x, x}).find("attribute 'group' must be an integer"), std::string::npos);
}

TEST(Library, BroadcastsTypes) {
  const Node n = node("Add", 13);
  const auto type = [](Shape shape) { return TypeInfo::tensor(DType::kFloat, std::move(shape)); };
  const TypeInfo a = type({-1, 1, 4}), b = type({5, -1});
  EXPECT_EQ(broadcast_types(n, DType::kBool, {&a, &b}).shape, (Shape{-1, 5, 4}));
  const TypeInfo c = type({3, 4}), d = type({2, 4});
  EXPECT_THROW(broadcast_types(n, DType::kFloat, {&c, &d}), Error);
  EXPECT_EQ(broadcast_shapes(n, {{2, 1}, {3}, {}}), (Shape{2, 3}));
  EXPECT_EQ(broadcast_strides({2, 1, 3}, {4, 2, 5, 3}), (std::vector<int64_t>{0, 3, 0, 1}));
  EXPECT_EQ(normalise_axis(n, -1, 3), 2);
  EXPECT_THROW(normalise_axis(n, 3, 3), Error);
}

}  // namespace
}  // namespace tessera::ops
