// SPDX-License-Identifier: Apache-2.0
// Products of floats by weights of 8 bits (hybrid, or dynamic quantisation), of domain litert: DynamicQuantize makes
// int8 of each row, the integer product stands between as a standard operator, DynamicScale makes floats of its sums.
// XNNPACK's rows ("xnnpack") have a scale and a zero point, as those of LiteRT's own kernels that are "asymmetric", by
// other arithmetic; "symmetric" rows have a scale alone. The kernels multiply a sum by its scales in different orders.
#include <algorithm>
#include <cmath>

#include "ops/quantized/quantized_math.h"

namespace tessera::ops {
namespace {

using namespace quantized;

/// Rows are indexed by the first `axis` axes.
int64_t rows_of(const Node& node, const Shape& shape) {
  const int64_t axis = node.get_int("axis", 1);
  if (axis < 0 || axis > static_cast<int64_t>(shape.size()))
    node.fail(ErrorCode::kInvalidModel, "attribute 'axis' is " + std::to_string(axis));
  return element_count(Shape(shape.begin(), shape.begin() + axis));
}

struct Row {
  float factor = 1, scale = 1;  // from real numbers to steps, and back
  int32_t zero = 0;
};

Row of_xnnpack(float low, float high) {
  const float least = std::min(low, 0.0F), most = std::max(high, 0.0F);
  Row row;
  row.factor = least == most ? 1.0F : 255.0F / (most - least);
  const float from = least * row.factor, to = most * row.factor;
  const float zero = (-128.0F + from) + (127.0F + to) > 0 ? -128.0F - from : 127.0F - to;
  row.zero = static_cast<int32_t>(std::nearbyint(std::clamp(zero, -128.0F, 127.0F)));
  row.scale = 1.0F / row.factor;
  return row;
}

Row symmetric(float low, float high) {
  const float range = std::max(std::fabs(low), std::fabs(high));
  return range == 0 ? Row{} : Row{127.0F / range, range / 127.0F, 0};
}

Row asymmetric(float low, float high) {
  const float least = std::min(low, 0.0F), most = std::max(high, 0.0F);
  if (least == most) return {};
  const float scale = (most - least) / 255.0F;
  const float zero = std::clamp(-128.0F - least / scale, -128.0F, 127.0F);
  return {1.0F / scale, scale, static_cast<int32_t>(std::round(zero))};
}

/// How a kernel makes int8 of a row.
struct Rounding {
  Row (*row)(float, float);
  float (*whole)(float steps);
  float least;  // that is stored
};

Rounding rounding_of(const Node& node) {
  const std::string kernel = node.get_string("kernel", "xnnpack");
  if (kernel == "xnnpack") return {of_xnnpack, [](float steps) { return std::nearbyint(steps); }, -128};
  const auto away = [](float steps) { return std::round(steps); };
  if (kernel == "symmetric") return {symmetric, away, -127};
  if (kernel == "asymmetric") return {asymmetric, away, -128};
  node.fail(ErrorCode::kInvalidModel, "attribute 'kernel' is '" + kernel + "'");
}

void infer_dynamic_quantize(InferContext& context) {
  expect_dtype(context, 0, {DType::kFloat}, "X");
  const TypeInfo& x = context.input(0);
  Shape rows = {-1};
  if (x.is_static()) rows[0] = rows_of(context.node, x.shape);
  context.outputs[0] = same_shape(x, DType::kInt8);
  if (context.outputs.size() > 1) context.outputs[1] = TypeInfo::tensor(DType::kFloat, rows);
  if (context.outputs.size() > 2) context.outputs[2] = TypeInfo::tensor(DType::kInt8, rows);
}

void evaluate_dynamic_quantize(EvalContext& context) {
  const Node& node = context.node;
  const Tensor& x = context.input(0);
  const int64_t rows = rows_of(node, x.shape());
  const auto each = static_cast<size_t>(rows == 0 ? 0 : x.size() / rows);
  const auto from = x.as<float>();
  const Rounding rounding = rounding_of(node);
  Tensor q(DType::kInt8, x.shape()), scales(DType::kFloat, {rows}), zeros(DType::kInt8, {rows});
  for (size_t r = 0; each > 0 && r < static_cast<size_t>(rows); ++r) {
    const auto part = from.subspan(r * each, each);
    const auto [low, high] = std::minmax_element(part.begin(), part.end());
    const Row row = rounding.row(*low, *high);
    for (size_t i = 0; i < each; ++i) {
      const float whole = rounding.whole(part[i] * row.factor) + static_cast<float>(row.zero);
      q.as_mutable<int8_t>()[r * each + i] = static_cast<int8_t>(std::clamp(whole, rounding.least, 127.0F));
    }
    scales.as_mutable<float>()[r] = row.scale;
    zeros.as_mutable<int8_t>()[r] = static_cast<int8_t>(row.zero);
  }
  context.outputs[0] = std::move(q);
  if (context.outputs.size() > 1) context.outputs[1] = std::move(scales);
  if (context.outputs.size() > 2) context.outputs[2] = std::move(zeros);
}

/// The real number of a sum, of the scales of its row and of its channel's weights, and the bias: "fused" rounds once
/// where it adds, "scales" multiplies the scales, "weights" the sum by that of the weights first. "fours" is "weights",
/// but for the channels behind the last four, which are multiplied by that of the row first.
using Order = float (*)(float sum, float row, float weight, float bias);

float by_row(float sum, float row, float weight, float bias) { return sum * row * weight + bias; }
float by_weights(float sum, float row, float weight, float bias) { return sum * weight * row + bias; }
float by_scales(float sum, float row, float weight, float bias) { return sum * (row * weight) + bias; }
float fused(float sum, float row, float weight, float bias) { return std::fma(sum * row, weight, bias); }

/// The orders of the channels below `whole` and of those from there on.
struct Orders {
  Order first = fused, rest = fused;
  size_t whole = 0;
};

Orders orders_of(const Node& node, size_t channels) {
  const std::string order = node.get_string("order", "fused");
  if (order == "fused") return {};
  if (order == "scales") return {by_scales, by_scales, 0};
  if (order == "weights") return {by_weights, by_weights, 0};
  if (order == "fours") return {by_weights, by_row, channels / 4 * 4};
  node.fail(ErrorCode::kInvalidModel, "attribute 'order' is '" + order + "'");
}

void infer_scale(InferContext& context) {
  expect_dtype(context, 0, {DType::kInt32, DType::kDouble}, "the sums");
  expect_dtype(context, 1, {DType::kFloat}, "the scales of the rows");
  expect_dtype(context, 2, {DType::kInt8}, "the zero points of the rows");
  expect_dtype(context, 3, {DType::kFloat}, "the bias");
  context.outputs[0] = same_shape(context.input(0), DType::kFloat);
}

void evaluate_scale(EvalContext& context) {
  const Node& node = context.node;
  const Tensor& sums = context.input(0);
  const auto scales = context.input(1).as<float>();
  const std::vector<float> weights = node.get_floats("w_scales");
  const std::vector<int64_t> totals = node.get_ints("w_sums");  // of each channel's weights
  const std::vector<float> bias = context.has(3) ? context.input(3).to_floats() : std::vector<float>{};
  const int64_t rank = sums.rank(), axis = normalise_axis(node, node.get_int("channel_axis", 1), rank);
  const auto channels = static_cast<size_t>(sums.shape()[static_cast<size_t>(axis)]);
  size_t inner = 1;
  for (int64_t d = axis + 1; d < rank; ++d) inner *= static_cast<size_t>(sums.shape()[static_cast<size_t>(d)]);
  const auto fits = [&](size_t count) { return count == 1 || count == channels; };
  if (!fits(weights.size()) || (!bias.empty() && bias.size() != channels) ||
      (context.has(2) && totals.size() != channels) || scales.empty() ||
      static_cast<size_t>(sums.size()) % scales.size() != 0)
    node.fail(ErrorCode::kInvalidModel, "scales, bias and sums do not fit together");
  const std::vector<int64_t> values = sums.to_int64s();
  const size_t each = values.size() / scales.size();
  const Orders orders = orders_of(node, channels);
  Tensor y(DType::kFloat, sums.shape());
  auto out = y.as_mutable<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t channel = i / inner % channels, row = i / each;
    int64_t sum = values[i];
    if (context.has(2)) sum -= context.input(2).as<int8_t>()[row] * totals[channel];
    const float weight = weights[weights.size() == 1 ? 0 : channel], add = bias.empty() ? 0.0F : bias[channel];
    const auto real = static_cast<float>(static_cast<int32_t>(sum));
    out[i] = (channel < orders.whole ? orders.first : orders.rest)(real, scales[row], weight, add);
  }
  context.outputs[0] = std::move(y);
}

}  // namespace

void register_litert_dynamic(Registry& registry) {
  kernel::add_operator(registry, "litert", "DynamicQuantize", 1, {1, 1}, infer_dynamic_quantize,
                       evaluate_dynamic_quantize, {"axis", "kernel"}, 4, {1, 3});
  kernel::add_operator(registry, "litert", "DynamicScale", 1, {2, 4}, infer_scale, evaluate_scale,
                       {"channel_axis", "order", "w_scales", "w_sums"}, 8);
}

}  // namespace tessera::ops
