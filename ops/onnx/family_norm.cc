// SPDX-License-Identifier: Apache-2.0
// Normalisations: batch (inference and training results), instance, group, layer, RMS, local response, Lp,
// mean-variance; and Dropout, which does nothing in inference. fp16 and bfloat16 are computed in fp32 and rounded once
// at each result; float64 in float64 whatever stash_type says.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "ops/kernels/normalization.h"
#include "ops/kernels/product.h"

namespace tessera::ops {

namespace {

using kernel::elements;
using kernel::mutable_elements;

bool differ(int64_t a, int64_t b) { return a >= 0 && b >= 0 && a != b; }

/// Fails unless input i is 1-D with as many elements as x has channels (dimension 1).
void require_per_channel(const InferContext& c, size_t i, const char* what, int64_t count) {
  if (!c.has(i) || !c.input(i).ranked) return;
  const Shape& shape = c.input(i).shape;
  if (shape.size() != 1 || differ(shape[0], count))
    c.node.fail(ErrorCode::kInvalidModel, std::string(what) + " " + to_string(shape) +
                                              " must have one element for each of " + std::to_string(count) +
                                              " channels");
}

void require_minimum_rank(const Node& node, const TypeInfo& x, size_t rank) {
  if (x.ranked && x.shape.size() < rank)
    node.fail(ErrorCode::kInvalidModel,
              "the input " + to_string(x.shape) + " must have at least rank " + std::to_string(rank));
}

/// The type of a tensor that every element of x maps to.
void like_first(InferContext& c) {
  kernel::require_type(c.node, c.input(0).dtype, kernel::kFloats, "the input");
  c.outputs[0] = kernel::without_constant(c.input(0));
}

/// A float tensor in another float type, rounded once.
Tensor converted(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  if (x.dtype() == DType::kFloat && dtype != DType::kDouble) return kernel::narrow(x, dtype);
  Tensor result(dtype == DType::kDouble ? DType::kDouble : DType::kFloat, x.shape());
  const std::vector<double> values = x.to_doubles();
  kernel::visit_float(result.dtype(), [&]<typename T>(kernel::Tag<T>) {
    std::transform(values.begin(), values.end(), mutable_elements<T>(result),
                   [](double value) { return static_cast<T>(value); });
  });
  return kernel::narrow(result, dtype);
}

// ----------------------------------------------------------------------------------------------- BatchNormalization

/// Statistics for each channel, or with spatial = 0 (up to opset 8) for each position of an image.
bool per_channel(const Node& node) { return node.version >= 9 || node.get_int("spatial", 1) != 0; }

bool training(const Node& node) {
  return node.version >= 14 ? node.get_int("training_mode", 0) != 0 : node.output_count > 1;
}

void infer_batch_norm(InferContext& c) {
  like_first(c);
  const TypeInfo& x = c.input(0);
  Shape statistics = {-1};
  require_minimum_rank(c.node, x, 1);
  if (x.ranked) {
    if (per_channel(c.node))
      statistics = {x.shape.size() > 1 ? x.shape[1] : 1};
    else
      statistics = Shape(x.shape.begin() + 1, x.shape.end());
  }
  for (size_t i = 1; i < 5; ++i) {
    kernel::require_type(c.node, c.input(i).dtype, kernel::kFloats, "a parameter");
    if (per_channel(c.node)) {
      require_per_channel(c, i, "parameter", statistics[0]);
    } else if (c.input(i).ranked && x.ranked) {
      const Shape& shape = c.input(i).shape;
      bool same = shape.size() == statistics.size();
      for (size_t d = 0; same && d < shape.size(); ++d) same = !differ(shape[d], statistics[d]);
      if (!same)
        c.node.fail(ErrorCode::kInvalidModel,
                    "parameter " + to_string(shape) + " must have shape " + to_string(statistics));
    }
  }
  if (c.node.version >= 14 && (c.node.get_int("training_mode", 0) != 0) != (c.outputs.size() > 1))
    c.node.fail(ErrorCode::kInvalidModel, "training_mode goes with three results, inference with one");
  for (size_t i = 1; i < c.outputs.size(); ++i)
    c.outputs[i] = per_channel(c.node) || x.ranked ? TypeInfo::tensor(c.input(3).dtype, statistics)
                                                   : TypeInfo::unranked(c.input(3).dtype);
}

template <typename T>
void batch_norm(EvalContext& c, const Tensor& x, const std::vector<Tensor>& parameters, Tensor& y,
                std::vector<Tensor>& statistics) {
  const int64_t batch = x.shape()[0];
  const int64_t channels =
      per_channel(c.node) ? (x.rank() > 1 ? x.shape()[1] : 1) : x.size() / std::max<int64_t>(batch, 1);
  const int64_t plane = batch * channels == 0 ? 0 : x.size() / (batch * channels);
  const T epsilon = static_cast<T>(c.node.get_float("epsilon", 1e-5f)),
          momentum = static_cast<T>(c.node.get_float("momentum", 0.9f));
  const bool train = training(c.node);
  const T* in = elements<T>(x);
  T* out = mutable_elements<T>(y);
  for (int64_t channel = 0; channel < channels; ++channel) {
    T mean = elements<T>(parameters[2])[channel], variance = elements<T>(parameters[3])[channel];
    if (train) {
      std::vector<T> values;
      values.reserve(static_cast<size_t>(batch * plane));
      for (int64_t n = 0; n < batch; ++n) {
        const T* row = in + (n * channels + channel) * plane;
        values.insert(values.end(), row, row + plane);
      }
      const Moments<T> now = moments<T>(values);
      const T running_mean = mean * momentum + now.mean * (T{1} - momentum);
      const T running_variance = variance * momentum + now.variance * (T{1} - momentum);
      mutable_elements<T>(statistics[0])[channel] = running_mean;
      mutable_elements<T>(statistics[1])[channel] = running_variance;
      mutable_elements<T>(statistics[2])[channel] = mean = now.mean;
      mutable_elements<T>(statistics[3])[channel] = variance = now.variance;
    }
    // One factor and one addend for a channel, as the CPU provider folds them.
    const T factor = elements<T>(parameters[0])[channel] * (T{1} / std::sqrt(variance + epsilon));
    const T addend = elements<T>(parameters[1])[channel] - mean * factor;
    for (int64_t n = 0; n < batch; ++n) {
      const int64_t at = (n * channels + channel) * plane;
      for (int64_t i = at; i < at + plane; ++i) out[i] = in[i] * factor + addend;
    }
  }
}

void evaluate_batch_norm(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor x = kernel::widen(c.input(0));
  std::vector<Tensor> parameters, statistics;
  for (size_t i = 1; i < 5; ++i) parameters.push_back(converted(c.input(i), x.dtype()));
  for (int i = 0; i < 4; ++i) statistics.emplace_back(x.dtype(), parameters[0].shape());
  Tensor y(x.dtype(), types[0].shape);
  kernel::visit_float(x.dtype(), [&]<typename T>(kernel::Tag<T>) { batch_norm<T>(c, x, parameters, y, statistics); });
  c.outputs[0] = kernel::narrow(y, types[0].dtype);
  for (size_t i = 1; i < c.outputs.size(); ++i) c.outputs[i] = converted(statistics[i - 1], types[i].dtype);
}

// ------------------------------------------------------------------------------------------ Instance- and GroupNorm

void infer_instance_norm(InferContext& c) {
  like_first(c);
  require_minimum_rank(c.node, c.input(0), 3);
  for (size_t i = 1; i < 3; ++i) {
    kernel::require_same_type(c.node, c.input(0), c.input(i));
    require_per_channel(c, i, "parameter", c.input(0).ranked ? c.input(0).shape[1] : -1);
  }
}

void infer_group_norm(InferContext& c) {
  like_first(c);
  const TypeInfo& x = c.input(0);
  require_minimum_rank(c.node, x, 2);
  const int64_t groups = c.node.get_int("num_groups", 0);
  if (groups < 1) c.node.fail(ErrorCode::kInvalidModel, "num_groups must be at least 1");
  const int64_t channels = x.ranked ? x.shape[1] : -1;
  if (channels >= 0 && channels % groups != 0)
    c.node.fail(ErrorCode::kInvalidModel,
                std::to_string(channels) + " channels do not divide into " + std::to_string(groups) + " groups");
  for (size_t i = 1; i < 3; ++i) {
    kernel::require_same_type(c.node, x, c.input(i));
    if (!c.has(i) || !c.input(i).ranked) continue;
    // Scale and bias belong to groups up to opset 20, to channels from 21 on. ONNX Runtime takes one for all, too.
    const Shape& shape = c.input(i).shape;
    const bool of_channels = c.node.version >= 21;
    if (shape.size() != 1 || (shape[0] != 1 && differ(shape[0], of_channels ? channels : groups)))
      c.node.fail(ErrorCode::kInvalidModel, "parameter " + to_string(shape) +
                                                " must have one element, or one for each of " +
                                                (of_channels ? std::to_string(channels) + " channels, as of opset 21"
                                                             : std::to_string(groups) + " groups, as before opset 21"));
  }
}

/// Normalises each of `groups` runs of channels; scale and bias each have one element for each channel or for each
/// group, or one for all.
Tensor group_normalize(const Tensor& x, int64_t groups, float epsilon, const Tensor& scale, const Tensor& bias) {
  Tensor y(x.dtype(), x.shape());
  if (x.size() == 0) return y;
  const int64_t channels = x.shape()[1], per_group = channels / groups;
  const int64_t plane = kernel::product(x.shape(), 2, x.shape().size());
  kernel::visit_float(x.dtype(), [&]<typename T>(kernel::Tag<T>) {
    T* out = mutable_elements<T>(y);
    for (int64_t run = 0; run < x.shape()[0] * groups; ++run) {
      const std::span<const T> values(elements<T>(x) + run * per_group * plane, static_cast<size_t>(per_group * plane));
      const Moments<T> m = moments(values);
      const T inverse = T{1} / std::sqrt(m.variance + static_cast<T>(epsilon));
      for (int64_t i = 0; i < per_group * plane; ++i) {
        const int64_t group = run % groups;
        const auto of = [&](const Tensor& parameter) {
          if (parameter.size() == 1) return elements<T>(parameter)[0];
          return elements<T>(parameter)[parameter.size() == channels ? group * per_group + i / plane : group];
        };
        out[run * per_group * plane + i] = (values[static_cast<size_t>(i)] - m.mean) * inverse * of(scale) + of(bias);
      }
    }
  });
  return y;
}

void evaluate_instance_norm(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor x = kernel::widen(c.input(0));
  c.outputs[0] =
      kernel::narrow(group_normalize(x, std::max<int64_t>(1, x.shape()[1]), c.node.get_float("epsilon", 1e-5f),
                                     kernel::widen(c.input(1)), kernel::widen(c.input(2))),
                     types[0].dtype);
}

void evaluate_group_norm(EvalContext& c, const std::vector<TypeInfo>& types) {
  c.outputs[0] = kernel::narrow(
      group_normalize(kernel::widen(c.input(0)), c.node.get_int("num_groups", 1), c.node.get_float("epsilon", 1e-5f),
                      kernel::widen(c.input(1)), kernel::widen(c.input(2))),
      types[0].dtype);
}

// ---------------------------------------------------------------------------------------------- LayerNorm and RMSNorm

/// Type of the statistics: fp32 unless stash_type asks for another; float64 for a float64 input.
DType stash_type(const Node& node, DType x) {
  const int64_t number = node.get_int("stash_type", 1);
  const auto dtype = number >= 0 && number < 32 ? static_cast<DType>(number) : DType::kUndefined;
  if (!kernel::contains(kernel::kFloats, dtype)) node.fail(ErrorCode::kInvalidModel, "stash_type is no float type");
  return x == DType::kDouble ? x : dtype;
}

/// Layer normalisation and its RMS form; `statistics` results from index 1 on: mean and inverse deviation, or the
/// latter alone.
kernel::Kernel layer_kernel(bool centred) {
  return [centred](EvalContext& c, const std::vector<TypeInfo>& types) {
    const Tensor x = kernel::widen(c.input(0)), scale = kernel::widen(c.input(1));
    Tensor shift;
    if (c.has(2)) shift = kernel::widen(c.input(2));
    const int64_t axis = normalise_axis(c.node, c.node.get_int("axis", -1), x.rank());
    const LayerNormalized result = layer_normalize(x, axis, c.node.get_float("epsilon", 1e-5f), centred, &scale,
                                                   c.has(2) ? &shift : nullptr, true);
    c.outputs[0] = kernel::narrow(result.y, types[0].dtype);
    size_t next = 1;
    if (centred && next < c.outputs.size()) {
      c.outputs[next] = kernel::narrow(result.mean, types[next].dtype);
      ++next;
    }
    if (next < c.outputs.size()) c.outputs[next] = kernel::narrow(result.inverse_deviation, types[next].dtype);
  };
}

void infer_layer_norm(InferContext& c) {
  like_first(c);
  const TypeInfo& x = c.input(0);
  require_minimum_rank(c.node, x, 1);
  TypeInfo statistics = c.outputs[0];
  statistics.dtype = stash_type(c.node, x.dtype);
  if (x.ranked) {
    const int64_t axis = static_cast<int64_t>(axis_attribute(c.node, -1, x.shape));
    std::fill(statistics.shape.begin() + axis, statistics.shape.end(), 1);
  }
  for (size_t i = 1; i < 3; ++i) {
    if (!c.has(i)) continue;
    kernel::require_same_type(c.node, x, c.input(i));
    if (!x.ranked || !c.input(i).ranked) continue;
    const Shape& shape = c.input(i).shape;
    bool fits = shape.size() <= x.shape.size();
    for (size_t d = 0; fits && d < shape.size(); ++d)
      fits = shape[d] == 1 || !differ(shape[d], x.shape[x.shape.size() - shape.size() + d]);
    if (!fits)
      c.node.fail(ErrorCode::kInvalidModel,
                  "parameter " + to_string(shape) + " does not broadcast to " + to_string(x.shape));
  }
  for (size_t i = 1; i < c.outputs.size(); ++i) c.outputs[i] = statistics;
}

// --------------------------------------------------------------------------------------------------------------- LRN

void infer_lrn(InferContext& c) {
  like_first(c);
  require_minimum_rank(c.node, c.input(0), 2);
  if (c.node.get_int("size", 0) < 1) c.node.fail(ErrorCode::kInvalidModel, "attribute 'size' must be at least 1");
}

void evaluate_lrn(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Shape& shape = types[0].shape;
  const int64_t size = c.node.get_int("size", 1), channels = shape[1], plane = kernel::product(shape, 2, shape.size());
  c.outputs[0] = kernel::in_floats(c.node, c.input(0), types[0], [&]<typename T>(const T* image, T* out) {
    const T factor = static_cast<T>(c.node.get_float("alpha", 1e-4f)) / static_cast<T>(size);
    const T beta = static_cast<T>(c.node.get_float("beta", 0.75f)),
            bias = static_cast<T>(c.node.get_float("bias", 1.0f));
    for (int64_t n = 0; n < shape[0]; ++n, image += channels * plane, out += channels * plane)
      for (int64_t channel = 0; channel < channels; ++channel) {
        const int64_t first = std::max<int64_t>(0, channel - (size - 1) / 2),
                      last = std::min(channels - 1, channel + size / 2);
        for (int64_t i = 0; i < plane; ++i) {
          T sum = 0;
          for (int64_t other = first; other <= last; ++other)
            sum += image[other * plane + i] * image[other * plane + i];
          out[channel * plane + i] = image[channel * plane + i] / std::pow(bias + factor * sum, beta);
        }
      }
  });
}

// --------------------------------------------------------------------------------------------------- LpNormalization

void infer_lp_norm(InferContext& c) {
  like_first(c);
  if (c.input(0).ranked) axis_attribute(c.node, -1, c.input(0).shape);
  const int64_t p = c.node.get_int("p", 2);
  if (p != 1 && p != 2) c.node.fail(ErrorCode::kInvalidModel, "p must be 1 or 2, not " + std::to_string(p));
}

void evaluate_lp_norm(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Shape& shape = types[0].shape;
  const auto axis = axis_attribute(c.node, -1, shape);
  const int64_t p = c.node.get_int("p", 2), width = shape[axis];
  const int64_t inner = kernel::product(shape, axis + 1, shape.size());
  c.outputs[0] = kernel::in_floats(c.node, c.input(0), types[0], [&]<typename T>(const T* x, T* y) {
    for (int64_t run = 0; run < (width == 0 ? 0 : element_count(shape) / width); ++run) {
      const int64_t at = run / inner * width * inner + run % inner;
      const T* in = x + at;
      T sum = 0;
      for (int64_t i = 0; i < width; ++i) sum += p == 1 ? std::fabs(in[i * inner]) : in[i * inner] * in[i * inner];
      const T norm = p == 1 ? sum : std::sqrt(sum);
      for (int64_t i = 0; i < width; ++i) y[at + i * inner] = norm == 0 ? T{0} : in[i * inner] / norm;
    }
  });
}

// ------------------------------------------------------------------------------------------ MeanVarianceNormalization

std::vector<int64_t> variance_axes(const Node& node, int64_t rank) {
  return kernel::normalise_axes(node, node.get_ints("axes", {0, 2, 3}), rank);
}

void infer_mean_variance(InferContext& c) {
  like_first(c);
  if (c.input(0).ranked) variance_axes(c.node, static_cast<int64_t>(c.input(0).shape.size()));
}

void evaluate_mean_variance(EvalContext& c, const std::vector<TypeInfo>& types) {
  const std::vector<int64_t> axes = variance_axes(c.node, c.input(0).rank());
  // Kept dimensions first, normalised ones last; back at the end.
  std::vector<int64_t> order(types[0].shape.size()), inverse(order.size());
  std::iota(order.begin(), order.end(), 0);
  const auto is_kept = [&](int64_t d) { return std::find(axes.begin(), axes.end(), d) == axes.end(); };
  const auto kept = std::stable_partition(order.begin(), order.end(), is_kept) - order.begin();
  for (size_t d = 0; d < order.size(); ++d) inverse[static_cast<size_t>(order[d])] = static_cast<int64_t>(d);
  const Tensor arranged = permuted(c.input(0), order);
  const Shape& shape = arranged.shape();
  const int64_t width = kernel::product(shape, static_cast<size_t>(kept), shape.size());
  const Tensor y =
      kernel::in_floats(c.node, arranged, TypeInfo::tensor(types[0].dtype, shape), [&]<typename T>(const T* x, T* out) {
        for (int64_t at = 0; at < arranged.size(); at += width) {
          const std::span<const T> values(x + at, static_cast<size_t>(width));
          const Moments<T> m = moments(values);
          const T deviation = std::sqrt(m.variance) + static_cast<T>(1e-9f);
          for (const T value : values) *out++ = (value - m.mean) / deviation;
        }
      });
  c.outputs[0] = permuted(y, inverse);
}

// ------------------------------------------------------------------------------------------------------------ Dropout

void infer_dropout(InferContext& c) {
  like_first(c);
  for (size_t i = 1; i < 3; ++i)
    if (c.has(i) && c.input(i).ranked && kernel::product(c.input(i).shape) > 1)
      c.node.fail(ErrorCode::kInvalidModel, "ratio and training_mode must be scalars");
  if (c.outputs.size() > 1) {
    c.outputs[1] = c.outputs[0];
    // The mask has the input's type up to opset 9.
    if (c.node.version >= 10) c.outputs[1].dtype = DType::kBool;
  }
}

void evaluate_dropout(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor& x = c.input(0);
  const bool train = c.has(2) && c.input(2).size() == 1 && c.input(2).at_int64(0) != 0;
  const double ratio = c.has(1) && c.input(1).size() == 1 ? c.input(1).at_double(0) : 0.5;
  Tensor mask;
  if (c.outputs.size() > 1) mask = Tensor(types[1].dtype, x.shape());
  const auto keep = [&](int64_t i) {
    if (mask.dtype() == DType::kBool) mutable_elements<uint8_t>(mask)[i] = 1;
  };
  if (!train || ratio == 0.0) {
    // Nothing is dropped: all true from opset 12 on, zeros before, as ONNX Runtime reads the mask there.
    if (c.node.version >= 12)
      for (int64_t i = 0; i < mask.size(); ++i) keep(i);
    c.outputs[0] = x;
  } else {
    if (!(ratio >= 0.0 && ratio < 1.0))
      c.node.fail(ErrorCode::kInvalidModel, "the ratio " + std::to_string(ratio) + " is not in [0, 1)");
    const Tensor wide = kernel::widen(x);
    Tensor y(wide.dtype(), x.shape());
    // A generator of its own: the same seed gives the same mask.
    std::mt19937_64 random(static_cast<uint64_t>(c.node.get_int("seed", 0)));
    kernel::visit_float(wide.dtype(), [&]<typename T>(kernel::Tag<T>) {
      const T scale = static_cast<T>(1.0 / (1.0 - ratio));
      for (int64_t i = 0; i < x.size(); ++i) {
        if (static_cast<double>(random() >> 11) * 0x1p-53 < ratio) continue;
        mutable_elements<T>(y)[i] = elements<T>(wide)[i] * scale;
        keep(i);
      }
    });
    c.outputs[0] = kernel::narrow(y, x.dtype());
  }
  if (c.outputs.size() > 1) c.outputs[1] = mask;
}

}  // namespace

void register_norm(Registry& registry) {
  kernel::add(registry, "BatchNormalization", 7, {5, 5}, infer_batch_norm, evaluate_batch_norm,
              {"epsilon", "momentum", "spatial"}, {1, 5});
  kernel::add(registry, "BatchNormalization", 9, {5, 5}, infer_batch_norm, evaluate_batch_norm, {"epsilon", "momentum"},
              {1, 5});
  kernel::add(registry, "BatchNormalization", 14, {5, 5}, infer_batch_norm, evaluate_batch_norm,
              {"epsilon", "momentum", "training_mode"}, {1, 3});
  kernel::add(registry, "InstanceNormalization", 6, {3, 3}, infer_instance_norm, evaluate_instance_norm, {"epsilon"});
  kernel::add(registry, "GroupNormalization", 18, {3, 3}, infer_group_norm, evaluate_group_norm,
              {"epsilon", "num_groups"});
  kernel::add(registry, "GroupNormalization", 21, {3, 3}, infer_group_norm, evaluate_group_norm,
              {"epsilon", "num_groups", "stash_type"});
  // ONNX has LayerNormalization from 17 on; ONNX Runtime writes it, and its RMS form, into models of any opset.
  const std::set<std::string> layer = {"axis", "epsilon", "stash_type"};
  kernel::add(registry, "LayerNormalization", 1, {2, 3}, infer_layer_norm, layer_kernel(true), layer, {1, 3});
  kernel::add(registry, "SimplifiedLayerNormalization", 1, kernel::kTwo, infer_layer_norm, layer_kernel(false), layer,
              {1, 2});
  kernel::add(registry, "RMSNormalization", 23, kernel::kTwo, infer_layer_norm, layer_kernel(false), layer);
  kernel::add(registry, "LRN", 1, kernel::kOne, infer_lrn, evaluate_lrn, {"alpha", "beta", "bias", "size"});
  kernel::add(registry, "LpNormalization", 1, kernel::kOne, infer_lp_norm, evaluate_lp_norm, {"axis", "p"});
  kernel::add(registry, "MeanVarianceNormalization", 9, kernel::kOne, infer_mean_variance, evaluate_mean_variance,
              {"axes"});
  kernel::add(registry, "Dropout", 7, kernel::kOne, infer_dropout, evaluate_dropout, {"ratio"}, {1, 2});
  kernel::add_checked(registry, "Dropout", 12, {1, 3}, infer_dropout,
                      kernel::evaluation(infer_dropout, evaluate_dropout), {"seed"}, {1, 2}, "", {},
                      /*deterministic=*/false);  // in training mode
}

}  // namespace tessera::ops
