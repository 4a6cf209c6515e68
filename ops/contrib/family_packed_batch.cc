// SPDX-License-Identifier: Apache-2.0
// VarlenCausalConvWithState of com.microsoft: a depthwise convolution over tokens of several requests, one request
// behind another, each of which goes on from the samples that its last call left. Products are summed in fp32, taps in
// ascending order, the bias last.
#include <cmath>

#include "ops/contrib/packed_batch.h"

namespace tessera::ops {

namespace {

namespace packed_batch {

enum Input : size_t { kX, kWeights, kBorders, kBias, kState, kCaptured };

void require_extents(const Node& node, const TypeInfo& t, const Shape& wanted, const char* what) {
  kernel::require_rank(node, t, static_cast<int64_t>(wanted.size()), what);
  if (!t.ranked) return;
  for (size_t d = 0; d < wanted.size(); ++d)
    if (wanted[d] >= 0 && t.shape[d] >= 0 && wanted[d] != t.shape[d])
      node.fail(ErrorCode::kInvalidModel,
                std::string(what) + " " + to_string(t.shape) + " must have shape " + to_string(wanted));
}

/// Results [T,C], the last samples [B,C,(K-1)*dilation], and the first samples of each request [B,capacity,C].
void infer_convolution(InferContext& c) {
  const Node& node = c.node;
  const TypeInfo &x = c.input(kX), &weights = c.input(kWeights), &borders = c.input(kBorders);
  kernel::require_type(node, x.dtype, kernel::set_of({DType::kFloat, DType::kFloat16, DType::kBfloat16}), "the input");
  for (size_t i : {kWeights, kBias, kState})
    if (c.has(i)) kernel::require_same_type(node, x, c.input(i));
  kernel::require_type(node, borders.dtype, kernel::set_of({DType::kInt32}), "cumulative_sequence_length");
  if (c.has(6) || c.has(7))
    node.fail(ErrorCode::kUnsupported,
              "kernel_delta and previous_mask are not served; ONNX Runtime's CPU provider "
              "does not have them either");
  const std::string activation = node.get_string("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish")
    node.fail(ErrorCode::kInvalidModel, "activation '" + activation + "' is none of none, silu and swish");
  const int64_t dilation = node.get_int("dilation", 1), capacity = node.get_int("state_update_capacity", 0);
  if (dilation < 1 || dilation > (int64_t{1} << 20)) node.fail(ErrorCode::kInvalidModel, "dilation must be 1 or more");
  if (capacity < 0 || capacity > 8 || (capacity > 0) != c.has(kCaptured))
    node.fail(ErrorCode::kInvalidModel, "state_update_capacity is 0 to 8, and positive where capture_count is given");
  kernel::require_rank(node, x, 2, "the input");
  kernel::require_rank(node, borders, 1, "cumulative_sequence_length");
  const int64_t channels = x.ranked ? x.shape[1] : -1;
  const int64_t batch = borders.ranked && borders.shape[0] > 0 ? borders.shape[0] - 1 : -1;
  require_extents(node, weights, {channels, 1, -1}, "the weights");
  const int64_t taps = weights.ranked ? weights.shape[2] : -1, kept = taps < 1 ? -1 : (taps - 1) * dilation;
  if (c.has(kBias)) require_extents(node, c.input(kBias), {channels}, "the bias");
  require_extents(node, c.input(kState), {batch, channels, kept}, "initial_state");
  if (c.has(kCaptured)) require_extents(node, c.input(kCaptured), {batch}, "capture_count");
  const Shape shapes[] = {{x.ranked ? x.shape[0] : -1, channels}, {batch, channels, kept}, {batch, capacity, channels}};
  for (size_t i = 0; i < c.outputs.size(); ++i) c.outputs[i] = TypeInfo::tensor(x.dtype, shapes[i]);
}

void evaluate_convolution(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor x = kernel::widen(c.input(kX)), weights = kernel::widen(c.input(kWeights)),
               state = kernel::widen(c.input(kState));
  const int64_t channels = x.shape()[1], taps = weights.shape()[2], dilation = c.node.get_int("dilation", 1),
                kept = (taps - 1) * dilation, capacity = c.node.get_int("state_update_capacity", 0);
  const bool active = c.node.get_string("activation", "none") != "none";
  kernel::require_borders(c.node, c.input(kBorders), x.shape()[0]);
  const std::vector<int64_t> borders = c.input(kBorders).to_int64s();
  const std::vector<float> bias =
      c.has(kBias) ? c.input(kBias).to_floats() : std::vector<float>(static_cast<size_t>(channels), 0.0f);
  const auto batch = static_cast<int64_t>(borders.size()) - 1;
  Tensor y(DType::kFloat, {x.shape()[0], channels}), last(DType::kFloat, {batch, channels, kept}),
      first(DType::kFloat, {batch, capacity, channels});
  const float *in = kernel::elements<float>(x), *w = kernel::elements<float>(weights),
              *before = kernel::elements<float>(state);
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t begin = borders[static_cast<size_t>(b)], count = borders[static_cast<size_t>(b) + 1] - begin;
    const int64_t captured =
        capacity > 0 ? std::clamp<int64_t>(c.input(kCaptured).at_int64(b), 0, std::min(capacity, count)) : 0;
    for (int64_t k = 0; k < captured; ++k)
      std::copy_n(in + (begin + k) * channels, channels,
                  kernel::mutable_elements<float>(first) + (b * capacity + k) * channels);
    for (int64_t channel = 0; channel < channels; ++channel) {
      const int64_t row = (b * channels + channel) * kept;
      const auto sample = [&](int64_t t) {
        return t < 0 ? before[row + kept + t] : in[(begin + t) * channels + channel];
      };
      for (int64_t t = 0; t < count; ++t) {
        float sum = 0;
        for (int64_t k = 0; k < taps; ++k)
          sum = std::fma(sample(t - (taps - 1 - k) * dilation), w[channel * taps + k], sum);
        sum += bias[static_cast<size_t>(channel)];
        kernel::mutable_elements<float>(y)[(begin + t) * channels + channel] =
            active ? sum / (1 + std::exp(-sum)) : sum;
      }
      for (int64_t k = 0; k < kept; ++k) kernel::mutable_elements<float>(last)[row + k] = sample(count - kept + k);
    }
  }
  Tensor* results[] = {&y, &last, &first};
  for (size_t i = 0; i < c.outputs.size(); ++i) c.outputs[i] = kernel::narrow(std::move(*results[i]), types[i].dtype);
}

}  // namespace packed_batch

}  // namespace

void register_packed_batch(Registry& registry) {
  kernel::add(registry, "VarlenCausalConvWithState", 1, {5, 8}, packed_batch::infer_convolution,
              packed_batch::evaluate_convolution,
              {"activation", "delta_offset", "dilation", "group_size", "state_update_capacity"}, {2, 3}, kMicrosoft);
}

}  // namespace tessera::ops
