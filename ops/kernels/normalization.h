// SPDX-License-Identifier: Apache-2.0
// Statistics and scaling that the normalisation operators and ONNX Runtime's fused forms of them share, over runs of
// contiguous elements.
#pragma once

#include <cmath>
#include <span>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

template <typename T>
struct Moments {
  T mean = 0;
  T variance = 0;  // of the population
};

/// Means are plain sums in ascending order; variances are taken about the mean in a second pass.
template <typename T>
Moments<T> moments(std::span<const T> values) {
  Moments<T> result;
  for (T value : values) result.mean += value;
  result.mean /= static_cast<T>(values.size());
  for (T value : values) result.variance += (value - result.mean) * (value - result.mean);
  result.variance /= static_cast<T>(values.size());
  return result;
}

/// Results of a layer normalisation; mean and inverse standard deviation have one element for each row.
struct LayerNormalized {
  Tensor y;
  Tensor mean;
  Tensor inverse_deviation;
};

/// Elements of a row from which on LayerNormalization (`centred`) and its simplified form sum fp32 in lanes.
constexpr int64_t shortest_in_lanes(bool centred) { return centred ? 8 : 16; }
/// Of the elements behind the last eight, so many at a time are squared before they are added.
inline constexpr size_t kSquaredApart = 4;

/// Normalises over dimensions axis.. of x (float32 or float64), then scales and shifts by tensors that broadcast to x
/// (nullptr: none; no shift without a scale). With `centred` false nothing is subtracted (RMS normalisation) and mean
/// stays zero. `lanes`: as LayerNormalization does, and not the forms that add before they normalise.
LayerNormalized layer_normalize(const Tensor& x, int64_t axis, double epsilon, bool centred, const Tensor* scale,
                                const Tensor* shift, bool lanes);

}  // namespace tessera::ops
