// SPDX-License-Identifier: Apache-2.0
// Operators of domain litert that sum quantised elements: AveragePool (channels first), Mean, Softmax. The kernels of
// LiteRT compute them on integers; Mean has XNNPACK's float factor or the reference kernel's multiplier.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "ops/kernels/reduction.h"
#include "ops/kernels/window.h"
#include "ops/litert/litert_math.h"
#include "ops/quantized/quantized_math.h"

namespace tessera::ops {
namespace {

using namespace quantized;
using litert::divide_by_power;
using litert::doubling_high_product;
using litert::fixed_point;
using litert::FixedPoint;

const std::vector<DType> kPoolQuantised = {DType::kUint8, DType::kInt8, DType::kInt16};

// --- AveragePool: the sum of what lies inside, divided by its number, halves away from zero; x and y share parameters

void infer_average_pool(InferContext& context) {
  const Node& node = context.node;
  expect_dtype(context, 0, kPoolQuantised, "X");
  const TypeInfo& x = context.input(0);
  TypeInfo result = same_shape(x, x.dtype);
  if (result.ranked) {
    const Shape extents = pooling_window(node, spatial_extents(node, x.shape)).output;
    std::copy(extents.begin(), extents.end(), result.shape.begin() + 2);
  }
  context.outputs[0] = result;
}

int32_t divide_away(int32_t sum, int32_t count) {
  return sum >= 0 ? (sum + count / 2) / count : -((-sum + count / 2) / count);
}

void evaluate_average_pool(EvalContext& context) {
  const Node& node = context.node;
  const Tensor& x = context.input(0);
  const Window window = pooling_window(node, spatial_extents(node, x.shape()));
  Shape shape = x.shape();
  std::copy(window.output.begin(), window.output.end(), shape.begin() + 2);
  const int64_t low = node.get_int("low", 0), high = node.get_int("high", 0);
  const std::vector<int32_t> from = to_int32s(x);
  std::vector<int32_t> to(static_cast<size_t>(element_count(shape)));
  fold_windows(window, shape[0] * shape[1], from.data(), to.data(), [](int32_t& sum, int32_t v) { sum += v; });
  const std::vector<int64_t> counts = tap_counts(window, false);
  for (size_t i = 0; i < to.size(); ++i) {
    const auto count = static_cast<int32_t>(counts[i % counts.size()]);
    if (count == 0) node.fail(ErrorCode::kInvalidModel, "a window lies outside of the image");
    to[i] = static_cast<int32_t>(std::clamp<int64_t>(divide_away(to[i], count), low, high));
  }
  context.outputs[0] = from_int32s(x.dtype(), shape, to);
}

// --- Mean

ReducedAxes reduced_axes(const Node& node, size_t rank) {
  return ReducedAxes(node, node.get_ints("axes"), rank, /*all_without_any=*/false);
}

void infer_mean(InferContext& context) {
  const Node& node = context.node;
  expect_dtype(context, 0, kPoolQuantised, "X");
  const TypeInfo& x = context.input(0);
  TypeInfo result = TypeInfo::unranked(x.dtype);
  if (x.ranked)
    result =
        TypeInfo::tensor(x.dtype, reduced_axes(node, x.shape.size()).result(x.shape, node.get_int("keepdims", 1) != 0));
  context.outputs[0] = result;
}

void evaluate_mean(EvalContext& context) {
  const Node& node = context.node;
  const Tensor& x = context.input(0);
  const ReducedAxes axes = reduced_axes(node, x.shape().size());
  const Shape result = axes.result(x.shape(), node.get_int("keepdims", 1) != 0);
  const int64_t count = axes.count(x.shape());
  if (count == 0) node.fail(ErrorCode::kInvalidModel, "a mean of no element");
  const auto x_zero = static_cast<int32_t>(node.get_int("x_zero_point", 0)),
             y_zero = static_cast<int32_t>(node.get_int("y_zero_point", 0));
  std::vector<int64_t> sums(static_cast<size_t>(element_count(result)));
  const std::vector<int32_t> from = to_int32s(x);
  accumulate(x.shape(), axes, from.data(), sums.data(), [&](int64_t& sum, int32_t v) { sum += v - x_zero; });
  const float ratio = node.get_float("x_scale", 1) / node.get_float("y_scale", 1);
  const bool xnnpack = node.get_string("kernel", "xnnpack") == "xnnpack" && x.dtype() != DType::kInt16;
  const FixedPoint factor = litert::mean_factor(ratio, count);
  const litert::FloatMean real = litert::float_mean(ratio, count, x_zero, y_zero);
  const Range range = range_of(x.dtype());
  std::vector<int32_t> to;
  to.reserve(sums.size());
  for (const int64_t sum : sums) {
    const auto wrapped = static_cast<int32_t>(sum);
    const int64_t value = int64_t{litert::multiply(wrapped, factor)} + y_zero;
    to.push_back(xnnpack ? litert::mean_in_float(sum + count * x_zero, real, range.low, range.high)
                         : static_cast<int32_t>(std::clamp<int64_t>(value, range.low, range.high)));
  }
  context.outputs[0] = from_int32s(x.dtype(), result, to);
}

// --- Softmax along the last axis: of bytes with exponential and reciprocal in fixed point

/// Fixed point of 32 bits; the names say how many integer bits a number has.
using Raw = int32_t;

Raw doubled(Raw x, int exponent) {
  return static_cast<Raw>(std::clamp(static_cast<int64_t>(x) << exponent, int64_t{INT32_MIN}, int64_t{INT32_MAX}));
}

/// exp(a) for a in [-1/4, 0), no integer bits: the series around -1/8.
Raw exponential_near_zero(Raw a) {
  constexpr Raw kExpEighth = 1895147668, kThird = 715827883;
  const Raw x = a + (1 << 28), x2 = doubling_high_product(x, x), x3 = doubling_high_product(x2, x),
            x4 = doubling_high_product(x2, x2);
  const Raw tail = divide_by_power(doubling_high_product(divide_by_power(x4, 2) + x3, kThird) + x2, 1);
  return kExpEighth + doubling_high_product(kExpEighth, x + tail);
}

/// exp(a) for a <= 0 with five integer bits; the result has none.
Raw exponential(Raw a) {
  if (a == 0) return INT32_MAX;
  constexpr Raw kQuarter = 1 << 24;                                                                  // 26 fraction bits
  constexpr Raw kFactors[] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};  // exp(-2^i)
  const Raw in_quarter = (a & (kQuarter - 1)) - kQuarter, rest = in_quarter - a;
  Raw result = exponential_near_zero(doubled(in_quarter, 5));
  for (int i = 0; i < 7; ++i)
    if ((rest & (1 << (24 + i))) != 0) result = doubling_high_product(result, kFactors[i]);
  return result;
}

/// 1 / (1 + x) for x in [0, 1), no integer bits: three steps of Newton's method.
Raw reciprocal_of_one_plus(Raw x) {
  constexpr Raw k48Over17 = 1515870810, kMinus32Over17 = -1010580540, kOne = 1 << 29;  // two integer bits
  const auto half = static_cast<Raw>((static_cast<int64_t>(x) + INT32_MAX + 1) / 2);
  Raw y = k48Over17 + doubling_high_product(half, kMinus32Over17);
  for (int i = 0; i < 3; ++i) y += doubled(doubling_high_product(y, kOne - doubling_high_product(half, y)), 2);
  return doubled(y, 1);
}

void infer_softmax(InferContext& context) {
  expect_dtype(context, 0, kPoolQuantised, "X");
  context.outputs[0] = same_shape(context.input(0), context.input(0).dtype);
}

// Softmax of int16: two tables of 513 entries, between which is interpolated.

using Curve = std::array<int16_t, 513>;

/// `function` on [low, high], results in [-1, 1] as int16. Entries are shifted by half the error of the interpolation
/// in the middle of two.
Curve curve_of(double (*function)(double), double low, double high) {
  const auto sample = [&](double at) { return function(at) * 32768.0; };
  const double step = (high - low) / 512;
  const auto limited = [](double value) { return static_cast<int16_t>(std::clamp(value, -32768.0, 32767.0)); };
  Curve curve;
  for (int i = 0; i < 512; ++i) {
    const double at = low + i * step, here = std::round(sample(at));
    const double middle = std::round((sample(at + step) + here) / 2), wanted = std::round(sample(at + step / 2));
    curve[static_cast<size_t>(i)] = limited(here - std::round((middle - wanted) / 2));
  }
  curve[512] = limited(std::round(sample(high)));
  return curve;
}

int32_t interpolated(const Curve& curve, int32_t value) {
  const auto index = static_cast<size_t>(256 + (value >> 7));
  return curve[index] + (((curve[index + 1] - curve[index]) * (value & 127) + 64) >> 7);
}

void evaluate_wide_softmax(EvalContext& context) {
  static const Curve exponentials = curve_of([](double x) { return std::exp(x); }, -10, 0);
  static const Curve reciprocals = curve_of([](double x) { return 1 / (1 + x); }, 0, 1);
  const Node& node = context.node;
  const Tensor& x = context.input(0);
  const FixedPoint factor = fixed_point(static_cast<double>(node.get_float("x_scale", 1)) *
                                        static_cast<double>(node.get_float("beta", 1)) / (10.0 / 65535.0));
  const auto extent = static_cast<size_t>(x.shape().back());
  const std::vector<int32_t> from = to_int32s(x);
  std::vector<int32_t> to(from.size());
  for (size_t row = 0; extent > 0 && row < from.size(); row += extent) {
    const int32_t most = *std::max_element(from.begin() + static_cast<std::ptrdiff_t>(row),
                                           from.begin() + static_cast<std::ptrdiff_t>(row + extent));
    int32_t sum = 0;
    for (size_t i = row; i < row + extent; ++i) {
      const int64_t scaled = int64_t{litert::multiply(from[i] - most, factor)} + 32767;
      to[i] = interpolated(exponentials, static_cast<int32_t>(std::clamp<int64_t>(scaled, -32768, 32767)));
      sum += to[i];
    }
    const int headroom = std::countl_zero(static_cast<uint32_t>(sum)) + 1;
    const auto above = static_cast<int32_t>(((static_cast<int64_t>(sum) << (headroom - 2)) + (1 << 13)) >> 14);
    const int32_t reciprocal = interpolated(reciprocals, std::clamp(above - (1 << 15) - (1 << 16), -32768, 32767));
    const int shift = 31 - (headroom - 1);
    for (size_t i = row; i < row + extent; ++i)
      to[i] = static_cast<int32_t>(
          std::clamp<int64_t>((int64_t{to[i]} * reciprocal + (int64_t{1} << (shift - 1))) >> shift, 0, 32767));
  }
  context.outputs[0] = from_int32s(x.dtype(), x.shape(), to);
}

/// The optimised kernel: exponentials in float32 by the distance to the row's maximum, summed in order, times one
/// factor for the row. A half goes up.
void evaluate_softmax_in_float(EvalContext& context) {
  const Tensor& x = context.input(0);
  const float step = -context.node.get_float("x_scale", 1) * context.node.get_float("beta", 1);
  std::array<float, 256> table;
  for (size_t i = 0; i < table.size(); ++i) table[i] = std::exp(step * static_cast<float>(i));
  const Range range = range_of(x.dtype());
  const auto extent = static_cast<size_t>(x.shape().back());
  const std::vector<int32_t> from = to_int32s(x);
  std::vector<int32_t> to(from.size());
  for (size_t row = 0; extent > 0 && row < from.size(); row += extent) {
    const auto first = from.begin() + static_cast<std::ptrdiff_t>(row),
               end = first + static_cast<std::ptrdiff_t>(extent);
    const int32_t most = *std::max_element(first, end);
    float sum = 0;
    for (auto at = first; at < end; ++at) sum += table[static_cast<size_t>(most - *at)];
    const float factor = 1.0F / (sum * (1.0F / 256.0F));
    for (size_t i = row; i < row + extent; ++i) {
      const float value = table[static_cast<size_t>(most - from[i])] * factor;
      const auto whole = static_cast<int32_t>(x.dtype() == DType::kUint8 ? value + 0.5F : std::round(value));
      to[i] = std::clamp(whole + range.low, range.low, range.high);
    }
  }
  context.outputs[0] = from_int32s(x.dtype(), x.shape(), to);
}

void evaluate_softmax(EvalContext& context) {
  const Node& node = context.node;
  const Tensor& x = context.input(0);
  if (x.rank() == 0) node.fail(ErrorCode::kInvalidModel, "X must have an axis");
  if (x.dtype() == DType::kInt16) return evaluate_wide_softmax(context);
  if (node.get_string("kernel", "reference") == "optimised") return evaluate_softmax_in_float(context);
  const double real = static_cast<double>(node.get_float("beta", 1)) *
                      static_cast<double>(node.get_float("x_scale", 1)) * static_cast<double>(1 << 26);
  const FixedPoint factor = fixed_point(std::min(real, 2147483647.0));
  const int left = std::max(factor.shift, 0);
  const auto least = -static_cast<int32_t>(std::floor(31.0 * static_cast<double>(1 << 26) / std::ldexp(1.0, left)));
  const Range range = range_of(x.dtype());
  const auto scaled = [&](int32_t difference) {
    return doubling_high_product(static_cast<Raw>(static_cast<uint32_t>(difference) << left), factor.multiplier);
  };
  const int64_t extent = x.shape().back();
  const std::vector<int32_t> from = to_int32s(x);
  std::vector<int32_t> to(from.size(), range.low);
  for (size_t row = 0; extent > 0 && row < from.size(); row += static_cast<size_t>(extent)) {
    const auto first = from.begin() + static_cast<std::ptrdiff_t>(row), end = first + extent;
    const int32_t most = *std::max_element(first, end);
    Raw sum = 0;  // twelve integer bits
    for (auto at = first; at < end; ++at)
      if (*at - most >= least) sum += divide_by_power(exponential(scaled(*at - most)), 12);
    const int headroom = std::countl_zero(static_cast<uint32_t>(sum));
    const auto above = static_cast<Raw>((static_cast<uint32_t>(sum) << headroom) - (1U << 31));
    const Raw reciprocal = reciprocal_of_one_plus(above);
    for (int64_t i = 0; i < extent; ++i) {
      const int32_t difference = from[row + static_cast<size_t>(i)] - most;
      if (difference < least) continue;
      const Raw value =
          divide_by_power(doubling_high_product(reciprocal, exponential(scaled(difference))), 12 - headroom + 31 - 8);
      to[row + static_cast<size_t>(i)] = std::clamp(value + range.low, range.low, range.high);
    }
  }
  context.outputs[0] = from_int32s(x.dtype(), x.shape(), to);
}

}  // namespace

void register_litert_pool(Registry& registry) {
  const auto add = [&](const char* name, InferFunction infer, EvalFunction evaluate, std::set<std::string> attributes) {
    kernel::add_operator(registry, "litert", name, 1, {1, 1}, std::move(infer), std::move(evaluate),
                         std::move(attributes));
  };
  add("AveragePool", infer_average_pool, evaluate_average_pool, {"kernel_shape", "strides", "auto_pad", "low", "high"});
  add("Mean", infer_mean, evaluate_mean,
      {"axes", "keepdims", "kernel", "x_scale", "x_zero_point", "y_scale", "y_zero_point"});
  add("Softmax", infer_softmax, evaluate_softmax, {"beta", "x_scale", "kernel"});
}

}  // namespace tessera::ops
