// SPDX-License-Identifier: Apache-2.0
// Pools, means, softmax.
#include <algorithm>

#include "compiler/litert/build.h"

namespace tessera::litert {
namespace {

Attributes window_of(Op& op) {
  using O = Pool2DOptions;
  require_window(op, op.option(O::filter_height), op.option(O::filter_width));
  return {{"kernel_shape", std::vector<int64_t>{op.option(O::filter_height), op.option(O::filter_width)}},
          {"strides", std::vector<int64_t>{op.option(O::stride_h), op.option(O::stride_w)}},
          {"auto_pad", std::string(op.option(O::padding) == 0 ? "SAME_UPPER" : "VALID")}};
}

Activation activation_of(Op& op) {
  return static_cast<Activation>(op.option(Pool2DOptions::fused_activation_function));
}

void convert_average_pool_2d(Op& op) {
  Attributes attributes = window_of(op);
  if (!op.is_quantised())
    return op.give_real(
        0, op.activate(op.channels_last(op.node("AveragePool", {op.channels_first(op.real(0))}, attributes)),
                       activation_of(op)));
  const IntegerLimits limits = limits_of(op.output(), activation_of(op));
  attributes["low"] = limits.low;
  attributes["high"] = limits.high;
  op.give(0, op.channels_last(op.node("AveragePool", {op.channels_first(op.value(0))}, attributes, kDomain)));
}

void convert_max_pool_2d(Op& op) {
  const Attributes attributes = window_of(op);
  if (!op.is_quantised())
    return op.give_real(0,
                        op.activate(op.channels_last(op.node("MaxPool", {op.channels_first(op.real(0))}, attributes)),
                                    activation_of(op)));
  // ONNX has no maximum of int16; in float32 it is exact.
  const bool wide = op.input(0).type == TensorType::kInt16;
  const Value image = op.channels_first(wide ? op.cast(op.value(0), ops::DType::kFloat) : op.value(0));
  const Value most = op.channels_last(op.node("MaxPool", {image}, attributes));
  const Value pooled = wide ? op.cast(most, ops::DType::kInt16) : most;
  op.give(0, op.limited(pooled, activation_of(op)));
}

/// The axes of a reduction, none negative.
std::vector<int64_t> axes_of(Op& op) {
  std::vector<int64_t> axes = op.integers(1, "the list of axes");
  const auto rank = static_cast<int64_t>(op.input(0).shape.size());
  for (int64_t& axis : axes) {
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank) op.refuse("there is no axis " + std::to_string(axis), ErrorCode::kInvalidModel);
  }
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return axes;
}

void convert_mean(Op& op) {
  std::vector<int64_t> axes = axes_of(op);
  const bool keep = op.option(ReducerOptions::keep_dims), quantised = op.is_quantised();
  const TensorInfo &x = op.input(0), &y = op.output();
  const auto mean = [&](const Value& value, const std::vector<int64_t>& over) {
    const int64_t kept = keep ? 1 : 0;
    if (!quantised) return op.node("ReduceMean", {value, op.ints(over)}, {{"keepdims", kept}});
    return op.node("Mean", {value},
                   {{"axes", over},
                    {"keepdims", kept},
                    {"kernel", std::string(op.kernels() == Kernels::kXnnpack ? "xnnpack" : "reference")},
                    {"x_scale", x.quantisation.scale()},
                    {"x_zero_point", x.quantisation.zero()},
                    {"y_scale", y.quantisation.scale()},
                    {"y_zero_point", y.quantisation.zero()}},
                   kDomain);
  };
  if (quantised && (!x.is_quantised() || x.type != y.type)) op.refuse("operand and result differ in type");
  const Value operand = quantised ? op.value(0) : op.real(0);
  Value result;
  if (axes.empty() && !quantised) {
    result = operand;  // ReduceMean would take all axes
  } else if (x.shape.size() == 4 && axes == std::vector<int64_t>{1, 2}) {
    // Over an image: where the convolution before it has its channels first.
    result = mean(op.channels_first(operand), {2, 3});
    if (keep) result = op.channels_last(result);
  } else {
    result = mean(operand, axes);
  }
  quantised ? op.give(0, result) : op.give_real(0, result);
}

void convert_softmax(Op& op) {
  const float beta = op.option(SoftmaxOptions::beta);
  if (op.is_quantised() && op.output().type == op.input(0).type) {
    // XNNPACK has no kernel for bytes: LiteRT's optimised one runs.
    const bool reference = op.kernels() == Kernels::kReference;
    const Attributes attributes = {{"beta", beta},
                                   {"x_scale", op.input(0).quantisation.scale()},
                                   {"kernel", std::string(reference ? "reference" : "optimised")}};
    return op.give(0, op.node("Softmax", {op.value(0)}, attributes, kDomain));
  }
  Value x = op.real(0);
  if (beta != 1) x = op.node("Mul", {x, op.scalar(ops::DType::kFloat, static_cast<double>(beta))});
  op.give_real(0, op.node("Softmax", {x}, {{"axis", int64_t{-1}}}));
}

}  // namespace

void register_pool(Conversions& conversions) {
  conversions.add(BuiltinOperator::kAveragePool2d, convert_average_pool_2d);
  conversions.add(BuiltinOperator::kMaxPool2d, convert_max_pool_2d);
  conversions.add(BuiltinOperator::kMean, convert_mean);
  conversions.add(BuiltinOperator::kSoftmax, convert_softmax);
}

}  // namespace tessera::litert
