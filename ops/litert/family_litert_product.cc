// SPDX-License-Identifier: Apache-2.0
// Requantise and ConvTransposeInteger of domain litert: sums of products to a quantised type, as the kernels of
// LiteRT's own do it. The products before it are standard operators on integers (ConvInteger, MatMulInteger), or on
// float64, whose sums of 8 by 16 bits are exact. In: int32, int64 or float64 sums, and perhaps a bias for each channel;
// out: uint8, int8 or int16.
#include <algorithm>
#include <cmath>

#include "ops/litert/litert_math.h"
#include "ops/quantized/quantized_math.h"

namespace tessera::ops {
namespace {

using namespace quantized;
using litert::FixedPoint;

DType result_type(const Node& node) {
  const auto to = static_cast<DType>(node.get_int("to", 0));
  if (to != DType::kUint8 && to != DType::kInt8 && to != DType::kInt16)
    node.fail(ErrorCode::kInvalidModel, "attribute 'to' must be uint8, int8 or int16");
  return to;
}

void infer_requantise(InferContext& context) {
  expect_dtype(context, 0, {DType::kInt32, DType::kInt64, DType::kDouble}, "the sums");
  expect_dtype(context, 1, {DType::kInt32, DType::kInt64}, "the bias");
  if (context.node.get_floats("w_scales").empty())
    context.node.fail(ErrorCode::kInvalidModel, "attribute 'w_scales' must hold a scale");
  context.outputs[0] = same_shape(context.input(0), result_type(context.node));
}

/// How one channel's sums are converted.
struct Channel {
  int64_t bias = 0;
  float factor = 0;  // XNNPACK's
  double real = 0;   // of dense layers
  FixedPoint fixed;  // the reference kernel's
};

std::vector<Channel> channels_of(const EvalContext& context) {
  const Node& node = context.node;
  const float x = node.get_float("x_scale", 1), y = node.get_float("y_scale", 1);
  const std::vector<float> scales = node.get_floats("w_scales");
  const std::vector<int64_t> bias = context.has(1) ? context.input(1).to_int64s() : std::vector<int64_t>{};
  if (scales.size() != 1 && !bias.empty() && bias.size() != scales.size())
    node.fail(ErrorCode::kInvalidModel, "there are " + std::to_string(scales.size()) + " scales and " +
                                            std::to_string(bias.size()) + " elements of the bias");
  std::vector<Channel> channels(std::max(scales.size(), bias.size()));
  for (size_t i = 0; i < channels.size(); ++i) {
    const float w = scales[scales.size() == 1 ? 0 : i];
    if (!bias.empty()) channels[i].bias = bias[i];
    channels[i].factor = x * w / y;
    channels[i].real = static_cast<double>(x) * static_cast<double>(w) / static_cast<double>(y);
    // That kernel multiplies the scales in float32 where all channels have one.
    const bool single = node.get_string("kernel", "") == "upwards" && scales.size() == 1;
    channels[i].fixed =
        litert::fixed_point(single ? static_cast<double>(x * w) / static_cast<double>(y) : channels[i].real);
  }
  return channels;
}

/// The arithmetic that the attribute `kernel` names.
int64_t (*conversion(const Node& node))(int64_t sum, const Channel& c) {
  const std::string kernel = node.get_string("kernel", "reference");
  if (kernel == "xnnpack")
    return [](int64_t sum, const Channel& c) {
      return static_cast<int64_t>(std::nearbyint(std::clamp(static_cast<float>(sum) * c.factor, -1e9F, 1e9F)));
    };
  if (kernel == "reference")
    return [](int64_t sum, const Channel& c) { return int64_t{litert::multiply(static_cast<int32_t>(sum), c.fixed)}; };
  if (kernel == "upwards")
    return [](int64_t sum, const Channel& c) {
      return int64_t{litert::multiply_upwards(static_cast<int32_t>(sum), c.fixed)};
    };
  if (kernel == "short")
    return [](int64_t sum, const Channel& c) { return int64_t{litert::multiply_short(sum, c.fixed)}; };
  if (kernel == "real")
    return [](int64_t sum, const Channel& c) {
      return static_cast<int64_t>(std::round(std::clamp(static_cast<double>(sum) * c.real, -1e9, 1e9)));
    };
  node.fail(ErrorCode::kInvalidModel,
            "attribute 'kernel' is '" + kernel + "'; xnnpack, reference, upwards, short and real are known");
}

void evaluate_requantise(EvalContext& context) {
  const Node& node = context.node;
  const Tensor& sums = context.input(0);
  const DType to = result_type(node);
  const std::vector<Channel> channels = channels_of(context);
  const int64_t rank = sums.rank(), axis = rank == 0 ? 0 : normalise_axis(node, node.get_int("axis", 1), rank);
  int64_t inner = 1;
  for (int64_t d = axis + 1; d < rank; ++d) inner *= sums.shape()[static_cast<size_t>(d)];
  const int64_t extent = rank == 0 ? 1 : sums.shape()[static_cast<size_t>(axis)];
  if (channels.size() != 1 && static_cast<int64_t>(channels.size()) != extent)
    node.fail(ErrorCode::kInvalidModel,
              "there are " + std::to_string(channels.size()) + " scales for " + std::to_string(extent) + " channels");
  const int64_t zero = node.get_int("y_zero_point", 0), low = node.get_int("low", 0), high = node.get_int("high", 0);
  const auto convert = conversion(node);
  const std::vector<int64_t> values = sums.to_int64s();
  std::vector<int32_t> out(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t channel = channels.size() == 1 ? 0 : i / static_cast<size_t>(inner) % channels.size();
    const Channel& c = channels[channel];
    const int64_t sum = values[i] + c.bias;
    out[i] = static_cast<int32_t>(std::clamp(convert(sum, c) + zero, low, high));
  }
  context.outputs[0] = from_int32s(to, sums.shape(), out);
}

// --- ConvTransposeInteger: a transposed convolution of bytes, int32 sums; operands and attributes of ConvTranspose

Node in_double(const Node& node) {
  Node inner = node;
  inner.domain = "";
  inner.op_type = "ConvTranspose";
  inner.version = 11;
  inner.attributes.erase("x_zero_point");
  inner.attributes.erase("w_zero_point");
  return inner;
}

void infer_transposed(InferContext& context) {
  std::vector<TypeInfo> inputs = {context.input(0), context.input(1)};
  for (size_t i : {0u, 1u}) {
    expect_dtype(context, i, {DType::kUint8, DType::kInt8}, i == 0 ? "x" : "w");
    inputs[i].dtype = DType::kDouble;
    inputs[i].constant.reset();
  }
  context.outputs[0] = infer(in_double(context.node), inputs).at(0);
  context.outputs[0].dtype = DType::kInt32;
}

void evaluate_transposed(EvalContext& context) {
  std::vector<Value> inputs;
  for (size_t i : {0u, 1u}) {
    const Tensor& from = context.input(i);
    const auto zero = static_cast<double>(context.node.get_int(i == 0 ? "x_zero_point" : "w_zero_point", 0));
    Tensor to(DType::kDouble, from.shape());
    const std::vector<int32_t> integers = to_int32s(from);
    for (size_t k = 0; k < integers.size(); ++k) to.as_mutable<double>()[k] = integers[k] - zero;
    inputs.emplace_back(std::move(to));
  }
  const Tensor sums = evaluate(in_double(context.node), inputs).at(0).tensor;
  Tensor y(DType::kInt32, sums.shape());
  for (size_t k = 0; k < static_cast<size_t>(y.size()); ++k)
    y.as_mutable<int32_t>()[k] = static_cast<int32_t>(static_cast<int64_t>(sums.as<double>()[k]));
  context.outputs[0] = std::move(y);
}

}  // namespace

void register_litert_product(Registry& registry) {
  kernel::add_operator(registry, "litert", "ConvTransposeInteger", 1, {2, 2}, infer_transposed, evaluate_transposed,
                       {"output_padding", "pads", "strides", "w_zero_point", "x_zero_point"}, 16);
  kernel::add_operator(registry, "litert", "Requantise", 1, {1, 2}, infer_requantise, evaluate_requantise,
                       {"axis", "high", "kernel", "low", "to", "w_scales", "x_scale", "y_scale", "y_zero_point"}, 8);
}

}  // namespace tessera::ops
