// SPDX-License-Identifier: Apache-2.0
// Quantised operators whose integers follow formulas of LiteRT's kernels: LogSoftmax and L2Normalization of rows,
// SquaredDifference of two tensors. Domain litert; bytes enter and leave.
#include <cmath>

#include "ops/kernels/elementwise_kernel.h"
#include "ops/litert/litert_root.h"

namespace tessera::ops {

namespace {

using namespace kernel;
using litert::fixed_point;
using litert::FixedPoint;

constexpr TypeSet kBytes = set_of({DType::kInt8, DType::kUint8});

template <typename T>
T saturated(int64_t value) {
  return static_cast<T>(std::clamp<int64_t>(value, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
}

void infer_bytes(InferContext& c) {
  require_type(c.node, c.input(0).dtype, kBytes, "x");
  if (c.input(0).ranked && c.input(0).shape.empty()) c.node.fail(ErrorCode::kInvalidModel, "x must have an axis");
  c.outputs[0] = without_constant(c.input(0));
}

/// Calls f(row of x, row of y, extent of the last axis) for int8 or uint8.
template <typename F>
void for_each_row(EvalContext& c, F f) {
  const Tensor& x = c.input(0);
  Tensor out(x.dtype(), x.shape());
  const int64_t depth = x.shape().back();
  const auto walk = [&]<typename T>(Tag<T>) {
    for (int64_t at = 0; at < x.size(); at += depth) f(elements<T>(x) + at, mutable_elements<T>(out) + at, depth);
  };
  x.dtype() == DType::kInt8 ? walk(Tag<int8_t>{}) : walk(Tag<uint8_t>{});
  c.outputs[0] = std::move(out);
}

/// Along the last axis: exponentials from a table of the distance to the row's maximum, summed in float32 in order.
void evaluate_log_softmax(EvalContext& c, const std::vector<TypeInfo>&) {
  const float x_scale = c.node.get_float("x_scale", 1), y_scale = c.node.get_float("y_scale", 1);
  const int64_t y_zero = c.node.get_int("y_zero_point", 0);
  float table[256];
  for (int i = 0; i < 256; ++i) table[i] = std::exp(-x_scale * static_cast<float>(i));
  for_each_row(c, [&](const auto* x, auto* y, int64_t depth) {
    const int64_t most = *std::max_element(x, x + depth);
    float sum = 0;
    for (int64_t i = 0; i < depth; ++i) sum += table[most - x[i]];
    const float ratio = x_scale / y_scale;
    const float offset = (x_scale * static_cast<float>(most) + std::log(sum)) / y_scale;
    for (int64_t i = 0; i < depth; ++i) {
      const auto steps = static_cast<int64_t>(std::nearbyint(ratio * static_cast<float>(x[i]) - offset));
      y[i] = saturated<std::remove_cvref_t<decltype(y[i])>>(steps + y_zero);
    }
  });
}

/// Along the last axis; the result's scale is 1/128.
void evaluate_l2_normalization(EvalContext& c, const std::vector<TypeInfo>&) {
  const auto zero = static_cast<int32_t>(c.node.get_int("x_zero_point", 0));
  for_each_row(c, [&](const auto* x, auto* y, int64_t depth) {
    using T = std::remove_cvref_t<decltype(y[0])>;
    int32_t squares = 0;
    for (int64_t i = 0; i < depth; ++i) squares += (x[i] - zero) * (x[i] - zero);
    FixedPoint root = litert::inverse_root(squares);
    constexpr bool kSigned = std::is_signed_v<T>;
    if (kSigned) root.shift += 7;
    for (int64_t i = 0; i < depth; ++i) {
      const int32_t steps = x[i] - zero;
      y[i] = saturated<T>(kSigned ? litert::multiply(steps, root) : 128 + litert::multiply(128 * steps, root));
    }
  });
}

void infer_squared_difference(InferContext& c) { broadcast_same(kBytes)(c); }

/// Attributes a_scale, a_zero_point and so on for a, b and the result y.
void evaluate_squared_difference(EvalContext& c, const std::vector<TypeInfo>& types) {
  constexpr int kLeft = 7;
  const auto scale = [&](const char* name) { return static_cast<double>(c.node.get_float(name, 1)); };
  const auto zero = [&](const char* name) { return static_cast<int32_t>(c.node.get_int(name, 0)); };
  const double twice = 2 * std::max(scale("a_scale"), scale("b_scale"));
  const FixedPoint of_a = fixed_point(scale("a_scale") / twice), of_b = fixed_point(scale("b_scale") / twice),
                   of_y = fixed_point(twice * twice / ((1 << (2 * kLeft)) * scale("y_scale")));
  const int32_t a_zero = zero("a_zero_point"), b_zero = zero("b_zero_point"), y_zero = zero("y_zero_point");
  Tensor out(types[0].dtype, types[0].shape);
  const auto compute = [&]<typename T>(Tag<T>) {
    binary_loop(out.shape(), c.input(0).shape(), c.input(1).shape(), elements<T>(c.input(0)), elements<T>(c.input(1)),
                mutable_elements<T>(out), [&](T a, T b) -> T {
                  const int32_t difference = litert::multiply((a - a_zero) * (1 << kLeft), of_a) -
                                             litert::multiply((b - b_zero) * (1 << kLeft), of_b);
                  return saturated<T>(int64_t{litert::multiply(difference * difference, of_y)} + y_zero);
                });
  };
  out.dtype() == DType::kInt8 ? compute(Tag<int8_t>{}) : compute(Tag<uint8_t>{});
  c.outputs[0] = std::move(out);
}

}  // namespace

void register_litert_rows(Registry& r) {
  add(r, "LogSoftmax", 1, kOne, infer_bytes, evaluate_log_softmax, {"x_scale", "y_scale", "y_zero_point"}, kOne,
      kLitert);
  add(r, "L2Normalization", 1, kOne, infer_bytes, evaluate_l2_normalization, {"x_zero_point"}, kOne, kLitert);
  add(r, "SquaredDifference", 1, kTwo, infer_squared_difference, evaluate_squared_difference,
      {"a_scale", "a_zero_point", "b_scale", "b_zero_point", "y_scale", "y_zero_point"}, kOne, kLitert);
}

}  // namespace tessera::ops
