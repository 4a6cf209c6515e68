// SPDX-License-Identifier: Apache-2.0
// Operators of domain litert that work on single elements of quantised tensors: Lookup, Quantize, Add, Sub, Mul, PRelu.
// Scales, zero points and limits are attributes, because a LiteRT file has them as constants of its tensors. `kernel`
// says whose arithmetic it is: "xnnpack" or "reference" (docs/numerics.md).
#include <algorithm>
#include <cmath>
#include <functional>

#include "ops/litert/litert_math.h"
#include "ops/quantized/quantized_math.h"

namespace tessera::ops {
namespace {

using namespace quantized;
using litert::fixed_point;
using litert::FixedPoint;

const std::vector<DType> kQuantised = {DType::kUint8, DType::kInt8, DType::kInt16};

// --- Lookup: an entry for each bit pattern of the operand, 256 or 65,536 of them

void infer_lookup(InferContext& context) {
  const Tensor* table = context.node.get_tensor("table");
  if (table == nullptr) context.node.fail(ErrorCode::kInvalidModel, "attribute 'table' is missing");
  expect_dtype(context, 0, {DType::kUint8, DType::kInt8, DType::kInt16, DType::kUint16}, "X");
  const DType from = context.input(0).dtype;
  if (from != DType::kUndefined && table->size() != int64_t{1} << (8 * element_bytes(from)))
    context.node.fail(ErrorCode::kInvalidModel, "the table has " + std::to_string(table->size()) + " entries");
  context.outputs[0] = same_shape(context.input(0), table->dtype());
}

template <typename Index, typename Entry>
void look_up(const Tensor& x, const Tensor& table, Tensor& y) {
  const auto from = x.as<Index>();
  const auto entries = table.as<Entry>();
  auto to = y.as_mutable<Entry>();
  for (size_t i = 0; i < from.size(); ++i) to[i] = entries[from[i]];
}

void evaluate_lookup(EvalContext& context) {
  const Tensor& x = context.input(0);
  const Tensor& table = *context.node.get_tensor("table");
  Tensor y(table.dtype(), x.shape());
  const bool wide_index = element_bytes(x.dtype()) == 2;
  switch (element_bytes(table.dtype())) {
    case 1: wide_index ? look_up<uint16_t, uint8_t>(x, table, y) : look_up<uint8_t, uint8_t>(x, table, y); break;
    case 2: wide_index ? look_up<uint16_t, uint16_t>(x, table, y) : look_up<uint8_t, uint16_t>(x, table, y); break;
    case 4: wide_index ? look_up<uint16_t, uint32_t>(x, table, y) : look_up<uint8_t, uint32_t>(x, table, y); break;
    default: context.node.fail(ErrorCode::kInvalidModel, "the table's elements have no size of 1, 2 or 4 bytes");
  }
  context.outputs[0] = std::move(y);
}

// --- Add, Sub, Mul

struct Side {
  float scale;
  int32_t zero;
  Side(const Node& node, const std::string& name)
      : scale(node.get_float(name + "_scale", 1)), zero(static_cast<int32_t>(node.get_int(name + "_zero_point", 0))) {}
};

struct Binary {
  Side a, b, y;
  int64_t low, high;
  explicit Binary(const Node& node)
      : a(node, "a"), b(node, "b"), y(node, "y"), low(node.get_int("low", 0)), high(node.get_int("high", 0)) {}
};

using Formula = std::function<int64_t(int32_t, int32_t)>;  // without the result's zero point

/// XNNPACK: both factors as integers of 20 bits with one shift, one sum, halves upwards.
Formula add_xnnpack(const Binary& p, bool subtract) {
  const float ra = p.a.scale / p.y.scale, rb = p.b.scale / p.y.scale;
  const int exponent = std::ilogb(std::max(ra, rb)), shift = 20 - exponent;
  const auto multiplier = [&](float ratio) { return static_cast<int64_t>(std::nearbyint(std::ldexp(ratio, shift))); };
  const int64_t ma = multiplier(ra), mb = subtract ? -multiplier(rb) : multiplier(rb);
  const int64_t bias = (int64_t{1} << (shift - 1)) - ma * p.a.zero - mb * p.b.zero;
  return [=](int32_t a, int32_t b) { return (bias + a * ma + b * mb) >> shift; };
}

/// The reference kernel: both operands in units of twice the larger scale, with `left` more bits.
Formula add_reference(const Binary& p, bool subtract, int left) {
  const double twice = 2 * std::max(static_cast<double>(p.a.scale), static_cast<double>(p.b.scale));
  const FixedPoint fa = fixed_point(p.a.scale / twice), fb = fixed_point(p.b.scale / twice),
                   fy = fixed_point(twice / (std::ldexp(1.0, left) * p.y.scale));
  return [=, za = p.a.zero, zb = p.b.zero](int32_t a, int32_t b) {
    const int32_t first = litert::multiply((a - za) * (1 << left), fa);
    const int32_t second = litert::multiply((b - zb) * (1 << left), fb);
    return int64_t{litert::multiply(subtract ? first - second : first + second, fy)};
  };
}

Formula mul_xnnpack(const Binary& p) {
  const float factor = p.a.scale * p.b.scale / p.y.scale;
  return [=, za = p.a.zero, zb = p.b.zero](int32_t a, int32_t b) {
    const float value = static_cast<float>((a - za) * (b - zb)) * factor;
    return static_cast<int64_t>(std::nearbyint(std::clamp(value, -1e9F, 1e9F)));
  };
}

Formula mul_reference(const Binary& p) {
  const FixedPoint factor = fixed_point(static_cast<double>(p.a.scale * p.b.scale / p.y.scale));
  return [=, za = p.a.zero, zb = p.b.zero](int32_t a, int32_t b) {
    return int64_t{litert::multiply((a - za) * (b - zb), factor)};
  };
}

/// A slope for what is below the zero point.
Formula prelu(const Binary& p) {
  const FixedPoint above = fixed_point(static_cast<double>(p.a.scale / p.y.scale)),
                   below = fixed_point(static_cast<double>(p.a.scale * p.b.scale / p.y.scale));
  return [=, za = p.a.zero, zb = p.b.zero](int32_t a, int32_t b) {
    return int64_t{a >= za ? litert::multiply(a - za, above) : litert::multiply((a - za) * (b - zb), below)};
  };
}

Formula formula_of(const Node& node, DType dtype) {
  const Binary p(node);
  const bool xnnpack = node.get_string("kernel", "xnnpack") == "xnnpack" && dtype != DType::kInt16;
  if (node.op_type == "PRelu") return prelu(p);
  if (node.op_type == "Mul") return xnnpack ? mul_xnnpack(p) : mul_reference(p);
  const bool subtract = node.op_type == "Sub";
  return xnnpack ? add_xnnpack(p, subtract) : add_reference(p, subtract, dtype == DType::kInt16 ? 15 : 20);
}

void infer_binary(InferContext& context) {
  for (size_t i : {0u, 1u}) expect_dtype(context, i, kQuantised, "an operand");
  const DType dtype = context.input(0).dtype;
  if (dtype != DType::kUndefined) expect_dtype(context, 1, {dtype}, "the second operand");
  for (const char* name : {"a_scale", "b_scale", "y_scale"})
    if (const float scale = context.node.get_float(name, 1); !(scale > 0) || !std::isfinite(scale))
      context.node.fail(ErrorCode::kInvalidModel, "attribute '" + std::string(name) + "' must be positive");
  context.outputs[0] = broadcast_types(context.node, dtype, {&context.input(0), &context.input(1)});
}

void evaluate_binary(EvalContext& context) {
  const Node& node = context.node;
  const Tensor &a = context.input(0), &b = context.input(1);
  const DType dtype = a.dtype();
  const Binary p(node);
  const Formula formula = formula_of(node, dtype);
  const std::vector<int32_t> as = to_int32s(a), bs = to_int32s(b);
  const auto result = [&](int32_t x, int32_t y) {
    return static_cast<int32_t>(std::clamp(formula(x, y) + p.y.zero, p.low, p.high));
  };
  const Shape shape = broadcast_shapes(node, {a.shape(), b.shape()});
  std::vector<int32_t> out(static_cast<size_t>(element_count(shape)));
  kernel::binary_loop(shape, a.shape(), b.shape(), as.data(), bs.data(), out.data(), result);
  context.outputs[0] = from_int32s(dtype, shape, out);
}

// --- Quantize: the reference kernel divides and rounds halves away from zero

void infer_quantize(InferContext& context) {
  expect_dtype(context, 0, {DType::kFloat}, "X");
  const auto to = static_cast<DType>(context.node.get_int("to", 0));
  if (std::find(kQuantised.begin(), kQuantised.end(), to) == kQuantised.end())
    context.node.fail(ErrorCode::kInvalidModel, "attribute 'to' must be uint8, int8 or int16");
  context.outputs[0] = same_shape(context.input(0), to);
}

void evaluate_quantize(EvalContext& context) {
  const Node& node = context.node;
  const auto to = static_cast<DType>(node.get_int("to", 0));
  const Range range = range_of(to);
  const float scale = node.get_float("scale", 1);
  const int64_t zero = node.get_int("zero_point", 0);
  std::vector<int32_t> out;
  for (const float x : context.input(0).as<float>()) {
    const float steps = std::round(x / scale);
    const auto whole = static_cast<int64_t>(std::isnan(steps) ? 0.0F : std::clamp(steps, -1e9F, 1e9F));
    out.push_back(static_cast<int32_t>(std::clamp<int64_t>(whole + zero, range.low, range.high)));
  }
  context.outputs[0] = from_int32s(to, context.input(0).shape(), out);
}

}  // namespace

void register_litert(Registry& registry) {
  kernel::add_operator(registry, "litert", "Lookup", 1, {1, 1}, infer_lookup, evaluate_lookup, {"table"}, 1);
  kernel::add_operator(registry, "litert", "Quantize", 1, {1, 1}, infer_quantize, evaluate_quantize,
                       {"scale", "zero_point", "to"});
  for (const char* name : {"Add", "Sub", "Mul", "PRelu"})
    kernel::add_operator(
        registry, "litert", name, 1, {2, 2}, infer_binary, evaluate_binary,
        {"kernel", "low", "high", "a_scale", "a_zero_point", "b_scale", "b_zero_point", "y_scale", "y_zero_point"});
}

}  // namespace tessera::ops
